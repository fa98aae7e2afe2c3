//! The manager against servers in memory.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed assertion by other means"
)]
#![allow(
    clippy::needless_pass_by_value,
    unreachable_pub,
    reason = "values made on the spot read better than references to them"
)]

mod support;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use futures::channel::oneshot;
use serde_json::{Value, json};
use support::mcp_server::{LegacyServer, modern, result, rpc_error, tool};
use support::{Reply, Seen, World};
use workers_agents::ports::ServerRow;
use workers_agents::{ConnectionState, Error, McpClientManager, RegisterServer, ServerFilter};

use ConnectionState as S;

const URL: &str = "https://pier.example/mcp";

fn world_with_legacy() -> (World, Rc<LegacyServer>) {
    let world = World::new();
    let server = LegacyServer::new();
    let peer = server.clone();
    world.network.serve(URL, move |seen| peer.answer(seen));
    (world, server)
}

fn world_with(peer: impl Fn(&Seen) -> Reply + 'static) -> World {
    let world = World::new();
    world.network.serve(URL, peer);
    world
}

fn register(world: &mut World, mcp: &McpClientManager, id: &str, url: &str) {
    world
        .run(mcp.register_server(id, RegisterServer::new(id, url)))
        .unwrap();
}

/// Registers, connects and discovers.
fn add(world: &mut World, mcp: &McpClientManager) -> Result<ConnectionState, Error> {
    register(world, mcp, "pier", URL);
    world.run(async {
        mcp.connect_to_server("pier").await?;
        mcp.discover_if_connected("pier", None).await
    })
}

fn state(mcp: &McpClientManager) -> ConnectionState {
    mcp.connection("pier")
        .map_or(ConnectionState::NotConnected, |connection| connection.state)
}

fn names(mcp: &McpClientManager) -> Vec<String> {
    mcp.list_tools(&ServerFilter::all())
        .iter()
        .map(|tool| tool.item.name().to_owned())
        .collect()
}

#[test]
fn registering_stores_and_sends_nothing() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    assert_eq!(world.table.rows.borrow().len(), 1);
    assert_eq!(world.network.methods(), [""; 0]);
    assert_eq!(state(&mcp), ConnectionState::Connecting);
}

#[test]
fn a_legacy_server_is_probed_shaken_hands_with_and_listed() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    assert_eq!(add(&mut world, &mcp).unwrap(), ConnectionState::Ready);
    let methods = world.network.methods();
    assert_eq!(
        methods[..3],
        ["server/discover", "initialize", "notifications/initialized"]
    );
    assert_eq!(methods.len(), 7);
    let card = mcp.connection("pier").unwrap().card.unwrap();
    assert_eq!(card.instructions.as_deref(), Some("be kind"));
    assert_eq!(names(&mcp), ["echo", "add"]);
    assert_eq!(
        mcp.list_prompts(&ServerFilter::all())[0].item.name(),
        "greet"
    );
    assert_eq!(
        mcp.list_resources(&ServerFilter::all())[0].item.uri(),
        "tide://now"
    );
    assert_eq!(
        mcp.list_resource_templates(&ServerFilter::all())[0]
            .item
            .uri_template(),
        "tide://{port}"
    );
    assert_eq!(
        mcp.list_tools(&ServerFilter::all().server_id("other"))
            .len(),
        0
    );
}

#[test]
fn a_modern_server_is_used_without_a_handshake() {
    let mut world = world_with(modern);
    let mcp = world.manager();
    assert_eq!(add(&mut world, &mcp).unwrap(), ConnectionState::Ready);
    world
        .run(mcp.call_tool("pier", "echo", json!({"a": 1})))
        .unwrap();
    assert_eq!(
        world.network.methods(),
        ["server/discover", "tools/list", "tools/call"]
    );
}

#[test]
fn the_first_refusal_of_a_modern_server_is_answered_by_one_more_probe() {
    let asked = Cell::new(0);
    let mut world = world_with(move |seen| {
        asked.set(asked.get() + 1);
        match asked.get() {
            1 => rpc_error(400, seen, -32022, json!({"supported": ["2026-07-28"]})),
            _ => modern(seen),
        }
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();

    let mut stubborn =
        world_with(|seen| rpc_error(400, seen, -32022, json!({"supported": ["2026-07-28"]})));
    let mcp = stubborn.manager();
    assert!(matches!(add(&mut stubborn, &mcp), Err(Error::Protocol(_))));
    assert_eq!(stubborn.network.methods().len(), 2);
}

#[test]
fn arguments_and_results_pass_through_byte_for_byte() {
    let text = r#"{"content":[],"z":1.0,"n":12345678901234567890}"#;
    let mut world = world_with(move |seen| match seen.rpc().as_str() {
        "tools/call" => Reply::Raw(
            200,
            vec![("content-type", "application/json; charset=utf-8".into())],
            vec![
                format!(
                    r#"{{"jsonrpc":"2.0","id":{},"result":{text}}}"#,
                    seen.body["id"]
                )
                .into_bytes(),
            ],
        ),
        _ => modern(seen),
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let result = world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    assert_eq!(serde_json::to_string(&result).unwrap(), text);
}

#[test]
fn a_call_without_arguments_sends_none() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world
        .run(mcp.call_tool("pier", "echo", None::<Value>))
        .unwrap();
    let seen = world.network.seen.borrow().last().unwrap().clone();
    assert_eq!(seen.body["params"], json!({"name": "echo"}));
}

#[test]
fn failures_say_what_happened_and_leave_the_row() {
    type Case = (fn(&Seen) -> Reply, &'static str, fn(&Error) -> bool);
    let cases: [Case; 9] = [
        (
            |_| Reply::Refused,
            "network: connection refused",
            Error::is_transient,
        ),
        (
            |_| Reply::status(401),
            "HTTP status 401",
            Error::is_unauthorized,
        ),
        (
            |_| Reply::status(403),
            "HTTP status 403",
            |error| !error.is_transient(),
        ),
        (
            |_| Reply::status(503),
            "HTTP status 503",
            Error::is_transient,
        ),
        (
            |_| {
                Reply::Raw(
                    200,
                    vec![("content-type", "text/html".into())],
                    vec![b"<html>".to_vec()],
                )
            },
            "unexpected content type: text/html",
            |error| !error.is_transient(),
        ),
        (
            |_| {
                Reply::Raw(
                    200,
                    vec![("content-type", "application/json".into())],
                    vec![b"<html>".to_vec()],
                )
            },
            "not a JSON-RPC message",
            |error| matches!(error, Error::Transport(_)),
        ),
        (
            |_| {
                Reply::Raw(
                    307,
                    vec![("location", "http://10.0.0.5/mcp".into())],
                    vec![],
                )
            },
            "redirect to a blocked address",
            |error| !error.is_transient(),
        ),
        (
            |_| Reply::Raw(301, vec![("location", "/elsewhere".into())], vec![]),
            "https://pier.example/elsewhere",
            |error| !error.is_transient(),
        ),
        (
            |_| Reply::events("event: x\n\n"),
            "ended without the answer",
            Error::is_transient,
        ),
    ];
    for (peer, text, test) in cases {
        let mut world = world_with(peer);
        let mcp = world.manager();
        let error = add(&mut world, &mcp).unwrap_err();
        assert!(error.describe().contains(text), "{}", error.describe());
        assert!(test(&error), "{error:?}");
        assert_eq!(state(&mcp), ConnectionState::Failed, "{text}");
        assert_eq!(world.network.seen.borrow().len(), 1, "{text}");
        assert_eq!(world.table.rows.borrow().len(), 1);
    }
}

#[test]
fn a_silent_server_is_given_up_after_the_configured_time() {
    let mut world = world_with(|_| Reply::Silence);
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    let connecting = mcp.clone();
    let connected = world.start(async move { connecting.connect_to_server("pier").await });
    world.advance(Duration::from_millis(29_999));
    assert!(connected.outcome().is_none());
    world.advance(Duration::from_millis(1));
    assert!(matches!(
        connected.outcome(),
        Some(Err(Error::Timeout { .. }))
    ));
    assert_eq!(world.network.open.get(), 0, "the exchange was not dropped");
}

#[test]
fn an_answer_over_the_limit_is_cut_off() {
    for reply in [
        || {
            Reply::Raw(
                200,
                vec![("content-type", "application/json".into())],
                vec![vec![b' '; 600]; 2],
            )
        },
        || Reply::events(&format!("data: {}", "a".repeat(1_200))),
    ] {
        let mut world = world_with(move |_| reply());
        world.options = world.options.max_response_bytes(1_000);
        let mcp = world.manager();
        let error = add(&mut world, &mcp).unwrap_err().describe();
        assert!(error.contains("1000"), "{error}");
    }
}

#[test]
fn redirects_that_keep_the_request_are_followed_a_few_times() {
    let (mut world, server) = world_with_legacy();
    let moved = "https://pier.example/mcp/";
    world.network.serve(URL, move |_| {
        Reply::Raw(308, vec![("location", moved.into())], vec![])
    });
    world.network.serve(moved, move |seen| server.answer(seen));
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();

    let mut world = world_with(|_| Reply::Raw(307, vec![("location", URL.into())], vec![]));
    let mcp = world.manager();
    assert!(
        add(&mut world, &mcp)
            .unwrap_err()
            .describe()
            .contains("redirects in a row")
    );
    assert_eq!(world.network.seen.borrow().len(), 6);
}

#[test]
fn a_broken_list_hides_no_other_and_is_reported() {
    let (mut world, server) = world_with_legacy();
    server.set("prompts/list", json!({"prompts": "nonsense"}));
    let mcp = world.manager();
    assert_eq!(add(&mut world, &mcp).unwrap(), ConnectionState::Ready);
    let connection = mcp.connection("pier").unwrap();
    assert_eq!(connection.counts.tools, 2);
    assert_eq!(connection.problems.len(), 1);
    assert!(
        connection.problems[0].method == "prompts/list",
        "{:?}",
        connection.problems
    );
}

#[test]
fn a_discovery_that_fails_whole_leaves_connection_and_catalogue() {
    let (mut world, server) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    for method in [
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ] {
        server.set(method, json!({}));
    }
    assert!(world.run(mcp.discover_if_connected("pier", None)).is_err());
    assert_eq!(state(&mcp), ConnectionState::Connected);
    assert_eq!(names(&mcp), ["echo", "add"]);
}

#[test]
fn pages_are_walked_and_circles_are_left() {
    // By the cursor asked for: the page's tools and its next cursor.
    type Pages = fn(Option<&str>) -> (Vec<&'static str>, Value);
    let cases: [(Pages, &[&str]); 6] = [
        (
            |cursor| match cursor {
                None => (vec!["a"], json!("2")),
                _ => (vec!["b"], Value::Null),
            },
            &["a", "b"],
        ),
        (
            |cursor| match cursor {
                None => (vec!["a"], json!("")),
                _ => (vec!["b"], Value::Null),
            },
            &["a", "b"],
        ),
        (
            |cursor| match cursor {
                None => (vec!["a"], json!("2")),
                Some("2") => (vec![], json!("3")),
                _ => (vec!["b"], Value::Null),
            },
            &["a", "b"],
        ),
        (
            |cursor| {
                if cursor.is_none() {
                    (vec!["a"], json!("8"))
                } else {
                    (vec![], json!("8"))
                }
            },
            &["a"],
        ),
        (|_| (vec!["a", "b"], json!("8")), &["a", "b"]),
        (
            |cursor| {
                (
                    vec!["a"],
                    if cursor == Some("A") {
                        json!("B")
                    } else {
                        json!("A")
                    },
                )
            },
            &["a"],
        ),
    ];
    for (pages, expected) in cases {
        let mut world = world_with(move |seen| {
            if seen.rpc() != "tools/list" {
                return modern(seen);
            }
            let (tools, next) = pages(seen.body["params"]["cursor"].as_str());
            let tools: Vec<Value> = tools.into_iter().map(tool).collect();
            result(seen, json!({"tools": tools, "nextCursor": next}))
        });
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        assert_eq!(names(&mcp), expected);
    }
}

#[test]
fn a_list_without_end_is_cut_and_reported() {
    let page = Cell::new(0);
    let mut world = world_with(move |seen| {
        if seen.rpc() != "tools/list" {
            return modern(seen);
        }
        page.set(page.get() + 1);
        result(
            seen,
            json!({"tools": [tool(&format!("t{}", page.get()))], "nextCursor": page.get().to_string()}),
        )
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let connection = mcp.connection("pier").unwrap();
    assert_eq!(connection.counts.tools, 64);
    assert!(connection.problems[0].error.describe().contains("64 pages"));
}

#[test]
fn a_forgotten_session_is_replaced_once_for_all_who_meet_it() {
    let (mut world, server) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    server.current.replace(Some("another".into()));
    world.network.forget();
    let (first, second) = (mcp.clone(), mcp.clone());
    let first = world.start(async move { first.call_tool("pier", "echo", json!({"n": 1})).await });
    let second =
        world.start(async move { second.call_tool("pier", "echo", json!({"n": 2})).await });
    assert_eq!(first.outcome().unwrap().unwrap().text(), r#"{"n":1}"#);
    assert_eq!(second.outcome().unwrap().unwrap().text(), r#"{"n":2}"#);
    let methods = world.network.methods();
    assert_eq!(
        methods
            .iter()
            .filter(|method| *method == "initialize")
            .count(),
        1,
        "{methods:?}"
    );
    let stored = world.table.rows.borrow()[0].server_options.clone().unwrap();
    assert!(stored.contains("session-2"), "{stored}");
}

#[test]
fn a_request_of_the_server_is_answered_on_the_way() {
    let (mut world, server) = world_with_legacy();
    world
        .network
        .serve(URL, move |seen| match seen.rpc().as_str() {
            "tools/call" => Reply::events(&format!(
                "data: {{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}}\n\n\
             data: {{\"jsonrpc\":\"2.0\",\"id\":\"r\",\"method\":\"roots/list\"}}\n\n\
             data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{{}}}}\n\n\
             data: {{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"content\":[]}}}}\n\n",
                seen.body["id"]
            )),
            "POST" => Reply::status(202),
            _ => server.answer(seen),
        });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    world.settle();
    let answers: Vec<Value> = world
        .network
        .seen
        .borrow()
        .iter()
        .filter(|seen| seen.rpc() == "POST")
        .map(|seen| seen.body.clone())
        .collect();
    assert_eq!(
        answers[0],
        json!({"jsonrpc": "2.0", "id": "p", "result": {}})
    );
    assert_eq!(answers[1]["error"]["code"], json!(-32601));
}

#[test]
fn a_response_to_another_request_is_an_error_at_once() {
    let mut world = world_with(|seen| match seen.rpc().as_str() {
        "tools/call" => Reply::Json(
            200,
            json!({"jsonrpc": "2.0", "id": 0, "result": {"content": []}}),
        ),
        _ => modern(seen),
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let error = world
        .run(mcp.call_tool("pier", "echo", json!({})))
        .unwrap_err();
    assert!(error.describe().contains("id does not match"), "{error:?}");
}

#[test]
fn a_json_rpc_error_is_told_with_code_and_data_whatever_its_status() {
    for status in [200, 400, 404, 500] {
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "tools/call" => rpc_error(status, seen, -32602, json!({"k": 1})),
            _ => modern(seen),
        });
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        let Err(Error::Rpc(error)) = world.run(mcp.call_tool("pier", "nope", json!({}))) else {
            panic!("{status}")
        };
        let data = error.data.as_ref().map(|data| data.get());
        assert_eq!((error.code, data), (-32602, Some(r#"{"k":1}"#)));
    }
}

#[test]
fn a_wake_takes_up_the_stored_agreement() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.network.forget();
    let mcp = world.wake();
    assert_eq!(state(&mcp), ConnectionState::Connecting);
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), ConnectionState::Ready);
    assert_eq!(names(&mcp), ["echo", "add"]);
    assert_eq!(
        world.network.methods().len(),
        4,
        "{:?}",
        world.network.methods()
    );
    assert_eq!(
        mcp.connection("pier")
            .unwrap()
            .card
            .unwrap()
            .instructions
            .as_deref(),
        Some("be kind")
    );

    let mut world = world_with(modern);
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.network.forget();
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(world.network.methods(), ["tools/list"]);
}

#[test]
fn a_stale_agreement_is_replaced_on_wake() {
    let (mut world, server) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    server.current.take();
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), ConnectionState::Ready);
    assert_eq!(server.sessions.get(), 2);

    // A server that was modern and is legacy now.
    let (mut world, server) = world_with_legacy();
    world.network.serve(URL, modern);
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world
        .network
        .serve(URL, move |seen| match seen.header("mcp-method") {
            Some(_) => Reply::status(400),
            None => server.answer(seen),
        });
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), ConnectionState::Ready);
    assert_eq!(names(&mcp), ["echo", "add"]);
}

#[test]
fn a_wake_connects_a_few_servers_at_a_time_and_waiting_covers_all() {
    let mut world = World::new();
    let mcp = world.manager();
    let mut gates = Vec::new();
    for number in 0..20 {
        let url = format!("https://pier-{number}.example/mcp");
        let (open, gate) = oneshot::channel();
        gates.push(open);
        let gate = Cell::new(Some(gate));
        world.network.serve(&url, move |seen| match gate.take() {
            Some(gate) => {
                let reply = modern(seen);
                Reply::Later(gate, Box::new(reply))
            }
            None => modern(seen),
        });
        register(&mut world, &mcp, &format!("s{number}"), &url);
    }
    let mcp = world.wake();
    let waiting = mcp.clone();
    let waited = world.start(async move { waiting.wait_for_connections(None).await });
    assert_eq!(world.network.most_open.get(), 4);
    for gate in gates {
        assert!(waited.outcome().is_none());
        gate.send(()).unwrap();
        world.settle();
    }
    assert!(waited.outcome().is_some());
    assert_eq!(world.network.most_open.get(), 4);
    assert_eq!(
        mcp.list_tools(&ServerFilter::all().state(ConnectionState::Ready))
            .len(),
        20
    );
}

#[test]
fn waiting_ends_at_its_limit_and_the_work_goes_on() {
    let (mut world, server) = world_with_legacy();
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    let (open, gate) = oneshot::channel();
    let gate = Cell::new(Some(gate));
    world.network.serve(URL, move |seen| match gate.take() {
        Some(gate) => Reply::Later(gate, Box::new(server.answer(seen))),
        None => server.answer(seen),
    });
    let mcp = world.wake();
    let waiting = mcp.clone();
    let waited = world.start(async move {
        waiting
            .wait_for_connections(Some(Duration::from_secs(1)))
            .await;
    });
    assert!(waited.outcome().is_none());
    world.advance(Duration::from_secs(1));
    assert!(waited.outcome().is_some());
    assert_eq!(state(&mcp), ConnectionState::Connecting);
    open.send(()).unwrap();
    world.settle();
    assert_eq!(state(&mcp), ConnectionState::Ready);
}

#[test]
fn a_wake_retries_what_may_pass_and_nothing_else() {
    for (status, attempts) in [(503, 3), (403, 1), (404, 1)] {
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "server/discover" => Reply::status(status),
            _ => Reply::status(404),
        });
        let mcp = world.manager();
        register(&mut world, &mcp, "pier", URL);
        let mcp = world.wake();
        world.settle();
        for _ in 0..5 {
            world.advance(Duration::from_secs(5));
        }
        let probes = world
            .network
            .methods()
            .iter()
            .filter(|method| *method == "server/discover")
            .count();
        assert_eq!(probes, attempts, "{status}");
        assert_eq!(state(&mcp), ConnectionState::Failed);
        world.run(mcp.wait_for_connections(None));
    }
}

#[test]
fn a_server_that_is_down_at_a_wake_is_failed_whatever_was_stored_and_tried_again() {
    let (mut world, server) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.network.serve(URL, |_| Reply::Refused);
    let mcp = world.wake();
    world.settle();
    assert_eq!(state(&mcp), S::Failed);
    assert!(
        mcp.connection("pier")
            .unwrap()
            .error
            .unwrap()
            .is_transient()
    );
    world.network.serve(URL, move |seen| server.answer(seen));
    world.advance(Duration::from_secs(5));
    assert_eq!(state(&mcp), S::Ready);
    assert_eq!(names(&mcp), ["echo", "add"]);
}

#[test]
fn headers_of_the_protocol_are_the_protocols() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    let reserved = [
        "Mcp-Session-Id",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "Mcp-Param-X",
        "accept",
        "content-type",
        "expect",
        "host",
        "upgrade",
    ];
    for name in reserved {
        let server = RegisterServer::new("pier", URL).header(name, "forged");
        assert!(
            matches!(
                world.run(mcp.register_server("pier", server)),
                Err(Error::InvalidOption(_))
            ),
            "{name}"
        );
    }
    // In a row that somebody else wrote they are left out.
    register(&mut world, &mcp, "pier", URL);
    let headers: serde_json::Map<String, Value> = reserved
        .iter()
        .chain(&["x-key"])
        .map(|name| ((*name).to_owned(), json!("forged")))
        .collect();
    world.table.rows.borrow_mut()[0].server_options =
        Some(json!({"transport": {"headers": headers}}).to_string());
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), S::Ready);
    for seen in world.network.seen.borrow().iter() {
        let forged: Vec<_> = seen
            .headers
            .iter()
            .filter(|(_, value)| *value == "forged")
            .collect();
        assert_eq!(forged.len(), 1, "{forged:?}");
        assert_eq!(seen.header("x-key"), Some("forged"));
    }
}

#[test]
fn a_damaged_row_stops_nobody_and_is_kept() {
    let (mut world, _) = world_with_legacy();
    let damaged = ServerRow {
        id: "bad".into(),
        name: "Bad".into(),
        server_url: URL.into(),
        callback_url: String::new(),
        client_id: None,
        auth_url: None,
        server_options: Some("{oops".into()),
    };
    world.table.rows.borrow_mut().push(damaged.clone());
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), ConnectionState::Ready);
    assert_eq!(mcp.damaged_servers().unwrap()[0].id, "bad");
    assert!(matches!(
        world.run(mcp.connect_to_server("bad")),
        Err(Error::DamagedRow { .. })
    ));
    let again = RegisterServer::new("Bad", URL);
    assert!(matches!(
        world.run(mcp.register_server("bad", again)),
        Err(Error::DamagedRow { .. })
    ));
    assert!(world.table.rows.borrow().contains(&damaged));
    assert!(world.run(mcp.remove_server("bad")).unwrap());
}

#[test]
fn a_server_that_waits_for_its_user_is_parked() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    world.table.rows.borrow_mut()[0].auth_url = Some("https://as.example/authorize?state=x".into());
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), ConnectionState::Authenticating);
    assert_eq!(world.network.methods(), [""; 0]);
}

#[test]
fn a_stored_url_is_judged_again_before_it_is_used() {
    let mut world = World::new();
    let mcp = world.manager();
    let refused = RegisterServer::new("x", "http://10.0.0.1/mcp");
    assert!(matches!(
        world.run(mcp.register_server("x", refused)),
        Err(Error::BlockedUrl(_))
    ));
    assert!(world.table.rows.borrow().is_empty());

    register(&mut world, &mcp, "pier", URL);
    world.table.rows.borrow_mut()[0].server_url = "http://10.0.0.1/mcp".into();
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert!(matches!(
        mcp.connection("pier").unwrap().error,
        Some(Error::BlockedUrl(_))
    ));
    assert_eq!(world.network.methods(), [""; 0]);
}

#[test]
fn a_server_removed_while_it_connects_stays_removed() {
    let (mut world, server) = world_with_legacy();
    let (open, gate) = oneshot::channel();
    let gate = Cell::new(Some(gate));
    world.network.serve(URL, move |seen| match gate.take() {
        Some(gate) => Reply::Later(gate, Box::new(server.answer(seen))),
        None => server.answer(seen),
    });
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    let connecting = mcp.clone();
    let connected = world.start(async move { connecting.connect_to_server("pier").await });
    assert!(world.run(mcp.remove_server("pier")).unwrap());
    world.settle();
    assert!(matches!(connected.outcome(), Some(Err(Error::Closed))));
    assert_eq!(world.network.open.get(), 0, "the attempt goes on");
    drop(open);
    assert_eq!(add(&mut world, &mcp).unwrap(), ConnectionState::Ready);
    assert_eq!(world.table.rows.borrow().len(), 1);
}

#[test]
fn concurrent_connects_and_discoveries_are_one() {
    let (mut world, server) = world_with_legacy();
    // The first request of each phase is held back until both calls have been made.
    let (open_probe, probe) = oneshot::channel();
    let (open_list, list) = oneshot::channel();
    let (probe, list) = (Cell::new(Some(probe)), Cell::new(Some(list)));
    world.network.serve(URL, move |seen| {
        let gate = match seen.rpc().as_str() {
            "server/discover" => probe.take(),
            "tools/list" => list.take(),
            _ => None,
        };
        let reply = server.answer(seen);
        gate.map_or_else(
            || server.answer(seen),
            |gate| Reply::Later(gate, Box::new(reply)),
        )
    });
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    let connects = [mcp.clone(), mcp.clone()]
        .map(|mcp| world.start(async move { mcp.connect_to_server("pier").await }));
    open_probe.send(()).unwrap();
    world.settle();
    assert!(
        connects
            .iter()
            .all(|connect| connect.outcome().unwrap().is_ok())
    );
    let discoveries = [mcp.clone(), mcp.clone()]
        .map(|mcp| world.start(async move { mcp.discover_if_connected("pier", None).await }));
    open_list.send(()).unwrap();
    world.settle();
    assert!(
        discoveries
            .iter()
            .all(|discovery| discovery.outcome().unwrap().is_ok())
    );
    assert_eq!(
        world.network.methods().len(),
        7,
        "{:?}",
        world.network.methods()
    );
}

#[test]
fn closing_ends_the_session_and_keeps_the_row() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.network.forget();
    world.run(mcp.close_connection("pier")).unwrap();
    world.settle();
    let seen = world.network.seen.borrow()[0].clone();
    assert_eq!(
        (seen.method.as_str(), seen.header("mcp-session-id")),
        ("DELETE", Some("session-1"))
    );
    assert_eq!(world.table.rows.borrow().len(), 1);
    assert!(
        !world.table.rows.borrow()[0]
            .server_options
            .as_deref()
            .unwrap()
            .contains("session-1")
    );
    assert_eq!(state(&mcp), ConnectionState::NotConnected);
    let error = world
        .run(mcp.call_tool("pier", "echo", json!({})))
        .unwrap_err();
    assert!(matches!(error, Error::NotConnected { .. }));
    assert!(matches!(
        world.run(mcp.close_connection("pier")),
        Err(Error::NotConnected { .. })
    ));
    // A stored row is enough to connect again.
    world.run(mcp.connect_to_server("pier")).unwrap();
    assert_eq!(state(&mcp), ConnectionState::Connected);
}

#[test]
fn registering_anew_reaches_the_live_connection_when_something_changed() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    register(&mut world, &mcp, "pier", URL);
    assert_eq!(state(&mcp), ConnectionState::Ready, "nothing changed");
    let keyed = RegisterServer::new("pier", URL).header("x-key", "1");
    world.run(mcp.register_server("pier", keyed)).unwrap();
    assert_eq!(state(&mcp), ConnectionState::Connecting);
    world.network.forget();
    world.run(mcp.connect_to_server("pier")).unwrap();
    let seen = world.network.seen.borrow();
    assert!(
        seen.iter()
            .filter(|seen| seen.method == "POST")
            .all(|seen| seen.header("x-key") == Some("1"))
    );
}

#[test]
fn a_call_to_a_server_that_is_coming_back_waits_for_it() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let mcp = world.wake();
    let result = world
        .run(mcp.call_tool("pier", "echo", json!({"a": 1})))
        .unwrap();
    assert_eq!(result.text(), r#"{"a":1}"#);
}

#[test]
fn what_does_not_exist_is_said_to_be_unknown() {
    let mut world = World::new();
    let mcp = world.manager();
    assert!(matches!(
        world.run(mcp.connect_to_server("x")),
        Err(Error::UnknownServer(_))
    ));
    assert!(matches!(
        world.run(mcp.discover_if_connected("x", None)),
        Err(Error::UnknownServer(_))
    ));
    assert!(matches!(
        world.run(mcp.call_tool("x", "t", json!({}))),
        Err(Error::UnknownServer(_))
    ));
    assert!(matches!(
        world.run(mcp.close_connection("x")),
        Err(Error::UnknownServer(_))
    ));
    assert!(!world.run(mcp.remove_server("x")).unwrap());
    world.run(mcp.wait_for_connections(None));
}

#[test]
fn listeners_hear_every_change_and_may_ask_back() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    let states = Rc::new(std::cell::RefCell::new(Vec::new()));
    let (heard, asked) = (states.clone(), mcp.clone());
    let subscription = mcp.on_server_state_changed(move || heard.borrow_mut().push(state(&asked)));
    add(&mut world, &mcp).unwrap();
    drop(subscription);
    world.run(mcp.remove_server("pier")).unwrap();
    assert_eq!(
        *states.borrow(),
        [
            S::Connecting,
            S::Connecting,
            S::Connected,
            S::Discovering,
            S::Ready
        ]
    );
}

#[test]
fn secrets_stay_out_of_what_is_printed() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    let url = "https://pier.example/mcp?key=s3cret";
    let server = RegisterServer::new("pier", url).header("authorization", "Bearer s3cret");
    let printed = format!("{server:?}");
    world.run(mcp.register_server("pier", server)).unwrap();
    let error = world.run(mcp.connect_to_server("pier")).unwrap_err();
    let servers = mcp.list_servers().unwrap();
    let rows = world.table.rows.borrow();
    for text in [
        printed,
        format!(
            "{mcp:?} {servers:?} {rows:?} {error:?} {}",
            error.describe()
        ),
    ] {
        assert!(!text.contains("s3cret"), "{text}");
    }
}

/// A server that forgets its session and then keeps the next probe waiting.
fn forgetful(world: &World, server: &Rc<LegacyServer>) -> oneshot::Sender<()> {
    let (open, gate) = oneshot::channel();
    let gate = Cell::new(Some(gate));
    server.current.replace(Some("another".into()));
    let server = server.clone();
    world
        .network
        .serve(URL, move |seen| match seen.rpc().as_str() {
            "server/discover" => {
                let reply = Box::new(server.answer(seen));
                gate.take()
                    .map_or_else(|| server.answer(seen), |gate| Reply::Later(gate, reply))
            }
            _ => server.answer(seen),
        });
    open
}

#[test]
fn closing_ends_the_requests_and_the_renewal_under_way() {
    for replace in [false, true] {
        let (mut world, server) = world_with_legacy();
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        let open = forgetful(&world, &server);
        let calling = mcp.clone();
        let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
        assert!(call.outcome().is_none());
        if replace {
            register(&mut world, &mcp, "pier", "https://other.example/mcp");
        } else {
            assert!(world.run(mcp.remove_server("pier")).unwrap());
        }
        world.settle();
        assert!(matches!(call.outcome(), Some(Err(Error::Closed))));
        world.network.forget();
        let _ = open.send(());
        world.settle();
        assert_eq!(world.network.methods(), [""; 0], "the renewal went on");
        assert_eq!(world.network.open.get(), 0);
        for row in world.table.rows.borrow().iter() {
            let options = row.server_options.as_deref().unwrap();
            assert!(
                !options.contains("session-"),
                "another server's session: {options}"
            );
        }
    }
}

#[test]
fn a_renewal_that_nobody_waits_for_any_more_ends_by_itself() {
    let (mut world, server) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let _never = forgetful(&world, &server);
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
    world.advance(Duration::from_mins(1));
    let Some(Err(error)) = call.outcome() else {
        panic!("the call takes longer than a request may")
    };
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert_eq!(world.network.open.get(), 0, "the exchange was not dropped");
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
}

#[test]
fn an_error_keeps_the_status_it_came_with() {
    for (status, transient) in [(503, true), (429, true), (400, false), (404, false)] {
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "tools/call" => rpc_error(status, seen, -32000, Value::Null),
            _ => modern(seen),
        });
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        let error = world
            .run(mcp.call_tool("pier", "echo", json!({})))
            .unwrap_err();
        assert_eq!(error.http_status(), Some(status));
        assert_eq!(error.is_transient(), transient, "{status}");
    }
}

#[test]
fn an_overloaded_server_is_not_taken_for_an_old_one() {
    for status in [408, 429, 503] {
        let mut world = world_with(move |seen| rpc_error(status, seen, -32000, Value::Null));
        let mcp = world.manager();
        assert!(add(&mut world, &mcp).unwrap_err().is_transient());
        assert_eq!(world.network.methods(), ["server/discover"], "{status}");
    }
}

#[test]
fn retry_after_is_heeded() {
    let mut world = world_with(|_| Reply::Raw(503, vec![("retry-after", "20".into())], vec![]));
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    let _mcp = world.wake();
    world.settle();
    world.advance(Duration::from_secs(19));
    assert_eq!(world.network.methods().len(), 1);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.network.methods().len(), 2);
}

#[test]
fn servers_that_do_not_answer_hold_nobody_up_for_longer_than_one_attempt() {
    let mut world = World::new();
    let mcp = world.manager();
    for number in 0..4 {
        let url = format!("https://dead-{number}.example/mcp");
        world.network.serve(&url, |_| Reply::Silence);
        register(&mut world, &mcp, &format!("dead-{number}"), &url);
    }
    world.network.serve(URL, modern);
    register(&mut world, &mcp, "pier", URL);
    let mcp = world.wake();
    world.settle();
    assert_eq!(state(&mcp), S::Connecting);
    world.advance(Duration::from_secs(30));
    assert_eq!(state(&mcp), S::Ready);
}

#[test]
fn a_new_name_changes_nothing_about_the_connection() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.network.forget();
    world
        .run(mcp.register_server("pier", RegisterServer::new("Quay", URL)))
        .unwrap();
    world.settle();
    assert_eq!(state(&mcp), S::Ready);
    assert_eq!(world.network.methods(), [""; 0]);
    assert_eq!(
        mcp.list_tools(&ServerFilter::all().server_name("Quay"))
            .len(),
        2
    );
}

#[test]
fn a_server_that_comes_back_as_another_is_listed_as_that() {
    let (mut world, server) = world_with_legacy();
    let lean = Rc::new(Cell::new(true));
    let (peer, is_lean) = (server.clone(), lean.clone());
    world.network.serve(URL, move |seen| {
        let Reply::Raw(status, headers, chunks) = peer.answer(seen) else {
            return peer.answer(seen);
        };
        let text = String::from_utf8(chunks.concat()).unwrap();
        let text = if is_lean.get() {
            text.replace(r#""prompts":{},"#, "")
        } else {
            text
        };
        Reply::Raw(status, headers, vec![text.into_bytes()])
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    assert_eq!(mcp.connection("pier").unwrap().counts.prompts, 0);
    lean.set(false);
    server.current.take();
    world.run(mcp.discover_if_connected("pier", None)).unwrap();
    assert_eq!(mcp.connection("pier").unwrap().counts.prompts, 1);
}

#[test]
fn a_result_that_is_none_is_an_error() {
    for text in [
        "null",
        "\"oops\"",
        "[1]",
        "3",
        r#"{"resultType":5}"#,
        r#"{"resultType":"input_required"}"#,
    ] {
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "tools/call" => result(seen, serde_json::from_str(text).unwrap()),
            _ => modern(seen),
        });
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        let error = world
            .run(mcp.call_tool("pier", "echo", json!({})))
            .unwrap_err();
        assert!(matches!(error, Error::Protocol(_)), "{text}: {error:?}");
    }
}

#[test]
fn a_server_that_floods_us_with_requests_gets_a_few_answers() {
    let (mut world, server) = world_with_legacy();
    world
        .network
        .serve(URL, move |seen| match seen.rpc().as_str() {
            "tools/call" => {
                let ping = "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\n";
                let answer = format!(
                    "data: {{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{}}}}\n\n",
                    seen.body["id"]
                );
                Reply::events(&(ping.repeat(1_000) + &answer))
            }
            "POST" => Reply::Silence,
            _ => server.answer(seen),
        });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    world.settle();
    assert_eq!(world.network.open.get(), 8);
}

#[test]
fn a_ping_during_the_handshake_is_answered() {
    let (mut world, server) = world_with_legacy();
    world.network.serve(URL, move |seen| match seen.rpc().as_str() {
        "initialize" => {
            let Reply::Raw(_, _, chunks) = server.answer(seen) else { panic!() };
            let answer = String::from_utf8(chunks.concat()).unwrap();
            Reply::events(&format!(
                "data: {{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}}\n\ndata: {answer}\n\n"
            ))
        }
        "POST" | "notifications/initialized" => Reply::status(202),
        _ => modern_refusal(seen),
    });
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    world.run(mcp.connect_to_server("pier")).unwrap();
    world.settle();
    assert!(
        world.network.methods().contains(&"POST".to_owned()),
        "{:?}",
        world.network.methods()
    );
}

fn modern_refusal(seen: &Seen) -> Reply {
    rpc_error(400, seen, -32000, Value::Null)
}

#[test]
fn restoring_leaves_alone_what_is_live() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    mcp.restore().unwrap();
    world.settle();
    assert_eq!(names(&mcp), ["echo", "add"]);
}

#[test]
fn a_list_that_asks_for_authorization_fails_the_discovery() {
    let (mut world, server) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world
        .network
        .serve(URL, move |seen| match seen.rpc().as_str() {
            "prompts/list" => Reply::status(401),
            _ => server.answer(seen),
        });
    assert!(
        world
            .run(mcp.discover_if_connected("pier", None))
            .unwrap_err()
            .is_unauthorized()
    );
}

#[test]
fn what_is_absurd_is_refused_at_registration_and_not_stored() {
    let mut world = World::new();
    world.options.max_servers = 2;
    let mcp = world.manager();
    let long = "x".repeat(300);
    for (id, server) in [
        ("", RegisterServer::new("n", URL)),
        (long.as_str(), RegisterServer::new("n", URL)),
        ("a", RegisterServer::new("", URL)),
        ("a", RegisterServer::new(long.as_str(), URL)),
        (
            "a",
            RegisterServer::new("n", format!("{URL}?{}", "x".repeat(9_000))),
        ),
        (
            "a",
            RegisterServer::new("n", URL).header("x-a", "x".repeat(20_000)),
        ),
        ("a", RegisterServer::new("n", URL).header("x a", "1")),
        ("a", RegisterServer::new("n", URL).header("x-a", "é")),
        ("a", RegisterServer::new("n", URL).transport("bogus".into())),
    ] {
        assert!(world.run(mcp.register_server(id, server)).is_err());
    }
    assert!(world.table.rows.borrow().is_empty());
    register(&mut world, &mcp, "a", URL);
    register(&mut world, &mcp, "b", URL);
    register(&mut world, &mcp, "b", URL);
    let third = RegisterServer::new("c", URL);
    assert!(matches!(
        world.run(mcp.register_server("c", third)),
        Err(Error::InvalidOption(_))
    ));
}

#[test]
fn a_list_of_too_many_items_is_refused() {
    let mut world = world_with(|seen| match seen.rpc().as_str() {
        "tools/list" => result(seen, json!({"tools": vec![0; 10_001]})),
        _ => modern(seen),
    });
    let mcp = world.manager();
    assert!(matches!(add(&mut world, &mcp), Err(Error::Protocol(_))));
}

#[test]
fn events_before_a_fault_count() {
    let mut world = world_with(|seen| match seen.rpc().as_str() {
        "tools/call" => {
            let answer = format!(
                "data: {{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{}}}}\n\n",
                seen.body["id"]
            );
            Reply::events(&format!("{answer}data: {}", "x".repeat(3_000)))
        }
        _ => modern(seen),
    });
    world.options = world.options.max_response_bytes(2_000);
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
}

#[test]
fn a_list_that_hangs_costs_no_other() {
    let (mut world, server) = world_with_legacy();
    world
        .network
        .serve(URL, move |seen| match seen.rpc().as_str() {
            "prompts/list" => Reply::Silence,
            _ => server.answer(seen),
        });
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    world.run(mcp.connect_to_server("pier")).unwrap();
    let discovering = mcp.clone();
    let discovered =
        world.start(async move { discovering.discover_if_connected("pier", None).await });
    world.advance(Duration::from_secs(30));
    assert!(matches!(discovered.outcome(), Some(Ok(S::Ready))));
    assert_eq!(names(&mcp), ["echo", "add"]);
    assert_eq!(
        mcp.connection("pier").unwrap().problems[0].method,
        "prompts/list"
    );
}

#[test]
fn the_reason_of_a_failed_discovery_is_kept_until_the_next_one() {
    let broken = Rc::new(Cell::new(true));
    let is_broken = broken.clone();
    let mut world = world_with(move |seen| match seen.rpc().as_str() {
        "tools/list" if is_broken.get() => Reply::Raw(
            200,
            vec![("content-type", "text/html".into())],
            vec![b"<html>".to_vec()],
        ),
        _ => modern(seen),
    });
    let mcp = world.manager();
    assert!(add(&mut world, &mcp).is_err());
    let connection = mcp.connection("pier").unwrap();
    assert_eq!(connection.state, S::Connected);
    assert!(connection.error.unwrap().describe().contains("text/html"));
    broken.set(false);
    world.run(mcp.discover_if_connected("pier", None)).unwrap();
    assert!(mcp.connection("pier").unwrap().error.is_none());
}

#[test]
fn a_session_that_comes_to_nothing_is_ended_at_the_server() {
    let (mut world, server) = world_with_legacy();
    world
        .network
        .serve(URL, move |seen| match seen.rpc().as_str() {
            "notifications/initialized" => Reply::Silence,
            _ => server.answer(seen),
        });
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    let connecting = mcp.clone();
    let connected = world.start(async move { connecting.connect_to_server("pier").await });
    assert!(world.run(mcp.remove_server("pier")).unwrap());
    world.settle();
    assert!(matches!(connected.outcome(), Some(Err(Error::Closed))));
    let seen = world.network.seen.borrow();
    let last = seen.last().unwrap();
    assert_eq!(
        (last.method.as_str(), last.header("mcp-session-id")),
        ("DELETE", Some("session-1"))
    );
}

#[test]
fn what_a_server_says_of_itself_cannot_spoil_its_row() {
    let deep = "[".repeat(110) + &"]".repeat(110);
    let mut world = world_with(move |seen| match seen.rpc().as_str() {
        "server/discover" => Reply::Raw(
            200,
            vec![("content-type", "application/json".into())],
            vec![
                format!(
                    r#"{{"jsonrpc":"2.0","id":{},"result":{{"supportedVersions":["2026-07-28"],
                    "capabilities":{{"tools":{{}}}},"serverInfo":{deep},"instructions":{deep}}}}}"#,
                    seen.body["id"]
                )
                .into_bytes(),
            ],
        ),
        _ => modern(seen),
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), S::Ready);
    assert!(mcp.damaged_servers().unwrap().is_empty());
}

#[test]
fn a_row_with_more_headers_than_a_map_can_hold_is_damaged_and_no_more() {
    let mut world = World::new();
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    let headers: serde_json::Map<String, Value> =
        (0..30_000).map(|n| (format!("x-{n}"), json!(""))).collect();
    world.table.rows.borrow_mut()[0].server_options =
        Some(json!({"transport": {"headers": headers}}).to_string());
    let mcp = world.wake();
    assert_eq!(mcp.damaged_servers().unwrap().len(), 1);
}

#[test]
fn an_endless_stream_is_cut_off() {
    let mut world = world_with(|seen| match seen.rpc().as_str() {
        "tools/call" => Reply::Raw(
            200,
            vec![("content-type", "text/event-stream".into())],
            vec![b": nothing\n\n".repeat(50); 100],
        ),
        _ => modern(seen),
    });
    world.options = world.options.max_response_bytes(2_000);
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let error = world
        .run(mcp.call_tool("pier", "echo", json!({})))
        .unwrap_err()
        .describe();
    assert!(error.contains("8000"), "{error}");
}

#[test]
fn the_reason_in_a_plain_text_error_is_told() {
    let mut world = world_with(|_| {
        Reply::Raw(
            403,
            vec![("content-type", "text/plain".into())],
            vec![b"no such\ntenant".to_vec()],
        )
    });
    let mcp = world.manager();
    assert!(
        add(&mut world, &mcp)
            .unwrap_err()
            .describe()
            .ends_with("403: no such tenant")
    );
}
