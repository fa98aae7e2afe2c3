//! The stream of a Streamable HTTP server that answers nothing.

use std::cell::Cell;

use futures::StreamExt as _;
use workers_agents::transport::{Transport as _, TransportError};

use crate::support::*;

/// Listens within a session and collects everything, or `None` where there is no stream.
fn listen(world: &mut World) -> Started<Result<Option<Vec<Item>>, TransportError>> {
    let transport = world.streamable();
    world.start(async move {
        match transport.listen(header("mcp-session-id", "s-1")).await? {
            Some(messages) => Ok(Some(messages.map(item).collect().await)),
            None => Ok(None),
        }
    })
}

#[test]
fn a_server_that_offers_no_stream_is_no_error() {
    for status in [400, 404, 405, 406, 501] {
        let mut world = World::new(move |_| Reply::status(status));
        let outcome = listen(&mut world).outcome().unwrap();
        assert!(matches!(outcome, Ok(None)), "{status} {outcome:?}");
    }
    for reply in ["text/html", "application/json"] {
        let mut world = World::new(move |_| Reply::typed(200, reply, "<html>"));
        assert!(matches!(listen(&mut world).outcome().unwrap(), Ok(None)));
    }
}

#[test]
fn refusals_and_trouble_are_errors() {
    for status in [401, 403, 429, 500, 502, 503] {
        let mut world = World::new(move |_| Reply::status(status));
        let error = listen(&mut world).outcome().unwrap().unwrap_err();
        assert_eq!(status_of(&error), Some(status));
    }
    let mut world = World::new(|_| Reply::Refused);
    let error = listen(&mut world).outcome().unwrap().unwrap_err();
    assert!(matches!(error, TransportError::Network(_)));
}

#[test]
fn messages_arrive_and_the_end_of_the_stream_is_its_end() {
    let (feed, body) = Feed::new();
    let body = Cell::new(Some(body));
    let mut world = World::new(move |_| Reply::streaming(body.take().unwrap()));
    let listening = listen(&mut world);
    let get = world.last();
    assert_eq!(get.method, "GET");
    assert_eq!(get.header("accept"), Some("text/event-stream"));
    assert_eq!(get.header("mcp-session-id"), Some("s-1"));
    assert_eq!(get.header("last-event-id"), None);
    // No sum over the whole stream.
    for _ in 0..20 {
        feed.push(&format!(": {}\n\n", "x".repeat(MAX_BYTES / 2)));
    }
    feed.message(told("notifications/tools/list_changed"));
    feed.message(response(7));
    feed.end();
    world.settle();
    let items = listening.outcome().unwrap().unwrap().unwrap();
    assert_eq!(texts(items), ["notifications/tools/list_changed", "7"]);
    assert_eq!((world.next_timer(), world.methods().len()), (None, 1));
}

#[test]
fn a_stream_with_ids_is_taken_up_again() {
    let gets = Cell::new(0);
    let mut world = World::new(move |_| {
        gets.set(gets.get() + 1);
        match gets.get() {
            1 => Reply::breaking(&format!("id: a\ndata: {}\n\n", told("one"))),
            2 => Reply::events(&format!("id: b\ndata: {}\n\n", told("two"))),
            3 => Reply::events(&format!("id:\ndata: {}\n\n", told("three"))),
            _ => panic!("the id was taken back"),
        }
    });
    let listening = listen(&mut world);
    world.advance(1_000);
    assert_eq!(world.last().header("last-event-id"), Some("a"));
    world.advance(1_000);
    assert_eq!(world.last().header("last-event-id"), Some("b"));
    assert_eq!(world.last().header("mcp-session-id"), Some("s-1"));
    let items = listening.outcome().unwrap().unwrap().unwrap();
    assert_eq!(texts(items), ["one", "two", "three"]);
}

#[test]
fn a_session_that_is_gone_shows_when_the_stream_is_taken_up() {
    let gets = Cell::new(0);
    let mut world = World::new(move |_| match gets.replace(gets.get() + 1) {
        0 => Reply::events("id: a\n\n"),
        _ => Reply::status(404),
    });
    let listening = listen(&mut world);
    world.advance(1_000);
    let items = listening.outcome().unwrap().unwrap().unwrap();
    assert_eq!(status_of(items[0].as_ref().unwrap_err()), Some(404));
}

#[test]
fn a_break_without_ids_and_an_oversized_event_are_told() {
    let mut world = World::new(|_| Reply::breaking(": hello\n\n"));
    let items = listen(&mut world).outcome().unwrap().unwrap().unwrap();
    assert!(matches!(&items[..], [Err(TransportError::Network(_))]));

    let huge = "x".repeat(MAX_BYTES + 1);
    let mut world = World::new(move |_| Reply::events(&huge));
    let items = listen(&mut world).outcome().unwrap().unwrap().unwrap();
    assert!(matches!(&items[..], [Err(TransportError::EventStream(_))]));
}
