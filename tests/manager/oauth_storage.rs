//! What is stored of sign-ins: under which keys, in which form, for how long, and encrypted.

use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use workers_agents::oauth::StoredOAuthProvider;
use workers_agents::ports::{KeyValueStore, StoreError};
use workers_agents::vault::{KeyRing, is_sealed};
use workers_agents::{ConnectionState as State, Error};

use super::support::auth_world::{AuthWorld, CALLBACK, HOUR, ISSUER, METADATA, query};
use super::support::{MemoryKeys, URL};

const CLIENT: &str = "/gull/pier/client-1-as.example/client_info/";
const TOKEN: &str = "/gull/pier/client-1-as.example/token";
const VERIFIER: &str = "/gull/pier/client-1-as.example/code_verifier/*";
const DISCOVERY: &str = "/gull/pier/oauth_discovery";
const STATE: &str = "/gull/pier/state/*";
const USED: &str = "/gull/pier/used/*";

fn value_of(world: &AuthWorld, part: &str) -> Value {
    let values = world.keys.values.borrow();
    let (_, value) = values
        .iter()
        .find(|(key, _)| key.contains(part))
        .expect(part);
    serde_json::from_str(value).unwrap()
}

#[test]
fn each_step_stores_what_the_typescript_package_stores() {
    let mut world = AuthWorld::new();
    *world.pier.challenge_scope.borrow_mut() = Some("read".into());
    world.register();
    assert_eq!(world.stored_keys(), [""; 0]);
    assert_eq!(world.row().callback_url, CALLBACK);
    assert_eq!((world.row().client_id, world.row().auth_url), (None, None));

    let url = world.connect();
    let nonce = query(&url)["state"].split_once('.').unwrap().0.to_owned();
    assert_eq!(world.stored_keys(), [CLIENT, VERIFIER, DISCOVERY, STATE]);
    assert_eq!(
        world.row().client_id.as_deref(),
        Some("client-1-as.example")
    );
    assert_eq!(world.row().auth_url.as_deref(), Some(url.as_str()));
    let client = world.value("/client_info/");
    for (name, value) in [
        ("client_id", json!("client-1-as.example")),
        ("issuer", json!(ISSUER)),
        ("redirect_uris", json!([CALLBACK])),
        ("client_name", json!("gull")),
    ] {
        assert_eq!(client[name], value, "{name}");
    }
    let state = value_of(&world, "/state/");
    assert_eq!(state["nonce"], nonce);
    assert_eq!(state["serverId"], "pier");
    assert_eq!(state["createdAt"], 1_000_000_000);
    let verifier = value_of(&world, "/code_verifier/");
    assert_eq!(verifier["verifier"].as_str().unwrap().len(), 43);
    assert_eq!(verifier["createdAt"], 1_000_000_000);
    assert_eq!(verifier.as_object().unwrap().len(), 2);
    let discovery = world.value("/oauth_discovery");
    assert_eq!(discovery["authorizationServerUrl"], ISSUER);
    assert_eq!(discovery["resourceMetadataUrl"], METADATA);
    assert_eq!(discovery["resourceMetadata"]["resource"], URL);
    assert_eq!(discovery["authorizationServerMetadata"]["issuer"], ISSUER);
    let keys = world.keys.values.borrow();
    for key in [
        "/gull/pier/state/",
        "/gull/pier/client-1-as.example/code_verifier/",
    ] {
        assert!(keys.contains_key(&format!("{key}{nonce}")));
    }
    drop(keys);

    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert_eq!(world.stored_keys(), [CLIENT, TOKEN, USED]);
    assert_eq!(world.row().auth_url, None);
    assert_eq!(
        world.row().client_id.as_deref(),
        Some("client-1-as.example")
    );
    assert_eq!(
        value_of(&world, "/used/"),
        json!({"usedAt": 1_000_000_000, "succeeded": true})
    );
    let token = world.token();
    for (name, value) in [
        ("access_token", json!(world.pier.last_token())),
        ("token_type", json!("Bearer")),
        ("expires_in", json!(3600)),
        ("scope", json!("read")),
        ("issuer", json!(ISSUER)),
    ] {
        assert_eq!(token[name], value, "{name}");
    }
    assert!(token["refresh_token"].is_string());
    let ours = &token["workersAgents"];
    assert_eq!(ours["serverUrl"], URL);
    assert_eq!(ours["expiresAt"], 1_003_600_000);
    assert_eq!(ours["tokenEndpoint"], "https://as.example/token");

    world.advance(HOUR);
    assert!(world.call("echo").is_ok());
    assert_eq!(world.stored_keys(), [CLIENT, TOKEN, USED]);
    assert_eq!(world.token()["workersAgents"]["signedInAt"], 1_000_000_000);
    let mcp = world.mcp.clone();
    world.run(mcp.sign_out("pier")).unwrap();
    assert_eq!(world.stored_keys(), [""; 0]);
}

#[test]
fn the_namespace_is_the_host_s() {
    let mut world = AuthWorld::with(|options| options.oauth_namespace("my-object"));
    world.register();
    world.sign_in();
    assert!(
        world
            .stored_keys()
            .iter()
            .all(|key| key.starts_with("/my-object/pier/"))
    );
    let registered = world.server.registrations.borrow()[0].clone();
    assert_eq!(
        registered["client_name"], "gull",
        "which nobody else learns"
    );
}

#[test]
fn a_removal_deletes_what_is_the_server_s_and_nothing_else() {
    let mut world = AuthWorld::ready();
    let others = [
        "/gull/pier-2/c/token",
        "/gull/pie/c/token",
        "/gull/pier",
        "/gull/pie",
        "/other/pier/c/token",
        "gull/pier/c/token",
    ];
    for key in others {
        world
            .keys
            .values
            .borrow_mut()
            .insert(key.into(), "{}".into());
    }
    // Left by other clients, and by attempts.
    for key in [
        "/gull/pier/old/token",
        "/gull/pier/old/client_info/",
        "/gull/pier/state/x",
    ] {
        world
            .keys
            .values
            .borrow_mut()
            .insert(key.into(), "{}".into());
    }
    let mcp = world.mcp.clone();
    assert!(world.run(mcp.remove_server("pier")).unwrap());
    let mut expected = others.map(str::to_owned);
    expected.sort();
    let left: Vec<String> = world.keys.values.borrow().keys().cloned().collect();
    assert_eq!(left, expected);
}

#[test]
fn attempts_that_are_over_are_swept() {
    let mut world = AuthWorld::new();
    world.register();
    for _ in 0..5 {
        world.connect();
        world.advance(Duration::from_mins(2));
    }
    let count = |world: &AuthWorld, part: &str| {
        world
            .stored_keys()
            .iter()
            .filter(|key| key.contains(part))
            .count()
    };
    assert_eq!(
        (count(&world, "/state/"), count(&world, "/code_verifier/")),
        (5, 5)
    );
    // What others have left behind.
    let mut values = world.keys.values.borrow_mut();
    for (key, value) in [
        ("/gull/pier/state/unreadable", "7".to_owned()),
        (
            "/gull/pier/c9/code_verifier_challenge/abc",
            json!({"verifier": "v", "createdAt": 1}).to_string(),
        ),
        (
            "/gull/other/state/x",
            json!({"nonce": "x", "serverId": "other", "createdAt": 1}).to_string(),
        ),
    ] {
        values.insert(key.into(), value);
    }
    drop(values);
    world.advance(Duration::from_millis(600_001));
    let url = world.connect();
    assert_eq!(count(&world, "/gull/pier/state/"), 1);
    assert_eq!(count(&world, "/code_verifier"), 1);
    assert_eq!(count(&world, "/gull/other/"), 1, "another server's");
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    // A used one is known for a day.
    world.server.end_grants();
    world.advance(Duration::from_hours(24));
    world.call_for_sign_in("echo");
    assert_eq!(count(&world, "/used/"), 1);
    world.advance(Duration::from_millis(1));
    world.connect();
    assert_eq!(count(&world, "/used/"), 0);
}

// ---- what the TypeScript package has written

fn without_ours(value: &mut Value) {
    value.as_object_mut().unwrap().remove("workersAgents");
}

#[test]
fn tokens_of_the_typescript_package_are_used_and_refreshed() {
    let mut world = AuthWorld::ready();
    world.set_value("/token", without_ours);
    world.set_value("/client_info/", without_ours);
    world
        .keys
        .values
        .borrow_mut()
        .retain(|key, _| !key.contains("/used/"));
    world.table.rows.borrow_mut()[0].server_options = None;
    world.network.forget();
    world.wake_up();
    assert_eq!(world.state(), State::Ready);
    let seen = world.network.seen.borrow().clone();
    assert!(
        seen.iter().all(|seen| seen.url == URL),
        "nobody else is asked"
    );
    // Their end is unknown, so the server says it.
    world.advance(HOUR);
    assert!(world.call("echo").is_ok());
    assert_eq!(world.server.refreshes(), 1);
    assert_eq!(world.server.last_asked().form["resource"], URL);
    assert_eq!(world.server.exchanges(), 1);
    assert_eq!(
        world.token()["workersAgents"]["tokenEndpoint"],
        "https://as.example/token"
    );
}

#[test]
fn tokens_of_the_typescript_package_go_back_to_who_issued_them() {
    let mut world = AuthWorld::ready();
    world.set_value("/token", without_ours);
    // An old client does not say to whom it belongs; the tokens do.
    world.set_value("/client_info/", |client| {
        without_ours(client);
        client.as_object_mut().unwrap().remove("issuer");
    });
    let second = world.another_server("https://as2.example");
    world.pier.servers.replace(vec![second.clone()]);
    world.wake_up();
    assert_eq!(world.state(), State::Authenticating);
    assert!(
        second.asked.borrow().is_empty(),
        "the refresh token stays away from the new one"
    );
    assert!(world.offered().as_str().starts_with("https://as2.example/"));
}

#[test]
fn a_sign_in_that_the_typescript_package_has_begun_can_be_ended() {
    let mut world = AuthWorld::new();
    world.server.names_itself.set(true);
    world.register();
    let url = world.connect();
    let nonce = query(&url)["state"].split_once('.').unwrap().0.to_owned();
    world.set_value(&format!("/state/{nonce}"), without_ours);
    world.set_value("/client_info/", without_ours);
    world.table.rows.borrow_mut()[0].server_options = None;
    world.wake_up();
    assert_eq!(world.state(), State::Authenticating);
    assert_eq!(world.offered(), url, "its end is unknown, so it is offered");
    let back = world.server.consent(&url);
    let stripped = url::Url::parse(back.as_str().split("&iss=").next().unwrap()).unwrap();
    world.come_back_badly(&stripped);
    world.come_back_well(&back);
    assert_eq!(world.state(), State::Ready);
    assert_eq!(world.server.registrations.borrow().len(), 1);
    assert_eq!(world.server.last_asked().form["resource"], URL);
}

#[test]
fn a_row_that_was_left_parked_with_good_tokens_comes_back() {
    let mut world = AuthWorld::ready();
    world.set_value("/token", without_ours);
    world.table.rows.borrow_mut()[0].auth_url =
        Some("https://as.example/authorize?state=a.pier".into());
    world.wake_up();
    assert_eq!(world.state(), State::Ready);
    assert_eq!(world.row().auth_url, None);
    assert_eq!(world.server.exchanges(), 1);
}

#[test]
fn who_consents_to_more_over_a_wake_gets_it_whoever_stored_the_tokens() {
    let mut world = AuthWorld::new();
    *world.pier.challenge_scope.borrow_mut() = Some("read".into());
    world.pier.needs.borrow_mut().insert("write", "write");
    world.register();
    world.sign_in();
    world.set_value("/token", without_ours);
    world.wake_up();
    let url = world.call_for_sign_in("write");
    world.wake_up();
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert_eq!(world.server.exchanges(), 2);
    assert!(world.call("write").is_ok());
}

// ---- encryption

const ONE: &str = "0101010101010101010101010101010101010101010101010101010101010101";
const TWO: &str = "0202020202020202020202020202020202020202020202020202020202020202";

fn ring(text: &str) -> KeyRing {
    KeyRing::parse(text).unwrap()
}

/// A world whose client has a secret, and whose server a header.
fn secretive(keys: Option<KeyRing>) -> AuthWorld {
    let mut world = AuthWorld::with(|mut options| {
        options.encryption = keys;
        options
    });
    *world.server.registration.borrow_mut() = json!({
        "client_secret": "registered-secret",
        "token_endpoint_auth_method": "client_secret_basic",
    });
    world.watch.secret("header-secret");
    world.register_as("pier", |server| server.header("x-api-key", "header-secret"));
    world
}

fn wake_with(world: &mut AuthWorld, keys: Option<KeyRing>) {
    world.options.encryption = keys;
    world.wake_up();
}

fn sealed(world: &AuthWorld, end: &str) -> Option<String> {
    let value = world.value(end).to_string();
    is_sealed(&value).then(|| world.value(end)["kid"].as_str().unwrap().to_owned())
}

#[test]
fn no_secret_is_stored_in_the_clear() {
    let mut world = secretive(Some(ring(ONE)));
    let mut snapshots = vec![world.everything_stored()];
    let url = world.connect();
    let nonce = query(&url)["state"].split_once('.').unwrap().0.to_owned();
    snapshots.push(world.everything_stored());
    world.wake_up();
    snapshots.push(world.everything_stored());
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    snapshots.push(world.everything_stored());
    world.advance(HOUR);
    assert!(world.call("echo").is_ok());
    snapshots.push(world.everything_stored());
    world.wake_up();
    assert!(world.call("echo").is_ok());
    assert_eq!(
        world.sent("tools/call").last().unwrap().header("x-api-key"),
        Some("header-secret")
    );
    snapshots.push(world.everything_stored());
    let verifier = world.server.asked.borrow()[0].form["code_verifier"].clone();
    for (step, stored) in snapshots.iter().enumerate() {
        let mut found = world.watch.found_in(stored);
        // The nonce is part of a key, and of a URL that is for the user.
        found.retain(|secret| *secret != nonce);
        assert_eq!(found, [""; 0], "step {step}");
        assert!(!stored.contains(&verifier));
    }
    // The same without a key shows that the test can see.
    let mut world = secretive(None);
    world.sign_in();
    assert!(world.watch.found_in(&world.everything_stored()).len() >= 4);
}

#[test]
fn what_was_stored_in_the_clear_is_encrypted_when_it_is_written() {
    let mut world = secretive(None);
    world.sign_in();
    wake_with(&mut world, Some(ring(ONE)));
    assert_eq!(world.state(), State::Ready);
    assert_eq!(world.server.exchanges(), 1);
    assert!(
        !world
            .row()
            .server_options
            .unwrap()
            .contains("header-secret"),
        "headers at once"
    );
    assert_eq!(sealed(&world, "/token"), None);
    world.advance(HOUR);
    assert!(world.call("echo").is_ok());
    assert!(sealed(&world, "/token").is_some());
    world.server.end_grants();
    world.call_for_sign_in("echo");
    assert!(sealed(&world, "/client_info/").is_some());
}

#[test]
fn keys_can_be_changed() {
    let mut world = secretive(Some(ring(ONE)));
    world.sign_in();
    let first = sealed(&world, "/token").unwrap();
    wake_with(&mut world, Some(ring(&format!("{TWO},{ONE}"))));
    assert_eq!(world.state(), State::Ready);
    world.advance(HOUR);
    assert!(world.call("echo").is_ok());
    assert_ne!(sealed(&world, "/token").unwrap(), first);
    world.wake_up();
    assert!(world.call("echo").is_ok());
    assert_eq!(world.server.exchanges(), 1);
}

#[test]
fn without_the_key_nothing_works_and_nothing_is_lost() {
    for keys in [None, Some(ring(TWO))] {
        let mut world = secretive(Some(ring(ONE)));
        world.sign_in();
        let stored = world.everything_stored();
        let requests = world.server.asked.borrow().len();
        for _ in 0..2 {
            wake_with(&mut world, keys.clone());
            assert_eq!(world.state(), State::Failed);
            let error = world.mcp.connection("pier").unwrap().error.unwrap();
            assert!(
                error.to_string().contains("AGENT_ENCRYPTION_KEY"),
                "{error}"
            );
            assert!(!error.is_transient());
            assert!(world.try_connect().is_err());
            assert!(world.call("echo").is_err());
            let mcp = world.mcp.clone();
            let outcome = world.run(mcp.authorization("pier"));
            assert!(
                matches!(outcome, Err(Error::Authorization(_))),
                "{outcome:?}"
            );
        }
        assert_eq!(world.everything_stored(), stored);
        assert_eq!(world.server.asked.borrow().len(), requests);
        assert_eq!(world.server.registrations.borrow().len(), 1);
        wake_with(&mut world, Some(ring(ONE)));
        assert_eq!(world.state(), State::Ready, "the key is back");
        assert!(world.call("echo").is_ok());
    }
}

#[test]
fn without_the_key_a_sign_in_under_way_is_not_lost() {
    let mut world = secretive(Some(ring(ONE)));
    let url = world.connect();
    let back = world.server.consent(&url);
    wake_with(&mut world, None);
    let stored = world.everything_stored();
    world.come_back_badly(&back);
    assert_eq!(world.everything_stored(), stored);
    wake_with(&mut world, Some(ring(ONE)));
    assert_eq!(world.state(), State::Authenticating);
    world.come_back_well(&back);
    assert_eq!(world.state(), State::Ready);
}

#[test]
fn without_headers_the_missing_key_is_named_too() {
    let mut world = AuthWorld::with(|options| options.encryption(ring(ONE)));
    world.register();
    world.sign_in();
    let stored = world.everything_stored();
    wake_with(&mut world, None);
    assert_eq!(world.state(), State::Failed);
    let error = world.mcp.connection("pier").unwrap().error.unwrap();
    assert!(
        error.to_string().contains("AGENT_ENCRYPTION_KEY"),
        "{error}"
    );
    assert_eq!(world.everything_stored(), stored);
    wake_with(&mut world, Some(ring(ONE)));
    assert_eq!(world.state(), State::Ready);
}

#[test]
fn a_server_can_be_removed_without_the_key() {
    let mut world = secretive(Some(ring(ONE)));
    world.sign_in();
    wake_with(&mut world, None);
    let mcp = world.mcp.clone();
    let _ = world.run(mcp.remove_server("pier"));
    assert!(world.table.rows.borrow().is_empty());
    assert_eq!(world.stored_keys(), [""; 0]);
}

#[test]
fn a_value_that_was_moved_is_not_taken_for_this_server_s() {
    let mut world = AuthWorld::with(|options| options.encryption(ring(ONE)));
    world.register();
    world.sign_in();
    let stolen = world.token().to_string();
    world.register_as("other", |server| server);
    world.table.rows.borrow_mut()[1].client_id = Some("client-1-as.example".into());
    let key = "/gull/other/client-1-as.example/token".to_owned();
    world.keys.values.borrow_mut().insert(key, stolen);
    world.pier.take_tokens();
    world.evict();
    let mcp = world.mcp.clone();
    let error = world.run(mcp.connect_to_server("other")).unwrap_err();
    assert!(error.to_string().contains("cannot be decrypted"), "{error}");
}

// ---- storage in trouble

/// Refuses to write keys that end so.
struct Refusing(Rc<MemoryKeys>, &'static str);

#[async_trait(?Send)]
impl KeyValueStore for Refusing {
    async fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.0.get(key).await
    }
    async fn put(&self, key: &str, json: &str) -> Result<(), StoreError> {
        if key.ends_with(self.1) {
            return Err(StoreError("the disk is full".into()));
        }
        self.0.put(key, json).await
    }
    async fn delete(&self, keys: &[String]) -> Result<(), StoreError> {
        self.0.delete(keys).await
    }
    async fn keys(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.0.keys(prefix).await
    }
}

#[test]
fn what_cannot_be_stored_is_an_error_and_no_half_sign_in() {
    for end in ["/client_info/", "/token"] {
        let store = Rc::new(MemoryKeys::default());
        let kept = store.clone();
        let mut world = AuthWorld::with(|options| {
            options.create_auth_provider(move |cx| {
                let store = Rc::new(Refusing(kept.clone(), end));
                Ok(Rc::new(StoredOAuthProvider::new(cx).with_store(store)))
            })
        });
        world.register();
        if end == "/client_info/" {
            let error = world.try_connect().unwrap_err();
            assert!(error.to_string().contains("the disk is full"), "{error}");
        } else {
            let url = world.connect();
            let back = world.server.consent(&url);
            let page = world.come_back_badly(&back);
            assert!(page.contains("the disk is full"), "{page}");
            assert!(
                !store
                    .values
                    .borrow()
                    .keys()
                    .any(|key| key.ends_with("/token"))
            );
        }
        assert_eq!(world.state(), State::Failed);
    }
}

#[test]
fn records_that_cannot_be_read_are_as_good_as_lost() {
    for end in ["/token", "/client_info/"] {
        let mut world = AuthWorld::ready();
        world.set_value(end, |value| *value = json!([1, 2]));
        world.wake_up();
        if end == "/client_info/" {
            // The token is good while it lasts.
            assert_eq!(world.state(), State::Ready);
            world.server.end_access();
            world.call_for_sign_in("echo");
        }
        assert_eq!(world.state(), State::Authenticating);
        let url = world.offered();
        let back = world.server.consent(&url);
        world.come_back_well(&back);
        assert!(world.call("echo").is_ok());
    }
}

#[test]
fn a_sign_in_goes_with_a_renamed_server_and_one_that_is_under_way_can_be_completed() {
    for keys in [None, Some(ring(ONE))] {
        rename_signed_in(secretive(keys.clone()));
        rename_away(secretive(keys));
    }
}

/// The tokens are those of the new id.
fn rename_signed_in(mut this: AuthWorld) {
    this.register_as("pier", |server| server.header("x-key", "s3cret-header"));
    this.sign_in();
    let mcp = this.mcp.clone();
    this.world.run(mcp.rename_server("pier", "jetty")).unwrap();
    this.world.settle();
    let token = this.pier.last_token();
    this.world
        .run(mcp.call_tool("jetty", "plain", json!({})))
        .unwrap();
    assert_eq!(this.pier.last_token(), token);
    let keys: Vec<String> = this.keys.values.borrow().keys().cloned().collect();
    assert!(!keys.is_empty());
    assert!(keys.iter().all(|key| key.contains("/jetty/")), "{keys:?}");
    this.evict();
    let mcp = this.mcp.clone();
    this.world
        .run(mcp.call_tool("jetty", "plain", json!({})))
        .unwrap();
    let seen = this.network.seen.borrow();
    assert_eq!(seen.last().unwrap().header("x-key"), Some("s3cret-header"));
}

/// Away to sign in: the state names the old id.
fn rename_away(mut this: AuthWorld) {
    this.register();
    let url = this.connect();
    let mcp = this.mcp.clone();
    this.world.run(mcp.rename_server("pier", "jetty")).unwrap();
    let offered = this.world.run(mcp.auth_url("jetty")).unwrap();
    assert_eq!(offered.unwrap().as_str(), url.as_str());
    this.evict();
    let back = this.server.consent(&url);
    let mcp = this.mcp.clone();
    assert!(mcp.is_callback_request(&back));
    this.come_back_well(&back);
    let state = mcp.connection("jetty").unwrap().state;
    assert_eq!(state, State::Ready);
    // Used up, under either name.
    this.come_back_well(&back);
    assert!(mcp.server("pier").unwrap().is_none());
}

#[test]
fn what_one_user_was_offered_is_not_shown_to_the_next() {
    for how in ["signed out", "another client"] {
        let mut this = AuthWorld::ready();
        assert_eq!(this.catalogs.rows.borrow().len(), 1);
        let mcp = this.mcp.clone();
        if how == "signed out" {
            this.world.run(mcp.sign_out("pier")).unwrap();
        } else {
            let client = workers_agents::ClientInformation::public("other");
            this.register_as("pier", |server| server.client(client));
        }
        assert_eq!(this.catalogs.rows.borrow().len(), 0, "{how}");
        let row = this.row().server_options.unwrap();
        let said = ["discoverResult", "initializeResult"];
        assert!(how != "signed out" || !said.iter().any(|part| row.contains(part)));
        this.evict();
        assert!(
            this.mcp
                .list_tools(&workers_agents::ServerFilter::all())
                .is_empty(),
            "{how}"
        );
    }
}
