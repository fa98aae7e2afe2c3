//! What resource servers and authorization servers publish about themselves.

use serde::Serialize;
use serde_json::value::RawValue;
use url::Url;

use super::OAuthError;
use crate::protocol::bounded::{is_object, list, member_text, small_member};
use crate::url_guard::GuardedUrl;

/// The longest URL, in bytes.
const MAX_URL: usize = 2 << 10;
/// The longest other text, in bytes.
const MAX_WORD: usize = 256;
/// The most texts of a list, and the most bytes of them together. All lists are stored with the
/// sign-in.
const MAX_ITEMS: usize = 256;
const MAX_LIST: usize = 8 << 10;

/// Protected resource metadata (RFC 9728 §2), as far as it has a meaning here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ResourceMetadata {
    /// The resource, to the letter.
    pub resource: String,
    /// Issuers of its tokens, to the letter.
    pub authorization_servers: Vec<String>,
    /// Scopes it knows.
    pub scopes_supported: Option<Vec<String>>,
    /// Whether it takes tokens only that are bound to a key (RFC 9449).
    pub dpop_bound_access_tokens_required: bool,
}

/// Authorization server metadata (RFC 8414 §2, `OpenID` Connect Discovery), as far as it has a
/// meaning here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ServerMetadata {
    /// The issuer, to the letter.
    pub issuer: String,
    /// Where users are sent.
    pub authorization_endpoint: Option<String>,
    /// Where tokens come from.
    pub token_endpoint: Option<String>,
    /// Where clients are registered.
    pub registration_endpoint: Option<String>,
    /// Where tokens are revoked (RFC 7009).
    pub revocation_endpoint: Option<String>,
    /// Scopes it knows.
    pub scopes_supported: Option<Vec<String>>,
    /// Response types; absent means unknown.
    pub response_types_supported: Option<Vec<String>>,
    /// Grants; absent means authorization code and implicit.
    pub grant_types_supported: Option<Vec<String>>,
    /// PKCE methods (RFC 7636).
    pub code_challenge_methods_supported: Option<Vec<String>>,
    /// How clients authenticate at the token endpoint.
    pub token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// With which algorithms they may sign there.
    pub token_endpoint_auth_signing_alg_values_supported: Option<Vec<String>>,
    /// Whether a client id may be the URL of a document about the client.
    pub client_id_metadata_document_supported: bool,
    /// Whether callbacks name the issuer (RFC 9207).
    pub authorization_response_iss_parameter_supported: bool,
    /// With which algorithms proofs of possession may be signed (RFC 9449).
    pub dpop_signing_alg_values_supported: Option<Vec<String>>,
    /// Grant profiles such as that of ID-JAG.
    pub authorization_grant_profiles_supported: Option<Vec<String>>,
}

/// What a body is that should be a document.
pub(super) enum Parsed<T> {
    Document(T),
    /// Something else altogether, such as the start page of a web site.
    Other(&'static str),
    /// Such a document, but unusable; the text names the member.
    Unusable(&'static str),
}

impl ResourceMetadata {
    /// The document, to be stored.
    pub(super) fn to_json(&self) -> serde_json::Value {
        to_json(self)
    }

    /// Reads a document. Members of a wrong type count as absent.
    pub(super) fn parse(body: &str) -> Parsed<Self> {
        let document = match object(body) {
            Ok(document) => document,
            Err(reason) => return Parsed::Other(reason),
        };
        let has = |name| member_text(&document, name).is_some();
        if !has("resource") && !has("authorization_servers") {
            return Parsed::Other("it names neither a resource nor authorization servers");
        }
        let Some(resource) = word(&document, "resource", MAX_URL) else {
            return Parsed::Unusable("it lacks a resource");
        };
        let servers = words(&document, "authorization_servers", MAX_URL);
        Parsed::Document(Self {
            resource,
            authorization_servers: servers.unwrap_or_default(),
            scopes_supported: scopes(&document),
            dpop_bound_access_tokens_required: flag(&document, "dpop_bound_access_tokens_required"),
        })
    }

    /// Whether the document is about `server` (RFC 9728 §3.3): it names the server's URL, or
    /// something of the same origin whose path is that of the server up to some segment. Queries
    /// do not count.
    ///
    /// The text goes to the authorization server as it is, so spellings that another reader may
    /// take for another resource are refused.
    pub fn is_about(&self, server: &GuardedUrl) -> bool {
        let Some(resource) = plain_http_url(&self.resource) else {
            return false;
        };
        if resource.fragment().is_some()
            || resource.origin() != server.url().origin()
            || has_dot_segments(&self.resource)
        {
            return false;
        }
        let path = resource.path();
        let path = path.strip_suffix('/').unwrap_or(path);
        let server_path = server.url().path();
        server_path
            .strip_prefix(path)
            .is_some_and(|below| below.is_empty() || below.starts_with('/'))
    }
}

impl ServerMetadata {
    /// A document that was stored.
    pub(super) fn read(stored: &serde_json::Value) -> Option<Self> {
        match Self::parse(&stored.to_string()) {
            Parsed::Document(document) => Some(document),
            Parsed::Other(_) | Parsed::Unusable(_) => None,
        }
    }

    /// The document, to be stored.
    pub(super) fn to_json(&self) -> serde_json::Value {
        to_json(self)
    }

    /// Reads a document. Members of a wrong type count as absent.
    pub(super) fn parse(body: &str) -> Parsed<Self> {
        const NAMES: [&str; 3] = ["issuer", "authorization_endpoint", "token_endpoint"];
        let document = match object(body) {
            Ok(document) => document,
            Err(reason) => return Parsed::Other(reason),
        };
        if NAMES
            .iter()
            .all(|name| member_text(&document, name).is_none())
        {
            return Parsed::Other("it names neither an issuer nor endpoints");
        }
        let url = |name| word(&document, name, MAX_URL);
        let words = |name| words(&document, name, MAX_WORD);
        Parsed::Document(Self {
            // An empty one equals no issuer.
            issuer: url("issuer").unwrap_or_default(),
            authorization_endpoint: url("authorization_endpoint"),
            token_endpoint: url("token_endpoint"),
            registration_endpoint: url("registration_endpoint"),
            revocation_endpoint: url("revocation_endpoint"),
            scopes_supported: scopes(&document),
            response_types_supported: words("response_types_supported"),
            grant_types_supported: words("grant_types_supported"),
            code_challenge_methods_supported: words("code_challenge_methods_supported"),
            token_endpoint_auth_methods_supported: words("token_endpoint_auth_methods_supported"),
            token_endpoint_auth_signing_alg_values_supported: words(
                "token_endpoint_auth_signing_alg_values_supported",
            ),
            client_id_metadata_document_supported: flag(
                &document,
                "client_id_metadata_document_supported",
            ),
            authorization_response_iss_parameter_supported: flag(
                &document,
                "authorization_response_iss_parameter_supported",
            ),
            dpop_signing_alg_values_supported: words("dpop_signing_alg_values_supported"),
            authorization_grant_profiles_supported: words("authorization_grant_profiles_supported"),
        })
    }

    /// The endpoints that 2025-03-26 has at every origin which publishes nothing.
    pub(super) fn of_origin(origin: &str) -> Self {
        Self {
            issuer: origin.to_owned(),
            authorization_endpoint: Some(format!("{origin}/authorize")),
            token_endpoint: Some(format!("{origin}/token")),
            registration_endpoint: Some(format!("{origin}/register")),
            ..Self::default()
        }
    }

    /// Refuses to sign in without PKCE S256 (2026-07-28: clients must verify support). Only for
    /// metadata that was published; see [`Discovered::check_pkce`](super::Discovered::check_pkce).
    ///
    /// `allow_missing` lets a server pass that does not say which methods it has; S256 is used with
    /// it all the same.
    ///
    /// # Errors
    /// [`OAuthError::Unsupported`].
    pub fn check_pkce(&self, allow_missing: bool) -> Result<(), OAuthError> {
        let reason = match &self.code_challenge_methods_supported {
            Some(methods) if methods.iter().any(|method| method == "S256") => return Ok(()),
            None if allow_missing => return Ok(()),
            Some(_) => "code_challenge_methods_supported does not list it",
            None => "its metadata has no code_challenge_methods_supported",
        };
        Err(OAuthError::Unsupported(format!("PKCE with S256: {reason}")))
    }

    /// Refuses to send users where no code can come back from.
    ///
    /// # Errors
    /// [`OAuthError::Unsupported`].
    pub fn check_code_flow(&self) -> Result<(), OAuthError> {
        let types = self.response_types_supported.as_deref();
        let reason = if self.authorization_endpoint.is_none() {
            "its metadata has no authorization_endpoint"
        } else if types.is_some_and(|types| !types.iter().any(|name| name == "code")) {
            "response_types_supported does not list it"
        } else {
            return Ok(());
        };
        let reason = format!("the response type \"code\": {reason}");
        Err(OAuthError::Unsupported(reason))
    }

    /// Checks that every endpoint may be requested on behalf of `server`, and that nobody on the
    /// way can read what is sent there.
    pub(super) fn check_endpoints(&self, server: &GuardedUrl) -> Result<(), OAuthError> {
        for (what, endpoint) in [
            ("the authorization endpoint", &self.authorization_endpoint),
            ("the token endpoint", &self.token_endpoint),
            // One that revokes is judged when it is used: a sign-in does without.
            ("the registration endpoint", &self.registration_endpoint),
        ] {
            let Some(endpoint) = endpoint else { continue };
            let endpoint = server
                .related(endpoint)
                .map_err(|reason| OAuthError::Blocked { what, reason })?;
            if !endpoint.is_private() {
                let url = endpoint.to_string();
                return Err(OAuthError::Insecure { what, url });
            }
        }
        Ok(())
    }
}

/// The scopes of a list that are legal (RFC 6749 §3.3).
pub(super) fn scope_tokens(list: &str) -> impl Iterator<Item = &str> {
    let is_legal = |c: u8| matches!(c, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    list.split_ascii_whitespace()
        .filter(move |scope| scope.bytes().all(is_legal))
}

/// Whether the text is an absolute `http` or `https` URL to every reader, not only to the
/// forgiving parser of browsers, and holds no user name.
pub(super) fn is_plain_http_url(text: &str) -> bool {
    plain_http_url(text).is_some()
}

/// Such a URL, parsed: for comparisons only.
pub(super) fn plain_http_url(text: &str) -> Option<Url> {
    let (scheme, rest) = text.split_once("://")?;
    let is_http = ["http", "https"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known));
    let authority = rest.split(['/', '?', '#']).next()?;
    let is_odd = |c: char| c.is_control() || c.is_whitespace() || c == '\\';
    if !is_http || authority.is_empty() || authority.contains('@') || rest.contains(is_odd) {
        return None;
    }
    Url::parse(text).ok()
}

/// Whether a path has segments that a parser takes out.
fn has_dot_segments(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    path.split('/').any(|segment| {
        let segment = segment.to_ascii_lowercase().replace("%2e", ".");
        matches!(segment.as_str(), "." | "..")
    })
}

/// Without what is absent: the TypeScript package knows no `null` there.
fn to_json(document: &impl Serialize) -> serde_json::Value {
    let mut json = serde_json::to_value(document).unwrap_or_default();
    if let Some(members) = json.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    json
}

fn object(body: &str) -> Result<Box<RawValue>, &'static str> {
    let body = body.strip_prefix('\u{feff}').unwrap_or(body);
    let document: Box<RawValue> = serde_json::from_str(body).map_err(|_| "it is not JSON")?;
    if is_object(&document) {
        Ok(document)
    } else {
        Err("it is not a JSON object")
    }
}

fn word(document: &RawValue, name: &str, max: usize) -> Option<String> {
    // Escapes make the text longer than what it spells.
    let word: String = small_member(document, name, 6 * max + 2)?;
    (word.len() <= max).then_some(word)
}

fn flag(document: &RawValue, name: &str) -> bool {
    small_member(document, name, 8).unwrap_or(false)
}

/// The texts of a list, as many as fit. What is no text, or too long, is left out.
fn words(document: &RawValue, name: &str, max: usize) -> Option<Vec<String>> {
    let text = member_text(document, name)?;
    let (items, _) = list::<&RawValue>(text.as_bytes(), MAX_ITEMS).ok()?;
    let mut bytes = 0;
    let words = items
        .into_iter()
        .filter_map(|item| serde_json::from_str::<String>(item.get()).ok())
        .filter(|word| word.len() <= max)
        .take_while(|word| {
            bytes += word.len();
            bytes <= MAX_LIST
        });
    Some(words.collect())
}

fn scopes(document: &RawValue) -> Option<Vec<String>> {
    let listed = words(document, "scopes_supported", MAX_WORD)?;
    let scopes = listed.iter().flat_map(|entry| scope_tokens(entry));
    Some(scopes.map(str::to_owned).collect())
}
