//! JSON-RPC 2.0 messages as MCP uses them.

use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::bounded::{self, raw_member, small_member};
use super::{ProtocolError, clip};

/// Longest error message that is kept of what a server sent, in characters.
const MAX_MESSAGE: usize = 2_000;
/// The longest error data that is kept, in bytes.
const MAX_DATA: usize = 64 << 10;
/// The most messages that are taken out of one array.
const MAX_BATCH: usize = 1_000;

/// The id of a request. `1` and `"1"` are different ids (JSON-RPC 2.0 §4).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RequestId {
    /// An integer. Ours all are.
    Number(i64),
    /// A string.
    Text(String),
}

/// One decoded message. Parameters and results stay the text they were.
#[non_exhaustive]
pub enum Message {
    /// The peer asks for something and waits.
    Request {
        /// To be repeated in the answer.
        id: RequestId,
        /// The method.
        method: String,
        /// Its parameters.
        params: Option<Box<RawValue>>,
    },
    /// The peer tells something.
    Notification {
        /// The method.
        method: String,
        /// Its parameters.
        params: Option<Box<RawValue>>,
    },
    /// The answer to one of our requests.
    Response {
        /// The request's id; absent when the server could not read the request.
        id: Option<RequestId>,
        /// What came of it.
        outcome: Result<Box<RawValue>, RpcError>,
    },
}

/// A JSON-RPC error object sent by a server. Message and data are untrusted.
#[derive(Clone, thiserror::Error)]
#[error("the server answered with error {code}: {message}")]
#[non_exhaustive]
pub struct RpcError {
    /// The code.
    pub code: i64,
    /// The server's text, cut to 2 000 characters.
    pub message: String,
    /// Whatever the server added, unless that is longer than 64 KiB.
    pub data: Option<Rc<RawValue>>,
    /// The HTTP status it came with, when that was not 2xx.
    pub http_status: Option<u16>,
    /// When the server wants to be asked again, if it said so.
    pub retry_after: Option<Duration>,
}

impl RpcError {
    pub(crate) fn new(code: i64, message: String, data: Option<Rc<RawValue>>) -> Self {
        Self {
            code,
            message,
            data,
            http_status: None,
            retry_after: None,
        }
    }

    /// What a server of this crate answers a request with that it does not serve.
    pub fn refusal(code: i64, message: impl Into<String>) -> Self {
        Self::new(code, message.into(), None)
    }

    /// The refusal of a request whose method the server does not know.
    pub fn unknown_method() -> Self {
        Self::refusal(Self::METHOD_NOT_FOUND, "Method not found")
    }

    /// Internal error (JSON-RPC 2.0 §5.1); stands for a code that cannot be read.
    pub const INTERNAL: i64 = -32603;
    /// The parameters are wrong (JSON-RPC 2.0 §5.1).
    pub const INVALID_PARAMS: i64 = -32602;
    /// The method does not exist (JSON-RPC 2.0 §5.1).
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The user must visit a page before the request can be served (MCP 2025-11-25).
    pub const URL_ELICITATION_REQUIRED: i64 = -32042;
    /// Header and body of a request disagree (MCP 2026-07-28).
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The request needs a client capability that was not declared (MCP 2026-07-28).
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The server does not serve the requested revision (MCP 2026-07-28).
    pub const UNSUPPORTED_VERSION: i64 = -32022;

    /// The revisions listed by an unsupported-version error.
    pub(crate) fn supported_versions(&self) -> Vec<String> {
        let data = self.data.as_deref();
        let versions: Option<Vec<String>> =
            data.and_then(|data| small_member(data, "supported", 4 << 10));
        versions
            .into_iter()
            .flatten()
            .take(32)
            .map(|text| clip(&text, 40))
            .collect()
    }
}

/// `data` may hold anything, so only its presence is shown.
impl fmt::Debug for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RpcError")
            .field("code", &self.code)
            .field("message", &self.message)
            .field("has_data", &self.data.is_some())
            .finish_non_exhaustive()
    }
}

/// Decodes the messages of one JSON body or one event: a message, or an array of them.
///
/// Revision 2025-03-26 lets servers send arrays; they are accepted in every revision.
///
/// # Errors
/// [`ProtocolError::NotJsonRpc`] when the text is not JSON, or not a message.
pub fn decode(text: &[u8]) -> Result<Vec<Message>, ProtocolError> {
    let malformed = |error: serde_json::Error| ProtocolError::NotJsonRpc(without_content(&error));
    if text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        let (envelopes, has_more) =
            bounded::list::<Object<'_>>(text, MAX_BATCH).map_err(malformed)?;
        if has_more {
            return Err(ProtocolError::NotJsonRpc(format!(
                "more than {MAX_BATCH} messages at once"
            )));
        }
        let envelopes = envelopes.into_iter().map(|Object(envelope)| envelope);
        envelopes.map(Message::try_from).collect()
    } else {
        let Object(envelope) = serde_json::from_slice(text).map_err(malformed)?;
        Ok(vec![Message::try_from(envelope)?])
    }
}

/// Serde's texts quote the input in places; the category and the position never do.
pub(crate) fn without_content(error: &serde_json::Error) -> String {
    format!(
        "{:?} error at line {} column {}",
        error.classify(),
        error.line(),
        error.column()
    )
    .to_ascii_lowercase()
}

/// Parameters and results can hold anything, so only their kind is shown.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { id, method, .. } => {
                f.debug_tuple("Request").field(id).field(method).finish()
            }
            Self::Notification { method, .. } => {
                f.debug_tuple("Notification").field(method).finish()
            }
            Self::Response { id, outcome } => f
                .debug_tuple("Response")
                .field(id)
                .field(&outcome.is_ok())
                .finish(),
        }
    }
}

/// An envelope that is a JSON object: a derived reader also takes the members, in order, from an
/// array.
struct Object<'a>(Envelope<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Envelope<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                Envelope::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_map(Members).map(Self)
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default, borrow)]
    id: Option<&'a RawValue>,
    #[serde(default, borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    params: Option<&'a RawValue>,
    // A result of `null` is a result; an absent member is none.
    #[serde(default, borrow, deserialize_with = "present_raw")]
    result: Option<&'a RawValue>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
}

/// Reads an error in whatever form it comes: its reason must not be lost because its form is odd.
pub(crate) fn read_error(error: &RawValue) -> RpcError {
    let text = |raw: &RawValue| serde_json::from_str::<String>(raw.get()).ok();
    let code = raw_member(error, "code").and_then(|code| {
        let number: f64 = serde_json::from_str(code.get().trim_matches('"')).ok()?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "saturates, and codes are small integers"
        )]
        Some(number as i64)
    });
    let message = raw_member(error, "message").map_or_else(|| text(error), text);
    let data = raw_member(error, "data")
        .filter(|data| data.get().len() <= MAX_DATA && data.get() != "null");
    let message = clip(message.as_deref().unwrap_or("(no message)"), MAX_MESSAGE);
    RpcError::new(
        code.unwrap_or(RpcError::INTERNAL),
        message,
        data.map(|data| data.to_owned().into()),
    )
}

fn present_raw<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl TryFrom<Envelope<'_>> for Message {
    type Error = ProtocolError;

    fn try_from(envelope: Envelope<'_>) -> Result<Self, ProtocolError> {
        let Envelope {
            id,
            method,
            params,
            result,
            error,
        } = envelope;
        let request_id = id.and_then(|id| serde_json::from_str(id.get()).ok());
        let owned = |raw: &RawValue| raw.to_owned();
        match (method, request_id, result, error) {
            (Some(method), Some(id), None, None) => Ok(Self::Request {
                id,
                method: method.into_owned(),
                params: params.map(owned),
            }),
            (Some(method), None, None, None) => Ok(Self::Notification {
                method: method.into_owned(),
                params: params.map(owned),
            }),
            // Some servers send both members, one of them null.
            (None, id, None, Some(error)) => Ok(Self::Response {
                id,
                outcome: Err(read_error(error)),
            }),
            (None, id, Some(result), Some(error)) if result.get() == "null" => Ok(Self::Response {
                id,
                outcome: Err(read_error(error)),
            }),
            (None, id, Some(result), None) => Ok(Self::Response {
                id,
                outcome: Ok(owned(result)),
            }),
            _ => Err(ProtocolError::NotJsonRpc(
                "neither a request, a notification nor a response".into(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Message {
        let mut messages = decode(text.as_bytes()).unwrap();
        assert_eq!(messages.len(), 1);
        messages.remove(0)
    }

    #[test]
    fn a_result_keeps_its_text_byte_for_byte() {
        let text = r#"{"jsonrpc":"2.0","id":7,"result":{"z":1.0,  "a":12345678901234567890123, "u":"\u00e9"}}"#;
        let Message::Response { id, outcome } = one(text) else {
            panic!()
        };
        assert_eq!(id, Some(RequestId::Number(7)));
        assert_eq!(
            outcome.unwrap().get(),
            r#"{"z":1.0,  "a":12345678901234567890123, "u":"\u00e9"}"#
        );
    }

    #[test]
    fn ids_keep_their_json_type() {
        for (text, id) in [
            (r#"{"id":1,"result":{}}"#, Some(RequestId::Number(1))),
            (
                r#"{"id":"1","result":{}}"#,
                Some(RequestId::Text("1".into())),
            ),
            (
                r#"{"id":"","result":{}}"#,
                Some(RequestId::Text(String::new())),
            ),
            (r#"{"id":null,"result":{}}"#, None),
            (r#"{"id":1.5,"result":{}}"#, None),
            (r#"{"result":{}}"#, None),
        ] {
            let Message::Response { id: found, .. } = one(text) else {
                panic!("{text}")
            };
            assert_eq!(found, id, "{text}");
        }
    }

    #[test]
    fn a_null_result_is_a_result() {
        let Message::Response { outcome, .. } = one(r#"{"id":1,"result":null}"#) else {
            panic!()
        };
        assert_eq!(outcome.unwrap().get(), "null");
    }

    #[test]
    fn arrays_are_taken_apart() {
        let messages = decode(br#" [{"method":"notifications/x"},{"id":4,"result":{}}]"#).unwrap();
        assert!(matches!(
            messages[..],
            [Message::Notification { .. }, Message::Response { .. }]
        ));
    }

    #[test]
    fn what_is_no_message_is_refused_without_quoting_it() {
        for text in [
            "",
            "<html>secret</html>",
            "{}",
            "null",
            "3",
            r#"{"id":1}"#,
            r#"{"id":1,"method":3}"#,
            r#"[["secret","method"]]"#,
            r#"{"id":1,"result":{},"error":{"code":1,"message":""}}"#,
        ] {
            let error = decode(text.as_bytes()).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_error_of_odd_form_keeps_its_reason() {
        for (error, code, message) in [
            (r#"{"code":-1,"message":"m"}"#, -1, "m"),
            (r#"{"code":"-32602","message":"m"}"#, -32602, "m"),
            (
                r#"{"code":-32602.0,"message":"m","data":null}"#,
                -32602,
                "m",
            ),
            (r#"{"message":"m"}"#, -32603, "m"),
            (r#"{"code":5,"message":null}"#, 5, "(no message)"),
            (r#"{"code":5,"message":"\ud800"}"#, 5, "(no message)"),
            (r#""m""#, -32603, "m"),
            ("[]", -32603, "(no message)"),
        ] {
            for rest in ["", r#","result":null"#] {
                let text = format!(r#"{{"id":1,"error":{error}{rest}}}"#);
                let Message::Response {
                    outcome: Err(found),
                    ..
                } = one(&text)
                else {
                    panic!("{text}")
                };
                assert_eq!(
                    (found.code, found.message.as_str()),
                    (code, message),
                    "{text}"
                );
                assert!(found.data.is_none());
            }
        }
    }

    #[test]
    fn a_deeply_nested_body_is_an_answer_or_an_error_and_never_a_stack_overflow() {
        let deep = "[".repeat(100_000);
        assert!(decode(deep.as_bytes()).is_err());
        let nested = format!(
            r#"{{"id":1,"result":{}{}}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        let _ = decode(nested.as_bytes());
    }

    #[test]
    fn what_would_take_much_memory_is_refused_or_left_out() {
        let many = format!("[{}{{}}]", r#"{"method":"x"},"#.repeat(MAX_BATCH));
        assert!(decode(many.as_bytes()).is_err());
        let data = format!("[{}0]", "[0],".repeat(MAX_DATA));
        let Message::Response { outcome, .. } = one(&format!(
            r#"{{"id":1,"error":{{"code":-1,"message":"m","data":{data}}}}}"#
        )) else {
            panic!()
        };
        assert!(outcome.unwrap_err().data.is_none());
    }

    #[test]
    fn long_error_messages_are_cut() {
        let text = format!(
            r#"{{"id":1,"error":{{"code":-1,"message":"{}"}}}}"#,
            "é".repeat(5_000)
        );
        let Message::Response { outcome, .. } = one(&text) else {
            panic!()
        };
        assert_eq!(
            outcome.unwrap_err().message.chars().count(),
            MAX_MESSAGE + 3
        );
    }
}
