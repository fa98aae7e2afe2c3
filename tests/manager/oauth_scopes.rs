//! Which scopes are asked for, and more of them later; and as which client.

use futures::executor::block_on;
use std::time::Duration;

use futures::channel::oneshot;
use serde_json::json;
use url::Url;
use workers_agents::oauth::ClientInformation;
use workers_agents::{ConnectionState as State, Error, OAuthError, OAuthSettings};

use super::support::Reply;
use super::support::auth_world::{AuthWorld, HOUR, error_reply, query, serve_instead};

fn scope(url: &Url) -> Option<String> {
    query(url).get("scope").cloned()
}

/// Ready, with scope `read`, and a tool `write` that needs `write`.
fn reader() -> AuthWorld {
    let mut world = AuthWorld::new();
    *world.pier.challenge_scope.borrow_mut() = Some("read".into());
    world
        .pier
        .needs
        .borrow_mut()
        .extend([("write", "write"), ("read", "read"), ("admin", "root")]);
    world.register();
    world.sign_in();
    world
}

#[test]
fn ot_28_scopes_are_those_that_the_server_names() {
    let wish = Some("wished for");
    for (challenged, supported, wished, offline, expected) in [
        (Some("s1 s2"), json!(["x"]), wish, false, Some("s1 s2")),
        (
            None,
            json!(["api://m/.default", "offline"]),
            wish,
            false,
            Some("api://m/.default offline"),
        ),
        (None, json!(null), wish, false, Some("wished for")),
        (None, json!(null), None, false, None),
        (None, json!([]), None, false, None),
        (
            Some("s1"),
            json!(["x"]),
            None,
            true,
            Some("s1 offline_access"),
        ),
        (
            Some("offline_access s1"),
            json!(["x"]),
            None,
            true,
            Some("offline_access s1"),
        ),
        // Without any scope the server's default is what is wanted, not offline access alone.
        (None, json!(null), None, true, None),
    ] {
        let mut world = AuthWorld::new();
        *world.pier.challenge_scope.borrow_mut() = challenged.map(str::to_owned);
        *world.pier.metadata.borrow_mut() = json!({"scopes_supported": supported});
        if offline {
            let listed = json!({"scopes_supported": ["x", "offline_access"]});
            *world.server.metadata.borrow_mut() = listed;
        }
        let mut settings = OAuthSettings::default();
        settings.scope = wished.map(str::to_owned);
        world.register_as("pier", |server| server.oauth_settings(settings));
        let url = world.connect();
        assert_eq!(scope(&url).as_deref(), expected);
        let prompt = query(&url).get("prompt").cloned();
        let wants_offline = expected.is_some_and(|scope| scope.contains("offline_access"));
        assert_eq!(prompt.as_deref(), wants_offline.then_some("consent"));
        let registered = world.server.registrations.borrow()[0]["scope"].clone();
        assert_eq!(registered.as_str(), expected);
        let back = world.server.consent(&url);
        world.come_back_well(&back);
    }
}

#[test]
fn ot_25_more_is_asked_for_with_what_there_is() {
    let mut world = reader();
    let url = world.call_for_sign_in("write");
    assert_eq!(scope(&url).as_deref(), Some("read write"));
    assert_eq!(world.server.refreshes(), 0, "a refresh is no cure");
    assert_eq!(world.server.registrations.borrow().len(), 1);
    assert_eq!(world.state(), State::Authenticating);
    assert_eq!(world.offered(), url);
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    for tool in ["write", "read", "echo", "write"] {
        assert!(world.call(tool).is_ok(), "{tool}");
    }
    // Over a refresh, a wake, and a third set.
    world.advance(HOUR);
    world.wake_up();
    assert!(world.call("write").is_ok());
    let url = world.call_for_sign_in("admin");
    assert_eq!(scope(&url).as_deref(), Some("read write root"));
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    for tool in ["admin", "write", "read"] {
        assert!(world.call(tool).is_ok(), "{tool}");
    }
    // And where everything has to be asked for again.
    world.server.end_grants();
    let url = world.call_for_sign_in("echo");
    let asked = scope(&url).unwrap();
    for word in ["read", "write", "root"] {
        assert!(asked.split(' ').any(|other| other == word), "{asked}");
    }
}

#[test]
fn what_was_granted_stays_usable_while_more_is_asked_for() {
    let mut world = reader();
    let url = world.call_for_sign_in("write");
    for round in 0..2 {
        for tool in ["read", "echo"] {
            assert!(world.call(tool).is_ok(), "{tool}");
        }
        let names = super::support::names(&world.mcp);
        assert_eq!(names.len(), 4, "its tools are listed");
        if round == 0 {
            world.wake_up();
        }
    }
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert!(world.call("write").is_ok());
    assert_eq!(world.server.exchanges(), 2);
}

#[test]
fn who_declines_more_keeps_what_there_is() {
    for evicted in [false, true] {
        let mut world = reader();
        let url = world.call_for_sign_in("write");
        if evicted {
            world.wake_up();
        }
        let back = world.server.deny(&url);
        let page = world.come_back_badly(&back);
        assert!(page.contains("access_denied"));
        assert_eq!(world.state(), State::Ready, "evicted: {evicted}");
        assert_eq!(block_on(world.mcp.auth_url("pier")).unwrap(), None);
        assert!(world.call("read").is_ok());
        world.wake_up();
        assert_eq!(world.state(), State::Ready);
        assert!(world.call("read").is_ok());
    }
}

#[test]
fn three_sign_ins_for_one_operation_are_enough() {
    for evicted in [false, true] {
        let mut world = reader();
        // It grants the same, whatever it is asked for.
        world.server.grants.replace(Some("read".into()));
        for round in 1..=2 {
            let url = world.call_for_sign_in("write");
            if evicted {
                world.wake_up();
            }
            let back = world.server.consent(&url);
            world.come_back_well(&back);
            assert_eq!(world.server.exchanges(), 1 + round);
            if evicted {
                world.wake_up();
            }
        }
        for _ in 0..3 {
            let error = world.call("write").unwrap_err();
            let is_clear = matches!(error, Error::Authorization(OAuthError::TooManySignIns(3)));
            assert!(is_clear, "{error:?}");
            assert_eq!(world.state(), State::Ready, "the rest goes on");
            assert!(world.call("read").is_ok());
            if evicted {
                world.wake_up();
            }
        }
        // Another operation has an account of its own.
        world.server.grants.take();
        let url = world.call_for_sign_in("admin");
        let back = world.server.consent(&url);
        world.come_back_well(&back);
        assert!(world.call("admin").is_ok());
        // That sign-in asked for everything, so it helps this one too, and clears its account.
        assert!(world.call("write").is_ok());
        world.server.grants.replace(Some("read".into()));
        world.advance(HOUR);
        let url = world.call_for_sign_in_slowly("write");
        assert!(scope(&url).unwrap().contains("write"));
    }
}

#[test]
fn a_user_who_is_away_is_asked_as_often_as_needed() {
    // Whoever calls again before the user has answered is shown the same URL.
    let mut world = reader();
    let url = world.call_for_sign_in("write");
    for _ in 0..5 {
        assert_eq!(world.call_for_sign_in("write"), url);
    }
    // The URL is over, and the next call brings another.
    for _ in 0..5 {
        world.advance(Duration::from_millis(600_001));
        world.call_for_sign_in("write");
    }
    let url = world.offered();
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert!(world.call("write").is_ok());
    assert_eq!(world.server.exchanges(), 2);
}

#[test]
fn opening_a_connection_may_need_more_scopes_too() {
    let mut world = AuthWorld::new();
    *world.pier.challenge_scope.borrow_mut() = Some("read".into());
    world.register();
    let url = world.connect();
    let back = world.server.consent(&url);
    world.server.grants.replace(Some("nothing".into()));
    let more = "Bearer error=\"insufficient_scope\", scope=\"connect\"";
    serve_instead(&world.network, 403, more);
    let mcp = world.mcp.clone();
    world.run(mcp.handle_callback(&back));
    assert_eq!(world.state(), State::Authenticating);
    assert_eq!(
        scope(&world.offered()).as_deref(),
        Some("read nothing connect")
    );
    let mut sign_ins = 1;
    while world.state() == State::Authenticating && sign_ins < 10 {
        let url = world.offered();
        let back = world.server.consent(&url);
        let mcp = world.mcp.clone();
        world.run(mcp.handle_callback(&back));
        sign_ins += 1;
        world.settle();
    }
    assert_eq!(sign_ins, 3);
    assert_eq!(world.state(), State::Failed);
    let error = world.mcp.connection("pier").unwrap().error.unwrap();
    assert!(
        matches!(error, Error::Authorization(OAuthError::TooManySignIns(3))),
        "{error:?}"
    );
}

// ---- the client

fn given(secret: Option<&str>) -> ClientInformation {
    let mut client = ClientInformation::public("given");
    client.client_secret = secret.map(str::to_owned);
    client
}

/// Makes the given client known.
fn know(world: &AuthWorld, method: &str, secret: Option<&str>) {
    let record = json!({
        "client_secret": secret,
        "token_endpoint_auth_method": method,
        "redirect_uris": [super::support::auth_world::CALLBACK],
    });
    world
        .server
        .clients
        .borrow_mut()
        .insert("given".into(), record);
    if let Some(secret) = secret {
        world.watch.secret(secret);
    }
}

#[test]
fn or_01_and_or_11_a_given_client_is_used_and_never_thrown_away() {
    for (secret, methods, method) in [
        (None, json!(["none"]), "none"),
        (
            Some("app:s+e/c%r"),
            json!(["client_secret_basic"]),
            "client_secret_basic",
        ),
        (
            Some("app:s+e/c%r"),
            json!(["client_secret_post"]),
            "client_secret_post",
        ),
        (Some("app:s+e/c%r"), json!(null), "client_secret_basic"),
    ] {
        let mut world = AuthWorld::new();
        know(&world, method, secret);
        *world.server.metadata.borrow_mut() = json!({"token_endpoint_auth_methods_supported": methods, "registration_endpoint": null});
        world.register();
        let error = world.try_connect().unwrap_err();
        let has_no_client = matches!(error, Error::Authorization(OAuthError::NoClient));
        assert!(
            has_no_client && error.to_string().contains("give a client id"),
            "{error:?}"
        );
        assert_eq!(world.state(), State::Failed);

        *world.server.metadata.borrow_mut() =
            json!({"token_endpoint_auth_methods_supported": methods});
        world.register_as("pier", |server| server.client(given(secret)));
        world.wake_up();
        world.sign_in();
        world.advance(HOUR);
        assert!(world.call("echo").is_ok(), "{method}");
        assert_eq!(world.server.refreshes(), 1);
        assert_eq!(world.server.registrations.borrow().len(), 0);

        // Twice the server says that it does not know it.
        for _ in 0..2 {
            world.server.end_grants();
            let url = match world.call("echo") {
                Err(Error::SignInRequired { .. }) => world.offered(),
                _ => world.connect(),
            };
            let back = world.server.consent(&url);
            world
                .server
                .instead
                .borrow_mut()
                .push_back(error_reply(401, "invalid_client"));
            let page = world.come_back_badly(&back);
            assert!(
                page.contains("configured client &quot;given&quot;"),
                "{page}"
            );
            assert_eq!(world.value("/given/client_info/")["client_id"], "given");
            world.wake_up();
        }
        assert_eq!(world.server.registrations.borrow().len(), 0);
        assert_eq!(world.value("/given/client_info/")["client_id"], "given");
        let mcp = world.mcp.clone();
        world.run(mcp.sign_out("pier")).unwrap();
        assert_eq!(world.stored_keys(), ["/gull/pier/given/client_info/"]);
        assert_eq!(world.row().client_id.as_deref(), Some("given"));
        world.sign_in();
    }
}

#[test]
fn a_given_client_belongs_to_its_issuer() {
    // Named by the host, or the first that was met.
    for named in [true, false] {
        let mut world = AuthWorld::new();
        know(&world, "client_secret_basic", Some("s3cr3t-of-it"));
        let mut settings = OAuthSettings::default();
        settings.issuer = named.then(|| "https://as.example".to_owned());
        let client = given(Some("s3cr3t-of-it"));
        world.register_as("pier", |server| {
            server.client(client).oauth_settings(settings)
        });
        if !named {
            world.sign_in();
            world.server.end_grants();
        }
        let evil = world.another_server("https://evil.example");
        world.pier.servers.replace(vec![evil.clone()]);
        let error = match world.try_connect() {
            Err(error) => error,
            // The connection itself asks for nothing.
            Ok(_) => world.call("echo").unwrap_err(),
        };
        let text = error.to_string();
        for part in ["\"given\"", "https://as.example", "https://evil.example"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(world.state(), State::Failed);
        assert!(evil.asked.borrow().is_empty() && evil.registrations.borrow().is_empty());
        world.wake_up();
        assert_eq!(world.state(), State::Failed);
        world.pier.servers.replace(vec![world.server.clone()]);
        world.sign_in();
    }
}

#[test]
fn a_client_with_a_key_signs() {
    use super::support::auth_world::claims;
    use workers_agents::ports::Crypto as _;
    let key = super::support::crypto::NativeCrypto.generate_key();
    let key = block_on(key).unwrap();
    let secret: serde_json::Value = serde_json::from_str(&key).unwrap();
    let mut world = AuthWorld::new();
    world.watch.secret(secret["d"].as_str().unwrap());
    know(&world, "private_key_jwt", None);
    let mut client = ClientInformation::public("given");
    client.ours.private_key = Some(key);
    world.register_as("pier", |server| server.client(client));
    world.sign_in();
    world.advance(HOUR);
    world.wake_up();
    assert!(world.call("echo").is_ok());
    let asked = world.server.asked.borrow().clone();
    let assertions: Vec<_> = asked
        .iter()
        .map(|asked| claims(&asked.form["client_assertion"]))
        .collect();
    assert_eq!(assertions.len(), 2);
    for assertion in &assertions {
        assert_eq!(assertion["iss"], "given");
        assert_eq!(assertion["aud"], "https://as.example");
    }
    assert_ne!(
        assertions[0]["jti"], assertions[1]["jti"],
        "one for each request"
    );
    assert!(!asked[0].form.contains_key("client_secret"));
}

#[test]
fn a_client_is_registered_anew_when_users_come_back_elsewhere() {
    let mut world = AuthWorld::ready();
    let elsewhere = "https://app.example/agents/my-agent/other/callback";
    world.register_as("pier", |server| server.callback_url(elsewhere));
    assert!(
        world.call("echo").is_ok(),
        "as long as nobody has to sign in"
    );
    world.server.end_grants();
    let url = world.call_for_sign_in("echo");
    assert_eq!(query(&url)["redirect_uri"], elsewhere);
    assert_eq!(world.server.registrations.borrow().len(), 2);
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert!(world.call("echo").is_ok());
    let clients: Vec<_> = world
        .stored_keys()
        .into_iter()
        .filter(|key| key.ends_with("/client_info/"))
        .collect();
    assert_eq!(
        clients.len(),
        1,
        "nothing of the old one stays: {clients:?}"
    );
}

#[test]
fn a_client_is_registered_anew_when_its_secret_is_over() {
    let mut world = AuthWorld::new();
    *world.server.registration.borrow_mut() = json!({
        "client_secret": "registered-secret",
        "client_secret_expires_at": 1_002_000,
        "token_endpoint_auth_method": "client_secret_basic",
    });
    world.register();
    world.sign_in();
    world.advance(Duration::from_secs(1_990));
    world.server.end_grants();
    world.call_for_sign_in("echo");
    assert_eq!(world.server.registrations.borrow().len(), 1, "not sooner");
    let mut world = AuthWorld::new();
    *world.server.registration.borrow_mut() = json!({
        "client_secret": "registered-secret",
        "client_secret_expires_at": 1_002_000,
        "token_endpoint_auth_method": "client_secret_basic",
    });
    world.register();
    world.sign_in();
    world.advance(Duration::from_secs(2_000));
    world.server.end_grants();
    *world.server.registration.borrow_mut() = json!({});
    let url = world.call_for_sign_in("echo");
    assert_eq!(world.server.registrations.borrow().len(), 2);
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert!(world.call("echo").is_ok());
}

#[test]
fn nothing_of_one_authorization_server_reaches_the_next() {
    for evicted in [false, true] {
        let mut world = AuthWorld::new();
        *world.server.registration.borrow_mut() = json!({
            "client_secret": "secret-of-the-first",
            "token_endpoint_auth_method": "client_secret_post",
        });
        world.register();
        world.sign_in();
        let first = world.token();
        let second = world.another_server("https://as2.example");
        world.pier.servers.replace(vec![second.clone()]);
        if evicted {
            world.evict();
        }
        let url = world.call_for_sign_in("echo");
        assert!(url.as_str().starts_with("https://as2.example/"));
        // A refresh at the first may have been tried; it belongs there.
        let back = second.consent(&url);
        world.come_back_well(&back);
        assert!(world.call("echo").is_ok());
        world.advance(HOUR);
        assert!(world.call("echo").is_ok());
        assert_eq!(second.refreshes(), 1);
        let seen = world.network.seen.borrow();
        let to_second = seen
            .iter()
            .filter(|seen| seen.url.starts_with("https://as2"));
        for seen in to_second {
            let text = format!("{:?} {} {}", seen.headers, seen.url, seen.text);
            for secret in [
                "secret-of-the-first",
                "client-1-as.example",
                first["access_token"].as_str().unwrap(),
                first["refresh_token"].as_str().unwrap(),
            ] {
                assert!(!text.contains(secret), "{secret} in {text}");
            }
        }
        assert_eq!(second.registrations.borrow().len(), 1);
        assert!(!world.everything_stored().contains("secret-of-the-first"));
    }
}

#[test]
fn a_sign_in_ends_where_it_began_though_the_server_has_moved() {
    let mut world = AuthWorld::new();
    world.register();
    let url = world.connect();
    let back = world.server.consent(&url);
    let second = world.another_server("https://as2.example");
    world.pier.servers.borrow_mut().insert(0, second.clone());
    world.come_back_well(&back);
    assert_eq!(world.server.exchanges(), 1);
    assert!(second.asked.borrow().is_empty());
    assert_eq!(world.state(), State::Ready);
}

#[test]
fn or_08_a_client_that_never_worked_is_not_used_for_the_next_sign_in() {
    for evicted in [false, true] {
        let mut world = AuthWorld::new();
        world.register();
        let first = world.connect();
        // The user's browser was told that the client is unknown, and nobody comes back.
        world.server.forget_clients();
        world.advance(Duration::from_millis(600_001));
        if evicted {
            world.evict();
            world.settle();
        }
        let second = world.connect();
        assert_ne!(query(&first)["client_id"], query(&second)["client_id"]);
        let back = world.server.consent(&second);
        world.come_back_well(&back);
        // One that has worked is.
        world.server.end_grants();
        let third = world.call_for_sign_in("echo");
        assert_eq!(query(&third)["client_id"], query(&second)["client_id"]);
    }
}

#[test]
fn or_08_signing_out_is_a_way_out_too() {
    let mut world = AuthWorld::ready();
    let mcp = world.mcp.clone();
    world.run(mcp.sign_out("pier")).unwrap();
    assert!(world.stored_keys().is_empty());
    assert_eq!(world.row().client_id, None);
    assert_eq!(world.state(), State::NotConnected);
    world.server.forget_clients();
    world.sign_in();
    assert_eq!(world.server.registrations.borrow().len(), 2);
}

#[test]
fn a_client_that_a_refresh_finds_forgotten_is_registered_anew() {
    let mut world = AuthWorld::ready();
    world.server.forget_clients();
    world.advance(HOUR);
    let url = world.call_for_sign_in("echo");
    assert_eq!(world.server.registrations.borrow().len(), 2);
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert!(world.call("echo").is_ok());
}

#[test]
fn a_document_is_the_client_where_servers_take_such() {
    let own = "https://app.example/agents/my-agent/gull/client-metadata.json";
    for (given, expected) in [
        (None, own),
        (
            Some("https://gull.example/c.json"),
            "https://gull.example/c.json",
        ),
    ] {
        let mut world = AuthWorld::new();
        *world.server.metadata.borrow_mut() =
            json!({"client_id_metadata_document_supported": true});
        world.register_as("pier", |server| match given {
            Some(url) => server.client_metadata_url(url),
            None => server,
        });
        let known = json!({
            "token_endpoint_auth_method": "none",
            "redirect_uris": [super::support::auth_world::CALLBACK],
        });
        world
            .server
            .clients
            .borrow_mut()
            .insert(expected.into(), known);
        world.sign_in();
        world.advance(HOUR);
        world.wake_up();
        assert!(world.call("echo").is_ok());
        assert_eq!(world.server.registrations.borrow().len(), 0);
        assert_eq!(world.server.last_asked().form["client_id"], expected);
        // It can be taken along to another server.
        let second = world.another_server("https://as2.example");
        *second.metadata.borrow_mut() = json!({"client_id_metadata_document_supported": true});
        world.pier.servers.replace(vec![second.clone()]);
        let url = world.call_for_sign_in("echo");
        assert_eq!(query(&url)["client_id"], expected);
        // And one that takes none gets a registration.
        *second.metadata.borrow_mut() = json!({});
        let url = world.connect();
        assert_eq!(query(&url)["client_id"], "client-1-as2.example");
        let back = second.consent(&url);
        world.come_back_well(&back);
        assert!(world.call("echo").is_ok());
    }
}

#[test]
fn the_document_is_served_beside_the_callback() {
    let mut world = AuthWorld::new();
    let at = "https://app.example/agents/my-agent/gull/client-metadata.json";
    let at = Url::parse(&format!("{at}?x=1")).unwrap();
    assert_eq!(world.mcp.client_metadata_document(&at).unwrap(), None);
    world.register();
    let document = world.mcp.client_metadata_document(&at).unwrap().unwrap();
    assert_eq!(document["client_id"], at.as_str().trim_end_matches("?x=1"));
    assert_eq!(
        document["redirect_uris"],
        json!([super::support::auth_world::CALLBACK])
    );
    assert_eq!(document["token_endpoint_auth_method"], "none");
    for other in [
        "https://app.example/agents/my-agent/other/client-metadata.json",
        "https://app.example/agents/my-agent/gull/callback",
    ] {
        let other = Url::parse(other).unwrap();
        assert_eq!(
            world.mcp.client_metadata_document(&other).unwrap(),
            None,
            "{other}"
        );
    }
}

#[test]
fn or_02_and_or_03_what_a_registration_says_is_what_counts() {
    for (over, method) in [
        (
            json!({"client_secret": null, "token_endpoint_auth_method": "none"}),
            "none",
        ),
        (
            json!({"client_secret": "assigned-secret", "token_endpoint_auth_method": "client_secret_basic"}),
            "client_secret_basic",
        ),
        (
            json!({"client_secret": "assigned-secret", "token_endpoint_auth_method": "client_secret_post"}),
            "client_secret_post",
        ),
    ] {
        let mut world = AuthWorld::new();
        *world.server.registration.borrow_mut() = over;
        world.register();
        world.sign_in();
        let asked = world.server.last_asked();
        assert_eq!(
            asked.authorization.is_some(),
            method == "client_secret_basic"
        );
        assert_eq!(
            asked.form.contains_key("client_secret"),
            method == "client_secret_post"
        );
        let stored = world.value("/client_info/");
        assert_eq!(
            stored["issuer"], "https://as.example",
            "never what the answer says"
        );
    }
    for body in [
        json!({"client_id": "c1", "client_secret": null, "client_secret_expires_at": null,
            "grant_types": null, "token_endpoint_auth_method": "", "redirect_uris": null}),
        json!({"client_id": "c1"}),
    ] {
        let mut world = AuthWorld::new();
        let at = "https://as.example/register";
        world
            .network
            .serve(at, move |_| Reply::Json(200, body.clone()));
        let known = json!({
            "token_endpoint_auth_method": "none",
            "redirect_uris": [super::support::auth_world::CALLBACK],
        });
        world.server.clients.borrow_mut().insert("c1".into(), known);
        world.register();
        world.sign_in();
        assert!(world.call("echo").is_ok());
    }
}

#[test]
fn a_registration_that_is_refused_says_why() {
    let mut world = AuthWorld::new();
    let body = json!({"error": "invalid_redirect_uri", "error_description": "not <yours>"});
    let at = "https://as.example/register";
    world
        .network
        .serve(at, move |_| Reply::Json(400, body.clone()));
    world.register();
    let error = world.try_connect().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("not <yours> (invalid_redirect_uri)"),
        "{error}"
    );
    assert_eq!(world.state(), State::Failed);
    // Trouble is another matter.
    world.network.serve(at, |_| Reply::status(503));
    let error = world.try_connect().unwrap_err();
    assert!(error.is_transient(), "{error:?}");
}

#[test]
fn or_08_a_client_that_was_registered_anew_and_never_worked_is_not_used_again() {
    // There are tokens of the client before it, which say nothing of this one.
    let mut world = AuthWorld::ready();
    let elsewhere = "https://app.example/agents/my-agent/other/callback";
    world.register_as("pier", |server| server.callback_url(elsewhere));
    world.server.end_grants();
    let first = world.call_for_sign_in("echo");
    world.server.forget_clients();
    world.advance(Duration::from_millis(600_001));
    let second = world.connect();
    assert_ne!(query(&first)["client_id"], query(&second)["client_id"]);
    let back = world.server.consent(&second);
    world.come_back_well(&back);
    assert!(world.call("echo").is_ok());
}

#[test]
fn tools_that_need_more_may_be_called_at_once() {
    let mut world = reader();
    let mut urls = Vec::new();
    for tool in ["write", "admin"] {
        urls.push(world.call_for_sign_in(tool));
    }
    assert_eq!(
        scope(&urls[1]).as_deref(),
        Some("read write root"),
        "with what was asked for before"
    );
    // One URL for both.
    assert_eq!(world.call_for_sign_in("write"), urls[1]);
    let back = world.server.consent(&urls[1]);
    world.come_back_well(&back);
    for tool in ["write", "admin", "read"] {
        assert!(world.call(tool).is_ok(), "{tool}");
    }
}

#[test]
fn calls_under_way_are_not_lost_when_more_is_granted() {
    for said_again in [false, true] {
        let mut world = reader();
        let url = world.call_for_sign_in("write");
        if said_again {
            // Who gets permission is made anew then.
            world.register();
        }
        let (open, gate) = oneshot::channel();
        let answer = json!({"jsonrpc": "2.0", "id": world.next_id(), "result":
            {"resultType": "complete", "content": []}});
        let later = Reply::Later(gate, Box::new(Reply::Json(200, answer)));
        world.pier.instead.borrow_mut().push_back(later);
        let mcp = world.mcp.clone();
        let call = world.start(async move { mcp.call_tool("pier", "echo", json!({})).await });
        assert!(call.outcome().is_none());
        let back = world.server.consent(&url);
        world.come_back_well(&back);
        assert_eq!(world.state(), State::Ready);
        assert_eq!(world.row().auth_url, None);
        let _ = open.send(());
        world.settle();
        let outcome = call.outcome().expect("an outcome");
        if !said_again {
            assert!(outcome.is_ok(), "{outcome:?}");
        }
        assert!(world.call("write").is_ok());
        world.wake_up();
        assert!(world.call("write").is_ok());
    }
}

#[test]
fn what_has_worked_once_is_counted_anew() {
    let mut world = reader();
    // The first of two sign-ins does not help, the second does.
    for grants in [Some("read".to_owned()), None] {
        world.server.grants.replace(grants);
        let url = world.call_for_sign_in("write");
        let back = world.server.consent(&url);
        world.come_back_well(&back);
    }
    assert!(world.call("write").is_ok());
    world.pier.needs.borrow_mut().insert("write", "write2");
    let url = world.call_for_sign_in("write");
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert!(world.call("write").is_ok());
}
