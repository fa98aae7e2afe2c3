//! Corners of coming back: what is planned, what is fresh, and what is asked.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use workers_agents::{CatalogFreshness, ConnectionState as S, ReconnectPolicy};

use crate::support::auth_world::AuthWorld;
use crate::support::mcp_server::{modern, result, rpc_error, tool};
use crate::support::{Reply, URL, add, names, register, state, world_with};

#[test]
fn a_server_that_nothing_is_planned_for_has_failed() {
    let mut world = world_with(|_| Reply::Raw(503, vec![("retry-after", "600".into())], vec![]));
    world.options = world.options.clone().reconnect(ReconnectPolicy::Lazy);
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    let mcp = world.wake();
    world.settle();
    world.pass(Duration::from_mins(1), Duration::from_secs(1));
    assert_eq!(
        (
            state(&mcp),
            world.jobs.jobs.borrow().len(),
            world.clock.timers()
        ),
        (S::Failed, 0, 0)
    );
}

#[test]
fn a_server_that_is_renamed_between_two_attempts_comes_back() {
    let status = Rc::new(Cell::new(None));
    let down = status.clone();
    let mut world = world_with(move |seen| match down.get() {
        Some(status) => Reply::status(status),
        None => modern(seen),
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    status.set(Some(503));
    let mcp = world.wake();
    world.settle();
    assert_eq!(state(&mcp), S::Reconnecting);
    assert_eq!(world.jobs.jobs.borrow().len(), 0);
    world.run(mcp.rename_server("pier", "jetty")).unwrap();
    status.set(None);
    world.pass(Duration::from_mins(1), Duration::from_secs(1));
    let s = mcp.connection("jetty").unwrap().state;
    assert_eq!(
        (s, world.jobs.jobs.borrow().len(), world.clock.timers()),
        (S::Ready, 0, 0)
    );
}

#[test]
fn a_server_whose_lists_failed_is_listed_by_its_job() {
    let broken = Rc::new(Cell::new(false));
    let b = broken.clone();
    let mut world = world_with(move |seen| {
        if b.get() && seen.rpc() == "tools/list" {
            return Reply::status(503);
        }
        modern(seen)
    });
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    broken.set(true);
    world.table.rows.borrow_mut()[0].server_options = None;
    let mcp = world.wake();
    world.settle();
    world.pass(Duration::from_secs(20), Duration::from_secs(1));
    assert_eq!(state(&mcp), S::Connected);
    assert_eq!(world.jobs.jobs.borrow().len(), 1);
    broken.set(false);
    let job = world.jobs.jobs.borrow()[0].clone();
    world.run(mcp.run_job(&job)).unwrap();
    world.settle();
    assert_eq!(
        (state(&mcp), names(&mcp)),
        (S::Ready, vec!["echo".to_owned()])
    );
}

#[test]
fn new_lists_that_are_too_large_leave_no_old_ones_behind() {
    let long = Rc::new(Cell::new(false));
    let l = long.clone();
    let mut world = world_with(move |seen| {
        if l.get() && seen.rpc() == "tools/list" {
            let tools: Vec<_> = (0..50).map(|n| tool(&format!("new{n}"))).collect();
            return result(seen, json!({"resultType": "complete", "tools": tools}));
        }
        modern(seen)
    });
    world.options.max_stored_catalog_bytes = 500;
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    assert_eq!(world.catalogs.rows.borrow().len(), 1);
    long.set(true);
    world.run(mcp.close_connection("pier")).unwrap();
    world.run(mcp.connect_to_server("pier")).unwrap();
    world.run(mcp.discover_if_connected("pier", None)).unwrap();
    assert_eq!(names(&mcp).len(), 50);
    assert_eq!(
        world.catalogs.rows.borrow().len(),
        0,
        "out of date row stays"
    );
}

#[test]
fn renaming_a_server_that_was_only_registered_sends_nothing() {
    let mut world = world_with(modern);
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    world.network.forget();
    world.run(mcp.rename_server("pier", "jetty")).unwrap();
    world.settle();
    assert_eq!(world.network.methods(), [""; 0]);
}

#[test]
fn one_list_that_is_loaded_does_not_make_the_others_fresh() {
    let mismatch = Rc::new(Cell::new(0));
    let m = mismatch.clone();
    let mut world = world_with(move |seen| {
        let ok = |value: Value| result(seen, value);
        match seen.rpc().as_str() {
            "server/discover" => ok(
                json!({"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"prompts":{}}}),
            ),
            "prompts/list" => {
                if m.get() > 0 {
                    Reply::status(503)
                } else {
                    ok(json!({"resultType":"complete","prompts":[{"name":"old"}]}))
                }
            }
            "tools/call" if m.get() == 1 => {
                m.set(2);
                rpc_error(400, seen, -32020, Value::Null)
            }
            _ => modern(seen),
        }
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.options = world.options.clone().reconnect(ReconnectPolicy::Never);
    let mcp = world.wake();
    world.run(mcp.connect_to_server("pier")).unwrap();
    mismatch.set(1);
    let out = world.run(mcp.call_tool("pier", "echo", json!({})));
    let info = mcp.connection("pier").unwrap();
    assert_eq!(
        (info.freshness, mismatch.get(), out.is_ok()),
        (CatalogFreshness::Stored, 2, true)
    );
}

#[test]
fn a_lazy_server_that_waits_for_more_scopes_is_asked_nothing_at_a_wake() {
    let mut world = AuthWorld::with(|options| options.reconnect(ReconnectPolicy::Lazy));
    *world.pier.challenge_scope.borrow_mut() = Some("read".into());
    world
        .pier
        .needs
        .borrow_mut()
        .extend([("write", "write"), ("read", "read")]);
    world.register();
    world.sign_in();
    let _ = world.call_for_sign_in("write");
    world.network.forget();
    world.wake_up();
    assert_eq!(
        (world.network.methods(), names(&world.mcp).is_empty()),
        (vec![], false)
    );
}
