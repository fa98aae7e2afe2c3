//! Giving a server another id.

use std::time::Duration;

use futures::channel::oneshot;
use serde_json::json;
use workers_agents::ports::{Jobs as _, TaskRow, TaskStore as _};
use workers_agents::{ConnectionState as S, Error, ServerId};

use crate::support::mcp_server::modern;
use crate::support::{Reply, URL, add, names, register, world_with, world_with_legacy};

#[test]
fn everything_goes_with_a_server_and_its_session_lives_on() {
    let (mut world, server) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let task = TaskRow {
        server_id: "pier".into(),
        task_id: "t".into(),
        tool: "echo".into(),
        started_at: 0,
        expires_at: None,
    };
    world.tasks.put(&task).unwrap();
    world.network.forget();

    let id = world.run(mcp.rename_server("pier", "jetty")).unwrap();
    assert_eq!(id, ServerId::verbatim("jetty"));
    world.settle();
    assert_eq!(names(&mcp), ["echo", "add"]);
    assert_eq!(mcp.connection("jetty").unwrap().state, S::Ready);
    assert!(mcp.connection("pier").is_none());
    assert!(matches!(
        world.run(mcp.call_tool("pier", "echo", json!({}))),
        Err(Error::UnknownServer(_))
    ));
    world
        .run(mcp.call_tool("jetty", "echo", json!({})))
        .unwrap();
    assert_eq!(server.sessions.get(), 1);
    let methods = world.network.methods();
    assert!(
        !methods
            .iter()
            .any(|method| method == "DELETE" || method == "initialize"),
        "{methods:?}"
    );
    let rows = world.table.rows.borrow().clone();
    assert_eq!((rows.len(), &*rows[0].id), (1, "jetty"));
    assert_eq!(world.tasks.rows.borrow()[0].server_id, "jetty");
    let catalogs = world.catalogs.rows.borrow();
    assert_eq!(catalogs.keys().collect::<Vec<_>>(), ["jetty"]);
    drop(catalogs);

    let mcp = world.wake();
    assert_eq!(names(&mcp), ["echo", "add"]);
}

#[test]
fn an_id_that_is_taken_or_none_or_unknown_changes_nothing() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    register(&mut world, &mcp, "taken", URL);
    let before = world.table.rows.borrow().clone();
    let refused = world.run(mcp.rename_server("pier", "taken"));
    assert!(matches!(refused, Err(Error::ServerIdInUse { .. })));
    let refused = world.run(mcp.rename_server("pier", ""));
    assert!(matches!(refused, Err(Error::InvalidOption(_))));
    let refused = world.run(mcp.rename_server("nobody", "somebody"));
    assert!(matches!(refused, Err(Error::UnknownServer(_))));
    world.run(mcp.rename_server("pier", "pier")).unwrap();
    assert!(*world.table.rows.borrow() == before);
    assert_eq!(mcp.connection("pier").unwrap().state, S::Ready);
}

#[test]
fn what_is_under_way_is_waited_for_and_given_up_in_the_end() {
    for is_answered in [true, false] {
        let (mut world, _) = world_with_legacy();
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        let (open, gate) = oneshot::channel();
        let gate = std::cell::Cell::new(Some(gate));
        let peer = world.network.peer(URL);
        world.network.serve(URL, move |seen| {
            if seen.rpc() == "tools/call"
                && let Some(gate) = gate.take()
            {
                return Reply::Later(gate, Box::new(peer(seen)));
            }
            peer(seen)
        });
        let calling = mcp.clone();
        let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
        let renaming = mcp.clone();
        let rename = world.start(async move { renaming.rename_server("pier", "jetty").await });
        world.pass(Duration::from_secs(2), Duration::from_millis(20));
        assert!(rename.outcome().is_none());
        if is_answered {
            open.send(()).unwrap();
            world.pass(Duration::from_millis(100), Duration::from_millis(20));
            call.outcome().unwrap().unwrap();
        } else {
            world.pass(Duration::from_secs(30), Duration::from_secs(1));
            let outcome = call.outcome().unwrap();
            assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
        }
        rename.outcome().unwrap().unwrap();
        world.settle();
        assert_eq!(mcp.connection("jetty").unwrap().state, S::Ready);
    }
}

#[test]
fn a_planned_attempt_is_one_for_the_new_id() {
    let mut world = world_with(modern);
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.network.serve(URL, |_| Reply::status(503));
    let mcp = world.wake();
    world.settle();
    world.pass(Duration::from_secs(20), Duration::from_secs(1));
    world.run(mcp.rename_server("pier", "jetty")).unwrap();
    assert_eq!(mcp.connection("jetty").unwrap().state, S::Reconnecting);
    assert_eq!(world.jobs.list().unwrap().len(), 1);
    assert_eq!(names(&mcp), ["echo"]);
    world.network.serve(URL, modern);
    let mcp = world.wake_by_alarm();
    assert_eq!(mcp.connection("jetty").unwrap().state, S::Ready);
    assert_eq!(world.jobs.list().unwrap().len(), 0);
}

#[test]
fn crosswise_and_repeated_renames_come_to_an_end() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let outcomes = world.run(futures::future::join3(
        mcp.rename_server("pier", "a"),
        mcp.rename_server("a", "pier"),
        mcp.rename_server("pier", "b"),
    ));
    assert!(outcomes.0.is_ok());
    assert_eq!(world.table.rows.borrow().len(), 1);
}
