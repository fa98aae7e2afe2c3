//! Requests within a session, and what may go wrong with them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use futures::channel::oneshot;
use serde_json::{Value, json};
use workers_agents::Error;

use crate::support::mcp_server::{LegacyServer, modern, result, rpc_error};
use crate::support::{Reply, URL, World, add, register, world_with, world_with_legacy};

#[test]
fn arguments_and_results_pass_through_byte_for_byte() {
    let text = r#"{"content":[],"z":1.0,"n":12345678901234567890}"#;
    let mut world = world_with(move |seen| match seen.rpc().as_str() {
        "tools/call" => Reply::typed(
            200,
            "application/json; charset=utf-8",
            format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{text}}}"#,
                seen.body["id"]
            ),
        ),
        _ => modern(seen),
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let result = world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    assert_eq!(serde_json::to_string(&result).unwrap(), text);
}

#[test]
fn a_complete_result_is_complete_however_it_is_written() {
    for text in [r#""complete""#, r#""complet\u0065""#] {
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "tools/call" => Reply::typed(
                200,
                "application/json",
                format!(
                    r#"{{"id":{},"result":{{"resultType":{text}}}}}"#,
                    seen.body["id"]
                ),
            ),
            _ => modern(seen),
        });
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    }
}

#[test]
fn a_call_without_arguments_sends_none() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world
        .run(mcp.call_tool("pier", "echo", None::<Value>))
        .unwrap();
    let seen = world.network.seen.borrow().last().unwrap().clone();
    let mut params = seen.body["params"].clone();
    assert!(params["_meta"]["progressToken"].is_number());
    params.as_object_mut().unwrap().remove("_meta");
    assert_eq!(params, json!({"name": "echo"}));
}

#[test]
fn a_result_that_is_none_is_an_error() {
    for text in [
        "null",
        "\"oops\"",
        "[1]",
        "3",
        r#"{"resultType":5}"#,
        r#"{"resultType":"input_required"}"#,
    ] {
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "tools/call" => result(seen, serde_json::from_str(text).unwrap()),
            _ => modern(seen),
        });
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        let error = world
            .run(mcp.call_tool("pier", "echo", json!({})))
            .unwrap_err();
        assert!(matches!(error, Error::Protocol(_)), "{text}: {error:?}");
    }
}

#[test]
fn a_response_to_another_request_is_an_error_at_once() {
    let mut world = world_with(|seen| match seen.rpc().as_str() {
        "tools/call" => Reply::Json(
            200,
            json!({"jsonrpc": "2.0", "id": 0, "result": {"content": []}}),
        ),
        _ => modern(seen),
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let error = world
        .run(mcp.call_tool("pier", "echo", json!({})))
        .unwrap_err();
    assert!(error.describe().contains("id does not match"), "{error:?}");
}

#[test]
fn a_json_rpc_error_is_told_with_code_and_data_whatever_its_status() {
    for status in [200, 400, 404, 500] {
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "tools/call" => rpc_error(status, seen, -32602, json!({"k": 1})),
            _ => modern(seen),
        });
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        let Err(Error::Rpc(error)) = world.run(mcp.call_tool("pier", "nope", json!({}))) else {
            panic!("{status}")
        };
        let data = error.data.as_ref().map(|data| data.get());
        assert_eq!((error.code, data), (-32602, Some(r#"{"k":1}"#)));
    }
}

#[test]
fn an_error_keeps_the_status_it_came_with() {
    for (status, transient) in [(503, true), (429, true), (400, false), (404, false)] {
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "tools/call" => rpc_error(status, seen, -32000, Value::Null),
            _ => modern(seen),
        });
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        let error = world
            .run(mcp.call_tool("pier", "echo", json!({})))
            .unwrap_err();
        assert_eq!(error.http_status(), Some(status));
        assert_eq!(error.is_transient(), transient, "{status}");
    }
}

#[test]
fn events_before_a_fault_count() {
    let mut world = world_with(|seen| match seen.rpc().as_str() {
        "tools/call" => {
            let answer = format!(
                "data: {{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{}}}}\n\n",
                seen.body["id"]
            );
            Reply::events(&format!("{answer}data: {}", "x".repeat(3_000)))
        }
        _ => modern(seen),
    });
    world.options = world.options.max_response_bytes(2_000);
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
}

#[test]
fn an_endless_stream_is_cut_off() {
    let mut world = world_with(|seen| match seen.rpc().as_str() {
        "tools/call" => Reply::Raw(
            200,
            vec![("content-type", "text/event-stream".into())],
            vec![b": nothing\n\n".repeat(50); 100],
        ),
        _ => modern(seen),
    });
    world.options = world.options.max_response_bytes(2_000);
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let error = world
        .run(mcp.call_tool("pier", "echo", json!({})))
        .unwrap_err()
        .describe();
    assert!(error.contains("8000"), "{error}");
}

#[test]
fn a_request_of_the_server_is_answered_on_the_way() {
    let (mut world, server) = world_with_legacy();
    world
        .network
        .serve(URL, move |seen| match seen.rpc().as_str() {
            "tools/call" => Reply::events(&format!(
                "data: {{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}}\n\n\
             data: {{\"jsonrpc\":\"2.0\",\"id\":\"r\",\"method\":\"roots/list\"}}\n\n\
             data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{{}}}}\n\n\
             data: {{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"content\":[]}}}}\n\n",
                seen.body["id"]
            )),
            "POST" => Reply::status(202),
            _ => server.answer(seen),
        });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    world.settle();
    let answers: Vec<Value> = world
        .network
        .seen
        .borrow()
        .iter()
        .filter(|seen| seen.rpc() == "POST")
        .map(|seen| seen.body.clone())
        .collect();
    assert_eq!(
        answers[0],
        json!({"jsonrpc": "2.0", "id": "p", "result": {}})
    );
    assert_eq!(answers[1]["error"]["code"], json!(-32601));
}

#[test]
fn a_server_that_floods_us_with_requests_gets_a_few_answers() {
    let (mut world, server) = world_with_legacy();
    world
        .network
        .serve(URL, move |seen| match seen.rpc().as_str() {
            "tools/call" => {
                let ping = "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\n";
                let answer = format!(
                    "data: {{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{}}}}\n\n",
                    seen.body["id"]
                );
                Reply::events(&(ping.repeat(1_000) + &answer))
            }
            "POST" => Reply::Silence,
            _ => server.answer(seen),
        });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    world.settle();
    assert_eq!(world.network.open.get(), 8);
}

#[test]
fn a_forgotten_session_is_replaced_once_for_all_who_meet_it() {
    let (mut world, server) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    server.current.replace(Some("another".into()));
    world.network.forget();
    let (first, second) = (mcp.clone(), mcp.clone());
    let first = world.start(async move { first.call_tool("pier", "echo", json!({"n": 1})).await });
    let second =
        world.start(async move { second.call_tool("pier", "echo", json!({"n": 2})).await });
    assert_eq!(first.outcome().unwrap().unwrap().text(), r#"{"n":1}"#);
    assert_eq!(second.outcome().unwrap().unwrap().text(), r#"{"n":2}"#);
    let methods = world.network.methods();
    assert_eq!(
        methods
            .iter()
            .filter(|method| *method == "initialize")
            .count(),
        1,
        "{methods:?}"
    );
    let stored = world.table.rows.borrow()[0].server_options.clone().unwrap();
    assert!(stored.contains("session-2"), "{stored}");
}

/// A server that forgets its session and then keeps the next handshake waiting.
fn forgetful(world: &World, server: &Rc<LegacyServer>) -> oneshot::Sender<()> {
    let (open, gate) = oneshot::channel();
    let gate = Cell::new(Some(gate));
    server.current.replace(Some("another".into()));
    let server = server.clone();
    world
        .network
        .serve(URL, move |seen| match seen.rpc().as_str() {
            "initialize" => {
                let reply = Box::new(server.answer(seen));
                gate.take()
                    .map_or_else(|| server.answer(seen), |gate| Reply::Later(gate, reply))
            }
            _ => server.answer(seen),
        });
    open
}

#[test]
fn closing_ends_the_requests_and_the_renewal_under_way() {
    for replace in [false, true] {
        let (mut world, server) = world_with_legacy();
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        let open = forgetful(&world, &server);
        let calling = mcp.clone();
        let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
        assert!(call.outcome().is_none());
        if replace {
            register(&mut world, &mcp, "pier", "https://other.example/mcp");
        } else {
            assert!(world.run(mcp.remove_server("pier")).unwrap());
        }
        world.settle();
        assert!(matches!(call.outcome(), Some(Err(Error::Closed))));
        world.network.forget();
        let _ = open.send(());
        world.settle();
        assert_eq!(world.network.methods(), [""; 0], "the renewal went on");
        assert_eq!(world.network.open.get(), 0);
        for row in world.table.rows.borrow().iter() {
            let options = row.server_options.as_deref().unwrap();
            assert!(
                !options.contains("session-"),
                "another server's session: {options}"
            );
        }
    }
}

#[test]
fn a_renewal_that_nobody_waits_for_any_more_ends_by_itself() {
    let (mut world, server) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let _never = forgetful(&world, &server);
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
    world.advance(Duration::from_mins(1));
    let Some(Err(error)) = call.outcome() else {
        panic!("the call takes longer than a request may")
    };
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert_eq!(world.network.open.get(), 0, "the exchange was not dropped");
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
}

#[test]
fn ids_do_not_repeat_within_a_session_over_a_wake() {
    let (mut world, _) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    let seen = world.network.seen.borrow();
    let mut ids: Vec<i64> = seen
        .iter()
        .filter_map(|seen| seen.body["id"].as_i64())
        .collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
    assert!(ids.iter().all(|id| (0..1 << 53).contains(id)));
}

#[test]
fn a_session_refused_with_400_is_replaced_once() {
    let (mut world, server) = world_with_legacy();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let peer = server.clone();
    world
        .network
        .serve(URL, move |seen| match peer.answer(seen) {
            Reply::Raw(404, ..) => rpc_error(400, seen, -32000, Value::Null),
            reply => reply,
        });
    server.current.replace(Some("another".into()));
    world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    assert_eq!(server.sessions.get(), 2);

    // A request that is bad in every session costs one further one, however often it is made.
    for code in [-32000, -32602] {
        let peer = server.clone();
        world
            .network
            .serve(URL, move |seen| match seen.rpc().as_str() {
                "tools/call" => rpc_error(400, seen, code, Value::Null),
                _ => peer.answer(seen),
            });
        for _ in 0..3 {
            let error = world
                .run(mcp.call_tool("pier", "echo", json!({})))
                .unwrap_err();
            assert!(matches!(error, Error::Rpc(_)), "{error:?}");
        }
        assert_eq!(server.sessions.get(), 3, "{code}");
    }
}

#[test]
fn a_tool_that_may_have_run_is_not_run_again() {
    for (status, code) in [
        (400, -32602),
        (404, -32601),
        (400, -32000),
        (422, 1),
        (409, 1),
        (410, 1),
    ] {
        let runs = Rc::new(Cell::new(0));
        let counted = runs.clone();
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "tools/call" => {
                counted.set(counted.get() + 1);
                if code == 1 {
                    Reply::status(status)
                } else {
                    rpc_error(status, seen, code, Value::Null)
                }
            }
            _ => modern(seen),
        });
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        let mcp = world.wake();
        assert!(world.run(mcp.call_tool("pier", "echo", json!({}))).is_err());
        assert_eq!(runs.get(), 1, "{status} {code}");
    }
}

#[test]
fn a_server_that_changes_its_era_is_followed() {
    for wakes in [false, true] {
        // From legacy to modern: it refuses the old revision by name.
        let (mut world, _) = world_with_legacy();
        let mut mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        world
            .network
            .serve(URL, |seen| match seen.header("mcp-method") {
                Some(_) => modern(seen),
                None => rpc_error(400, seen, -32022, json!({"supported": ["2026-07-28"]})),
            });
        if wakes {
            mcp = world.wake();
            world.run(mcp.wait_for_connections(None));
        }
        world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();

        // And back: it does not know what a modern request is.
        let (mut world, server) = world_with_legacy();
        world.network.serve(URL, modern);
        let mut mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        world
            .network
            .serve(URL, move |seen| match seen.header("mcp-method") {
                Some(_) => Reply::status(400),
                None => server.answer(seen),
            });
        if wakes {
            mcp = world.wake();
            world.run(mcp.wait_for_connections(None));
        }
        world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    }
}

#[test]
fn a_refused_revision_is_agreed_on_anew_whatever_the_status() {
    for status in [200, 400] {
        let refused = Cell::new(false);
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "tools/call" if !refused.replace(true) => {
                rpc_error(status, seen, -32022, json!({"supported": ["2026-07-28"]}))
            }
            _ => modern(seen),
        });
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        world.run(mcp.call_tool("pier", "echo", json!({}))).unwrap();
    }
}
