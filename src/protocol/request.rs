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
#[derive(Default)]
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
    /// What the method acts on: a tool's or prompt's name, a resource's URI. Goes into `mcp-name`.
    pub target: Option<String>,
    /// The parameters.
    pub params: Params,
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
    pub fn body(
        &self,
        id: &RequestId,
        envelope: Option<&Envelope<'_>>,
    ) -> Result<String, serde_json::Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            jsonrpc: &'static str,
            id: &'a RequestId,
            method: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            params: Option<Merged<'a>>,
        }
        let absent = self.params.0.is_empty() && envelope.is_none();
        let params = (!absent).then_some(Merged {
            params: &self.params,
            envelope,
        });
        serde_json::to_string(&Body {
            jsonrpc: "2.0",
            id,
            method: self.method,
            params,
        })
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
    envelope: Option<&'a Envelope<'a>>,
}

impl Serialize for Merged<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in &self.params.0 {
            map.serialize_entry(name, value)?;
        }
        if let Some(envelope) = self.envelope {
            map.serialize_entry("_meta", envelope)?;
        }
        map.end()
    }
}

/// `params._meta` of the modern era.
#[derive(Debug, Serialize)]
pub struct Envelope<'a> {
    /// Equal to the header.
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    pub protocol_version: &'static str,
    /// Who we are.
    #[serde(rename = "io.modelcontextprotocol/clientInfo")]
    pub client_info: &'a ClientInfo,
    /// What we can do; `{}` is nothing.
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    pub client_capabilities: &'a serde_json::Value,
}

/// The text of a notification without parameters.
pub fn notification(method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#)
}

/// The answer to a request of the server: `{}` to a ping, "method not found" to anything else.
///
/// # Errors
/// When serialising fails, which a string or integer id cannot cause.
pub fn answer_to_server(id: &RequestId, method: &str) -> Result<String, serde_json::Error> {
    let id = serde_json::to_string(id)?;
    Ok(if method == "ping" {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
    } else {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"Method not found"}}}}"#
        )
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
            call.body(&RequestId::Number(3), None).unwrap(),
            r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#
        );
        let headers = call.headers(Some(Revision::V2025_06_18));
        assert_eq!(headers.len(), 1);
        assert_eq!(headers[PROTOCOL_VERSION], "2025-06-18");
        assert!(call.headers(None).is_empty());
    }

    #[test]
    fn a_modern_request_mirrors_its_body_in_headers() {
        let capabilities = json!({});
        let info = info();
        let envelope = Envelope {
            protocol_version: "2026-07-28",
            client_info: &info,
            client_capabilities: &capabilities,
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
            serde_json::from_str(&call.body(&RequestId::Number(8), Some(&envelope)).unwrap())
                .unwrap();
        assert_eq!(
            body,
            json!({"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": {
            "name": "bøk", "arguments": {"b": 1}, "_meta": {
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
    fn servers_get_an_answer_to_everything_they_ask() {
        let id = RequestId::Text("srv-\"1".into());
        assert_eq!(
            answer_to_server(&id, "ping").unwrap(),
            r#"{"jsonrpc":"2.0","id":"srv-\"1","result":{}}"#
        );
        let refused: serde_json::Value =
            serde_json::from_str(&answer_to_server(&id, "roots/list").unwrap()).unwrap();
        assert_eq!(refused["error"]["code"], json!(-32601));
    }
}
