//! Tokens: as a server issues them, and as they are stored.

use std::fmt;

use serde_json::{Map, Value};

use super::client::AuthMethod;
use super::metadata::scope_tokens;
use super::record::{Member, Record, put, record, take};
use super::scope;
use crate::ports::Timestamp;

/// The longest token that is taken, in bytes: it must fit into a header.
const MAX_TOKEN: usize = 16 << 10;
/// How long before its end a token is replaced at most, in milliseconds.
const MARGIN: u64 = 60_000;
/// The longest life that is believed, in seconds: ten years.
const MAX_LIFE: u64 = 10 * 365 * 24 * 3_600;

/// A set of tokens with where it came from. Secret.
///
/// Serialises to the record of the TypeScript package, with one member of ours in it.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Tokens {
    /// What shows the permission.
    pub access_token: String,
    /// `Bearer` or `DPoP`, in any case.
    pub token_type: String,
    /// Its life in seconds, as it was issued.
    pub expires_in: Option<u64>,
    /// The scopes that were granted, separated by blanks.
    pub scope: Option<String>,
    /// What the next tokens are got with.
    pub refresh_token: Option<String>,
    /// Who issued it. Written here, never taken from an answer.
    pub issuer: Option<String>,
    /// Ours; absent in what the TypeScript package has written.
    pub origin: Option<TokenOrigin>,
    /// Whatever else there is.
    pub rest: Map<String, Value>,
}

/// Where tokens came from. What is refreshed later goes back there, whatever metadata says then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenOrigin {
    /// The server they are for, to the letter.
    pub server_url: String,
    /// When the sign-in ended that they come from, refreshed or not.
    pub signed_in_at: Timestamp,
    /// When the access token ends, where that is known.
    pub expires_at: Option<Timestamp>,
    /// Who issued them.
    pub token_endpoint: String,
    /// Who takes them back.
    pub revocation_endpoint: Option<String>,
    /// How the client authenticates there.
    pub auth_method: AuthMethod,
    /// The client.
    pub client_id: String,
    /// The `resource` they were asked for.
    pub resource: Option<String>,
    /// Where the resource metadata was found, if it was.
    pub resource_metadata_url: Option<String>,
    /// The scopes that were asked for.
    pub requested_scope: Option<String>,
}

record! { TokenOrigin {
    server_url: "serverUrl",
    signed_in_at: "signedInAt",
    expires_at: "expiresAt",
    token_endpoint: "tokenEndpoint",
    revocation_endpoint: "revocationEndpoint",
    auth_method: "authMethod",
    client_id: "clientId",
    resource: "resource",
    resource_metadata_url: "resourceMetadataUrl",
    requested_scope: "requestedScope",
}}

fn bearer() -> String {
    "Bearer".to_owned()
}

/// Where ours is, in a record of the TypeScript package.
pub(super) const OURS: &str = "workersAgents";

impl Tokens {
    /// Reads a record; `None` where there is no access token in it.
    pub fn from_record(mut record: Record) -> Option<Self> {
        let access_token: Option<String> = take(&mut record, "access_token");
        let token_type: Option<String> = take(&mut record, "token_type");
        let origin = record.remove(OURS).filter(Value::is_object);
        Some(Self {
            access_token: access_token?,
            token_type: token_type.unwrap_or_else(bearer),
            expires_in: take(&mut record, "expires_in"),
            scope: take(&mut record, "scope"),
            refresh_token: take(&mut record, "refresh_token"),
            issuer: take(&mut record, "issuer"),
            origin: origin.map(|origin| TokenOrigin::read(Some(origin))),
            rest: record,
        })
    }

    /// The record to store.
    pub fn to_record(&self) -> Record {
        let mut record = self.rest.clone();
        put(&mut record, "access_token", &self.access_token);
        put(&mut record, "token_type", &self.token_type);
        put(&mut record, "expires_in", &self.expires_in);
        put(&mut record, "scope", &self.scope);
        put(&mut record, "refresh_token", &self.refresh_token);
        put(&mut record, "issuer", &self.issuer);
        if let Some(origin) = self.origin.as_ref().and_then(Member::write) {
            record.insert(OURS.to_owned(), origin);
        }
        record
    }
}

impl Tokens {
    /// Whether the access token must be accompanied by a proof of possession.
    pub fn is_bound_to_key(&self) -> bool {
        self.token_type.eq_ignore_ascii_case("dpop")
    }

    /// Whether the access token is over, or nearly so. Unknown means no.
    pub(crate) fn is_stale(&self, now: Timestamp) -> bool {
        // A tenth of a short life: else those would be replaced at every request.
        let life = self.expires_in.unwrap_or_default().saturating_mul(1_000);
        let margin = MARGIN.min(life / 10);
        self.expires_at()
            .is_some_and(|end| now.saturating_add(margin) >= end)
    }

    /// Whether the access token is over.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        self.expires_at().is_some_and(|end| now >= end)
    }

    /// When the access token ends, where that is known.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.origin.as_ref()?.expires_at
    }
}

/// Nothing of it is shown.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens")
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

/// Reads what a token endpoint answered with 2xx: JSON, or a form where somebody sends that.
/// `Err` names what is wrong, no value.
pub(super) fn read_answer(media_type: &str, body: &str) -> Result<Map<String, Value>, String> {
    let is_form = media_type == "application/x-www-form-urlencoded";
    if is_form {
        let mut answer = Map::new();
        for (name, value) in url::form_urlencoded::parse(body.as_bytes()) {
            answer.insert(name.into_owned(), value.into_owned().into());
        }
        return Ok(answer);
    }
    serde_json::from_str(body).map_err(|_| {
        let shown: String = media_type.chars().take(60).collect();
        format!("the answer is no JSON object (content type {shown:?})")
    })
}

/// Tokens out of an answer that is no error.
///
/// Life: a number or the text of one; zero and below mean that it is over already; what is no
/// number at all means that nothing is known.
pub(super) fn issued(answer: &Map<String, Value>, now: Timestamp) -> Result<Tokens, String> {
    let text = |name: &str| {
        let value = answer.get(name).and_then(Value::as_str);
        value.filter(|value| !value.is_empty()).map(str::to_owned)
    };
    let access_token = text("access_token").ok_or("the answer has no access_token")?;
    let is_legal = |token: &str| token.len() <= MAX_TOKEN && token.bytes().all(is_visible);
    if !is_legal(&access_token) {
        return Err("the access token is too long, or not visible ASCII".into());
    }
    let token_type = text("token_type").unwrap_or_else(bearer);
    if !token_type.eq_ignore_ascii_case("bearer") && !token_type.eq_ignore_ascii_case("dpop") {
        return Err("the token type is neither Bearer nor DPoP".into());
    }
    let life = answer.get("expires_in").and_then(life);
    let expires_at = life.map(|life| now.saturating_add(life.saturating_mul(1_000)));
    let refresh_token = text("refresh_token").filter(|token| token.len() <= MAX_TOKEN);
    let mut rest = Map::new();
    if let Some(token) = text("id_token") {
        rest.insert("id_token".to_owned(), token.into());
    }
    Ok(Tokens {
        access_token,
        token_type,
        expires_in: life,
        scope: text("scope").and_then(|scope| scope::union(scope_tokens(&scope))),
        refresh_token,
        issuer: None,
        origin: Some(TokenOrigin {
            signed_in_at: now,
            expires_at,
            ..TokenOrigin::default()
        }),
        rest,
    })
}

fn is_visible(byte: u8) -> bool {
    byte.is_ascii_graphic()
}

/// Seconds, rounded down.
fn life(value: &Value) -> Option<u64> {
    let seconds = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => seconds(text.trim())?,
        _ => return None,
    };
    if !seconds.is_finite() {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within the range by the line before"
    )]
    Some(seconds.clamp(0.0, 315_360_000.0) as u64).map(|seconds| seconds.min(MAX_LIFE))
}

/// A number that is written as text. The standard library's reader of floating-point numbers
/// would bring 10 KB of tables.
fn seconds(text: &str) -> Option<f64> {
    // Of whole numbers, this takes more than JSON does: a plus, and zeros in front.
    let whole = text.parse::<u32>().ok().map(f64::from);
    whole.or_else(|| serde_json::from_str(text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tokens(answer: &Value) -> Tokens {
        issued(answer.as_object().unwrap(), 1_000).unwrap()
    }

    #[test]
    fn ot_01_and_ot_02_a_life_of_any_shape() {
        for (life, expires_at) in [
            (json!("3600"), Some(3_601_000)),
            (json!(3600), Some(3_601_000)),
            (json!(3600.7), Some(3_601_000)),
            (json!(0), Some(1_000)),
            (json!(-1), Some(1_000)),
            (json!(99_999_999_999_999_u64), Some(315_360_001_000)),
            (json!(1e300), Some(315_360_001_000)),
            (json!(" 3600.7 "), Some(3_601_000)),
            (json!("+3600"), Some(3_601_000)),
            (json!("03600"), Some(3_601_000)),
            (json!("-5"), Some(1_000)),
            (json!("3600abc"), None),
            (json!("NaN"), None),
            (json!(null), None),
            (json!([]), None),
        ] {
            let tokens = tokens(&json!({"access_token": "a", "expires_in": life}));
            assert_eq!(tokens.expires_at(), expires_at, "{life}");
            assert_eq!(tokens.is_over(1_000), expires_at == Some(1_000), "{life}");
        }
        assert_eq!(tokens(&json!({"access_token": "a"})).expires_at(), None);
    }

    #[test]
    fn what_is_no_token_is_refused_without_showing_it() {
        for answer in [
            json!({}),
            json!({"access_token": 5}),
            json!({"access_token": ""}),
            json!({"access_token": "sec\nret"}),
            json!({"access_token": "secret", "token_type": "mac"}),
        ] {
            let reason = issued(answer.as_object().unwrap(), 0).unwrap_err();
            assert!(!reason.contains("sec"), "{reason}");
        }
    }

    #[test]
    fn ot_05_an_answer_may_be_a_form() {
        let form = "application/x-www-form-urlencoded";
        let answer = read_answer(form, "access_token=a%2Bb&token_type=bearer&expires_in=60");
        let tokens = issued(&answer.unwrap(), 0).unwrap();
        assert_eq!(
            (&*tokens.access_token, tokens.expires_in),
            ("a+b", Some(60))
        );
        let reason = read_answer("text/html", "<p>secret</p>").unwrap_err();
        assert!(reason.contains("text/html") && !reason.contains("secret"));
    }

    #[test]
    fn the_record_of_the_typescript_package_can_be_read_and_is_kept() {
        let record = json!({
            "access_token": "a", "token_type": "Bearer", "expires_in": 3600, "scope": "x",
            "refresh_token": "r", "issuer": "https://as.example", "id_token": "i", "later": [1],
        });
        let read = |record: Value| Tokens::from_record(record.as_object().unwrap().clone());
        let tokens = read(record.clone()).unwrap();
        assert!(tokens.origin.is_none());
        assert_eq!(Value::from(tokens.to_record()), record);
        let odd = read(json!({
            "access_token": "a", "token_type": null, "expires_in": "x", "workersAgents": 1,
        }))
        .unwrap();
        assert_eq!((&*odd.token_type, odd.expires_in), ("Bearer", None));
        assert!(!format!("{tokens:?}").contains("refresh"));
    }
}
