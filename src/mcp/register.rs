//! What a host says about a server to register.

use std::fmt;
use std::rc::Rc;

use http::HeaderName;
use serde_json::{Map, Value};
use url::Url;

use super::behind::RegisterRpc;
use super::server::{HeaderFields, StoredGrant, StoredServer};
use super::{ReconnectPolicy, ServerId};
use crate::oauth::{self, ClientInformation, OAuthProvider, OAuthSettings};
use crate::protocol::request;
use crate::protocol::{Revision, clip};
use crate::retry::RetryOptions;
use crate::transport::TransportKind;
use crate::url_guard::UrlPolicy;
use crate::{Error, Result};

/// The longest id and the longest display name, in bytes.
const MAX_NAME: usize = 256;
/// The longest URL, in bytes.
const MAX_URL: usize = 8 << 10;
/// The longest scope to ask for, in bytes.
const MAX_SCOPE: usize = 2 << 10;
/// The longest id of a client, in bytes.
const MAX_CLIENT_ID: usize = 1 << 10;
/// The most that all headers of a server may take, in bytes.
const MAX_HEADERS: usize = 16 << 10;

/// A server to register.
///
/// ```
/// use workers_agents::RegisterServer;
/// let docs = RegisterServer::new("Docs", "https://docs.example.com/mcp")
///     .header("authorization", "Bearer …");
/// ```
#[derive(Clone)]
pub struct RegisterServer {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) transport: TransportKind,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) retry: Option<RetryOptions>,
    pub(crate) reconnect: Option<ReconnectPolicy>,
    pub(crate) revisions: Vec<Revision>,
    pub(crate) oauth: RegisterOAuth,
    /// For a server behind a binding.
    pub(crate) rpc: Option<RegisterRpc>,
}

/// How permission for a server is got. What is `None` stays as it was.
#[derive(Clone, Default)]
pub(crate) struct RegisterOAuth {
    pub(crate) callback_url: Option<String>,
    pub(crate) client: Option<ClientInformation>,
    pub(crate) settings: Option<OAuthSettings>,
    pub(crate) client_metadata_url: Option<String>,
    pub(crate) grant: Option<StoredGrant>,
    pub(crate) provider: Option<Rc<dyn OAuthProvider>>,
}

impl RegisterOAuth {
    /// Whether anything was said.
    pub(super) fn is_some(&self) -> bool {
        self.callback_url.is_some()
            || self.client.is_some()
            || self.settings.is_some()
            || self.client_metadata_url.is_some()
            || self.grant.is_some()
            || self.provider.is_some()
    }
}

impl RegisterServer {
    /// What has been said about a server whose headers are revealed.
    pub(super) fn again(stored: &StoredServer) -> Self {
        let headers = stored.header_map().unwrap_or_default();
        let text =
            |value: &http::HeaderValue| value.to_str().map(str::to_owned).unwrap_or_default();
        Self {
            name: stored.name.clone(),
            url: stored.url.clone(),
            transport: stored.transport(),
            headers: headers
                .iter()
                .map(|(name, value)| (name.to_string(), text(value)))
                .collect(),
            retry: stored.stored_retry(),
            reconnect: stored.reconnect_policy(),
            revisions: stored.chosen_revisions(),
            oauth: RegisterOAuth::default(),
            rpc: RegisterRpc::again(stored),
        }
    }

    /// A server with a display name and a URL. The URL is stored as it is given.
    pub fn new(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            url: url.into(),
            transport: TransportKind::default(),
            headers: Vec::new(),
            retry: None,
            reconnect: None,
            revisions: Vec::new(),
            oauth: RegisterOAuth::default(),
            rpc: None,
        }
    }

    /// Where the user comes back to after a sign-in. Route it to the same object. Without it, a
    /// server that wants its user to sign in cannot be used.
    #[must_use]
    pub fn callback_url(mut self, url: impl Into<String>) -> Self {
        self.oauth.callback_url = Some(url.into());
        self
    }

    /// The client to sign in as, registered at the authorization server beforehand. Stored in the
    /// object, never listed.
    #[must_use]
    pub fn client(mut self, client: ClientInformation) -> Self {
        self.oauth.client = Some(client);
        self
    }

    /// Wishes about how permission is got.
    #[must_use]
    pub fn oauth_settings(mut self, settings: OAuthSettings) -> Self {
        self.oauth.settings = Some(settings);
        self
    }

    /// The document to be known by, where authorization servers take such: see
    /// [`McpClientOptions::client_metadata_url`](super::McpClientOptions::client_metadata_url).
    #[must_use]
    pub fn client_metadata_url(mut self, url: impl Into<String>) -> Self {
        self.oauth.client_metadata_url = Some(url.into());
        self
    }

    /// Gets tokens for the client itself, without a user: the grant `client_credentials`. Needs a
    /// [`client`](Self::client) with a secret or a key.
    #[must_use]
    pub fn as_client_itself(mut self) -> Self {
        self.oauth.grant = Some(StoredGrant::ClientCredentials);
        self
    }

    /// A provider of the host's own, for as long as the object is in memory. For one that is there
    /// after a wake, too: [`McpClientOptions::create_auth_provider`].
    ///
    /// [`McpClientOptions::create_auth_provider`]: super::McpClientOptions::create_auth_provider
    #[must_use]
    pub fn auth_provider(mut self, provider: Rc<dyn OAuthProvider>) -> Self {
        self.oauth.provider = Some(provider);
        self
    }

    /// The protocol revisions to offer. Default: all. The newest of the legacy ones is what a
    /// handshake offers; any of them is accepted.
    #[must_use]
    pub fn protocol_versions(mut self, revisions: impl IntoIterator<Item = Revision>) -> Self {
        self.revisions = revisions.into_iter().collect();
        self
    }

    /// Forgets all headers.
    #[must_use]
    pub fn without_headers(mut self) -> Self {
        self.headers.clear();
        self
    }

    /// Which transport to use. Default: [`TransportKind::Auto`].
    #[must_use]
    pub fn transport(mut self, kind: TransportKind) -> Self {
        self.transport = kind;
        self
    }

    /// A header for every request to the server. Stored in the object's database, never listed.
    /// Headers that the protocol itself sends cannot be replaced.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// How connecting is retried after a wake. Default: [`RetryOptions::CONNECT`].
    #[must_use]
    pub fn retry(mut self, retry: RetryOptions) -> Self {
        self.retry = Some(retry);
        self
    }

    /// When the server is connected again after a wake. Default: what the manager's
    /// [options](super::McpClientOptions::reconnect) say.
    #[must_use]
    pub fn reconnect(mut self, policy: ReconnectPolicy) -> Self {
        self.reconnect = Some(policy);
        self
    }

    /// Checks what can be checked without knowing the row.
    pub(crate) fn validate(&self, id: &ServerId, policy: &UrlPolicy) -> Result<()> {
        for (what, text, max) in [
            ("id", id.as_str(), MAX_NAME),
            ("name", &self.name, MAX_NAME),
            ("URL", &self.url, MAX_URL),
        ] {
            if text.is_empty() || text.len() > max {
                return Err(Error::InvalidOption(format!(
                    "the {what} must have 1 to {max} bytes"
                )));
            }
        }
        let header_bytes: usize = self
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        if header_bytes > MAX_HEADERS {
            return Err(Error::InvalidOption(format!(
                "the headers are larger than {MAX_HEADERS} bytes"
            )));
        }
        let reserved = self.headers.iter().find(|(name, _)| {
            HeaderName::from_bytes(name.as_bytes()).is_ok_and(|name| request::is_reserved(&name))
        });
        if let Some((name, _)) = reserved {
            return Err(Error::InvalidOption(format!(
                "header {name:?} is set by the protocol"
            )));
        }
        if let TransportKind::Other(name) = &self.transport {
            return Err(Error::UnsupportedTransport(clip(name, 40)));
        }
        if !self.validate_rpc()? {
            policy.guard(&self.url)?;
            self.validate_oauth()?;
        }
        Ok(self.retry.as_ref().map_or(Ok(()), RetryOptions::validate)?)
    }

    fn validate_oauth(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::InvalidOption(what.to_owned()));
        let oauth = &self.oauth;
        for (what, url) in [
            ("callback", oauth.callback_url.as_ref()),
            ("client metadata", oauth.client_metadata_url.as_ref()),
        ] {
            let Some(url) = url else { continue };
            let parsed = Url::parse(url).ok().filter(|parsed| {
                parsed.has_host() && url.len() <= MAX_URL && parsed.fragment().is_none()
            });
            if !parsed.is_some_and(|url| matches!(url.scheme(), "http" | "https")) {
                return refuse(&format!("the {what} URL is not an http or https URL"));
            }
        }
        let document = oauth.client_metadata_url.as_deref().map(Url::parse);
        if let Some(Ok(document)) = document
            && (document.scheme() != "https" || document.path() == "/")
        {
            return refuse("the client metadata URL must be https and have a path");
        }
        if let Some(settings) = &oauth.settings {
            let is_web = |issuer: &String| {
                let parsed = Url::parse(issuer).ok().filter(Url::has_host);
                parsed.is_some_and(|url| matches!(url.scheme(), "http" | "https"))
            };
            if !settings.issuer.as_ref().is_none_or(is_web) {
                return refuse("the issuer is not an http or https URL");
            }
            let is_scope = |scope: &String| {
                scope.len() <= MAX_SCOPE
                    && scope
                        .bytes()
                        .all(|c| matches!(c, 0x20 | 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
            };
            if !settings.scope.as_ref().is_none_or(is_scope) {
                return refuse("the scope has letters that no scope has, or is too long");
            }
        }
        let Some(client) = &oauth.client else {
            return Ok(());
        };
        let is_line = |text: &String| !text.chars().any(char::is_control);
        if !is_line(&client.client_id) || !client.client_secret.as_ref().is_none_or(is_line) {
            return refuse("the client id or secret has control characters");
        }
        let texts = [
            Some(&client.client_id),
            client.client_secret.as_ref(),
            client.ours.private_key.as_ref(),
        ];
        let mut texts = texts.into_iter().flatten();
        if !(1..=MAX_CLIENT_ID).contains(&client.client_id.len())
            || texts.any(|text| text.len() > MAX_URL)
        {
            return refuse("the client id must not be empty, and nothing of a client too long");
        }
        if let Some(key) = &client.ours.private_key {
            oauth::check_key(key, client.ours.signing_algorithm.as_deref())?;
        }
        Ok(())
    }

    /// The row to store: this registration over what the row held so far, so that members which
    /// this version does not know are kept.
    pub(crate) fn into_stored(
        self,
        id: ServerId,
        previous: Option<StoredServer>,
    ) -> Result<StoredServer> {
        let mut stored = previous.clone().unwrap_or_else(|| StoredServer::blank(id));
        stored.name = self.name;
        stored.url = self.url;
        stored.set_revisions(&self.revisions);
        let RegisterOAuth {
            callback_url,
            client,
            settings,
            client_metadata_url,
            grant,
            ..
        } = self.oauth;
        if let Some(callback_url) = callback_url {
            stored.callback_url = callback_url;
        }
        if let Some(client) = client {
            stored.client_id = Some(client.client_id);
        }
        if settings.is_some() || client_metadata_url.is_some() || grant.is_some() {
            let oauth = stored.options.oauth.get_or_insert_default();
            oauth.settings = settings.unwrap_or_else(|| oauth.settings.clone());
            oauth.grant = grant.unwrap_or(oauth.grant);
            oauth.client_metadata_url =
                client_metadata_url.or_else(|| oauth.client_metadata_url.take());
        }
        RegisterRpc::store(self.rpc, &mut stored);
        if !stored.is_rpc() {
            let transport = stored.options.transport.get_or_insert_default();
            transport.kind = Some(self.transport);
            transport.sealed_headers = None;
            transport.headers = None;
            // Where the TypeScript package looks for them.
            if !self.headers.is_empty() || transport.request_init.is_some() {
                let headers = self.headers.into_iter();
                let headers = headers.map(|(name, value)| (name, Value::String(value)));
                let headers: Map<String, Value> = headers.collect();
                let init = transport.request_init.get_or_insert_default();
                init.headers = (!headers.is_empty()).then_some(HeaderFields::Map(headers));
            }
        }
        stored.options.reconnect = self.reconnect;
        stored.options.retry = self
            .retry
            .and_then(|retry| serde_json::to_value(retry).ok());
        stored.header_map()?;
        // A session belongs to one server and to one user of it, whom the headers may name.
        if !previous.is_some_and(|previous| previous.same_peer(&stored)) {
            stored.auth_url = None;
            stored.forget_peer();
            stored.options.authorization = None;
        }
        Ok(stored)
    }
}

/// Checks that an id is neither empty nor absurdly long.
pub(super) fn validate_id(id: &ServerId) -> Result<()> {
    if (1..=MAX_NAME).contains(&id.as_str().len()) {
        return Ok(());
    }
    Err(Error::InvalidOption(format!(
        "the id must have 1 to {MAX_NAME} bytes"
    )))
}

/// Header values are secrets, so only their names are shown.
impl fmt::Debug for RegisterServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("RegisterServer")
            .field("name", &self.name)
            .field("transport", &self.transport)
            .field("headers", &headers)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::server::tests::{agreement, row};
    use crate::protocol::Revision;
    use serde_json::json;

    #[test]
    fn registering_anew_replaces_what_was_said_and_keeps_the_rest() {
        let text = r#"{"transport":{"headers":{"x-old":"1"}},"retry":{"maxAttempts":9},"later":1}"#;
        let mut previous = StoredServer::decode(row(Some(text))).unwrap();
        previous.set_agreement(Some(&agreement(Revision::V2025_06_18, Some("abc"))));

        let same = RegisterServer::new("New", "https://example.com/mcp").header("x-new", "2");
        let same = same
            .into_stored(previous.id.clone(), Some(previous.clone()))
            .unwrap();
        assert_eq!(same.name, "New");
        let headers = same.header_map().unwrap();
        assert!(headers.contains_key("x-new") && !headers.contains_key("x-old"));
        assert_eq!(same.retry(), RetryOptions::CONNECT);
        assert_eq!(same.options.rest["later"], json!(1));

        assert!(same.agreement().is_none(), "another user's session");
        let renamed = RegisterServer::new("New", "https://example.com/mcp").header("x-old", "1");
        assert!(
            renamed
                .into_stored(previous.id.clone(), Some(previous.clone()))
                .unwrap()
                .agreement()
                .is_some()
        );

        let moved = RegisterServer::new("S", "https://other.example/mcp");
        assert!(
            moved
                .into_stored(previous.id.clone(), Some(previous))
                .unwrap()
                .agreement()
                .is_none()
        );
    }

    #[test]
    fn a_bad_header_is_refused_by_name() {
        let bad = RegisterServer::new("S", "https://example.com").header("x-key", "sec\nret");
        let error = bad
            .into_stored(ServerId::verbatim("s"), None)
            .unwrap_err()
            .to_string();
        assert!(error.contains("x-key") && !error.contains("ret"), "{error}");
    }
}
