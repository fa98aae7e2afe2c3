//! Loading what servers offer.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use workers_agents::ConnectionState as S;

use crate::support::mcp_server::{modern, result, tool};
use crate::support::{Reply, URL, add, names, register, state, world_with, world_with_legacy};

#[test]
fn a_broken_list_hides_no_other_and_is_reported() {
    let (mut world, server) = world_with_legacy();
    server.set("prompts/list", json!({"prompts": "nonsense"}));
    let mcp = world.manager();
    assert_eq!(add(&mut world, &mcp).unwrap(), S::Ready);
    let connection = mcp.connection("pier").unwrap();
    assert_eq!(connection.counts.tools, 2);
    assert_eq!(connection.problems.len(), 1);
    assert!(
        connection.problems[0].method == "prompts/list",
        "{:?}",
        connection.problems
    );
}

#[test]
fn a_list_that_hangs_costs_no_other() {
    let (mut world, server) = world_with_legacy();
    world
        .network
        .serve(URL, move |seen| match seen.rpc().as_str() {
            "prompts/list" => Reply::Silence,
            _ => server.answer(seen),
        });
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    world.run(mcp.connect_to_server("pier")).unwrap();
    let discovering = mcp.clone();
    let discovered =
        world.start(async move { discovering.discover_if_connected("pier", None).await });
    world.advance(Duration::from_secs(30));
    assert!(matches!(discovered.outcome(), Some(Ok(S::Ready))));
    assert_eq!(names(&mcp), ["echo", "add"]);
    assert_eq!(
        mcp.connection("pier").unwrap().problems[0].method,
        "prompts/list"
    );
}

#[test]
fn a_list_that_asks_for_authorization_fails_the_discovery() {
    let (mut world, server) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world
        .network
        .serve(URL, move |seen| match seen.rpc().as_str() {
            "prompts/list" => Reply::status(401),
            _ => server.answer(seen),
        });
    assert!(
        world
            .run(mcp.discover_if_connected("pier", None))
            .unwrap_err()
            .is_unauthorized()
    );
}

#[test]
fn a_discovery_that_fails_whole_leaves_connection_and_catalogue() {
    let (mut world, server) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    for method in [
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ] {
        server.set(method, json!({}));
    }
    assert!(world.run(mcp.discover_if_connected("pier", None)).is_err());
    assert_eq!(state(&mcp), S::Connected);
    assert_eq!(names(&mcp), ["echo", "add"]);
}

#[test]
fn the_reason_of_a_failed_discovery_is_kept_until_the_next_one() {
    let broken = Rc::new(Cell::new(true));
    let is_broken = broken.clone();
    let mut world = world_with(move |seen| match seen.rpc().as_str() {
        "tools/list" if is_broken.get() => Reply::typed(200, "text/html", "<html>"),
        _ => modern(seen),
    });
    let mcp = world.manager();
    assert!(add(&mut world, &mcp).is_err());
    let connection = mcp.connection("pier").unwrap();
    assert_eq!(connection.state, S::Connected);
    assert!(connection.error.unwrap().describe().contains("text/html"));
    broken.set(false);
    world.run(mcp.discover_if_connected("pier", None)).unwrap();
    assert!(mcp.connection("pier").unwrap().error.is_none());
}

#[test]
fn pages_are_walked_and_circles_are_left() {
    // By the cursor asked for: the page's tools and its next cursor.
    type Pages = fn(Option<&str>) -> (Vec<&'static str>, Value);
    let cases: [(Pages, &[&str]); 6] = [
        (
            |cursor| match cursor {
                None => (vec!["a"], json!("2")),
                _ => (vec!["b"], Value::Null),
            },
            &["a", "b"],
        ),
        (
            |cursor| match cursor {
                None => (vec!["a"], json!("")),
                _ => (vec!["b"], Value::Null),
            },
            &["a", "b"],
        ),
        (
            |cursor| match cursor {
                None => (vec!["a"], json!("2")),
                Some("2") => (vec![], json!("3")),
                _ => (vec!["b"], Value::Null),
            },
            &["a", "b"],
        ),
        (
            |cursor| {
                if cursor.is_none() {
                    (vec!["a"], json!("8"))
                } else {
                    (vec![], json!("8"))
                }
            },
            &["a"],
        ),
        (|_| (vec!["a", "b"], json!("8")), &["a", "b"]),
        (
            |cursor| {
                (
                    vec!["a"],
                    if cursor == Some("A") {
                        json!("B")
                    } else {
                        json!("A")
                    },
                )
            },
            &["a"],
        ),
    ];
    for (pages, expected) in cases {
        let mut world = world_with(move |seen| {
            if seen.rpc() != "tools/list" {
                return modern(seen);
            }
            let (tools, next) = pages(seen.body["params"]["cursor"].as_str());
            let tools: Vec<Value> = tools.into_iter().map(tool).collect();
            result(seen, json!({"tools": tools, "nextCursor": next}))
        });
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        assert_eq!(names(&mcp), expected);
    }
}

#[test]
fn a_list_without_end_is_cut_and_reported() {
    let page = Cell::new(0);
    let mut world = world_with(move |seen| {
        if seen.rpc() != "tools/list" {
            return modern(seen);
        }
        page.set(page.get() + 1);
        result(
            seen,
            json!({"tools": [tool(&format!("t{}", page.get()))], "nextCursor": page.get().to_string()}),
        )
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let connection = mcp.connection("pier").unwrap();
    assert_eq!(connection.counts.tools, 64);
    assert!(connection.problems[0].error.describe().contains("64 pages"));
}

#[test]
fn a_list_of_too_many_items_is_cut_and_reported() {
    let mut world = world_with(|seen| match seen.rpc().as_str() {
        "tools/list" => {
            let tools: Vec<Value> = (0..10_001)
                .map(|number| tool(&format!("t{number}")))
                .collect();
            result(seen, json!({"tools": tools}))
        }
        _ => modern(seen),
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let connection = mcp.connection("pier").unwrap();
    assert_eq!(connection.counts.tools, 10_000);
    assert!(
        connection.problems[0]
            .error
            .describe()
            .contains("10000 items")
    );
}

#[test]
fn a_server_that_comes_back_as_another_is_listed_as_that() {
    let (mut world, server) = world_with_legacy();
    let lean = Rc::new(Cell::new(true));
    let (peer, is_lean) = (server.clone(), lean.clone());
    world.network.serve(URL, move |seen| {
        let Reply::Raw(status, headers, chunks) = peer.answer(seen) else {
            return peer.answer(seen);
        };
        let text = String::from_utf8(chunks.concat()).unwrap();
        let text = if is_lean.get() {
            text.replace(r#""prompts":{},"#, "")
        } else {
            text
        };
        Reply::Raw(status, headers, vec![text.into_bytes()])
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    assert_eq!(mcp.connection("pier").unwrap().counts.prompts, 0);
    lean.set(false);
    server.current.take();
    world.run(mcp.discover_if_connected("pier", None)).unwrap();
    assert_eq!(mcp.connection("pier").unwrap().counts.prompts, 1);
}
