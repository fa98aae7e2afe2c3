//! HTTP+SSE: one stream for everything, one endpoint to post to.

use std::cell::RefCell;
use std::rc::Rc;

use futures::StreamExt as _;
use http::HeaderMap;
use serde_json::json;
use workers_agents::protocol::RequestId;
use workers_agents::transport::*;

use crate::support::*;

const SSE: &str = "http://host.example/weather/sse?k=1";

/// A server whose stream is fed by hand. POSTs get `posted`.
fn world(posted: impl Fn(&Seen) -> Reply + 'static) -> (World, Feed) {
    let (feed, body) = Feed::new();
    let body = RefCell::new(Some(body));
    let world = World::new(move |seen| match seen.method.as_str() {
        "GET" => Reply::streaming(body.take().expect("the stream is opened once")),
        _ => posted(seen),
    });
    (world, feed)
}

/// The transport, once the endpoint is known.
fn opened(posted: impl Fn(&Seen) -> Reply + 'static) -> (World, Feed, Rc<HttpSse>) {
    let (mut world, feed) = world(posted);
    feed.push("event: endpoint\ndata: /messages?sid=1\n\n");
    let sse = world.run(world.open_sse(SSE)).unwrap();
    (world, feed, Rc::new(sse))
}

fn opening(text: &str) -> Result<HttpSse, TransportError> {
    let (mut world, feed) = world(|_| Reply::status(202));
    feed.push(text);
    feed.end();
    world.run(world.open_sse(SSE))
}

/// Sends a request and collects what comes back.
fn ask(world: &mut World, sse: &Rc<HttpSse>, id: i64) -> Started<Vec<Item>> {
    let sse = sse.clone();
    world.start(async move {
        match sse.send(&request(id)).await {
            Ok(answer) => {
                drop(sse);
                answer.messages.map(item).collect().await
            }
            Err(error) => vec![Err(error)],
        }
    })
}

fn listen(world: &mut World, sse: &HttpSse) -> Option<Incoming> {
    world.run(sse.listen(HeaderMap::new())).unwrap()
}

#[test]
fn tr_17_the_endpoint_is_resolved_like_any_reference() {
    for (data, posted_to) in [
        ("/messages?sid=1", "http://host.example/messages?sid=1"),
        (
            "messages?sid=1",
            "http://host.example/weather/messages?sid=1",
        ),
        ("?sid=1", "http://host.example/weather/sse?sid=1"),
        ("http://host.example/m?sid=1", "http://host.example/m?sid=1"),
        ("http://HOST.example:80/m", "http://host.example/m"),
        ("//host.example/m", "http://host.example/m"),
        (
            "/weather/messages?sid=1#x",
            "http://host.example/weather/messages?sid=1",
        ),
    ] {
        let (mut world, feed) = world(|_| Reply::status(202));
        feed.push(&format!("event: endpoint\ndata: {data}\n\n"));
        let sse = world.run(world.open_sse(SSE)).unwrap();
        world.run(sse.send(&notification())).unwrap();
        assert_eq!(world.last().url, posted_to);
    }
}

#[test]
fn tr_19_the_endpoint_event_may_be_written_in_any_way() {
    for text in [
        "event: endpoint\ndata: /m\n\n",
        "data: /m\nevent: endpoint\n\n",
        "event:endpoint\r\ndata:/m\r\n\r\n",
        "data: /m\revent: endpoint\r\r",
        "\u{feff}: hello\n\nid: 1\nretry: 10\n\nid: 2\nevent: endpoint\ndata: /m\n\n",
        "event: ping\n\nevent: endpoint\ndata: /m\n\n",
    ] {
        let sse = opening(text).unwrap();
        assert!(
            format!("{sse:?}").contains("http://host.example/m"),
            "{text:?}"
        );
    }
}

#[test]
fn the_stream_must_begin_with_an_endpoint() {
    for (text, expected) in [
        ("", NoEndpoint::Ended),
        ("event: endpoint\ndata: /m\n", NoEndpoint::Ended),
        ("event: endpoint\ndata:\n\n", NoEndpoint::Ended),
        ("data: {}\n\n", NoEndpoint::OtherEvent),
        (
            "event: ping\ndata: x\n\nevent: endpoint\ndata: /m\n\n",
            NoEndpoint::OtherEvent,
        ),
    ] {
        let error = opening(text).unwrap_err();
        assert!(
            matches!(&error, TransportError::NoEndpoint(reason) if *reason == expected),
            "{text:?} {error:?}"
        );
    }
}

#[test]
fn an_endpoint_elsewhere_is_refused_and_named() {
    for (data, origin) in [
        ("https://host.example/m?secret", "https://host.example"),
        (
            "http://host.example:8080/m?secret",
            "http://host.example:8080",
        ),
        ("//other.example/m?secret", "http://other.example"),
        ("http://127.0.0.1/m?secret", "http://127.0.0.1"),
    ] {
        let error = opening(&format!("event: endpoint\ndata: {data}\n\n")).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the endpoint is on another origin: {origin}")
        );
    }
    for data in [
        "http://10.0.0.1/m",
        "file:///m",
        "http://u:p@host.example/m",
        "http://[",
    ] {
        let error = opening(&format!("event: endpoint\ndata: {data}\n\n")).unwrap_err();
        assert!(
            matches!(error, TransportError::EndpointBlocked(_)),
            "{data} {error:?}"
        );
    }
}

#[test]
fn opening_needs_200_and_an_event_stream() {
    let open = |reply: fn() -> Reply| {
        let mut world = World::new(move |_| reply());
        world.run(world.open_sse(SSE)).unwrap_err()
    };
    assert_eq!(status_of(&open(|| Reply::status(401))), Some(401));
    assert_eq!(status_of(&open(|| Reply::status(404))), Some(404));
    let page = open(|| Reply::typed(200, "text/html", "<p>"));
    assert!(matches!(page, TransportError::Unusable(_)));
    let no_content = open(|| Reply::status(204));
    assert!(matches!(no_content, TransportError::Unusable(_)));
    assert!(matches!(
        open(|| Reply::Refused),
        TransportError::Network(_)
    ));
    let huge = open(|| Reply::events(&"x".repeat(MAX_BYTES + 1)));
    assert!(matches!(huge, TransportError::EventStream(_)));
}

#[test]
fn waiting_for_the_endpoint_has_a_limit() {
    let (mut world, feed) = world(|_| Reply::status(202));
    let opening = world.start(world.open_sse(SSE));
    world.advance(9_999);
    feed.push(": still here\n\n");
    assert!(opening.outcome().is_none());
    world.advance(1);
    let error = opening.outcome().unwrap().unwrap_err();
    assert!(matches!(
        error,
        TransportError::NoEndpoint(NoEndpoint::Timeout(_))
    ));
    assert!(feed.is_dropped());
}

#[test]
fn redirects_are_followed_within_the_origin_only() {
    let mut world = World::new(|seen| match seen.url.as_str() {
        SSE => Reply::status(302).with("location", "/v2/sse"),
        _ if seen.method == "GET" => {
            let (feed, body) = Feed::new();
            feed.push("event: endpoint\ndata: messages\n\n");
            std::mem::forget(feed);
            Reply::streaming(body)
        }
        _ => Reply::status(202),
    });
    let sse = world.run(world.open_sse(SSE)).unwrap();
    world.run(sse.send(&notification())).unwrap();
    assert_eq!(world.last().url, "http://host.example/v2/messages");

    let mut world = World::new(|_| Reply::status(302).with("location", "http://other.example/"));
    let error = world.run(world.open_sse(SSE)).unwrap_err();
    assert!(matches!(error, TransportError::Redirect(_)));
    assert_eq!(world.methods().len(), 1);

    let (mut world, _feed, sse) =
        opened(|_| Reply::status(307).with("location", "http://other.example/"));
    let error = world.run(sse.send(&notification())).unwrap_err();
    assert!(matches!(error, TransportError::Redirect(_)));
    assert_eq!(world.methods().len(), 2);
}

#[test]
fn requests_carry_the_headers_they_need() {
    let (mut world, _feed, sse) = opened(|_| Reply::typed(200, "text/plain", "Accepted"));
    let get = world.last();
    assert_eq!(get.header("accept"), Some("text/event-stream"));
    assert_eq!(get.header("authorization"), Some("Bearer t"));
    world.run(sse.send(&request(1))).unwrap();
    let post = world.last();
    assert_eq!(post.header("content-type"), Some("application/json"));
    assert_eq!(post.header("authorization"), Some("Bearer t"));
    assert_eq!(post.header("mcp-protocol-version"), Some("2025-11-25"));
    assert_eq!(post.body["id"], 1);
}

#[test]
fn outstanding_requests_are_answered_in_any_order() {
    let (mut world, feed, sse) = opened(|_| Reply::status(202));
    let [one, two, three] = [1, 2, 3].map(|id| ask(&mut world, &sse, id));
    feed.message(response(3));
    feed.push("data: {broken\n\nevent: ping\ndata: x\n\n");
    feed.message(json!([response(1), told("notifications/message")]));
    world.settle();
    assert_eq!(texts(three.outcome().unwrap()), ["3"]);
    assert_eq!(texts(one.outcome().unwrap()), ["1"]);
    assert!(two.outcome().is_none());
    feed.message(response(2));
    world.settle();
    assert_eq!(texts(two.outcome().unwrap()), ["2"]);
}

#[test]
fn a_response_may_overtake_the_answer_to_the_post() {
    let (mut world, feed, sse) = opened(|_| Reply::Silence);
    let answer = ask(&mut world, &sse, 1);
    feed.message(response(1));
    world.settle();
    assert_eq!(texts(answer.outcome().unwrap()), ["1"]);
}

#[test]
fn a_refused_post_is_the_answer_and_nobody_waits_any_more() {
    let (mut world, feed, sse) = opened(|_| Reply::typed(404, "text/plain", "no such session"));
    let items = ask(&mut world, &sse, 1).outcome().unwrap();
    assert_eq!(status_of(items[0].as_ref().unwrap_err()), Some(404));
    // The response, should it come, is nobody's.
    feed.message(response(1));
    world.settle();
    let mut listener = listen(&mut world, &sse).unwrap();
    let stray = world.run(listener.next()).unwrap();
    assert_eq!(item(stray).unwrap(), "1");
    assert!(sse.is_open());
}

#[test]
fn the_end_of_the_stream_fails_whoever_waits_and_closes_the_transport() {
    for breaks in [false, true] {
        let (mut world, feed, sse) = opened(|seen| match seen.body["id"].as_i64() {
            Some(2) => Reply::Silence,
            _ => Reply::status(202),
        });
        let waiting = [1, 2].map(|id| ask(&mut world, &sse, id));
        let mut listener = listen(&mut world, &sse).unwrap();
        if breaks {
            feed.break_off();
        } else {
            feed.end();
        }
        world.settle();
        for waiting in waiting {
            let items = waiting.outcome().unwrap();
            let is_right = match &items[..] {
                [Err(TransportError::Ended)] => !breaks,
                [Err(TransportError::Network(_))] => breaks,
                _ => false,
            };
            assert!(is_right, "{items:?}");
        }
        assert_eq!(world.run(listener.next()).is_some(), breaks);
        assert!(world.run(listener.next()).is_none());

        assert!(!sse.is_open());
        let requests = world.methods().len();
        for message in [request(3), notification()] {
            let error = world.run(sse.send(&message)).unwrap_err();
            assert!(matches!(error, TransportError::Closed));
        }
        let error = world.run(sse.listen(HeaderMap::new())).err().unwrap();
        assert!(matches!(error, TransportError::Closed));
        assert_eq!(world.methods().len(), requests);
    }
}

#[test]
fn everything_that_is_no_awaited_response_goes_to_one_listener() {
    let (mut world, feed, sse) = opened(|_| Reply::status(202));
    feed.message(told("early"));
    feed.message(json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}));
    world.settle();
    let mut listener = listen(&mut world, &sse).unwrap();
    assert!(listen(&mut world, &sse).is_none());
    for expected in ["early", "ping"] {
        let message = world.run(listener.next()).unwrap();
        assert_eq!(item(message).unwrap(), expected);
    }
    drop(listener);
    let mut listener = listen(&mut world, &sse).unwrap();
    let later = world.start(async move { listener.next().await.map(item) });
    feed.message(told("later"));
    world.settle();
    assert_eq!(later.outcome().unwrap().unwrap().unwrap(), "later");
}

#[test]
fn what_nobody_listens_to_is_bounded() {
    let (mut world, feed, sse) = opened(|_| Reply::status(202));
    for number in 0..300 {
        feed.message(told(&number.to_string()));
    }
    feed.end();
    world.settle();
    assert!(!sse.is_open());

    let (mut world, feed, sse) = opened(|_| Reply::status(202));
    for number in 0..300 {
        feed.message(told(&number.to_string()));
    }
    world.settle();
    let listener = listen(&mut world, &sse).unwrap();
    feed.end();
    let items: Vec<_> = world.run(listener.map(item).collect());
    assert_eq!(items.len(), 256);
    assert_eq!(items[0].as_ref().unwrap(), "0");

    let (mut world, feed, sse) = opened(|_| Reply::status(202));
    for _ in 0..10 {
        feed.message(told(&"x".repeat(MAX_BYTES / 3)));
    }
    world.settle();
    let listener = listen(&mut world, &sse).unwrap();
    feed.end();
    let items: Vec<_> = world.run(listener.map(item).collect());
    assert_eq!(items.len(), 3);
}

#[test]
fn dropping_the_transport_and_its_answers_closes_the_stream() {
    let (mut world, feed, sse) = opened(|_| Reply::status(202));
    let mut listener = listen(&mut world, &sse).unwrap();
    let waiting = ask(&mut world, &sse, 1);
    drop(sse);
    world.settle();
    assert!(!feed.is_dropped(), "an answer is still awaited");
    feed.message(response(1));
    world.settle();
    assert_eq!(texts(waiting.outcome().unwrap()), ["1"]);
    assert!(feed.is_dropped());
    assert!(world.run(listener.next()).is_none());
}

#[test]
fn giving_up_an_answer_leaves_the_others_alone() {
    let (mut world, feed, sse) = opened(|_| Reply::status(202));
    let given_up = ask(&mut world, &sse, 1);
    let kept = ask(&mut world, &sse, 2);
    drop(given_up);
    // The same id again must not lose its place to the one given up.
    let again = ask(&mut world, &sse, 1);
    feed.message(response(1));
    feed.message(response(2));
    world.settle();
    assert_eq!(texts(kept.outcome().unwrap()), ["2"]);
    assert_eq!(texts(again.outcome().unwrap()), ["1"]);
}

#[test]
fn a_server_may_move_its_endpoint_within_its_origin() {
    let (mut world, feed, sse) = opened(|_| Reply::status(202));
    feed.push("event: endpoint\ndata: /moved\n\n");
    world.settle();
    world.run(sse.send(&notification())).unwrap();
    assert_eq!(world.last().url, "http://host.example/moved");
    let waiting = ask(&mut world, &sse, 1);
    feed.push("event: endpoint\ndata: http://other.example/\n\n");
    world.settle();
    let items = waiting.outcome().unwrap();
    assert!(matches!(
        &items[..],
        [Err(TransportError::EndpointOrigin { .. })]
    ));
    assert!(!sse.is_open());
    assert!(feed.is_dropped());
}

#[test]
fn an_oversized_event_closes_and_the_stream_has_no_sum() {
    let (mut world, feed, sse) = opened(|_| Reply::status(202));
    for _ in 0..20 {
        feed.push(&format!(": {}\n\n", "x".repeat(MAX_BYTES / 2)));
    }
    world.settle();
    assert!(sse.is_open());
    let waiting = ask(&mut world, &sse, 1);
    feed.push(&"x".repeat(MAX_BYTES + 1));
    world.settle();
    let items = waiting.outcome().unwrap();
    assert!(matches!(&items[..], [Err(TransportError::EventStream(_))]));
}

#[test]
fn text_ids_and_number_ids_are_told_apart() {
    let (mut world, feed, sse) = opened(|_| Reply::status(202));
    let mut message = request(1);
    message.id = Some(RequestId::Text("1".into()));
    let answer = world.run(sse.send(&message)).unwrap();
    let mut messages = answer.messages;
    feed.message(response(1));
    feed.message(json!({"jsonrpc": "2.0", "id": "1", "result": {}}));
    world.settle();
    assert!(world.run(messages.next()).unwrap().is_ok());
    assert!(world.run(messages.next()).is_none());
}

#[test]
fn there_is_no_session_to_end() {
    let (mut world, _feed, sse) = opened(|_| Reply::status(202));
    world.run(sse.end_session(HeaderMap::new())).unwrap();
    assert_eq!(world.methods(), ["GET"]);
}
