//! What happens to a sign-in while another thing happens to its server, and how bad things end.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use futures::channel::oneshot::{self, Sender};
use http::Response;
use serde_json::{Value, json};
use url::Url;
use workers_agents::oauth::{ClientInformation, OAuthError, ProviderContext, StoredOAuthProvider};
use workers_agents::ports::{KeyValueStore, StoreError};
use workers_agents::vault::KeyRing;
use workers_agents::{Connected, ConnectionState as State, Error, RegisterServer};

use super::support::auth_world::{AuthWorld, CALLBACK, HOUR, METADATA, error_reply, query};
use super::support::{Reply, Started, URL};

const OTHER: &str = "https://other.example/mcp";

/// Holds the next answer of the token endpoint.
fn hold_tokens(world: &AuthWorld) -> Sender<()> {
    let (open, gate) = oneshot::channel();
    world.server.gate.replace(Some(gate));
    open
}

fn start_call(world: &mut AuthWorld, tool: &'static str) -> Started<Result<(), Error>> {
    let mcp = world.mcp.clone();
    world.start(async move { mcp.call_tool("pier", tool, json!({})).await.map(drop) })
}

fn start_callback(world: &mut AuthWorld, back: &Url) -> Started<Response<String>> {
    let (mcp, back) = (world.mcp.clone(), back.clone());
    world.start(async move { mcp.handle_callback(&back).await })
}

fn start_connect(world: &mut AuthWorld) -> Started<Result<Connected, Error>> {
    let mcp = world.mcp.clone();
    world.start(async move { mcp.connect_to_server("pier").await })
}

fn given(secret: &str) -> ClientInformation {
    let mut client = ClientInformation::public("given");
    client.client_secret = Some(secret.to_owned());
    client
}

fn know_given(world: &AuthWorld, secret: &str) {
    world.watch.secret(secret);
    let record = json!({
        "client_secret": secret,
        "token_endpoint_auth_method": "client_secret_basic",
        "redirect_uris": [CALLBACK],
    });
    world
        .server
        .clients
        .borrow_mut()
        .insert("given".into(), record);
}

/// Ready, with scope `read`, and a tool `write` that needs `write`.
fn reader() -> AuthWorld {
    reader_of(AuthWorld::new())
}

fn reader_of(mut world: AuthWorld) -> AuthWorld {
    *world.pier.challenge_scope.borrow_mut() = Some("read".into());
    let needs = [("write", "write"), ("read", "read"), ("admin", "root")];
    world.pier.needs.borrow_mut().extend(needs);
    world.register();
    world.sign_in();
    world
}

fn discoveries(world: &AuthWorld) -> usize {
    let seen = world.network.seen.borrow();
    seen.iter().filter(|seen| seen.url == METADATA).count()
}

fn stored_family(world: &AuthWorld) -> u32 {
    let token = world.token();
    world.server.family(token["access_token"].as_str().unwrap())
}

// ---- 1

#[test]
fn a_refresh_under_way_is_the_only_one_whatever_becomes_of_the_connection() {
    for how in ["closed", "other headers", "both"] {
        let mut world = AuthWorld::ready();
        world.advance(HOUR);
        let open = hold_tokens(&world);
        let call = start_call(&mut world, "echo");
        assert_eq!(world.server.refreshes(), 1);
        let mcp = world.mcp.clone();
        if how != "other headers" {
            world.run(mcp.close_connection("pier")).unwrap();
        }
        if how != "closed" {
            world.register_as("pier", |server| server.header("x-tenant", "two"));
        }
        let connecting = start_connect(&mut world);
        assert!(connecting.outcome().is_none(), "{how}");
        open.send(()).unwrap();
        world.settle();
        let outcome = connecting.outcome().unwrap();
        assert!(
            matches!(outcome, Ok(Connected::Connected)),
            "{how}: {outcome:?}"
        );
        drop(call);
        assert!(world.call("echo").is_ok(), "{how}");
        assert_eq!(world.token()["access_token"], *world.pier.last_token());
        world.wake_up();
        assert_eq!(world.state(), State::Ready, "{how}");
        assert!(world.call("echo").is_ok());
        assert_eq!((world.server.refreshes(), world.server.exchanges()), (1, 1));
    }
}

// ---- 2

#[test]
fn an_exchange_that_comes_too_late_leaves_nothing_and_is_taken_back() {
    for how in ["removed", "signed out", "other url", "given client"] {
        for revokes in [true, false] {
            let mut world = AuthWorld::new();
            if !revokes {
                *world.server.metadata.borrow_mut() = json!({"revocation_endpoint": null});
            }
            know_given(&world, "given-secret");
            world.register();
            let url = world.connect();
            let back = world.server.consent(&url);
            let open = hold_tokens(&world);
            let answer = start_callback(&mut world, &back);
            assert_eq!(world.server.exchanges(), 1);
            let mcp = world.mcp.clone();
            match how {
                "removed" => assert!(world.run(mcp.remove_server("pier")).unwrap()),
                "signed out" => world.run(mcp.sign_out("pier")).unwrap(),
                "other url" => {
                    let server = RegisterServer::new("Other", OTHER).callback_url(CALLBACK);
                    world.run(mcp.register_server("pier", server)).unwrap();
                }
                _ => world.register_as("pier", |server| server.client(given("given-secret"))),
            }
            open.send(()).unwrap();
            world.settle();
            assert_eq!(answer.outcome().unwrap().status(), 400, "{how}");
            world.settle();
            assert_eq!(world.server.exchanges(), 1, "{how}");
            let revoked = world.server.revoked.borrow().len();
            assert_eq!(revoked, usize::from(revokes), "{how}");
            let left = world.stored_keys();
            assert!(
                !left.iter().any(|key| key.ends_with("/token")),
                "{how}: {left:?}"
            );
            if how == "given client" {
                assert_eq!(world.row().client_id.as_deref(), Some("given"));
                assert_eq!(world.row().auth_url, None);
                assert_eq!(
                    world.value("given/client_info/")["client_secret"],
                    "given-secret"
                );
                let url = world.connect();
                assert_eq!(query(&url)["client_id"], "given");
                let back = world.server.consent(&url);
                world.come_back_well(&back);
                assert!(world.call("echo").is_ok());
                continue;
            }
            assert_eq!(left, [""; 0], "{how}");
            if how != "removed" {
                assert_eq!((world.row().client_id, world.row().auth_url), (None, None));
            }
            if how == "other url" {
                assert_eq!(world.row().server_url, OTHER);
                let options = world.row().server_options.unwrap();
                assert!(!options.contains("authorization"), "{options}");
            }
        }
    }
}

#[test]
fn the_end_of_an_old_exchange_does_not_end_the_new_sign_in() {
    let mut world = AuthWorld::new();
    let pier = world.pier.clone();
    pier.serve(&world.network, OTHER);
    world.register();
    let url = world.connect();
    let back = world.server.consent(&url);
    let open = hold_tokens(&world);
    let answer = start_callback(&mut world, &back);
    let mcp = world.mcp.clone();
    let server = RegisterServer::new("Other", OTHER).callback_url(CALLBACK);
    world.run(mcp.register_server("pier", server)).unwrap();
    let url = world.connect();
    open.send(()).unwrap();
    world.settle();
    assert_eq!(answer.outcome().unwrap().status(), 400);
    assert_eq!(world.offered(), url);
    assert_eq!(world.state(), State::Authenticating);
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert!(world.call("echo").is_ok());
}

#[test]
fn who_comes_back_is_signed_in_though_the_connection_was_closed_meanwhile() {
    let mut world = AuthWorld::new();
    world.register();
    let url = world.connect();
    let back = world.server.consent(&url);
    let open = hold_tokens(&world);
    let answer = start_callback(&mut world, &back);
    let mcp = world.mcp.clone();
    world.run(mcp.close_connection("pier")).unwrap();
    world.network.forget();
    open.send(()).unwrap();
    world.settle();
    assert_eq!(answer.outcome().unwrap().status(), 302);
    assert!(world.network.seen.borrow().is_empty(), "nobody connects");
    assert!(world.mcp.connection("pier").is_none(), "closed is closed");
    assert!(matches!(world.try_connect(), Ok(Connected::Connected)));
    assert!(world.call("echo").is_ok());
    assert_eq!(world.server.exchanges(), 1);
}

// ---- 3

#[test]
fn an_old_answer_does_not_throw_a_given_client_away() {
    for answer in ["invalid_client", "invalid_grant"] {
        for under_way in [false, true] {
            let mut world = AuthWorld::new();
            know_given(&world, "given-secret");
            world.register();
            let url = world.connect();
            let back = world.server.consent(&url);
            let reply = error_reply(400, answer);
            world.server.instead.borrow_mut().push_back(reply);
            let open = hold_tokens(&world);
            let early = under_way.then(|| start_callback(&mut world, &back));
            world.register_as("pier", |server| server.client(given("given-secret")));
            let response = early.unwrap_or_else(|| start_callback(&mut world, &back));
            open.send(()).ok();
            world.settle();
            assert_eq!(response.outcome().unwrap().status(), 400);
            world.server.instead.borrow_mut().clear();
            world.server.gate.take();
            assert_eq!(world.row().client_id.as_deref(), Some("given"));
            let stored = world.value("given/client_info/");
            assert_eq!(stored["client_secret"], "given-secret");
            let url = world.connect();
            assert_eq!(query(&url)["client_id"], "given");
            let back = world.server.consent(&url);
            world.come_back_well(&back);
            assert!(world.call("echo").is_ok());
        }
    }
}

// ---- 4

type Answer = fn(&str) -> Reply;

#[test]
fn an_odd_answer_to_a_refresh_leads_to_a_sign_in_and_not_to_more_refreshes() {
    let html = "<html><body>sign in here</body></html>";
    let replies: [(&str, Answer); 5] = [
        ("404", |_| Reply::status(404)),
        ("401", |_| Reply::typed(401, "text/plain", "no")),
        ("200", |html| Reply::typed(200, "text/html", html)),
        ("302", |_| {
            Reply::status(302).with("location", "https://evil.example/token")
        }),
        ("403", |_| {
            Reply::typed(403, "application/json", r#"{"message":"no"}"#)
        }),
    ];
    for (name, reply) in replies {
        for is_over in [true, false] {
            let mut world = AuthWorld::ready();
            let stolen = Rc::new(RefCell::new(0));
            let count = stolen.clone();
            world.network.serve("https://evil.example/token", move |_| {
                *count.borrow_mut() += 1;
                Reply::status(500)
            });
            let inner = world.network.peer("https://as.example/token");
            let asked = Rc::new(RefCell::new(0));
            let count = asked.clone();
            world
                .network
                .serve("https://as.example/token", move |seen| {
                    if seen.text.contains("refresh_token") {
                        *count.borrow_mut() += 1;
                        return reply(html);
                    }
                    inner(seen)
                });
            if is_over {
                world.advance(HOUR);
            } else {
                world.server.end_access();
            }
            let url = world.call_for_sign_in_slowly("echo");
            for _ in 0..5 {
                assert_eq!(world.call_for_sign_in_slowly("echo"), url, "{name}");
                world.advance(Duration::from_secs(1));
            }
            assert_eq!(*asked.borrow(), 1, "{name}");
            // It may have been a bad moment: now and then it is asked again.
            world.advance(Duration::from_secs(30));
            assert_eq!(world.call_for_sign_in_slowly("echo"), url, "{name}");
            assert_eq!(*asked.borrow(), 2, "{name}");
            assert_eq!(*stolen.borrow(), 0, "{name}");
            let back = world.server.consent(&url);
            world.come_back_well(&back);
            assert!(world.call("echo").is_ok(), "{name}");
        }
    }
}

#[test]
fn a_token_endpoint_that_is_gone_costs_nothing_for_ten_minutes_and_is_no_dead_end() {
    let mut world = AuthWorld::ready();
    let inner = world.network.peer("https://as.example/token");
    world
        .network
        .serve("https://as.example/token", |_| Reply::Refused);
    world.advance(HOUR);
    let stored = world.token();
    for _ in 0..5 {
        let error = world.call_slowly("echo").unwrap_err();
        assert!(error.is_transient(), "{error:?}");
        assert_eq!(world.token(), stored, "tokens are kept");
        world.advance(Duration::from_secs(100));
    }
    world.advance(Duration::from_secs(200));
    let url = world.call_for_sign_in_slowly("echo");
    assert_eq!(world.token(), stored, "until the user has come back");
    world
        .network
        .serve("https://as.example/token", move |seen| inner(seen));
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert!(world.call("echo").is_ok());
    assert_eq!(world.server.exchanges(), 2);
}

// ---- 5

#[test]
fn where_the_metadata_is_may_be_said_in_the_challenge_only() {
    let mut world = AuthWorld::new();
    know_given(&world, "secret-of-its-own");
    let document = world.network.peer(METADATA);
    let hidden = "https://pier.example/hidden/metadata";
    world.network.serve(hidden, move |seen| document(seen));
    world.network.serve(METADATA, |_| Reply::status(404));
    let inner = world.network.peer(URL);
    world.network.serve(URL, move |seen| {
        let reply = inner(seen);
        match &reply {
            Reply::Raw(401, ..) => {
                let challenge = format!("Bearer resource_metadata=\"{hidden}\"");
                reply.with("www-authenticate", &challenge)
            }
            _ => reply,
        }
    });
    let mcp = world.mcp.clone();
    let server = RegisterServer::new("Pier", URL)
        .client(given("secret-of-its-own"))
        .as_client_itself();
    world.run(mcp.register_server("pier", server)).unwrap();
    assert!(matches!(world.try_connect(), Ok(Connected::Connected)));
    for turn in 2..=4 {
        world.advance(HOUR);
        if turn == 3 {
            world.wake_up();
        }
        assert!(world.call("echo").is_ok(), "{turn}");
        assert_eq!(world.server.count("client_credentials"), turn);
    }
}

// ---- 6 and 7

const ELSEWHERE: &str = "https://app.example/agents/my-agent/other/callback";

#[test]
fn a_client_is_switched_only_when_the_user_has_consented() {
    let mut world = reader();
    world.register_as("pier", |server| server.callback_url(ELSEWHERE));
    let url = world.call_for_sign_in("write");
    assert_eq!(query(&url)["redirect_uri"], ELSEWHERE);
    let anew = query(&url)["client_id"].clone();
    assert_ne!(anew, "client-1-as.example");
    assert_eq!(
        world.row().client_id.as_deref(),
        Some("client-1-as.example")
    );
    assert!(world.call("read").is_ok());
    world.wake_up();
    assert!(world.call("read").is_ok());
    // A refresh of the old one, too.
    world.server.end_access();
    assert!(world.call("read").is_ok());
    assert_eq!(world.server.refreshes(), 1);
    world.wake_up();
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert!(world.call("write").is_ok());
    assert_eq!(world.row().client_id.as_deref(), Some(&*anew));
    let left = world.stored_keys();
    assert!(
        !left.iter().any(|key| key.contains("client-1-")),
        "{left:?}"
    );
    world.wake_up();
    assert!(world.call("write").is_ok());
    world.server.end_access();
    assert!(world.call("write").is_ok());
    assert_eq!((world.server.refreshes(), world.server.exchanges()), (2, 2));
}

#[test]
fn an_exchange_for_more_that_fails_costs_nothing_of_what_there_is() {
    for code in ["invalid_grant", "invalid_client"] {
        for evicted in [false, true] {
            let mut world = reader();
            let url = world.call_for_sign_in("write");
            let back = world.server.consent(&url);
            if evicted {
                world.wake_up();
            }
            let reply = error_reply(400, code);
            world.server.instead.borrow_mut().push_back(reply);
            world.come_back_badly(&back);
            assert!(world.call("read").is_ok());
            assert_eq!(world.state(), State::Ready);
            world.wake_up();
            assert_eq!(world.state(), State::Ready);
            world.server.end_access();
            assert!(world.call("read").is_ok(), "{code}");
            assert_eq!(world.server.refreshes(), 1);
            let url = world.call_for_sign_in("write");
            let back = world.server.consent(&url);
            world.come_back_well(&back);
            assert!(world.call("write").is_ok());
        }
    }
}

// ---- 8

/// A store of which single steps can be held: what is read before the pause, and what is written
/// after it.
struct Held {
    inner: Rc<dyn KeyValueStore>,
    holds: Rc<Holds>,
}

#[derive(Default)]
struct Holds(RefCell<Vec<(&'static str, &'static str, oneshot::Receiver<()>)>>);

impl Holds {
    /// Holds the next step of this kind on a key with this part.
    fn next(&self, step: &'static str, part: &'static str) -> Sender<()> {
        let (open, gate) = oneshot::channel();
        self.0.borrow_mut().push((step, part, gate));
        open
    }

    async fn pass(&self, step: &str, key: &str) {
        let gate = {
            let mut holds = self.0.borrow_mut();
            let index = holds
                .iter()
                .position(|(kind, part, _)| *kind == step && key.contains(part));
            index.map(|index| holds.remove(index).2)
        };
        if let Some(gate) = gate {
            let _ = gate.await;
        }
    }

    /// Whether all that was to be held has been.
    fn are_reached(&self) -> bool {
        self.0.borrow().is_empty()
    }
}

#[async_trait(?Send)]
impl KeyValueStore for Held {
    async fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        let value = self.inner.get(key).await;
        self.holds.pass("get", key).await;
        value
    }
    async fn put(&self, key: &str, json: &str) -> Result<(), StoreError> {
        self.holds.pass("put", key).await;
        self.inner.put(key, json).await
    }
    async fn delete(&self, keys: &[String]) -> Result<(), StoreError> {
        for key in keys {
            self.holds.pass("delete", key).await;
        }
        self.inner.delete(keys).await
    }
    async fn keys(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.inner.keys(prefix).await
    }
}

fn held_world() -> (AuthWorld, Rc<Holds>) {
    let holds = Rc::new(Holds::default());
    let given = holds.clone();
    let world = AuthWorld::with(|options| {
        options.create_auth_provider(move |cx: ProviderContext| {
            let inner = cx.keys.clone();
            let holds = given.clone();
            let store = Rc::new(Held { inner, holds });
            Ok(Rc::new(StoredOAuthProvider::new(cx).with_store(store)))
        })
    });
    (world, holds)
}

/// The tokens of the last sign-in are those on disk and in memory.
fn expect_last_sign_in(world: &mut AuthWorld) {
    let stored = stored_family(world);
    world.pier.take_tokens();
    assert!(world.call("write").is_ok());
    assert_eq!(world.server.family(&world.pier.last_token()), stored);
    world.wake_up();
    assert!(world.call("write").is_ok());
    assert_eq!(world.server.exchanges(), 2);
}

#[test]
fn the_tokens_of_a_new_sign_in_win_over_those_of_a_refresh() {
    for place in ["endpoint", "put", "delete"] {
        let (world, holds) = held_world();
        let mut world = reader_of(world);
        let url = world.call_for_sign_in("write");
        let back = world.server.consent(&url);
        world.server.end_access();
        let open = match place {
            "endpoint" => hold_tokens(&world),
            "put" => holds.next("put", "/token"),
            _ => holds.next("delete", "oauth_discovery"),
        };
        let call = start_call(&mut world, "read");
        assert_eq!(world.server.refreshes(), 1);
        assert!(holds.are_reached());
        let answer = start_callback(&mut world, &back);
        open.send(()).unwrap();
        world.settle();
        assert_eq!(answer.outcome().unwrap().status(), 302, "{place}");
        drop(call);
        expect_last_sign_in(&mut world);
    }
}

#[test]
fn a_refusal_of_old_tokens_does_not_delete_new_ones() {
    for (step, part) in [("delete", "/token"), ("get", "/token")] {
        let (world, holds) = held_world();
        let mut world = reader_of(world);
        let url = world.call_for_sign_in("write");
        let back = world.server.consent(&url);
        world.server.end_access();
        let refusal = (400, json!({"error": "invalid_grant"}));
        world.server.refuses_refresh.replace(Some(refusal));
        let open_tokens = hold_tokens(&world);
        let call = start_call(&mut world, "read");
        assert_eq!(world.server.refreshes(), 1);
        let open = holds.next(step, part);
        open_tokens.send(()).unwrap();
        world.settle();
        assert!(holds.are_reached(), "{step}");
        let answer = start_callback(&mut world, &back);
        open.send(()).unwrap();
        world.settle();
        assert_eq!(answer.outcome().unwrap().status(), 302, "{step}");
        drop(call);
        expect_last_sign_in(&mut world);
    }
}

#[test]
fn what_was_read_before_a_refresh_does_not_replace_what_came_of_it() {
    let (mut world, holds) = held_world();
    world.register();
    world.sign_in();
    world.advance(Duration::from_secs(3_570));
    let open_tokens = hold_tokens(&world);
    assert!(world.call("echo").is_ok());
    world.settle();
    assert_eq!(world.server.refreshes(), 1, "ahead of the end");
    let old = format!("Bearer {}", world.pier.last_token());
    let inner = world.network.peer(URL);
    world.network.serve(URL, move |seen| {
        if seen.header("authorization") == Some(&old) {
            return Reply::status(401).with("www-authenticate", "Bearer");
        }
        inner(seen)
    });
    let open = holds.next("get", "/token");
    let call = start_call(&mut world, "echo");
    assert!(holds.are_reached());
    open_tokens.send(()).unwrap();
    world.settle();
    open.send(()).unwrap();
    world.settle();
    assert!(call.outcome().unwrap().is_ok());
    world.pier.take_tokens();
    assert!(world.call("echo").is_ok());
    let unauthorized = world.count("tools/call");
    assert!(world.call("echo").is_ok());
    assert_eq!(
        world.count("tools/call"),
        unauthorized + 1,
        "the new one at once"
    );
    assert_eq!(world.server.refreshes(), 1);
}

#[test]
fn two_callbacks_with_one_nonce_are_one_exchange() {
    for step in ["get", "put", "delete"] {
        let (mut world, holds) = held_world();
        world.register();
        let url = world.connect();
        let back = world.server.consent(&url);
        let open = match step {
            "get" => holds.next("get", "/state/"),
            "put" => holds.next("put", "/used/"),
            _ => holds.next("delete", "/state/"),
        };
        let one = start_callback(&mut world, &back);
        assert!(holds.are_reached());
        let two = start_callback(&mut world, &back);
        open.send(()).unwrap();
        world.settle();
        let statuses = [one, two].map(|answer| answer.outcome().unwrap().status().as_u16());
        assert_eq!(statuses, [302, 302], "{step}");
        assert_eq!(world.server.exchanges(), 1, "{step}");
        assert_eq!(world.state(), State::Ready, "{step}");
        assert!(world.call("echo").is_ok());
    }
}

#[test]
fn who_signs_out_during_the_save_of_a_refresh_is_signed_out() {
    for patiently in [true, false] {
        let (mut world, holds) = held_world();
        world.register();
        world.sign_in();
        world.server.end_access();
        let open = holds.next("put", "/token");
        let call = start_call(&mut world, "echo");
        assert!(holds.are_reached());
        let mcp = world.mcp.clone();
        let signing_out = world.start(async move { mcp.sign_out("pier").await });
        if !patiently {
            world.advance(Duration::from_secs(6));
        }
        open.send(()).unwrap();
        world.settle();
        signing_out.outcome().unwrap().unwrap();
        drop(call);
        world.settle();
        assert_eq!(world.stored_keys(), [""; 0]);
        let revoked = world.server.revoked.borrow().len();
        assert_eq!(revoked, 1);
        world.wake_up();
        assert_eq!(world.state(), State::Authenticating);
    }
}

#[test]
fn a_server_that_is_removed_while_a_sign_in_begins_leaves_nothing() {
    for (step, part) in [
        ("put", "/client_info/"),
        ("put", "/state/"),
        ("put", "/code_verifier/"),
        ("put", "oauth_discovery"),
        ("get", "/token"),
    ] {
        let (mut world, holds) = held_world();
        world.register();
        let open = holds.next(step, part);
        let connecting = start_connect(&mut world);
        assert!(holds.are_reached(), "{step} {part}");
        let mcp = world.mcp.clone();
        let removing = world.start(async move { mcp.remove_server("pier").await });
        let _ = open.send(());
        world.settle();
        assert!(removing.outcome().unwrap().unwrap());
        assert!(connecting.outcome().is_none_or(|outcome| outcome.is_err()));
        assert_eq!(world.stored_keys(), [""; 0], "{step} {part}");
        assert!(world.table.rows.borrow().is_empty());
    }
}

#[test]
fn a_server_that_is_removed_while_its_client_is_bound_leaves_nothing() {
    let (mut world, holds) = held_world();
    world.register();
    world.sign_in();
    // As the TypeScript package leaves it.
    world.set_value("/client_info/", |client| {
        client.as_object_mut().unwrap().remove("issuer");
    });
    world.wake_up();
    world.server.end_access();
    let open = holds.next("put", "/client_info/");
    let call = start_call(&mut world, "echo");
    assert!(holds.are_reached());
    let mcp = world.mcp.clone();
    let removing = world.start(async move { mcp.remove_server("pier").await });
    world.advance(Duration::from_secs(6));
    open.send(()).unwrap();
    world.settle();
    assert!(removing.outcome().unwrap().unwrap());
    drop(call);
    assert_eq!(world.stored_keys(), [""; 0]);
}

#[test]
fn a_refresh_that_is_tried_again_makes_no_key_for_who_has_gone() {
    for (removed, is_bound) in [(true, true), (false, true), (true, false), (false, false)] {
        let mut world = AuthWorld::new();
        *world.server.metadata.borrow_mut() =
            json!({"dpop_signing_alg_values_supported": ["ES256"]});
        if is_bound {
            world.server.dpop_nonce.replace(Some("as-nonce-1".into()));
            world.pier.wants_dpop.set(true);
        }
        world.register();
        world.sign_in();
        world.server.end_access();
        let asked = Rc::new(RefCell::new(0));
        let count = asked.clone();
        world.network.serve("https://as.example/token", move |_| {
            *count.borrow_mut() += 1;
            Reply::status(503).with("retry-after", "5")
        });
        let call = start_call(&mut world, "echo");
        assert_eq!(*asked.borrow(), 1);
        // It is waited for, but not for ever.
        world.advance(Duration::from_secs(1));
        let mcp = world.mcp.clone();
        let going = world.start(async move {
            if removed {
                mcp.remove_server("pier").await.map(drop)
            } else {
                mcp.sign_out("pier").await
            }
        });
        world.advance(Duration::from_secs(4));
        assert_eq!(*asked.borrow(), 2);
        world.advance(Duration::from_secs(1));
        going.outcome().unwrap().unwrap();
        assert_eq!(world.stored_keys(), [""; 0]);
        world.pass(Duration::from_secs(30), Duration::from_secs(1));
        drop(call);
        assert_eq!(world.stored_keys(), [""; 0], "removed: {removed}");
        assert_eq!(
            *asked.borrow(),
            2,
            "a token that was taken back is not sent"
        );
    }
}

// ---- 9 and 10

#[test]
fn a_tool_that_is_called_again_and_again_asks_once() {
    let mut world = reader();
    world.network.forget();
    let url = world.call_for_sign_in("write");
    for _ in 0..19 {
        assert_eq!(world.call_for_sign_in("write"), url);
    }
    assert_eq!(discoveries(&world), 1);
    assert_eq!(world.server.registrations.borrow().len(), 1);
    // Before the first sign-in, too.
    let mut world = AuthWorld::new();
    world.register();
    let url = world.connect();
    for _ in 0..20 {
        assert_eq!(world.call_for_sign_in("write"), url);
    }
    assert_eq!(discoveries(&world), 1);
    assert_eq!(world.server.registrations.borrow().len(), 1);
}

/// As `reader`, after sign-ins that did not help.
fn worn_out() -> AuthWorld {
    let mut world = reader();
    world.server.grants.replace(Some("read".into()));
    for _ in 0..2 {
        let url = world.call_for_sign_in("write");
        let back = world.server.consent(&url);
        world.come_back_well(&back);
    }
    for _ in 0..2 {
        let error = world.call("write").unwrap_err();
        let is_clear = matches!(error, Error::Authorization(OAuthError::TooManySignIns(3)));
        assert!(is_clear, "{error:?}");
        assert!(world.call("read").is_ok());
        assert_eq!(world.state(), State::Ready);
        world.wake_up();
    }
    world
}

#[test]
fn too_many_sign_ins_are_forgiven_after_a_day_or_by_signing_out() {
    let mut world = worn_out();
    world.advance(Duration::from_hours(23));
    assert!(matches!(
        world.call_slowly("write"),
        Err(Error::Authorization(OAuthError::TooManySignIns(_)))
    ));
    world.advance(Duration::from_hours(2));
    world.server.grants.take();
    let url = world.call_for_sign_in_slowly("write");
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert!(world.call("write").is_ok());

    let mut world = worn_out();
    let mcp = world.mcp.clone();
    world.run(mcp.sign_out("pier")).unwrap();
    world.server.grants.take();
    world.sign_in();
    let url = world.call_for_sign_in("write");
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert!(world.call("write").is_ok());
}

#[test]
fn what_was_denied_is_not_asked_for_again_unasked() {
    for evicted in [false, true] {
        let mut world = reader();
        let url = world.call_for_sign_in("write");
        assert_eq!(query(&url)["scope"], "read write");
        let back = world.server.deny(&url);
        world.come_back_badly(&back);
        if evicted {
            world.wake_up();
        }
        world.server.end_grants();
        let url = world.call_for_sign_in("read");
        assert_eq!(query(&url)["scope"], "read");
    }
}

// ---- 11

const ONE: &str = "0101010101010101010101010101010101010101010101010101010101010101";
const TWO: &str = "0202020202020202020202020202020202020202020202020202020202020202";

fn ring(text: &str) -> KeyRing {
    KeyRing::parse(text).unwrap()
}

fn sealed_world() -> AuthWorld {
    let mut world = AuthWorld::with(|options| options.encryption(ring(ONE)));
    world.watch.secret("header-secret");
    world.register_as("pier", |server| server.header("x-api-key", "header-secret"));
    world.sign_in();
    world
}

#[test]
fn who_has_lost_the_key_can_sign_out_and_remove() {
    for keys in [None, Some(ring(TWO))] {
        let mut world = sealed_world();
        world.options.encryption = keys.clone();
        world.wake_up();
        let mcp = world.mcp.clone();
        world.run(mcp.sign_out("pier")).unwrap();
        // One that cannot be read may be the host's own.
        let left = world.stored_keys();
        assert!(
            left.iter().all(|key| key.ends_with("/client_info/")),
            "{left:?}"
        );
        world.run(mcp.remove_server("pier")).unwrap();
        assert_eq!(world.stored_keys(), [""; 0]);
        assert!(world.table.rows.borrow().is_empty());
        world.register();
        world.sign_in();
    }
}

#[test]
fn an_old_key_can_be_taken_away_once_all_has_been_read() {
    let mut world = sealed_world();
    world.options.encryption = Some(ring(&format!("{TWO},{ONE}")));
    world.wake_up();
    assert!(world.call("echo").is_ok());
    world.server.end_access();
    assert!(world.call("echo").is_ok());
    world.options.encryption = Some(ring(TWO));
    world.wake_up();
    assert_eq!(world.state(), State::Ready);
    assert!(world.call("echo").is_ok());
    let sent = world.sent("tools/call");
    assert_eq!(
        sent.last().unwrap().header("x-api-key"),
        Some("header-secret")
    );
    world.server.end_access();
    assert!(world.call("echo").is_ok());
    assert_eq!(world.server.refreshes(), 2);
    assert_eq!(world.server.exchanges(), 1);
}

#[test]
fn headers_that_were_sealed_for_one_url_do_not_go_to_another() {
    let mut world = sealed_world();
    let pier = world.pier.clone();
    pier.serve(&world.network, OTHER);
    world.table.rows.borrow_mut()[0].server_url = OTHER.into();
    world.network.forget();
    world.evict();
    let error = world.try_connect().unwrap_err();
    assert!(error.to_string().contains("decrypted"), "{error}");
    assert!(world.network.seen.borrow().is_empty());
}

// ---- 12

#[test]
fn no_id_is_part_of_another() {
    let ids = [
        "team",
        "team/x",
        "team%2Fx",
        "team%252Fx",
        ".",
        "..",
        "team.x",
        "team/",
        "team.state",
    ];
    for removed in ids {
        let mut world = AuthWorld::new();
        for id in ids {
            world.register_as(id, |server| server);
            let mcp = world.mcp.clone();
            let outcome = world.run(mcp.connect_to_server(id)).unwrap();
            let Connected::Authenticating { auth_url } = outcome else {
                panic!("no sign-in");
            };
            let url = Url::parse(auth_url.as_str()).unwrap();
            let back = world.server.consent(&url);
            world.come_back_well(&back);
        }
        let before = world.keys.values.borrow().len();
        let mcp = world.mcp.clone();
        if removed.len() % 2 == 0 {
            world.run(mcp.remove_server(removed)).unwrap();
        } else {
            world.run(mcp.sign_out(removed)).unwrap();
        }
        let after = world.keys.values.borrow().len();
        assert_eq!(before - after, before / ids.len(), "{removed}");
        world.wake_up();
        for id in ids.iter().filter(|id| **id != removed) {
            let mcp = world.mcp.clone();
            let outcome = world.run(mcp.call_tool(id, "echo", json!({})));
            assert!(outcome.is_ok(), "{removed}, {id}: {outcome:?}");
        }
        assert_eq!(world.server.exchanges(), ids.len());
    }
}

// ---- 13

#[test]
fn nothing_is_sent_in_the_clear() {
    const CLEAR: &str = "http://public.example/mcp";
    let mut world = AuthWorld::new();
    let pier = world.pier.clone();
    pier.serve(&world.network, CLEAR);
    know_given(&world, "given-secret");
    let mcp = world.mcp.clone();
    for itself in [false, true] {
        let server = RegisterServer::new("Clear", CLEAR).callback_url(CALLBACK);
        let server = if itself {
            server.client(given("given-secret")).as_client_itself()
        } else {
            server
        };
        world.run(mcp.register_server("pier", server)).unwrap();
        let error = world.try_connect().unwrap_err();
        assert!(error.to_string().contains("is not https"), "{error}");
        assert_eq!(world.state(), State::Failed);
        assert!(world.call("echo").is_err());
    }
    let sent = world.pier.authorizations.borrow().clone();
    assert!(sent.iter().all(Option::is_none), "{sent:?}");
    assert!(world.server.asked.borrow().is_empty());
    assert!(world.server.registrations.borrow().is_empty());
    // Not what an https server of this id has been given either.
    let mut world = AuthWorld::ready();
    let pier = world.pier.clone();
    pier.serve(&world.network, CLEAR);
    world.table.rows.borrow_mut()[0].server_url = CLEAR.into();
    world.pier.authorizations.take();
    world.evict();
    assert!(world.try_connect().is_err());
    let sent = world.pier.authorizations.borrow().clone();
    assert!(
        !sent.is_empty() && sent.iter().all(Option::is_none),
        "{sent:?}"
    );
}

// ---- 14

#[test]
fn an_anonymous_callback_opens_nothing_and_learns_nothing() {
    let mut world = AuthWorld::ready();
    let mcp = world.mcp.clone();
    world.run(mcp.close_connection("pier")).unwrap();
    world.network.forget();
    let stored = world.everything_stored();
    for rest in [
        "&code=x",
        "&error=access_denied",
        "",
        "&code=x&code=y",
        "&code=x&iss=y",
    ] {
        let mut pages = Vec::new();
        for state in ["guessed.pier", "guessed.nobody"] {
            let url = Url::parse(&format!("{CALLBACK}?state={state}{rest}")).unwrap();
            pages.push(world.come_back_badly(&url));
        }
        assert_eq!(pages[0], pages[1], "{rest}");
    }
    assert!(world.mcp.connection("pier").is_none());
    assert!(world.network.seen.borrow().is_empty());
    assert_eq!(world.everything_stored(), stored);
}

// ---- 15

#[test]
fn what_is_kept_of_sign_ins_is_bounded() {
    let mut world = AuthWorld::new();
    world.register();
    let mut last = None;
    for _ in 0..40 {
        last = Some(world.connect());
        world.advance(Duration::from_secs(1));
    }
    let keys = world.stored_keys();
    for (part, most) in [
        ("/state/", 16),
        ("/code_verifier/", 16),
        ("/client_info/", 16),
    ] {
        let count = keys.iter().filter(|key| key.contains(part)).count();
        assert!(count <= most, "{part}: {count}");
    }
    let back = world.server.consent(&last.unwrap());
    world.come_back_well(&back);
    assert!(world.call("echo").is_ok());
}

#[test]
fn answers_of_a_registration_are_bounded() {
    let long = "x".repeat(200_000);
    // Left out, or read for what it is.
    for odd in [
        json!({"logo_uri": long}),
        json!({"client_name": long}),
        json!({"contacts": vec!["a@b.example"; 10_000]}),
        json!({"jwks": {"keys": [{"n": long}]}}),
        json!({"redirect_uris": [], "grant_types": 7, "response_types": {}}),
        json!({"client_secret_expires_at": "never"}),
        json!({"workersAgents": {"configured": true}}),
        (0..1_000)
            .map(|index| (format!("x-{index}"), json!("y".repeat(100))))
            .collect(),
    ] {
        let mut world = AuthWorld::new();
        *world.server.registration.borrow_mut() = odd.clone();
        world.register();
        let size = |world: &AuthWorld| world.everything_stored().len();
        match world.try_connect() {
            Ok(Connected::Authenticating { .. }) => {
                let url = world.offered();
                assert!(size(&world) < 30_000, "{}", size(&world));
                if odd["redirect_uris"].is_null() {
                    let back = world.server.consent(&url);
                    world.come_back_well(&back);
                }
                assert!(size(&world) < 30_000, "{}", size(&world));
            }
            other => panic!("{other:?}"),
        }
    }
    for id in [
        json!(long),
        json!(""),
        json!(7),
        json!("a\nb"),
        Value::Null,
        json!(["a"]),
    ] {
        let mut world = AuthWorld::new();
        let answer = json!({"client_id": id});
        world
            .network
            .serve("https://as.example/register", move |_| {
                Reply::Json(201, answer.clone())
            });
        world.register();
        let error = world.try_connect().unwrap_err();
        assert!(error.to_string().len() < 1_000);
        assert!(
            !world
                .stored_keys()
                .iter()
                .any(|key| key.contains("client_info"))
        );
        assert!(world.everything_stored().len() < 3_000);
    }
}
