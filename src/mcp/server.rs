//! A registered server: what a host says about it, and how it is stored.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ServerId;
use super::session::Session;
use crate::ports::{DamagedRow, ServerRow, ServerStore};
use crate::protocol::jsonrpc::without_content;
use crate::protocol::request;
use crate::protocol::{Era, Revision, clip};
use crate::retry::RetryOptions;
use crate::transport::TransportKind;
use crate::url_guard::GuardedUrl;
use crate::{Error, Result};

/// The longest id and the longest display name, in bytes.
const MAX_NAME: usize = 256;
/// The longest URL, in bytes.
const MAX_URL: usize = 8 << 10;
/// The most headers of a server.
const MAX_HEADER_COUNT: usize = 100;
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
        }
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
            stored.set_session(None);
        }
        Ok(stored)
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

/// A server as it is stored. Secrets stay inside.
#[derive(Clone)]
pub struct StoredServer {
    /// Its id.
    pub id: ServerId,
    /// Its display name.
    pub name: String,
    /// Its URL, as registered. May carry a key in its query: show it to its owner only.
    pub url: String,
    callback_url: String,
    client_id: Option<String>,
    auth_url: Option<String>,
    options: ServerOptions,
}

impl StoredServer {
    fn blank(id: ServerId) -> Self {
        Self {
            id,
            name: String::new(),
            url: String::new(),
            callback_url: String::new(),
            client_id: None,
            auth_url: None,
            options: ServerOptions::default(),
        }
    }

    /// Which transport the server is registered with.
    pub fn transport(&self) -> TransportKind {
        let kind = self
            .options
            .transport
            .as_ref()
            .and_then(|transport| transport.kind.clone());
        // Rows of servers behind a binding name no transport.
        kind.unwrap_or_else(|| {
            if self.url.starts_with("rpc:") {
                "rpc".into()
            } else {
                TransportKind::Auto
            }
        })
    }

    /// How connecting is retried after a wake.
    pub fn retry(&self) -> RetryOptions {
        self.options
            .retry_options()
            .ok()
            .flatten()
            .unwrap_or(RetryOptions::CONNECT)
    }

    /// Whether both mean the same server, reached in the same way as the same user.
    pub(crate) fn same_peer(&self, other: &Self) -> bool {
        self.url == other.url
            && self.transport() == other.transport()
            && self
                .header_map()
                .is_ok_and(|headers| other.header_map().is_ok_and(|others| others == headers))
    }

    /// Whether the server waits for its user to sign in.
    pub(crate) fn awaits_sign_in(&self) -> bool {
        self.auth_url.is_some()
    }

    /// The headers for every request.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] naming the header, never its value.
    pub(crate) fn header_map(&self) -> Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        let Some(transport) = &self.options.transport else {
            return Ok(headers);
        };
        let init = transport
            .request_init
            .as_ref()
            .and_then(|init| init.headers.as_ref());
        for fields in [init, transport.headers.as_ref()].into_iter().flatten() {
            for (name, value) in fields.pairs() {
                let refuse =
                    || Error::InvalidOption(format!("header {name:?} is not a valid HTTP header"));
                let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refuse())?;
                // Visible ASCII only: what else the type takes, `fetch` does not.
                let value = value
                    .as_str()
                    .and_then(|value| HeaderValue::from_str(value).ok());
                let mut value = value
                    .filter(|value| value.to_str().is_ok())
                    .ok_or_else(refuse)?;
                value.set_sensitive(true);
                // Beyond its capacity the map panics.
                if headers.len() >= MAX_HEADER_COUNT {
                    return Err(Error::InvalidOption(format!(
                        "there are more than {MAX_HEADER_COUNT} headers"
                    )));
                }
                headers.insert(parsed, value);
            }
        }
        Ok(headers)
    }

    /// The agreement of the last connection, if it can be taken up again.
    ///
    /// A legacy session needs its id and revision; what the server said in its handshake is kept
    /// beside it, so that a wake repeats neither the handshake nor the probe.
    pub(crate) fn session(&self) -> Option<Session> {
        let transport = self.options.transport.as_ref()?;
        let revision = Revision::parse(transport.protocol_version.as_deref()?)?;
        let (card, id) = match revision.era() {
            Era::Legacy => (
                self.options.initialize_result.clone()?,
                Some(transport.session_id.clone()?),
            ),
            Era::Modern => (self.options.discover_result.clone()?, None),
        };
        Some(Session {
            revision,
            id,
            card: serde_json::from_value(card).ok()?,
            resumed: true,
        })
    }

    /// Stores an agreement, or forgets it. Says whether anything changed.
    pub(crate) fn set_session(&mut self, session: Option<&Session>) -> bool {
        let before = (
            self.options.transport.clone(),
            self.options.discover_result.clone(),
            self.options.initialize_result.clone(),
        );
        let transport = self.options.transport.get_or_insert_default();
        // A legacy server without a session id keeps nothing that could be taken up again.
        let session =
            session.filter(|session| session.id.is_some() || session.revision.era() == Era::Modern);
        transport.session_id = session.and_then(|session| session.id.clone());
        transport.protocol_version = session.map(|session| session.revision.as_str().to_owned());
        let card = |era| {
            session
                .filter(|session| session.revision.era() == era)
                .and_then(|session| serde_json::to_value(&session.card).ok())
        };
        self.options.discover_result = card(Era::Modern).map(|card| with_versions(card, session));
        self.options.initialize_result = card(Era::Legacy);
        let after = (
            self.options.transport.clone(),
            self.options.discover_result.clone(),
            self.options.initialize_result.clone(),
        );
        before != after
    }

    /// Reads a row.
    ///
    /// # Errors
    /// Names the column and the reason, no value.
    pub(crate) fn decode(row: ServerRow) -> Result<Self, DamagedRow> {
        let ServerRow {
            id,
            name,
            server_url,
            callback_url,
            client_id,
            auth_url,
            server_options,
        } = row;
        let options = match server_options.as_deref().map(str::trim) {
            None | Some("") => ServerOptions::default(),
            Some(text) => serde_json::from_str(text).map_err(|error| DamagedRow {
                id: id.clone(),
                reason: format!("server_options: {}", without_content(&error)),
            })?,
        };
        let id = ServerId::verbatim(id);
        let stored = Self {
            id,
            name,
            url: server_url,
            callback_url,
            client_id,
            auth_url,
            options,
        };
        let damaged = |reason: String| DamagedRow {
            id: stored.id.to_string(),
            reason,
        };
        if !stored.url.starts_with("rpc:") && url::Url::parse(&stored.url).is_err() {
            return Err(damaged("server_url: not a URL".into()));
        }
        stored
            .header_map()
            .map_err(|error| damaged(format!("server_options: {error}")))?;
        stored.options.retry_options().map_err(|error| {
            damaged(format!(
                "server_options: retry: {}",
                without_content(&error)
            ))
        })?;
        Ok(stored)
    }

    /// The row of this server.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] when the options cannot be written as JSON, which takes a broken value.
    pub(crate) fn encode(&self) -> Result<ServerRow> {
        Ok(ServerRow {
            id: self.id.to_string(),
            name: self.name.clone(),
            server_url: self.url.clone(),
            callback_url: self.callback_url.clone(),
            client_id: self.client_id.clone(),
            auth_url: self.auth_url.clone(),
            server_options: Some(self.encode_options()?),
        })
    }

    fn encode_options(&self) -> Result<String> {
        serde_json::to_string(&self.options)
            .map_err(|error| Error::InvalidOption(error.to_string()))
    }
}

/// The stored discovery advertisement names the versions, as the server's own result does.
fn with_versions(mut card: Value, session: Option<&Session>) -> Value {
    if let (Some(map), Some(session)) = (card.as_object_mut(), session) {
        map.insert(
            "supportedVersions".into(),
            Value::from(vec![session.revision.as_str()]),
        );
    }
    card
}

/// Writes an agreement into a row, and only if it differs from what is stored.
///
/// # Errors
/// Storage errors. A row that is gone or damaged is left alone.
pub(crate) fn save_session(
    store: &dyn ServerStore,
    id: &ServerId,
    session: Option<&Session>,
) -> Result<()> {
    let Some(Ok(row)) = store.get(id.as_str())? else {
        return Ok(());
    };
    let Ok(mut stored) = StoredServer::decode(row) else {
        return Ok(());
    };
    if stored.set_session(session) {
        store.set_options(id.as_str(), &stored.encode_options()?)?;
    }
    Ok(())
}

impl fmt::Debug for StoredServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredServer")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The JSON of the column `server_options`. Members that this version does not know are kept.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServerOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<TransportOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    discover_result: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    initialize_result: Option<Value>,
    /// As it was written: [`RetryOptions`] would fill in defaults and drop what it does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<Value>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl ServerOptions {
    fn retry_options(&self) -> serde_json::Result<Option<RetryOptions>> {
        self.retry.clone().map(serde_json::from_value).transpose()
    }
}

#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TransportOptions {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<TransportKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<HeaderFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_init: Option<RequestInit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol_version: Option<String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// The part of a stored fetch initialiser that has a meaning here.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct RequestInit {
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<HeaderFields>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Headers as JavaScript writes them: an object, or a list of pairs.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum HeaderFields {
    Map(Map<String, Value>),
    Pairs(Vec<(String, Value)>),
}

impl HeaderFields {
    fn pairs(&self) -> Vec<(&str, &Value)> {
        match self {
            Self::Map(map) => map
                .iter()
                .map(|(name, value)| (name.as_str(), value))
                .collect(),
            Self::Pairs(pairs) => pairs
                .iter()
                .map(|(name, value)| (name.as_str(), value))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::model::ServerCard;
    use serde_json::json;

    fn row(options: Option<&str>) -> ServerRow {
        ServerRow {
            id: "s".into(),
            name: "S".into(),
            server_url: "https://example.com/mcp".into(),
            callback_url: "https://app/callback".into(),
            client_id: Some("client".into()),
            auth_url: None,
            server_options: options.map(str::to_owned),
        }
    }

    fn session(revision: Revision, id: Option<&str>) -> Session {
        let card = ServerCard {
            instructions: Some("hi".into()),
            ..ServerCard::default()
        };
        Session {
            revision,
            id: id.map(str::to_owned),
            card,
            resumed: false,
        }
    }

    #[test]
    fn a_row_of_another_version_keeps_what_we_do_not_know() {
        let text = r#"{"client":{"capabilities":{"elicitation":{"form":{}}}},"transport":{"type":"sse","headers":{"x-a":"1"},"reconnectionOptions":{"maxRetries":2}},"later":[1,2.5,null],"retry":{"maxAttempts":2,"later":true},"capabilities":{"elicitation":{"url":{}}}}"#;
        let mut stored = StoredServer::decode(row(Some(text))).unwrap();
        assert_eq!(stored.transport(), TransportKind::Other("sse".into()));
        stored.set_session(Some(&session(Revision::V2025_11_25, Some("abc"))));
        let written = stored.encode().unwrap();
        let options: Value = serde_json::from_str(&written.server_options.unwrap()).unwrap();
        let before: Value = serde_json::from_str(text).unwrap();
        for member in ["client", "later", "capabilities", "retry"] {
            assert_eq!(options[member], before[member]);
        }
        assert_eq!(
            options["transport"]["reconnectionOptions"],
            before["transport"]["reconnectionOptions"]
        );
        assert_eq!(options["transport"]["sessionId"], "abc");
        assert_eq!(written.callback_url, "https://app/callback");
        assert_eq!(written.client_id.as_deref(), Some("client"));
    }

    #[test]
    fn damage_is_named_without_quoting_values() {
        for (options, part) in [
            ("{", "server_options"),
            ("[]", "server_options"),
            (r#"{"transport":"secret"}"#, "server_options"),
            (r#"{"retry":"secret"}"#, "retry"),
            (r#"{"retry":{"maxAttempts":"secret"}}"#, "retry"),
            (r#"{"transport":{"headers":{"x-key":5}}}"#, "x-key"),
            (r#"{"transport":{"headers":{"x-key":"sécret"}}}"#, "x-key"),
            (r#"{"transport":{"headers":{"x-key":"secret\n"}}}"#, "x-key"),
        ] {
            let damaged = StoredServer::decode(row(Some(options))).unwrap_err();
            assert_eq!(damaged.id, "s");
            assert!(
                damaged.reason.contains(part) && !damaged.reason.contains("secret"),
                "{}",
                damaged.reason
            );
        }
        let url = ServerRow {
            server_url: "not a url".into(),
            ..row(None)
        };
        assert!(
            StoredServer::decode(url)
                .unwrap_err()
                .reason
                .starts_with("server_url")
        );
        assert!(
            StoredServer::decode(ServerRow {
                server_url: "rpc:counter".into(),
                ..row(None)
            })
            .is_ok()
        );
    }

    #[test]
    fn missing_options_are_empty_options() {
        for options in [None, Some(""), Some("{}"), Some("  {}  ")] {
            let stored = StoredServer::decode(row(options)).unwrap();
            assert_eq!(stored.transport(), TransportKind::Auto);
            assert!(stored.session().is_none());
        }
    }

    #[test]
    fn headers_come_from_both_places_a_row_can_have_them() {
        let text = r#"{"transport":{"requestInit":{"headers":[["x-a","1"],["x-b","2"]],"redirect":"follow"},"headers":{"X-B":"3"}}}"#;
        let headers = StoredServer::decode(row(Some(text)))
            .unwrap()
            .header_map()
            .unwrap();
        assert_eq!(headers["x-a"], "1");
        assert_eq!(headers["x-b"], "3");
    }

    #[test]
    fn an_agreement_survives_storage_and_a_useless_one_is_not_kept() {
        let mut stored = StoredServer::decode(row(None)).unwrap();
        for kept in [
            session(Revision::V2025_06_18, Some("abc")),
            session(Revision::V2026_07_28, None),
        ] {
            assert!(stored.set_session(Some(&kept)));
            assert!(!stored.set_session(Some(&kept)), "written twice");
            let again = StoredServer::decode(stored.encode().unwrap())
                .unwrap()
                .session()
                .unwrap();
            assert_eq!(
                (again.revision, &again.id, &again.card.instructions),
                (kept.revision, &kept.id, &kept.card.instructions)
            );
            assert!(again.resumed);
        }
        stored.set_session(Some(&session(Revision::V2025_06_18, None)));
        assert!(stored.session().is_none());
        // A session id without its revision, or a modern revision without its advertisement.
        for text in [
            r#"{"transport":{"sessionId":"abc"}}"#,
            r#"{"transport":{"sessionId":"a","protocolVersion":"2026-07-28"}}"#,
        ] {
            assert!(
                StoredServer::decode(row(Some(text)))
                    .unwrap()
                    .session()
                    .is_none()
            );
        }
    }

    #[test]
    fn registering_anew_replaces_what_was_said_and_keeps_the_rest() {
        let text = r#"{"transport":{"headers":{"x-old":"1"}},"retry":{"maxAttempts":9},"later":1}"#;
        let mut previous = StoredServer::decode(row(Some(text))).unwrap();
        previous.set_session(Some(&session(Revision::V2025_06_18, Some("abc"))));

        let same = RegisterServer::new("New", "https://example.com/mcp").header("x-new", "2");
        let same = same
            .into_stored(previous.id.clone(), Some(previous.clone()))
            .unwrap();
        assert_eq!(same.name, "New");
        let headers = same.header_map().unwrap();
        assert!(headers.contains_key("x-new") && !headers.contains_key("x-old"));
        assert_eq!(same.retry(), RetryOptions::CONNECT);
        assert_eq!(same.options.rest["later"], json!(1));

        assert!(same.session().is_none(), "another user's session");
        let renamed = RegisterServer::new("New", "https://example.com/mcp").header("x-old", "1");
        assert!(
            renamed
                .into_stored(previous.id.clone(), Some(previous.clone()))
                .unwrap()
                .session()
                .is_some()
        );

        let moved = RegisterServer::new("S", "https://other.example/mcp");
        assert!(
            moved
                .into_stored(previous.id.clone(), Some(previous))
                .unwrap()
                .session()
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
