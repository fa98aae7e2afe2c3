//! What a host says about a server to register.

use std::fmt;

use http::HeaderName;
use serde_json::Value;

use super::ServerId;
use super::server::{HeaderFields, StoredServer};
use crate::protocol::request;
use crate::protocol::{Revision, clip};
use crate::retry::RetryOptions;
use crate::transport::TransportKind;
use crate::url_guard::GuardedUrl;
use crate::{Error, Result};

/// The longest id and the longest display name, in bytes.
const MAX_NAME: usize = 256;
/// The longest URL, in bytes.
const MAX_URL: usize = 8 << 10;
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
    pub(crate) revisions: Vec<Revision>,
}

impl RegisterServer {
    /// A server with a display name and a URL. The URL is stored as it is given.
    pub fn new(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            url: url.into(),
            transport: TransportKind::default(),
            headers: Vec::new(),
            retry: None,
            revisions: Vec::new(),
        }
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

    /// Checks what can be checked without knowing the row.
    pub(crate) fn validate(&self, id: &ServerId) -> Result<()> {
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
        GuardedUrl::parse(&self.url)?;
        Ok(self.retry.as_ref().map_or(Ok(()), RetryOptions::validate)?)
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
        let transport = stored.options.transport.get_or_insert_default();
        transport.kind = Some(self.transport);
        if let Some(init) = &mut transport.request_init {
            init.headers = None;
        }
        transport.headers = (!self.headers.is_empty()).then(|| {
            HeaderFields::Map(
                self.headers
                    .into_iter()
                    .map(|(name, value)| (name, Value::String(value)))
                    .collect(),
            )
        });
        stored.options.retry = self
            .retry
            .and_then(|retry| serde_json::to_value(retry).ok());
        stored.header_map()?;
        // A session belongs to one server and to one user of it, whom the headers may name.
        if !previous.is_some_and(|previous| previous.same_peer(&stored)) {
            stored.auth_url = None;
            stored.set_agreement(None);
            stored.options.verdict = None;
        }
        Ok(stored)
    }
}

/// What has been said about a stored server, to say it again with changes.
impl From<&StoredServer> for RegisterServer {
    fn from(stored: &StoredServer) -> Self {
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
            revisions: stored.chosen_revisions(),
        }
    }
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
