//! Answers that are no use, and what is told about them.

use std::cell::Cell;

use futures::{StreamExt as _, stream};
use serde_json::json;
use workers_agents::protocol::ProtocolError;
use workers_agents::transport::*;

use crate::support::*;

fn failed(reply: Reply) -> TransportError {
    let reply = Cell::new(Some(reply));
    let mut world = World::new(move |_| reply.take().unwrap());
    let transport = world.streamable();
    world.run(transport.send(&request(1))).unwrap_err()
}

fn failure(reply: Reply) -> HttpFailure {
    match failed(reply) {
        TransportError::Status(failure) => *failure,
        other => panic!("{other:?}"),
    }
}

fn unusable(reply: Reply) -> UnusableAnswer {
    match failed(reply) {
        TransportError::Unusable(answer) => *answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_page_is_told_with_its_beginning_escaped() {
    let page = "<html>\r\n <b class=\"x\">Bad\u{7} &amp; 'wrong'\u{202e}</b>";
    let failure = failure(Reply::typed(502, "Text/HTML; charset=utf-8", page));
    assert_eq!(failure.content_type.as_deref(), Some("text/html"));
    assert_eq!(
        failure.to_string(),
        "the server answered with HTTP status 502 (text/html): &lt;html&gt; \
         &lt;b class=&quot;x&quot;&gt;Bad &amp;amp; &#39;wrong&#39; &lt;/b&gt;"
    );
}

#[test]
fn excerpts_are_short_and_of_texts_only() {
    for (content_type, body, shown) in [
        ("text/plain", "x".repeat(200), Some("x".repeat(200))),
        (
            "text/plain",
            "x".repeat(201),
            Some(format!("{}...", "x".repeat(197))),
        ),
        (
            "text/html",
            "<".repeat(100),
            Some(format!("{}...", "&lt;".repeat(49))),
        ),
        ("application/xml", "y".into(), Some("y".into())),
        (
            "application/problem+json",
            r#"{"a":1}"#.into(),
            Some("{&quot;a&quot;:1}".into()),
        ),
        ("", "z".into(), Some("z".into())),
        ("", "z\0".into(), None),
        ("image/png", "z".into(), None),
        ("text/plain", " \n".into(), None),
    ] {
        let failure = failure(Reply::typed(500, content_type, body));
        assert_eq!(failure.excerpt, shown, "{content_type}");
    }
    let hostile = failure(Reply::typed(500, "text/<script>", ""));
    assert_eq!(hostile.content_type.as_deref(), Some("text/&lt;script&gt;"));
}

#[test]
fn an_rpc_error_is_found_under_any_type_of_text() {
    let body = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32020, "message": "no"}});
    for content_type in [
        "application/json",
        "application/problem+json",
        "text/plain",
        "text/html",
        "",
    ] {
        let failure = failure(Reply::typed(400, content_type, format!("  {body}")));
        assert_eq!(failure.rpc.unwrap().code, -32020, "{content_type}");
        assert_eq!(failure.excerpt, None);
    }
}

#[test]
fn the_challenge_is_kept_out_of_texts() {
    let reply = Reply::status(401)
        .with(
            "www-authenticate",
            "Bearer resource_metadata=\"https://a/b\"",
        )
        .with("www-authenticate", "Basic realm=\"x\"");
    let told = failure(reply);
    assert_eq!(
        told.challenge.as_deref(),
        Some("Bearer resource_metadata=\"https://a/b\", Basic realm=\"x\"")
    );
    assert!(!format!("{told} {told:?}").contains("realm"));
    let long = Reply::status(401).with("www-authenticate", &"x".repeat(5_000));
    assert_eq!(failure(long).challenge.unwrap().len(), 4_096);
    assert_eq!(failure(Reply::status(401)).challenge, None);
}

#[test]
fn an_endless_or_silent_body_does_not_hide_the_status() {
    let endless = stream::repeat_with(|| Ok(vec![b'x'; 100])).boxed_local();
    let headers = vec![("content-type", "text/plain".to_owned())];
    let failure = failure(Reply::Response(503, headers, endless));
    assert!(failure.excerpt.unwrap().starts_with("xxx"));

    let (feed, body) = Feed::new();
    let reply = Reply::Response(503, vec![("content-type", "text/plain".to_owned())], body);
    let reply = Cell::new(Some(reply));
    let mut world = World::new(move |_| reply.take().unwrap());
    feed.push("so far");
    let answer = world.ask(world.streamable());
    assert!(answer.outcome().is_none());
    world.advance(3_000);
    let items = answer.outcome().unwrap();
    assert!(
        items[0]
            .as_ref()
            .unwrap_err()
            .to_string()
            .ends_with("so far")
    );
    assert!(feed.is_dropped());
}

#[test]
fn answers_that_cannot_be_used_say_what_came() {
    let page = unusable(Reply::typed(200, "text/html", "<p>Sign in"));
    assert_eq!(page.reason, UnusableReason::ContentType);
    assert_eq!(
        page.to_string(),
        "unexpected content type: text/html, HTTP status 200: &lt;p&gt;Sign in"
    );
    for reply in [
        Reply::status(202),
        Reply::typed(200, "application/json", ""),
        Reply::typed(200, "application/json", "[]"),
        Reply::typed(200, "text/html", " \n"),
    ] {
        assert_eq!(unusable(reply).reason, UnusableReason::Empty);
    }
    for body in [
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"resu",
        "true",
        "{}",
        "<html>",
    ] {
        let answer = unusable(Reply::typed(200, "application/json", body));
        let reason = &answer.reason;
        assert!(
            matches!(
                reason,
                UnusableReason::Malformed(ProtocolError::NotJsonRpc(_))
            ),
            "{body} {reason:?}"
        );
        assert_eq!(answer.content_type.as_deref(), Some("application/json"));
        assert!(answer.excerpt.is_some());
    }
    let odd = unusable(Reply::typed(201, "image/png", "x"));
    assert_eq!((odd.status, odd.excerpt), (201, None));
}

#[test]
fn the_answer_to_a_notification_is_not_read() {
    let (feed, body) = Feed::new();
    let reply = Reply::Response(200, vec![("content-type", "text/html".to_owned())], body);
    let reply = Cell::new(Some(reply));
    let mut world = World::new(move |_| reply.take().unwrap());
    let transport = world.streamable();
    world.run(transport.send(&notification())).unwrap();
    assert!(feed.is_dropped());
}
