//! What random sequences have found, step by step.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use workers_agents::ports::{Clock as _, Jobs as _};
use workers_agents::{
    ConnectionState as S, McpClientManager, ReconnectPolicy, RegisterServer, RetryOptions,
};

use crate::support::mcp_server::modern;
use crate::support::{Reply, URL, World, add, register, state, world_with};

/// A server that can be down, or whose lists can.
fn world(only_lists: bool) -> (World, Rc<Cell<Option<u16>>>) {
    let status = Rc::new(Cell::new(None));
    let down = status.clone();
    let mut world = world_with(move |seen| match down.get() {
        Some(status) if !only_lists || seen.rpc() == "tools/list" => Reply::status(status),
        _ => modern(seen),
    });
    let mcp = world.manager();
    if only_lists {
        register(&mut world, &mcp, "pier", URL);
    } else {
        add(&mut world, &mcp).unwrap();
    }
    (world, status)
}

fn wake_in_vain(world: &mut World) -> McpClientManager {
    let mcp = world.wake();
    world.settle();
    world.pass(Duration::from_secs(20), Duration::from_secs(1));
    mcp
}

/// Runs the next job without an eviction, as an alarm does while the object is awake.
fn run_job(world: &mut World, mcp: &McpClientManager) {
    let job = world.jobs.list().unwrap().remove(0);
    world.advance(Duration::from_millis(
        job.at.saturating_sub(world.clock.now()),
    ));
    world.run(mcp.run_job(&job)).unwrap();
    world.jobs.jobs.borrow_mut().retain(|other| *other != job);
}

#[test]
fn a_server_that_somebody_connects_is_planned_no_more() {
    let (mut world, status) = world(false);
    status.set(Some(503));
    let mcp = wake_in_vain(&mut world);
    status.set(None);
    world.run(mcp.connect_to_server("pier")).unwrap();
    assert_eq!(world.jobs.jobs.borrow().len(), 0);
}

#[test]
fn a_list_that_somebody_loads_is_planned_no_more() {
    let (mut world, status) = world(true);
    status.set(Some(503));
    let mcp = wake_in_vain(&mut world);
    assert_eq!(state(&mcp), S::Connected);
    status.set(None);
    world.run(mcp.discover_if_connected("pier", None)).unwrap();
    assert_eq!(world.jobs.jobs.borrow().len(), 0);
}

#[test]
fn a_lazy_server_that_asks_for_time_has_failed() {
    let mut world = World::new();
    world.options = world.options.clone().reconnect(ReconnectPolicy::Lazy);
    world.network.serve(URL, |_| {
        Reply::Raw(503, vec![("retry-after", "600".into())], vec![])
    });
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    let mcp = wake_in_vain(&mut world);
    assert_eq!(
        (world.jobs.jobs.borrow().len(), world.clock.timers()),
        (0, 0)
    );
    assert_eq!(state(&mcp), S::Failed);
}

#[test]
fn a_server_that_is_renamed_between_two_attempts_is_tried_again() {
    let (mut world, status) = world(false);
    status.set(Some(503));
    let mcp = world.wake();
    world.settle();
    assert_eq!(state(&mcp), S::Reconnecting);
    let renaming = mcp.clone();
    let renamed = world.start(async move { renaming.rename_server("pier", "quay").await });
    world.settle();
    renamed.outcome().unwrap().unwrap();
    world.pass(Duration::from_secs(20), Duration::from_secs(1));
    assert_eq!(mcp.connection("quay").unwrap().state, S::Reconnecting);
    assert_eq!(world.jobs.jobs.borrow().len(), 1);
}

#[test]
fn a_server_that_becomes_lazy_while_it_is_planned_has_failed() {
    let (mut world, status) = world(false);
    status.set(Some(503));
    let mcp = wake_in_vain(&mut world);
    let lazy = RegisterServer::new("pier", URL).reconnect(ReconnectPolicy::Lazy);
    world.run(mcp.register_server("pier", lazy)).unwrap();
    run_job(&mut world, &mcp);
    assert_eq!(world.jobs.jobs.borrow().len(), 0);
    assert_ne!(state(&mcp), S::Reconnecting);
}

#[test]
fn lists_that_could_not_be_had_are_had_by_the_job_although_the_connection_is_open() {
    let (mut world, status) = world(true);
    status.set(Some(503));
    let mcp = wake_in_vain(&mut world);
    assert_eq!(state(&mcp), S::Connected);
    assert_eq!(world.jobs.jobs.borrow().len(), 1);
    status.set(None);
    run_job(&mut world, &mcp);
    assert_eq!(state(&mcp), S::Ready);
}

#[test]
fn an_attempt_that_a_wake_and_a_job_wait_for_counts_once() {
    let (mut world, status) = world(false);
    world.options = world.options.clone().reconnect_later(RetryOptions {
        max_attempts: 2,
        ..world.options.reconnect_later
    });
    let mcp = world.manager();
    let once = RetryOptions {
        max_attempts: 1,
        ..RetryOptions::CONNECT
    };
    world
        .run(
            mcp.register_server(
                "pier",
                RegisterServer::new("pier", URL)
                    .header("x-key", "1")
                    .retry(once),
            ),
        )
        .unwrap();
    status.set(Some(503));
    wake_in_vain(&mut world);
    world.network.serve(URL, |_| Reply::Silence);
    let job = world.jobs.list().unwrap().remove(0);
    world.advance(Duration::from_mins(2));
    let mcp = world.wake();
    world.settle();
    let (running, it) = (mcp.clone(), job.clone());
    let run = world.start(async move { running.run_job(&it).await });
    world.pass(Duration::from_secs(40), Duration::from_secs(1));
    run.outcome().unwrap().unwrap();
    world.jobs.jobs.borrow_mut().retain(|other| *other != job);
    // Either it is tried again, or it is not said to be.
    let is_planned = !world.jobs.jobs.borrow().is_empty();
    assert_eq!(state(&mcp) == S::Reconnecting, is_planned);
    assert!(is_planned, "the second of two attempts is still to come");
}

#[test]
fn a_new_server_inherits_no_sign_in() {
    let (mut world, _) = world(false);
    let mcp = world.manager();
    // An eviction in the middle of a rename leaves it.
    world
        .keys
        .values
        .borrow_mut()
        .insert("/gull/quay/token".into(), "1".into());
    register(&mut world, &mcp, "quay", "https://quay.example/mcp");
    assert!(world.keys.values.borrow().is_empty());
}
