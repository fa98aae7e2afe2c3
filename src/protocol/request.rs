//! Building requests: bodies, the modern `_meta` envelope, and the headers that mirror the body.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::jsonrpc::RequestId;
use super::version::{Era, Revision};

/// `mcp-protocol-version`
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// `mcp-session-id`
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// `mcp-method`
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// `mcp-name`
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Whether a header belongs to the protocol or to the connection below it, so that no host may set
/// it: its value follows from the message, the session or the exchange.
pub fn is_reserved(name: &HeaderName) -> bool {
    const RESERVED: [&str; 17] = [
        "accept",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    RESERVED.contains(&name.as_str()) || name.as_str().starts_with("mcp-param-")
}

/// Who we are and what we can do, as sent to servers.
#[derive(Debug, Clone, Serialize)]
pub struct ClientInfo {
    /// Name of the client.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// The parameters of a request: members in order, each already JSON.
#[derive(Clone, Default)]
pub struct Params(Vec<(&'static str, Box<RawValue>)>);

impl Params {
    /// Adds one member.
    ///
    /// # Errors
    /// When `value` has no JSON form, such as a map whose keys are no strings.
    pub fn with(
        mut self,
        name: &'static str,
        value: &impl Serialize,
    ) -> Result<Self, serde_json::Error> {
        self.0.push((name, serde_json::value::to_raw_value(value)?));
        Ok(self)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&RawValue> {
        let member = self.0.iter().find(|(member, _)| *member == name);
        member.map(|(_, value)| &**value)
    }
}

/// Values are a tool's arguments, which can be anything, so only the names are shown.
impl std::fmt::Debug for Params {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

impl FromIterator<(&'static str, Box<RawValue>)> for Params {
    fn from_iter<I: IntoIterator<Item = (&'static str, Box<RawValue>)>>(members: I) -> Self {
        Self(members.into_iter().collect())
    }
}

/// One request before it has an id: method, target and parameters.
#[derive(Debug)]
pub struct Call {
    /// The JSON-RPC method.
    pub method: &'static str,
    /// What the method acts on: a tool's or prompt's name, a resource's URI, a task's id. Goes
    /// into `mcp-name`.
    pub target: Option<String>,
    /// The parameters.
    pub params: Params,
}

/// What is added to the parameters of a request when it is sent.
#[derive(Debug, Default)]
pub struct Additions<'a> {
    /// Members of a later round: `inputResponses`, `requestState`.
    pub members: &'a [(&'static str, Box<RawValue>)],
    /// Members of `_meta` that the host wants. The protocol's own win over them.
    pub meta: Option<&'a serde_json::Map<String, serde_json::Value>>,
    /// Asks for progress notifications under this token.
    pub progress_token: Option<i64>,
    /// Asks for log messages of this request (2026-07-28, logging).
    pub log_level: Option<&'static str>,
    /// What the modern era demands of every request.
    pub envelope: Option<Envelope<'a>>,
}

impl Additions<'_> {
    fn has_meta(&self) -> bool {
        self.meta.is_some_and(|meta| !meta.is_empty())
            || self.progress_token.is_some()
            || self.log_level.is_some()
            || self.envelope.is_some()
    }
}

impl Call {
    /// A call without target and parameters.
    pub fn new(method: &'static str) -> Self {
        Self {
            method,
            target: None,
            params: Params::default(),
        }
    }

    /// The JSON text of the request.
    ///
    /// In the modern era `params._meta` states revision, client and capabilities (MCP 2026-07-28,
    /// index), so `params` is never absent there.
    ///
    /// # Errors
    /// When serialising fails, which takes a broken `Serialize` implementation.
    pub fn body(&self, id: &RequestId, add: &Additions<'_>) -> Result<String, serde_json::Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            jsonrpc: &'static str,
            id: &'a RequestId,
            method: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            params: Option<Merged<'a>>,
        }
        let absent = self.params.0.is_empty() && add.members.is_empty() && !add.has_meta();
        let params = (!absent).then_some(Merged {
            params: &self.params,
            add,
        });
        let members = self.params.0.iter().chain(add.members);
        let length: usize = members.map(|(_, value)| value.get().len()).sum();
        let mut body = Vec::with_capacity(length + ROOM);
        serde_json::to_writer(
            &mut body,
            &Body {
                jsonrpc: "2.0",
                id,
                method: self.method,
                params,
            },
        )?;
        String::from_utf8(body).map_err(serde::ser::Error::custom)
    }

    /// The headers that the revision asks for: the version, and in the modern era the mirrors of
    /// the body (MCP 2026-07-28, streamable-http). `None` is a request sent before an agreement.
    pub fn headers(&self, revision: Option<Revision>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let Some(revision) = revision else {
            return headers;
        };
        headers.insert(
            PROTOCOL_VERSION,
            HeaderValue::from_static(revision.as_str()),
        );
        if revision.era() == Era::Modern {
            headers.insert(METHOD, HeaderValue::from_static(self.method));
            if let Some(target) = &self.target
                && let Ok(value) = HeaderValue::from_str(&encode_header(target))
            {
                headers.insert(NAME, value);
            }
        }
        headers
    }
}

struct Merged<'a> {
    params: &'a Params,
    add: &'a Additions<'a>,
}

impl Serialize for Merged<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.params.0.iter().chain(self.add.members) {
            map.serialize_entry(name, value)?;
        }
        if self.add.has_meta() {
            map.serialize_entry("_meta", &Meta(self.add))?;
        }
        map.end()
    }
}

struct Meta<'a>(&'a Additions<'a>);

impl Serialize for Meta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let add = self.0;
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in add.meta.into_iter().flatten() {
            if name != PROGRESS_TOKEN && !name.starts_with(OWN_META) {
                map.serialize_entry(name, value)?;
            }
        }
        if let Some(token) = add.progress_token {
            map.serialize_entry(PROGRESS_TOKEN, &token)?;
        }
        if let Some(level) = add.log_level {
            map.serialize_entry("io.modelcontextprotocol/logLevel", level)?;
        }
        if let Some(envelope) = &add.envelope {
            map.serialize_entry(
                "io.modelcontextprotocol/protocolVersion",
                envelope.protocol_version,
            )?;
            map.serialize_entry("io.modelcontextprotocol/clientInfo", envelope.client_info)?;
            map.serialize_entry(
                "io.modelcontextprotocol/clientCapabilities",
                envelope.client_capabilities,
            )?;
        }
        map.end()
    }
}

/// The bytes of a usual request without its parameters.
const ROOM: usize = 512;
const PROGRESS_TOKEN: &str = "progressToken";
/// What the protocol keeps for itself in `_meta`.
const OWN_META: &str = "io.modelcontextprotocol/";

/// `params._meta` of the modern era.
#[derive(Debug)]
pub struct Envelope<'a> {
    /// Equal to the header.
    pub protocol_version: &'static str,
    /// Who we are.
    pub client_info: &'a ClientInfo,
    /// What we can do; `{}` is nothing.
    pub client_capabilities: &'a RawValue,
}

/// The text of a notification.
///
/// # Errors
/// When serialising fails, which takes a broken `Serialize` implementation.
pub fn notification(
    method: &'static str,
    params: Option<&impl Serialize>,
) -> Result<String, serde_json::Error> {
    let params = params.map(serde_json::to_string).transpose()?;
    let params = params.map(|params| format!(r#","params":{params}"#));
    let params = params.unwrap_or_default();
    Ok(format!(
        r#"{{"jsonrpc":"2.0","method":"{method}"{params}}}"#
    ))
}

/// The text of the answer to a request of the server: a result, or a code and a message.
///
/// # Errors
/// When serialising fails, which a string or integer id cannot cause.
pub fn answer_to_server(
    id: &RequestId,
    outcome: Result<&RawValue, (i64, &str)>,
) -> Result<String, serde_json::Error> {
    let id = serde_json::to_string(id)?;
    Ok(match outcome {
        Ok(result) => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, result.get()),
        Err((code, message)) => {
            let message = serde_json::to_string(message)?;
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#
            )
        }
    })
}

/// A header value for any text: as it is, or in the base64 form (MCP 2026-07-28, "Value Encoding").
///
/// Interior tabs are encoded too: legal HTTP, but servers differ. So is the empty string, which
/// some HTTP stacks drop.
pub fn encode_header(text: &str) -> Cow<'_, str> {
    let is_visible = text.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
    let is_trimmed = !text.is_empty() && !text.starts_with(' ') && !text.ends_with(' ');
    let is_marked = text.starts_with("=?base64?") && text.ends_with("?=");
    let plain = is_visible && is_trimmed && !is_marked;
    if plain {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("=?base64?{}?=", BASE64.encode(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn info() -> ClientInfo {
        ClientInfo {
            name: "gull".into(),
            version: "0.4.0".into(),
        }
    }

    #[test]
    fn header_values_follow_the_examples_of_the_specification() {
        for (text, value) in [
            ("bergen", "bergen"),
            ("us west 1", "us west 1"),
            ("Ærø", "=?base64?w4Zyw7g=?="),
            (" x", "=?base64?IHg=?="),
            ("x ", "=?base64?eCA=?="),
            ("=?base64?hi?=", "=?base64?PT9iYXNlNjQ/aGk/PQ==?="),
            ("", "=?base64??="),
            ("a\tb", "=?base64?YQli?="),
            ("a\r\nb", "=?base64?YQ0KYg==?="),
            (
                "file:///path/to/file%20name.txt",
                "file:///path/to/file%20name.txt",
            ),
        ] {
            assert_eq!(encode_header(text), value, "{text:?}");
        }
    }

    #[test]
    fn a_legacy_request_has_no_envelope_and_no_empty_params() {
        let call = Call::new("tools/list");
        assert_eq!(
            call.body(&RequestId::Number(3), &Additions::default())
                .unwrap(),
            r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#
        );
        let headers = call.headers(Some(Revision::V2025_06_18));
        assert_eq!(headers.len(), 1);
        assert_eq!(headers[PROTOCOL_VERSION], "2025-06-18");
        assert!(call.headers(None).is_empty());
    }

    #[test]
    fn a_modern_request_mirrors_its_body_in_headers() {
        let info = info();
        let capabilities = RawValue::from_string("{}".into()).unwrap();
        let envelope = Envelope {
            protocol_version: "2026-07-28",
            client_info: &info,
            client_capabilities: &capabilities,
        };
        let meta = json!({"own": 1, "progressToken": 2, "io.modelcontextprotocol/clientInfo": 3});
        let add = Additions {
            members: &[(
                "requestState",
                serde_json::value::to_raw_value("s ").unwrap(),
            )],
            meta: meta.as_object(),
            progress_token: Some(8),
            log_level: Some("info"),
            envelope: Some(envelope),
        };
        let params = Params::default()
            .with("name", &"bøk")
            .unwrap()
            .with("arguments", &json!({"b": 1}))
            .unwrap();
        let call = Call {
            method: "tools/call",
            target: Some("bøk".into()),
            params,
        };
        let body: serde_json::Value =
            serde_json::from_str(&call.body(&RequestId::Number(8), &add).unwrap()).unwrap();
        assert_eq!(
            body,
            json!({"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": {
            "name": "bøk", "arguments": {"b": 1}, "requestState": "s ", "_meta": {
                "own": 1, "progressToken": 8, "io.modelcontextprotocol/logLevel": "info",
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "gull", "version": "0.4.0"},
                "io.modelcontextprotocol/clientCapabilities": {}}}})
        );
        let headers = call.headers(Some(Revision::V2026_07_28));
        assert_eq!(headers[METHOD], "tools/call");
        assert_eq!(headers[NAME], "=?base64?YsO4aw==?=");
    }

    #[test]
    fn arguments_are_not_printed() {
        let params = Params::default()
            .with("arguments", &json!({"key": "s3cret"}))
            .unwrap();
        let printed = format!(
            "{:?}",
            Call {
                method: "tools/call",
                target: None,
                params
            }
        );
        assert!(
            printed.contains("arguments") && !printed.contains("s3cret"),
            "{printed}"
        );
    }

    #[test]
    fn answers_repeat_the_id_as_it_was() {
        let id = RequestId::Text("srv-\"1".into());
        let empty = RawValue::from_string("{}".into()).unwrap();
        assert_eq!(
            answer_to_server(&id, Ok(&empty)).unwrap(),
            r#"{"jsonrpc":"2.0","id":"srv-\"1","result":{}}"#
        );
        let refused = answer_to_server(&id, Err((-32601, "no \"such\" method"))).unwrap();
        let refused: serde_json::Value = serde_json::from_str(&refused).unwrap();
        assert_eq!(
            refused["error"],
            json!({"code": -32601, "message": "no \"such\" method"})
        );
        assert_eq!(
            notification("notifications/x", Some(&json!({"a": 1}))).unwrap(),
            r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"a":1}}"#
        );
    }
}
