//! Who we are to an authorization server: registered beforehand, by a document, or dynamically.

use std::fmt;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Map, Value, json};
use url::{Host, Url};

use super::error::one_line;
use super::net::Ask;
use super::record::{Member, Record, put, record, take};
use super::tokens::OURS;
use super::{Net, OAuthError, ServerMetadata};
use crate::ports::Timestamp;
use crate::url_guard::GuardedUrl;

/// The longest id of a client, and the longest other member of a registration, in bytes.
const MAX_ID: usize = 1 << 10;
const MAX_MEMBER: usize = 4 << 10;
/// What is kept of a registration.
const KEPT: [&str; 13] = [
    "client_id",
    "client_secret",
    "client_id_issued_at",
    "client_secret_expires_at",
    "token_endpoint_auth_method",
    "redirect_uris",
    "grant_types",
    "response_types",
    "application_type",
    "client_name",
    "client_uri",
    "scope",
    "dpop_bound_access_tokens",
];
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(10);

/// How a client authenticates at the token endpoint (RFC 7591 §2, RFC 7523).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthMethod {
    /// Not at all: a public client.
    #[default]
    None,
    /// By its secret, in a header.
    SecretBasic,
    /// By its secret, in the body.
    SecretPost,
    /// By a token that it signs.
    PrivateKeyJwt,
}

impl AuthMethod {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SecretBasic => "client_secret_basic",
            Self::SecretPost => "client_secret_post",
            Self::PrivateKeyJwt => "private_key_jwt",
        }
    }

    /// The method of this name.
    pub fn parse(name: &str) -> Option<Self> {
        [
            Self::None,
            Self::SecretBasic,
            Self::SecretPost,
            Self::PrivateKeyJwt,
        ]
        .into_iter()
        .find(|method| method.as_str() == name)
    }

    /// The method to use: the one agreed on if the server lists it, else the first of those that
    /// are possible (2026-07-28, authorization; RFC 6749 §2.3.1 prefers the header).
    pub(super) fn choose(client: &ClientInformation, listed: Option<&[String]>) -> Self {
        let has_secret = client.client_secret.is_some();
        let has_key = client.ours.private_key.is_some();
        let is_listed = |method: Self| {
            listed.is_none_or(|listed| listed.iter().any(|name| name == method.as_str()))
        };
        let is_possible = |method: Self| match method {
            Self::None => true,
            Self::SecretBasic | Self::SecretPost => has_secret,
            Self::PrivateKeyJwt => has_key,
        };
        let agreed = client
            .token_endpoint_auth_method
            .as_deref()
            .and_then(Self::parse)
            .filter(|method| is_possible(*method));
        if let Some(agreed) = agreed.filter(|method| is_listed(*method)) {
            return agreed;
        }
        let order = [Self::PrivateKeyJwt, Self::SecretBasic, Self::SecretPost];
        let mut possible = order.into_iter().filter(|method| is_possible(*method));
        match possible.clone().find(|method| is_listed(*method)) {
            Some(method) => method,
            None if is_listed(Self::None) && listed.is_some() => Self::None,
            // Nothing fits what is listed: what the registration said, or what is likeliest.
            None => agreed.unwrap_or_else(|| match possible.next() {
                Some(Self::PrivateKeyJwt) => Self::PrivateKeyJwt,
                Some(_) => Self::SecretPost,
                None => Self::None,
            }),
        }
    }
}

/// A client as it is stored. Secret.
///
/// Serialises to the record of the TypeScript package, with one member of ours in it.
#[derive(Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ClientInformation {
    /// Its id.
    pub client_id: String,
    /// Its secret.
    pub client_secret: Option<String>,
    /// When the secret ends, in seconds since the Unix epoch; 0 is never.
    pub client_secret_expires_at: Option<u64>,
    /// How it authenticates, where that was agreed on.
    pub token_endpoint_auth_method: Option<String>,
    /// Where users may be sent back to.
    pub redirect_uris: Option<Vec<String>>,
    /// The issuer that knows it. Written here, never taken from an answer.
    pub issuer: Option<String>,
    /// Ours.
    pub ours: ClientNotes,
    /// Whatever else there is.
    pub rest: Map<String, Value>,
}

/// What is noted about a client beyond its registration.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientNotes {
    /// The host gave it, so it is never thrown away.
    pub configured: bool,
    /// A sign-in has begun with it, and none has succeeded yet.
    pub untried: bool,
    /// PKCS#8 in PEM, or a JWK, to sign with.
    pub private_key: Option<String>,
    /// The algorithm to sign with.
    pub signing_algorithm: Option<String>,
}

record! { ClientNotes {
    configured: "configured",
    untried: "untried",
    private_key: "privateKey",
    signing_algorithm: "signingAlgorithm",
}}

impl ClientInformation {
    /// Reads a record; `None` where there is no id in it.
    pub fn from_record(mut record: Record) -> Option<Self> {
        let client_id: Option<String> = take(&mut record, "client_id");
        Some(Self {
            client_id: client_id.filter(|id| !id.is_empty())?,
            client_secret: take(&mut record, "client_secret"),
            client_secret_expires_at: take(&mut record, "client_secret_expires_at"),
            token_endpoint_auth_method: take(&mut record, "token_endpoint_auth_method"),
            redirect_uris: take(&mut record, "redirect_uris"),
            issuer: take(&mut record, "issuer"),
            ours: take(&mut record, OURS),
            rest: record,
        })
    }

    /// The record to store.
    pub fn to_record(&self) -> Record {
        let mut record = self.rest.clone();
        put(&mut record, "client_id", &self.client_id);
        put(&mut record, "client_secret", &self.client_secret);
        put(
            &mut record,
            "client_secret_expires_at",
            &self.client_secret_expires_at,
        );
        put(
            &mut record,
            "token_endpoint_auth_method",
            &self.token_endpoint_auth_method,
        );
        put(&mut record, "redirect_uris", &self.redirect_uris);
        put(&mut record, "issuer", &self.issuer);
        put(&mut record, OURS, &self.ours);
        record
    }

    /// A public client.
    pub fn public(client_id: impl Into<String>) -> Self {
        Self {
            client_id: client_id.into(),
            ..Self::default()
        }
    }

    /// Whether it can still be used: its secret has not ended, and users can be sent back to
    /// `redirect_url`.
    pub(super) fn is_usable(&self, redirect_url: Option<&str>, now: Timestamp) -> bool {
        let is_over = self
            .client_secret_expires_at
            .is_some_and(|end| end != 0 && end.saturating_mul(1_000) <= now);
        let knows = |url: &str| {
            let uris = self.redirect_uris.as_deref();
            uris.is_none_or(|uris| uris.is_empty() || uris.iter().any(|other| other == url))
        };
        self.ours.configured || !is_over && redirect_url.is_none_or(knows)
    }
}

impl Member for ClientInformation {
    fn read(value: Option<Value>) -> Self {
        match value {
            Some(Value::Object(record)) => Self::from_record(record).unwrap_or_default(),
            _ => Self::default(),
        }
    }

    fn write(&self) -> Option<Value> {
        Some(self.to_record().into())
    }
}

impl Member for AuthMethod {
    fn read(value: Option<Value>) -> Self {
        let name: Option<String> = Member::read(value);
        name.and_then(|name| Self::parse(&name)).unwrap_or_default()
    }

    fn write(&self) -> Option<Value> {
        Some(self.as_str().into())
    }
}

/// Ids are no secrets, everything else may be.
impl fmt::Debug for ClientInformation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientInformation")
            .field("client_id", &self.client_id)
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientNotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientNotes")
            .field("configured", &self.configured)
            .finish_non_exhaustive()
    }
}

/// What a client says about itself, to register or in a document (RFC 7591 §2).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientMetadata {
    /// What users read when they are asked for consent.
    pub client_name: String,
    /// Where they can read about it.
    pub client_uri: Option<String>,
    /// Where they are sent back to.
    pub redirect_uris: Vec<String>,
}

impl ClientMetadata {
    /// A client with a name, to which users come back at one URL.
    pub fn new(client_name: impl Into<String>, redirect_url: impl Into<String>) -> Self {
        let redirect_url = redirect_url.into();
        let origin = Url::parse(&redirect_url).ok().map(|url| url.origin());
        Self {
            client_name: client_name.into(),
            client_uri: origin
                .filter(url::Origin::is_tuple)
                .map(|origin| origin.ascii_serialization()),
            redirect_uris: vec![redirect_url],
        }
    }

    fn document(&self) -> Map<String, Value> {
        let mut document = Map::new();
        document.insert("client_name".into(), self.client_name.clone().into());
        if let Some(uri) = &self.client_uri {
            document.insert("client_uri".into(), uri.clone().into());
        }
        document.insert("redirect_uris".into(), self.redirect_uris.clone().into());
        document.insert(
            "grant_types".into(),
            json!(["authorization_code", "refresh_token"]),
        );
        document.insert("response_types".into(), json!(["code"]));
        document
    }

    /// The client id metadata document whose id, and place, is `client_id`. Public.
    pub fn client_id_document(&self, client_id: &str) -> Value {
        let mut document = self.document();
        document.insert("client_id".into(), client_id.into());
        document.insert("token_endpoint_auth_method".into(), "none".into());
        document.into()
    }

    /// What to register. `native` is a client that users come back to on their own machine
    /// (2026-07-28, client registration).
    fn registration(&self, metadata: &ServerMetadata, scope: Option<&str>, dpop: bool) -> Value {
        let mut document = self.document();
        let is_native = self.redirect_uris.iter().any(|uri| is_native(uri));
        let kind = if is_native { "native" } else { "web" };
        document.insert("application_type".into(), kind.into());
        // Without a list a server takes its default, which some have made `client_secret_basic`
        // alone; public clients are what most expect of MCP.
        let methods = metadata.token_endpoint_auth_methods_supported.as_deref();
        let order = ["none", "client_secret_basic", "client_secret_post"];
        let listed =
            |name: &&str| methods.is_none_or(|methods| methods.iter().any(|method| method == name));
        let method = order.into_iter().find(listed).unwrap_or("none");
        document.insert("token_endpoint_auth_method".into(), method.into());
        if let Some(scope) = scope {
            document.insert("scope".into(), scope.into());
        }
        if dpop {
            document.insert("dpop_bound_access_tokens".into(), true.into());
        }
        document.into()
    }
}

fn is_native(redirect_uri: &str) -> bool {
    let Ok(url) = Url::parse(redirect_uri) else {
        return false;
    };
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    is_loopback || !matches!(url.scheme(), "http" | "https")
}

/// Registers a client dynamically (RFC 7591 §3).
pub(super) async fn register(
    net: &Net,
    server: &GuardedUrl,
    metadata: &ServerMetadata,
    is_published: bool,
    client: &ClientMetadata,
    scope: Option<&str>,
    dpop: bool,
) -> Result<ClientInformation, OAuthError> {
    let what = "the registration endpoint";
    let endpoint = metadata.registration_endpoint.as_deref();
    let endpoint = super::endpoint(server, what, endpoint.ok_or(OAuthError::NoClient)?)?;
    let document = client.registration(metadata, scope, dpop);
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let reply = net
        .ask(Ask {
            what,
            method: Method::POST,
            url: &endpoint,
            headers,
            body: Some(&document.to_string()),
            timeout: REGISTRATION_TIMEOUT,
        })
        .await?;
    if !reply.is_success() {
        return Err(match reply.status {
            // The default place of an old server that is none.
            404 | 405 if !is_published => OAuthError::NoAuthorizationServer,
            status @ (408 | 425 | 429 | 500..) => OAuthError::Status {
                what,
                url: endpoint.to_string(),
                status,
                retry_after: reply.retry_after(),
            },
            status => OAuthError::RegistrationRefused {
                status,
                reason: refusal(&reply.body, status),
            },
        });
    }
    let unusable = |reason: &str| OAuthError::Unusable {
        what,
        url: endpoint.to_string(),
        reason: reason.to_owned(),
    };
    let mut answer: Map<String, Value> =
        serde_json::from_str(&reply.body).map_err(|_| unusable("the answer is no JSON object"))?;
    // Nulls and empty texts are how some servers leave a member out. Who the client belongs to, and
    // what is noted of it, is not theirs to say.
    answer.retain(|_, value| !matches!(value, Value::Null) && value.as_str() != Some(""));
    answer.remove("issuer");
    answer.remove("workersAgents");
    // What is kept is written with every sign-in.
    answer.retain(|name, value| {
        KEPT.contains(&name.as_str()) && value.to_string().len() < MAX_MEMBER
    });
    let mut registered = ClientInformation::from_record(answer)
        .filter(|client| is_legal_id(&client.client_id))
        .ok_or_else(|| unusable("the answer has no client_id that can be used"))?;
    // Better said now than when the user comes back.
    let method = registered.token_endpoint_auth_method.as_deref();
    let can = method.is_none_or(|name| {
        matches!(
            AuthMethod::parse(name),
            Some(AuthMethod::None | AuthMethod::SecretBasic | AuthMethod::SecretPost)
        )
    });
    if !can {
        return Err(unusable(
            "it assigns a token_endpoint_auth_method that is not supported",
        ));
    }
    // What it was registered for, however the server writes it.
    registered.redirect_uris = Some(client.redirect_uris.clone());
    Ok(registered)
}

/// An id is part of keys and of URLs.
fn is_legal_id(client_id: &str) -> bool {
    client_id.len() <= MAX_ID && client_id.bytes().all(|byte| (0x20..0x7f).contains(&byte))
}

/// What a refusal says (RFC 7591 §3.2.2).
fn refusal(body: &str, status: u16) -> String {
    let answer: Option<Value> = serde_json::from_str(body).ok();
    let member = |name: &str| {
        let value = answer.as_ref()?.get(name)?.as_str()?;
        Some(one_line(value))
    };
    match (member("error"), member("error_description")) {
        (Some(error), Some(description)) => format!("{description} ({error})"),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => format!("HTTP status {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(method: Option<&str>, secret: bool, key: bool) -> ClientInformation {
        ClientInformation {
            client_secret: secret.then(|| "s".into()),
            token_endpoint_auth_method: method.map(str::to_owned),
            ours: ClientNotes {
                private_key: key.then(|| "k".into()),
                ..ClientNotes::default()
            },
            ..ClientInformation::public("c")
        }
    }

    #[test]
    fn the_method_of_authentication() {
        use AuthMethod::{None as Public, PrivateKeyJwt, SecretBasic, SecretPost};
        for (method, secret, key, listed, expected) in [
            // Agreed on, and listed or no list.
            (Some("client_secret_post"), true, false, None, SecretPost),
            (
                Some("client_secret_basic"),
                true,
                false,
                Some(vec!["client_secret_basic", "none"]),
                SecretBasic,
            ),
            // No list.
            (None, true, false, None, SecretBasic),
            (None, false, false, None, Public),
            (None, true, true, None, PrivateKeyJwt),
            // The first of the list that is possible.
            (
                Some("none"),
                true,
                false,
                Some(vec!["client_secret_post"]),
                SecretPost,
            ),
            (
                None,
                true,
                false,
                Some(vec!["client_secret_post", "client_secret_basic"]),
                SecretBasic,
            ),
            (None, true, false, Some(vec!["none"]), Public),
            // Nothing fits.
            (None, true, false, Some(vec!["tls_client_auth"]), SecretPost),
            (None, false, false, Some(vec!["tls_client_auth"]), Public),
            // What cannot be done was not agreed on.
            (Some("client_secret_basic"), false, false, None, Public),
            (Some("private_key_jwt"), false, true, None, PrivateKeyJwt),
        ] {
            let listed: Option<Vec<String>> =
                listed.map(|listed| listed.into_iter().map(str::to_owned).collect());
            let client = client(method, secret, key);
            assert_eq!(
                AuthMethod::choose(&client, listed.as_deref()),
                expected,
                "{method:?} {secret} {key} {listed:?}"
            );
        }
    }

    #[test]
    fn a_client_ends_with_its_secret_and_with_its_callback() {
        let mut client = ClientInformation::public("c");
        assert!(client.is_usable(Some("https://a.example/cb"), 5_000));
        client.redirect_uris = Some(vec!["https://a.example/cb".into()]);
        assert!(client.is_usable(Some("https://a.example/cb"), 5_000));
        assert!(!client.is_usable(Some("https://b.example/cb"), 5_000));
        client.client_secret_expires_at = Some(0);
        assert!(client.is_usable(None, 5_000));
        client.client_secret_expires_at = Some(5);
        assert!(!client.is_usable(None, 5_000));
        client.ours.configured = true;
        assert!(client.is_usable(Some("https://b.example/cb"), 5_000));
    }

    #[test]
    fn native_is_who_is_reached_on_the_users_machine() {
        for (uri, native) in [
            ("http://127.0.0.1:8787/cb", true),
            ("http://localhost/cb", true),
            ("http://[::1]/cb", true),
            ("com.example.app:/cb", true),
            ("https://agents.example/cb", false),
        ] {
            let metadata = ClientMetadata::new("Gull", uri);
            let document = metadata.registration(&ServerMetadata::default(), None, false);
            let kind = if native { "native" } else { "web" };
            assert_eq!(document["application_type"], kind, "{uri}");
            assert!(document.get("scope").is_none());
        }
    }

    #[test]
    fn nothing_secret_is_shown() {
        let client = ClientInformation {
            client_secret: Some("hush".into()),
            ..client(None, true, true)
        };
        assert!(!format!("{client:?} {:?}", client.ours).contains("hush"));
    }
}
