//! A sign-in from the first 401 to the ready server, evicted anywhere, and what callbacks come to.

use std::cell::RefCell;
use std::time::Duration;

use futures::channel::oneshot;
use http::Response;
use serde_json::json;
use url::Url;
use workers_agents::{
    Connected, ConnectionState as State, Error, OAuthCallback, OAuthError, OAuthSettings,
    RegisterServer, SignInOutcome,
};

use super::support::auth_world::{
    AuthServer, AuthWorld, CALLBACK, Form, HOUR, ISSUER, METADATA, error_reply, query,
};
use super::support::{Reply, Seen, URL};

fn with(url: &Url, name: &str, value: &str) -> Url {
    let mut changed = url.clone();
    let kept: Vec<_> = url
        .query_pairs()
        .filter(|(other, _)| other != name)
        .collect();
    changed
        .query_pairs_mut()
        .clear()
        .extend_pairs(kept)
        .append_pair(name, value);
    changed
}

fn without(url: &Url, name: &str) -> Url {
    let mut changed = url.clone();
    let kept: Vec<_> = url
        .query_pairs()
        .filter(|(other, _)| other != name)
        .collect();
    changed.query_pairs_mut().clear().extend_pairs(kept);
    changed
}

/// The whole table of sign-ins, unchanged by a callback that changes nothing.
fn everything(world: &AuthWorld) -> (State, String) {
    (world.state(), world.everything_stored())
}

#[test]
fn the_first_request_leads_to_a_correct_url() {
    let mut world = AuthWorld::new();
    *world.server.metadata.borrow_mut() =
        json!({"scopes_supported": ["berth:read", "offline_access"]});
    *world.pier.challenge_scope.borrow_mut() = Some("berth:read".into());
    // Sent back to the letter, not as a URL type would write it.
    *world.pier.metadata.borrow_mut() = json!({"resource": "https://pier.example"});
    world.register();
    assert_eq!(
        world.network.seen.borrow().len(),
        0,
        "registering sends nothing"
    );
    let url = world.connect();

    let names: Vec<String> = url
        .query_pairs()
        .map(|(name, _)| name.into_owned())
        .collect();
    let expected = [
        "tenant",
        "response_type",
        "client_id",
        "code_challenge",
        "code_challenge_method",
        "redirect_uri",
        "state",
        "scope",
        "prompt",
        "resource",
    ];
    assert_eq!(names, expected);
    let asked = query(&url);
    let fixed = [
        ("response_type", "code"),
        ("client_id", "client-1-as.example"),
        ("code_challenge_method", "S256"),
        ("redirect_uri", CALLBACK),
        ("scope", "berth:read offline_access"),
        ("prompt", "consent"),
        ("resource", "https://pier.example"),
    ];
    for (name, value) in fixed {
        assert_eq!(asked[name], value, "{name}");
    }
    assert_eq!(asked["code_challenge"].len(), 43);
    let (nonce, id) = asked["state"].split_once('.').unwrap();
    assert_eq!((nonce.len(), id), (21, "pier"));
    let is_legal = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    assert!(nonce.chars().all(is_legal));
    assert_eq!(world.state(), State::Authenticating);
    assert_eq!(
        futures::executor::block_on(world.mcp.auth_url("pier"))
            .unwrap()
            .unwrap()
            .as_str(),
        url.as_str()
    );

    let registered = world.server.registrations.borrow()[0].clone();
    assert_eq!(registered["client_name"], "gull");
    assert_eq!(registered["redirect_uris"], json!([CALLBACK]));
    assert_eq!(registered["application_type"], "web");
    assert_eq!(registered["token_endpoint_auth_method"], "none");
    assert_eq!(
        registered["grant_types"],
        json!(["authorization_code", "refresh_token"])
    );
    assert_eq!(registered["scope"], "berth:read offline_access");

    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert_eq!(world.state(), State::Ready);
    let asked = world.server.last_asked();
    let verifier = asked.form["code_verifier"].clone();
    assert_eq!(verifier.len(), 43);
    let expected: Form = [
        ("grant_type", "authorization_code"),
        ("code", &query(&back)["code"]),
        ("code_verifier", &verifier),
        ("redirect_uri", CALLBACK),
        ("resource", "https://pier.example"),
        ("client_id", "client-1-as.example"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    assert_eq!(asked.form, expected);
    assert_eq!(asked.authorization, None);
    assert!(world.call("echo").is_ok());
    assert_eq!(
        futures::executor::block_on(world.mcp.auth_url("pier")).unwrap(),
        None
    );
    let info = world.mcp.authorization("pier");
    let info = futures::executor::block_on(info).unwrap().unwrap();
    assert_eq!(info.issuer.as_deref(), Some(ISSUER));
    assert_eq!(info.client_id.as_deref(), Some("client-1-as.example"));
    assert_eq!(info.scope.as_deref(), Some("berth:read offline_access"));
    assert_eq!(info.expires_at, Some(1_003_600_000));
}

#[test]
fn every_sign_in_has_secrets_of_its_own() {
    let mut world = AuthWorld::new();
    world.register();
    let (one, two) = (query(&world.connect()), query(&world.connect()));
    for name in ["state", "code_challenge"] {
        assert_ne!(one[name], two[name], "{name}");
    }
}

#[test]
fn an_eviction_anywhere_costs_the_user_nothing() {
    // After registering, with the URL out, after the exchange, and after discovery: each or not.
    for evictions in 0..16 {
        let evicted = |step: u32| evictions & (1 << step) != 0;
        let mut world = AuthWorld::new();
        world.register();
        let url = if evicted(0) {
            // Connects by itself.
            world.wake_up();
            assert_eq!(world.state(), State::Authenticating);
            world.offered()
        } else {
            world.connect()
        };
        if evicted(1) {
            world.network.forget();
            world.wake_up();
            assert_eq!(
                world.network.seen.borrow().len(),
                0,
                "a parked server is left alone"
            );
            assert_eq!(world.state(), State::Authenticating);
            assert_eq!(world.offered(), url);
        }
        let back = world.server.consent(&url);
        if evicted(2) {
            // The server is silent, so that nothing comes after the exchange.
            world.network.serve(URL, |_| Reply::Silence);
            let (mcp, back) = (world.mcp.clone(), back.clone());
            let answer = world.start(async move { mcp.handle_callback(&back).await });
            assert!(answer.outcome().is_none());
            world.pier.clone().serve(&world.network, URL);
            world.wake_up();
            assert_eq!(world.row().auth_url, None);
        } else {
            world.come_back_well(&back);
        }
        assert_eq!(world.state(), State::Ready, "{evictions:04b}");
        if evicted(3) {
            world.wake_up();
            assert_eq!(world.state(), State::Ready);
        }
        assert!(world.call("echo").is_ok());
        assert_eq!(
            world.server.registrations.borrow().len(),
            1,
            "{evictions:04b}"
        );
        assert_eq!(world.server.asked.borrow().len(), 1, "{evictions:04b}");
        assert_eq!(world.row().auth_url, None);
        // A reload of the page that the user came back to.
        world.come_back_well(&back);
        assert_eq!(world.server.asked.borrow().len(), 1);
    }
}

#[test]
fn an_eviction_during_the_exchange_makes_the_user_start_over_with_a_fresh_url() {
    // A code is good once, and whether it was used up is unknown: it is not sent again.
    let mut world = AuthWorld::new();
    world.register();
    let url = world.connect();
    let back = world.server.consent(&url);
    let (_never, gate) = oneshot::channel();
    world.server.gate.replace(Some(gate));
    let (mcp, again) = (world.mcp.clone(), back.clone());
    let answer = world.start(async move { mcp.handle_callback(&again).await });
    assert!(answer.outcome().is_none());
    assert_eq!(world.server.exchanges(), 1);
    world.wake_up();
    assert_eq!(world.state(), State::Authenticating);
    let offered = world.offered();
    assert_ne!(offered, url, "a URL that is used up is offered");
    // The browser repeats its request: no second exchange, and nothing else happens.
    let before = everything(&world);
    world.come_back_badly(&back);
    assert_eq!(everything(&world), before);
    assert_eq!(world.server.exchanges(), 1);
    let back = world.server.consent(&offered);
    world.come_back_well(&back);
    assert_eq!(world.state(), State::Ready);
    assert_eq!(world.server.exchanges(), 2);
}

#[test]
fn a_callback_that_comes_twice_is_one_exchange() {
    for at_once in [false, true] {
        let mut world = AuthWorld::new();
        world.register();
        let url = world.connect();
        let back = world.server.consent(&url);
        if at_once {
            let (open, gate) = oneshot::channel();
            world.server.gate.replace(Some(gate));
            let answers: Vec<_> = (0..3)
                .map(|_| {
                    let (mcp, back) = (world.mcp.clone(), back.clone());
                    world.start(async move { mcp.handle_callback(&back).await.status() })
                })
                .collect();
            open.send(()).unwrap();
            world.settle();
            for answer in answers {
                assert_eq!(answer.outcome().unwrap(), 302);
            }
        } else {
            world.come_back_well(&back);
            world.come_back_well(&back);
            world.wake_up();
            world.come_back_well(&back);
        }
        assert_eq!(world.server.exchanges(), 1);
        assert_eq!(world.state(), State::Ready);
    }
}

#[test]
fn a_second_tab_changes_nothing_after_the_first_has_come_back() {
    let mut world = AuthWorld::new();
    world.register();
    let (one, two) = (world.connect(), world.connect());
    world.advance(Duration::from_secs(5));
    let (first, second) = (world.server.consent(&two), world.server.consent(&one));
    world.come_back_well(&first);
    let token = world.token();
    world.come_back_well(&second);
    assert_eq!(world.server.exchanges(), 1);
    assert_eq!(world.token(), token);
    // It is used up all the same.
    assert!(
        !world
            .stored_keys()
            .iter()
            .any(|key| key.contains("/state/"))
    );
    // And a failure there is no failure.
    let mut world = AuthWorld::new();
    world.register();
    let (one, two) = (world.connect(), world.connect());
    world.advance(Duration::from_secs(5));
    let (first, second) = (world.server.consent(&two), world.server.deny(&one));
    world.come_back_well(&first);
    world.come_back_well(&second);
    assert_eq!(world.state(), State::Ready);
}

#[test]
fn two_tabs_may_end_in_either_order() {
    for earlier_first in [true, false] {
        let mut world = AuthWorld::new();
        world.register();
        let (one, two) = (world.connect(), world.connect());
        let chosen = if earlier_first { one } else { two };
        let back = world.server.consent(&chosen);
        world.come_back_well(&back);
        assert_eq!(world.state(), State::Ready, "{earlier_first}");
        assert!(world.call("echo").is_ok());
    }
}

#[test]
fn a_stranger_s_callback_changes_nothing() {
    let forged = format!("{CALLBACK}?code=abc&state=aaaaaaaaaaaaaaaaaaaaa.pier");
    let forged = Url::parse(&forged).unwrap();
    let refused = with(&without(&forged, "code"), "error", "access_denied");
    let mut world = AuthWorld::new();
    world.register();
    for stray in [&forged, &refused] {
        assert!(world.mcp.is_callback_request(stray));
        let before = everything(&world);
        world.come_back_badly(stray);
        assert_eq!(everything(&world), before);
    }
    let url = world.connect();
    for stray in [&forged, &refused] {
        let before = everything(&world);
        world.come_back_badly(stray);
        assert_eq!(everything(&world), before);
    }
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    for stray in [&forged, &refused] {
        let before = everything(&world);
        world.come_back_badly(stray);
        assert_eq!(everything(&world), before, "also when it is ready");
    }
    assert_eq!(world.server.exchanges(), 1);
}

#[test]
fn exactly_ten_minutes_are_in_time() {
    for (millis, is_in_time) in [(600_000, true), (600_001, false)] {
        let mut world = AuthWorld::new();
        world.register();
        let url = world.connect();
        let back = world.server.consent(&url);
        world.advance(Duration::from_millis(millis));
        assert_eq!(
            futures::executor::block_on(world.mcp.auth_url("pier"))
                .unwrap()
                .is_some(),
            is_in_time
        );
        if is_in_time {
            world.come_back_well(&back);
            assert_eq!(world.state(), State::Ready);
            continue;
        }
        let page = world.come_back_badly(&back);
        assert!(page.contains("too long"), "{page}");
        assert_eq!(world.server.exchanges(), 0);
        // OT-18: no restart is needed, and the new URL is another one.
        let fresh = world.connect();
        assert_ne!(fresh, url);
        let back = world.server.consent(&fresh);
        world.come_back_well(&back);
        assert_eq!(world.state(), State::Ready);
    }
}

#[test]
fn a_sign_in_of_one_server_is_none_of_another() {
    let mut world = AuthWorld::new();
    world.register();
    world.register_as("other", |server| server);
    let url = world.connect();
    let back = world.server.consent(&url);
    let nonce = query(&url)["state"].split_once('.').unwrap().0.to_owned();
    let crossed = with(&back, "state", &format!("{nonce}.other"));
    let before = everything(&world);
    world.come_back_badly(&crossed);
    assert_eq!(everything(&world), before);
    assert_eq!(world.server.exchanges(), 0);
    // Nor one whose record names another server.
    let record = format!("/state/{nonce}");
    world.set_value(&record, |record| record["serverId"] = "other".into());
    world.come_back_badly(&back);
    assert_eq!(world.server.exchanges(), 0);
    world.set_value(&record, |record| record["serverId"] = "pier".into());
    world.come_back_well(&back);
    assert_eq!(world.state(), State::Ready);
    assert_eq!(
        world.mcp.connection("other").unwrap().state,
        State::Connecting
    );
}

#[test]
fn ot_24_a_wrong_issuer_does_not_spoil_the_true_answer() {
    for advertised in [true, false] {
        let mut world = AuthWorld::new();
        world.server.names_itself.set(advertised);
        world.register();
        let url = world.connect();
        let back = world.server.consent(&url);
        let wrong = with(&back, "iss", "https://evil.example");
        let before = everything(&world);
        let page = world.come_back_badly(&wrong);
        assert!(page.contains("https://evil.example"), "{page}");
        let denied = without(&with(&wrong, "error", "access_denied"), "code");
        let denied = with(&denied, "error_description", "pay here");
        let page = world.come_back_badly(&denied);
        assert!(!page.contains("pay here"), "{page}");
        if advertised {
            world.come_back_badly(&without(&back, "iss"));
        }
        let twice = Url::parse(&format!("{back}&iss=https%3A%2F%2Fevil.example&iss=x")).unwrap();
        world.come_back_badly(&twice);
        assert_eq!(everything(&world), before);
        assert_eq!(world.server.exchanges(), 0);
        world.come_back_well(&back);
        assert_eq!(world.state(), State::Ready);
    }
}

#[test]
fn a_user_who_does_not_consent_can_begin_again() {
    let mut world = AuthWorld::new();
    world.register();
    let url = world.connect();
    let back = world.server.deny(&url);
    let page = world.come_back_badly(&back);
    assert!(
        page.contains("&lt;b&gt;not today&lt;/b&gt; (access_denied)"),
        "{page}"
    );
    assert_eq!(world.state(), State::Failed);
    assert_eq!(world.server.asked.borrow().len(), 0);
    assert_eq!(
        futures::executor::block_on(world.mcp.auth_url("pier")).unwrap(),
        None
    );
    let error = world.mcp.connection("pier").unwrap().error.unwrap();
    let is_refusal = |error: &Error| matches!(error, Error::Authorization(OAuthError::Refused { code, .. }) if code == "access_denied");
    assert!(is_refusal(&error), "{error:?}");
    // Used up.
    world.come_back_badly(&back);
    world.wake_up();
    assert_eq!(
        world.state(),
        State::Authenticating,
        "asked anew after a wake"
    );
    world.sign_in();
    // An old refusal, reloaded, changes nothing now.
    let before = everything(&world);
    let _ = world.come_back(&back);
    assert_eq!(everything(&world), before);
}

#[test]
fn what_is_neither_code_nor_error_uses_nothing_up() {
    let mut world = AuthWorld::new();
    world.register();
    let url = world.connect();
    let back = world.server.consent(&url);
    let before = everything(&world);
    let page = world.come_back_badly(&without(&back, "code"));
    assert!(page.contains("neither a code nor an error"), "{page}");
    assert_eq!(everything(&world), before);
    world.come_back_well(&back);
    let before = everything(&world);
    let _ = world.come_back(&without(&back, "code"));
    assert_eq!(everything(&world), before, "also when it is ready");
}

#[test]
fn a_server_that_was_removed_meanwhile_has_no_sign_in() {
    let mut world = AuthWorld::new();
    world.register();
    let url = world.connect();
    let back = world.server.consent(&url);
    assert!(world.mcp.is_callback_request(&back));
    let mcp = world.mcp.clone();
    assert!(world.run(mcp.remove_server("pier")).unwrap());
    assert!(!world.mcp.is_callback_request(&back));
    world.come_back_badly(&back);
    assert_eq!(world.server.exchanges(), 0);
    assert_eq!(world.everything_stored(), "");
    // Nor has the next one of this id.
    world.register();
    world.come_back_badly(&back);
    assert_eq!(world.server.exchanges(), 0);
}

#[test]
fn a_server_that_is_removed_during_the_exchange_leaves_nothing_behind() {
    for sign_out in [false, true] {
        let mut world = AuthWorld::new();
        world.register();
        let url = world.connect();
        let back = world.server.consent(&url);
        let (open, gate) = oneshot::channel();
        world.server.gate.replace(Some(gate));
        let mcp = world.mcp.clone();
        let answer = world.start(async move { mcp.handle_callback(&back).await.status() });
        let mcp = world.mcp.clone();
        if sign_out {
            world.run(mcp.sign_out("pier")).unwrap();
        } else {
            world.run(mcp.remove_server("pier")).unwrap();
        }
        let _ = open.send(());
        world.settle();
        assert_eq!(answer.outcome().unwrap(), 400);
        assert_eq!(world.stored_keys(), [""; 0], "sign_out: {sign_out}");
    }
}

#[test]
fn an_id_may_have_dots() {
    let mut world = AuthWorld::new();
    world.register_as("my.pier.v2", |server| server);
    let mcp = world.mcp.clone();
    let connected = world.run(mcp.connect_to_server("my.pier.v2")).unwrap();
    let Connected::Authenticating { auth_url } = connected else {
        panic!("no sign-in");
    };
    let back = world
        .server
        .consent(&Url::parse(auth_url.as_str()).unwrap());
    world.wake_up();
    assert!(world.mcp.is_callback_request(&back));
    world.come_back_well(&back);
    assert_eq!(
        world.mcp.connection("my.pier.v2").unwrap().state,
        State::Ready
    );
}

#[test]
fn a_callback_is_known_by_origin_path_and_server() {
    let mut world = AuthWorld::new();
    world.register();
    let is_callback = |url: &str| world.mcp.is_callback_request(&Url::parse(url).unwrap());
    for (url, expected) in [
        (format!("{CALLBACK}?state=n.pier&code=c"), true),
        (format!("{CALLBACK}?state=n.pier#x"), true),
        (format!("{CALLBACK}?state=n.other&code=c"), false),
        (format!("{CALLBACK}?code=c"), false),
        (format!("{CALLBACK}?state=pier&code=c"), false),
        (format!("{CALLBACK}/?state=n.pier"), false),
        (format!("{CALLBACK}x?state=n.pier"), false),
        (CALLBACK.replace("https", "http") + "?state=n.pier", false),
        (
            CALLBACK.replace("app.example", "app.example:8443") + "?state=n.pier",
            false,
        ),
        (
            CALLBACK.replace("callback", "CALLBACK") + "?state=n.pier",
            false,
        ),
    ] {
        assert_eq!(is_callback(&url), expected, "{url}");
    }
}

fn location(response: &Response<String>) -> &str {
    response.headers()["location"].to_str().unwrap()
}

#[test]
fn the_browser_goes_where_the_host_says_and_nowhere_else() {
    let cases = [
        (None, None, "https://app.example/", None),
        (
            Some("/done?a=1"),
            Some("/failed"),
            "https://app.example/done?a=1",
            Some("https://app.example/failed?error=E"),
        ),
        (
            Some("https://other.example/in"),
            Some("https://other.example/out?x=1&error=old&y=a%20b#f"),
            "https://other.example/in",
            Some("https://other.example/out?x=1&y=a+b&error=E#f"),
        ),
        (Some("/done"), None, "https://app.example/done", None),
        (
            None,
            Some("/failed"),
            "https://app.example/",
            Some("https://app.example/failed?error=E"),
        ),
        // Relative to the origin's root, or to the callback.
        (
            Some("done"),
            Some("?"),
            "https://app.example/agents/my-agent/gull/done",
            Some("https://app.example/agents/my-agent/gull/callback?error=E"),
        ),
        // Not parsable: as if it were not there.
        (
            Some("https://["),
            Some("http://:x"),
            "https://app.example/",
            None,
        ),
        (Some("//"), Some("//"), "https://app.example/", None),
    ];
    for (success, error, after_success, after_error) in cases {
        for fails in [false, true] {
            let mut world = AuthWorld::new();
            let mut callback = OAuthCallback::new();
            if let Some(success) = success {
                callback = callback.success_redirect(success);
            }
            if let Some(error) = error {
                callback = callback.error_redirect(error);
            }
            world.mcp.configure_oauth_callback(callback);
            world.register();
            let url = world.connect();
            let mut back = if fails {
                world.server.deny(&url)
            } else {
                world.server.consent(&url)
            };
            for name in ["redirect", "next", "returnTo", "success_redirect", "url"] {
                back = with(&back, name, "https://evil.example/");
            }
            let response = world.come_back(&back);
            assert_eq!(response.headers()["cache-control"], "no-store");
            assert_eq!(response.headers()["referrer-policy"], "no-referrer");
            let expected = if fails {
                after_error
            } else {
                Some(after_success)
            };
            let Some(expected) = expected else {
                assert_eq!(response.status(), 400, "{error:?}");
                assert!(!response.body().contains("evil"));
                assert!(!response.body().contains("<b>"));
                continue;
            };
            assert_eq!(response.status(), 302);
            let shown = "%3Cb%3Enot+today%3C%2Fb%3E+%28access_denied%29";
            let shown =
                format!("error=authorization%3A+the+authorization+server+refused%3A+{shown}");
            let found = location(&response);
            let plain = found.replace(&shown.replace("authorization%3A+the", "the"), "error=E");
            assert_eq!(plain.replace(&shown, "error=E"), expected);
        }
    }
}

#[test]
fn a_handler_of_the_host_s_own_answers_alone() {
    let mut world = AuthWorld::new();
    let callback = OAuthCallback::new()
        .success_redirect("/never")
        .error_redirect("/never")
        .custom_handler(async |outcome: SignInOutcome| {
            let said = match &outcome.auth_error {
                None => "ok".to_owned(),
                Some(error) => error.clone(),
            };
            let mut response = Response::new(format!("{} {said}", outcome.server_id));
            *response.status_mut() = http::StatusCode::IM_A_TEAPOT;
            response
        });
    world.mcp.configure_oauth_callback(callback);
    world.register();
    let url = world.connect();
    let back = world.server.deny(&url);
    let response = world.come_back(&back);
    assert_eq!(response.status(), 418);
    assert!(!response.headers().contains_key("location"));
    assert!(
        response
            .body()
            .ends_with("<b>not today</b> (access_denied)"),
        "raw: theirs to escape"
    );
    let url = world.connect();
    let back = world.server.consent(&url);
    assert_eq!(world.come_back(&back).body(), "pier ok");
}

#[test]
fn a_gateway_in_trouble_is_asked_twice_and_a_lost_answer_is_not() {
    // 503 has not used the code up.
    let mut world = AuthWorld::new();
    world.register();
    let url = world.connect();
    let back = world.server.consent(&url);
    world
        .server
        .instead
        .borrow_mut()
        .push_back(Reply::status(503));
    let mcp = world.mcp.clone();
    let answer = world.start(async move { mcp.handle_callback(&back).await.status() });
    assert!(answer.outcome().is_none());
    world.pass(Duration::from_secs(2), Duration::from_millis(100));
    assert_eq!(answer.outcome().unwrap(), 302);
    assert_eq!(world.server.exchanges(), 2);

    // OT-39: the answer never comes.
    let mut world = AuthWorld::new();
    world.register();
    let url = world.connect();
    let back = world.server.consent(&url);
    world.server.instead.borrow_mut().push_back(Reply::Refused);
    world.come_back_badly(&back);
    assert_eq!(world.state(), State::Failed);
    assert_eq!(world.server.exchanges(), 1);
    assert!(
        !world
            .stored_keys()
            .iter()
            .any(|key| key.ends_with("/token"))
    );
    world.sign_in();
}

#[test]
fn or_10_two_sign_ins_that_come_to_nothing_are_enough() {
    for code in ["invalid_grant", "unauthorized_client", "invalid_client"] {
        let mut world = AuthWorld::new();
        world.register();
        for round in 1..=2 {
            // After a wake the user is asked anew without more ado.
            let url = if round == 1 {
                world.connect()
            } else {
                world.offered()
            };
            let back = world.server.consent(&url);
            world
                .server
                .instead
                .borrow_mut()
                .push_back(error_reply(400, code));
            world.come_back_badly(&back);
            assert_eq!(world.state(), State::Failed);
            assert_eq!(
                world.server.registrations.borrow().len(),
                round,
                "{code}: a new client"
            );
            if round == 1 {
                world.wake_up();
            }
        }
        let error = world.try_connect().unwrap_err();
        let is_clear = matches!(
            &error,
            Error::Authorization(OAuthError::Refused { code: said, .. }) if said == code
        );
        assert!(is_clear, "{error:?}");
        assert_eq!(world.state(), State::Failed);
        world.wake_up();
        assert_eq!(world.state(), State::Failed, "nor after a wake");
        assert_eq!(world.server.registrations.borrow().len(), 2);
        // Later it may be another matter.
        world.advance(Duration::from_millis(600_001));
        world.sign_in();
        assert!(world.call("echo").is_ok());
    }
}

#[test]
fn a_sign_in_that_comes_to_nothing_is_forgiven_after_a_success() {
    let mut world = AuthWorld::new();
    world.register();
    for _ in 0..3 {
        let url = world.connect();
        let back = world.server.consent(&url);
        let refusal = error_reply(400, "invalid_grant");
        world.server.instead.borrow_mut().push_back(refusal);
        world.come_back_badly(&back);
        world.sign_in();
        world.server.end_grants();
        world.call_for_sign_in("echo");
    }
}

#[test]
fn ot_33_the_exchange_goes_where_the_metadata_said() {
    let mut world = AuthWorld::new();
    let elsewhere = "https://tokens.example/oauth/v2/exchange";
    *world.server.metadata.borrow_mut() = json!({"token_endpoint": elsewhere});
    world.server.clone().serve_tokens(&world.network, elsewhere);
    world.register();
    let url = world.connect();
    let back = world.server.consent(&url);
    // What is published later does not count for a sign-in that has begun.
    *world.server.metadata.borrow_mut() = json!({"token_endpoint": "https://evil.example/token"});
    world.wake_up();
    world.come_back_well(&back);
    assert_eq!(world.server.last_asked().url, elsewhere);
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
fn a_server_without_callback_says_that_it_needs_one() {
    let mut world = AuthWorld::new();
    let mcp = world.mcp.clone();
    world
        .run(mcp.register_server("pier", RegisterServer::new("Pier", URL)))
        .unwrap();
    let error = world.try_connect().unwrap_err();
    assert_eq!(error.http_status(), Some(401));
    assert_eq!(world.state(), State::Failed);
    assert!(
        !world
            .network
            .seen
            .borrow()
            .iter()
            .any(|seen| seen.url.contains("as.example"))
    );
}

#[test]
fn many_who_connect_at_once_begin_one_sign_in() {
    let mut world = AuthWorld::new();
    world.register();
    // The metadata lets everybody wait.
    let (open, gate) = oneshot::channel();
    let gate = RefCell::new(Some(gate));
    let document = json!({"resource": URL, "authorization_servers": [ISSUER]});
    let answer = move |_: &Seen| {
        let gate = gate.take().expect("one request");
        Reply::Later(gate, Box::new(Reply::Json(200, document.clone())))
    };
    world.network.serve(METADATA, answer);
    let all: Vec<_> = (0..5)
        .map(|_| {
            let mcp = world.mcp.clone();
            world.start(async move { mcp.connect_to_server("pier").await })
        })
        .collect();
    open.send(()).unwrap();
    world.settle();
    for one in all {
        let connected = one.outcome().unwrap();
        assert!(matches!(connected, Ok(Connected::Authenticating { .. })));
    }
    assert_eq!(world.server.registrations.borrow().len(), 1);
}

#[test]
fn what_others_say_never_reaches_a_page_as_markup() {
    let mut world = AuthWorld::new();
    world.register();
    let url = world.connect();
    let hostile = "\"><script>alert(1)</script>\u{202e}&amp;'";
    let back = world
        .server
        .answer(&url, &[("error", hostile), ("error_description", hostile)]);
    let response = world.come_back(&back);
    let page = response.body();
    assert!(
        !page.contains("<script>alert") && !page.contains('\u{202e}'),
        "{page}"
    );
    assert!(page.contains("&quot;&gt;&lt;script&gt;"));
    let policy = response.headers()["content-security-policy"]
        .to_str()
        .unwrap();
    assert!(policy.contains("default-src 'none'"));
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    // The id in an unknown state is the address's, and not shown.
    let stray = format!("{CALLBACK}?state=n.%3Cscript%3E&code=c");
    let page = world.come_back_badly(&Url::parse(&stray).unwrap());
    assert!(
        !page.contains("script&gt;") && !page.contains("<script>\""),
        "{page}"
    );
}

#[test]
fn two_servers_with_one_url_are_two_users() {
    // OT-20.
    let mut world = AuthWorld::new();
    world.register_as("a", |server| server);
    world.register_as("b", |server| server);
    let mut tokens = Vec::new();
    for id in ["a", "b"] {
        let mcp = world.mcp.clone();
        let connected = world.run(mcp.connect_to_server(id)).unwrap();
        let Connected::Authenticating { auth_url } = connected else {
            panic!("no sign-in");
        };
        let back = world
            .server
            .consent(&Url::parse(auth_url.as_str()).unwrap());
        world.come_back_well(&back);
        tokens.push(world.pier.last_token());
    }
    for _ in 0..2 {
        for (id, token) in ["a", "b"].iter().zip(&tokens) {
            let mcp = world.mcp.clone();
            world.run(mcp.call_tool(id, "echo", json!({}))).unwrap();
            assert_eq!(&world.pier.last_token(), token);
        }
        world.wake_up();
    }
}

#[test]
fn the_watch_over_secrets_notices() {
    let world = AuthWorld::ready();
    assert!(world.watch.leaks().is_empty());
    let token = world.pier.last_token();
    world.watch.shown(format!("no permission: {token}"));
    assert_eq!(world.watch.leaks().len(), 1);
    let (watch, server): (_, &AuthServer) = (world.watch.clone(), &world.server);
    assert_eq!(server.exchanges(), 1);
    watch.forget();
}

#[test]
fn a_server_of_before_resource_metadata_is_its_own_authorization_server() {
    for omits in [false, true] {
        let mut world = AuthWorld::new();
        let own = world.another_server("https://pier.example");
        own.is_published.set(false);
        world.pier.servers.replace(vec![own.clone()]);
        for place in [
            METADATA,
            "https://pier.example/.well-known/oauth-protected-resource",
        ] {
            world.network.serve(place, |_| Reply::status(404));
        }
        world.network.serve(
            "https://pier.example/.well-known/openid-configuration",
            |_| Reply::status(404),
        );
        // It does not say where its metadata is.
        let inner = world.network.peer(URL);
        world.network.serve(URL, move |seen| match inner(seen) {
            Reply::Raw(401, ..) => Reply::status(401),
            reply => reply,
        });
        let mut settings = OAuthSettings::default();
        settings.omit_resource = omits;
        world.register_as("pier", |server| server.oauth_settings(settings));
        let url = world.connect();
        assert!(url.as_str().starts_with("https://pier.example/authorize?"));
        let resource = query(&url).get("resource").cloned();
        assert_eq!(resource.as_deref(), (!omits).then_some(URL));
        // Nobody vouches for what an error says.
        let denied = own.deny(&url);
        let page = world.come_back_badly(&denied);
        assert!(!page.contains("not today"), "{page}");
        assert!(page.contains("could not be verified"), "{page}");
        let url = world.connect();
        let back = own.consent(&url);
        world.come_back_well(&back);
        world.advance(HOUR);
        assert!(world.call("echo").is_ok());
        let asked = own.last_asked();
        assert_eq!(asked.form.contains_key("resource"), !omits);
        assert_eq!(world.server.asked.borrow().len(), 0);
    }
}

#[test]
fn pkce_is_not_left_out_unless_the_host_says_that_the_server_only_does_not_say_so() {
    for (methods, allowed, works) in [
        (json!(["plain", "S256"]), false, true),
        (json!(["plain"]), true, false),
        (json!([]), true, false),
        (json!(null), false, false),
        (json!(null), true, true),
    ] {
        let mut world = AuthWorld::new();
        *world.server.metadata.borrow_mut() = json!({"code_challenge_methods_supported": methods});
        let mut settings = OAuthSettings::default();
        settings.allow_missing_pkce = allowed;
        world.register_as("pier", |server| server.oauth_settings(settings));
        if works {
            world.sign_in();
            continue;
        }
        let error = world.try_connect().unwrap_err();
        assert!(error.to_string().contains("S256"), "{methods} {error}");
        assert_eq!(world.server.registrations.borrow().len(), 0);
        assert_eq!(world.state(), State::Failed);
    }
}
