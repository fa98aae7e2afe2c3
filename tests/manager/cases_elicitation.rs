//! Cases from public bug reports about MCP clients: what servers ask the user.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use workers_agents::{
    CallOptions, ConnectionState as S, ElicitMode, ElicitResult, ElicitationHandlers, Error,
    McpClientManager, McpEvent, OpenQuestions, RegisterServer, Root, SamplingResult,
};

use crate::support::mcp_server::{result, rpc_error};
use crate::support::talker::{Talk, Talker};
use crate::support::{Reply, Started, World, state};

type Outcome = Started<Result<workers_agents::protocol::CallToolResult, Error>>;

/// A server whose calls are streams, and a host that keeps the questions.
fn asking() -> (World, McpClientManager, Rc<Talker>, OpenQuestions) {
    let server = Talker::legacy(json!({"tools": {}}));
    server.live("tools/call");
    let mut world = World::new();
    let mcp = world.manager();
    let questions = OpenQuestions::new();
    mcp.configure_elicitation_handlers(questions.handlers());
    server.add(&mut world, &mcp, "pier");
    (world, mcp, server, questions)
}

/// Starts a call; gives the stream that answers it.
fn call(world: &mut World, mcp: &McpClientManager, server: &Talker) -> (Outcome, Rc<Talk>) {
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
    (call, server.talk("tools/call"))
}

fn form() -> Value {
    json!({"message": "Who?", "requestedSchema":
        {"type": "object", "properties": {"name": {"type": "string", "minLength": 2}}, "required": ["name"]}})
}

fn named(name: &str) -> ElicitResult {
    ElicitResult::accept(json!({"name": name}).as_object().unwrap().clone())
}

/// Pings the connection's server to see that it is still of use.
fn assert_alive(world: &mut World, mcp: &McpClientManager) {
    world.run(mcp.ping("pier")).unwrap();
    assert_eq!(state(mcp), S::Ready);
}

#[test]
fn el_02_a_question_inside_the_stream_of_a_call() {
    let server = Talker::legacy(json!({"tools": {}}));
    server.live("tools/call");
    let mut world = World::new();
    world.options = world.options.request_timeout(Duration::from_secs(30));
    let mcp = world.manager();
    let questions = OpenQuestions::new();
    mcp.configure_elicitation_handlers(questions.handlers());
    let url = "https://pier.example/mcp";
    server.serve(&world, url);
    let registration = RegisterServer::new("Pier", url).header("authorization", "Bearer token-1");
    world
        .run(mcp.register_server("pier", registration))
        .unwrap();
    world
        .run(async {
            mcp.connect_to_server("pier").await?;
            mcp.discover_if_connected("pier", None).await
        })
        .unwrap();

    for id in [json!("q1"), json!(1), json!("1")] {
        let (call, talk) = call(&mut world, &mcp, &server);
        let mut params = form();
        params["mode"] = json!("form");
        talk.ask(id.clone(), "elicitation/create", params);
        world.settle();
        assert_eq!(questions.list().len(), 1, "the user is asked at once");
        world.pass(Duration::from_secs(45), Duration::from_secs(1));
        assert!(call.outcome().is_none(), "the user is still thinking");
        questions
            .answer(&questions.list()[0].id, named("Ada"))
            .unwrap();
        world.settle();
        let seen = world.network.seen.borrow().last().unwrap().clone();
        assert_eq!(
            seen.body,
            json!({"jsonrpc": "2.0", "id": id, "result": {"action": "accept", "content": {"name": "Ada"}}})
        );
        assert_eq!(seen.header("mcp-session-id"), Some("s-1"));
        assert_eq!(seen.header("mcp-protocol-version"), Some("2025-11-25"));
        assert_eq!(seen.header("authorization"), Some("Bearer token-1"));
        // The limit begins anew when the user has answered.
        world.pass(Duration::from_secs(29), Duration::from_secs(1));
        talk.answer(json!({"content": []}));
        world.settle();
        call.outcome().unwrap().unwrap();
    }
}

#[test]
fn el_02_the_user_has_until_the_ceiling() {
    let (mut world, mcp, server, questions) = asking();
    let (call, talk) = call(&mut world, &mcp, &server);
    talk.ask(json!("q1"), "elicitation/create", form());
    world.settle();
    world.pass(Duration::from_secs(599), Duration::from_secs(1));
    assert!(call.outcome().is_none());
    world.pass(Duration::from_secs(2), Duration::from_secs(1));
    let outcome = call.outcome().unwrap();
    assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
    assert!(
        questions.list().is_empty(),
        "the question is over with the call"
    );
    assert_eq!(world.count("notifications/cancelled"), 1);
    assert_alive(&mut world, &mcp);
}

#[test]
fn el_02_a_question_on_the_standing_stream_keeps_the_call_alive() {
    let server = Talker::legacy(json!({"tools": {}}));
    server.live("tools/call");
    let mut world = World::new();
    let mcp = world.manager();
    let questions = OpenQuestions::new();
    mcp.configure_elicitation_handlers(questions.handlers());
    server.add(&mut world, &mcp, "pier");
    let (call, talk) = call(&mut world, &mcp, &server);
    server
        .stream_of_its_own()
        .ask(json!("q1"), "elicitation/create", form());
    world.settle();
    world.pass(Duration::from_secs(90), Duration::from_secs(1));
    assert!(call.outcome().is_none());
    questions
        .answer(&questions.list()[0].id, named("Ada"))
        .unwrap();
    talk.answer(json!({"content": []}));
    world.settle();
    call.outcome().unwrap().unwrap();
    assert_eq!(world.answers()[0]["id"], json!("q1"));
}

#[test]
fn el_05_the_form_reaches_the_user_as_it_was() {
    let (mut world, mcp, server, questions) = asking();
    let schema = concat!(
        r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","x-order":["z","a"],"#,
        r#""properties":{"z":{"type":"string","enum":["b","a"],"enumNames":["B","A"],"default":"b"},"#,
        r#""a":{"type":"string","oneOf":[{"const":"x","title":"X"},{"const":"y","title":"Y"}]},"#,
        r#""m":{"type":"string","format":"email","default":"a@b.example","x-hint":1.50}},"required":["z"]}"#
    );
    let (call, talk) = call(&mut world, &mcp, &server);
    let params: Box<serde_json::value::RawValue> = serde_json::from_str(&format!(
        r#"{{"message":"Fill in","requestedSchema":{schema}}}"#
    ))
    .unwrap();
    talk.say_raw(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{params}}}"#
    ));
    world.settle();
    let question = questions.list().remove(0);
    let ElicitMode::Form { requested_schema } = &question.request.mode else {
        panic!("{question:?}")
    };
    assert_eq!(requested_schema.get(), schema);
    // What is left out takes its default.
    let answer = json!({"a": "y"}).as_object().unwrap().clone();
    questions
        .answer(&question.id, ElicitResult::accept(answer))
        .unwrap();
    talk.answer(json!({"content": []}));
    world.settle();
    call.outcome().unwrap().unwrap();
    assert_eq!(
        world.answers()[0]["result"]["content"],
        json!({"a": "y", "z": "b", "m": "a@b.example"})
    );
}

#[test]
fn el_07_dangerous_urls_are_not_shown_and_others_are_never_fetched() {
    let (mut world, mcp, server, questions) = asking();
    let shown = Rc::new(Cell::new(0));
    for (url, host) in [
        ("javascript:alert(1)", None),
        ("file:///etc/passwd", None),
        ("data:text/html,x", None),
        ("/relative", None),
        ("", None),
        (
            "http://user:pw@bank.example.evil.example/",
            Some("bank.example.evil.example"),
        ),
        (
            "https://xn--pypal-4ve.example/",
            Some("xn--pypal-4ve.example"),
        ),
        ("https://a.example/page", Some("a.example")),
    ] {
        let fetched = shown.clone();
        if host.is_some() {
            world.network.serve(url, move |_| {
                fetched.set(fetched.get() + 1);
                Reply::status(200)
            });
        }
        let (call, talk) = call(&mut world, &mcp, &server);
        let params = json!({"mode": "url", "message": "Visit", "url": url, "elicitationId": "e"});
        talk.ask(json!("u"), "elicitation/create", params);
        world.settle();
        let open = questions.list();
        match host {
            None => {
                assert!(open.is_empty(), "{url}");
                assert_eq!(
                    world.answers().last().unwrap()["error"]["code"],
                    -32602,
                    "{url}"
                );
            }
            Some(host) => {
                let ElicitMode::Url { url: shown, .. } = &open[0].request.mode else {
                    panic!("{url}")
                };
                assert_eq!((shown.as_str(), shown.host()), (url, host));
                questions
                    .answer(&open[0].id, ElicitResult::Decline)
                    .unwrap();
                world.settle();
                assert_eq!(
                    world.answers().last().unwrap()["result"],
                    json!({"action": "decline"})
                );
            }
        }
        talk.answer(json!({"content": []}));
        world.settle();
        call.outcome().unwrap().unwrap();
    }
    assert_eq!(shown.get(), 0, "nobody fetched a page");
}

fn modes(world: &World) -> Value {
    let sent = world.sent("initialize");
    sent.last().unwrap().body["params"]["capabilities"]["elicitation"].clone()
}

#[test]
fn el_09_the_capability_is_still_there_after_a_wake() {
    let server = Talker::legacy(json!({"tools": {}}));
    let mut world = World::new();
    let mcp = world.manager();
    mcp.configure_elicitation_handlers(OpenQuestions::new().handlers());
    server.add(&mut world, &mcp, "pier");
    assert_eq!(modes(&world), json!({"form": {}, "url": {}}));

    // A wake while the server is down, of a host that has not had its turn; its session is lost.
    server.session.replace(None);
    world
        .network
        .serve("https://pier.example/mcp", |_| Reply::status(503));
    world.wake();
    world.settle();
    server.serve(&world, "https://pier.example/mcp");
    world.network.forget();
    // The host comes late again: what was declared is what is declared.
    let mcp = world.wake();
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    assert_eq!(modes(&world), json!({"form": {}, "url": {}}));
}

#[test]
fn el_09_a_session_that_is_taken_up_still_answers_questions() {
    let server = Talker::legacy(json!({"tools": {}}));
    let mut world = World::new();
    let mcp = world.manager();
    mcp.configure_elicitation_handlers(OpenQuestions::new().handlers());
    server.add(&mut world, &mcp, "pier");
    world.network.forget();
    server.live("tools/call");

    let mcp = world.wake();
    let questions = OpenQuestions::new();
    mcp.configure_elicitation_handlers(questions.handlers());
    world.settle();
    let (call, talk) = call(&mut world, &mcp, &server);
    assert_eq!(world.count("initialize"), 0);
    talk.ask(json!("q"), "elicitation/create", form());
    world.settle();
    questions
        .answer(&questions.list()[0].id, named("Ada"))
        .unwrap();
    talk.answer(json!({"content": []}));
    world.settle();
    call.outcome().unwrap().unwrap();
    assert_eq!(world.answers()[0]["result"]["action"], "accept");
}

#[test]
fn el_09_a_wake_while_the_user_has_to_sign_in_keeps_what_was_declared() {
    let server = Talker::legacy(json!({"tools": {}}));
    let mut world = World::new();
    let mcp = world.manager();
    mcp.configure_elicitation_handlers(OpenQuestions::new().handlers());
    server.add(&mut world, &mcp, "pier");
    server.session.replace(None);
    world.table.rows.borrow_mut()[0].auth_url = Some("https://as.example/authorize".into());
    world.network.forget();
    world.wake();
    world.settle();
    assert!(world.network.methods().is_empty(), "it waits for its user");
    let mcp = world.wake();
    world.run(mcp.connect_to_server("pier")).unwrap();
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    assert_eq!(modes(&world), json!({"form": {}, "url": {}}));
}

#[test]
fn el_09_a_handshake_without_handlers_ends_what_was_declared_before() {
    let server = Talker::legacy(json!({"tools": {}}));
    let mut world = World::new();
    let mcp = world.manager();
    mcp.configure_elicitation_handlers(OpenQuestions::new().handlers());
    server.add(&mut world, &mcp, "pier");
    server.session.replace(None);
    // A host without handlers now: the first handshake still declares, as the host may be late.
    let mcp = world.wake();
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    assert_eq!(modes(&world), json!({"form": {}, "url": {}}));
    let options = world.table.rows.borrow()[0].server_options.clone().unwrap();
    assert!(!options.contains("elicitation"), "{options}");
    server.session.replace(None);
    world.network.forget();
    let mcp = world.wake();
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    assert_eq!(modes(&world), Value::Null);
}

#[test]
fn el_09_handlers_that_are_cleared_are_not_declared() {
    let (mut world, mcp, server, _) = asking();
    mcp.configure_elicitation_handlers(ElicitationHandlers::new());
    let options = world.table.rows.borrow()[0].server_options.clone().unwrap();
    assert!(!options.contains(r#""elicitation""#), "{options}");
    world.run(mcp.close_connection("pier")).unwrap();
    world.run(mcp.connect_to_server("pier")).unwrap();
    assert_eq!(modes(&world), Value::Null);
    drop(server);
}

#[test]
fn el_11_the_first_valid_answer_wins() {
    let (mut world, mcp, server, questions) = asking();
    let (call, talk) = call(&mut world, &mcp, &server);
    talk.ask(json!(5), "elicitation/create", form());
    world.settle();
    let id = questions.list()[0].id.clone();
    // Data that break the form: refused here, and the question stays open.
    for wrong in [
        json!({}),
        json!({"name": 5}),
        json!({"name": "x"}),
        json!({"name": {"a": 1}}),
    ] {
        let answer = ElicitResult::accept(wrong.as_object().unwrap().clone());
        assert!(
            matches!(questions.answer(&id, answer), Err(Error::InvalidOption(_))),
            "{wrong}"
        );
    }
    assert!(world.answers().is_empty());
    questions.answer(&id, named("Ada")).unwrap();
    assert!(matches!(
        questions.answer(&id, named("Bob")),
        Err(Error::QuestionClosed)
    ));
    world.settle();
    assert!(matches!(
        questions.answer(&id, ElicitResult::Cancel),
        Err(Error::QuestionClosed)
    ));
    assert!(matches!(
        questions.answer("unheard-of", ElicitResult::Cancel),
        Err(Error::QuestionClosed)
    ));
    talk.answer(json!({"content": []}));
    world.settle();
    call.outcome().unwrap().unwrap();
    assert_eq!(
        world.answers(),
        [
            json!({"jsonrpc": "2.0", "id": 5, "result": {"action": "accept", "content": {"name": "Ada"}}})
        ]
    );
    assert_alive(&mut world, &mcp);
}

#[test]
fn el_11_an_answer_after_the_call_has_failed_comes_too_late() {
    let (mut world, mcp, server, questions) = asking();
    for failure in ["error", "broken", "dropped"] {
        let before = world.answers().len();
        let (call, talk) = call(&mut world, &mcp, &server);
        talk.ask(json!(failure), "elicitation/create", form());
        world.settle();
        let id = questions.list()[0].id.clone();
        match failure {
            "error" => talk.say(json!({"jsonrpc": "2.0", "id": talk.seen.body["id"],
                "error": {"code": -32000, "message": "gave up"}})),
            "broken" => talk.say(json!({"jsonrpc": "2.0", "id": 999, "result": {}})),
            _ => {
                world.run(mcp.close_connection("pier")).unwrap();
                world.settle();
            }
        }
        world.settle();
        assert!(call.outcome().unwrap().is_err(), "{failure}");
        assert!(
            matches!(
                questions.answer(&id, named("Ada")),
                Err(Error::QuestionClosed)
            ),
            "{failure}"
        );
        world.settle();
        assert_eq!(world.answers().len(), before, "{failure}");
    }
}

#[test]
fn el_11_a_question_that_the_server_withdraws_gets_no_response() {
    let (mut world, mcp, server, questions) = asking();
    let (call, talk) = call(&mut world, &mcp, &server);
    talk.ask(json!("q"), "elicitation/create", form());
    talk.ask(json!(1), "elicitation/create", form());
    world.settle();
    assert_eq!(questions.list().len(), 2);
    let id = questions.list()[0].id.clone();
    talk.notify("notifications/cancelled", json!({"requestId": "q"}));
    // Of another type than the question's, so another request.
    talk.notify("notifications/cancelled", json!({"requestId": "1"}));
    world.settle();
    assert_eq!(questions.list().len(), 1);
    assert!(matches!(
        questions.answer(&id, named("Ada")),
        Err(Error::QuestionClosed)
    ));
    questions
        .answer(&questions.list()[0].id, named("Bob"))
        .unwrap();
    talk.answer(json!({"content": []}));
    world.settle();
    call.outcome().unwrap().unwrap();
    let answers = world.answers();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(answers[0]["id"], json!(1));
}

#[test]
fn el_13_two_servers_ask_at_once() {
    let mut world = World::new();
    let mcp = world.manager();
    let questions = OpenQuestions::new();
    mcp.configure_elicitation_handlers(questions.handlers());
    let servers = ["a", "b"].map(|id| {
        let server = Talker::legacy(json!({"tools": {}}));
        server.live("tools/call");
        server.add(&mut world, &mcp, id);
        (id, server)
    });
    let calls = servers.each_ref().map(|(id, server)| {
        let (calling, id) = (mcp.clone(), (*id).to_owned());
        let call = world.start(async move { calling.call_tool(&id, "echo", json!({})).await });
        let talk = server.talk("tools/call");
        talk.ask(json!(1), "elicitation/create", form());
        (call, talk)
    });
    world.settle();
    let open = questions.list();
    let asked: Vec<(&str, &str)> = open
        .iter()
        .map(|question| {
            (
                question.server_id.as_str(),
                question.request.message.as_str(),
            )
        })
        .collect();
    assert_eq!(asked, [("a", "Who?"), ("b", "Who?")]);
    questions.answer(&open[1].id, named("for b")).unwrap();
    questions.answer(&open[0].id, named("for a")).unwrap();
    world.settle();
    let seen = world.network.seen.borrow();
    for (name, host) in [("for a", "s-1"), ("for b", "s-1")] {
        let answer = seen
            .iter()
            .find(|seen| seen.body["result"]["content"]["name"] == name);
        assert_eq!(answer.unwrap().header("mcp-session-id"), Some(host));
        assert_eq!(answer.unwrap().body["id"], json!(1));
        let expected = format!("https://{}.example/mcp", name.trim_start_matches("for "));
        assert_eq!(answer.unwrap().url, expected);
    }
    drop(seen);
    for (call, talk) in calls {
        talk.answer(json!({"content": []}));
        world.settle();
        call.outcome().unwrap().unwrap();
    }
}

// ---- kinds around the cases

#[test]
fn decline_and_cancel_are_answers() {
    let (mut world, mcp, server, questions) = asking();
    for (answer, expected) in [
        (ElicitResult::Decline, json!({"action": "decline"})),
        (ElicitResult::Cancel, json!({"action": "cancel"})),
    ] {
        let (call, talk) = call(&mut world, &mcp, &server);
        talk.ask(json!(1), "elicitation/create", form());
        world.settle();
        questions.answer(&questions.list()[0].id, answer).unwrap();
        world.settle();
        assert_eq!(world.answers().last().unwrap()["result"], expected);
        talk.answer(json!({"content": []}));
        world.settle();
        call.outcome().unwrap().unwrap();
    }
}

#[test]
fn what_cannot_be_asked_is_refused_with_the_right_code() {
    // Only forms are offered; the handler fails where it is told to.
    let server = Talker::legacy(json!({"tools": {}}));
    server.live("tools/call");
    let mut world = World::new();
    let mcp = world.manager();
    let handlers = ElicitationHandlers::new().form(async |request, _| {
        if request.message == "fail" {
            return Err(Error::InvalidOption("the screen is broken".into()));
        }
        Ok(ElicitResult::accept(
            json!({"name": 5}).as_object().unwrap().clone(),
        ))
    });
    mcp.configure_elicitation_handlers(handlers);
    server.add(&mut world, &mcp, "pier");
    let mut failing = form();
    failing["message"] = json!("fail");
    for (method, params, code, text) in [
        (
            "elicitation/create",
            json!({"mode": "url", "message": "m", "url": "https://a.example/"}),
            -32602,
            "url",
        ),
        (
            "elicitation/create",
            json!({"message": "m"}),
            -32602,
            "requestedSchema",
        ),
        (
            "elicitation/create",
            json!({"requestedSchema": {}}),
            -32602,
            "message",
        ),
        (
            "elicitation/create",
            json!({"message": "m", "requestedSchema": []}),
            -32602,
            "",
        ),
        ("elicitation/create", Value::Null, -32602, ""),
        (
            "elicitation/create",
            failing,
            -32603,
            "the screen is broken",
        ),
        (
            "elicitation/create",
            form(),
            -32603,
            "does not fit the form",
        ),
        (
            "sampling/createMessage",
            json!({"messages": []}),
            -32601,
            "",
        ),
        ("roots/list", Value::Null, -32601, ""),
    ] {
        let (call, talk) = call(&mut world, &mcp, &server);
        talk.ask(json!(1), method, params.clone());
        world.settle();
        let error = world.answers().last().unwrap()["error"].clone();
        assert_eq!(error["code"], code, "{method} {params}: {error}");
        assert!(error["message"].as_str().unwrap().contains(text), "{error}");
        talk.answer(json!({"content": []}));
        world.settle();
        call.outcome().unwrap().unwrap();
    }
}

#[test]
fn sampling_is_answered_refused_or_not_offered() {
    let server = Talker::legacy(json!({"tools": {}}));
    server.live("tools/call");
    let mut world = World::new();
    let mcp = world.manager();
    mcp.configure_sampling(async |request, server| {
        assert_eq!(server.as_str(), "pier");
        match request.get::<u32>("maxTokens") {
            Some(1) => Ok(SamplingResult::Rejected),
            Some(2) => Err(Error::InvalidOption("no model".into())),
            _ => Ok(SamplingResult::Message(
                json!({"role": "assistant", "model": "m",
                "content": {"type": "text", "text": "hi"}, "stopReason": "endTurn"}),
            )),
        }
    });
    server.add(&mut world, &mcp, "pier");
    let declared = world.sent("initialize")[0].body["params"]["capabilities"].clone();
    assert_eq!(declared, json!({"sampling": {}}));
    let messages = json!([{"role": "user", "content": {"type": "text", "text": "hello"}}]);
    for (params, code) in [
        (json!({"messages": messages, "maxTokens": 9}), None),
        (
            json!({"messages": messages, "maxTokens": 9, "tools": null}),
            None,
        ),
        (json!({"messages": messages, "maxTokens": 1}), Some(-1)),
        (json!({"messages": messages, "maxTokens": 2}), Some(-32603)),
        (
            json!({"messages": messages, "maxTokens": 9, "tools": [{"name": "t"}]}),
            Some(-32602),
        ),
        (json!({"maxTokens": 9}), Some(-32602)),
        (Value::Null, Some(-32602)),
    ] {
        let (call, talk) = call(&mut world, &mcp, &server);
        talk.ask(json!("s"), "sampling/createMessage", params.clone());
        world.settle();
        let answer = world.answers().last().unwrap().clone();
        match code {
            None => assert_eq!(answer["result"]["model"], "m", "{params}: {answer}"),
            Some(code) => assert_eq!(answer["error"]["code"], code, "{params}: {answer}"),
        }
        talk.answer(json!({"content": []}));
        world.settle();
        call.outcome().unwrap().unwrap();
    }
}

#[test]
fn roots_are_declared_listed_and_told_when_they_change() {
    let root = |uri: &str| Root {
        uri: uri.into(),
        name: None,
    };
    let server = Talker::legacy(json!({"tools": {}}));
    server.live("tools/call");
    let mut world = World::new();
    let mcp = world.manager();
    assert!(
        mcp.configure_roots(Some(vec![root("https://a.example/")]))
            .is_err()
    );
    mcp.configure_roots(Some(vec![root("file:///home")]))
        .unwrap();
    server.add(&mut world, &mcp, "pier");
    let declared = world.sent("initialize")[0].body["params"]["capabilities"].clone();
    assert_eq!(declared, json!({"roots": {"listChanged": true}}));
    assert_eq!(world.count("notifications/roots/list_changed"), 0);
    mcp.configure_roots(Some(vec![root("file:///tmp"), root("file:///srv")]))
        .unwrap();
    world.settle();
    assert_eq!(world.count("notifications/roots/list_changed"), 1);
    let (call, talk) = call(&mut world, &mcp, &server);
    talk.ask(json!("r"), "roots/list", Value::Null);
    world.settle();
    assert_eq!(
        world.answers()[0]["result"],
        json!({"roots": [{"uri": "file:///tmp"}, {"uri": "file:///srv"}]})
    );
    talk.answer(json!({"content": []}));
    world.settle();
    call.outcome().unwrap().unwrap();
}

#[test]
fn a_page_that_must_be_visited_first_is_waited_for() {
    let (mut world, mcp, server, questions) = asking();
    let completed = Rc::new(Cell::new(0));
    let count = completed.clone();
    mcp.on_observability_event(move |event| {
        if matches!(event, McpEvent::ElicitationCompleted { .. }) {
            count.set(count.get() + 1);
        }
    })
    .detach();
    let visits = Cell::new(0);
    server.on("tools/call", move |seen| {
        visits.set(visits.get() + 1);
        if visits.get() > 1 {
            return result(seen, json!({"content": []}));
        }
        let page = |id: &str| {
            json!({"mode": "url", "elicitationId": id, "message": "Sign in",
            "url": format!("https://a.example/{id}")})
        };
        rpc_error(
            200,
            seen,
            -32042,
            json!({"elicitations": [page("e1"), page("e2")]}),
        )
    });
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
    let open = questions.list();
    assert_eq!(open.len(), 2);
    for question in open {
        questions
            .answer(&question.id, ElicitResult::accept_empty())
            .unwrap();
    }
    world.settle();
    let stream = server.stream_of_its_own();
    let done = |id: &str| {
        stream.notify(
            "notifications/elicitation/complete",
            json!({"elicitationId": id}),
        );
    };
    done("unknown");
    done("e1");
    done("e1");
    world.pass(Duration::from_secs(100), Duration::from_secs(10));
    assert!(call.outcome().is_none(), "one page is still open");
    assert_eq!(world.count("tools/call"), 1);
    done("e2");
    world.settle();
    call.outcome().unwrap().unwrap();
    assert_eq!(world.count("tools/call"), 2);
    assert_eq!(completed.get(), 2);
}

#[test]
fn a_page_that_is_declined_leaves_the_refusal() {
    let (mut world, mcp, server, questions) = asking();
    server.on("tools/call", |seen| {
        rpc_error(
            200,
            seen,
            -32042,
            json!({"elicitations": [{"mode": "url", "elicitationId": "e",
            "message": "m", "url": "https://a.example/"}]}),
        )
    });
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
    questions
        .answer(&questions.list()[0].id, ElicitResult::Decline)
        .unwrap();
    world.settle();
    let outcome = call.outcome().unwrap();
    assert!(
        matches!(&outcome, Err(Error::Rpc(error)) if error.code == -32042),
        "{outcome:?}"
    );
    assert_eq!(world.count("tools/call"), 1);
}

#[test]
fn pages_of_long_ago_do_not_keep_new_ones_from_being_completed() {
    let (mut world, mcp, server, questions) = asking();
    let completed = Rc::new(Cell::new(0));
    let count = completed.clone();
    mcp.on_observability_event(move |_| count.set(count.get() + 1))
        .detach();
    for number in 0..100 {
        let id = format!("e{number}");
        let (call, talk) = call(&mut world, &mcp, &server);
        let params = json!({"mode": "url", "message": "m", "url": "https://a.example/", "elicitationId": id});
        talk.ask(json!(number), "elicitation/create", params);
        world.settle();
        questions
            .answer(&questions.list()[0].id, ElicitResult::accept_empty())
            .unwrap();
        world.settle();
        talk.notify(
            "notifications/elicitation/complete",
            json!({"elicitationId": id}),
        );
        talk.answer(json!({"content": []}));
        world.settle();
        call.outcome().unwrap().unwrap();
    }
    assert_eq!(completed.get(), 100);
}

#[test]
fn a_question_does_not_count_against_a_short_limit_of_the_call() {
    let (mut world, mcp, server, questions) = asking();
    let calling = mcp.clone();
    let call = world.start(async move {
        let options = CallOptions::new()
            .timeout(Duration::from_secs(1))
            .max_time(Duration::from_mins(1));
        calling
            .call_tool_with("pier", "echo", json!({}), &options)
            .await
    });
    let talk = server.talk("tools/call");
    talk.ask(json!(1), "elicitation/create", form());
    world.settle();
    world.pass(Duration::from_secs(30), Duration::from_millis(500));
    assert!(call.outcome().is_none());
    questions
        .answer(&questions.list()[0].id, named("Ada"))
        .unwrap();
    world.settle();
    world.pass(Duration::from_millis(1_500), Duration::from_millis(500));
    assert!(matches!(call.outcome(), Some(Err(Error::Timeout { .. }))));
    drop(talk);
}
