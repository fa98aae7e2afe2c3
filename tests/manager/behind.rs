//! Servers that are objects behind a binding.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use workers_agents::ports::{ObjectError, ServerRow};
use workers_agents::protocol::CallToolResult;
use workers_agents::transport::TransportError;
use workers_agents::{
    CallOptions, ConnectionState, ElicitMode, ElicitRequest, ElicitResult, ElicitationHandlers,
    Error, McpClientManager, ReconnectPolicy, RegisterServer, Revision, SamplingRequest,
    SamplingResult, ServerFilter, ServerId, TransportKind, UrlPolicy,
};

use crate::support::objects::{Back, Fleet, Returned, Worker, response, text};
use crate::support::{Started, World, names, state};

const OPTIONS: &str = r#"{"bindingName":"COUNTER","props":{"user":"ada"},"capabilities":{}}"#;

fn world(behaviour: impl Fn(&Value) -> Option<Back> + 'static) -> (World, Rc<Fleet>) {
    let fleet: Rc<Fleet> = Rc::default();
    fleet.serve("COUNTER", behaviour);
    let mut world = World::new();
    world.objects = Some(Rc::new(Worker(fleet.clone())));
    (world, fleet)
}

fn counter() -> RegisterServer {
    RegisterServer::rpc("Counter", "COUNTER")
}

fn add(
    world: &mut World,
    mcp: &McpClientManager,
    server: RegisterServer,
) -> Result<ConnectionState, Error> {
    world.run(mcp.register_server("pier", server)).unwrap();
    world.run(async {
        mcp.connect_to_server("pier").await?;
        mcp.discover_if_connected("pier", None).await
    })
}

fn call(
    world: &mut World,
    mcp: &McpClientManager,
    name: &'static str,
) -> Started<Result<CallToolResult, Error>> {
    let mcp = mcp.clone();
    world.start(async move { mcp.call_tool("pier", name, json!({})).await })
}

/// Answers with the question, when the test lets it: one entry for each question.
fn asking(mcp: &McpClientManager) -> Rc<RefCell<Vec<String>>> {
    let asked: Rc<RefCell<Vec<String>>> = Rc::default();
    let heard = asked.clone();
    mcp.configure_elicitation_handlers(ElicitationHandlers::new().form(
        async move |request: ElicitRequest, _: ServerId| {
            heard.borrow_mut().push(request.message.clone());
            let name = ("name".to_owned(), Value::from(request.message));
            Ok(ElicitResult::accept(Map::from_iter([name])))
        },
    ));
    asked
}

fn question(id: &str, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {
        "message": message,
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    }})
}

fn object_error(error: &Error) -> &ObjectError {
    match error {
        Error::Transport(TransportError::Object(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// A behaviour whose calls of tools are queued for the test to answer.
type Calls = Rc<RefCell<Vec<(Value, futures::channel::oneshot::Sender<Returned>)>>>;

fn queued() -> (World, Rc<Fleet>, Calls) {
    let calls = Calls::default();
    let queue = calls.clone();
    let (world, fleet) = world(move |message| {
        let is_answer = message["method"].is_null();
        if message["method"] != "tools/call" && !is_answer {
            return None;
        }
        let (sender, back) = Back::later();
        queue.borrow_mut().push((message.clone(), sender));
        Some(back)
    });
    (world, fleet, calls)
}

fn next(calls: &Calls) -> (Value, futures::channel::oneshot::Sender<Returned>) {
    calls.borrow_mut().remove(0)
}

fn send(sender: futures::channel::oneshot::Sender<Returned>, value: Value) {
    sender.send(Ok(Some(value.to_string()))).unwrap();
}

#[test]
fn a_server_behind_a_binding_is_probed_once_listed_and_called() {
    let (mut world, fleet) = world(|_| None);
    let mcp = world.manager();
    let server = counter().props(&json!({"user": "ada"}));
    assert_eq!(
        add(&mut world, &mcp, server).unwrap(),
        ConnectionState::Ready
    );
    let [address] = &fleet.connected.borrow()[..] else {
        panic!("connected more than once");
    };
    assert_eq!(
        (&*address.binding, &*address.name),
        ("COUNTER", "rpc:counter")
    );
    assert_eq!(address.props.as_deref(), Some(r#"{"user":"ada"}"#));
    let handshake = [
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/list",
    ];
    assert_eq!(fleet.methods(), handshake);
    let info = mcp.connection("pier").unwrap();
    assert_eq!(info.transport, Some(TransportKind::Rpc));
    assert_eq!(info.revision, Some(Revision::V2025_11_25));
    assert!(!info.listening);
    assert_eq!(names(&mcp), ["ask", "echo"]);
    let result = world.run(mcp.call_tool("pier", "echo", json!({"a": 1})));
    assert_eq!(result.unwrap().text(), r#""echo""#);
    assert!(world.network.seen.borrow().is_empty(), "HTTP was used");
    // Nothing but what the package knows, and what is known of the server.
    let row = world.table.rows.borrow()[0].clone();
    assert_eq!((&*row.server_url, &*row.callback_url), ("rpc:counter", ""));
    let options: Value = serde_json::from_str(&row.server_options.unwrap()).unwrap();
    let members: Vec<&String> = options.as_object().unwrap().keys().collect();
    assert_eq!(
        members,
        ["bindingName", "initializeResult", "props", "verdict"]
    );
}

#[test]
fn a_server_that_can_do_more_is_spoken_to_in_the_modern_era() {
    let (mut world, fleet) = world(|message| match message["method"].as_str() {
        Some("server/discover") => Some(Back::result(
            message,
            json!({
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "modern", "version": "1"},
            }),
        )),
        Some("tools/call") => Some(Back::result(
            message,
            json!({
                "resultType": "complete", "content": [{"type": "text", "text": "new"}],
            }),
        )),
        Some("tools/list") => Some(Back::result(
            message,
            json!({
                "resultType": "complete", "tools": [{"name": "echo", "inputSchema": {"type": "object"}}],
            }),
        )),
        _ => None,
    });
    let mcp = world.manager();
    add(&mut world, &mcp, counter()).unwrap();
    let info = mcp.connection("pier").unwrap();
    assert_eq!(info.revision, Some(Revision::V2026_07_28));
    assert_eq!(info.transport, Some(TransportKind::Rpc));
    let result = world.run(mcp.call_tool("pier", "echo", json!({})));
    assert_eq!(result.unwrap().text(), "new");
    assert!(!fleet.methods().contains(&"subscriptions/listen".to_owned()));
    // After a wake it is asked again: there is no session to take up.
    let mcp = world.wake();
    world.settle();
    assert_eq!(state(&mcp), ConnectionState::Ready);
    assert_eq!(fleet.connected.borrow().len(), 2);
}

#[test]
fn the_object_is_one_of_its_own_where_that_is_wanted_also_after_a_wake() {
    let (mut world, fleet) = world(|_| None);
    let mcp = world.manager();
    add(&mut world, &mcp, counter().isolated()).unwrap();
    world.wake();
    world.settle();
    let connected = fleet.connected.borrow();
    assert_eq!(connected.len(), 2);
    for address in connected.iter() {
        assert_eq!(address.name, "rpc:counter:Caller:00ff");
    }
    assert_eq!(world.table.rows.borrow()[0].server_url, "rpc:counter");
}

#[test]
fn several_messages_are_delivered_in_order_with_progress_and_changed_lists() {
    let (mut world, fleet) = world(|message| {
        let params = &message["params"];
        (message["method"] == "tools/call").then(|| {
            let progress = |n: u32| {
                json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": params["_meta"]["progressToken"], "progress": n}})
            };
            Back::json(json!([
                progress(1),
                {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
                progress(2),
                response(message, text("done")),
            ]))
        })
    });
    let mcp = world.manager();
    add(&mut world, &mcp, counter()).unwrap();
    let heard: Rc<RefCell<Vec<f64>>> = Rc::default();
    let listener = heard.clone();
    let options = CallOptions::new()
        .on_progress(move |progress| listener.borrow_mut().push(progress.progress));
    let result = world.run(mcp.call_tool_with("pier", "echo", json!({}), &options));
    assert_eq!(result.unwrap().text(), "done");
    assert_eq!(*heard.borrow(), [1.0, 2.0]);
    world.pass(Duration::from_secs(2), Duration::from_millis(100));
    assert_eq!(
        fleet.all("tools/list").len(),
        2,
        "the list was not loaded again"
    );
}

#[test]
fn a_question_is_the_result_and_its_answer_goes_on() {
    let (mut world, fleet) = world(|message| match message["method"].as_str() {
        Some("tools/call") => Some(Back::json(question("elicit_1", "first"))),
        None if message["id"] == "elicit_1" => Some(Back::json(question("elicit_2", "second"))),
        None => Some(Back::json(json!({
            "jsonrpc": "2.0", "id": 0, "result": text("nobody asked for this"),
        }))),
        _ => None,
    });
    let mcp = world.manager();
    let asked = asking(&mcp);
    add(&mut world, &mcp, counter()).unwrap();
    let outcome = call(&mut world, &mcp, "ask");
    // The last answer brought a response that is not ours, and nothing else is under way.
    let error = outcome.outcome().unwrap().unwrap_err();
    assert!(
        matches!(error, Error::Transport(TransportError::Ended)),
        "{error}"
    );
    assert_eq!(*asked.borrow(), ["first", "second"]);
    let answers = fleet.answers();
    assert_eq!(answers.len(), 2);
    let [first, second] = [&answers[0], &answers[1]];
    assert_eq!(
        first["result"],
        json!({"action": "accept", "content": {"name": "first"}})
    );
    assert_eq!(
        (&second["id"], &second["result"]["action"]),
        (&json!("elicit_2"), &json!("accept"))
    );
}

#[test]
fn responses_find_their_requests_whichever_answer_they_come_with() {
    let (mut world, _, calls) = queued();
    let mcp = world.manager();
    asking(&mcp);
    add(&mut world, &mcp, counter()).unwrap();
    let [one, two] = [call(&mut world, &mcp, "ask"), call(&mut world, &mcp, "ask")];
    let (first, back) = next(&calls);
    send(back, question("elicit_1", "one"));
    let (second, back) = next(&calls);
    send(back, question("elicit_2", "two"));
    world.settle();
    // Both answers are under way; the real class hands out what comes in their order.
    let (answer, back_of_one) = next(&calls);
    assert_eq!(answer["id"], "elicit_1");
    let (answer, back_of_two) = next(&calls);
    assert_eq!(answer["id"], "elicit_2");
    send(back_of_one, response(&second, text("for two")));
    world.settle();
    assert_eq!(two.outcome().unwrap().unwrap().text(), "for two");
    assert!(one.outcome().is_none(), "the first one ended too early");
    send(back_of_two, response(&first, text("for one")));
    world.settle();
    assert_eq!(one.outcome().unwrap().unwrap().text(), "for one");
}

#[test]
fn calls_overlap_and_one_that_is_given_up_stops_waiting() {
    let (mut world, fleet, calls) = queued();
    let mcp = world.manager();
    add(&mut world, &mcp, counter()).unwrap();
    let slow = call(&mut world, &mcp, "echo");
    let quick = call(&mut world, &mcp, "echo");
    let (of_slow, back_of_slow) = next(&calls);
    let (of_quick, back) = next(&calls);
    assert_ne!(of_slow["id"], of_quick["id"]);
    send(back, response(&of_quick, text("quick")));
    world.settle();
    assert_eq!(quick.outcome().unwrap().unwrap().text(), "quick");
    assert!(slow.outcome().is_none());
    world.pass(Duration::from_secs(61), Duration::from_secs(1));
    assert!(matches!(slow.outcome(), Some(Err(Error::Timeout { .. }))));
    let [cancelled] = &fleet.all("notifications/cancelled")[..] else {
        panic!("the server was not told");
    };
    assert_eq!(cancelled["params"]["requestId"], of_slow["id"]);
    assert!(back_of_slow.is_canceled(), "its result is still waited for");
    assert_eq!(state(&mcp), ConnectionState::Ready);
}

#[test]
fn a_call_that_is_given_up_while_the_user_thinks_leaves_others_alone() {
    let (mut world, _, calls) = queued();
    let mcp = world.manager();
    asking(&mcp);
    add(&mut world, &mcp, counter()).unwrap();
    let other = call(&mut world, &mcp, "ask");
    let (of_other, back) = next(&calls);
    send(back, question("elicit_1", "other"));
    world.settle();
    let (_, back_of_other) = next(&calls);
    let given_up = {
        let mcp = mcp.clone();
        let options = CallOptions::new().max_time(Duration::from_secs(5));
        world.start(async move { mcp.call_tool_with("pier", "ask", json!({}), &options).await })
    };
    let (_, back) = next(&calls);
    send(back, question("elicit_2", "given up"));
    world.settle();
    let (_, back_of_given_up) = next(&calls);
    world.advance(Duration::from_secs(6));
    assert!(given_up.outcome().unwrap().is_err());
    // What its answer brings is the other one's response.
    send(back_of_given_up, response(&of_other, text("still")));
    world.settle();
    assert_eq!(other.outcome().unwrap().unwrap().text(), "still");
    drop(back_of_other);
}

/// As the real class has it: what comes after the answer to a question of a tool is the result of
/// whichever call has the id of the request.
#[test]
fn what_a_tool_asks_through_the_sdk_is_answered_and_the_response_collected() {
    let (mut world, _, calls) = queued();
    let mcp = world.manager();
    mcp.configure_sampling(async |_: SamplingRequest, _: ServerId| {
        Ok(SamplingResult::Message(json!({"role": "assistant"})))
    });
    add(&mut world, &mcp, counter()).unwrap();
    let outcome = call(&mut world, &mcp, "ask");
    let (request, mut back) = next(&calls);
    let mut answers = Vec::new();
    for (id, method) in [(0, "sampling/createMessage"), (1, "roots/list")] {
        let params = json!({"messages": []});
        let question = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        send(back, question);
        world.settle();
        // The call that collects is there before the answer, or it would be too late.
        let (collects, collected) = next(&calls);
        assert_eq!(
            (&collects["id"], &collects["result"]),
            (&request["id"], &json!({}))
        );
        let (answer, of_answer) = next(&calls);
        assert_eq!(answer["id"], id);
        answers.push((answer, of_answer));
        back = collected;
    }
    send(back, response(&request, text("done")));
    world.settle();
    assert_eq!(outcome.outcome().unwrap().unwrap().text(), "done");
    assert_eq!(answers[0].0["result"]["role"], "assistant");
    assert_eq!(
        answers[1].0["error"]["code"], -32601,
        "roots are not offered"
    );
    // They would have lasted until the server gives them up.
    assert!(answers.iter().all(|(_, answer)| answer.is_canceled()));
    assert!(call(&mut world, &mcp, "echo").outcome().is_none());
}

#[test]
fn a_server_that_goes_on_by_the_answer_may_refuse_what_goes_ahead() {
    let (mut world, _, calls) = queued();
    let mcp = world.manager();
    add(&mut world, &mcp, counter()).unwrap();
    let outcome = call(&mut world, &mcp, "ask");
    let (request, back) = next(&calls);
    let question = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
    send(back, question);
    world.settle();
    let refused = ObjectError::Threw("unknown response".into());
    next(&calls).1.send(Err(refused)).unwrap();
    world.settle();
    assert!(outcome.outcome().is_none());
    send(next(&calls).1, response(&request, text("went on")));
    world.settle();
    assert_eq!(outcome.outcome().unwrap().unwrap().text(), "went on");
}

#[test]
fn an_object_that_may_have_been_evicted_is_told_again_what_it_may_ask() {
    for (offers, greeted) in [(true, 2), (false, 1)] {
        let (mut world, fleet) = world(|_| None);
        let mcp = world.manager();
        if offers {
            asking(&mcp);
        }
        add(&mut world, &mcp, counter()).unwrap();
        for (pause, greeted) in [(9, 1), (11, greeted)] {
            world.advance(Duration::from_secs(pause));
            world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
            let all = fleet.all("initialize");
            assert_eq!(all.len(), greeted, "{offers} {pause}");
            let declared = &all[all.len() - 1]["params"]["capabilities"]["elicitation"];
            assert_eq!(declared.is_object(), offers);
        }
        assert_eq!(fleet.all("tools/call").len(), 2);
        assert_eq!(fleet.all("server/discover").len(), 1);
    }
}

#[test]
fn pages_of_a_server_without_a_url_are_judged_by_the_policy() {
    let (mut world, fleet) = world(|message| match message["method"].as_str() {
        Some("tools/call") => Some(Back::json(json!({
            "jsonrpc": "2.0", "id": "elicit_1", "method": "elicitation/create", "params": {
                "mode": "url", "message": "sign in", "elicitationId": "e",
                "url": format!("https://{}/", message["params"]["arguments"]["host"].as_str().unwrap()),
            },
        }))),
        None => Some(Back::json(
            json!({"jsonrpc": "2.0", "id": -1, "result": {}}),
        )),
        _ => None,
    });
    world.options.url_policy = UrlPolicy::default().deny_host("evil.example").unwrap();
    let mcp = world.manager();
    mcp.configure_elicitation_handlers(ElicitationHandlers::new().url(
        async |request: ElicitRequest, _: ServerId| {
            assert!(matches!(request.mode, ElicitMode::Url { .. }));
            Ok(ElicitResult::Decline)
        },
    ));
    add(&mut world, &mcp, counter()).unwrap();
    for (host, answer) in [("good.example", "decline"), ("evil.example", "")] {
        let mcp = mcp.clone();
        world.start(async move { mcp.call_tool("pier", "ask", json!({"host": host})).await });
        let given = fleet.answers().pop().unwrap();
        assert_eq!(
            given["result"]["action"].as_str().unwrap_or_default(),
            answer,
            "{given}"
        );
    }
}

#[test]
fn what_the_object_throws_is_the_error_of_that_call_alone() {
    let (mut world, _) = world(|message| {
        let name = message["params"]["name"].as_str()?;
        let back = match name {
            "throws" => Back::Now(Err(ObjectError::Threw("no such luck".into()))),
            "large" => Back::Now(Ok(Some("x".repeat(11 << 20)))),
            "odd" => Back::Now(Ok(Some("[{".into()))),
            "empty" => Back::nothing(),
            "only-notifications" => Back::json(json!([
                {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}},
            ])),
            "refused" => Back::json(json!({"jsonrpc": "2.0", "id": null,
                "error": {"code": -32600, "message": "Invalid Request"}})),
            _ => return None,
        };
        Some(back)
    });
    let mcp = world.manager();
    add(&mut world, &mcp, counter()).unwrap();
    let mut fail = |name: &'static str| {
        let outcome = call(&mut world, &mcp, name).outcome();
        let error = outcome.unwrap().unwrap_err();
        assert_eq!(state(&mcp), ConnectionState::Ready, "{name}");
        error
    };
    let error = fail("throws");
    assert_eq!(error.to_string(), "the object failed: no such luck");
    assert_eq!(error.code(), "transport");
    assert_eq!(
        object_error(&fail("large")),
        &ObjectError::TooLarge(10 << 20)
    );
    assert!(matches!(
        object_error(&fail("odd")),
        ObjectError::NotJson(_)
    ));
    for name in ["empty", "only-notifications"] {
        assert!(matches!(
            fail(name),
            Error::Transport(TransportError::Ended)
        ));
    }
    assert!(matches!(fail("refused"), Error::Rpc(error) if error.code == -32600));
    assert!(world.run(mcp.call_tool("pier", "echo", json!({}))).is_ok());
}

#[test]
fn an_object_that_goes_down_is_started_and_greeted_again() {
    let gone = Rc::new(RefCell::new(1));
    let left = gone.clone();
    let (mut world, fleet) = world(move |message| {
        let goes_down = message["method"] == "tools/call" && *left.borrow() > 0;
        goes_down.then(|| {
            *left.borrow_mut() -= 1;
            Back::Now(Err(ObjectError::Unreachable {
                text: "Network connection lost.".into(),
                is_retryable: true,
            }))
        })
    });
    let mcp = world.manager();
    add(&mut world, &mcp, counter()).unwrap();
    // The tool may have run, so the call is not made again.
    let error = world
        .run(mcp.call_tool("pier", "echo", json!({})))
        .unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(fleet.all("tools/call").len(), 1);
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    assert_eq!(fleet.connected.borrow().len(), 2);
    assert_eq!(fleet.all("initialize").len(), 2);
}

#[test]
fn starting_is_tried_again_where_the_platform_says_that_it_may_help() {
    let fault = |is_retryable| ObjectError::Unreachable {
        text: "gone".into(),
        is_retryable,
    };
    for (faults, attempts, works) in [
        (vec![fault(true), fault(true)], 3, true),
        (vec![fault(true), fault(true), fault(true)], 3, false),
        (vec![fault(false)], 1, false),
        (vec![ObjectError::Overloaded("busy".into())], 1, false),
        (vec![ObjectError::Threw("in onStart".into())], 1, false),
    ] {
        let (mut world, fleet) = world(|_| None);
        let mcp = world.manager();
        world.run(mcp.register_server("pier", counter())).unwrap();
        fleet.faults.borrow_mut().extend(faults);
        let connecting = {
            let mcp = mcp.clone();
            world.start(async move { mcp.connect_to_server("pier").await })
        };
        world.pass(Duration::from_secs(1), Duration::from_millis(50));
        let outcome = connecting.outcome().unwrap();
        assert_eq!(
            (outcome.is_ok(), fleet.connected.borrow().len()),
            (works, attempts)
        );
        assert_eq!(world.table.rows.borrow().len(), 1);
    }
}

fn stored(id: &str, options: &str) -> ServerRow {
    ServerRow {
        id: id.into(),
        name: "Counter".into(),
        server_url: "rpc:counter".into(),
        callback_url: String::new(),
        client_id: None,
        auth_url: None,
        server_options: Some(options.into()),
    }
}

#[test]
fn a_row_of_the_package_comes_back_after_a_wake() {
    let (mut world, fleet) = world(|_| None);
    world.table.rows.borrow_mut().push(stored("pier", OPTIONS));
    let mcp = world.wake();
    world.settle();
    assert_eq!(state(&mcp), ConnectionState::Ready);
    let address = fleet.connected.borrow()[0].clone();
    assert_eq!(address.props.as_deref(), Some(r#"{"user":"ada"}"#));
    assert_eq!(names(&mcp), ["ask", "echo"]);
    // The next wake knows its lists before it is connected, and that it is of the legacy era.
    fleet.seen.borrow_mut().clear();
    let mcp = world.wake();
    assert_eq!(names(&mcp), ["ask", "echo"]);
    world.settle();
    assert_eq!(state(&mcp), ConnectionState::Ready);
    assert_eq!(fleet.methods()[0], "initialize");
    assert!(mcp.list_tools(&ServerFilter::all()).len() == 2);
}

#[test]
fn a_missing_binding_is_the_trouble_of_that_server_alone() {
    let (mut world, fleet) = world(|_| None);
    let rows = [
        stored("pier", r#"{"bindingName":"GONE"}"#),
        stored("nameless", "{}"),
        stored("works", OPTIONS),
    ];
    world.table.rows.borrow_mut().extend(rows.clone());
    let mcp = world.wake();
    world.settle();
    let of = |id: &str| mcp.connection(id).unwrap();
    let text = |id: &str| of(id).error.map(|error| error.to_string());
    assert_eq!(of("pier").state, ConnectionState::Failed);
    assert_eq!(
        text("pier").as_deref(),
        Some("binding \"GONE\" not found in env")
    );
    assert_eq!(
        text("nameless").as_deref(),
        Some("binding \"\" not found in env")
    );
    assert_eq!(of("works").state, ConnectionState::Ready);
    for before in &rows[..2] {
        let kept = world.table.rows.borrow();
        assert!(kept.contains(before), "the row was changed");
    }
    assert!(world.jobs.jobs.borrow().is_empty(), "it is tried again");
    // With the next deployment it is there.
    fleet.serve("GONE", |_| None);
    let mcp = world.wake();
    world.settle();
    assert_eq!(state(&mcp), ConnectionState::Ready);
}

#[test]
fn without_an_environment_nothing_is_connected() {
    let (mut world, _) = world(|_| None);
    world.objects = None;
    world.table.rows.borrow_mut().push(stored("pier", OPTIONS));
    let mcp = world.wake();
    world.settle();
    let error = mcp.connection("pier").unwrap().error.unwrap();
    assert_eq!(error.to_string(), "no env was provided");
    assert_eq!(world.table.rows.borrow().len(), 1);
}

#[test]
fn a_server_that_fails_to_start_is_tried_again_later() {
    let (mut world, fleet) = world(|_| None);
    world.table.rows.borrow_mut().push(stored("pier", OPTIONS));
    let down = || ObjectError::Threw("not today".into());
    fleet.faults.borrow_mut().extend([down(), down(), down()]);
    let mcp = world.wake();
    world.pass(Duration::from_secs(20), Duration::from_secs(1));
    assert_eq!(state(&mcp), ConnectionState::Reconnecting);
    let mcp = world.wake_by_alarm();
    world.settle();
    assert_eq!(state(&mcp), ConnectionState::Ready);
}

#[test]
fn a_lazy_one_is_started_by_its_first_call_and_one_that_never_comes_back_is_not() {
    for (policy, expected) in [(ReconnectPolicy::Lazy, 1), (ReconnectPolicy::Never, 0)] {
        let (mut world, fleet) = world(|_| None);
        let mcp = world.manager();
        add(&mut world, &mcp, counter().reconnect(policy)).unwrap();
        fleet.connected.borrow_mut().clear();
        let mcp = world.wake();
        world.settle();
        assert_eq!(names(&mcp), ["ask", "echo"], "lists come from storage");
        assert!(fleet.connected.borrow().is_empty(), "{policy:?}");
        let outcome = world.run(mcp.call_tool("pier", "echo", json!({})));
        assert_eq!(outcome.is_ok(), expected == 1, "{policy:?}");
        assert_eq!(fleet.connected.borrow().len(), expected, "{policy:?}");
    }
}

#[test]
fn the_policy_for_urls_does_not_apply_and_opens_no_binding_either() {
    let (mut world, _) = world(|_| None);
    world.options.url_policy = UrlPolicy::default().only_hosts(["only.example"]).unwrap();
    let mcp = world.manager();
    add(&mut world, &mcp, counter()).unwrap();
    for url in ["rpc:counter", "rpc://counter", "RPC:counter"] {
        let server = RegisterServer::new("Counter", url);
        let refused = world.run(mcp.register_server("other", server));
        assert!(matches!(refused, Err(Error::BlockedUrl(_))), "{url}");
    }
}

#[test]
fn other_props_and_another_binding_are_another_server() {
    let (mut world, fleet) = world(|_| None);
    fleet.serve("OTHER", |_| None);
    let mcp = world.manager();
    add(&mut world, &mcp, counter()).unwrap();
    for (server, connects) in [
        (counter(), 0),
        (counter().props(&1), 1),
        (counter().props(&1), 0),
        (RegisterServer::rpc("Counter", "OTHER").props(&1), 1),
        (
            RegisterServer::rpc("Counter", "OTHER").props(&1).isolated(),
            1,
        ),
    ] {
        fleet.connected.borrow_mut().clear();
        world.run(mcp.register_server("pier", server)).unwrap();
        if state(&mcp) != ConnectionState::Ready {
            world.run(mcp.connect_to_server("pier")).unwrap();
            world.run(mcp.discover_if_connected("pier", None)).unwrap();
        }
        assert_eq!(fleet.connected.borrow().len(), connects);
    }
    let again = world.run(mcp.registration("pier")).unwrap();
    world.run(mcp.register_server("pier", again)).unwrap();
    assert_eq!(
        state(&mcp),
        ConnectionState::Ready,
        "said again with changes"
    );
}
