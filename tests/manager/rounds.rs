//! Calls that take several rounds, and arguments that go into headers: the modern era.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use workers_agents::protocol::ProtocolError;
use workers_agents::{ElicitResult, Error, McpClientManager, OpenQuestions, Root, SamplingResult};

use crate::support::mcp_server::{result, rpc_error};
use crate::support::talker::Talker;
use crate::support::{Reply, Seen, World, names};

fn form(message: &str) -> Value {
    json!({"method": "elicitation/create", "params": {"message": message,
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string", "default": "Eve"}}}}})
}

fn hosted() -> (World, McpClientManager, Rc<Talker>, OpenQuestions) {
    let server = Talker::modern(json!({"tools": {}, "prompts": {}, "resources": {}}));
    let mut world = World::new();
    let mcp = world.manager();
    let questions = OpenQuestions::new();
    mcp.configure_elicitation_handlers(questions.handlers());
    server.add(&mut world, &mcp, "pier");
    (world, mcp, server, questions)
}

fn is_retry(seen: &Seen) -> bool {
    let params = &seen.body["params"];
    params.get("inputResponses").is_some() || params.get("requestState").is_some()
}

#[test]
fn a_round_answers_every_input_and_gives_the_state_back_to_the_byte() {
    // Not to be parsed, trimmed or encoded anew.
    let state = r#""  \u00e4\/ {\"a\": 1.0} \\n ""#;
    let (mut world, mcp, server, questions) = hosted();
    mcp.configure_sampling(async |_, _| {
        Ok(SamplingResult::Message(
            json!({"role": "assistant", "model": "m", "content": {}}),
        ))
    });
    mcp.configure_roots(Some(vec![Root {
        uri: "file:///srv".into(),
        name: None,
    }]))
    .unwrap();
    server.on("tools/call", move |seen| {
        if is_retry(seen) {
            return result(seen, json!({"resultType": "complete", "content": []}));
        }
        let requests = json!({"a": form("A?"), "b": form("B?"),
            "s": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}},
            "r": {"method": "roots/list"}});
        Reply::typed(
            200,
            "application/json",
            format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{{"resultType":"input_required","requestState":{state},"inputRequests":{requests}}}}}"#,
                seen.body["id"]
            ),
        )
    });
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("pier", "echo", json!({"x": 1})).await });
    let open = questions.list();
    assert_eq!(open.len(), 2, "both at once");
    questions
        .answer(&open[0].id, ElicitResult::Decline)
        .unwrap();
    world.settle();
    assert_eq!(world.count("tools/call"), 1, "the other is still open");
    questions
        .answer(&open[1].id, ElicitResult::accept_empty())
        .unwrap();
    world.settle();
    call.outcome().unwrap().unwrap();
    let sent = world.sent("tools/call");
    assert_eq!(sent.len(), 2);
    let (first, second) = (&sent[0].body, &sent[1].body);
    assert_ne!(first["id"], second["id"]);
    assert_eq!(first["params"]["arguments"], second["params"]["arguments"]);
    assert_ne!(
        first["params"]["_meta"]["progressToken"],
        second["params"]["_meta"]["progressToken"]
    );
    assert_eq!(
        second["params"]["inputResponses"],
        json!({"a": {"action": "decline"}, "b": {"action": "accept", "content": {"name": "Eve"}},
            "s": {"role": "assistant", "model": "m", "content": {}}, "r": {"roots": [{"uri": "file:///srv"}]}})
    );
    assert_eq!(sent[1].header("mcp-name"), Some("echo"));
    assert!(
        sent[1].text.contains(&format!(r#""requestState":{state}"#)),
        "{}",
        sent[1].text
    );
}

#[test]
fn nothing_of_a_round_outlives_it() {
    let (mut world, mcp, server, questions) = hosted();
    let round = Cell::new(0);
    server.on("tools/call", move |seen| {
        if seen.body["params"]["arguments"]["plain"] == true {
            return result(seen, json!({"content": []}));
        }
        round.set(round.get() + 1);
        match round.get() {
            1 => result(
                seen,
                json!({"resultType": "input_required", "requestState": "one",
                "inputRequests": {"a": form("A?")}}),
            ),
            2 => result(
                seen,
                json!({"resultType": "input_required", "inputRequests": {"b": form("B?")}}),
            ),
            // Without any resultType it is complete.
            _ => result(seen, json!({"content": []})),
        }
    });
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
    for _ in 0..2 {
        // One that runs meanwhile takes no part in it.
        world
            .run(mcp.call_tool("pier", "echo", json!({"plain": true})))
            .unwrap();
        questions
            .answer(&questions.list()[0].id, ElicitResult::accept_empty())
            .unwrap();
        world.settle();
    }
    call.outcome().unwrap().unwrap();
    let (plain, rounds): (Vec<Seen>, Vec<Seen>) = world
        .sent("tools/call")
        .into_iter()
        .partition(|seen| seen.body["params"]["arguments"]["plain"] == true);
    assert_eq!((plain.len(), rounds.len()), (2, 3));
    assert!(!plain.iter().any(is_retry) && !is_retry(&rounds[0]));
    assert_eq!(rounds[1].body["params"]["requestState"], "one");
    assert!(rounds[2].body["params"].get("requestState").is_none());
    let answered = rounds[2].body["params"]["inputResponses"]
        .as_object()
        .unwrap();
    assert_eq!(answered.keys().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn a_round_without_inputs_is_made_after_a_pause() {
    let (mut world, mcp, server, _) = hosted();
    server.on("tools/call", |seen| {
        if is_retry(seen) {
            return result(seen, json!({"resultType": "complete", "content": []}));
        }
        result(
            seen,
            json!({"resultType": "input_required", "requestState": "s"}),
        )
    });
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
    world.advance(Duration::from_millis(249));
    assert_eq!(world.count("tools/call"), 1);
    world.advance(Duration::from_millis(1));
    call.outcome().unwrap().unwrap();
    let params = world.sent("tools/call")[1].body["params"].clone();
    assert_eq!(params["requestState"], "s");
    assert!(params.get("inputResponses").is_none());
}

#[test]
fn rounds_end_after_ten() {
    let (mut world, mcp, server, _) = hosted();
    server.on("tools/call", |seen| {
        result(
            seen,
            json!({"resultType": "input_required", "requestState": "s"}),
        )
    });
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
    world.pass(Duration::from_secs(5), Duration::from_millis(50));
    let outcome = call.outcome().unwrap();
    assert!(
        matches!(
            outcome,
            Err(Error::Protocol(ProtocolError::TooManyRounds {
                rounds: 10,
                ..
            }))
        ),
        "{outcome:?}"
    );
    assert_eq!(world.count("tools/call"), 11);
}

#[test]
fn an_input_that_cannot_be_given_fails_the_call() {
    for (requests, text) in [
        (json!({"x": {"method": "foo/bar"}}), "foo/bar"),
        (
            json!({"x": {"method": "sampling/createMessage", "params": {"messages": []}}}),
            "sampling/createMessage",
        ),
        (json!({"x": {"method": "roots/list"}}), "roots/list"),
        (
            json!({"x": {"method": "elicitation/create", "params": {"mode": "url", "message": "m",
            "url": "javascript:alert(1)"}}}),
            "elicitation/create",
        ),
        (json!({"x": {}}), "tools/call"),
        (json!({}), "tools/call"),
        (json!([]), "tools/call"),
        (json!(5), "tools/call"),
    ] {
        let (mut world, mcp, server, questions) = hosted();
        let all = requests.clone();
        server.on("tools/call", move |seen| {
            result(
                seen,
                json!({"resultType": "input_required", "inputRequests": all}),
            )
        });
        let calling = mcp.clone();
        let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
        let outcome = call.outcome().unwrap();
        let error = outcome.unwrap_err();
        assert!(
            matches!(error, Error::InputRefused { .. } | Error::Protocol(_)),
            "{requests}: {error:?}"
        );
        assert!(
            error.describe().contains(text),
            "{requests}: {}",
            error.describe()
        );
        assert_eq!(world.count("tools/call"), 1, "{requests}");
        assert!(questions.list().is_empty());
    }
}

#[test]
fn one_input_that_fails_takes_its_siblings_along() {
    let (mut world, mcp, server, questions) = hosted();
    mcp.configure_sampling(async |_, _| Ok(SamplingResult::Rejected));
    server.on("tools/call", |seen| {
        result(seen, json!({"resultType": "input_required", "inputRequests": {"a": form("A?"),
            "s": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}}}))
    });
    let outcome = world.run(mcp.call_tool("pier", "echo", json!({})));
    assert!(
        matches!(outcome, Err(Error::InputRefused { .. })),
        "{outcome:?}"
    );
    assert!(questions.list().is_empty());
    assert_eq!(world.count("tools/call"), 1);
}

#[test]
fn prompts_and_resources_take_rounds_and_nothing_else_does() {
    let (mut world, mcp, server, questions) = hosted();
    let input = json!({"resultType": "input_required", "inputRequests": {"a": form("A?")}});
    for method in ["prompts/get", "resources/read"] {
        let input = input.clone();
        server.on(method, move |seen| {
            if is_retry(seen) {
                return result(
                    seen,
                    json!({"resultType": "complete", "messages": [], "contents": []}),
                );
            }
            result(seen, input.clone())
        });
        let calling = mcp.clone();
        let call = world.start(async move {
            if method == "prompts/get" {
                calling
                    .get_prompt("pier", "greet", json!({"who": "Eve"}))
                    .await
                    .map(drop)
            } else {
                calling.read_resource("pier", "tide://now").await.map(drop)
            }
        });
        questions
            .answer(&questions.list()[0].id, ElicitResult::Cancel)
            .unwrap();
        world.settle();
        call.outcome().unwrap().unwrap();
        let sent = world.sent(method);
        assert_eq!(
            sent[1].body["params"]["inputResponses"],
            json!({"a": {"action": "cancel"}})
        );
    }
    server.set("tools/list", input);
    let outcome = world.run(mcp.discover_if_connected("pier", None));
    assert!(outcome.is_ok(), "the other lists are there");
    let problems = mcp.connection("pier").unwrap().problems;
    assert!(
        problems[0].error.describe().contains("input_required"),
        "{problems:?}"
    );
    assert_eq!(names(&mcp), ["echo", "add"]);
}

#[test]
fn a_question_of_a_round_outlasts_the_request_timeout_and_not_the_ceiling() {
    let (mut world, mcp, server, questions) = hosted();
    server.on("tools/call", |seen| {
        if is_retry(seen) {
            return result(seen, json!({"content": []}));
        }
        result(
            seen,
            json!({"resultType": "input_required", "inputRequests": {"a": form("A?")}}),
        )
    });
    for patience in [599, 601] {
        let calling = mcp.clone();
        let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
        world.pass(Duration::from_secs(patience), Duration::from_secs(1));
        if patience < 600 {
            questions
                .answer(&questions.list()[0].id, ElicitResult::Decline)
                .unwrap();
            world.settle();
            call.outcome().unwrap().unwrap();
        } else {
            assert!(matches!(call.outcome(), Some(Err(Error::Timeout { .. }))));
            assert!(questions.list().is_empty());
        }
    }
}

#[test]
fn a_server_of_the_modern_era_that_asks_by_a_request_gets_no_answer() {
    let (mut world, mcp, server, questions) = hosted();
    server.live("tools/call");
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
    let talk = server.talk("tools/call");
    talk.ask(json!(1), "elicitation/create", form("A?")["params"].clone());
    talk.ask(json!(2), "ping", Value::Null);
    talk.answer(json!({"content": []}));
    world.settle();
    call.outcome().unwrap().unwrap();
    assert!(questions.list().is_empty() && world.answers().is_empty());
}

// ---- arguments in headers

fn mirrored(header: &str) -> Value {
    json!({"tools": [{"name": "book", "inputSchema": {"type": "object",
        "properties": {"port": {"type": "string", "x-mcp-header": header}, "other": {"type": "string"}}}}]})
}

#[test]
fn arguments_that_a_tool_marks_go_into_headers() {
    let server = Talker::modern(json!({"tools": {}}));
    server.set("tools/list", mirrored("Port"));
    let (mut world, mcp) = server.world();
    for (port, header) in [
        (json!("Kiel"), Some("Kiel")),
        (json!("Köln"), Some("=?base64?S8O2bG4=?=")),
        (Value::Null, None),
    ] {
        world
            .run(mcp.call_tool("pier", "book", json!({"port": port, "other": "x"})))
            .unwrap();
        let sent = world.sent("tools/call").pop().unwrap();
        assert_eq!(sent.header("mcp-param-port"), header, "{port}");
        assert_eq!(sent.body["params"]["arguments"]["port"], port);
    }
    // Only there.
    assert!(
        world.sent("tools/list")[0]
            .header("mcp-param-port")
            .is_none()
    );
}

#[test]
fn arguments_go_into_headers_right_after_a_wake() {
    let server = Talker::modern(json!({"tools": {}}));
    server.set("tools/list", mirrored("Port"));
    let (mut world, _) = server.world();
    world.network.forget();
    let mcp = world.wake();
    world
        .run(mcp.call_tool("pier", "book", json!({"port": "Kiel"})))
        .unwrap();
    assert_eq!(
        world.sent("tools/call")[0].header("mcp-param-port"),
        Some("Kiel")
    );
}

#[test]
fn a_mismatch_of_headers_loads_the_tools_and_calls_once_more() {
    for status in [200, 400] {
        let server = Talker::modern(json!({"tools": {}}));
        server.set("tools/list", mirrored("Port"));
        let wanted: Rc<RefCell<&str>> = Rc::new(RefCell::new("mcp-param-port"));
        let header = wanted.clone();
        server.on("tools/call", move |seen| {
            if seen.header(*header.borrow()).is_none() {
                return rpc_error(status, seen, -32020, Value::Null);
            }
            result(seen, json!({"content": []}))
        });
        let (mut world, mcp) = server.world();
        wanted.replace("mcp-param-harbour");
        server.set("tools/list", mirrored("Harbour"));
        world.network.forget();
        world
            .run(mcp.call_tool("pier", "book", json!({"port": "Kiel"})))
            .unwrap();
        assert_eq!(
            (world.count("tools/list"), world.count("tools/call")),
            (1, 2)
        );
        // A server that is never content is asked twice and no more.
        wanted.replace("mcp-param-none");
        world.network.forget();
        let outcome = world.run(mcp.call_tool("pier", "book", json!({"port": "Kiel"})));
        assert!(
            matches!(&outcome, Err(Error::Rpc(error)) if error.code == -32020),
            "{outcome:?}"
        );
        assert_eq!(
            (world.count("tools/list"), world.count("tools/call")),
            (1, 2)
        );
    }
}

#[test]
fn a_tool_with_marks_that_make_no_sense_is_left_out_and_not_called() {
    let server = Talker::modern(json!({"tools": {}}));
    server.set("tools/list", json!({"tools": [
        {"name": "good", "inputSchema": {"type": "object"}},
        {"name": "bad", "inputSchema": {"type": "object", "properties": {"a": {"type": "object", "x-mcp-header": "A"}}}},
        {"name": "twice", "inputSchema": {"type": "object", "properties": {
            "a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}}},
        {"name": "illegal", "inputSchema": {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "a b"}}}},
    ]}));
    let (mut world, mcp) = server.world();
    assert_eq!(names(&mcp), ["good"]);
    assert_eq!(mcp.connection("pier").unwrap().problems.len(), 3);
    for name in ["bad", "twice", "illegal"] {
        let outcome = world.run(mcp.call_tool("pier", name, json!({"a": "x"})));
        assert!(
            matches!(outcome, Err(Error::UnusableTool { .. })),
            "{outcome:?}"
        );
    }
    assert_eq!(world.count("tools/call"), 0);
}
