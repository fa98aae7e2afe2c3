//! Adding servers: the same one twice is one, whatever state it is in.

use futures::future::join;
use workers_agents::{
    AddMcpServer, AddedServer, ConnectionState as S, Error, McpClientManager, RegisterServer,
    ServerFilter,
};

use crate::support::auth_world::AuthWorld;
use crate::support::{Reply, URL, World, world_with_legacy};

fn add(
    world: &mut World,
    mcp: &McpClientManager,
    server: AddMcpServer,
) -> Result<AddedServer, Error> {
    world.run(mcp.add_server(server, None))
}

fn id_of(added: AddedServer) -> String {
    let AddedServer::Ready { id } = added else {
        panic!("it waits for its user");
    };
    id.as_str().to_owned()
}

fn ids(mcp: &McpClientManager) -> Vec<String> {
    let servers = mcp.list_servers().unwrap();
    servers
        .iter()
        .map(|server| server.id.as_str().to_owned())
        .collect()
}

#[test]
fn a_server_is_connected_and_listed_and_adding_it_again_sends_and_stores_nothing() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    let id = id_of(add(&mut world, &mcp, ("Pier", URL).into()).unwrap());
    assert_eq!(id.len(), 8);
    assert!(!mcp.list_tools(&ServerFilter::all()).is_empty());
    let (sent, rows) = (
        world.network.methods().len(),
        world.table.rows.borrow().clone(),
    );
    // The same URL, written otherwise.
    let again = URL.replace("https://", "HTTPS://");
    assert_eq!(
        id_of(add(&mut world, &mcp, ("Pier", again).into()).unwrap()),
        id
    );
    assert_eq!(world.network.methods().len(), sent);
    assert!(*world.table.rows.borrow() == rows);
    // Another name is another server.
    let other = id_of(add(&mut world, &mcp, ("Quay", URL).into()).unwrap());
    assert_ne!(other, id);
}

#[test]
fn two_who_add_the_same_server_at_once_get_one() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    let both = join(
        mcp.add_server(("Pier", URL).into(), None),
        mcp.add_server(("Pier", URL).into(), None),
    );
    let (one, other) = world.run(both);
    assert_eq!(one.unwrap().id(), other.unwrap().id());
    assert_eq!(ids(&mcp).len(), 1);
}

#[test]
fn ids_are_settled_by_name_and_url() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    let named = |id: &str| AddMcpServer::new("Pier", URL).id(id);
    // Nobody has it: a new row. It is normalised.
    assert_eq!(
        id_of(add(&mut world, &mcp, named("My Pier!")).unwrap()),
        "my-pier"
    );
    // It has itself.
    assert_eq!(
        id_of(add(&mut world, &mcp, named("my-pier")).unwrap()),
        "my-pier"
    );
    // No id asked for: the one it has.
    assert_eq!(
        id_of(add(&mut world, &mcp, ("Pier", URL).into()).unwrap()),
        "my-pier"
    );
    // Another id: it moves there, and its lists with it.
    assert_eq!(
        id_of(add(&mut world, &mcp, named("pier-2")).unwrap()),
        "pier-2"
    );
    assert_eq!(ids(&mcp), ["pier-2"]);
    let tools = mcp.list_tools(&ServerFilter::all());
    assert!(tools.iter().all(|tool| tool.server_id.as_str() == "pier-2"));
    // Somebody else's: refused, whether the name or the URL differs.
    for other in [
        AddMcpServer::new("Quay", URL),
        AddMcpServer::new("Pier", "https://other.example/mcp"),
    ] {
        let refused = add(&mut world, &mcp, other.id("pier-2"));
        assert!(matches!(refused, Err(Error::ServerIdInUse { .. })));
    }
    assert_eq!(ids(&mcp), ["pier-2"]);
}

#[test]
fn a_server_that_was_down_is_connected_again() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    let works = world.network.peer(URL);
    world.network.serve(URL, |_| Reply::status(503));
    let failed = add(&mut world, &mcp, ("Pier", URL).into());
    assert!(
        matches!(failed, Err(Error::Transport(_) | Error::NoTransport { .. })),
        "{failed:?}"
    );
    // It stays, to be tried again.
    let id = ids(&mcp).pop().unwrap();
    assert_eq!(mcp.connection(&id).unwrap().state, S::Failed);
    world.network.serve(URL, move |seen| works(seen));
    assert_eq!(
        id_of(add(&mut world, &mcp, ("Pier", URL).into()).unwrap()),
        id
    );
    // Also one whose connection was closed.
    world.run(mcp.close_connection(&id)).unwrap();
    assert_eq!(
        id_of(add(&mut world, &mcp, ("Pier", URL).into()).unwrap()),
        id
    );
    assert_eq!(mcp.connection(&id).unwrap().state, S::Ready);
}

#[test]
fn what_is_said_again_replaces_and_what_is_not_said_stays() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    let keyed = |key: &str| AddMcpServer::new("Pier", URL).header("x-key", key);
    let id = id_of(add(&mut world, &mcp, keyed("one").header("x-other", "1")).unwrap());
    let last = |world: &World, name: &str| {
        let seen = world.network.seen.borrow();
        seen.last().unwrap().header(name).map(str::to_owned)
    };
    assert_eq!(last(&world, "x-key").as_deref(), Some("one"));
    let _ = add(&mut world, &mcp, ("Pier", URL).into()).unwrap();
    world.run(mcp.call_tool(&id, "echo", ())).ok();
    assert_eq!(last(&world, "x-key").as_deref(), Some("one"));
    // The headers of before are forgotten, the live connection uses the new ones.
    let _ = add(&mut world, &mcp, keyed("two")).unwrap();
    assert_eq!(last(&world, "x-key").as_deref(), Some("two"));
    assert_eq!(last(&world, "x-other"), None);
    // Saying the same thing again is saying nothing new.
    let handshakes = |world: &World| {
        let methods = world.network.methods();
        methods.iter().filter(|name| *name == "initialize").count()
    };
    let before = handshakes(&world);
    let _ = add(&mut world, &mcp, keyed("two")).unwrap();
    assert_eq!(handshakes(&world), before);
}

#[test]
fn a_server_that_waits_for_its_user_goes_on_waiting_for_the_same_sign_in() {
    let mut at = AuthWorld::new();
    let mcp = at.mcp.clone();
    let callback = "https://agent.example/agents/a/b/callback".to_owned();
    let notes = || AddMcpServer::new("Notes", URL);
    let wait = |at: &mut AuthWorld| {
        let added = at
            .world
            .run(mcp.add_server(notes(), Some(callback.clone())));
        let AddedServer::Authenticating { id, auth_url } = added.unwrap() else {
            panic!("no sign-in was asked for");
        };
        (id, auth_url.as_str().to_owned())
    };
    let first = wait(&mut at);
    let sent = at.world.network.methods().len();
    assert_eq!(wait(&mut at), first);
    assert_eq!(at.world.network.methods().len(), sent);
}

#[test]
fn a_server_that_wants_a_sign_in_and_has_no_callback_says_what_is_missing() {
    let mut at = AuthWorld::new();
    let mcp = at.mcp.clone();
    let notes = AddMcpServer::new("Notes", URL);
    let error = at.world.run(mcp.add_server(notes, None)).unwrap_err();
    let text = error.describe();
    assert!(text.contains("callback"), "{text}");
}

#[test]
fn a_registration_that_is_repeated_changes_nothing() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    let server = || RegisterServer::new("Pier", URL).header("x-key", "1");
    world.run(mcp.register_server("pier", server())).unwrap();
    let told = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = told.clone();
    let _listens = mcp.on_server_state_changed(move || count.set(count.get() + 1));
    world.run(mcp.register_server("pier", server())).unwrap();
    assert_eq!(told.get(), 0);
    world
        .run(mcp.register_server("pier", server().header("x-more", "1")))
        .unwrap();
    world.run(async {});
    assert_eq!(told.get(), 1);
}
