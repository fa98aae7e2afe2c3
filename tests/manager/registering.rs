//! Registering servers: what is stored, refused, kept and told.

use std::rc::Rc;

use serde_json::{Value, json};
use workers_agents::{ConnectionState as S, Error, RegisterServer, ServerFilter};

use crate::support::{Reply, URL, World, add, register, state, world_with_legacy};

#[test]
fn registering_stores_and_sends_nothing() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    assert_eq!(world.table.rows.borrow().len(), 1);
    assert_eq!(world.network.methods(), [""; 0]);
    assert_eq!(state(&mcp), S::Connecting);
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
fn registering_anew_reaches_the_live_connection_when_something_changed() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    register(&mut world, &mcp, "pier", URL);
    assert_eq!(state(&mcp), S::Ready, "nothing changed");
    let keyed = RegisterServer::new("pier", URL).header("x-key", "1");
    world.run(mcp.register_server("pier", keyed)).unwrap();
    assert_eq!(state(&mcp), S::Connecting);
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
fn listeners_hear_once_of_what_changes_at_a_stroke_and_may_ask_back() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    let states = Rc::new(std::cell::RefCell::new(Vec::new()));
    let (heard, asked) = (states.clone(), mcp.clone());
    let subscription = mcp.on_server_state_changed(move || heard.borrow_mut().push(state(&asked)));
    register(&mut world, &mcp, "pier", URL);
    world.settle();
    assert_eq!(states.take(), [S::Connecting]);
    // A server that lets us wait shows what it is waited for.
    let (open, gate) = futures::channel::oneshot::channel();
    let (peer, gate) = (world.network.peer(URL), std::cell::Cell::new(Some(gate)));
    world.network.serve(URL, move |seen| match gate.take() {
        Some(gate) => Reply::Later(gate, Box::new(peer(seen))),
        None => peer(seen),
    });
    let connecting = mcp.clone();
    let added = world.start(async move {
        connecting.connect_to_server("pier").await?;
        connecting.discover_if_connected("pier", None).await
    });
    world.settle();
    assert_eq!(states.take(), [S::Connecting]);
    open.send(()).unwrap();
    world.settle();
    added.outcome().unwrap().unwrap();
    // Nothing else was waited for.
    assert_eq!(states.take(), [S::Ready]);
    world.run(mcp.remove_server("pier")).unwrap();
    world.settle();
    assert_eq!(states.take(), [S::NotConnected]);
    drop(subscription);
    register(&mut world, &mcp, "pier", URL);
    world.settle();
    assert_eq!(states.take(), [] as [S; 0]);
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

#[test]
fn every_transport_that_is_spoken_can_be_chosen() {
    use workers_agents::TransportKind;
    let mut world = World::new();
    let mcp = world.manager();
    for (name, kind) in [
        ("auto", TransportKind::Auto),
        ("http", TransportKind::StreamableHttp),
        ("sse", TransportKind::Sse),
    ] {
        let server = RegisterServer::new(name, URL).transport(kind.clone());
        world.run(mcp.register_server(name, server)).unwrap();
        let stored = mcp.server(name).unwrap().unwrap();
        assert_eq!(stored.transport(), kind);
    }
}
