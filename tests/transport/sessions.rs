//! The session header of an answer.

use workers_agents::transport::{SessionHeader, Transport as _, TransportError};

use crate::support::*;

#[test]
fn se_13_an_empty_id_is_none_and_an_odd_one_is_an_error() {
    let id = |id: &str| SessionHeader::Id(id.to_owned());
    let longest = "x".repeat(1_024);
    for (value, expected) in [
        (None, SessionHeader::None),
        (Some(""), SessionHeader::None),
        (Some("abc"), id("abc")),
        (Some("!~"), id("!~")),
        (Some(&*longest), id(&longest)),
        (Some(&*format!("{longest}x")), SessionHeader::Illegal),
        (Some("a b"), SessionHeader::Illegal),
        (Some("a\tb"), SessionHeader::Illegal),
        (Some("\u{e6}"), SessionHeader::Illegal),
    ] {
        let sent = value.map(str::to_owned);
        let mut world = World::new(move |_| {
            let reply = Reply::json(response(1));
            match &sent {
                Some(value) => reply.with("mcp-session-id", value),
                None => reply,
            }
        });
        let transport = world.streamable();
        let answer = world.run(transport.send(&request(1))).unwrap();
        assert_eq!(answer.session, expected, "{value:?}");
        assert!(!format!("{answer:?}").contains("abc"));
    }
    let error = SessionHeader::Illegal.into_id().unwrap_err();
    assert!(matches!(error, TransportError::IllegalSessionId));
}
