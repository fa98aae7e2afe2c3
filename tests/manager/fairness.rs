//! What costs others: calls that run twice, places that are never given back, lists loaded for nothing.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;
use workers_agents::{
    ConnectionState as S, ElicitResult, ElicitationHandlers, McpClientOptions, StreamPolicy,
};

use crate::support::case_server::CaseServer;
use crate::support::mcp_server::{modern, rpc_error};
use crate::support::streams::{SseServer, feed};
use crate::support::{Reply, URL, World, add, register, state, world_with};

const SECOND: Duration = Duration::from_secs(1);

fn count(world: &World, method: &str) -> usize {
    let methods = world.network.methods();
    methods.iter().filter(|found| *found == method).count()
}

#[test]
fn a_call_whose_answer_cannot_be_taken_up_is_not_run_again() {
    for status in [400, 401, 404, 500] {
        let server = CaseServer::with_sessions();
        let peer = server.clone();
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "tools/call" => Reply::events("id: a\nretry: 50\ndata:\n\n"),
            _ if seen.method == "GET" => Reply::status(status),
            _ => peer.answer(seen),
        });
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        let manager = mcp.clone();
        let call = world.start(async move { manager.call_tool("pier", "echo", json!({})).await });
        world.pass(5 * SECOND, Duration::from_millis(50));
        let error = call.outcome().unwrap().unwrap_err();
        assert_eq!(error.http_status(), Some(status));
        assert_eq!(count(&world, "tools/call"), 1, "{status}");
    }
}

fn sse_world(server: &Rc<SseServer>, options: McpClientOptions) -> World {
    let mut world = World::new();
    world.options = options;
    let opens = server.clone();
    world
        .network
        .serve(URL, move |seen| match seen.method.as_str() {
            "GET" => opens.open(),
            _ => Reply::status(405),
        });
    for number in 1..=3 {
        let posts = server.clone();
        let url = format!("https://pier.example/messages?sid={number}");
        world.network.serve(&url, move |seen| {
            let is_known = posts.opened.get() == number && posts.feed.borrow().is_some();
            if is_known {
                posts.post(seen)
            } else {
                Reply::status(404)
            }
        });
    }
    world
}

#[test]
fn a_stream_that_nobody_keeps_is_kept_while_it_is_used() {
    let server = SseServer::new("/messages?sid={}");
    let linger = Duration::ZERO;
    let options = McpClientOptions::default().streams(StreamPolicy::WhileInUse { linger });
    let mut world = sse_world(&server, options);
    let mcp = world.manager();
    register(&mut world, &mcp, "pier", URL);
    world.run(mcp.connect_to_server("pier")).unwrap();
    assert_eq!(server.opened.get(), 1);
    let result = world.run(mcp.call_tool("pier", "echo", json!({"n": 1})));
    assert_eq!(result.unwrap().text(), r#"{"n":1}"#);
    assert!(server.opened.get() <= 2, "{} streams", server.opened.get());
}

#[test]
fn a_stream_that_is_replaced_gives_its_place_to_the_next() {
    let server = SseServer::new("/messages?sid={}");
    let mut world = sse_world(&server, McpClientOptions::default().max_streams(1));
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    // The server forgets the session, and leaves the stream open.
    let _old = server.feed.take().unwrap();
    let result = world.run(mcp.call_tool("pier", "echo", json!({"n": 1})));
    assert_eq!(result.unwrap().text(), r#"{"n":1}"#);
    assert_eq!(server.opened.get(), 2);
}

#[test]
fn a_stream_in_use_keeps_no_other_server_from_being_used() {
    let server = SseServer::new("/messages?sid={}");
    let mut world = sse_world(&server, McpClientOptions::default().max_streams(1));
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    server.is_silent.set(true);
    let manager = mcp.clone();
    let _waiting = world.start(async move { manager.call_tool("pier", "echo", json!({})).await });

    let other = SseServer::new("/other");
    let (opens, posts) = (other.clone(), other.clone());
    world
        .network
        .serve("https://quay.example/sse", move |_| opens.open());
    world
        .network
        .serve("https://quay.example/other", move |seen| posts.post(seen));
    let quay = workers_agents::RegisterServer::new("quay", "https://quay.example/sse")
        .transport(workers_agents::TransportKind::Sse);
    world.run(mcp.register_server("quay", quay)).unwrap();
    let manager = mcp.clone();
    let opened = world.start(async move { manager.connect_to_server("quay").await });
    world.pass(3 * SECOND, SECOND);
    opened.outcome().unwrap().unwrap();
    let result = world.run(mcp.call_tool("quay", "echo", json!({"n": 2})));
    assert_eq!(result.unwrap().text(), r#"{"n":2}"#);
}

#[test]
fn lists_that_do_not_change_are_not_loaded_again_when_a_stream_opens() {
    let feeds = Rc::new(RefCell::new(Vec::new()));
    let mut world = world_with(move |seen| {
        let result = match (seen.method.as_str(), seen.rpc().as_str()) {
            ("GET", _) => {
                let (open, reply) = feed();
                feeds.borrow_mut().push(open);
                return reply;
            }
            (_, "initialize") => json!({"protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}}, "serverInfo": {"name": "m", "version": "1"}}),
            (_, "tools/list") => json!({"tools": [{"name": "echo"}]}),
            (_, "tools/call") => json!({"content": []}),
            (_, "server/discover") => return rpc_error(400, seen, -32000, json!(null)),
            _ => return Reply::status(202),
        };
        crate::support::mcp_server::result(seen, result)
    });
    let mcp = world.manager();
    let handlers = ElicitationHandlers::new().form(async |_, _| Ok(ElicitResult::Decline));
    mcp.configure_elicitation_handlers(handlers);
    add(&mut world, &mcp).unwrap();
    for _ in 0..3 {
        world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
        world.pass(90 * SECOND, SECOND);
    }
    assert_eq!(count(&world, "GET"), 3, "a stream for each burst");
    assert_eq!(count(&world, "tools/list"), 1);
}

#[test]
fn a_server_that_goes_back_to_sessions_is_followed() {
    let is_back = Rc::new(std::cell::Cell::new(false));
    let legacy = CaseServer::with_sessions();
    let (back, peer) = (is_back.clone(), legacy.clone());
    let mut world = world_with(move |seen| {
        if !back.get() {
            return modern(seen);
        }
        let is_foreign = seen.header("mcp-session-id").is_none() && seen.rpc() != "initialize";
        if seen.method == "POST" && is_foreign {
            return rpc_error(400, seen, -32000, json!(null));
        }
        peer.answer(seen)
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    is_back.set(true);
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    assert_eq!(state(&mcp), S::Ready);
}
