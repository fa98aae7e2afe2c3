//! What servers say unasked: changed lists and resources, log messages; and the streams for it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use workers_agents::{
    CallOptions, CompletionTarget, ConnectionState as S, Error, ListKind, LogLevel,
    McpClientManager, McpEvent, ServerFilter, StreamPolicy,
};

use crate::support::mcp_server::{result, rpc_error, tool};
use crate::support::talker::{Talk, Talker};
use crate::support::{Reply, World, names, state};

const SECOND: Duration = Duration::from_secs(1);
const DEBOUNCE: Duration = Duration::from_millis(300);

fn changing() -> Value {
    json!({"tools": {"listChanged": true}, "prompts": {"listChanged": true},
        "resources": {"listChanged": true, "subscribe": true}})
}

fn both() -> [Rc<Talker>; 2] {
    [Talker::legacy(changing()), Talker::modern(changing())]
}

/// Counts state changes and keeps the kinds of lists that changed.
fn watch(mcp: &McpClientManager) -> (Rc<Cell<u32>>, Rc<RefCell<Vec<ListKind>>>) {
    let told: Rc<Cell<u32>> = Rc::default();
    let kinds: Rc<RefCell<Vec<ListKind>>> = Rc::default();
    let (count, list) = (told.clone(), kinds.clone());
    mcp.on_server_state_changed(move || count.set(count.get() + 1))
        .detach();
    mcp.on_observability_event(move |event| {
        if let McpEvent::ListChanged { kind, .. } = event {
            list.borrow_mut().push(*kind);
        }
    })
    .detach();
    (told, kinds)
}

fn grow(server: &Talker) {
    server.set("tools/list", json!({"tools": [tool("echo"), tool("new")]}));
    server.set(
        "prompts/list",
        json!({"prompts": [{"name": "greet"}, {"name": "new"}]}),
    );
    server.set(
        "resources/list",
        json!({"resources": [{"uri": "new://1", "name": "new"}]}),
    );
}

#[test]
fn lists_are_loaded_again_when_a_server_says_that_they_changed() {
    for (kind, method, expected) in [
        ("tools", "tools/list", ListKind::Tools),
        ("prompts", "prompts/list", ListKind::Prompts),
        ("resources", "resources/list", ListKind::Resources),
    ] {
        for server in both() {
            let (mut world, mcp) = server.world();
            let (told, kinds) = watch(&mcp);
            grow(&server);
            world.network.forget();
            let notice = format!("notifications/{kind}/list_changed");
            server.stream_of_its_own().notify(&notice, json!({}));
            world.settle();
            assert_eq!(world.count(method), 0, "it waits for others to join");
            world.advance(DEBOUNCE);
            assert_eq!(world.count(method), 1, "{method}");
            assert_eq!(told.get(), 1, "{method}");
            assert_eq!(*kinds.borrow(), [expected]);
            assert_eq!(state(&mcp), S::Ready);
            let all = ServerFilter::all();
            let counts = (
                names(&mcp).contains(&"new".to_owned()),
                mcp.list_prompts(&all).len(),
                mcp.list_resources(&all)[0].item.uri().to_owned(),
            );
            let grown = |one: ListKind| one == expected;
            assert_eq!(counts.0, grown(ListKind::Tools), "{counts:?}");
            assert_eq!(counts.1 == 2, grown(ListKind::Prompts), "{counts:?}");
            assert_eq!(
                counts.2 == "new://1",
                grown(ListKind::Resources),
                "{counts:?}"
            );
        }
    }
}

#[test]
fn a_notice_on_the_stream_of_a_call_counts_as_well() {
    for server in both() {
        server.has_stream.set(false);
        server.live("tools/call");
        let (mut world, mcp) = server.world();
        grow(&server);
        let calling = mcp.clone();
        let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
        let talk = server.talk("tools/call");
        talk.notify("notifications/tools/list_changed", Value::Null);
        talk.answer(json!({"content": []}));
        world.settle();
        call.outcome().unwrap().unwrap();
        world.advance(DEBOUNCE);
        assert_eq!(names(&mcp), ["echo", "new"]);
    }
}

#[test]
fn five_notices_are_one_load_and_one_change() {
    for server in both() {
        let (mut world, mcp) = server.world();
        let (told, _) = watch(&mcp);
        grow(&server);
        world.network.forget();
        for _ in 0..5 {
            server
                .stream_of_its_own()
                .notify("notifications/tools/list_changed", json!({}));
            world.advance(Duration::from_millis(50));
        }
        world.advance(DEBOUNCE);
        assert_eq!((world.count("tools/list"), told.get()), (1, 1));
        assert_eq!(world.count("prompts/list"), 0);
        assert_eq!(names(&mcp), ["echo", "new"]);
    }
}

#[test]
fn a_load_that_fails_for_a_while_is_tried_again_and_not_for_ever() {
    for server in both() {
        let (mut world, mcp) = server.world();
        server.on("tools/list", |_| Reply::status(503));
        world.network.forget();
        let notice = "notifications/tools/list_changed";
        server.stream_of_its_own().notify(notice, json!({}));
        world.settle();
        world.advance(DEBOUNCE);
        assert_eq!(world.count("tools/list"), 1);
        grow(&server);
        world.advance(2 * DEBOUNCE);
        assert_eq!(names(&mcp), ["echo", "new"]);

        server.on("tools/list", |_| Reply::status(503));
        world.network.forget();
        world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
        server.stream_of_its_own().notify(notice, json!({}));
        for _ in 0..40 {
            world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
            world.pass(5 * SECOND, SECOND);
        }
        assert_eq!(world.count("tools/list"), 4, "once, and three times more");
    }
}

#[test]
fn a_load_that_fails_keeps_the_old_list() {
    for server in both() {
        let (mut world, mcp) = server.world();
        server.on("tools/list", |_| Reply::status(500));
        server
            .stream_of_its_own()
            .notify("notifications/tools/list_changed", json!({}));
        world.settle();
        world.advance(DEBOUNCE);
        assert_eq!(names(&mcp), ["echo", "add"]);
        assert_eq!(state(&mcp), S::Ready);
        assert!(mcp.connection("pier").unwrap().last_error.is_some());
        grow(&server);
        server
            .stream_of_its_own()
            .notify("notifications/tools/list_changed", json!({}));
        world.settle();
        world.advance(SECOND);
        assert_eq!(names(&mcp), ["echo", "new"]);
    }
}

#[test]
fn a_stream_is_let_go_when_nobody_uses_the_server_and_opened_again_at_the_next_use() {
    for server in both() {
        let (mut world, mcp) = server.world();
        assert_eq!(server.standing().len(), 1);
        assert!(mcp.connection("pier").unwrap().listening);
        world.pass(9 * SECOND, SECOND);
        assert_eq!(server.standing().len(), 1);
        world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
        world.pass(9 * SECOND, SECOND);
        assert_eq!(server.standing().len(), 1, "the use has prolonged it");
        world.pass(3 * SECOND, SECOND);
        assert_eq!(server.standing().len(), 0);
        assert!(!mcp.connection("pier").unwrap().listening);
        let opened = server.streams.borrow().len();
        world.pass(600 * SECOND, 10 * SECOND);
        assert_eq!(
            server.streams.borrow().len(),
            opened,
            "nobody opens it again"
        );
        assert!(world.clock.is_quiet(), "nothing keeps the object awake");
        world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
        world.settle();
        assert_eq!(server.standing().len(), 1);
        assert_eq!(state(&mcp), S::Ready);
    }
}

#[test]
fn a_server_with_nothing_to_say_gets_no_stream() {
    for server in [
        Talker::legacy(json!({"tools": {}})),
        Talker::modern(json!({"tools": {}})),
    ] {
        let (mut world, mcp) = server.world();
        world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
        world.settle();
        assert!(server.streams.borrow().is_empty());
    }
}

#[test]
fn policies_say_when_streams_are_open() {
    for server in both() {
        let mut world = World::new();
        world.options = world.options.streams(StreamPolicy::Never);
        let mcp = server.join(&mut world);
        world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
        world.settle();
        assert!(server.streams.borrow().is_empty());
    }
    for server in both() {
        let mut world = World::new();
        world.options = world.options.streams(StreamPolicy::Always);
        let _mcp = server.join(&mut world);
        world.pass(7_200 * SECOND, 60 * SECOND);
        assert_eq!(server.standing().len(), 1);
    }
}

#[test]
fn a_server_without_a_stream_is_asked_once() {
    for server in both() {
        for status in [400, 404, 405, 406, 501] {
            let server = if server.is_modern {
                Talker::modern(changing())
            } else {
                Talker::legacy(changing())
            };
            let method = if server.is_modern {
                "subscriptions/listen"
            } else {
                "GET"
            };
            server.on(method, move |_| Reply::status(status));
            let (mut world, mcp) = server.world();
            for _ in 0..3 {
                world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
                world.pass(10 * SECOND, SECOND);
            }
            assert_eq!(world.count(method), 1, "{method} {status}");
            assert_eq!(state(&mcp), S::Ready);
            assert!(world.count("initialize") <= 1);
        }
    }
}

#[test]
fn streams_that_end_at_once_are_given_up_after_a_few() {
    for server in both() {
        let method = if server.is_modern {
            "subscriptions/listen"
        } else {
            "GET"
        };
        server.on(method, |_| Reply::events(""));
        let mut world = World::new();
        world.options = world.options.streams(StreamPolicy::Always);
        let mcp = server.join(&mut world);
        world.pass(600 * SECOND, SECOND);
        assert!(
            (1..=4).contains(&world.count(method)),
            "{}",
            world.count(method)
        );
        world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    }
}

#[test]
fn subscriptions_that_are_only_acknowledged_and_ended_are_given_up_too() {
    let server = Talker::modern(changing());
    server.on("subscriptions/listen", |seen| {
        let id = &seen.body["id"];
        Reply::events(&format!(
            "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\"}}\n\n\
             data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"resultType\":\"complete\"}}}}\n\n"
        ))
    });
    let mut world = World::new();
    world.options = world.options.streams(StreamPolicy::Always);
    let mcp = server.join(&mut world);
    world.pass(600 * SECOND, SECOND);
    let count = world.count("subscriptions/listen");
    assert!((1..=4).contains(&count), "{count}");
    assert_eq!(state(&mcp), S::Ready);
}

#[test]
fn streams_that_a_server_closes_after_a_while_are_opened_again_and_again() {
    for server in both() {
        let mut world = World::new();
        world.options = world.options.streams(StreamPolicy::Always);
        let _mcp = server.join(&mut world);
        for _ in 0..10 {
            world.pass(90 * SECOND, SECOND);
            server.stream_of_its_own().end();
            world.pass(5 * SECOND, SECOND);
        }
        assert_eq!(server.standing().len(), 1);
    }
}

#[test]
fn a_stream_that_breaks_is_opened_again_and_what_was_missed_is_loaded() {
    for server in both() {
        let (mut world, mcp) = server.world();
        let first = server.stream_of_its_own();
        first.notify("notifications/message", json!({"level": "info", "data": 1}));
        world.settle();
        grow(&server);
        first.end();
        world.settle();
        assert_eq!(server.standing().len(), 0);
        world.pass(3 * SECOND, SECOND / 10);
        assert_eq!(server.standing().len(), 1);
        assert_eq!(names(&mcp), ["echo", "new"]);
    }
}

#[test]
fn twenty_servers_share_a_few_streams_and_twenty_calls_are_answered() {
    for is_modern in [false, true] {
        let mut world = World::new();
        let mcp = world.manager();
        let servers: Vec<Rc<Talker>> = (0..20)
            .map(|number| {
                let server = if is_modern {
                    Talker::modern(changing())
                } else {
                    Talker::legacy(changing())
                };
                server.add(&mut world, &mcp, &format!("s{number}"));
                server
            })
            .collect();
        let standing = || {
            servers
                .iter()
                .map(|server| server.standing().len())
                .sum::<usize>()
        };
        assert!((1..=2).contains(&standing()), "{}", standing());
        let calls: Vec<_> = (0..20)
            .map(|number| {
                let mcp = mcp.clone();
                world.start(async move {
                    mcp.call_tool(&format!("s{number}"), "echo", json!({"n": number}))
                        .await
                })
            })
            .collect();
        world.settle();
        for (number, call) in calls.into_iter().enumerate() {
            let result = call.outcome().unwrap().unwrap();
            assert_eq!(result.text(), json!({"n": number}).to_string());
        }
        assert!(standing() <= 2, "{}", standing());
        world.pass(60 * SECOND, SECOND);
        assert_eq!(standing(), 0);
    }
}

#[test]
fn a_stream_that_a_question_may_come_on_takes_the_place_of_an_idle_one() {
    let mut world = World::new();
    world.options = world.options.max_streams(1);
    let mcp = world.manager();
    let questions = workers_agents::OpenQuestions::new();
    mcp.configure_elicitation_handlers(questions.handlers());
    let (one, two) = (Talker::legacy(changing()), Talker::legacy(changing()));
    one.add(&mut world, &mcp, "one");
    two.add(&mut world, &mcp, "two");
    assert_eq!((one.standing().len(), two.standing().len()), (1, 0));
    two.live("tools/call");
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("two", "echo", json!({})).await });
    assert_eq!((one.standing().len(), two.standing().len()), (0, 1));
    two.talk("tools/call").answer(json!({"content": []}));
    world.settle();
    call.outcome().unwrap().unwrap();
    world.run(mcp.call_tool("one", "echo", json!({}))).unwrap();
    assert_eq!((one.standing().len(), two.standing().len()), (1, 0));
}

// ---- subscriptions/listen

#[test]
fn a_modern_stream_asks_for_what_the_server_offers() {
    let server = Talker::modern(
        json!({"tools": {"listChanged": true}, "prompts": {}, "resources": {"subscribe": true}}),
    );
    let (mut world, mcp) = server.world();
    let listen = server.stream_of_its_own();
    assert_eq!(
        listen.seen.header("mcp-method"),
        Some("subscriptions/listen")
    );
    assert_eq!(
        listen.seen.header("mcp-protocol-version"),
        Some("2026-07-28")
    );
    let params = &listen.seen.body["params"];
    assert_eq!(params["notifications"], json!({"toolsListChanged": true}));
    assert_eq!(
        params["_meta"]["io.modelcontextprotocol/protocolVersion"],
        "2026-07-28"
    );
    listen.notify(
        "notifications/subscriptions/acknowledged",
        json!({"notifications": {"toolsListChanged": true},
            "_meta": {"io.modelcontextprotocol/subscriptionId": listen.seen.body["id"]}}),
    );
    world.settle();
    assert_eq!(world.count("tools/list"), 1);
    // The stream outlives every limit of a request.
    for _ in 0..60 {
        world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
        world.pass(8 * SECOND, SECOND);
    }
    assert!(listen.is_open());
}

fn acknowledge(listen: &Talk) {
    let filter = listen.seen.body["params"]["notifications"].clone();
    listen.notify(
        "notifications/subscriptions/acknowledged",
        json!({"notifications": filter}),
    );
}

#[test]
fn a_subscription_that_ends_in_good_order_is_opened_again_once_with_a_refresh() {
    for by_result in [true, false] {
        let server = Talker::modern(changing());
        let (mut world, mcp) = server.world();
        let listen = server.stream_of_its_own();
        acknowledge(&listen);
        world.settle();
        grow(&server);
        if by_result {
            listen.answer(json!({"resultType": "complete"}));
        } else {
            listen.notify(
                "notifications/cancelled",
                json!({"requestId": listen.seen.body["id"]}),
            );
        }
        world.settle();
        assert!(!listen.is_open(), "by result: {by_result}");
        world.pass(3 * SECOND, SECOND / 10);
        assert_eq!(world.count("subscriptions/listen"), 2);
        assert_eq!(server.standing().len(), 1);
        assert_eq!(names(&mcp), ["echo", "new"]);
        assert_eq!(state(&mcp), S::Ready);
    }
}

#[test]
fn a_server_that_knows_no_subscriptions_is_used_without() {
    for status in [200, 404] {
        let server = Talker::modern(changing());
        server.on("subscriptions/listen", move |seen| {
            rpc_error(status, seen, -32601, Value::Null)
        });
        let (mut world, mcp) = server.world();
        for _ in 0..5 {
            world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
            world.pass(5 * SECOND, SECOND);
        }
        assert_eq!(world.count("subscriptions/listen"), 1, "status {status}");
        assert_eq!(state(&mcp), S::Ready);
    }
}

// ---- resources

fn updates(mcp: &McpClientManager) -> Rc<RefCell<Vec<String>>> {
    let updates: Rc<RefCell<Vec<String>>> = Rc::default();
    let list = updates.clone();
    mcp.on_observability_event(move |event| {
        if let McpEvent::ResourceUpdated { uri, .. } = event {
            list.borrow_mut().push(uri.clone());
        }
    })
    .detach();
    updates
}

#[test]
fn a_resource_that_is_subscribed_to_is_heard_of_in_the_legacy_era() {
    let server = Talker::legacy(json!({"resources": {"subscribe": true}}));
    server.set("resources/subscribe", json!({}));
    server.set("resources/unsubscribe", json!({}));
    let (mut world, mcp) = server.world();
    let updates = updates(&mcp);
    assert!(server.streams.borrow().is_empty());
    world
        .run(mcp.subscribe_resource("pier", "tide://now"))
        .unwrap();
    world
        .run(mcp.subscribe_resource("pier", "tide://now"))
        .unwrap();
    world.settle();
    assert_eq!(world.count("resources/subscribe"), 1);
    server.stream_of_its_own().notify(
        "notifications/resources/updated",
        json!({"uri": "tide://now"}),
    );
    world.settle();
    assert_eq!(*updates.borrow(), ["tide://now"]);

    // A lost session: the new one is told again.
    server.session.replace(None);
    world.run(mcp.read_resource("pier", "tide://now")).unwrap();
    world.settle();
    assert_eq!(world.count("initialize"), 2);
    let subscribed = world.sent("resources/subscribe");
    assert_eq!(subscribed.len(), 2);
    assert_eq!(subscribed[1].header("mcp-session-id"), Some("s-2"));
    assert_eq!(subscribed[1].body["params"]["uri"], "tide://now");
    server.stream_of_its_own().notify(
        "notifications/resources/updated",
        json!({"uri": "tide://now/1"}),
    );
    world.settle();
    assert_eq!(updates.borrow().len(), 2);

    world
        .run(mcp.unsubscribe_resource("pier", "tide://now"))
        .unwrap();
    assert_eq!(world.count("resources/unsubscribe"), 1);
    server.session.replace(None);
    world.run(mcp.read_resource("pier", "tide://now")).unwrap();
    world.settle();
    assert_eq!(world.count("resources/subscribe"), 2, "no longer wanted");
}

#[test]
fn a_subscription_that_is_refused_is_not_kept() {
    let server = Talker::legacy(json!({"resources": {}}));
    let (mut world, mcp) = server.world();
    assert!(
        world
            .run(mcp.subscribe_resource("pier", "tide://now"))
            .is_err()
    );
    server.set("resources/subscribe", json!({}));
    world
        .run(mcp.subscribe_resource("pier", "tide://now"))
        .unwrap();
    assert_eq!(world.count("resources/subscribe"), 2);
}

#[test]
fn a_resource_that_is_subscribed_to_is_part_of_the_filter_in_the_modern_era() {
    let server = Talker::modern(json!({"resources": {"subscribe": true}}));
    let (mut world, mcp) = server.world();
    let updates = updates(&mcp);
    world
        .run(mcp.subscribe_resource("pier", "tide://a"))
        .unwrap();
    world.settle();
    let first = server.stream_of_its_own();
    assert_eq!(
        first.seen.body["params"]["notifications"],
        json!({"resourceSubscriptions": ["tide://a"]})
    );
    world
        .run(mcp.subscribe_resource("pier", "tide://b"))
        .unwrap();
    world.settle();
    let second = server.stream_of_its_own();
    assert_eq!(
        second.seen.body["params"]["notifications"],
        json!({"resourceSubscriptions": ["tide://a", "tide://b"]})
    );
    assert!(!first.is_open());
    assert_eq!(world.count("resources/subscribe"), 0);
    second.notify(
        "notifications/resources/updated",
        json!({"uri": "tide://b",
        "_meta": {"io.modelcontextprotocol/subscriptionId": second.seen.body["id"]}}),
    );
    world.settle();
    assert_eq!(*updates.borrow(), ["tide://b"]);
    // It holds over the stream's being let go.
    world.pass(40 * SECOND, SECOND);
    assert!(server.standing().is_empty());
    world.run(mcp.read_resource("pier", "tide://a")).unwrap();
    world.settle();
    assert_eq!(
        server.stream_of_its_own().seen.body["params"]["notifications"]["resourceSubscriptions"],
        json!(["tide://a", "tide://b"])
    );
    for uri in ["tide://a", "tide://b"] {
        world.run(mcp.unsubscribe_resource("pier", uri)).unwrap();
    }
    world.settle();
    assert!(server.standing().is_empty(), "nothing is left to hear");
}

// ---- logging, completion, ping

fn logs(mcp: &McpClientManager) -> Rc<RefCell<Vec<String>>> {
    let logs: Rc<RefCell<Vec<String>>> = Rc::default();
    let list = logs.clone();
    mcp.on_observability_event(move |event| {
        if let McpEvent::Log {
            level,
            logger,
            data,
            ..
        } = event
        {
            let level = level.map_or("?", LogLevel::as_str);
            list.borrow_mut()
                .push(format!("{level} {logger:?} {}", data.get()));
        }
    })
    .detach();
    logs
}

#[test]
fn log_messages_of_the_legacy_era_come_from_a_level_on() {
    let server = Talker::legacy(json!({"tools": {"listChanged": true}, "logging": {}}));
    server.set("logging/setLevel", json!({}));
    let (mut world, mcp) = server.world();
    let logs = logs(&mcp);
    world
        .run(mcp.set_log_level("pier", LogLevel::Warning))
        .unwrap();
    assert_eq!(
        world.sent("logging/setLevel")[0].body["params"],
        json!({"level": "warning"})
    );
    let stream = server.stream_of_its_own();
    stream.notify(
        "notifications/message",
        json!({"level": "error", "logger": "db", "data": {"a": 1}}),
    );
    stream.notify(
        "notifications/message",
        json!({"level": "fatal", "data": "x"}),
    );
    stream.notify("notifications/message", json!({"level": "error"}));
    world.settle();
    assert_eq!(
        *logs.borrow(),
        [r#"error Some("db") {"a":1}"#, r#"? None "x""#]
    );
    server.session.replace(None);
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    world.settle();
    assert_eq!(
        world.count("logging/setLevel"),
        2,
        "the new session is told again"
    );
}

#[test]
fn log_messages_of_the_modern_era_are_asked_for_with_each_call() {
    let server = Talker::modern(json!({"tools": {}, "logging": {}}));
    server.live("tools/call");
    let (mut world, mcp) = server.world();
    let logs = logs(&mcp);
    assert!(matches!(
        world.run(mcp.set_log_level("pier", LogLevel::Debug)),
        Err(Error::InvalidOption(_))
    ));
    for level in [Some(LogLevel::Info), None] {
        let calling = mcp.clone();
        let call = world.start(async move {
            let mut options = CallOptions::new();
            if let Some(level) = level {
                options = options.log_level(level);
            }
            calling
                .call_tool_with("pier", "echo", json!({}), &options)
                .await
        });
        let talk = server.talk("tools/call");
        let meta = &talk.seen.body["params"]["_meta"];
        assert_eq!(
            meta.get("io.modelcontextprotocol/logLevel")
                .and_then(Value::as_str),
            level.map(LogLevel::as_str)
        );
        talk.notify(
            "notifications/message",
            json!({"level": "info", "data": "working"}),
        );
        talk.answer(json!({"resultType": "complete", "content": []}));
        world.settle();
        call.outcome().unwrap().unwrap();
    }
    assert_eq!(logs.borrow().len(), 2);
    assert_eq!(world.count("logging/setLevel"), 0);
}

#[test]
fn completion_asks_with_what_was_chosen() {
    for server in both() {
        server.on("completion/complete", |seen| {
            let values: Vec<String> = (0..150).map(|number| format!("v{number}")).collect();
            result(
                seen,
                json!({"completion": {"values": values, "total": 150, "hasMore": false}}),
            )
        });
        let (mut world, mcp) = server.world();
        let prompt = CompletionTarget::Prompt {
            name: "greet".into(),
        };
        let found = world
            .run(mcp.complete("pier", &prompt, "who", "v", json!({"tone": "kind"})))
            .unwrap();
        assert_eq!(
            (found.values.len(), found.total, found.has_more),
            (100, Some(150), true)
        );
        let mut params = world.sent("completion/complete")[0].body["params"].clone();
        params.as_object_mut().unwrap().remove("_meta");
        assert_eq!(
            params,
            json!({"ref": {"type": "ref/prompt", "name": "greet"},
                "argument": {"name": "who", "value": "v"}, "context": {"arguments": {"tone": "kind"}}})
        );
        let resource = CompletionTarget::Resource {
            uri: "tide://{port}".into(),
        };
        server.set("completion/complete", json!({}));
        let found = world
            .run(mcp.complete("pier", &resource, "port", "", ()))
            .unwrap();
        assert_eq!(found.values.len(), 0);
        let params = &world.sent("completion/complete")[1].body["params"];
        assert!(params.get("context").is_none());
        assert_eq!(
            params["ref"],
            json!({"type": "ref/resource", "uri": "tide://{port}"})
        );
    }
}

#[test]
fn each_era_is_asked_its_own_way_whether_it_is_there() {
    for server in both() {
        let (mut world, mcp) = server.world();
        world.network.forget();
        world.run(mcp.ping("pier")).unwrap();
        let expected = if server.is_modern {
            "server/discover"
        } else {
            "ping"
        };
        assert_eq!(world.network.methods(), [expected]);
        server.on(expected, |_| Reply::Silence);
        let pinging = mcp.clone();
        let ping = world.start(async move { pinging.ping("pier").await });
        world.advance(10 * SECOND);
        assert!(matches!(ping.outcome(), Some(Err(Error::Timeout { .. }))));
    }
}
