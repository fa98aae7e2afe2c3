//! Answers that break off and are taken up again.

use std::cell::Cell;
use std::rc::Rc;

use futures::StreamExt as _;
use workers_agents::transport::{Transport as _, TransportError};

use crate::support::*;

/// POSTs get `posted`; the GETs get what `resumed` makes of their number.
fn world(posted: &'static str, resumed: impl Fn(usize) -> Reply + 'static) -> World {
    let gets = Cell::new(0);
    World::new(move |seen| {
        if seen.method == "POST" {
            return Reply::events(posted);
        }
        gets.set(gets.get() + 1);
        resumed(gets.get())
    })
}

fn event(id: &str, data: impl ToString) -> String {
    format!("id: {id}\ndata: {}\n\n", data.to_string())
}

#[test]
fn a_polling_server_is_asked_again_after_its_retry() {
    let mut world = world("id: q-1\nretry: 500\ndata:\n\n", |_| {
        Reply::events(&event("q-2", response(1)))
    });
    let answer = world.ask(world.streamable());
    assert_eq!(world.next_timer(), Some(500));
    world.advance(499);
    assert_eq!(world.methods(), ["POST"]);
    world.advance(1);
    assert_eq!(texts(answer.outcome().unwrap()), ["1"]);
    let get = world.last();
    assert_eq!((get.method.as_str(), get.url.as_str()), ("GET", URL));
    for (name, value) in [
        ("last-event-id", Some("q-1")),
        ("accept", Some("text/event-stream")),
        ("mcp-session-id", Some("s-1")),
        ("mcp-protocol-version", Some("2025-11-25")),
        ("authorization", Some("Bearer t")),
        ("content-type", None),
    ] {
        assert_eq!(get.header(name), value, "{name}");
    }
}

#[test]
fn a_polling_server_may_close_many_times() {
    let mut world = world("id: 0\nretry: 100\ndata:\n\n", |number| match number {
        10 => Reply::events(&format!("data: {}\n\n", response(1))),
        number => Reply::events(&format!("id: {number}\nretry: {number}00\n\n")),
    });
    let answer = world.ask(world.streamable());
    for number in 0..10 {
        let delay = 100 * number.max(1);
        assert_eq!(world.next_timer(), Some(delay), "{number}");
        world.advance(delay);
        assert_eq!(
            world.last().header("last-event-id").unwrap(),
            number.to_string()
        );
    }
    assert_eq!(texts(answer.outcome().unwrap()), ["1"]);
}

#[test]
fn retry_is_kept_within_bounds_and_outlives_its_stream() {
    for (retry, delay) in [
        (0, 50),
        (49, 50),
        (51, 51),
        (60_001, 60_000),
        (u64::MAX, 60_000),
    ] {
        let posted = format!("id: 1\nretry: {retry}\n\n").leak();
        let mut world = world(posted, |_| Reply::events("id: 2\n\n"));
        let answer = world.ask(world.streamable());
        assert_eq!(world.next_timer(), Some(delay));
        world.advance(delay);
        assert_eq!(
            world.next_timer(),
            Some(delay),
            "the second stream names none"
        );
        drop(answer);
    }
}

#[test]
fn without_retry_the_delay_grows_and_starts_anew_with_every_event() {
    let mut world = world("id: 1\n\n", |number| match number {
        2 => Reply::events("id: 2\n\n"),
        _ => Reply::Refused,
    });
    let answer = world.ask(world.streamable());
    for delay in [1_000, 1_500, 1_000, 1_500] {
        assert_eq!(world.next_timer(), Some(delay));
        world.advance(delay);
    }
    let items = answer.outcome().unwrap();
    assert!(
        matches!(&items[..], [Err(TransportError::Network(_))]),
        "{items:?}"
    );
    assert_eq!(world.methods().len(), 5);
}

#[test]
fn a_stream_that_breaks_is_taken_up_like_one_that_ends() {
    let mut world = World::new(|seen| match seen.method.as_str() {
        "POST" => Reply::breaking(&event("1", told("notifications/progress"))),
        _ => Reply::events(&format!("data: {}\n\n", response(1))),
    });
    let answer = world.ask(world.streamable());
    world.advance(1_000);
    assert_eq!(
        texts(answer.outcome().unwrap()),
        ["notifications/progress", "1"]
    );
}

#[test]
fn a_stream_without_ids_ends_at_once() {
    for text in [
        "",
        ": hello\n\n",
        "retry: 10\n\n",
        "id: 1\n\nid:\n\n",
        "id: 1\n",
        "id: \u{e6}\n\n",
    ] {
        let mut world = world(text, |_| Reply::Silence);
        let items = world.ask(world.streamable()).outcome().unwrap();
        assert!(
            matches!(&items[..], [Err(TransportError::Ended)]),
            "{text:?} {items:?}"
        );
        assert_eq!(world.methods(), ["POST"]);
    }
}

#[test]
fn a_modern_answer_is_never_taken_up() {
    let mut world = world("id: 1\nretry: 1\n\n", |_| Reply::Silence);
    let transport = world.streamable();
    let mut message = request(1);
    message.resumable = false;
    let items: Vec<_> = world.run(async {
        let answer = transport.send(&message).await.unwrap();
        answer.messages.map(item).collect().await
    });
    assert!(matches!(&items[..], [Err(TransportError::Ended)]));
}

#[test]
fn the_response_ends_the_stream_whatever_the_server_does() {
    let (feed, body) = Feed::new();
    let body = Cell::new(Some(body));
    let mut world = World::new(move |_| Reply::streaming(body.take().unwrap()));
    let answer = world.ask(world.streamable());
    feed.push(&event("1", response(1)));
    world.settle();
    assert_eq!(texts(answer.outcome().unwrap()), ["1"]);
    assert!(feed.is_dropped());
    assert_eq!((world.next_timer(), world.methods().len()), (None, 1));
}

#[test]
fn a_server_that_takes_up_nothing_ends_the_answer() {
    for status in [204, 405] {
        let mut world = world("id: 1\n\n", move |_| Reply::status(status));
        let answer = world.ask(world.streamable());
        world.advance(1_000);
        let items = answer.outcome().unwrap();
        assert!(
            matches!(&items[..], [Err(TransportError::Ended)]),
            "{items:?}"
        );
    }
}

#[test]
fn a_refusal_is_told_at_once() {
    for status in [400, 401, 403, 404, 501] {
        let mut world = world("id: 1\n\n", move |_| Reply::status(status));
        let answer = world.ask(world.streamable());
        world.advance(1_000);
        let items = answer.outcome().unwrap();
        assert_eq!(status_of(items[0].as_ref().unwrap_err()), Some(status));
        assert_eq!(world.methods().len(), 2);
    }
}

#[test]
fn a_server_that_brings_nothing_is_not_asked_at_its_own_pace_for_ever() {
    let mut world = world("id: 0\nretry: 0\n\n", |number| {
        Reply::events(&format!("id: {number}\nretry: 0\n\n"))
    });
    let _answer = world.ask(world.streamable());
    for _ in 0..200 {
        world.advance(50);
    }
    let asked = world.methods().len();
    assert!(asked < 30, "{asked} requests in ten seconds");
}

#[test]
fn two_attempts_in_a_row_that_bring_nothing_end_the_answer() {
    for empty in [
        "id: 1\n\n",
        "id: 1\ndata:\n\n",
        "event: other\ndata: x\n\n",
        "",
        ": hello\n\n",
        "retry: 1000\n\n",
    ] {
        let mut world = world("id: 1\n\n", move |_| Reply::events(empty));
        let answer = world.ask(world.streamable());
        world.advance(1_000);
        world.advance(1_500);
        let items = answer.outcome().unwrap();
        assert!(
            matches!(&items[..], [Err(TransportError::Ended)]),
            "{empty:?} {items:?}"
        );
        assert_eq!(world.methods().len(), 3);
    }
}

#[test]
fn a_server_in_trouble_is_asked_twice() {
    let mut world = world("id: 1\nretry: 10\n\n", |_| Reply::status(503));
    let answer = world.ask(world.streamable());
    world.advance(50);
    world.advance(50);
    let items = answer.outcome().unwrap();
    assert_eq!(status_of(items[0].as_ref().unwrap_err()), Some(503));
    assert_eq!(world.methods().len(), 3);
}

#[test]
fn dropping_the_answer_ends_everything() {
    // While it waits for its turn.
    let mut waiting = world("id: 1\n\n", |_| Reply::Silence);
    let answer = waiting.ask(waiting.streamable());
    drop(answer);
    waiting.settle();
    assert_eq!(waiting.next_timer(), None);
    waiting.advance(1_000);
    assert_eq!(waiting.methods(), ["POST"]);

    // While it reads.
    let (feed, body) = Feed::new();
    let body = Rc::new(Cell::new(Some(body)));
    let mut reading = world("id: 1\n\n", move |_| Reply::streaming(body.take().unwrap()));
    let answer = reading.ask(reading.streamable());
    reading.advance(1_000);
    assert!(!feed.is_dropped());
    drop(answer);
    reading.settle();
    assert!(feed.is_dropped());
}

#[test]
fn the_limit_spans_all_pieces() {
    let piece = |number: usize| {
        format!(
            "id: {number}\nretry: 50\n: {}\n\n",
            "x".repeat(MAX_BYTES / 2)
        )
    };
    let mut world = world(piece(100).leak(), move |number| {
        Reply::events(&piece(number))
    });
    let answer = world.ask(world.streamable());
    for _ in 0..7 {
        world.advance(100);
    }
    let items = answer.outcome().unwrap();
    let limit = MAX_BYTES * 4;
    assert!(
        matches!(&items[..], [Err(TransportError::TooLarge { limit: found })] if *found == limit),
        "{items:?}"
    );
}

#[test]
fn an_event_over_the_limit_is_not_asked_for_again() {
    let huge = format!("id: 1\n\ndata: {}\n\n", "x".repeat(MAX_BYTES)).leak();
    let mut world = world(huge, |_| Reply::Silence);
    let items = world.ask(world.streamable()).outcome().unwrap();
    assert!(
        matches!(&items[..], [Err(TransportError::EventStream(_))]),
        "{items:?}"
    );
}
