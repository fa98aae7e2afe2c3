//! Lists that outlive the memory of the object.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;
use workers_agents::ports::CatalogStore as _;
use workers_agents::{
    CatalogFreshness as F, ConnectionState as S, Error, ReconnectPolicy, RegisterServer,
    ServerFilter,
};

use crate::support::mcp_server::modern;
use crate::support::{
    Reply, Seen, URL, World, add, names, register, state, world_with, world_with_legacy,
};

fn freshness(mcp: &workers_agents::McpClientManager) -> F {
    mcp.connection("pier").unwrap().freshness
}

fn lazy(world: &mut World) {
    world.options = world.options.clone().reconnect(ReconnectPolicy::Lazy);
}

/// A modern server whose tools the test names.
fn with_tools(tools: &Rc<RefCell<Vec<&'static str>>>) -> impl Fn(&Seen) -> Reply + use<> {
    let tools = tools.clone();
    move |seen| match seen.rpc().as_str() {
        "tools/list" => {
            let tools = tools.borrow();
            let tools: Vec<_> = tools
                .iter()
                .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
                .collect();
            let result = json!({"resultType": "complete", "tools": tools});
            Reply::Json(
                200,
                json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result}),
            )
        }
        _ => modern(seen),
    }
}

#[test]
fn lists_are_known_at_once_after_a_wake_and_marked_as_stored() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let loaded_at = mcp.connection("pier").unwrap().loaded_at;
    assert_eq!(freshness(&mcp), F::Fresh);
    world.network.forget();

    let mcp = world.wake();
    assert_eq!(names(&mcp), ["echo", "add"]);
    assert_eq!(freshness(&mcp), F::Stored);
    assert_eq!(state(&mcp), S::Connecting);
    let info = mcp.connection("pier").unwrap();
    assert_eq!(info.loaded_at, loaded_at);
    assert_eq!(
        info.card.unwrap().instructions.as_deref(),
        Some("be kind"),
        "what the server said about itself is known, too"
    );
    assert_eq!(world.network.methods(), [""; 0]);
    world.run(mcp.wait_for_connections(None));
    assert_eq!((state(&mcp), freshness(&mcp)), (S::Ready, F::Fresh));
}

#[test]
fn a_lazy_server_is_asked_nothing_until_it_is_used() {
    for is_modern in [true, false] {
        let (mut world, _) = world_with_legacy();
        if is_modern {
            world.network.serve(URL, modern);
        }
        lazy(&mut world);
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        let revision = mcp.connection("pier").unwrap().revision;
        world.network.forget();

        let mcp = world.wake();
        world.run(mcp.wait_for_connections(None));
        world.settle();
        let info = mcp.connection("pier").unwrap();
        assert_eq!((info.state, info.freshness), (S::Ready, F::Stored));
        assert_eq!(info.revision, revision);
        assert_eq!(info.counts.tools, if is_modern { 1 } else { 2 });
        assert!(
            !mcp.list_tools(&ServerFilter::all().state(S::Ready))
                .is_empty()
        );
        assert_eq!(world.network.methods(), [""; 0]);

        world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
        world.settle();
        assert_eq!((state(&mcp), freshness(&mcp)), (S::Ready, F::Fresh));
        let methods = world.network.methods();
        assert!(methods.contains(&"tools/call".to_owned()));
        assert!(
            !methods.contains(&"server/discover".to_owned()),
            "{methods:?}"
        );
        assert!(!methods.contains(&"initialize".to_owned()), "{methods:?}");
    }
}

#[test]
fn two_hundred_lazy_servers_cost_no_request_and_no_row_at_a_wake() {
    let mut world = World::new();
    lazy(&mut world);
    let mcp = world.manager();
    for number in 0..200 {
        let url = format!("https://pier-{number}.example/mcp");
        world.network.serve(&url, modern);
        let id = format!("s{number}");
        register(&mut world, &mcp, &id, &url);
        world
            .run(async {
                mcp.connect_to_server(&id).await?;
                mcp.discover_if_connected(&id, None).await
            })
            .unwrap();
    }
    world.network.forget();
    let writes = (
        world.table.writes.get(),
        world.catalogs.writes.get(),
        world.jobs.writes.get(),
    );
    let mcp = world.wake();
    assert_eq!(world.catalogs.reads.get(), 0, "read before anybody asked");
    let tools = mcp.list_tools(&ServerFilter::all());
    assert_eq!(tools.len(), 200);
    world.settle();
    world.pass(Duration::from_mins(1), Duration::from_secs(1));
    assert_eq!(world.network.methods(), [""; 0]);
    assert_eq!(world.clock.timers(), 0, "a timer");
    assert_eq!(world.catalogs.reads.get(), 200);
    let after = (
        world.table.writes.get(),
        world.catalogs.writes.get(),
        world.jobs.writes.get(),
    );
    assert_eq!(writes, after);
}

#[test]
fn an_eager_wake_where_nothing_changed_writes_nothing() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let writes = (world.table.writes.get(), world.catalogs.writes.get());
    for _ in 0..3 {
        let mcp = world.wake();
        world.run(mcp.wait_for_connections(None));
        assert_eq!((state(&mcp), freshness(&mcp)), (S::Ready, F::Fresh));
    }
    assert_eq!(
        writes,
        (world.table.writes.get(), world.catalogs.writes.get())
    );
    assert_eq!(world.jobs.writes.get(), 0);
}

#[test]
fn what_changed_while_the_object_slept_is_noticed() {
    for policy in [ReconnectPolicy::Eager, ReconnectPolicy::Lazy] {
        let tools = Rc::new(RefCell::new(vec!["one"]));
        let mut world = world_with(with_tools(&tools));
        world.options = world.options.clone().reconnect(policy);
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        *tools.borrow_mut() = vec!["one", "two"];

        let mcp = world.wake();
        assert_eq!(names(&mcp), ["one"]);
        let changes = Rc::new(Cell::new(0));
        let counted = changes.clone();
        mcp.on_server_state_changed(move || counted.set(counted.get() + 1))
            .detach();
        if policy == ReconnectPolicy::Lazy {
            world.run(mcp.call_tool("pier", "one", json!({}))).unwrap();
        }
        world.settle();
        assert_eq!(names(&mcp), ["one", "two"]);
        assert!(changes.get() > 0);

        // And it is stored.
        world.network.serve(URL, |_| Reply::Silence);
        assert_eq!(names(&world.wake()), ["one", "two"]);
    }
}

#[test]
fn a_lazy_server_without_stored_lists_is_asked_in_the_background() {
    let mut world = world_with(modern);
    lazy(&mut world);
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!((state(&mcp), freshness(&mcp)), (S::Ready, F::Fresh));
}

#[test]
fn a_server_that_never_comes_back_by_itself_shows_what_is_known_and_waits_to_be_connected() {
    let mut world = world_with(modern);
    let mcp = world.manager();
    let server = RegisterServer::new("pier", URL).reconnect(ReconnectPolicy::Never);
    world.run(mcp.register_server("pier", server)).unwrap();
    world
        .run(async {
            mcp.connect_to_server("pier").await?;
            mcp.discover_if_connected("pier", None).await
        })
        .unwrap();
    world.network.forget();
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!((state(&mcp), freshness(&mcp)), (S::NotConnected, F::Stored));
    assert_eq!(names(&mcp), ["echo"]);
    let refused = world.run(mcp.call_tool("pier", "echo", json!({})));
    assert!(matches!(refused, Err(Error::NotConnected { .. })));
    assert_eq!(world.network.methods(), [""; 0]);
    world.run(mcp.connect_to_server("pier")).unwrap();
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
}

#[test]
fn a_damaged_or_foreign_catalogue_is_loaded_anew() {
    for damage in 0..3 {
        let mut world = world_with(modern);
        lazy(&mut world);
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        {
            let mut rows = world.catalogs.rows.borrow_mut();
            let row = rows.get_mut("pier").unwrap();
            match damage {
                0 => row.items.truncate(3),
                1 => row.head.server_url = "https://other.example/mcp".into(),
                _ => row.index = "{}".into(),
            }
        }
        let mcp = world.wake();
        world.run(mcp.wait_for_connections(None));
        if damage == 1 {
            assert_eq!(names(&mcp), ["echo"]);
        } else {
            // Nobody has looked into it so far.
            assert_eq!(names(&mcp), [""; 0]);
            assert_eq!(freshness(&mcp), F::Unknown);
        }
        world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
        world.settle();
        assert_eq!(
            (names(&mcp), freshness(&mcp)),
            (vec!["echo".into()], F::Fresh)
        );
        assert_eq!(names(&world.wake()), ["echo"]);
    }
}

#[test]
fn a_catalogue_that_is_too_large_is_not_stored_and_one_that_becomes_so_is_dropped() {
    let tools = Rc::new(RefCell::new(vec!["one"]));
    let mut world = world_with(with_tools(&tools));
    world.options.max_stored_catalog_bytes = 100;
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    assert_eq!(world.catalogs.heads().unwrap().len(), 1);
    *tools.borrow_mut() = vec!["one", "two", "three", "four", "five"];
    world.run(mcp.discover_if_connected("pier", None)).unwrap();
    assert_eq!(world.catalogs.heads().unwrap().len(), 0);
    let mcp = world.wake();
    assert_eq!(names(&mcp), [""; 0]);
    world.run(mcp.wait_for_connections(None));
    assert_eq!(names(&mcp).len(), 5);
}

#[test]
fn a_list_that_was_never_loaded_is_not_stored_as_an_empty_one() {
    let is_broken = Rc::new(Cell::new(true));
    let breaks = is_broken.clone();
    let (mut world, server) = world_with_legacy();
    world
        .network
        .serve(URL, move |seen| match seen.rpc().as_str() {
            "prompts/list" if breaks.get() => Reply::status(500),
            _ => server.answer(seen),
        });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    assert_eq!(world.catalogs.heads().unwrap().len(), 0);
    is_broken.set(false);
    world.run(mcp.discover_if_connected("pier", None)).unwrap();
    assert_eq!(world.catalogs.heads().unwrap().len(), 1);
    // A list that fails later stays what it was, stored or not.
    is_broken.set(true);
    world.run(mcp.discover_if_connected("pier", None)).unwrap();
    assert_eq!(world.catalogs.heads().unwrap().len(), 1);
}

#[test]
fn nothing_of_a_catalogue_stays_with_another_server_or_with_none() {
    let mut world = world_with(modern);
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.network.serve("https://other.example/mcp", modern);
    register(&mut world, &mcp, "pier", "https://other.example/mcp");
    assert_eq!(world.catalogs.heads().unwrap().len(), 0);
    add(&mut world, &mcp).unwrap();
    assert_eq!(world.catalogs.heads().unwrap().len(), 1);
    world.run(mcp.remove_server("pier")).unwrap();
    assert_eq!(world.catalogs.heads().unwrap().len(), 0);
}
