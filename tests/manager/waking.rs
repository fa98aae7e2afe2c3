//! What an object does when it comes back with an empty memory.

use std::cell::Cell;
use std::time::Duration;

use futures::channel::oneshot;
use serde_json::{Value, json};
use workers_agents::ports::ServerRow;
use workers_agents::{ConnectionState as S, Error, RegisterServer, RetryOptions, ServerFilter};

use crate::support::mcp_server::modern;
use crate::support::{
    Reply, URL, World, add, names, register, state, world_with, world_with_legacy,
};

#[test]
fn a_wake_takes_up_the_stored_agreement() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.network.forget();
    let mcp = world.wake();
    assert_eq!(state(&mcp), S::Connecting);
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), S::Ready);
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
    assert_eq!(state(&mcp), S::Ready);
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
    assert_eq!(state(&mcp), S::Ready);
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
        mcp.list_tools(&ServerFilter::all().state(S::Ready)).len(),
        20
    );
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
    assert_eq!(state(&mcp), S::Connecting);
    open.send(()).unwrap();
    world.settle();
    assert_eq!(state(&mcp), S::Ready);
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
        // What may pass is planned to be tried later.
        let later = if status == 503 {
            S::Reconnecting
        } else {
            S::Failed
        };
        assert_eq!(state(&mcp), later);
        world.run(mcp.wait_for_connections(None));
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
fn a_server_that_is_down_at_a_wake_is_said_to_be_whatever_was_stored_and_tried_again() {
    let (mut world, server) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.network.serve(URL, |_| Reply::Refused);
    let mcp = world.wake();
    world.settle();
    assert_eq!(state(&mcp), S::Reconnecting);
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
    assert_eq!(state(&mcp), S::Ready);
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
fn what_a_server_says_of_itself_cannot_spoil_its_row() {
    let deep = "[".repeat(110) + &"]".repeat(110);
    let mut world = world_with(move |seen| match seen.rpc().as_str() {
        "server/discover" => Reply::typed(
            200,
            "application/json",
            format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{{"supportedVersions":["2026-07-28"],
                    "capabilities":{{"tools":{{}}}},"serverInfo":{deep},"instructions":{deep}}}}}"#,
                seen.body["id"]
            ),
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
fn a_server_that_waits_for_its_user_is_parked() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    world.table.rows.borrow_mut()[0].auth_url = Some("https://as.example/authorize?state=x".into());
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), S::Authenticating);
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
fn restoring_leaves_alone_what_is_live() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    mcp.restore().unwrap();
    world.settle();
    assert_eq!(names(&mcp), ["echo", "add"]);
}

#[test]
fn a_stored_policy_cannot_make_a_wake_a_storm() {
    let mut world = world_with(|_| Reply::status(503));
    let mcp = world.manager();
    let wild = RetryOptions {
        max_attempts: u32::MAX,
        ..RetryOptions::CONNECT
    };
    let wild = RegisterServer::new("pier", URL).retry(wild);
    assert!(matches!(
        world.run(mcp.register_server("pier", wild)),
        Err(Error::InvalidRetry(_))
    ));
    register(&mut world, &mcp, "pier", URL);
    let retry = r#"{"retry":{"maxAttempts":4294967295,"baseDelayMs":0,"maxDelayMs":0}}"#;
    world.table.rows.borrow_mut()[0].server_options = Some(retry.into());
    let _mcp = world.wake();
    world.settle();
    assert_eq!(world.network.methods().len(), 1);
    for _ in 0..300 {
        world.advance(Duration::from_millis(50));
    }
    assert_eq!(world.network.methods().len(), 100);
}

#[test]
fn waiting_goes_on_with_an_attempt_that_replaced_the_one_waited_for() {
    let (mut world, server) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let (open, gate) = oneshot::channel();
    let gate = Cell::new(Some(gate));
    world
        .network
        .serve(URL, move |seen| match seen.rpc().as_str() {
            "tools/list" => match gate.take() {
                // The list of the wake never comes.
                Some(gate) => Reply::Later(gate, Box::new(Reply::Silence)),
                None => server.answer(seen),
            },
            _ => server.answer(seen),
        });
    let mcp = world.wake();
    let waiting = mcp.clone();
    let waited = world.start(async move { waiting.wait_for_connections(None).await });
    assert!(waited.outcome().is_none());
    world.run(mcp.connect_to_server("pier")).unwrap();
    world.settle();
    assert!(waited.outcome().is_some());
    assert_eq!(names(&mcp), ["echo", "add"]);
    drop(open);
}

#[test]
fn a_server_that_lets_us_in_no_longer_waits_for_its_user() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    world.table.rows.borrow_mut()[0].auth_url = Some("https://as.example/authorize?state=x".into());
    let mcp = world.wake();
    world.run(mcp.connect_to_server("pier")).unwrap();
    assert_eq!(world.table.rows.borrow()[0].auth_url, None);

    world.table.rows.borrow_mut()[0].auth_url = Some(String::new());
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), S::Ready, "an empty URL is none");
}
