//! The cases SE-* from public bug reports, and their neighbours, through the public API.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::{Value, json};
use workers_agents::{ConnectionState as S, Error, McpClientManager};

use crate::support::case_server::{CaseServer, initialized};
use crate::support::mcp_server::rpc_error;
use crate::support::streams::SseServer;
use crate::support::{Reply, Seen, URL, World, add, names, register, state, world_with};

fn echo(mcp: &McpClientManager, world: &mut World, n: u32) -> Result<String, Error> {
    world
        .run(mcp.call_tool("pier", "echo", json!({"n": n})))
        .map(|result| result.text())
}

fn count(world: &World, method: &str) -> usize {
    let methods = world.network.methods();
    methods.iter().filter(|found| *found == method).count()
}

/// Methods with the session that they carried.
fn sequence(world: &World) -> Vec<(String, Option<String>)> {
    let seen = world.network.seen.borrow();
    seen.iter()
        .filter(|seen| seen.method == "POST")
        .map(|seen| (seen.rpc(), seen.header("mcp-session-id").map(str::to_owned)))
        .collect()
}

fn steps(steps: &[(&str, Option<&str>)]) -> Vec<(String, Option<String>)> {
    steps
        .iter()
        .map(|(method, session)| ((*method).to_owned(), session.map(str::to_owned)))
        .collect()
}

fn stored(world: &World) -> String {
    let rows = world.table.rows.borrow();
    rows[0].server_options.clone().unwrap_or_default()
}

// ---- SE-01

#[test]
fn se_01_a_lost_session_is_replaced_and_the_call_repeated_once() {
    let server = CaseServer::with_sessions();
    let mut world = server.world();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    server.forget_sessions();
    world.network.forget();
    assert_eq!(echo(&mcp, &mut world, 1).unwrap(), r#"{"n":1}"#);
    let expected = steps(&[
        ("tools/call", Some("s1")),
        ("initialize", None),
        ("notifications/initialized", Some("s2")),
        ("tools/call", Some("s2")),
    ]);
    assert_eq!(sequence(&world), expected);
    let ids: Vec<Value> = {
        let seen = world.network.seen.borrow();
        let calls = seen.iter().filter(|seen| seen.rpc() == "tools/call");
        calls.map(|seen| seen.body["id"].clone()).collect()
    };
    assert_ne!(ids[0], ids[1], "an id is used once");

    // And as often as the server is deployed.
    for n in 2..5 {
        server.forget_sessions();
        assert_eq!(
            echo(&mcp, &mut world, n).unwrap(),
            format!(r#"{{"n":{n}}}"#)
        );
        assert_eq!(server.issued.get(), n + 1);
    }
    assert!(stored(&world).contains(r#""s5""#), "{}", stored(&world));
}

#[test]
fn calls_that_meet_the_loss_together_share_one_new_session() {
    let server = CaseServer::with_sessions();
    let mut world = server.world();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    server.forget_sessions();
    world.network.forget();
    let calls = [1, 2, 3, 4].map(|n| {
        let mcp = mcp.clone();
        let call = async move { mcp.call_tool("pier", "echo", json!({"n": n})).await };
        (n, world.start(call))
    });
    world.settle();
    for (n, call) in calls {
        let text = call.outcome().unwrap().unwrap().text();
        assert_eq!(text, format!(r#"{{"n":{n}}}"#));
    }
    assert_eq!(count(&world, "initialize"), 1);
    assert_eq!(server.issued.get(), 2);
}

#[test]
fn a_server_that_forgets_at_once_costs_one_new_session_for_each_call() {
    let server = CaseServer::with_sessions();
    let peer = server.clone();
    let mut world = world_with(move |seen| {
        if seen.rpc() == "tools/call" {
            peer.forget_sessions();
        }
        peer.answer(seen)
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    for n in 1..=3 {
        world.network.forget();
        let error = echo(&mcp, &mut world, n).unwrap_err();
        assert!(error.describe().contains("Session not found"), "{error:?}");
        assert_eq!(count(&world, "initialize"), 1);
        assert_eq!(count(&world, "tools/call"), 2);
    }
}

#[test]
fn a_404_without_a_session_is_an_error_and_no_reason_for_a_handshake() {
    let server = CaseServer::stateless();
    let mut world = world_with(move |seen| match seen.rpc().as_str() {
        "tools/call" => Reply::status(404),
        _ => server.answer(seen),
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.settle();
    world.network.forget();
    let error = echo(&mcp, &mut world, 1).unwrap_err();
    assert_eq!(error.http_status(), Some(404));
    assert_eq!(world.network.methods(), ["tools/call"]);
}

#[test]
fn a_server_that_is_gone_for_good_is_told_so_after_a_few_requests() {
    let server = CaseServer::with_sessions();
    let mut world = server.world();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.settle();
    world.network.serve(URL, |_| Reply::status(404));
    world.network.forget();
    let error = echo(&mcp, &mut world, 1).unwrap_err();
    assert_eq!(error.http_status(), Some(404));
    assert!(
        world.network.methods().len() <= 4,
        "{:?}",
        world.network.methods()
    );
}

#[test]
fn a_stream_of_a_lost_session_costs_no_new_one() {
    // 404 for the GET may come because there is no stream, or because there is no session.
    let server = CaseServer::with_sessions();
    let peer = server.clone();
    let mut world = world_with(move |seen| match seen.method.as_str() {
        "GET" => Reply::status(404),
        _ => peer.answer(seen),
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    for _ in 0..20 {
        world.advance(Duration::from_secs(5));
    }
    assert!(server.issued.get() <= 2);
    assert!(count(&world, "GET") <= 3);
}

// ---- SE-02

#[test]
fn se_02_a_stored_session_that_is_stale_is_replaced_at_the_wake() {
    let server = CaseServer::with_sessions();
    let mut world = server.world();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    assert!(stored(&world).contains(r#""s1""#));
    server.forget_sessions();
    world.network.forget();
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), S::Ready);
    assert_eq!(names(&mcp), ["echo"]);
    let expected = steps(&[
        ("tools/list", Some("s1")),
        ("initialize", None),
        ("notifications/initialized", Some("s2")),
        ("tools/list", Some("s2")),
    ]);
    assert_eq!(sequence(&world), expected);
    let row = stored(&world);
    assert!(row.contains(r#""s2""#) && !row.contains(r#""s1""#), "{row}");

    world.network.forget();
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(sequence(&world), steps(&[("tools/list", Some("s2"))]));
    assert_eq!(state(&mcp), S::Ready);
    assert_eq!(echo(&mcp, &mut world, 1).unwrap(), r#"{"n":1}"#);
}

// ---- SE-05

fn no_valid_session(_: &Seen) -> Reply {
    Reply::typed(
        400,
        "text/plain",
        "Bad Request: No valid session ID provided",
    )
}

fn no_valid_session_in_json(_: &Seen) -> Reply {
    let error = json!({"code": -32000, "message": "Bad Request: No valid session ID provided"});
    Reply::Json(400, json!({"jsonrpc": "2.0", "id": null, "error": error}))
}

#[test]
fn se_05_a_lost_session_that_is_told_with_400_is_replaced() {
    for lost in [no_valid_session, no_valid_session_in_json] {
        for wakes in [false, true] {
            let server = CaseServer::that_says(lost);
            let mut world = server.world();
            let mut mcp = world.manager();
            add(&mut world, &mcp).unwrap();
            // As often as the server restarts.
            for n in 1..=3 {
                server.forget_sessions();
                world.network.forget();
                if wakes {
                    mcp = world.wake();
                    world.run(mcp.wait_for_connections(None));
                    assert_eq!(state(&mcp), S::Ready);
                }
                assert_eq!(
                    echo(&mcp, &mut world, n).unwrap(),
                    format!(r#"{{"n":{n}}}"#)
                );
                assert_eq!(count(&world, "initialize"), 1);
                assert_eq!(server.issued.get(), n + 1);
            }
        }
    }
}

#[test]
fn se_05_a_request_that_is_bad_costs_one_new_session_at_most() {
    type Case = (fn(&Seen) -> Reply, &'static str, u32);
    let refusals: [Case; 4] = [
        (
            |seen| {
                let error = json!({"code": -32602, "message": "bad argument: city"});
                Reply::Json(
                    400,
                    json!({"jsonrpc": "2.0", "id": seen.body["id"], "error": error}),
                )
            },
            "bad argument: city",
            1,
        ),
        (
            |seen| rpc_error(400, seen, -32603, Value::Null),
            "refused",
            1,
        ),
        (
            |_| Reply::typed(400, "text/plain", "city is missing"),
            "city is missing",
            2,
        ),
        (
            |seen| rpc_error(400, seen, -32000, Value::Null),
            "refused",
            2,
        ),
    ];
    for (refuse, text, sessions) in refusals {
        let server = CaseServer::with_sessions();
        let peer = server.clone();
        let mut world =
            world_with(
                move |seen| match seen.body["params"]["arguments"]["n"].as_u64() {
                    Some(0) => refuse(seen),
                    _ => peer.answer(seen),
                },
            );
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        for n in 1..=4 {
            let error = echo(&mcp, &mut world, 0).unwrap_err();
            assert!(error.describe().contains(text), "{}", error.describe());
            // Good requests in between do not make the bad ones better.
            echo(&mcp, &mut world, n).unwrap();
        }
        assert!(
            server.issued.get() <= sessions,
            "{text}: {}",
            server.issued.get()
        );
        assert_eq!(state(&mcp), S::Ready);
    }
}

// ---- SE-07

#[test]
fn se_07_a_lost_session_that_is_told_with_401_is_replaced_once() {
    for wakes in [false, true] {
        let server = CaseServer::that_says(|_| Reply::status(401));
        let mut world = server.world();
        let mut mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        for n in 1..=2 {
            server.forget_sessions();
            world.network.forget();
            if wakes {
                mcp = world.wake();
                world.run(mcp.wait_for_connections(None));
            }
            assert_eq!(
                echo(&mcp, &mut world, n).unwrap(),
                format!(r#"{{"n":{n}}}"#)
            );
            assert_eq!(count(&world, "initialize"), 1);
            assert_eq!(state(&mcp), S::Ready);
        }
    }
}

#[test]
fn se_07_a_server_that_keeps_saying_401_is_not_asked_for_ever() {
    for wakes in [false, true] {
        let server = CaseServer::with_sessions();
        let mut world = server.world();
        let mut mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        world.network.serve(URL, |_| Reply::status(401));
        world.network.forget();
        if wakes {
            mcp = world.wake();
            world.run(mcp.wait_for_connections(None));
            assert!(
                [S::Failed, S::Authenticating].contains(&state(&mcp)),
                "{:?}",
                state(&mcp)
            );
        } else {
            let error = echo(&mcp, &mut world, 1).unwrap_err();
            assert!(error.is_unauthorized(), "{error:?}");
        }
        for _ in 0..20 {
            world.advance(Duration::from_secs(10));
        }
        assert!(count(&world, "initialize") <= 1);
        assert!(
            world.network.methods().len() <= 4,
            "{:?}",
            world.network.methods()
        );
    }
}

#[test]
fn a_401_with_a_challenge_is_about_the_user_and_not_about_the_session() {
    let server = CaseServer::with_sessions();
    let peer = server.clone();
    let mut world = world_with(move |seen| match seen.rpc().as_str() {
        "tools/call" => {
            Reply::status(401).with("www-authenticate", "Bearer error=\"invalid_token\"")
        }
        _ => peer.answer(seen),
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    assert!(echo(&mcp, &mut world, 1).unwrap_err().is_unauthorized());
    assert_eq!(server.issued.get(), 1);
}

// ---- SE-09

#[test]
fn se_09_a_session_that_is_taken_up_again_speaks_the_revision_it_was_agreed_on() {
    let server = CaseServer::with_sessions();
    server.version.set("2025-06-18");
    let mut world = server.world();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.network.forget();
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), S::Ready);
    echo(&mcp, &mut world, 1).unwrap();
    assert_eq!(server.issued.get(), 1, "not taken up");
    let seen = world.network.seen.borrow();
    assert!(!seen.is_empty());
    for seen in seen.iter() {
        assert_eq!(seen.header("mcp-protocol-version"), Some("2025-06-18"));
        assert_eq!(seen.header("mcp-session-id"), Some("s1"));
    }
}

#[test]
fn se_09_a_stored_session_without_a_revision_is_not_taken_up() {
    for version in [
        None,
        Some(json!("")),
        Some(json!("2019-01-01")),
        Some(json!(null)),
    ] {
        let server = CaseServer::with_sessions();
        server.version.set("2025-06-18");
        let mut world = server.world();
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        let mut options: Value = serde_json::from_str(&stored(&world)).unwrap();
        let transport = options["transport"].as_object_mut().unwrap();
        transport.remove("protocolVersion");
        if let Some(version) = version {
            transport.insert("protocolVersion".into(), version);
        }
        world.table.rows.borrow_mut()[0].server_options = Some(options.to_string());
        world.network.forget();
        let mcp = world.wake();
        world.run(mcp.wait_for_connections(None));
        assert_eq!(state(&mcp), S::Ready);
        let sequence = sequence(&world);
        let old = sequence
            .iter()
            .filter(|(_, id)| id.as_deref() == Some("s1"));
        assert_eq!(old.count(), 0, "{sequence:?}");
        assert_eq!(server.issued.get(), 2);
    }
}

// ---- SE-12

/// A server of HTTP+SSE that knows the newest of its sessions only.
fn rebooting(server: &Rc<SseServer>) -> World {
    let world = World::new();
    let opens = server.clone();
    world
        .network
        .serve(URL, move |seen| match seen.method.as_str() {
            "GET" => opens.open(),
            _ => Reply::status(405),
        });
    for number in 1..=5 {
        let posts = server.clone();
        let url = format!("https://pier.example/messages?sid={number}");
        world.network.serve(&url, move |seen| {
            if posts.opened.get() == number && posts.feed.borrow().is_some() {
                posts.post(seen)
            } else {
                Reply::status(404)
            }
        });
    }
    world
}

#[test]
fn se_12_a_server_of_sse_that_was_rebooted_is_connected_to_again() {
    // Whether the break of the stream has been noticed when the next call comes.
    for is_noticed in [true, false] {
        let server = SseServer::new("/messages?sid={}");
        let mut world = rebooting(&server);
        let mcp = world.manager();
        assert_eq!(add(&mut world, &mcp).unwrap(), S::Ready);
        for n in 1..=3 {
            let old = server.feed.take().unwrap();
            if is_noticed {
                old.reset();
                world.settle();
            }
            world.network.forget();
            assert_eq!(
                echo(&mcp, &mut world, n).unwrap(),
                format!(r#"{{"n":{n}}}"#)
            );
            assert_eq!(server.opened.get(), n + 1);
            assert_eq!(count(&world, "initialize"), 1);
            assert_eq!(count(&world, "notifications/initialized"), 1);
            assert_eq!(count(&world, "tools/call"), if is_noticed { 1 } else { 2 });
            assert_eq!(state(&mcp), S::Ready);
            drop(old);
        }
    }
}

#[test]
fn se_12_a_server_of_sse_that_stays_down_is_an_error_and_works_when_it_is_back() {
    let server = SseServer::new("/messages?sid={}");
    let mut world = rebooting(&server);
    let is_down = Rc::new(Cell::new(true));
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    server.reboot();
    let (peer, down) = (server.clone(), is_down.clone());
    world
        .network
        .serve(URL, move |seen| match seen.method.as_str() {
            _ if down.get() => Reply::Refused,
            "GET" => peer.open(),
            _ => Reply::status(405),
        });
    world.settle();
    for n in 1..=2 {
        let error = echo(&mcp, &mut world, n).unwrap_err();
        assert!(error.describe().contains("connection refused"), "{error:?}");
    }
    is_down.set(false);
    assert_eq!(echo(&mcp, &mut world, 3).unwrap(), r#"{"n":3}"#);
}

// ---- SE-13

#[test]
fn se_13_an_empty_session_id_is_no_session() {
    let server = CaseServer::stateless();
    let mut world = world_with(move |seen| match seen.rpc().as_str() {
        "initialize" => initialized(seen, "2025-11-25").with("mcp-session-id", ""),
        _ => server.answer(seen),
    });
    let mcp = world.manager();
    assert_eq!(add(&mut world, &mcp).unwrap(), S::Ready);
    echo(&mcp, &mut world, 1).unwrap();
    world.run(mcp.remove_server("pier")).unwrap();
    world.settle();
    let seen = world.network.seen.borrow();
    assert!(
        seen.iter()
            .all(|seen| seen.header("mcp-session-id").is_none())
    );
    assert!(seen.iter().all(|seen| seen.method != "DELETE"));
}

#[test]
fn se_13_an_id_that_cannot_be_sent_back_is_an_error() {
    let long = "x".repeat(5_000);
    for id in ["a b", "a\tb", " ", "é", &long] {
        let server = CaseServer::stateless();
        let id = id.to_owned();
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "initialize" => initialized(seen, "2025-11-25").with("mcp-session-id", &id),
            _ => server.answer(seen),
        });
        let mcp = world.manager();
        let error = add(&mut world, &mcp).unwrap_err();
        assert!(error.describe().contains("session id"), "{error:?}");
        assert_eq!(state(&mcp), S::Failed);
        let seen = world.network.seen.borrow();
        assert!(
            seen.iter()
                .all(|seen| seen.header("mcp-session-id").is_none())
        );
    }
}

#[test]
fn se_13_ids_on_later_answers_are_ignored() {
    let server = CaseServer::with_sessions();
    let peer = server.clone();
    let mut world = world_with(move |seen| {
        let reply = peer.answer(seen);
        match (seen.rpc().as_str(), reply) {
            ("initialize", reply) => reply,
            (_, Reply::Json(status, body)) => {
                Reply::typed(status, "application/json", body.to_string())
                    .with("mcp-session-id", "other")
            }
            (_, reply) => reply.with("mcp-session-id", "other"),
        }
    });
    let mcp = world.manager();
    assert_eq!(add(&mut world, &mcp).unwrap(), S::Ready);
    echo(&mcp, &mut world, 1).unwrap();
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    echo(&mcp, &mut world, 2).unwrap();
    world.run(mcp.remove_server("pier")).unwrap();
    world.settle();
    assert_eq!(server.issued.get(), 1);
    let seen = world.network.seen.borrow();
    assert!(
        seen.iter()
            .filter_map(|seen| seen.header("mcp-session-id"))
            .all(|id| id == "s1")
    );
    let last = seen.last().unwrap();
    assert_eq!(
        (&*last.method, last.header("mcp-session-id")),
        ("DELETE", Some("s1"))
    );
}

#[test]
fn a_handshake_without_an_id_ends_the_session_before_it() {
    let server = CaseServer::with_sessions();
    let mut world = server.world();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    // The server has been replaced by one that keeps no sessions.
    let next = CaseServer::stateless();
    world.network.serve(URL, move |seen| {
        if seen.header("mcp-session-id").is_some() {
            return Reply::status(404);
        }
        next.answer(seen)
    });
    echo(&mcp, &mut world, 1).unwrap();
    world.network.forget();
    echo(&mcp, &mut world, 2).unwrap();
    assert_eq!(sequence(&world), steps(&[("tools/call", None)]));
    assert!(!stored(&world).contains("s1"), "{}", stored(&world));
}

// ---- The end of a session

#[test]
fn a_session_is_ended_once_whatever_the_server_says_to_it() {
    for status in [200, 202, 204, 400, 401, 404, 405, 500, 0] {
        let server = CaseServer::with_sessions();
        let mut world = world_with(move |seen| match (seen.method.as_str(), status) {
            ("DELETE", 0) => Reply::Silence,
            ("DELETE", _) => Reply::status(status),
            _ => server.answer(seen),
        });
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        world.run(mcp.close_connection("pier")).unwrap();
        for _ in 0..10 {
            world.advance(Duration::from_secs(10));
        }
        assert_eq!(count(&world, "DELETE"), 1, "{status}");
        assert_eq!(world.network.open.get(), 0, "{status}");
    }
}

#[test]
fn connecting_anew_ends_the_session_before_and_no_other() {
    let server = CaseServer::with_sessions();
    let mut world = server.world();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.network.forget();
    world.run(mcp.connect_to_server("pier")).unwrap();
    world.settle();
    let ended: Vec<_> = {
        let seen = world.network.seen.borrow();
        let deletes = seen.iter().filter(|seen| seen.method == "DELETE");
        deletes
            .map(|seen| seen.header("mcp-session-id").unwrap().to_owned())
            .collect()
    };
    assert_eq!(ended, ["s1"]);
    assert_eq!(count(&world, "initialize"), 1);
}

#[test]
fn a_lost_session_is_not_ended_at_a_server_that_does_not_know_it() {
    let server = CaseServer::with_sessions();
    let mut world = server.world();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    server.forget_sessions();
    echo(&mcp, &mut world, 1).unwrap();
    world.settle();
    assert_eq!(count(&world, "DELETE"), 0);
}

#[test]
fn ids_are_used_once_over_every_new_session() {
    let server = CaseServer::with_sessions();
    let mut world = server.world();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    for n in 1..=3 {
        server.forget_sessions();
        echo(&mcp, &mut world, n).unwrap();
    }
    let mut call = Box::pin(mcp.call_tool("pier", "echo", json!({})));
    let _ = call.as_mut().now_or_never();
    drop(call);
    echo(&mcp, &mut world, 4).unwrap();
    let seen = world.network.seen.borrow();
    let mut ids: Vec<_> = seen
        .iter()
        .filter_map(|seen| seen.body["id"].as_i64())
        .collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
}

#[test]
fn a_server_that_is_lost_while_it_is_listed_is_listed_whole() {
    let server = CaseServer::with_sessions();
    let pages: Rc<RefCell<Vec<Value>>> = Rc::default();
    let (peer, log) = (server.clone(), pages.clone());
    let mut world = world_with(move |seen| {
        if seen.rpc() == "tools/list" {
            let cursor = seen.body["params"]["cursor"].clone();
            log.borrow_mut().push(cursor.clone());
            if cursor.is_null() {
                let page = json!({"tools": [{"name": "a", "inputSchema": {}}], "nextCursor": "2"});
                let Reply::Json(status, _) = peer.answer(seen) else {
                    return peer.answer(seen);
                };
                let answer = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": page});
                if log.borrow().len() == 1 {
                    peer.forget_sessions();
                }
                return Reply::Json(status, answer);
            }
        }
        peer.answer(seen)
    });
    let mcp = world.manager();
    assert_eq!(add(&mut world, &mcp).unwrap(), S::Ready);
    assert_eq!(names(&mcp), ["a", "echo"]);
    assert_eq!(server.issued.get(), 2);
    register(&mut world, &mcp, "other", "https://other.example/mcp");
}
