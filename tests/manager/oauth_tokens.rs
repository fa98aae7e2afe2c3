//! Tokens: when they are sent, to whom, and how they are replaced.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use futures::channel::oneshot;
use serde_json::{Value, json};
use workers_agents::{Connected, ConnectionState as State, Error, StreamPolicy, TransportKind};

use super::support::auth_world::{AuthWorld, CALLBACK, HOUR, METADATA, claims, error_reply};
use super::support::mcp_server::LegacyServer;
use super::support::streams::SseServer;
use super::support::talker::Talker;
use super::support::{Reply, Seen, URL};

#[test]
fn ten_calls_with_a_token_that_is_over_are_one_refresh() {
    // Ahead of its end, at its end, and on 401.
    for age in [3_541, 3_600, 4_000, 0] {
        let mut world = AuthWorld::ready();
        let before = world.pier.last_token();
        if age == 0 {
            world.server.end_access();
        }
        world.advance(Duration::from_secs(age));
        let (open, gate) = oneshot::channel();
        world.server.gate.replace(Some(gate));
        world.pier.take_tokens();
        let calls: Vec<_> = (0..10)
            .map(|_| {
                let mcp = world.mcp.clone();
                world.start(async move { mcp.call_tool("pier", "echo", json!({})).await })
            })
            .collect();
        open.send(()).unwrap();
        world.settle();
        for call in calls {
            assert!(call.outcome().unwrap().is_ok(), "{age}");
        }
        assert_eq!(world.server.refreshes(), 1, "{age}");
        let tokens = world.pier.take_tokens();
        assert_eq!(
            tokens.contains(&before),
            age < 3_600,
            "a token that is over is not sent"
        );
        assert_eq!(world.server.exchanges(), 1);
    }
}

#[test]
fn a_refresh_is_sent_a_minute_ahead_and_not_sooner() {
    let mut world = AuthWorld::ready();
    world.advance(Duration::from_millis(3_539_999));
    assert!(world.call("echo").is_ok());
    assert_eq!(world.server.refreshes(), 0);
    world.advance(Duration::from_millis(1));
    let before = world.pier.last_token();
    assert!(world.call("echo").is_ok());
    assert_eq!(world.pier.last_token(), before, "nobody waits for it");
    world.settle();
    assert_eq!(world.server.refreshes(), 1);
    let asked = world.server.last_asked();
    assert_eq!(asked.form["resource"], URL);
    assert_eq!(asked.form["client_id"], "client-1-as.example");
    // And the next one an hour later.
    world.advance(Duration::from_mins(50));
    assert!(world.call("echo").is_ok());
    assert_eq!(world.server.refreshes(), 1);
}

#[test]
fn tokens_that_turn_are_kept_over_many_turns_and_wakes() {
    let mut world = AuthWorld::ready();
    for turn in 1..=6 {
        world.advance(HOUR);
        if turn % 2 == 0 {
            world.wake_up();
        }
        assert!(world.call("echo").is_ok(), "{turn}");
        assert_eq!(world.server.refreshes(), turn);
        assert_eq!(world.token()["access_token"], *world.pier.last_token());
    }
    assert_eq!(world.server.exchanges(), 1);
}

#[test]
fn what_a_refresh_does_not_say_stays() {
    let mut world = AuthWorld::new();
    *world.pier.challenge_scope.borrow_mut() = Some("a b".into());
    world.server.rotates.set(false);
    world.server.is_terse.set(true);
    world.register();
    world.sign_in();
    let before = world.token();
    let signed_in_at = before["workersAgents"]["signedInAt"].clone();
    for _ in 0..3 {
        world.advance(HOUR);
        assert!(world.call("echo").is_ok());
    }
    assert_eq!(world.server.refreshes(), 3);
    let after = world.token();
    assert_ne!(after["access_token"], before["access_token"]);
    for name in ["refresh_token", "scope", "issuer"] {
        assert!(after[name].is_string());
        assert_eq!(after[name], before[name], "{name}");
    }
    assert_eq!(after["workersAgents"]["signedInAt"], signed_in_at);
}

#[test]
fn a_server_in_trouble_costs_no_sign_in() {
    for failures in [1, 2, 3] {
        for refuse in [false, true] {
            let mut world = AuthWorld::ready();
            world.advance(HOUR);
            for _ in 0..failures {
                let reply = if refuse {
                    Reply::Refused
                } else {
                    Reply::status(503)
                };
                world.server.instead.borrow_mut().push_back(reply);
            }
            let before = world.token();
            let outcome = world.call_slowly("echo");
            if failures < 3 {
                assert!(outcome.is_ok(), "{outcome:?}");
                assert_eq!(world.server.refreshes(), failures + 1);
                continue;
            }
            let error = outcome.unwrap_err();
            assert!(error.is_transient(), "{error:?}");
            assert_eq!(error.code(), "authorization");
            assert_eq!(world.server.refreshes(), 3);
            assert_eq!(world.token(), before, "nothing is lost");
            assert_eq!(
                futures::executor::block_on(world.mcp.auth_url("pier")).unwrap(),
                None
            );
            assert_eq!(world.state(), State::Ready);
            // Who asks at once is told the same, and the authorization server is not asked.
            assert!(world.call("echo").is_err());
            assert_eq!(world.server.refreshes(), 3);
            world.advance(Duration::from_secs(1));
            assert!(world.call("echo").is_ok(), "and later it works");
            assert_eq!(world.server.exchanges(), 1);
        }
    }
}

#[test]
fn a_token_that_is_still_good_is_used_while_it_cannot_be_replaced() {
    let mut world = AuthWorld::ready();
    world.advance(Duration::from_secs(3_550));
    for _ in 0..3 {
        world
            .server
            .instead
            .borrow_mut()
            .push_back(Reply::status(503));
    }
    assert!(world.call("echo").is_ok());
    for _ in 0..20 {
        world.advance(Duration::from_millis(250));
    }
    assert_eq!(world.server.refreshes(), 3);
    // The authorization server is left alone for a while.
    assert!(world.call("echo").is_ok());
    world.settle();
    assert_eq!(world.server.refreshes(), 3);
}

#[test]
fn a_refresh_token_that_is_refused_leads_to_a_sign_in() {
    let mut world = AuthWorld::ready();
    world.advance(HOUR);
    world.server.end_grants();
    let url = world.call_for_sign_in("echo");
    assert_eq!(world.state(), State::Authenticating);
    assert_eq!(world.server.refreshes(), 1);
    let is_token = |key: &String| key.ends_with("/token");
    assert!(
        !world.stored_keys().iter().any(is_token),
        "neither opens anything any more"
    );
    world.wake_up();
    assert_eq!(world.server.refreshes(), 1);
    world.server.rotates.set(true);
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert!(world.call("echo").is_ok());
}

#[test]
fn ot_12_what_comes_late_neither_deletes_nor_replaces_what_came_meanwhile() {
    for is_refused in [true, false] {
        let mut world = AuthWorld::ready();
        world.pier.needs.borrow_mut().insert("write", "w");
        world.advance(Duration::from_mins(55));
        let url = world.call_for_sign_in("write");
        world.advance(Duration::from_secs(299));
        let (open, gate) = oneshot::channel();
        world.server.gate.replace(Some(gate));
        let refusal = (400, json!({"error": "invalid_grant"}));
        let refusal = is_refused.then_some(refusal);
        world.server.refuses_refresh.replace(refusal);
        let mcp = world.mcp.clone();
        let call = world.start(async move { mcp.call_tool("pier", "echo", json!({})).await });
        assert_eq!(world.server.refreshes(), 1);
        assert!(call.outcome().unwrap().is_ok(), "it is still good");
        let back = world.server.consent(&url);
        world.come_back_well(&back);
        let token = world.token();
        open.send(()).unwrap();
        world.settle();
        assert_eq!(world.token(), token, "the new tokens survive");
        assert_eq!(world.state(), State::Ready);
        assert!(world.call("write").is_ok());
        world.wake_up();
        assert_eq!(world.state(), State::Ready);
        assert!(world.call("write").is_ok());
        assert_eq!(world.server.refreshes(), 1);
    }
}

#[test]
fn ot_12_tokens_that_another_has_stored_meanwhile_are_used() {
    let mut world = AuthWorld::ready();
    world.advance(HOUR);
    let (open, gate) = oneshot::channel();
    world.server.gate.replace(Some(gate));
    world
        .server
        .refuses_refresh
        .replace(Some((400, json!({"error": "invalid_grant"}))));
    let mcp = world.mcp.clone();
    let call = world.start(async move { mcp.call_tool("pier", "echo", json!({})).await });
    world.server.refuses_refresh.take();
    // Another manager of the same object, or the TypeScript package.
    let other = world.manager();
    let outcome = world.run(async {
        other.connect_to_server("pier").await?;
        other.call_tool("pier", "echo", json!({})).await
    });
    assert!(outcome.is_ok(), "it refreshes by itself");
    assert_eq!(world.server.refreshes(), 2);
    let newer = world.token();
    open.send(()).unwrap();
    world.settle();
    assert!(call.outcome().unwrap().is_ok(), "with the newer tokens");
    assert_eq!(world.token(), newer);
    assert_eq!(world.state(), State::Ready);
}

#[test]
fn ot_09_one_code_for_everything_is_asked_once() {
    let mut world = AuthWorld::ready();
    let body = json!({"error": "invalid_request", "error_description": "token request invalid"});
    world.server.refuses_refresh.replace(Some((400, body)));
    world.advance(HOUR);
    world.call_for_sign_in("echo");
    assert_eq!(world.server.refreshes(), 1);
    for _ in 0..5 {
        assert!(matches!(
            world.call("echo"),
            Err(Error::SignInRequired { .. })
        ));
    }
    assert_eq!(world.server.refreshes(), 1);
    assert!(
        world.token()["refresh_token"].is_string(),
        "it may have been something else"
    );
    let url = world.offered();
    let back = world.server.consent(&url);
    world.server.refuses_refresh.take();
    world.come_back_well(&back);
    world.advance(HOUR);
    assert!(world.call("echo").is_ok());
}

#[test]
fn ot_10_a_refresh_that_does_not_help_leads_to_a_sign_in() {
    for by_connecting in [false, true] {
        let mut world = AuthWorld::ready();
        let family = world.server.family(&world.pier.last_token());
        world.pier.refuses_family.set(Some(family));
        let url = if by_connecting {
            world.wake_up();
            world.offered()
        } else {
            world.call_for_sign_in("echo")
        };
        assert!(
            world.server.refreshes() <= 2,
            "{}",
            world.server.refreshes()
        );
        assert_eq!(world.state(), State::Authenticating);
        let back = world.server.consent(&url);
        world.come_back_well(&back);
        assert!(world.call("echo").is_ok());
        assert_eq!(world.server.refreshes(), 1);
    }
}

#[test]
fn a_caller_who_goes_away_does_not_lose_the_new_token() {
    for evicted_after in [false, true] {
        let mut world = AuthWorld::ready();
        world.advance(HOUR);
        let (open, gate) = oneshot::channel();
        world.server.gate.replace(Some(gate));
        let mcp = world.mcp.clone();
        let mut call =
            Box::pin(async move { mcp.call_tool("pier", "echo", json!({})).await.map(drop) });
        assert!(futures::FutureExt::now_or_never(call.as_mut()).is_none());
        assert_eq!(world.server.refreshes(), 1);
        drop(call);
        open.send(()).unwrap();
        world.settle();
        let stored = world.token();
        if evicted_after {
            world.wake_up();
        }
        assert!(world.call("echo").is_ok());
        assert_eq!(stored["access_token"], *world.pier.last_token());
        assert_eq!(world.server.refreshes(), 1);
        world.advance(HOUR);
        assert!(world.call("echo").is_ok());
        assert_eq!(world.server.exchanges(), 1);
    }
}

#[test]
fn ot_22_secrets_stay_at_the_recorded_endpoint() {
    let mut world = AuthWorld::ready();
    *world.server.metadata.borrow_mut() = json!({
        "token_endpoint": "https://evil.example/token",
        "revocation_endpoint": "https://evil.example/revoke",
    });
    world.advance(HOUR);
    world.wake_up();
    assert!(world.call("echo").is_ok());
    assert_eq!(world.server.last_asked().url, "https://as.example/token");
    assert_eq!(world.server.refreshes(), 1);
    let mcp = world.mcp.clone();
    world.run(mcp.sign_out("pier")).unwrap();
    world.settle();
    assert_eq!(world.server.revoked.borrow().len(), 1);
    assert!(
        !world
            .network
            .seen
            .borrow()
            .iter()
            .any(|seen| seen.url.contains("evil"))
    );
}

#[test]
fn ot_01_and_ot_02_lives_of_any_shape() {
    // The life, and how many refreshes two later calls cost.
    for (life, at_once, after_two_hours) in [
        (json!(3600), 0, 1),
        (json!("3600"), 0, 1),
        (json!(3600.7), 0, 1),
        (json!(99_999_999_999_999_u64), 0, 0),
        (json!(1e300), 0, 0),
        (json!("3600abc"), 0, 0),
        (json!([1]), 0, 0),
        (Value::Null, 0, 0),
    ] {
        let mut world = AuthWorld::new();
        world.server.expires_in.replace(life.clone());
        world.register();
        world.sign_in();
        assert!(world.call("echo").is_ok(), "{life}");
        assert_eq!(world.server.refreshes(), at_once, "{life}");
        world.advance(2 * HOUR);
        // The test's server takes only whole numbers for a life.
        let _ = world.call("echo");
        assert_eq!(world.server.refreshes(), after_two_hours, "{life}");
    }
    for life in [json!(0), json!(-1), json!("0")] {
        let mut world = AuthWorld::new();
        world.server.expires_in.replace(life.clone());
        world.register();
        let url = world.connect();
        let back = world.server.consent(&url);
        // Over already: it is replaced before it is used.
        world.server.expires_in.replace(json!(3600));
        let before = world.server.refreshes();
        let number = back.clone();
        world.server.expires_in.replace(life.clone());
        let (open, gate) = oneshot::channel();
        world.server.gate.replace(Some(gate));
        let mcp = world.mcp.clone();
        let answer = world.start(async move { mcp.handle_callback(&number).await.status() });
        world.server.expires_in.replace(json!(3600));
        open.send(()).unwrap();
        world.settle();
        assert_eq!(answer.outcome().unwrap(), 302, "{life}");
        assert_eq!(world.server.refreshes(), before + 1, "{life}");
        assert_eq!(world.state(), State::Ready);
        assert!(world.call("echo").is_ok());
        assert_eq!(world.server.refreshes(), before + 1);
    }
}

#[test]
fn a_token_that_is_always_over_is_no_endless_loop() {
    let mut world = AuthWorld::new();
    world.server.expires_in.replace(json!(0));
    world.register();
    let url = world.connect();
    let back = world.server.consent(&url);
    let mcp = world.mcp.clone();
    world.run(mcp.handle_callback(&back));
    // The server takes none of them, so a sign-in is asked for again, and that is all.
    assert!(
        world.server.refreshes() <= 6,
        "{}",
        world.server.refreshes()
    );
    assert_eq!(world.state(), State::Authenticating);
}

#[test]
fn ot_13_new_tokens_are_used_at_once() {
    let mut world = AuthWorld::ready();
    let old = world.pier.last_token();
    world.server.end_grants();
    let url = world.call_for_sign_in("echo");
    let back = world.server.consent(&url);
    world.pier.take_tokens();
    world.come_back_well(&back);
    assert!(world.call("echo").is_ok());
    let tokens = world.pier.take_tokens();
    assert_eq!(tokens.len(), 1);
    assert!(!tokens.contains(&old));
    world.advance(HOUR);
    assert!(world.call("echo").is_ok());
    assert_eq!(
        world.server.refreshes(),
        2,
        "with the new refresh token, after the old was refused"
    );
}

#[test]
fn ot_27_a_plain_403_is_the_server_s_last_word() {
    let mut world = AuthWorld::ready();
    world.network.forget();
    let body = json!({"error": "forbidden for your role"});
    world
        .pier
        .instead
        .borrow_mut()
        .push_back(Reply::Json(403, body));
    let error = world.call("write").unwrap_err();
    assert_eq!(error.http_status(), Some(403));
    assert_eq!(world.state(), State::Ready);
    assert_eq!(world.network.seen.borrow().len(), 1);
    assert!(world.call("echo").is_ok());
    // With another error code in a challenge, too.
    let reply = Reply::status(403).with("www-authenticate", "Bearer error=\"invalid_token\"");
    world.pier.instead.borrow_mut().push_back(reply);
    assert_eq!(world.call("write").unwrap_err().http_status(), Some(403));
    assert_eq!(
        futures::executor::block_on(world.mcp.auth_url("pier")).unwrap(),
        None
    );
}

#[test]
fn no_token_goes_to_another_origin() {
    for location in [
        "https://evil.example/mcp",
        "http://pier.example/mcp",
        "https://pier.example:8443/mcp",
    ] {
        for at_tokens in [false, true] {
            let mut world = AuthWorld::ready();
            let redirect = Reply::status(307).with("location", location);
            if at_tokens {
                world.advance(HOUR);
                world.server.instead.borrow_mut().push_back(redirect);
            } else {
                world.pier.instead.borrow_mut().push_back(redirect);
            }
            world.network.forget();
            assert!(world.call("echo").is_err(), "{location}");
            let seen = world.network.seen.borrow();
            assert!(!seen.iter().any(|seen| seen.url == location), "{location}");
        }
    }
    // Within the origin it does, and it is followed.
    let mut world = AuthWorld::ready();
    let pier = world.pier.clone();
    let moved = "https://pier.example/v2/mcp";
    pier.serve(&world.network, moved);
    let redirect = Reply::status(307).with("location", "/v2/mcp");
    pier.instead.borrow_mut().push_back(redirect);
    assert!(world.call("echo").is_ok());
    assert_eq!(world.network.seen.borrow().last().unwrap().url, moved);
}

#[test]
fn a_token_wins_over_a_static_header_which_is_used_while_there_is_none() {
    let mut world = AuthWorld::new();
    *world.pier.accepts.borrow_mut() = Some("Bearer static-key".into());
    world.watch.secret("static-key");
    world.register_as("pier", |server| {
        server.header("authorization", "Bearer static-key")
    });
    world.try_connect().unwrap();
    let mcp = world.mcp.clone();
    world.run(mcp.discover_if_connected("pier", None)).unwrap();
    assert!(world.call("echo").is_ok());
    assert_eq!(world.pier.last_token(), "static-key");
    assert_eq!(world.server.registrations.borrow().len(), 0);
    // The key is taken back, and the user signs in.
    world.pier.accepts.take();
    let url = world.call_for_sign_in("echo");
    let back = world.server.consent(&url);
    world.pier.take_tokens();
    world.come_back_well(&back);
    assert!(world.call("echo").is_ok());
    world.wake_up();
    assert!(world.call("echo").is_ok());
    assert!(!world.pier.take_tokens().contains("static-key"));
}

#[test]
fn tokens_of_another_url_are_never_sent() {
    let other = "https://other.example/mcp";
    for evicted in [false, true] {
        let mut world = AuthWorld::ready();
        let token = world.pier.last_token();
        let pier = world.pier.clone();
        pier.serve(&world.network, other);
        if evicted {
            world.evict();
        }
        world.network.forget();
        let mcp = world.mcp.clone();
        let moved = workers_agents::RegisterServer::new("Pier", other).callback_url(CALLBACK);
        world.run(mcp.register_server("pier", moved)).unwrap();
        assert!(
            world.stored_keys().is_empty(),
            "nothing of the server before is left"
        );
        let url = world.connect();
        assert!(url.as_str().contains("other.example"), "the resource");
        world.wake_up();
        let seen = world.network.seen.borrow().clone();
        let to_other = seen
            .iter()
            .filter(|seen| seen.url.starts_with("https://other"));
        for seen in to_other {
            assert_eq!(seen.header("authorization"), None);
        }
        world.settle();
        assert_eq!(
            world.server.revoked.borrow().len(),
            1,
            "and the old ones are taken back"
        );
        assert!(!world.everything_stored().contains(&token));
    }
}

#[test]
fn a_record_of_another_url_is_not_used() {
    // As if the registration had been changed by somebody who knows nothing of sign-ins.
    let mut world = AuthWorld::ready();
    let other = "https://other.example/mcp";
    let pier = world.pier.clone();
    pier.serve(&world.network, other);
    world.table.rows.borrow_mut()[0].server_url = other.into();
    world.pier.take_tokens();
    world.wake_up();
    assert_eq!(world.state(), State::Authenticating);
    assert!(world.pier.take_tokens().is_empty());
}

#[test]
fn ot_38_a_lost_network_costs_no_sign_in() {
    let mut world = AuthWorld::ready();
    world.network.serve(URL, |_| Reply::Refused);
    for _ in 0..3 {
        assert!(world.call_slowly("echo").is_err());
    }
    world.evict();
    world.pass(Duration::from_mins(1), Duration::from_secs(1));
    let pier = world.pier.clone();
    pier.serve(&world.network, URL);
    let mcp = world.mcp.clone();
    world.run(mcp.connect_to_server("pier")).unwrap();
    assert!(world.call("echo").is_ok());
    assert_eq!(world.server.registrations.borrow().len(), 1);
    assert_eq!(world.server.asked.borrow().len(), 1);
}

#[test]
fn a_token_that_cannot_be_refreshed_is_replaced_by_a_sign_in() {
    let mut world = AuthWorld::new();
    world.server.gives_refresh.set(false);
    world.register();
    world.sign_in();
    world.advance(HOUR);
    let url = world.call_for_sign_in("echo");
    assert_eq!(world.server.refreshes(), 0);
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert!(world.call("echo").is_ok());
    assert_eq!(
        world.server.registrations.borrow().len(),
        1,
        "the client is as good as before"
    );
}

#[test]
fn tokens_are_bound_to_a_key_where_the_server_asks_for_it() {
    let mut world = AuthWorld::new();
    *world.server.metadata.borrow_mut() = json!({"dpop_signing_alg_values_supported": ["ES256"]});
    world.server.dpop_nonce.replace(Some("as-nonce-1".into()));
    world.pier.wants_dpop.set(true);
    world.pier.dpop_nonce.replace(Some("rs-nonce-1".into()));
    world.register();
    world.sign_in();
    assert_eq!(
        world.server.registrations.borrow()[0]["dpop_bound_access_tokens"],
        true
    );
    assert_eq!(world.token()["token_type"], "DPoP");
    world.network.forget();
    assert!(world.call("echo").is_ok());
    assert_eq!(world.count("tools/call"), 1, "the nonce is known by now");
    let seen = world.sent("tools/call")[0].clone();
    assert!(seen.header("authorization").unwrap().starts_with("DPoP "));
    let one = claims(seen.header("dpop").unwrap());
    // A new nonce costs one request, and no refresh.
    world.pier.dpop_nonce.replace(Some("rs-nonce-2".into()));
    assert!(world.call("echo").is_ok());
    assert_eq!(world.count("tools/call"), 3);
    let last = world.sent("tools/call")[2].clone();
    assert_ne!(claims(last.header("dpop").unwrap())["jti"], one["jti"]);
    assert_eq!(world.server.refreshes(), 0);
    // The key outlives the object's memory: the tokens are bound to it.
    world
        .watch
        .secret(world.value("/dpop_key")["d"].as_str().unwrap());
    let key = world.value("/dpop_key");
    world.server.dpop_nonce.replace(Some("as-nonce-2".into()));
    world.advance(HOUR);
    world.wake_up();
    assert!(world.call("echo").is_ok());
    assert_eq!(world.value("/dpop_key"), key);
    assert_eq!(world.server.refreshes(), 2, "one to learn the nonce");
    assert_eq!(world.server.exchanges(), 2);
}

#[test]
fn a_server_that_never_likes_a_nonce_is_left() {
    let mut world = AuthWorld::new();
    world.server.dpop_nonce.replace(Some("as-nonce-1".into()));
    world.pier.wants_dpop.set(true);
    world.register();
    world.sign_in();
    world.network.forget();
    let challenge = "DPoP error=\"use_dpop_nonce\"";
    for _ in 0..50 {
        let reply = Reply::status(401)
            .with("www-authenticate", challenge)
            .with("dpop-nonce", "again");
        world.pier.instead.borrow_mut().push_back(reply);
    }
    assert!(world.call("echo").is_err());
    assert!(
        world.count("tools/call") <= 8,
        "{}",
        world.count("tools/call")
    );
}

#[test]
fn an_answer_without_use_is_named_and_shows_no_token() {
    for (answer, part) in [
        (
            Reply::typed(200, "text/html", "<p>refresh-99 access-99</p>"),
            "text/html",
        ),
        (
            Reply::Json(200, json!({"refresh_token": "refresh-99"})),
            "access_token",
        ),
        (
            Reply::Json(
                200,
                json!({"access_token": "access-99", "token_type": "mac"}),
            ),
            "token type",
        ),
        (
            error_reply(200, "bad_verification_code"),
            "bad_verification_code",
        ),
    ] {
        let mut world = AuthWorld::new();
        world.watch.secret("access-99");
        world.watch.secret("refresh-99");
        world.register();
        let url = world.connect();
        let back = world.server.consent(&url);
        world.server.instead.borrow_mut().push_back(answer);
        let page = world.come_back_badly(&back);
        assert!(page.contains(part), "{page}");
        assert!(
            !world
                .stored_keys()
                .iter()
                .any(|key| key.ends_with("/token"))
        );
    }
}

#[test]
fn ot_05_a_form_is_an_answer_too() {
    let mut world = AuthWorld::ready();
    world.advance(HOUR);
    // As good as any other token to this server, if it had issued it.
    let form = "access_token=a%2Bb&token_type=bearer&expires_in=60";
    let form = Reply::typed(200, "application/x-www-form-urlencoded", form);
    world.server.instead.borrow_mut().push_back(form);
    let _ = world.call("echo");
    let sent = world.sent("tools/call");
    assert_eq!(
        sent.iter()
            .filter(|seen| seen.header("authorization") == Some("Bearer a+b"))
            .count(),
        1
    );
}

#[test]
fn a_401_within_a_session_of_the_legacy_era_does_not_end_it() {
    let mut world = AuthWorld::new();
    let server = LegacyServer::new();
    // Only tokens that were issued after so many others are good.
    let least = Rc::new(Cell::new(0));
    let (peer, auth, wanted) = (server.clone(), world.server.clone(), least.clone());
    world.network.serve(URL, move |seen| {
        let token = seen.header("authorization").unwrap_or_default();
        let number = auth.number_of(token.trim_start_matches("Bearer "));
        if number.is_none_or(|number| number < wanted.get()) {
            let place = format!("Bearer resource_metadata=\"{METADATA}\"");
            return Reply::status(401).with("www-authenticate", &place);
        }
        peer.answer(seen)
    });
    world.register();
    let url = world.connect();
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert!(world.call("echo").is_ok());
    assert_eq!(server.sessions.get(), 1);
    // The next token; the session is the same.
    least.set(1);
    world.network.forget();
    assert!(world.call("echo").is_ok());
    let sent = world.sent("tools/call");
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].body["id"], sent[1].body["id"], "the same request");
    assert_eq!(sent[1].header("mcp-session-id"), Some("session-1"));
    assert_eq!((server.sessions.get(), world.server.refreshes()), (1, 1));
    // A sign-in begins another one, and what is said then is said with the new token.
    least.set(usize::MAX);
    let url = world.call_for_sign_in("echo");
    least.set(2);
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert!(world.call("echo").is_ok());
    // What ends a session carries the token as well.
    world.network.forget();
    let mcp = world.mcp.clone();
    world.run(mcp.close_connection("pier")).unwrap();
    world.settle();
    let ended = world.sent("DELETE");
    assert_eq!(ended.len(), 1);
    let token = world.token()["access_token"].clone();
    let expected = format!("Bearer {}", token.as_str().unwrap());
    assert_eq!(ended[0].header("authorization"), Some(&*expected));
}

#[test]
fn callers_who_are_refused_at_once_are_shown_one_sign_in() {
    let mut world = AuthWorld::ready();
    world.server.end_grants();
    let (open, gate) = oneshot::channel();
    let gate = RefCell::new(Some(gate));
    let document = json!({"resource": URL, "authorization_servers": ["https://as.example"]});
    world.network.serve(METADATA, move |_| {
        let gate = gate.take().expect("one request");
        Reply::Later(gate, Box::new(Reply::Json(200, document.clone())))
    });
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let mcp = world.mcp.clone();
            world.start(async move { mcp.call_tool("pier", "echo", json!({})).await })
        })
        .collect();
    open.send(()).unwrap();
    world.settle();
    let urls: BTreeSet<String> = calls
        .iter()
        .map(|call| match call.outcome().unwrap() {
            Err(Error::SignInRequired { auth_url, .. }) => auth_url.as_str().to_owned(),
            other => panic!("no sign-in: {other:?}"),
        })
        .collect();
    assert_eq!(urls.len(), 1);
    assert_eq!(world.server.refreshes(), 1);
}

#[test]
fn a_call_during_the_exchange_waits_for_it() {
    let mut world = AuthWorld::ready();
    world.server.end_grants();
    let url = world.call_for_sign_in("echo");
    let back = world.server.consent(&url);
    let (open, gate) = oneshot::channel();
    world.server.gate.replace(Some(gate));
    let mcp = world.mcp.clone();
    let answer = world.start(async move { mcp.handle_callback(&back).await.status() });
    let mcp = world.mcp.clone();
    let call = world.start(async move { mcp.call_tool("pier", "echo", json!({})).await });
    let mcp = world.mcp.clone();
    let connect = world.start(async move { mcp.connect_to_server("pier").await });
    assert!(call.outcome().is_none() && connect.outcome().is_none());
    open.send(()).unwrap();
    world.settle();
    assert_eq!(answer.outcome(), Some(http::StatusCode::FOUND));
    assert!(call.outcome().unwrap().is_ok());
    assert!(matches!(
        connect.outcome().unwrap(),
        Ok(Connected::Connected)
    ));
    assert_eq!(world.server.exchanges(), 2);
    assert_eq!(world.state(), State::Ready);
}

#[test]
fn an_authorization_server_in_trouble_is_no_end() {
    // Nobody can be asked: that may pass, and the connection stays.
    let mut world = AuthWorld::ready();
    world.server.end_grants();
    world.network.serve(METADATA, |_| Reply::status(503));
    for _ in 0..3 {
        let error = world.call("echo").unwrap_err();
        assert!(error.is_transient(), "{error:?}");
        assert_eq!(world.state(), State::Ready);
    }
    let pier = world.pier.clone();
    pier.serve(&world.network, URL);
    world.call_for_sign_in("echo");

    // At the first connection, too: it is tried again by the retry policy after a wake.
    let mut world = AuthWorld::new();
    world.network.serve(METADATA, |_| Reply::status(503));
    world.register();
    let error = world.try_connect().unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    assert_eq!(world.state(), State::Failed);
    world.evict();
    world.settle();
    let pier = world.pier.clone();
    pier.serve(&world.network, URL);
    world.pass(Duration::from_secs(30), Duration::from_millis(250));
    assert_eq!(world.state(), State::Authenticating);
    assert_eq!(world.server.registrations.borrow().len(), 1);
}

#[test]
fn saying_the_same_again_changes_nothing_for_tokens() {
    // As a host does that registers its servers at each start.
    let mut world = AuthWorld::ready();
    for turn in 1..=3 {
        world.register();
        assert!(world.call("echo").is_ok());
        world.advance(HOUR);
        assert!(world.call("echo").is_ok());
        assert_eq!(world.server.refreshes(), turn);
        let mcp = world.mcp.clone();
        let info = world.run(mcp.authorization("pier")).unwrap().unwrap();
        assert_eq!(
            info.expires_at,
            world.token()["workersAgents"]["expiresAt"].as_u64()
        );
    }
    assert_eq!(world.server.exchanges(), 1);
    let last = world.token()["refresh_token"].clone();
    let mcp = world.mcp.clone();
    world.run(mcp.sign_out("pier")).unwrap();
    world.settle();
    let revoked = world.server.revoked.borrow()[0].form["token"].clone();
    assert_eq!(last, revoked, "the one that is good");
}

#[test]
fn a_sign_in_that_is_out_survives_saying_the_same_again() {
    let mut world = AuthWorld::new();
    world.register();
    let url = world.connect();
    world.register();
    assert_eq!(world.offered(), url);
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert!(world.call("echo").is_ok());
}

#[test]
fn a_server_of_http_sse_gets_tokens_with_stream_and_messages() {
    let mut world = AuthWorld::new();
    let server = SseServer::new("/messages?session={}");
    let (auth, peer) = (world.server.clone(), server.clone());
    let guarded = move |seen: &Seen, answer: &dyn Fn() -> Reply| {
        let token = seen.header("authorization").unwrap_or_default();
        if auth.is_good(token.trim_start_matches("Bearer ")) {
            return answer();
        }
        let place = format!("Bearer resource_metadata=\"{METADATA}\"");
        Reply::status(401).with("www-authenticate", &place)
    };
    let guarded = Rc::new(guarded);
    let guard = guarded.clone();
    world.network.serve(URL, move |seen| match &*seen.method {
        "GET" => guard(seen, &|| peer.open()),
        _ => guard(seen, &|| Reply::status(405)),
    });
    for session in 1..=3 {
        let (guard, peer) = (guarded.clone(), server.clone());
        let at = format!("https://pier.example/messages?session={session}");
        world
            .network
            .serve(&at, move |seen| guard(seen, &|| peer.post(seen)));
    }
    world.register_as("pier", |server| server.transport(TransportKind::Sse));
    let url = world.connect();
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert_eq!(world.state(), State::Ready);
    assert!(world.call("echo").is_ok());
    // A message is refused, and sent again with the next token; the stream stays.
    world.server.end_access();
    world.network.forget();
    assert!(world.call("echo").is_ok());
    assert_eq!(world.count("tools/call"), 2);
    assert_eq!(world.server.refreshes(), 1);
    assert_eq!(server.opened.get(), 1);
    // And where the user has to sign in again, the URL is there.
    world.server.end_grants();
    let url = world.call_for_sign_in("echo");
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert!(world.call("echo").is_ok());
}

#[test]
fn a_401_says_nothing_of_transports() {
    // With the transport to be found out, a protected server is not taken for one of HTTP+SSE.
    let mut world = AuthWorld::new();
    world.register();
    let url = world.connect();
    let seen = world.network.seen.borrow().clone();
    let to_server: Vec<String> = seen
        .iter()
        .filter(|seen| seen.url == URL)
        .map(Seen::rpc)
        .collect();
    assert_eq!(
        to_server,
        ["server/discover"],
        "one request, and nothing after its 401"
    );
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    let info = world.mcp.connection("pier").unwrap();
    assert_eq!(info.transport, Some(TransportKind::StreamableHttp));
    assert_eq!(info.revision, Some(workers_agents::Revision::V2026_07_28));
}

#[test]
fn a_short_life_is_used_for_the_most_part() {
    // As some servers have it by default.
    let mut world = AuthWorld::new();
    world.server.expires_in.replace(json!(60));
    world.register();
    world.sign_in();
    for _ in 0..11 {
        assert!(world.call("echo").is_ok());
        world.settle();
        assert_eq!(world.server.refreshes(), 0);
        world.advance(Duration::from_secs(5));
    }
    assert!(world.call("echo").is_ok());
    world.settle();
    assert_eq!(world.server.refreshes(), 1, "a tenth ahead of its end");
}

#[test]
fn a_stream_that_is_refused_hammers_nobody() {
    for can_refresh in [true, false] {
        let mut world = AuthWorld::with(|options| options.streams(StreamPolicy::Always));
        let talker = Talker::legacy(json!({"tools": {"listChanged": true}}));
        talker.serve(&world.world, URL);
        let inner = world.network.peer(URL);
        let auth = world.server.clone();
        world.network.serve(URL, move |seen| {
            let token = seen.header("authorization").unwrap_or_default();
            if auth.is_good(token.trim_start_matches("Bearer ")) {
                return inner(seen);
            }
            let place = format!("Bearer resource_metadata=\"{METADATA}\"");
            Reply::status(401).with("www-authenticate", &place)
        });
        world.register();
        let url = world.connect();
        let back = world.server.consent(&url);
        world.come_back_well(&back);
        assert!(world.call("echo").is_ok());
        let stream = talker.stream_of_its_own();
        assert!(stream.seen.header("authorization").is_some());
        if can_refresh {
            world.server.end_access();
        } else {
            world.server.end_grants();
        }
        stream.end();
        world.network.forget();
        world.pass(Duration::from_mins(10), Duration::from_secs(1));
        assert_eq!(world.server.refreshes(), 1);
        if can_refresh {
            assert_eq!(talker.standing().len(), 1, "it is open again");
            assert_eq!(world.state(), State::Ready);
        } else {
            assert!(world.count("GET") <= 12, "{}", world.count("GET"));
            assert!(world.server.registrations.borrow().len() <= 2);
            world.call_for_sign_in("echo");
        }
    }
}
