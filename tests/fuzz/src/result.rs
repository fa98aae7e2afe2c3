//! What is read out of results and errors: the catalogue's items, the handshake, and the verdict on a probe.

use serde_json::Value;
use serde_json::value::RawValue;
use workers_agents::protocol::jsonrpc::decode;
use workers_agents::protocol::model::ServerCard;
use workers_agents::protocol::version::{
    ProbeAnswer, Verdict, is_evidence, judge, read_initialize,
};
use workers_agents::protocol::{
    Era, Message, Prompt, ProtocolError, Resource, ResourceTemplate, Revision, Tool,
};

use crate::peak_of;

pub fn check(input: &[u8]) {
    let Some(result) = str::from_utf8(input)
        .ok()
        .and_then(|text| serde_json::from_str::<Box<RawValue>>(text).ok())
    else {
        return;
    };
    let length = result.get().len();
    let value: Option<Value> = serde_json::from_str(result.get()).ok();

    let (handshake, peak) = peak_of(|| read_initialize(&result));
    assert!(peak <= 160 * length + 4096, "{peak} bytes for {length}");
    match handshake {
        Ok((revision, card)) => {
            assert_eq!(revision.era(), Era::Legacy);
            if let Some(value) = &value {
                assert_eq!(value["protocolVersion"], revision.as_str());
            }
            survives_storage(&card);
        }
        Err(error) => is_short(&error),
    }

    let (verdict, peak) = peak_of(|| judge(&ProbeAnswer::Result(&result)));
    assert!(peak <= 160 * length + 4096, "{peak} bytes for {length}");
    match verdict {
        Verdict::Modern(revision, card) => {
            assert_eq!(revision.era(), Era::Modern);
            survives_storage(&card);
        }
        Verdict::Legacy => {}
        Verdict::Refused(error) => is_short(&error),
        other => panic!("{other:?}"),
    }
    errors(&result);
    items(&result, value.as_ref());
}

/// The text as a JSON-RPC error, with statuses of each kind.
fn errors(error: &RawValue) {
    let text = format!(r#"{{"id":1,"error":{error}}}"#);
    let Ok(messages) = decode(text.as_bytes()) else {
        // `null` is no error.
        return assert_eq!(error.get(), "null");
    };
    let [
        Message::Response {
            outcome: Err(error),
            ..
        },
    ] = &messages[..]
    else {
        panic!("{messages:?}");
    };
    for status in [200, 400, 401, 404, 429, 503] {
        match judge(&ProbeAnswer::Error(status, error)) {
            Verdict::NoEvidence => assert!(!is_evidence(status)),
            _ if !is_evidence(status) => panic!("{status} is evidence"),
            Verdict::ProbeAgain(revision) => assert_eq!(revision.era(), Era::Modern),
            Verdict::Refused(error) => is_short(&error),
            Verdict::Legacy | Verdict::RefusedRequest => {}
            other @ Verdict::Modern(..) => panic!("{other:?}"),
        }
    }
}

/// What of an answer goes into a message does not make it long.
fn is_short(error: &ProtocolError) {
    if let ProtocolError::NoCommonVersion(names) = error {
        assert!(names.iter().all(|name| Revision::parse(name).is_none()));
    }
    let length = error.to_string().chars().count();
    assert!(length <= 100 + 32 * 45, "{length} characters");
}

/// A card is stored as JSON within a row.
fn survives_storage(card: &ServerCard) {
    let stored =
        serde_json::to_string(&serde_json::json!({"session": {"card": card}})).expect("JSON");
    let restored: Value = serde_json::from_str(&stored).expect("not too deep");
    let restored: ServerCard =
        serde_json::from_value(restored["session"]["card"].clone()).expect("a card");
    // Reading a fraction may miss it by its last bit.
    if !stored.contains(['.', 'e']) {
        assert_eq!(restored, *card);
    }
    for name in card.capabilities.keys() {
        assert_eq!(card.offers(name), restored.offers(name));
    }
}

/// Items write the server's text back, and read from it what stands there.
fn items(text: &RawValue, value: Option<&Value>) {
    macro_rules! check {
        ($type:ty, $key:literal, $accessor:ident) => {
            let item = <$type>::from_json(text.to_owned());
            if let Some(value) = value {
                assert_eq!(
                    item.as_ref().map(|item| item.$accessor()),
                    value.get($key).and_then(Value::as_str)
                );
            }
            if let Some(item) = item {
                assert_eq!(serde_json::to_string(&item).expect("JSON"), text.get());
                if let Some(value) = value {
                    let texts = |name: &str| value.get(name).and_then(Value::as_str);
                    assert_eq!(item.title().as_deref(), texts("title"));
                    assert_eq!(item.description().as_deref(), texts("description"));
                }
            }
        };
    }
    check!(Tool, "name", name);
    check!(Prompt, "name", name);
    check!(Resource, "uri", uri);
    check!(ResourceTemplate, "uriTemplate", uri_template);

    if let Some(tool) = Tool::from_json(text.to_owned()) {
        let _ = tool.display_name();
        for schema in [tool.input_schema(), tool.output_schema()]
            .into_iter()
            .flatten()
        {
            assert!(text.get().contains(schema.get()));
        }
    }
}
