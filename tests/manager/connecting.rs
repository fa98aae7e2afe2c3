//! Opening and closing connections, against servers in memory.

use std::cell::Cell;
use std::time::Duration;

use futures::channel::oneshot;
use serde_json::{Value, json};
use workers_agents::{ConnectionState as S, Error, ServerFilter};

use crate::support::mcp_server::{LegacyServer, modern, rpc_error};
use crate::support::{
    Reply, Seen, URL, add, names, register, state, world_with, world_with_legacy,
};

#[test]
fn a_legacy_server_is_probed_shaken_hands_with_and_listed() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    assert_eq!(add(&mut world, &mcp).unwrap(), S::Ready);
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
    assert_eq!(add(&mut world, &mcp).unwrap(), S::Ready);
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
            |_| Reply::typed(200, "text/html", "<html>"),
            "unexpected content type: text/html",
            |error| !error.is_transient(),
        ),
        (
            |_| Reply::typed(200, "application/json", "<html>"),
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
        assert_eq!(state(&mcp), S::Failed, "{text}");
        assert_eq!(world.network.seen.borrow().len(), 1, "{text}");
        assert_eq!(world.table.rows.borrow().len(), 1);
    }
}

#[test]
fn the_reason_in_a_plain_text_error_is_told() {
    let mut world = world_with(|_| Reply::typed(403, "text/plain", "no such\ntenant"));
    let mcp = world.manager();
    assert!(
        add(&mut world, &mcp)
            .unwrap_err()
            .describe()
            .ends_with("403 (text/plain): no such tenant")
    );
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

fn modern_refusal(seen: &Seen) -> Reply {
    rpc_error(400, seen, -32000, Value::Null)
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
    assert_eq!(add(&mut world, &mcp).unwrap(), S::Ready);
    assert_eq!(world.table.rows.borrow().len(), 1);
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
    assert_eq!(state(&mcp), S::NotConnected);
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
    assert_eq!(state(&mcp), S::Connected);
}

#[test]
fn se_13_an_empty_session_id_is_none_and_an_illegal_one_ends_the_handshake() {
    for (id, is_legal) in [("", true), ("a b", false), ("a\tb", false)] {
        let server = LegacyServer::new();
        let mut world = world_with(move |seen| {
            let reply = server.answer(seen);
            // Every answer names it; only that to `initialize` counts.
            server.current.replace(None);
            match reply {
                Reply::Json(status, body) => {
                    Reply::typed(status, "application/json", body.to_string())
                }
                other => other,
            }
            .with("mcp-session-id", id)
        });
        let mcp = world.manager();
        let outcome = add(&mut world, &mcp);
        if is_legal {
            assert_eq!(outcome.unwrap(), S::Ready);
            assert_eq!(
                world
                    .network
                    .seen
                    .borrow()
                    .last()
                    .unwrap()
                    .header("mcp-session-id"),
                None
            );
        } else {
            assert!(outcome.unwrap_err().describe().contains("session id"));
        }
    }
}
