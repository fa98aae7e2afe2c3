//! The decoder of JSON-RPC messages, against the same text read as any JSON.

use serde_json::Value;
use workers_agents::protocol::jsonrpc::decode;
use workers_agents::protocol::{Message, ProtocolError, RequestId, RpcError};

use crate::peak_of;

pub fn check(text: &[u8]) {
    let (decoded, peak) = peak_of(|| decode(text));
    assert!(
        peak <= 64 * text.len() + 4096,
        "{peak} bytes for {}",
        text.len()
    );
    let messages = match decoded {
        Ok(messages) => messages,
        Err(error) => return quotes_nothing(&error),
    };
    for message in &messages {
        kept(message, text);
    }
    let outer = text.trim_ascii();
    if !outer.starts_with(b"[") {
        let twice = [b"[", outer, b",", outer, b"]"].concat();
        let twice = decode(&twice).expect("an array of messages");
        assert_eq!(
            twice.iter().map(describe).collect::<Vec<_>>(),
            [describe(&messages[0]), describe(&messages[0])]
        );
    }
    // `Value` takes less than `decode` does: no deep nesting, no half of a surrogate pair, and in members that
    // are not read nothing but UTF-8.
    if let Ok(value) = serde_json::from_slice::<Value>(text) {
        let values = match value {
            Value::Array(values) => values,
            value => vec![value],
        };
        assert_eq!(values.len(), messages.len());
        for (value, message) in values.iter().zip(&messages) {
            means(message, value);
        }
    }
}

/// An error says where and of what kind, in words of ours.
fn quotes_nothing(error: &ProtocolError) {
    let ProtocolError::NotJsonRpc(reason) = error else {
        panic!("{error:?}");
    };
    let reason = reason.replace(|letter: char| letter.is_ascii_digit(), "");
    assert!(
        [
            "syntax error at line  column ",
            "data error at line  column ",
            "eof error at line  column ",
            "more than  messages at once",
            "neither a request, a notification nor a response",
        ]
        .contains(&&*reason),
        "{reason}"
    );
}

/// What stays text is text of the input.
fn kept(message: &Message, text: &[u8]) {
    let raw = match message {
        Message::Request { params, .. } | Message::Notification { params, .. } => params.as_deref(),
        Message::Response { outcome, .. } => match outcome {
            Ok(result) => Some(&**result),
            Err(error) => {
                assert!(error.message.chars().count() <= 2_003);
                error.data.as_deref()
            }
        },
        _ => unreachable!("another kind of message"),
    };
    if let Some(raw) = raw {
        let mut parts = text.windows(raw.get().len());
        assert!(parts.any(|part| part == raw.get().as_bytes()), "{raw}");
        assert_eq!(raw.get(), raw.get().trim());
    }
}

/// The message is what the value says.
fn means(message: &Message, value: &Value) {
    let given = |name: &str| value.get(name).filter(|value| !value.is_null());
    let id_given = match given("id") {
        Some(Value::Number(number)) => number.as_i64().map(RequestId::Number),
        Some(Value::String(text)) => Some(RequestId::Text(text.clone())),
        _ => None,
    };
    let same = |raw: Option<&str>, name: &str| {
        let raw = raw.map(|raw| serde_json::from_str::<Value>(raw).expect("JSON"));
        assert_eq!(raw.as_ref(), value.get(name), "{name}");
    };
    match message {
        Message::Request { id, method, params } => {
            assert_eq!(Some(id), id_given.as_ref());
            assert_eq!(
                Some(method.as_str()),
                given("method").and_then(Value::as_str)
            );
            same(params.as_ref().map(|raw| raw.get()), "params");
        }
        Message::Notification { method, params } => {
            assert_eq!(None, id_given);
            assert_eq!(
                Some(method.as_str()),
                given("method").and_then(Value::as_str)
            );
            same(params.as_ref().map(|raw| raw.get()), "params");
        }
        Message::Response { id, outcome } => {
            assert_eq!(*id, id_given);
            assert_eq!(given("method"), None);
            match outcome {
                Ok(result) => same(Some(result.get()), "result"),
                Err(error) => {
                    assert!(given("result").is_none() && given("error").is_some());
                    error_means(error, &value["error"]);
                }
            }
        }
        _ => unreachable!("another kind of message"),
    }
}

fn error_means(error: &RpcError, value: &Value) {
    if let Some(code) = value.get("code").and_then(Value::as_i64)
        && code.unsigned_abs() < 1 << 53
    {
        assert_eq!(error.code, code);
    }
    if let Some(message) = value.get("message").and_then(Value::as_str)
        && message.chars().count() <= 2_000
    {
        assert_eq!(error.message, message);
    }
}

/// All of a message as text.
pub fn describe(message: &Message) -> String {
    match message {
        Message::Request { id, method, params } => format!("{id:?} {method} {params:?}"),
        Message::Notification { method, params } => format!("{method} {params:?}"),
        Message::Response { id, outcome } => match outcome {
            Ok(result) => format!("{id:?} {result:?}"),
            Err(error) => format!("{id:?} {} {} {:?}", error.code, error.message, error.data),
        },
        _ => unreachable!("another kind of message"),
    }
}
