//! The frames on a browser's socket: JSON texts, one object each. Pure.
//!
//! They are those of the TypeScript package, so that its clients (`agents/client`, `agents/react`)
//! work unchanged. What is none of them is the host's business.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::protocol::bounded::member_text;
use crate::protocol::clip;

/// The longest error text that a browser is sent, in characters.
const MAX_ERROR: usize = 500;
/// The longest name of a method, in bytes.
const MAX_METHOD: usize = 256;
/// The longest id of a call, in bytes.
const MAX_ID: usize = 256;

/// A frame that a browser sent.
#[derive(Debug)]
pub(crate) enum Incoming<'a> {
    /// `rpc`: calls a method.
    Call(CallFrame<'a>),
    /// `cf_agent_state`: a new state.
    State(&'a str),
}

/// A call of a method.
#[derive(Debug)]
pub(crate) struct CallFrame<'a> {
    pub(crate) id: Box<RawValue>,
    pub(crate) method: String,
    /// A JSON array.
    pub(crate) args: &'a str,
}

/// Reads a text of a browser. `None`: it is no frame of ours, also when a member is missing. Then it
/// is the host's, as it is with the TypeScript package.
pub(crate) fn parse(text: &str) -> Option<Incoming<'_>> {
    if !text.trim_start().starts_with('{') {
        return None;
    }
    // Read whole, so that what is not JSON is not taken for a frame.
    let raw: &RawValue = serde_json::from_str(text).ok()?;
    let string = |name| -> Option<String> {
        let text = member_text(raw, name)?;
        serde_json::from_str(text).ok()
    };
    match string("type")?.as_str() {
        "rpc" => {
            let id = member_text(raw, "id").filter(|id| id.starts_with('"') && id.len() <= MAX_ID);
            let args = member_text(raw, "args").filter(|args| args.starts_with('['));
            Some(Incoming::Call(CallFrame {
                id: RawValue::from_string(id?.to_owned()).ok()?,
                method: string("method").filter(|method| method.len() <= MAX_METHOD)?,
                args: args?,
            }))
        }
        "cf_agent_state" => member_text(raw, "state").map(Incoming::State),
        _ => None,
    }
}

/// Who the other end is talking to.
pub(crate) fn identity(name: &str, class: &str, state_follows: bool) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Identity<'a> {
        name: &'a str,
        agent: &'a str,
        r#type: &'static str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        state_follows: bool,
    }
    to_text(&Identity {
        name,
        agent: class,
        r#type: "cf_agent_identity",
        state_follows,
    })
}

/// The state, which is JSON.
pub(crate) fn state(state: &str) -> String {
    format!(r#"{{"state":{state},"type":"cf_agent_state"}}"#)
}

/// A state was not taken.
pub(crate) fn state_error(error: &str) -> String {
    #[derive(Serialize)]
    struct StateError<'a> {
        r#type: &'static str,
        error: &'a str,
    }
    to_text(&StateError {
        r#type: "cf_agent_state_error",
        error: &clip(error, MAX_ERROR),
    })
}

/// The servers, which are JSON.
pub(crate) fn mcp_servers(servers: &str) -> String {
    format!(r#"{{"mcp":{servers},"type":"cf_agent_mcp_servers"}}"#)
}

/// A part of an answer, or its end.
pub(crate) fn result(id: &RawValue, result: &RawValue, is_done: bool) -> String {
    format!(
        r#"{{"done":{is_done},"id":{},"result":{},"success":true,"type":"rpc"}}"#,
        id.get(),
        result.get()
    )
}

/// A call that has failed. Without an id the browser cannot tell which.
pub(crate) fn failure(id: Option<&RawValue>, error: &str) -> String {
    #[derive(Serialize)]
    struct Failure<'a> {
        error: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a RawValue>,
        success: bool,
        r#type: &'static str,
    }
    to_text(&Failure {
        error: &clip(error, MAX_ERROR),
        id,
        success: false,
        r#type: "rpc",
    })
}

fn to_text(frame: &impl Serialize) -> String {
    // Nothing here can fail to be JSON.
    serde_json::to_string(frame).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn calls_and_states_are_read() {
        let call = parse(r#" {"type":"rpc","id":"a","method":"add","args":[1, 2.50]}"#);
        let Some(Incoming::Call(call)) = call else {
            panic!("{call:?}");
        };
        assert_eq!(
            (call.id.get(), call.method.as_str(), call.args),
            (r#""a""#, "add", "[1, 2.50]")
        );
        let state = parse(r#"{"state":{"n":1.0},"type":"cf_agent_state"}"#);
        assert!(matches!(state, Some(Incoming::State(r#"{"n":1.0}"#))));
    }

    #[test]
    fn what_is_no_frame_is_left_to_the_host() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let in_object = format!(r#"{{"type":"x","deep":{deep}}}"#);
        for text in [
            "",
            "not json",
            "{",
            "[1]",
            "null",
            r#"{"type":"x"}"#,
            r#"{"type":1}"#,
            r#"{"no":"type"}"#,
            r#"{"type":"rpc""#,
            r#"{"type":"rpc","id":"a"}"#,
            r#"{"type":"rpc","id":7,"method":"m","args":[]}"#,
            r#"{"type":"rpc","id":null,"method":"m","args":[]}"#,
            r#"{"type":"rpc","method":"m","args":[]}"#,
            r#"{"type":"rpc","id":"a","method":3,"args":[]}"#,
            r#"{"type":"rpc","id":"a","method":"m","args":{}}"#,
            r#"{"type":"cf_agent_state"}"#,
            &deep,
            &in_object,
        ] {
            let short = clip(text, 40);
            assert!(parse(text).is_none(), "{short}");
        }
    }

    #[test]
    fn frames_have_the_members_that_browsers_read() {
        assert_eq!(
            value(&identity("a/b", "my-agent", true)),
            json!({"type": "cf_agent_identity", "name": "a/b", "agent": "my-agent", "stateFollows": true})
        );
        assert_eq!(
            value(&state(r#"{"n":1}"#)),
            json!({"type": "cf_agent_state", "state": {"n": 1}})
        );
        assert_eq!(
            value(&state_error("Connection is readonly")),
            json!({"type": "cf_agent_state_error", "error": "Connection is readonly"})
        );
        assert_eq!(
            value(&mcp_servers("{}")),
            json!({"type": "cf_agent_mcp_servers", "mcp": {}})
        );
        let id = RawValue::from_string("\"x\"".into()).unwrap();
        let three = RawValue::from_string("3".into()).unwrap();
        assert_eq!(
            value(&result(&id, &three, true)),
            json!({"type": "rpc", "id": "x", "success": true, "result": 3, "done": true})
        );
        assert_eq!(
            value(&failure(Some(&id), "no")),
            json!({"type": "rpc", "id": "x", "success": false, "error": "no"})
        );
    }
}
