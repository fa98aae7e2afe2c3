//! Cases from public bug reports about MCP clients: what an eviction must not lose, and what is retried.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use futures::channel::oneshot;
use serde_json::{Value, json};
use workers_agents::oauth::ClientInformation;
use workers_agents::ports::{Clock as _, Timestamp};
use workers_agents::{
    CatalogFreshness, ConnectionState as S, Error, McpClientManager, RegisterServer, RetryOptions,
    TransportKind,
};

use crate::support::auth_world::{AuthWorld, CALLBACK, query};
use crate::support::case_server::CaseServer;
use crate::support::mcp_server::{result, tool};
use crate::support::streams::feed;
use crate::support::{Reply, Seen, URL, World, add, names, register, state};

const SECOND: Duration = Duration::from_secs(1);

/// Down, and perhaps to be tried again some other time.
fn is_down(mcp: &McpClientManager) -> bool {
    matches!(state(mcp), S::Failed | S::Reconnecting)
}

fn is_stored_once(world: &World) -> bool {
    world.table.rows.borrow().len() == 1
}

// ---- HB-11

/// How the attempt ends that nobody waits for any more.
const LATE_ENDS: [fn(Reply) -> Reply; 3] = [
    |answer| answer,
    |_| Reply::Refused,
    |_| Reply::typed(503, "text/plain", "late"),
];

/// The first answer to `method` comes when the test says so. What comes after is answered at once.
fn slow_once(
    world: &World,
    server: &Rc<CaseServer>,
    method: &'static str,
    end: fn(Reply) -> Reply,
) -> oneshot::Sender<()> {
    let (open, gate) = oneshot::channel();
    let (gate, server) = (Cell::new(Some(gate)), server.clone());
    world.network.serve(URL, move |seen| {
        let answer = server.answer(seen);
        if seen.rpc() != method {
            return answer;
        }
        match gate.take() {
            Some(gate) => Reply::Later(gate, Box::new(end(answer))),
            None => answer,
        }
    });
    open
}

#[test]
fn hb_11_the_end_of_an_attempt_for_a_server_that_was_removed_changes_nothing() {
    for end in LATE_ENDS {
        for method in ["initialize", "notifications/initialized", "tools/list"] {
            for is_wake in [false, true] {
                let server = CaseServer::with_sessions();
                let mut world = server.world();
                let mut mcp = world.manager();
                register(&mut world, &mcp, "pier", URL);
                let open = slow_once(&world, &server, method, end);
                let first = if is_wake {
                    mcp = world.wake();
                    world.settle();
                    None
                } else {
                    let adding = mcp.clone();
                    Some(world.start(async move {
                        adding.connect_to_server("pier").await?;
                        adding.discover_if_connected("pier", None).await
                    }))
                };
                world.advance(SECOND);
                assert!(matches!(state(&mcp), S::Connecting | S::Discovering));
                assert!(world.run(mcp.remove_server("pier")).unwrap());
                world.settle();
                if let Some(first) = first {
                    let outcome = first.outcome();
                    assert!(matches!(outcome, Some(Err(Error::Closed))), "{outcome:?}");
                }
                assert!(world.table.rows.borrow().is_empty());

                world.advance(SECOND / 2);
                assert_eq!(add(&mut world, &mcp).unwrap(), S::Ready);
                let session = server.known.borrow().clone();
                let changes = Rc::new(Cell::new(0));
                let counted = changes.clone();
                mcp.on_server_state_changed(move || counted.set(counted.get() + 1))
                    .detach();
                world.settle();
                changes.set(0);

                let _ = open.send(());
                world.settle();
                world.pass(SECOND * 120, SECOND);
                assert_eq!(state(&mcp), S::Ready, "{method} {is_wake}");
                assert_eq!(changes.get(), 0, "{method} {is_wake}");
                assert!(is_stored_once(&world));
                assert_eq!(*server.known.borrow(), session, "the successor's session");
                assert!(world.jobs.jobs.borrow().is_empty());
                world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
                assert!(world.run(mcp.remove_server("pier")).unwrap());
                assert!(world.table.rows.borrow().is_empty());
                assert!(world.catalogs.rows.borrow().is_empty());
            }
        }
    }
}

#[test]
fn hb_11_a_server_that_is_removed_while_it_connects_does_not_come_back() {
    for end in LATE_ENDS {
        let server = CaseServer::with_sessions();
        let mut world = server.world();
        let mcp = world.manager();
        register(&mut world, &mcp, "pier", URL);
        let open = slow_once(&world, &server, "initialize", end);
        let mcp = world.wake();
        world.settle();
        assert!(world.run(mcp.remove_server("pier")).unwrap());
        let _ = open.send(());
        world.pass(SECOND * 120, SECOND);
        assert_eq!(state(&mcp), S::NotConnected);
        assert!(world.table.rows.borrow().is_empty());
        assert!(world.catalogs.rows.borrow().is_empty());
        assert!(world.jobs.jobs.borrow().is_empty());
        assert_eq!(world.network.open.get(), 0);
        assert_eq!(world.clock.timers(), 0, "a timer");
    }
}

// ---- HB-12

#[test]
fn hb_12_an_attempt_that_an_eviction_has_cut_off_is_made_again() {
    for method in [
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/list",
    ] {
        let server = CaseServer::with_sessions();
        let mut world = server.world();
        let stuck = server.clone();
        let is_stuck = Rc::new(Cell::new(true));
        let sticks = is_stuck.clone();
        world.network.serve(URL, move |seen| {
            if sticks.get() && seen.rpc() == method {
                return Reply::Silence;
            }
            stuck.answer(seen)
        });
        let mcp = world.manager();
        register(&mut world, &mcp, "pier", URL);
        let _adding = world.start(async move {
            mcp.connect_to_server("pier").await?;
            mcp.discover_if_connected("pier", None).await
        });
        // Again and again, each time as far as it comes.
        for wake in 0..3 {
            let mcp = world.wake();
            world.settle();
            let now = state(&mcp);
            assert!(
                matches!(now, S::Connecting | S::Discovering),
                "{method} {wake}: {now}"
            );
        }
        // It never stays so for longer than the limits of all attempts together.
        let mcp = world.wake();
        world.pass(SECOND * 150, SECOND);
        let now = state(&mcp);
        let has_settled = is_down(&mcp) || (method == "tools/list" && now == S::Connected);
        assert!(has_settled, "{method}: {now}");
        assert_eq!(world.clock.timers(), 0, "a timer");
        world.run(mcp.wait_for_connections(None));

        is_stuck.set(false);
        world.jobs.jobs.borrow_mut().clear();
        let mcp = world.wake();
        world.run(mcp.wait_for_connections(None));
        assert_eq!(
            (state(&mcp), names(&mcp)),
            (S::Ready, vec!["echo".into()]),
            "{method}"
        );
        assert!(is_stored_once(&world));
    }
}

// ---- HB-14

/// Requests with this header only, in the order in which they came.
fn without_header(world: &World, name: &str, value: &str) -> Vec<String> {
    let seen = world.network.seen.borrow();
    let at_server = seen.iter().filter(|seen| seen.url == URL);
    let wrong = at_server.filter(|seen| seen.header(name) != Some(value));
    wrong.map(Seen::rpc).collect()
}

/// How often the server was tried in vain, when it is down for this wake.
fn attempts_of_a_wake(world: &mut AuthWorld) -> usize {
    let peer = world.network.peer(URL);
    let attempts = Rc::new(Cell::new(0));
    let counted = attempts.clone();
    world.network.serve(URL, move |_| {
        counted.set(counted.get() + 1);
        Reply::status(503)
    });
    world.wake_up();
    world.pass(SECOND * 14, SECOND / 20);
    world.network.serve(URL, move |seen| peer(seen));
    attempts.get()
}

#[test]
fn hb_14_no_wake_and_no_sign_in_takes_anything_of_what_was_said_at_registration() {
    let mut world = AuthWorld::new();
    let (id, secret) = ("the-given-client", "secret-of-the-given-client");
    world.watch.secret(secret);
    let known = json!({"client_secret": secret, "redirect_uris": [CALLBACK],
        "token_endpoint_auth_method": "client_secret_post"});
    world.server.clients.borrow_mut().insert(id.into(), known);
    let mut client = ClientInformation::public(id);
    client.client_secret = Some(secret.to_owned());
    client.token_endpoint_auth_method = Some("client_secret_post".to_owned());
    let retry = RetryOptions {
        max_attempts: 4,
        base_delay: SECOND / 10,
        max_delay: SECOND,
    };
    world.register_as("pier", |server| {
        server
            .transport(TransportKind::StreamableHttp)
            .header("X-Tenant", "harbour")
            .retry(retry)
            .client(client)
    });
    let before = world.row();
    world.sign_in();

    let check = |world: &mut AuthWorld, when: &str| {
        let row = world.row();
        assert_eq!(row.client_id.as_deref(), Some(id), "{when}");
        assert_eq!(row.callback_url, before.callback_url, "{when}");
        assert_eq!(
            (&row.name, &row.server_url),
            (&before.name, &before.server_url),
            "{when}"
        );
        let stored = |row: &workers_agents::ports::ServerRow| -> Value {
            serde_json::from_str(row.server_options.as_deref().unwrap()).unwrap()
        };
        let (now, then) = (stored(&row), stored(&before));
        assert_eq!(now["retry"], then["retry"], "{when}");
        assert_eq!(now["transport"]["type"], "streamable-http", "{when}");
        assert_eq!(
            now["transport"]["headers"], then["transport"]["headers"],
            "{when}"
        );
        // And they are heeded.
        world.call("echo").unwrap();
        let wrong = without_header(world, "x-tenant", "harbour");
        assert!(wrong.is_empty(), "{when}: {wrong:?}");
        assert!(world.server.registrations.borrow().is_empty(), "{when}");
        let asked = world.server.asked.borrow();
        assert!(
            asked.iter().all(|asked| asked.form["client_id"] == id),
            "{when}"
        );
        assert!(
            asked
                .iter()
                .all(|asked| asked.form["client_secret"] == secret),
            "{when}"
        );
    };
    check(&mut world, "signed in");
    for wake in 1..=3 {
        world.wake_up();
        assert_eq!(world.state(), S::Ready);
        check(&mut world, &format!("wake {wake}"));
    }
    assert_eq!(attempts_of_a_wake(&mut world), 4);
    check(&mut world, "after it was down");

    // The sign-in is over, and there is another.
    world.server.end_grants();
    let url = world.call_for_sign_in("echo");
    assert_eq!(query(&url)["client_id"], id);
    world.wake_up();
    let url = world.offered();
    assert_eq!(query(&url)["client_id"], id);
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert_eq!(world.state(), S::Ready);
    check(&mut world, "signed in again");
    for wake in 4..=6 {
        world.wake_up();
        check(&mut world, &format!("wake {wake}"));
    }
    assert_eq!(attempts_of_a_wake(&mut world), 4);

    // Only streamable HTTP was asked for: the older transport is not tried.
    world.network.serve(URL, |_| Reply::status(404));
    world.network.forget();
    world.wake_up();
    let methods: Vec<_> = world
        .network
        .seen
        .borrow()
        .iter()
        .map(|seen| seen.method.clone())
        .collect();
    assert!(!methods.contains(&"GET".to_owned()), "{methods:?}");
}

// ---- HB-15

/// When the server was tried, and how it fails each time; `None` answers.
struct Trials {
    at: RefCell<Vec<Timestamp>>,
    failures: Cell<usize>,
}

/// A server that fails so often at `method` before it works.
fn failing(
    server: &Rc<CaseServer>,
    method: &'static str,
    failures: usize,
    how: fn() -> Reply,
) -> (World, Rc<Trials>) {
    let world = World::new();
    let trials = Rc::new(Trials {
        at: RefCell::default(),
        failures: Cell::new(failures),
    });
    let (seen_by, clock, server) = (trials.clone(), world.clock.clone(), server.clone());
    world.network.serve(URL, move |seen| {
        if seen.rpc() != method {
            return server.answer(seen);
        }
        seen_by.at.borrow_mut().push(clock.now());
        match seen_by.failures.get() {
            0 => server.answer(seen),
            left => {
                seen_by.failures.set(left - 1);
                how()
            }
        }
    });
    (world, trials)
}

/// Every way to fail that may pass, without an error being thrown anywhere on the way.
const FAILURES: [fn() -> Reply; 3] = [
    || Reply::status(503),
    || Reply::Refused,
    || Reply::events(": nothing\n\n"),
];

/// Three attempts, `bound` apart at most.
fn register_with_three(world: &mut World, mcp: &McpClientManager) {
    let retry = RetryOptions {
        max_attempts: 3,
        base_delay: SECOND,
        max_delay: SECOND * 4,
    };
    let server = RegisterServer::new("pier", URL).retry(retry);
    world.run(mcp.register_server("pier", server)).unwrap();
}

#[test]
fn hb_15_a_wake_tries_a_server_that_fails_as_often_as_its_policy_says() {
    for how in FAILURES {
        for method in ["server/discover", "initialize"] {
            let server = CaseServer::with_sessions();
            let (mut world, trials) = failing(&server, method, 2, how);
            let mcp = world.manager();
            register_with_three(&mut world, &mcp);
            let mcp = world.wake();
            world.settle();
            assert_eq!(trials.at.borrow().len(), 1, "the next one waits");
            world.pass(SECOND * 10, SECOND / 20);
            assert_eq!(state(&mcp), S::Ready, "{method}");
            let at = trials.at.borrow().clone();
            assert_eq!(at.len(), 3, "{method}: {at:?}");
            assert!(at[0] < at[1] && at[1] < at[2], "{at:?}");
            assert!(at[2] - at[0] <= 2_000 + 4_000 + 100, "{at:?}");
            assert_eq!(names(&mcp), ["echo"]);
            assert!(world.jobs.jobs.borrow().is_empty());
        }
    }
}

#[test]
fn hb_15_a_server_that_goes_on_failing_is_tried_exactly_so_often_at_every_wake() {
    for how in FAILURES {
        let server = CaseServer::with_sessions();
        let (mut world, trials) = failing(&server, "server/discover", usize::MAX, how);
        let mcp = world.manager();
        register_with_three(&mut world, &mcp);
        for wake in 0..3 {
            trials.at.borrow_mut().clear();
            let begun = world.clock.now();
            let mcp = world.wake();
            world.settle();
            // The longest pause before any later attempt is not reached.
            world.pass(SECOND * 7, SECOND / 20);
            let at = trials.at.borrow().clone();
            assert_eq!(at.len(), 3, "wake {wake}: {at:?}");
            assert_eq!(at[0], begun);
            assert!(at[0] < at[1] && at[1] < at[2], "{at:?}");
            assert!(is_down(&mcp), "{}", state(&mcp));
            let error = mcp.connection("pier").unwrap().error;
            assert!(error.is_some_and(|error| error.is_transient()));
            assert_eq!(world.clock.timers(), 0, "a timer");
            world.run(mcp.wait_for_connections(None));
            // A minute on, with the object still in memory.
            world.pass(SECOND * 60, SECOND);
            assert_eq!(trials.at.borrow().len(), 3, "wake {wake}");
        }
    }
}

#[test]
fn hb_15_the_policy_counts_after_a_sign_in_too() {
    let mut world = AuthWorld::new();
    let retry = RetryOptions {
        max_attempts: 3,
        base_delay: SECOND,
        max_delay: SECOND * 4,
    };
    world.register_as("pier", |server| server.retry(retry));
    for (failures, ends_ready) in [(2, true), (usize::MAX, false)] {
        let url = world.connect();
        let back = world.server.consent(&url);
        let peer = world.network.peer(URL);
        let attempts = Rc::new(Cell::new(0));
        let (counted, regular) = (attempts.clone(), peer.clone());
        world.network.serve(URL, move |seen| {
            if seen.rpc() != "server/discover" {
                return regular(seen);
            }
            counted.set(counted.get() + 1);
            if counted.get() <= failures {
                Reply::status(503)
            } else {
                regular(seen)
            }
        });
        let (mcp, at) = (world.mcp.clone(), back.clone());
        let answer = world.start(async move { mcp.handle_callback(&at).await });
        world.pass(SECOND * 10, SECOND / 20);
        assert_eq!(attempts.get(), 3);
        assert_eq!(
            answer.outcome().unwrap().status(),
            302,
            "the sign-in itself is done"
        );
        if ends_ready {
            assert_eq!(world.state(), S::Ready);
        } else {
            assert!(is_down(&world.mcp), "{}", world.state());
        }
        world.network.serve(URL, move |seen| peer(seen));
        let mcp = world.mcp.clone();
        world.run(mcp.sign_out("pier")).unwrap();
    }
}

// ---- HB-20

#[test]
fn hb_20_a_call_that_a_deployment_cuts_off_is_not_made_again_by_itself() {
    let server = CaseServer::with_sessions();
    let mut world = server.world();
    let (stream, reply) = feed();
    let (reply, regular) = (Cell::new(Some(reply)), server.clone());
    world
        .network
        .serve(URL, move |seen| match seen.rpc().as_str() {
            "tools/list" => {
                let idempotent = json!({"name": "pay", "inputSchema": {"type": "object"},
                "annotations": {"idempotentHint": true, "readOnlyHint": true}});
                result(seen, json!({"tools": [tool("echo"), idempotent]}))
            }
            "tools/call" => reply.take().unwrap_or_else(|| regular.answer(seen)),
            _ => regular.answer(seen),
        });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let call = world.start(async move { mcp.call_tool("pier", "pay", json!({"n": 1})).await });
    stream.message(
        &json!({"jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": 1, "progress": 1}}),
    );
    world.advance(SECOND * 3);
    assert!(call.outcome().is_none());

    let mcp = world.wake();
    assert!(call.outcome().is_none(), "the caller went with the object");
    world.run(mcp.wait_for_connections(None));
    assert!(stream.is_gone(), "the exchange went with the object");
    world.pass(SECOND * 120, SECOND);
    assert_eq!(state(&mcp), S::Ready);
    assert_eq!(world.count("tools/call"), 1);
    // Nor is it asked for by its stream.
    assert!(
        world
            .sent("GET")
            .iter()
            .all(|seen| seen.header("last-event-id").is_none())
    );
    let answer = world.run(mcp.call_tool("pier", "echo", json!({"n": 2})));
    assert_eq!(answer.unwrap().text(), r#"{"n":2}"#);
    assert_eq!(world.count("tools/call"), 2);
}

// ---- Servers that were down at a wake

/// A world where this fails at a wake, and works afterwards: everything, or one method.
fn down_at_a_wake(failing: &'static str) -> (World, McpClientManager) {
    let server = CaseServer::with_sessions();
    let mut world = server.world();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let (is_down, regular) = (Rc::new(Cell::new(true)), server);
    let down = is_down.clone();
    world.network.serve(URL, move |seen| {
        if down.get() && (failing == "everything" || seen.rpc() == failing) {
            return Reply::status(503);
        }
        regular.answer(seen)
    });
    let mcp = world.wake();
    world.pass(SECOND * 20, SECOND);
    is_down.set(false);
    (world, mcp)
}

#[test]
fn a_server_that_a_call_brings_back_is_listed_again_and_ready() {
    let (mut world, mcp) = down_at_a_wake("everything");
    assert_eq!(state(&mcp), S::Reconnecting);
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    world.settle();
    assert_eq!(state(&mcp), S::Ready);
    assert_eq!(
        mcp.connection("pier").unwrap().freshness,
        CatalogFreshness::Fresh
    );
    assert!(world.jobs.jobs.borrow().is_empty());
}

#[test]
fn a_list_that_failed_at_a_wake_is_loaded_by_the_planned_attempt_though_the_object_is_awake() {
    let (mut world, mcp) = down_at_a_wake("tools/list");
    assert_eq!(state(&mcp), S::Connected);
    let job = world.jobs.jobs.borrow()[0].clone();
    world.run(mcp.run_job(&job)).unwrap();
    world.settle();
    assert_eq!(state(&mcp), S::Ready);
    assert_eq!(
        mcp.connection("pier").unwrap().freshness,
        CatalogFreshness::Fresh
    );
}
