//! What the outside learns of servers: events, and the trace that a call belongs to.

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::{Map, Value, json};
use workers_agents::lifecycle::{Event, Invocation, Trace};
use workers_agents::{CallOptions, RegisterServer};

use crate::support::auth_world::AuthWorld;
use crate::support::mcp_server::modern;
use crate::support::{Reply, URL, add, world_with, world_with_legacy};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[test]
fn a_call_belongs_to_the_trace_of_what_is_being_handled() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let traced = |options: CallOptions| {
        let mcp = mcp.clone();
        let invocation = Invocation::new(Event::Request).within(Trace::parse(PARENT, Some("a=1")));
        invocation.scope(async move {
            let outcome = mcp
                .call_tool_with("pier", "echo", json!({}), &options)
                .await;
            outcome.unwrap();
        })
    };
    let last = |network: &crate::support::Network| {
        let seen = network.seen.borrow();
        let call = seen.iter().rev().find(|seen| seen.rpc() == "tools/call");
        call.unwrap().body["params"]["_meta"].clone()
    };
    world.run(traced(CallOptions::default()));
    let meta = last(&world.network);
    assert_eq!(
        (&meta["traceparent"], &meta["tracestate"]),
        (&json!(PARENT), &json!("a=1"))
    );

    // What the caller says itself wins, and stays whole.
    let own: Map<String, Value> = json!({"traceparent": "mine"}).as_object().unwrap().clone();
    world.run(traced(CallOptions::default().meta(own)));
    assert_eq!(last(&world.network)["traceparent"], "mine");
    assert_eq!(last(&world.network)["tracestate"], Value::Null);

    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    assert_eq!(last(&world.network)["traceparent"], Value::Null);
}

#[test]
fn what_happens_to_a_server_is_told_as_it_happens() {
    let mut world = world_with(modern);
    let mcp = world.manager();
    let told = Rc::new(RefCell::new(Vec::new()));
    let heard = told.clone();
    mcp.on_observability_event(move |event| heard.borrow_mut().push(event.to_json(7)))
        .detach();
    add(&mut world, &mcp).unwrap();
    world.run(mcp.close_connection("pier")).unwrap();
    let names = |told: Vec<Value>| -> Vec<String> {
        let name = |event: &Value| event["type"].as_str().unwrap().to_owned();
        told.iter().map(name).collect()
    };
    let events = told.take();
    assert_eq!(events[1]["payload"]["protocolVersion"], "2026-07-28");
    assert_eq!(events[2]["payload"]["counts"]["tools"], 1);
    assert!(events.iter().all(|event| event["timestamp"] == 7));
    assert_eq!(
        names(events),
        [
            "mcp:client:preconnect",
            "mcp:client:connect",
            "mcp:client:discover",
            "mcp:client:close"
        ]
    );
    world
        .network
        .serve(URL, |_| Reply::typed(503, "text/plain", "no"));
    world.run(mcp.connect_to_server("pier")).unwrap_err();
    let events = told.take();
    let failed = &events[1]["payload"];
    assert_eq!(
        (&failed["state"], &failed["httpStatus"]),
        (&json!("failed"), &json!(503))
    );
}

#[test]
fn no_event_holds_a_secret() {
    let mut this = AuthWorld::new();
    let (watch, told) = (this.watch.clone(), Rc::new(RefCell::new(0)));
    let count = told.clone();
    this.mcp
        .on_observability_event(move |event| {
            *count.borrow_mut() += 1;
            watch.shown(format!("{event:?} {}", event.to_json(0)));
        })
        .detach();
    this.watch.secret("s3cret-header");
    this.register_as("pier", |server: RegisterServer| {
        server.header("x-key", "s3cret-header")
    });
    this.sign_in();
    this.call("echo").unwrap();
    this.server.end_grants();
    let _ = this.call("echo");
    assert!(*told.borrow() > 4);
    assert_eq!(this.watch.leaks(), [""; 0]);
}
