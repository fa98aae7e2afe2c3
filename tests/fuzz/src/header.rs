//! What is written for servers: header values, request bodies, answers.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use serde_json::Value;
use workers_agents::protocol::request::{
    Additions, Call, NAME, Params, answer_to_server, encode_header,
};
use workers_agents::protocol::{RequestId, Revision};

pub fn check(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    let encoded = encode_header(text);
    let value = HeaderValue::from_str(&encoded).expect("a legal value");
    // RFC 9110 §5.5: visible characters, and spaces only between them.
    assert!(encoded.bytes().all(|byte| (0x20..=0x7e).contains(&byte)));
    assert_eq!(encoded.trim(), encoded);
    assert!(!encoded.is_empty());
    assert_eq!(decode_header(&encoded), text);

    let id = RequestId::Text(text.to_owned());
    let call = Call {
        method: "tools/call",
        target: Some(text.to_owned()),
        params: Params::default().with("name", &text).expect("JSON"),
    };
    let body: Value = serde_json::from_str(&call.body(&id, &Additions::default()).expect("a body"))
        .expect("JSON");
    assert_eq!(
        (&body["id"], &body["params"]["name"]),
        (&text.into(), &text.into())
    );
    let headers = call.headers(Some(Revision::NEWEST_MODERN));
    assert_eq!(headers.get(NAME), Some(&value));

    let answer = answer_to_server(&id, Err((-32603, text))).expect("an answer");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(answer["id"], text);
    assert_eq!(answer["error"]["message"], text);
}

/// As a server reads it (MCP 2026-07-28, "Value Encoding").
fn decode_header(value: &str) -> String {
    let coded = value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match coded {
        Some(coded) => {
            String::from_utf8(BASE64_STANDARD.decode(coded).expect("base64")).expect("UTF-8")
        }
        None => value.to_owned(),
    }
}
