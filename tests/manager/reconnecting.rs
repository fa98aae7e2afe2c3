//! Servers that stay down: tried again later, by a job that wakes the object.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;
use workers_agents::ports::{Clock as _, Jobs as _};
use workers_agents::{ConnectionState as S, ReconnectPolicy, RetryOptions};

use crate::support::mcp_server::modern;
use crate::support::{Reply, URL, World, add, names, register, state, world_with};

/// A world with a server that can be down, and whose lists are stored.
fn world() -> (World, Rc<Cell<Option<u16>>>) {
    let status = Rc::new(Cell::new(None));
    let down = status.clone();
    let mut world = world_with(move |seen| match down.get() {
        Some(status) => Reply::status(status),
        None => modern(seen),
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    (world, status)
}

/// Lets the attempts of the server's own policy fail.
fn wake_in_vain(world: &mut World) -> workers_agents::McpClientManager {
    let mcp = world.wake();
    world.settle();
    world.pass(Duration::from_secs(20), Duration::from_secs(1));
    mcp
}

#[test]
fn a_server_that_stays_down_is_tried_again_by_an_alarm_and_nothing_stays_awake() {
    let (mut world, status) = world();
    status.set(Some(503));
    let mcp = wake_in_vain(&mut world);
    assert_eq!(state(&mcp), S::Reconnecting);
    assert!(mcp.connection("pier").unwrap().error.is_some());
    assert_eq!(names(&mcp), ["echo"], "what it offered is known");
    assert_eq!(world.clock.timers(), 0, "a timer");
    world.run(mcp.wait_for_connections(None));

    // The pauses grow, up to the longest.
    let mut longest = 0;
    for attempt in 2..22 {
        world.network.forget();
        let mcp = world.wake_by_alarm();
        let pause = world.jobs.jobs.borrow()[0].at - world.clock.now();
        let most = (30_000_u64 << attempt.min(10)).min(3_600_000);
        assert!((5_000..=most).contains(&pause), "{attempt}: {pause}");
        longest = longest.max(pause);
        assert_eq!(world.network.methods().len(), 1);
        assert_eq!(state(&mcp), S::Reconnecting);
        assert_eq!(world.jobs.jobs.borrow().len(), 1);
        assert_eq!(world.clock.timers(), 0, "a timer");
    }
    assert!(longest > 60_000, "{longest}");

    status.set(None);
    let mcp = world.wake_by_alarm();
    assert_eq!(state(&mcp), S::Ready);
    assert_eq!(world.jobs.jobs.borrow().len(), 0);
}

#[test]
fn an_alarm_for_one_server_wakes_no_other() {
    let (mut world, status) = world();
    world.network.serve("https://other.example/mcp", modern);
    let mcp = world.manager();
    register(&mut world, &mcp, "other", "https://other.example/mcp");
    status.set(Some(503));
    wake_in_vain(&mut world);
    world.network.forget();
    let mcp = world.wake_by_alarm();
    assert_eq!(world.network.methods().len(), 1);
    assert_eq!(state(&mcp), S::Reconnecting);
    // It comes back when somebody comes.
    world.run(mcp.wait_for_connections(None));
    assert_eq!(mcp.connection("other").unwrap().state, S::Ready);
}

#[test]
fn attempts_come_to_an_end() {
    let (mut world, status) = world();
    world.options = world.options.clone().reconnect_later(RetryOptions {
        max_attempts: 3,
        ..world.options.reconnect_later
    });
    status.set(Some(503));
    wake_in_vain(&mut world);
    for _ in 0..2 {
        let mcp = world.wake_by_alarm();
        assert_eq!(state(&mcp), S::Reconnecting);
    }
    let mcp = world.wake_by_alarm();
    assert_eq!(state(&mcp), S::Failed);
    assert_eq!(world.jobs.jobs.borrow().len(), 0);
}

#[test]
fn what_does_not_pass_is_not_tried_again() {
    for permanent in [403, 400, 404] {
        let (mut world, status) = world();
        status.set(Some(permanent));
        world.table.rows.borrow_mut()[0].server_options = None;
        let mcp = wake_in_vain(&mut world);
        assert_eq!(state(&mcp), S::Failed, "{permanent}");
        assert_eq!(world.jobs.jobs.borrow().len(), 0);

        // And a server that was only down before ends its plan by saying so.
        status.set(Some(503));
        wake_in_vain(&mut world);
        assert_eq!(world.jobs.jobs.borrow().len(), 1);
        status.set(Some(permanent));
        let mcp = world.wake_by_alarm();
        assert_eq!(state(&mcp), S::Failed, "{permanent}");
        assert_eq!(world.jobs.jobs.borrow().len(), 0);
    }
    // A URL that is not to be used any more.
    let (mut world, _) = world();
    world.table.rows.borrow_mut()[0].server_url = "http://10.0.0.1/mcp".into();
    let mcp = wake_in_vain(&mut world);
    assert_eq!(state(&mcp), S::Failed);
    assert_eq!(world.jobs.jobs.borrow().len(), 0);
}

#[test]
fn a_server_that_asks_for_time_gets_it_over_wakes() {
    let (mut world, _) = world();
    world.network.serve(URL, |_| {
        Reply::Raw(503, vec![("retry-after", "600".into())], vec![])
    });
    let mcp = world.wake();
    world.settle();
    assert_eq!(state(&mcp), S::Reconnecting);
    assert_eq!(world.clock.timers(), 0, "a timer");
    let at = world.jobs.jobs.borrow()[0].at;
    assert!(at >= world.clock.now() + 600_000);
    world.network.forget();

    // Somebody comes meanwhile.
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), S::Reconnecting);
    assert_eq!(world.network.methods(), [""; 0]);
    assert_eq!(names(&mcp), ["echo"]);
    // Who needs it now asks it all the same.
    world.network.serve(URL, modern);
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    assert_eq!(world.jobs.jobs.borrow().len(), 0);
}

#[test]
fn a_call_is_an_attempt_too() {
    let (mut world, status) = world();
    status.set(Some(503));
    let mcp = wake_in_vain(&mut world);
    let refused = world.run(mcp.call_tool("pier", "echo", json!({})));
    assert!(refused.unwrap_err().is_transient());
    assert_eq!(world.jobs.jobs.borrow().len(), 1, "the plan stands");
    status.set(None);
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    assert_eq!(world.jobs.jobs.borrow().len(), 0);
    assert!(mcp.connection("pier").unwrap().state.is_open());
}

#[test]
fn nothing_is_planned_for_servers_that_are_gone_closed_lazy_or_replaced() {
    let (mut world, status) = world();
    status.set(Some(503));
    let mcp = wake_in_vain(&mut world);
    world.run(mcp.close_connection("pier")).unwrap();
    assert_eq!(world.jobs.jobs.borrow().len(), 0);

    let mcp = wake_in_vain(&mut world);
    assert_eq!(world.jobs.jobs.borrow().len(), 1);
    register(&mut world, &mcp, "pier", "https://other.example/mcp");
    assert_eq!(world.jobs.jobs.borrow().len(), 0);

    register(&mut world, &mcp, "pier", URL);
    let mcp = wake_in_vain(&mut world);
    assert_eq!(world.jobs.jobs.borrow().len(), 1);
    world.run(mcp.remove_server("pier")).unwrap();
    assert_eq!(world.jobs.jobs.borrow().len(), 0);

    let (mut world, status) = self::world();
    world.options = world.options.clone().reconnect(ReconnectPolicy::Lazy);
    status.set(Some(503));
    let mcp = wake_in_vain(&mut world);
    let refused = world.run(mcp.call_tool("pier", "echo", json!({})));
    assert!(refused.unwrap_err().is_transient());
    assert_eq!(world.jobs.jobs.borrow().len(), 0);
    // The next use tries again.
    status.set(None);
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
}

#[test]
fn a_job_that_nobody_can_make_sense_of_is_done_with() {
    let (mut world, status) = world();
    status.set(Some(503));
    let mcp = wake_in_vain(&mut world);
    let job = world.jobs.list().unwrap().remove(0);
    for (function, payload) in [
        ("reconnect", "{"),
        ("reconnect", r#"{"serverId":"nobody","attempts":1}"#),
        ("else", r#"{"serverId":"pier","attempts":1}"#),
    ] {
        let job = workers_agents::ports::Job {
            function: function.into(),
            payload: payload.into(),
            ..job.clone()
        };
        world.network.forget();
        let outcome = world.run(mcp.run_job(&job));
        assert!(matches!(
            outcome,
            Ok(workers_agents::ports::JobOutcome::Done)
        ));
        assert_eq!(world.network.methods(), [""; 0]);
    }
}
