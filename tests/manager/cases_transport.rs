//! The cases TR-* from public bug reports, and their neighbours, through the public API.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::{Value, json};
use workers_agents::{
    ConnectionState as S, Error, McpClientManager, RegisterServer, Revision, TransportKind,
};

use crate::support::case_server::{CaseServer, handshake, initialized};
use crate::support::mcp_server::{modern, result, rpc_error, tool};
use crate::support::streams::{Feed, SseServer, event, feed};
use crate::support::{Reply, Seen, URL, World, add, names, register, state, world_with};

const SECOND: Duration = Duration::from_secs(1);

fn echo(mcp: &McpClientManager, world: &mut World, n: u32) -> Result<String, Error> {
    world
        .run(mcp.call_tool("pier", "echo", json!({"n": n})))
        .map(|result| result.text())
}

fn count(world: &World, method: &str) -> usize {
    let methods = world.network.methods();
    methods.iter().filter(|found| *found == method).count()
}

/// How many requests of this HTTP method arrived at a URL.
fn arrived(world: &World, method: &str, url: &str) -> usize {
    let seen = world.network.seen.borrow();
    let hits = seen
        .iter()
        .filter(|seen| seen.method == method && seen.url == url);
    hits.count()
}

/// Registers under any URL, connects and discovers.
fn add_at(world: &mut World, mcp: &McpClientManager, url: &str) -> Result<S, Error> {
    register(world, mcp, "pier", url);
    world.run(async {
        mcp.connect_to_server("pier").await?;
        mcp.discover_if_connected("pier", None).await
    })
}

/// A world with a server of HTTP+SSE at `url`, whose endpoint is at `endpoint`.
fn world_with_sse(url: &str, endpoint: &str, server: &Rc<SseServer>, refusal: u16) -> World {
    let world = World::new();
    let (opens, posts) = (server.clone(), server.clone());
    world
        .network
        .serve(url, move |seen| match seen.method.as_str() {
            "GET" => opens.open(),
            _ => Reply::status(refusal),
        });
    world.network.serve(endpoint, move |seen| posts.post(seen));
    world
}

// ---- TR-03, TR-04: which answers are evidence of an old server

#[test]
fn tr_03_a_server_of_sse_that_refuses_the_post_with_400_is_connected_to_in_auto() {
    let url = "https://pier.example/sse";
    let server = SseServer::new("/messages?sid=a1");
    let endpoint = "https://pier.example/messages?sid=a1";
    let mut world = world_with_sse(url, endpoint, &server, 400);
    let mcp = world.manager();
    assert_eq!(add_at(&mut world, &mcp, url).unwrap(), S::Ready);
    assert_eq!(arrived(&world, "POST", url), 1);
    assert_eq!(arrived(&world, "GET", url), 1);
    let transport = mcp.connection("pier").unwrap().transport;
    assert_eq!(transport, Some(TransportKind::Sse));
    assert_eq!(echo(&mcp, &mut world, 1).unwrap(), r#"{"n":1}"#);
}

#[test]
fn tr_04_trouble_is_told_as_it_is_and_never_becomes_an_error_of_sse() {
    type Case = (fn(&Seen) -> Reply, &'static str);
    let cases: [Case; 2] = [
        (
            |seen| match seen.method.as_str() {
                "GET" => Reply::status(405),
                _ => Reply::typed(502, "text/plain", "bad gateway"),
            },
            "502 (text/plain): bad gateway",
        ),
        (|_| Reply::Refused, "network: connection refused"),
    ];
    for (peer, text) in cases {
        let mut world = world_with(peer);
        let mcp = world.manager();
        let error = add(&mut world, &mcp).unwrap_err();
        assert!(error.describe().contains(text), "{}", error.describe());
        assert_eq!(state(&mcp), S::Failed);
        assert_eq!(count(&world, "GET"), 0);
        // Retried by the rule for all that may pass.
        world.network.forget();
        let mcp = world.wake();
        world.settle();
        for _ in 0..5 {
            world.advance(5 * SECOND);
        }
        assert_eq!(world.network.methods(), ["server/discover"; 3]);
        assert_eq!(state(&mcp), S::Reconnecting);
    }
}

#[test]
fn only_a_refusal_of_the_post_is_evidence_of_an_old_server() {
    // Status, whether a JSON-RPC error comes with it, POSTs before the GET, whether there is one.
    for (status, is_rpc, posts, falls_back) in [
        (400, false, 1, true),
        (404, false, 1, true),
        (405, false, 1, true),
        (400, true, 2, true),
        (404, true, 2, true),
        (405, true, 2, true),
        (406, false, 2, false),
        (406, true, 2, false),
        (409, false, 2, false),
        (410, false, 2, false),
        (415, false, 2, false),
        (422, false, 2, false),
        (422, true, 2, false),
        (200, true, 2, false),
        (401, false, 1, false),
        (401, true, 1, false),
        (403, false, 1, false),
        (403, true, 1, false),
        (408, false, 1, false),
        (429, false, 1, false),
        (429, true, 1, false),
        (500, false, 1, false),
        (500, true, 1, false),
        (501, false, 1, false),
        (502, false, 1, false),
        (503, false, 1, false),
        (504, false, 1, false),
    ] {
        let server = SseServer::new("/messages");
        let mut world = world_with_sse(URL, "https://pier.example/messages", &server, 0);
        world
            .network
            .serve(URL, move |seen| match seen.method.as_str() {
                "GET" => server.open(),
                _ if is_rpc => rpc_error(status, seen, -32000, Value::Null),
                _ => Reply::typed(status, "text/plain", "no"),
            });
        let mcp = world.manager();
        let outcome = add(&mut world, &mcp);
        let what = format!("{status} rpc={is_rpc}: {outcome:?}");
        assert_eq!(arrived(&world, "POST", URL), posts, "{what}");
        assert_eq!(
            arrived(&world, "GET", URL),
            usize::from(falls_back),
            "{what}"
        );
        assert_eq!(outcome.is_ok(), falls_back, "{what}");
        if let Err(error) = outcome {
            let text = error.describe();
            assert!(is_rpc || text.contains(&status.to_string()), "{what}");
        }
    }
}

#[test]
fn neither_a_page_nor_a_broken_body_is_evidence_of_an_old_server() {
    for reply in [
        || Reply::typed(200, "text/html", "<!doctype html>"),
        || Reply::typed(200, "application/json", "{"),
        || Reply::status(200),
        || Reply::events(": nothing\n\n"),
        || Reply::Raw(302, vec![("location", "/sse".into())], vec![]),
    ] {
        let mut world = world_with(move |_| reply());
        let mcp = world.manager();
        assert!(add(&mut world, &mcp).is_err());
        assert_eq!(world.network.methods(), ["server/discover"]);
    }
}

#[test]
fn a_get_that_meets_trouble_or_a_demand_is_told_and_one_that_is_no_sse_is_not() {
    for (get, needle) in [
        (401, "401"),
        (403, "403"),
        (429, "429"),
        (503, "503"),
        // The refusal of the POST says more than that there is no stream either.
        (405, "HTTP+SSE"),
        (404, "HTTP+SSE"),
    ] {
        let mut world = world_with(move |seen| match seen.method.as_str() {
            "GET" => Reply::status(get),
            _ => Reply::status(404),
        });
        let mcp = world.manager();
        let error = add(&mut world, &mcp).unwrap_err();
        assert!(
            error.describe().contains(needle),
            "{get}: {}",
            error.describe()
        );
        assert_eq!(arrived(&world, "GET", URL), 1, "{get}");
        assert!(world.network.methods().len() <= 3, "{get}");
    }
}

#[test]
fn the_transport_that_won_is_remembered_and_corrected() {
    let server = SseServer::new("/messages");
    let mut world = world_with_sse(URL, "https://pier.example/messages", &server, 404);
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.network.forget();
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), S::Ready);
    assert_eq!(arrived(&world, "POST", URL), 0, "asked again");
    assert_eq!(arrived(&world, "GET", URL), 1);
    world.advance(Duration::from_hours(24));
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), S::Ready);
    assert_eq!(arrived(&world, "POST", URL), 1, "believed for ever");

    // The server has been replaced by one of Streamable HTTP.
    let streamable = CaseServer::with_sessions();
    let peer = streamable.clone();
    world.network.serve(URL, move |seen| peer.answer(seen));
    world.network.forget();
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), S::Ready);
    let transport = mcp.connection("pier").unwrap().transport;
    assert_eq!(transport, Some(TransportKind::StreamableHttp));
    world.network.forget();
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(world.network.methods()[0], "tools/list", "it is remembered");

    // And by one of HTTP+SSE again.
    let peer = server.clone();
    world
        .network
        .serve(URL, move |seen| match seen.method.as_str() {
            "GET" => peer.open(),
            _ => Reply::status(404),
        });
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), S::Ready);
    let transport = mcp.connection("pier").unwrap().transport;
    assert_eq!(transport, Some(TransportKind::Sse));
}

#[test]
fn a_server_can_be_registered_with_the_old_transport_and_is_asked_for_nothing_else() {
    let server = SseServer::new("/messages");
    let mut world = world_with_sse(URL, "https://pier.example/messages", &server, 500);
    let mcp = world.manager();
    let sse = RegisterServer::new("pier", URL).transport(TransportKind::Sse);
    world.run(mcp.register_server("pier", sse)).unwrap();
    world.run(mcp.connect_to_server("pier")).unwrap();
    let ready = world.run(mcp.discover_if_connected("pier", None));
    assert_eq!(ready.unwrap(), S::Ready);
    assert_eq!(arrived(&world, "POST", URL), 0);
    assert_eq!(echo(&mcp, &mut world, 1).unwrap(), r#"{"n":1}"#);

    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), S::Ready);

    // Where there is no stream, that is the error, and nothing else is tried.
    let mut world = world_with(|seen| match seen.method.as_str() {
        "GET" => Reply::status(405),
        _ => modern(seen),
    });
    let mcp = world.manager();
    let sse = RegisterServer::new("pier", URL).transport(TransportKind::Sse);
    world.run(mcp.register_server("pier", sse)).unwrap();
    let error = world.run(mcp.connect_to_server("pier")).unwrap_err();
    assert!(error.describe().contains("405"), "{}", error.describe());
    assert_eq!(world.network.methods(), ["GET"]);
}

#[test]
fn a_server_registered_for_streamable_http_is_never_asked_for_a_stream() {
    let mut world = world_with(|_| Reply::status(404));
    let mcp = world.manager();
    let only = RegisterServer::new("pier", URL).transport(TransportKind::StreamableHttp);
    world.run(mcp.register_server("pier", only)).unwrap();
    let error = world.run(mcp.connect_to_server("pier")).unwrap_err();
    assert_eq!(error.http_status(), Some(404));
    assert_eq!(world.network.methods(), ["server/discover", "initialize"]);
}

// ---- TR-05: the optional stream

#[test]
fn tr_05_a_refused_stream_is_not_fatal() {
    for status in [404, 406, 400, 501, 500] {
        let server = CaseServer::with_sessions();
        let peer = server.clone();
        let mut world = world_with(move |seen| match seen.method.as_str() {
            "GET" => Reply::status(status),
            _ => peer.answer(seen),
        });
        let mcp = world.manager();
        assert_eq!(add(&mut world, &mcp).unwrap(), S::Ready, "{status}");
        for n in 0..3 {
            assert_eq!(
                echo(&mcp, &mut world, n).unwrap(),
                format!(r#"{{"n":{n}}}"#)
            );
            // Whatever is tried again is tried now.
            for _ in 0..10 {
                world.advance(10 * SECOND);
            }
        }
        assert_eq!(state(&mcp), S::Ready, "{status}");
        assert_eq!(server.issued.get(), 1, "{status}");
        let gets = count(&world, "GET");
        assert!((1..=9).contains(&gets), "{status}: {gets} times");
        assert!(mcp.connection("pier").unwrap().error.is_none());
    }
}

// ---- TR-11, TR-14: framing

#[test]
fn tr_11_an_event_with_an_id_and_no_data_is_not_json() {
    let server = CaseServer::with_sessions();
    let streams: Rc<RefCell<Option<(Feed, Value)>>> = Rc::default();
    let keep = streams.clone();
    let mut world = world_with(move |seen| match seen.rpc().as_str() {
        "tools/call" => {
            let (feed, reply) = feed();
            feed.text("id: e1\ndata:\n\n");
            keep.replace(Some((feed, seen.body["id"].clone())));
            reply
        }
        _ => server.answer(seen),
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
    world.advance(Duration::from_millis(100));
    assert!(call.outcome().is_none());
    let (feed, id) = streams.take().unwrap();
    let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "real"}]}});
    feed.text(&format!("id: e2\ndata: {answer}\n\n"));
    world.settle();
    assert_eq!(call.outcome().unwrap().unwrap().text(), "real");
    let info = mcp.connection("pier").unwrap();
    assert!(info.error.is_none() && info.last_error.is_none());
}

#[test]
fn tr_14_a_notification_before_the_result_of_initialize_is_no_answer() {
    let server = CaseServer::with_sessions();
    let mut world = world_with(move |seen| match seen.rpc().as_str() {
        "initialize" => {
            let Reply::Raw(_, headers, chunks) = server.answer(seen) else {
                panic!()
            };
            let answer = String::from_utf8(chunks.concat()).unwrap();
            let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "hello"}});
            let session = headers.iter().find(|(name, _)| *name == "mcp-session-id");
            Reply::events(&format!("{}: a comment\n\ndata: {answer}\n\n", event(&log)))
                .with("mcp-session-id", &session.unwrap().1)
        }
        _ => server.answer(seen),
    });
    let mcp = world.manager();
    assert_eq!(add(&mut world, &mcp).unwrap(), S::Ready);
    assert_eq!(echo(&mcp, &mut world, 1).unwrap(), r#"{"n":1}"#);
}

#[test]
fn answers_may_come_in_an_array() {
    // 2025-03-26 has batches; what is one in a body or an event is taken apart.
    for is_stream in [false, true] {
        let server = CaseServer::stateless();
        let mut world = world_with(move |seen| {
            let reply = server.answer(seen);
            let (Reply::Json(200, body), false) = (&reply, seen.body["id"].is_null()) else {
                return reply;
            };
            let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}});
            let batch = json!([log, body]);
            if is_stream {
                Reply::events(&event(&batch))
            } else {
                Reply::Json(200, batch)
            }
        });
        let mcp = world.manager();
        assert_eq!(add(&mut world, &mcp).unwrap(), S::Ready);
        assert_eq!(echo(&mcp, &mut world, 1).unwrap(), r#"{"n":1}"#);
    }
}

#[test]
fn whatever_a_server_answers_to_a_notification_is_fine() {
    for reply in [
        || Reply::status(202),
        || Reply::status(204),
        || Reply::status(200),
        || Reply::typed(200, "application/json", "{}"),
        || Reply::typed(200, "text/html", "<p>thank you"),
        || Reply::typed(202, "text/plain", "Accepted"),
        || Reply::events("event: ping\n\n"),
    ] {
        let server = CaseServer::with_sessions();
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "notifications/initialized" => reply(),
            _ => server.answer(seen),
        });
        let mcp = world.manager();
        assert_eq!(add(&mut world, &mcp).unwrap(), S::Ready);
    }
}

// ---- TR-17, TR-19: the endpoint

#[test]
fn tr_17_the_endpoint_is_a_reference_against_the_url_of_the_stream() {
    let url = "http://pier.example/weather/sse?k=1";
    for (data, endpoint) in [
        ("/messages?sid=1", "http://pier.example/messages?sid=1"),
        (
            "messages?sid=1",
            "http://pier.example/weather/messages?sid=1",
        ),
        ("?sid=1", "http://pier.example/weather/sse?sid=1"),
        (
            "http://pier.example/weather/messages?sid=1&a=%20b",
            "http://pier.example/weather/messages?sid=1&a=%20b",
        ),
        (
            "/weather/messages?sid=1#x",
            "http://pier.example/weather/messages?sid=1",
        ),
    ] {
        let server = SseServer::new(data);
        let mut world = world_with_sse(url, endpoint, &server, 404);
        let mcp = world.manager();
        assert_eq!(add_at(&mut world, &mcp, url).unwrap(), S::Ready, "{data}");
        echo(&mcp, &mut world, 1).unwrap();
        let posts = arrived(&world, "POST", endpoint);
        assert_eq!(posts, 4, "{data}");
        let all = world.network.seen.borrow();
        let others: Vec<_> = all
            .iter()
            .filter(|seen| seen.url != endpoint && seen.url != url)
            .map(|seen| seen.url.clone())
            .collect();
        assert_eq!(others, [""; 0], "{data}");
    }
}

#[test]
fn tr_19_the_fields_of_the_endpoint_event_come_in_any_order() {
    for text in [
        "data: /message?sid=9\r\nevent: endpoint\r\n\r\n",
        "data: /message?sid=9\revent: endpoint\r\r",
        "\u{feff}id: 1\nretry: 10\ndata:/message?sid=9\nevent:endpoint\n\n",
        ": hello\r\n\r\ndata: /message?sid=9\r\nevent: endpoint\r\n\r\n",
    ] {
        let server = SseServer::new("");
        let endpoint = "https://pier.example/message?sid=9";
        let mut world = world_with_sse(URL, endpoint, &server, 405);
        world
            .network
            .serve(URL, move |seen| match seen.method.as_str() {
                "GET" => {
                    let (feed, reply) = feed();
                    // Byte by byte, as the network may have it.
                    for byte in text.bytes() {
                        feed.bytes(vec![byte]);
                    }
                    server.feed.replace(Some(feed));
                    reply
                }
                _ => Reply::status(405),
            });
        let mcp = world.manager();
        assert_eq!(add(&mut world, &mcp).unwrap(), S::Ready, "{text:?}");
    }
}

// ---- TR-20: queries

#[test]
fn tr_20_the_query_of_a_server_is_on_every_request() {
    let url = "http://pier.example/mcp?tenant=a%20b&x=1";
    let server = CaseServer::with_sessions();
    let mut world = World::new();
    let peer = server.clone();
    world.network.serve(url, move |seen| peer.answer(seen));
    let mcp = world.manager();
    assert_eq!(add_at(&mut world, &mcp, url).unwrap(), S::Ready);
    echo(&mcp, &mut world, 1).unwrap();
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    echo(&mcp, &mut world, 2).unwrap();
    server.forget_sessions();
    echo(&mcp, &mut world, 3).unwrap();
    world.run(mcp.remove_server("pier")).unwrap();
    world.settle();
    for method in ["POST", "GET", "DELETE"] {
        assert!(arrived(&world, method, url) > 0, "{method}");
    }
    let seen = world.network.seen.borrow();
    assert!(seen.iter().all(|seen| seen.url == url), "{seen:?}");
}

#[test]
fn tr_20_the_query_of_a_stream_is_on_the_get_and_that_of_the_endpoint_on_the_post() {
    let (url, endpoint) = (
        "http://pier.example/sse?tenant=a",
        "http://pier.example/messages?sid=1",
    );
    let server = SseServer::new("/messages?sid=1");
    let mut world = world_with_sse(url, endpoint, &server, 405);
    let mcp = world.manager();
    assert_eq!(add_at(&mut world, &mcp, url).unwrap(), S::Ready);
    echo(&mcp, &mut world, 1).unwrap();
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    echo(&mcp, &mut world, 2).unwrap();
    let seen = world.network.seen.borrow();
    assert!(
        seen.iter()
            .all(|seen| seen.url == url || seen.method == "POST" && seen.url == endpoint),
        "{seen:?}"
    );
}

// ---- TR-21, TR-23: what is in the body

#[test]
fn tr_21_an_error_in_the_body_of_a_400_is_told() {
    let server = CaseServer::with_sessions();
    let is_bad = Rc::new(Cell::new(true));
    let (peer, bad) = (server.clone(), is_bad.clone());
    let mut world = world_with(move |seen| match seen.rpc().as_str() {
        "tools/call" if bad.replace(false) => {
            let error =
                json!({"code": -32602, "message": "bad argument: city", "data": {"field": "city"}});
            Reply::Json(
                400,
                json!({"jsonrpc": "2.0", "id": seen.body["id"], "error": error}),
            )
        }
        _ => peer.answer(seen),
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let Err(Error::Rpc(error)) = world.run(mcp.call_tool("pier", "echo", json!({}))) else {
        panic!("no JSON-RPC error")
    };
    let data = error.data.as_ref().map(|data| data.get());
    assert_eq!(
        (error.code, &*error.message, data),
        (-32602, "bad argument: city", Some(r#"{"field":"city"}"#))
    );
    assert_eq!(state(&mcp), S::Ready);
    assert_eq!(echo(&mcp, &mut world, 1).unwrap(), r#"{"n":1}"#);
    assert_eq!(server.issued.get(), 1);
}

#[test]
fn tr_23_answers_to_other_requests_are_refused_at_once() {
    let server = CaseServer::stateless();
    let mut world = world_with(
        move |seen| match (server.answer(seen), seen.rpc().as_str()) {
            (Reply::Json(status, mut body), "tools/list" | "tools/call") => {
                body["id"] = json!(0);
                Reply::Json(status, body)
            }
            (reply, _) => reply,
        },
    );
    let mcp = world.manager();
    let error = add(&mut world, &mcp).unwrap_err();
    assert!(error.describe().contains("id does not match"), "{error:?}");
    assert_eq!(names(&mcp), [""; 0]);
    let calls = [1, 2].map(|n| {
        let mcp = mcp.clone();
        world.start(async move { mcp.call_tool("pier", "echo", json!({"n": n})).await })
    });
    for call in calls {
        let error = call.outcome().expect("it waits").unwrap_err();
        assert!(error.describe().contains("id does not match"), "{error:?}");
    }
}

#[test]
fn tr_23_a_server_that_stamps_the_handshake_too_is_refused_at_once() {
    let server = CaseServer::stateless();
    let mut world = world_with(move |seen| match server.answer(seen) {
        Reply::Raw(200, headers, chunks) if !chunks.is_empty() => {
            let mut body: Value = serde_json::from_slice(&chunks.concat()).unwrap();
            body["id"] = json!(0);
            Reply::Raw(200, headers, vec![body.to_string().into_bytes()])
        }
        reply => reply,
    });
    let mcp = world.manager();
    let error = add(&mut world, &mcp).unwrap_err();
    assert!(error.describe().contains("id does not match"), "{error:?}");
    assert_eq!(state(&mcp), S::Failed);
}

// ---- TR-25 to TR-28: versions and the handshake

#[test]
fn tr_25_an_older_revision_that_the_server_picks_is_the_one_spoken() {
    for version in ["2025-03-26", "2024-11-05", "2025-06-18"] {
        let server = CaseServer::with_sessions();
        server.version.set(version);
        let mut world = server.world();
        let mcp = world.manager();
        assert_eq!(add(&mut world, &mcp).unwrap(), S::Ready, "{version}");
        echo(&mcp, &mut world, 1).unwrap();
        let mcp = world.wake();
        world.run(mcp.wait_for_connections(None));
        echo(&mcp, &mut world, 2).unwrap();
        let revision = mcp.connection("pier").unwrap().revision.unwrap();
        assert_eq!(revision.as_str(), version);
        world.run(mcp.close_connection("pier")).unwrap();
        world.settle();
        let seen = world.network.seen.borrow();
        assert!(seen.iter().any(|seen| seen.method == "DELETE"));
        for seen in seen.iter() {
            let expected = match seen.rpc().as_str() {
                "server/discover" => Some("2026-07-28"),
                "initialize" => None,
                _ => Some(version),
            };
            assert_eq!(seen.header("mcp-protocol-version"), expected, "{seen:?}");
        }
    }
}

#[test]
fn tr_26_a_revision_that_nobody_knows_ends_the_handshake() {
    for (version, text) in [
        (Some(json!("1999-01-01")), "1999-01-01"),
        (None, "protocolVersion"),
        (Some(json!("v2")), "v2"),
        (Some(json!("2026-07-28")), "2026-07-28"),
        (Some(json!(20_251_125)), "protocolVersion"),
        (Some(json!(null)), "protocolVersion"),
    ] {
        let server = CaseServer::stateless();
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "initialize" => {
                let mut result = handshake("");
                result.as_object_mut().unwrap().remove("protocolVersion");
                if let Some(version) = &version {
                    result["protocolVersion"] = version.clone();
                }
                crate::support::mcp_server::result(seen, result)
            }
            _ => server.answer(seen),
        });
        let mcp = world.manager();
        let error = add(&mut world, &mcp).unwrap_err();
        let told = error.describe();
        assert!(told.contains(text), "{told}");
        if text != "protocolVersion" {
            assert!(
                told.contains("version") && told.contains("2024-11-05"),
                "{told}"
            );
        }
        assert_eq!(state(&mcp), S::Failed);
        assert_eq!(world.network.methods(), ["server/discover", "initialize"]);
    }
}

/// Refuses every revision in a header that is newer than 2025-06-18.
fn old_gate(seen: &Seen) -> Option<Reply> {
    let version = seen.header("mcp-protocol-version")?;
    let text = "Unsupported protocol version (supported versions: 2025-06-18, 2025-03-26)";
    (version > "2025-06-18").then(|| Reply::typed(400, "text/plain", text))
}

#[test]
fn tr_27_initialize_names_no_revision_in_a_header() {
    let server = CaseServer::with_sessions();
    server.version.set("2025-06-18");
    let mut world = world_with(move |seen| old_gate(seen).unwrap_or_else(|| server.answer(seen)));
    let mcp = world.manager();
    assert_eq!(add(&mut world, &mcp).unwrap(), S::Ready);
    assert_eq!(echo(&mcp, &mut world, 1).unwrap(), r#"{"n":1}"#);

    // Still refused: the text is shown.
    let mut world = world_with(|seen| match seen.method.as_str() {
        "GET" => Reply::status(405),
        _ => old_gate(seen).unwrap_or_else(|| {
            Reply::typed(400, "text/plain", "Unsupported protocol version (ours: 7)")
        }),
    });
    let mcp = world.manager();
    let error = add(&mut world, &mcp).unwrap_err().describe();
    assert!(
        error.contains("Unsupported protocol version (ours: 7)"),
        "{error}"
    );
}

#[test]
fn tr_28_a_session_id_on_a_refusal_is_never_sent() {
    let server = CaseServer::with_sessions();
    let peer = server.clone();
    let is_first = Cell::new(true);
    let mut world = world_with(move |seen| {
        if seen.method == "POST" && is_first.replace(false) {
            return Reply::status(400).with("mcp-session-id", "junk");
        }
        match seen.rpc().as_str() {
            "initialize" if seen.header("mcp-session-id").is_some() => Reply::status(404),
            "initialize" => {
                peer.known.replace(Some("good".into()));
                initialized(seen, "2025-11-25").with("mcp-session-id", "good")
            }
            // It has no stream of the old kind, with or without a session.
            "GET" => Reply::status(405).with("mcp-session-id", "junk"),
            _ => peer.answer(seen),
        }
    });
    let mcp = world.manager();
    assert_eq!(add(&mut world, &mcp).unwrap(), S::Ready);
    echo(&mcp, &mut world, 1).unwrap();
    let seen = world.network.seen.borrow();
    let sessions: Vec<_> = seen
        .iter()
        .filter_map(|seen| seen.header("mcp-session-id"))
        .collect();
    assert!(sessions.len() >= 3 && sessions.iter().all(|id| *id == "good"));
}

#[test]
fn the_host_chooses_the_revisions_to_offer() {
    use Revision::*;
    type Case = (&'static [Revision], &'static str, Option<&'static str>);
    // What is chosen, what the server picks, and what is offered to it.
    let cases: [Case; 4] = [
        (&[V2025_06_18], "2025-06-18", Some("2025-06-18")),
        (
            &[V2025_03_26, V2025_11_25],
            "2025-03-26",
            Some("2025-11-25"),
        ),
        (&[V2025_06_18], "2025-11-25", None),
        (&[V2026_07_28], "2025-11-25", None),
    ];
    for (chosen, version, offered) in cases {
        let server = CaseServer::with_sessions();
        server.version.set(version);
        let mut world = server.world();
        let mcp = world.manager();
        let one = RegisterServer::new("pier", URL).protocol_versions(chosen.iter().copied());
        world.run(mcp.register_server("pier", one)).unwrap();
        let outcome = world.run(mcp.connect_to_server("pier"));
        world.settle();
        assert_eq!(
            outcome.is_ok(),
            offered.is_some(),
            "{chosen:?}: {outcome:?}"
        );
        let probes = usize::from(chosen.contains(&V2026_07_28));
        assert_eq!(count(&world, "server/discover"), probes, "{chosen:?}");
        assert_eq!(count(&world, "initialize"), 1 - probes, "{chosen:?}");
        let seen = world.network.seen.borrow();
        let asked = seen.iter().find(|seen| seen.rpc() == "initialize");
        if let (Some(asked), Some(offered)) = (asked, offered) {
            assert_eq!(asked.body["params"]["protocolVersion"], offered);
        }
        if outcome.is_err() && probes == 0 {
            // The server has begun a session, which is of no use.
            assert_eq!(seen.last().unwrap().method, "DELETE");
        }
    }
}

// ---- TR-29, TR-30: calls that take their time

#[test]
fn tr_29_a_stream_that_ends_without_the_answer_fails_the_call_and_no_other() {
    for is_reset in [false, true] {
        let server = CaseServer::with_sessions();
        let streams: Rc<RefCell<Vec<(Feed, Value)>>> = Rc::default();
        let keep = streams.clone();
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "tools/call" => {
                let (feed, reply) = feed();
                let token = &seen.body["params"]["_meta"]["progressToken"];
                feed.message(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}));
                keep.borrow_mut().push((feed, seen.body["id"].clone()));
                reply
            }
            _ => server.answer(seen),
        });
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        let [first, second] = [1, 2].map(|n| {
            let mcp = mcp.clone();
            world.start(async move { mcp.call_tool("pier", "echo", json!({"n": n})).await })
        });
        let (feed, _) = streams.borrow()[0].clone();
        if is_reset {
            feed.reset();
        } else {
            feed.end();
        }
        world.settle();
        let error = first.outcome().expect("it waits").unwrap_err();
        let text = error.describe();
        assert!(
            text.contains(if is_reset { "reset" } else { "stream ended" }),
            "{text}"
        );
        // Not even later.
        world.advance(10 * SECOND);
        assert_eq!(count(&world, "tools/call"), 2, "sent once more");
        assert!(second.outcome().is_none());
        let (feed, id) = streams.borrow()[1].clone();
        feed.message(&json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}}));
        world.settle();
        second.outcome().unwrap().unwrap();
        assert_eq!(state(&mcp), S::Ready);
    }
}

#[test]
fn tr_29_a_stream_that_is_the_session_fails_the_calls_on_it_at_once() {
    let server = SseServer::new("/messages?sid={}");
    let mut world = world_with_sse(URL, "https://pier.example/messages?sid=1", &server, 405);
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    server.is_silent.set(true);
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
    assert!(call.outcome().is_none());
    server.reboot();
    world.settle();
    assert!(call.outcome().expect("it waits").is_err());
    assert_eq!(count(&world, "tools/call"), 1, "sent once more");
}

#[test]
fn tr_30_progress_keeps_a_call_alive_up_to_a_ceiling() {
    for is_endless in [false, true] {
        let server = CaseServer::stateless();
        let streams: Rc<RefCell<Option<(Feed, Value, Value)>>> = Rc::default();
        let keep = streams.clone();
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "tools/call" => {
                let (feed, reply) = feed();
                let token = seen.body["params"]["_meta"]["progressToken"].clone();
                keep.replace(Some((feed, seen.body["id"].clone(), token)));
                reply
            }
            _ => server.answer(seen),
        });
        world.options = world
            .options
            .request_timeout(5 * SECOND)
            .max_request_time(60 * SECOND);
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        let calling = mcp.clone();
        let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
        let (feed, id, token) = streams.take().unwrap();
        assert!(!token.is_null(), "no token, no progress");
        let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}});
        let mut seconds = 0;
        while seconds < if is_endless { 58 } else { 14 } {
            world.advance(2 * SECOND);
            seconds += 2;
            feed.message(&progress);
            world.settle();
            assert!(call.outcome().is_none(), "over after {seconds} s");
        }
        world.advance(SECOND);
        assert!(call.outcome().is_none());
        if is_endless {
            feed.message(&progress);
            world.advance(SECOND);
            let error = call.outcome().expect("beyond the ceiling").unwrap_err();
            assert!(
                matches!(&error, Error::Timeout { after, .. } if *after == 60 * SECOND),
                "{error:?}"
            );
            assert!(feed.is_gone(), "still listening");
        } else {
            feed.message(&json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}}));
            world.settle();
            call.outcome().unwrap().unwrap();
        }
    }
}

#[test]
fn progress_of_somebody_else_keeps_nobody_alive() {
    let server = CaseServer::stateless();
    let streams: Rc<RefCell<Option<Feed>>> = Rc::default();
    let keep = streams.clone();
    let mut world = world_with(move |seen| match seen.rpc().as_str() {
        "tools/call" => {
            let (feed, reply) = feed();
            keep.replace(Some(feed));
            reply
        }
        _ => server.answer(seen),
    });
    world.options = world.options.request_timeout(5 * SECOND);
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
    let feed = streams.take().unwrap();
    for token in [json!(1), json!("x"), json!(null)] {
        world.advance(SECOND);
        feed.message(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}));
    }
    world.advance(2 * SECOND);
    let error = call.outcome().expect("it waits").unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
}

// ---- Giving up

#[test]
fn a_legacy_server_is_told_which_call_is_given_up() {
    for times_out in [false, true] {
        let server = CaseServer::with_sessions();
        let streams: Rc<RefCell<Vec<Feed>>> = Rc::default();
        let keep = streams.clone();
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "tools/call" => {
                let (feed, reply) = feed();
                keep.borrow_mut().push(feed);
                reply
            }
            _ => server.answer(seen),
        });
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        if times_out {
            let calling = mcp.clone();
            let call =
                world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
            world.advance(60 * SECOND);
            assert!(matches!(call.outcome(), Some(Err(Error::Timeout { .. }))));
        } else {
            let mut call = Box::pin(mcp.call_tool("pier", "echo", json!({})));
            assert!(call.as_mut().now_or_never().is_none());
            drop(call);
        }
        world.settle();
        assert!(streams.borrow()[0].is_gone(), "still listening");
        let seen = world.network.seen.borrow();
        let call = seen.iter().find(|seen| seen.rpc() == "tools/call").unwrap();
        let told: Vec<_> = seen
            .iter()
            .filter(|seen| seen.rpc() == "notifications/cancelled")
            .collect();
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].body["params"]["requestId"], call.body["id"]);
        assert!(told[0].body["id"].is_null());
        assert_eq!(told[0].header("mcp-session-id"), Some("s1"));
        assert_eq!(told[0].header("mcp-protocol-version"), Some("2025-11-25"));
    }
}

#[test]
fn an_answered_call_and_a_failed_one_are_not_given_up() {
    let server = CaseServer::with_sessions();
    let mut world = world_with(
        move |seen| match seen.body["params"]["arguments"]["n"].as_u64() {
            Some(2) => rpc_error(400, seen, -32602, Value::Null),
            Some(3) => Reply::status(500),
            Some(4) => Reply::events(": nothing\n\n"),
            _ => server.answer(seen),
        },
    );
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    for n in 1..=4 {
        assert_eq!(echo(&mcp, &mut world, n).is_ok(), n == 1);
    }
    world.settle();
    assert_eq!(count(&world, "notifications/cancelled"), 0);
}

#[test]
fn the_handshake_is_never_cancelled() {
    for silent in ["server/discover", "initialize"] {
        let server = CaseServer::with_sessions();
        let mut world = world_with(move |seen| {
            if seen.rpc() == silent {
                return Reply::Silence;
            }
            server.answer(seen)
        });
        let mcp = world.manager();
        register(&mut world, &mcp, "pier", URL);
        let connecting = mcp.clone();
        let connect = world.start(async move { connecting.connect_to_server("pier").await });
        world.advance(60 * SECOND);
        assert!(connect.outcome().unwrap().is_err());
        world.settle();
        assert_eq!(world.network.methods().last().unwrap(), silent);
    }
}

#[test]
fn in_the_modern_era_giving_up_is_hanging_up() {
    let streams: Rc<RefCell<Option<Feed>>> = Rc::default();
    let keep = streams.clone();
    let mut world = world_with(move |seen| match seen.rpc().as_str() {
        "tools/call" => {
            let (feed, reply) = feed();
            keep.replace(Some(feed));
            reply
        }
        _ => modern(seen),
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let mut call = Box::pin(mcp.call_tool("pier", "echo", json!({})));
    assert!(call.as_mut().now_or_never().is_none());
    drop(call);
    world.settle();
    assert!(streams.take().unwrap().is_gone(), "still listening");
    assert_eq!(world.network.methods().last().unwrap(), "tools/call");
}

// ---- TR-32: pages where JSON-RPC should be

#[test]
fn tr_32_a_page_is_not_an_empty_list() {
    type Case = (fn() -> Reply, &'static [&'static str]);
    let cases: [Case; 3] = [
        (
            || {
                let page = "<!doctype html><title>Sign in</title>".to_owned() + &"x".repeat(5_000);
                Reply::typed(200, "text/html; charset=utf-8", page)
            },
            &["200", "text/html", "&lt;!doctype html&gt;"],
        ),
        (
            || Reply::typed(200, "application/json", r#"{"tools":"#),
            &["200", "application/json", "{&quot;tools&quot;:"],
        ),
        (|| Reply::status(200), &["200", "empty"]),
    ];
    for (broken, needles) in cases {
        let is_broken = Rc::new(Cell::new(true));
        let (server, breaks) = (CaseServer::with_sessions(), is_broken.clone());
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "tools/list" if breaks.get() => broken(),
            _ => server.answer(seen),
        });
        let mcp = world.manager();
        let told = add(&mut world, &mcp).unwrap_err().describe();
        for needle in needles {
            assert!(told.contains(needle), "{needle} is not in: {told}");
        }
        assert!(told.len() < 500 && !told.contains('<'), "{told}");
        assert_ne!(state(&mcp), S::Ready);
        let error = mcp.connection("pier").unwrap().error.unwrap();
        assert_eq!(error.describe(), told);

        // The list that was good stays.
        is_broken.set(false);
        let discovered = world.run(mcp.discover_if_connected("pier", None));
        assert_eq!(discovered.unwrap(), S::Ready);
        assert_eq!(names(&mcp), ["echo"]);
        is_broken.set(true);
        let failed = world.run(mcp.discover_if_connected("pier", None));
        assert!(failed.is_err());
        assert_eq!(names(&mcp), ["echo"]);
        assert!(mcp.connection("pier").unwrap().error.is_some());
    }
}

#[test]
fn tr_32_a_page_in_place_of_a_list_that_changed_leaves_the_list() {
    let server = CaseServer::with_sessions();
    let streams: Rc<RefCell<Option<Feed>>> = Rc::default();
    let (keep, is_broken) = (streams.clone(), Rc::new(Cell::new(false)));
    let breaks = is_broken.clone();
    let mut world = world_with(move |seen| match seen.rpc().as_str() {
        "GET" => {
            let (feed, reply) = feed();
            keep.replace(Some(feed));
            reply
        }
        "tools/list" if breaks.get() => Reply::typed(200, "text/html", "<p>Sign in"),
        _ => server.answer(seen),
    });
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.settle();
    is_broken.set(true);
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    streams.borrow().as_ref().unwrap().message(&changed);
    world.settle();
    world.advance(SECOND);
    assert_eq!(count(&world, "tools/list"), 2);
    assert_eq!(names(&mcp), ["echo"]);
    let info = mcp.connection("pier").unwrap();
    let told = info.last_error.unwrap().error.describe();
    assert!(told.contains("text/html"), "{told}");
}

// ---- What is remembered of a server without sessions

#[test]
fn a_legacy_server_without_sessions_is_not_probed_again_for_a_day() {
    let server = CaseServer::stateless();
    let mut world = server.world();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    assert_eq!(count(&world, "server/discover"), 1);
    for (hours, probes) in [(1, 0), (22, 0), (24, 1)] {
        world.network.forget();
        world.advance(Duration::from_hours(hours));
        let mcp = world.wake();
        world.run(mcp.wait_for_connections(None));
        assert_eq!(state(&mcp), S::Ready);
        assert_eq!(count(&world, "server/discover"), probes, "{hours}");
        assert_eq!(count(&world, "initialize"), 1);
    }
}

#[test]
fn a_server_that_has_become_modern_is_found_out_without_waiting_for_a_day() {
    let server = CaseServer::stateless();
    let mut world = server.world();
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.network.serve(URL, |seen| match seen.rpc().as_str() {
        "initialize" => rpc_error(400, seen, -32022, json!({"supported": ["2026-07-28"]})),
        "server/discover" => result(
            seen,
            json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}),
        ),
        "tools/list" => result(seen, json!({"resultType": "complete", "tools": [tool("new")]})),
        _ => Reply::status(404),
    });
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    assert_eq!(state(&mcp), S::Ready);
    assert_eq!(names(&mcp), ["new"]);
}

// ---- Neighbours

#[test]
fn a_request_that_meets_trouble_is_sent_once() {
    for reply in [
        || Reply::status(502),
        || Reply::status(503).with("retry-after", "1"),
        || Reply::status(429),
        || Reply::status(408),
        || Reply::Refused,
        || Reply::status(202),
        || Reply::typed(200, "text/html", "<p>"),
    ] {
        let server = CaseServer::with_sessions();
        let peer = server.clone();
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "tools/call" => reply(),
            _ => peer.answer(seen),
        });
        let mcp = world.manager();
        add(&mut world, &mcp).unwrap();
        assert!(echo(&mcp, &mut world, 1).is_err());
        world.advance(10 * SECOND);
        assert_eq!(count(&world, "tools/call"), 1);
        assert_eq!((server.issued.get(), state(&mcp)), (1, S::Ready));
    }
}

#[test]
fn progress_counts_on_whichever_stream_it_comes() {
    let server = CaseServer::with_sessions();
    let streams: Rc<RefCell<Vec<(Feed, Value)>>> = Rc::default();
    let keep = streams.clone();
    let mut world = world_with(move |seen| match seen.rpc().as_str() {
        "tools/call" | "GET" => {
            let (feed, reply) = feed();
            keep.borrow_mut().push((feed, seen.body.clone()));
            reply
        }
        _ => server.answer(seen),
    });
    world.options = world.options.request_timeout(5 * SECOND);
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    world.settle();
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
    let [(standing, _), (own, body)] = &streams.borrow()[..] else {
        panic!("not two streams")
    };
    let token = &body["params"]["_meta"]["progressToken"];
    for _ in 0..5 {
        world.advance(4 * SECOND);
        standing.message(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}));
        world.settle();
        assert!(call.outcome().is_none());
    }
    own.message(&json!({"jsonrpc": "2.0", "id": body["id"], "result": {"content": []}}));
    world.settle();
    call.outcome().unwrap().unwrap();
}

#[test]
fn a_stream_that_is_none_of_the_old_transport_only_delays_the_handshake() {
    // A server of Streamable HTTP that refuses the probe without a word, and opens a stream to
    // anybody: one that stays silent, and one that speaks of something else.
    for speaks in [false, true] {
        let server = CaseServer::stateless();
        let streams: Rc<RefCell<Vec<Feed>>> = Rc::default();
        let keep = streams.clone();
        let mut world = world_with(move |seen| match seen.rpc().as_str() {
            "server/discover" => Reply::status(400),
            "GET" => {
                let (feed, reply) = feed();
                if speaks {
                    feed.message(&json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}));
                }
                keep.borrow_mut().push(feed);
                reply
            }
            _ => server.answer(seen),
        });
        let mcp = world.manager();
        register(&mut world, &mcp, "pier", URL);
        let connecting = mcp.clone();
        let connect = world.start(async move { connecting.connect_to_server("pier").await });
        world.advance(10 * SECOND);
        connect.outcome().expect("it waits").unwrap();
        let transport = mcp.connection("pier").unwrap().transport;
        assert_eq!(transport, Some(TransportKind::StreamableHttp));
        assert!(streams.borrow()[0].is_gone(), "the stream was left open");
    }
}

#[test]
fn an_endpoint_elsewhere_is_told_and_nothing_is_sent_there() {
    for (data, needle) in [
        ("https://other.example/messages", "https://other.example"),
        ("http://pier.example/messages", "http://pier.example"),
        ("//other.example/messages", "https://other.example"),
        ("http://10.0.0.1/messages", "10.0.0.1"),
        ("file:///etc/passwd", "endpoint"),
    ] {
        let server = SseServer::new(data);
        let mut world = world_with_sse(URL, data, &server, 405);
        let mcp = world.manager();
        let told = add(&mut world, &mcp).unwrap_err().describe();
        assert!(told.contains(needle) || told.contains("blocked"), "{told}");
        assert_eq!(
            world.network.methods(),
            ["server/discover", "GET"],
            "{data}"
        );
        world.settle();
        assert!(server.feed.borrow().as_ref().unwrap().is_gone());
    }
}

#[test]
fn the_stream_of_the_old_transport_is_let_go_and_taken_up_with_its_use() {
    let server = SseServer::new("/messages");
    let mut world = world_with_sse(URL, "https://pier.example/messages", &server, 405);
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    let first = server.feed.borrow().clone().unwrap();
    for _ in 0..4 {
        world.advance(10 * SECOND);
    }
    assert!(first.is_gone(), "it keeps the object awake");
    assert_eq!(state(&mcp), S::Ready);
    assert_eq!(server.opened.get(), 1);
    assert_eq!(echo(&mcp, &mut world, 1).unwrap(), r#"{"n":1}"#);
    assert_eq!(server.opened.get(), 2);
    // Closing hangs up; there is nothing to end by DELETE.
    world.run(mcp.close_connection("pier")).unwrap();
    world.settle();
    assert!(server.feed.borrow().as_ref().unwrap().is_gone());
    assert_eq!(count(&world, "DELETE"), 0);
}

#[test]
fn more_servers_of_the_old_transport_than_streams_take_turns() {
    let mut world = World::new();
    let mcp = world.manager();
    let mut servers = Vec::new();
    for number in 0..4 {
        let origin = format!("https://pier-{number}.example");
        let server = SseServer::new("/messages");
        let (opens, posts) = (server.clone(), server.clone());
        let url = format!("{origin}/sse");
        world
            .network
            .serve(&url, move |seen| match seen.method.as_str() {
                "GET" => opens.open(),
                _ => Reply::status(405),
            });
        let endpoint = format!("{origin}/messages");
        world.network.serve(&endpoint, move |seen| posts.post(seen));
        servers.push((format!("s{number}"), url, server));
    }
    for (id, url, _) in &servers {
        register(&mut world, &mcp, id, url);
        world.run(mcp.connect_to_server(id)).unwrap();
        let ready = world.run(mcp.discover_if_connected(id, None));
        assert_eq!(ready.unwrap(), S::Ready);
    }
    for _ in 0..2 {
        for (id, ..) in &servers {
            let result = world.run(mcp.call_tool(id, "echo", json!({})));
            assert_eq!(result.unwrap().text(), "{}");
            let open = servers
                .iter()
                .filter(|(.., server)| !server.feed.borrow().as_ref().unwrap().is_gone());
            assert!(open.count() <= 2);
        }
    }
    // All at once: those who are served make way for those who wait.
    let calls: Vec<_> = servers
        .iter()
        .map(|(id, ..)| {
            let (mcp, id) = (mcp.clone(), id.clone());
            world.start(async move { mcp.call_tool(&id, "echo", json!({})).await })
        })
        .collect();
    world.settle();
    for call in calls {
        call.outcome().expect("it waits").unwrap();
    }
    let mcp = world.wake();
    world.run(mcp.wait_for_connections(None));
    for (id, ..) in &servers {
        assert_eq!(mcp.connection(id).unwrap().state, S::Ready);
    }
}

#[test]
fn over_the_old_transport_a_call_that_is_given_up_is_cancelled_too() {
    let server = SseServer::new("/messages");
    let mut world = world_with_sse(URL, "https://pier.example/messages", &server, 405);
    let mcp = world.manager();
    add(&mut world, &mcp).unwrap();
    server.is_silent.set(true);
    let calling = mcp.clone();
    let call = world.start(async move { calling.call_tool("pier", "echo", json!({})).await });
    world.advance(60 * SECOND);
    assert!(matches!(call.outcome(), Some(Err(Error::Timeout { .. }))));
    {
        let seen = world.network.seen.borrow();
        let call = seen.iter().find(|seen| seen.rpc() == "tools/call").unwrap();
        let told = seen.last().unwrap();
        assert_eq!(told.rpc(), "notifications/cancelled");
        assert_eq!(told.body["params"]["requestId"], call.body["id"]);
        assert_eq!(told.header("mcp-session-id"), None);
    }
    // An answer that comes late harms nobody.
    let late = world
        .network
        .seen
        .borrow()
        .iter()
        .find(|seen| seen.rpc() == "tools/call")
        .unwrap()
        .body["id"]
        .clone();
    let feed = server.feed.borrow().clone().unwrap();
    feed.message(&json!({"jsonrpc": "2.0", "id": late, "result": {"content": [{"type": "text", "text": "late"}]}}));
    server.is_silent.set(false);
    assert_eq!(echo(&mcp, &mut world, 2).unwrap(), r#"{"n":2}"#);
}
