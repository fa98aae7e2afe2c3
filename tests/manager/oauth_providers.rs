//! Providers of the host's own, and grants that need no user.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use async_trait::async_trait;
use serde_json::json;
use workers_agents::oauth::{
    AssertionSource, ClientInformation, ClientMetadata, Credentials, EnterpriseManaged, Grant,
    PendingSignIn, ProviderContext, StoredOAuthProvider, Tokens, Used,
};
use workers_agents::ports::{Http, HttpError, HttpRequest, HttpResponse};
use workers_agents::{
    Connected, ConnectionState as State, Error, McpClientManager, OAuthError, OAuthProvider,
    OAuthSettings, RegisterServer,
};

use super::support::auth_world::{AuthServer, AuthWorld, CALLBACK, HOUR, query};
use super::support::{MemoryHttp, MemoryKeys, Reply, URL};

fn tool_call(world: &mut AuthWorld, mcp: &McpClientManager, id: &str) -> Result<(), Error> {
    let outcome = world.run(mcp.call_tool(id, "echo", json!({}))).map(drop);
    world.noted(outcome)
}

/// Registers a server without callback, and connects: nobody has to sign in.
fn use_without_user(world: &mut AuthWorld, more: impl FnOnce(RegisterServer) -> RegisterServer) {
    let mcp = world.mcp.clone();
    let server = more(RegisterServer::new("Pier", URL));
    world.run(mcp.register_server("pier", server)).unwrap();
    let outcome = world.try_connect();
    assert!(matches!(outcome, Ok(Connected::Connected)), "{outcome:?}");
    assert!(world.call("echo").is_ok());
}

fn given(secret: &str) -> ClientInformation {
    let mut client = ClientInformation::public("given");
    client.client_secret = Some(secret.to_owned());
    client
}

fn know(server: &AuthServer, secret: &str) {
    let record = json!({
        "client_secret": secret,
        "token_endpoint_auth_method": "client_secret_basic",
        "redirect_uris": [CALLBACK],
    });
    server.clients.borrow_mut().insert("given".into(), record);
}

#[test]
fn the_host_makes_the_providers_of_all_servers_new_or_restored() {
    let made = Rc::new(RefCell::new(Vec::new()));
    let store = Rc::new(MemoryKeys::default());
    let (seen, elsewhere) = (made.clone(), store.clone());
    let mut world = AuthWorld::with(|options| {
        options.create_auth_provider(move |cx: ProviderContext| {
            let of = (
                cx.server_id.clone(),
                cx.server_url.clone(),
                cx.callback_url.clone(),
            );
            seen.borrow_mut().push(of);
            Ok(Rc::new(
                StoredOAuthProvider::new(cx).with_store(elsewhere.clone()),
            ))
        })
    });
    world.register();
    world.sign_in();
    let expected = ("pier".to_owned(), URL.to_owned(), Some(CALLBACK.to_owned()));
    assert_eq!(made.borrow().len(), 1);
    assert!(
        world.keys.values.borrow().is_empty(),
        "everything is elsewhere"
    );
    assert!(
        store
            .values
            .borrow()
            .keys()
            .any(|key| key.ends_with("/token"))
    );
    world.wake_up();
    assert!(world.call("echo").is_ok());
    assert_eq!(*made.borrow(), [expected.clone(), expected]);
    assert_eq!(world.server.exchanges(), 1);
    let mcp = world.mcp.clone();
    world.run(mcp.remove_server("pier")).unwrap();
    assert!(store.values.borrow().is_empty(), "and is forgotten there");
}

#[test]
fn a_client_from_a_binding_is_used_and_not_stored() {
    let client = given("secret-of-a-binding");
    let mut world = AuthWorld::with(|options| {
        options.create_auth_provider(move |cx| {
            Ok(Rc::new(
                StoredOAuthProvider::new(cx).with_client(client.clone()),
            ))
        })
    });
    know(&world.server, "secret-of-a-binding");
    world.watch.secret("secret-of-a-binding");
    world.register();
    world.sign_in();
    world.advance(HOUR);
    world.wake_up();
    assert!(world.call("echo").is_ok());
    assert_eq!(world.server.refreshes(), 1);
    assert!(world.server.last_asked().authorization.is_some());
    let keys = world.stored_keys();
    assert!(
        !keys.iter().any(|key| key.ends_with("/client_info/")),
        "{keys:?}"
    );
    let mcp = world.mcp.clone();
    world.run(mcp.sign_out("pier")).unwrap();
    world.settle();
    assert!(world.server.revoked.borrow()[0].authorization.is_some());
    world.sign_in();
    assert_eq!(world.server.registrations.borrow().len(), 0);
}

#[test]
fn a_secret_of_a_binding_is_in_no_store() {
    // A sign-in keeps the client that it was begun with; not the secret of one that is not stored.
    let client = given("secret-of-a-binding");
    let mut world = AuthWorld::with(|options| {
        options.create_auth_provider(move |cx| {
            Ok(Rc::new(
                StoredOAuthProvider::new(cx).with_client(client.clone()),
            ))
        })
    });
    know(&world.server, "secret-of-a-binding");
    world.register();
    let url = world.connect();
    assert!(!world.everything_stored().contains("secret-of-a-binding"));
    let back = world.server.consent(&url);
    world.wake_up();
    world.come_back_well(&back);
    assert!(!world.everything_stored().contains("secret-of-a-binding"));
}

struct Recording {
    inner: MemoryHttp,
    urls: RefCell<Vec<String>>,
}

#[async_trait(?Send)]
impl Http for Recording {
    async fn send(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
        self.urls.borrow_mut().push(request.url.as_str().to_owned());
        self.inner.send(request).await
    }
}

#[test]
fn requests_to_authorization_servers_go_through_the_provider_s_http() {
    let recording: Rc<RefCell<Option<Rc<Recording>>>> = Rc::default();
    let slot = recording.clone();
    let mut world = AuthWorld::with(|options| {
        options.create_auth_provider(move |cx| {
            let http = slot.borrow().clone().unwrap();
            Ok(Rc::new(StoredOAuthProvider::new(cx).with_http(http)))
        })
    });
    let http = Rc::new(Recording {
        inner: MemoryHttp(world.network.clone()),
        urls: RefCell::default(),
    });
    recording.replace(Some(http.clone()));
    world.register();
    world.sign_in();
    world.advance(HOUR);
    assert!(world.call("echo").is_ok());
    let mcp = world.mcp.clone();
    world.run(mcp.sign_out("pier")).unwrap();
    world.settle();
    let urls = http.urls.borrow();
    for end in [
        "/register",
        "/token",
        "/revoke",
        "/oauth-authorization-server",
    ] {
        assert!(urls.iter().any(|url| url.ends_with(end)), "{end}");
    }
    assert!(
        !urls.iter().any(|url| url == URL),
        "those to the server do not"
    );
    let seen = world.network.seen.borrow();
    let others = seen.iter().filter(|seen| seen.url != URL).count();
    assert_eq!(others, urls.len(), "and nothing goes past it");
}

#[test]
fn a_client_by_itself_needs_no_user() {
    let mut world = AuthWorld::new();
    know(&world.server, "secret-of-its-own");
    *world.pier.challenge_scope.borrow_mut() = Some("jobs".into());
    world.watch.secret("secret-of-its-own");
    use_without_user(&mut world, |server| {
        server.client(given("secret-of-its-own")).as_client_itself()
    });
    let asked = world.server.last_asked();
    assert_eq!(asked.grant(), "client_credentials");
    assert_eq!(
        (&*asked.form["scope"], &*asked.form["resource"]),
        ("jobs", URL)
    );
    assert!(asked.authorization.is_some());
    // No refresh token: the same again, once, whoever asks.
    world.advance(HOUR);
    let (open, gate) = futures::channel::oneshot::channel();
    world.server.gate.replace(Some(gate));
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let mcp = world.mcp.clone();
            world.start(async move { mcp.call_tool("pier", "echo", json!({})).await })
        })
        .collect();
    open.send(()).unwrap();
    world.settle();
    for call in calls {
        assert!(call.outcome().unwrap().is_ok());
    }
    assert_eq!(world.server.count("client_credentials"), 2);
    world.wake_up();
    assert!(world.call("echo").is_ok());
    assert_eq!(
        world.server.count("client_credentials"),
        2,
        "what is stored is good"
    );
    // Refused for good: the server is locked out, and nobody is sent anywhere.
    world.pier.refuses_all.set(true);
    let error = world.call("echo").unwrap_err();
    assert_eq!(error.http_status(), Some(401));
    assert!(world.server.count("client_credentials") <= 4);
    assert_eq!(world.state(), State::Failed);
    assert_eq!(
        futures::executor::block_on(world.mcp.auth_url("pier")).unwrap(),
        None
    );
}

#[test]
fn a_workload_shows_what_its_platform_vouches_for() {
    let audiences: Rc<RefCell<Vec<String>>> = Rc::default();
    let (seen, count) = (audiences.clone(), Cell::new(0));
    let source = AssertionSource::new(move |audience| {
        count.set(count.get() + 1);
        seen.borrow_mut().push(format!(
            "{} {} {}",
            audience.issuer, audience.token_endpoint, audience.resource
        ));
        let assertion = format!("workload-assertion-{}", count.get());
        async move { Ok(assertion) }
    });
    let mut world = AuthWorld::with(|options| {
        options.create_auth_provider(move |cx| {
            let grant = Grant::WorkloadIdentity(source.clone());
            Ok(Rc::new(StoredOAuthProvider::new(cx).with_grant(grant)))
        })
    });
    use_without_user(&mut world, |server| server);
    let asked = world.server.last_asked();
    assert_eq!(asked.grant(), "urn:ietf:params:oauth:grant-type:jwt-bearer");
    assert_eq!(asked.form["assertion"], "workload-assertion-1");
    assert!(!asked.form.contains_key("client_id"));
    assert_eq!(asked.form["resource"], URL);
    assert_eq!(
        *audiences.borrow(),
        [format!("https://as.example https://as.example/token {URL}")]
    );
    world.advance(HOUR);
    assert!(world.call("echo").is_ok());
    assert_eq!(
        world.server.last_asked().form["assertion"],
        "workload-assertion-2",
        "a fresh one"
    );
    world.wake_up();
    assert!(world.call("echo").is_ok());
    assert_eq!(world.server.asked.borrow().len(), 2, "tokens are kept");
}

#[test]
fn an_enterprise_vouches_for_its_user() {
    let (idp, at) = ("https://idp.example/token", "https://idp.example/token");
    let mut client = ClientInformation::public("at-the-idp");
    client.client_secret = Some("secret-at-the-idp".into());
    client.token_endpoint_auth_method = Some("client_secret_post".into());
    let enterprise = Rc::new(EnterpriseManaged {
        token_endpoint: at.into(),
        client,
        id_token: AssertionSource::fixed("the-id-token"),
    });
    let here = given("secret-here");
    let mut world = AuthWorld::with(|options| {
        options.create_auth_provider(move |cx| {
            let grant = Grant::EnterpriseManaged(enterprise.clone());
            Ok(Rc::new(
                StoredOAuthProvider::new(cx)
                    .with_grant(grant)
                    .with_client(here.clone()),
            ))
        })
    });
    for secret in [
        "secret-at-the-idp",
        "secret-here",
        "the-id-token",
        "the-id-jag",
    ] {
        world.watch.secret(secret);
    }
    know(&world.server, "secret-here");
    let requests: Rc<RefCell<Vec<String>>> = Rc::default();
    let seen = requests.clone();
    world.network.serve(idp, move |request| {
        seen.borrow_mut().push(request.text.clone());
        Reply::Json(
            200,
            json!({"access_token": "the-id-jag", "token_type": "N_A",
            "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag"}),
        )
    });
    use_without_user(&mut world, |server| server);
    let request = requests.borrow()[0].clone();
    for part in [
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange",
        "audience=https%3A%2F%2Fas.example&",
        "subject_token=the-id-token",
        "client_id=at-the-idp",
        "client_secret=secret-at-the-idp",
    ] {
        assert!(request.contains(part), "{part}");
    }
    assert!(!request.contains("secret-here"));
    let asked = world.server.last_asked();
    assert_eq!(asked.form["assertion"], "the-id-jag");
    assert!(
        asked.authorization.is_some(),
        "as the client that this server knows"
    );
    assert!(!format!("{:?}", asked.form).contains("at-the-idp"));
    // The identity provider says no: that is shown, and nobody is sent elsewhere.
    world
        .network
        .serve(idp, |_| Reply::Json(400, json!({"error": "access_denied"})));
    world.advance(HOUR);
    let error = world.call("echo").unwrap_err();
    assert!(error.to_string().contains("access_denied"), "{error}");
    assert_eq!(
        futures::executor::block_on(world.mcp.auth_url("pier")).unwrap(),
        None
    );
}

#[test]
fn an_assertion_that_is_refused_is_not_sent_again_and_again() {
    let mut world = AuthWorld::with(|options| {
        options.create_auth_provider(|cx| {
            let source = AssertionSource::fixed("workload-assertion");
            let grant = Grant::WorkloadIdentity(source);
            Ok(Rc::new(StoredOAuthProvider::new(cx).with_grant(grant)))
        })
    });
    let at = "https://as.example/token";
    let count = Rc::new(Cell::new(0));
    let counted = count.clone();
    world.network.serve(at, move |_| {
        counted.set(counted.get() + 1);
        Reply::Json(400, json!({"error": "invalid_grant"}))
    });
    let mcp = world.mcp.clone();
    world
        .run(mcp.register_server("pier", RegisterServer::new("Pier", URL)))
        .unwrap();
    let error = world.try_connect().unwrap_err();
    assert!(error.to_string().contains("invalid_grant"), "{error}");
    assert_eq!(count.get(), 1);
    assert_eq!(world.state(), State::Failed);
}

#[test]
fn a_provider_can_be_given_with_one_registration() {
    let store = Rc::new(MemoryKeys::default());
    let mut world = AuthWorld::new();
    world.register_as("other", |server| server);
    let context = Rc::new(RefCell::new(None));
    let slot = context.clone();
    // A context to make it with.
    let probe = AuthWorld::with(|options| {
        options.create_auth_provider(move |cx| {
            slot.replace(Some(cx.clone()));
            Ok(Rc::new(StoredOAuthProvider::new(cx)))
        })
    });
    let mut probe = probe;
    probe.register();
    probe.connect();
    let cx: ProviderContext = context.borrow().clone().unwrap();
    let provider = Rc::new(StoredOAuthProvider::new(cx).with_store(store.clone()));
    let again = provider.clone();
    world.register_as("pier", |server| server.auth_provider(provider));
    world.sign_in();
    assert!(world.call("echo").is_ok());
    assert!(world.keys.values.borrow().is_empty());
    assert!(
        store
            .values
            .borrow()
            .keys()
            .any(|key| key.ends_with("/token"))
    );
    // The other one has the usual provider.
    let mcp = world.mcp.clone();
    let other = world.run(mcp.connect_to_server("other")).unwrap();
    assert!(matches!(other, Connected::Authenticating { .. }));
    assert!(!world.keys.values.borrow().is_empty());
    // Given again and not asked since: it forgets all the same.
    world.register_as("pier", |server| server.auth_provider(again));
    let mcp = world.mcp.clone();
    world.run(mcp.remove_server("pier")).unwrap();
    assert!(store.values.borrow().is_empty());
}

/// Says no to everything.
struct Broken;

fn broken() -> OAuthError {
    OAuthError::InvalidOption("the provider is broken".into())
}

#[async_trait(?Send)]
impl OAuthProvider for Broken {
    fn redirect_url(&self) -> Option<&str> {
        Some(CALLBACK)
    }
    fn client_metadata(&self) -> ClientMetadata {
        ClientMetadata::new("broken", CALLBACK)
    }
    fn client_id(&self) -> Option<String> {
        None
    }
    async fn client(&self, _: &str) -> Result<Option<ClientInformation>, OAuthError> {
        Err(broken())
    }
    async fn save_client(&self, _: &ClientInformation) -> Result<(), OAuthError> {
        Err(broken())
    }
    async fn tokens(&self) -> Result<Option<Tokens>, OAuthError> {
        Err(broken())
    }
    async fn save_tokens(&self, _: &Tokens) -> Result<(), OAuthError> {
        Err(broken())
    }
    async fn save_pending(&self, _: &PendingSignIn, _: u64) -> Result<(), OAuthError> {
        Err(broken())
    }
    async fn pending(&self, _: &str) -> Result<Option<PendingSignIn>, OAuthError> {
        Err(broken())
    }
    async fn take_pending(&self, _: &str, _: u64) -> Result<Option<PendingSignIn>, OAuthError> {
        Err(broken())
    }
    async fn save_success(&self, _: &str, _: u64) -> Result<(), OAuthError> {
        Err(broken())
    }
    async fn used(&self, _: &str) -> Result<Option<Used>, OAuthError> {
        Err(broken())
    }
    async fn dpop_key(&self) -> Result<Option<String>, OAuthError> {
        Err(broken())
    }
    async fn save_dpop_key(&self, _: &str) -> Result<(), OAuthError> {
        Err(broken())
    }
    async fn invalidate(&self, _: Credentials) -> Result<(), OAuthError> {
        Err(broken())
    }
}

#[test]
fn a_provider_that_fails_takes_nothing_else_down() {
    for cannot_be_made in [false, true] {
        let mut world = AuthWorld::with(|options| {
            options.create_auth_provider(move |cx| match &*cx.server_id {
                "pier" if cannot_be_made => Err(broken()),
                "pier" => Ok(Rc::new(Broken)),
                _ => Ok(Rc::new(StoredOAuthProvider::new(cx))),
            })
        });
        world.register();
        world.register_as("good", |server| server);
        let mcp = world.mcp.clone();
        let Connected::Authenticating { auth_url } =
            world.run(mcp.connect_to_server("good")).unwrap()
        else {
            panic!("no sign-in");
        };
        let back = world
            .server
            .consent(&url::Url::parse(auth_url.as_str()).unwrap());
        world.come_back_well(&back);
        for _ in 0..2 {
            let error = world.try_connect().unwrap_err();
            assert!(
                error.to_string().contains("the provider is broken"),
                "{error}"
            );
            assert_eq!(world.state(), State::Failed);
            let stray = format!("{CALLBACK}?state=aaaaaaaaaaaaaaaaaaaaa.pier&code=c");
            world.come_back_badly(&url::Url::parse(&stray).unwrap());
            let mcp = world.mcp.clone();
            tool_call(&mut world, &mcp, "good").unwrap();
            world.wake_up();
        }
        let mcp = world.mcp.clone();
        assert!(
            world.run(mcp.remove_server("pier")).is_err(),
            "it could not forget"
        );
        assert!(
            world.mcp.server("pier").unwrap().is_none(),
            "and is gone all the same"
        );
        tool_call(&mut world, &mcp, "good").unwrap();
    }
}

#[test]
fn a_source_that_fails_is_named() {
    let mut world = AuthWorld::with(|options| {
        options.create_auth_provider(|cx| {
            let source = AssertionSource::new(|_| async { Err(broken()) });
            let grant = Grant::WorkloadIdentity(source);
            Ok(Rc::new(StoredOAuthProvider::new(cx).with_grant(grant)))
        })
    });
    let mcp = world.mcp.clone();
    world
        .run(mcp.register_server("pier", RegisterServer::new("Pier", URL)))
        .unwrap();
    let error = world.try_connect().unwrap_err();
    assert!(
        error.to_string().contains("the provider is broken"),
        "{error}"
    );
}

// ---- the end of it

#[test]
fn tokens_are_taken_back_when_the_user_signs_out_or_the_server_is_removed() {
    for (is_removed, secret, gives_refresh) in [
        (false, false, true),
        (true, false, true),
        (false, true, true),
        (true, true, false),
    ] {
        let mut world = AuthWorld::new();
        world.server.gives_refresh.set(gives_refresh);
        if secret {
            *world.server.registration.borrow_mut() = json!({
                "client_secret": "registered-secret",
                "token_endpoint_auth_method": "client_secret_basic",
            });
        }
        world.register();
        world.sign_in();
        let stored = world.token();
        let (open, gate) = futures::channel::oneshot::channel::<()>();
        let (gate, seen) = (RefCell::new(Some(gate)), Rc::new(RefCell::new(Vec::new())));
        let asked = seen.clone();
        world
            .network
            .serve("https://as.example/revoke", move |request| {
                asked.borrow_mut().push((
                    request.text.clone(),
                    request.headers.contains_key("authorization"),
                ));
                Reply::Later(gate.take().unwrap(), Box::new(Reply::status(200)))
            });
        let mcp = world.mcp.clone();
        // Nobody waits for the answer.
        if is_removed {
            assert!(world.run(mcp.remove_server("pier")).unwrap());
        } else {
            world.run(mcp.sign_out("pier")).unwrap();
        }
        assert!(world.stored_keys().is_empty());
        world.settle();
        let (kind, token) = if gives_refresh {
            ("refresh_token", &stored["refresh_token"])
        } else {
            ("access_token", &stored["access_token"])
        };
        let mut expected = format!("token={}&token_type_hint={kind}", token.as_str().unwrap());
        if !secret {
            expected += "&client_id=client-1-as.example";
        }
        assert_eq!(*seen.borrow(), [(expected, secret)]);
        drop(open);
        world.settle();
        assert_eq!(world.mcp.server("pier").unwrap().is_some(), !is_removed);
        if !is_removed {
            world.wake_up();
            world.sign_in();
        }
    }
}

#[test]
fn a_failure_to_take_tokens_back_harms_nobody() {
    for reply in [
        (|| Reply::status(500)) as fn() -> Reply,
        || Reply::Refused,
        || Reply::Silence,
        || Reply::Json(400, json!({"error": "unsupported_token_type"})),
    ] {
        let mut world = AuthWorld::ready();
        world
            .network
            .serve("https://as.example/revoke", move |_| reply());
        let mcp = world.mcp.clone();
        world.run(mcp.sign_out("pier")).unwrap();
        world.settle();
        assert!(world.stored_keys().is_empty());
        assert_eq!(world.state(), State::NotConnected);
        world.sign_in();
        assert!(world.call("echo").is_ok());
    }
    // And a server that takes none back is not asked.
    let mut world = AuthWorld::new();
    *world.server.metadata.borrow_mut() = json!({"revocation_endpoint": null});
    world.register();
    world.sign_in();
    let mcp = world.mcp.clone();
    world.run(mcp.sign_out("pier")).unwrap();
    world.settle();
    assert!(world.server.revoked.borrow().is_empty());
}

#[test]
fn who_signs_out_is_signed_out_though_a_refresh_is_under_way() {
    let mut world = AuthWorld::ready();
    world.advance(HOUR);
    let (open, gate) = futures::channel::oneshot::channel();
    world.server.gate.replace(Some(gate));
    let mcp = world.mcp.clone();
    let call = world.start(async move { mcp.call_tool("pier", "echo", json!({})).await.is_ok() });
    let mcp = world.mcp.clone();
    let signing_out = world.start(async move { mcp.sign_out("pier").await });
    // What the refresh brings is what must be taken back.
    open.send(()).unwrap();
    world.settle();
    signing_out.outcome().unwrap().unwrap();
    assert_ne!(call.outcome(), Some(true));
    assert!(world.stored_keys().is_empty(), "{:?}", world.stored_keys());
    world.wake_up();
    assert_eq!(world.state(), State::Authenticating);
}

#[test]
fn the_store_of_a_provider_is_asked_once_for_many_calls() {
    let mut world = AuthWorld::ready();
    let reads = world.keys.reads.get();
    for _ in 0..10 {
        assert!(world.call("echo").is_ok());
    }
    assert_eq!(world.keys.reads.get(), reads, "tokens are held in memory");
}

#[test]
fn a_client_by_itself_that_may_not_use_one_tool_keeps_the_others() {
    let mut world = AuthWorld::new();
    know(&world.server, "secret-of-its-own");
    world.pier.needs.borrow_mut().insert("write", "w");
    use_without_user(&mut world, |server| {
        server.client(given("secret-of-its-own")).as_client_itself()
    });
    let mcp = world.mcp.clone();
    world.run(mcp.discover_if_connected("pier", None)).unwrap();
    for _ in 0..3 {
        let error = world.call("write").unwrap_err();
        assert_eq!(error.http_status(), Some(403));
        assert_eq!(world.state(), State::Ready);
        assert!(world.call("echo").is_ok());
    }
    assert_eq!(world.server.asked.borrow().len(), 1);
}

#[test]
fn a_client_that_is_given_while_the_user_is_away_is_the_one_that_counts() {
    for same_id in [false, true] {
        for evicted in [false, true] {
            let mut world = AuthWorld::new();
            know(&world.server, "the-new-secret");
            world.watch.secret("the-new-secret");
            if same_id {
                world.register_as("pier", |server| server.client(given("the-old-secret")));
            } else {
                world.register();
            }
            let old = world.connect();
            let back = world.server.consent(&old);
            world.register_as("pier", |server| server.client(given("the-new-secret")));
            assert_eq!(
                futures::executor::block_on(world.mcp.auth_url("pier")).unwrap(),
                None,
                "that URL is of another client"
            );
            if evicted {
                world.wake_up();
            }
            world.come_back_badly(&back);
            assert_eq!(world.server.exchanges(), 0);
            let url = world.connect();
            let back = world.server.consent(&url);
            world.come_back_well(&back);
            assert!(world.call("echo").is_ok());
            let client = world.value("/client_info/");
            assert_eq!(client["client_id"], "given");
            assert_eq!(client["client_secret"], "the-new-secret");
            assert_eq!(world.row().client_id.as_deref(), Some("given"));
        }
    }
}

#[test]
fn a_client_that_is_given_again_changes_nothing() {
    let mut world = AuthWorld::new();
    know(&world.server, "one-and-the-same");
    world.register_as("pier", |server| server.client(given("one-and-the-same")));
    let url = world.connect();
    world.register_as("pier", |server| server.client(given("one-and-the-same")));
    assert_eq!(world.offered(), url);
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    world.register_as("pier", |server| server.client(given("one-and-the-same")));
    world.wake_up();
    assert_eq!(world.state(), State::Ready);
    assert_eq!(world.server.exchanges(), 1);
}

#[test]
fn who_signs_out_while_being_asked_to_sign_in_is_asked_no_more() {
    let mut world = AuthWorld::new();
    world.register();
    let url = world.connect();
    let back = world.server.consent(&url);
    let mcp = world.mcp.clone();
    world.run(mcp.sign_out("pier")).unwrap();
    assert_eq!(
        futures::executor::block_on(world.mcp.auth_url("pier")).unwrap(),
        None
    );
    assert!(world.stored_keys().is_empty());
    world.come_back_badly(&back);
    assert_eq!(world.server.exchanges(), 0);
    world.sign_in();
}

#[test]
fn a_provider_can_have_wishes_of_its_own() {
    let document = "https://gull.example/client.json";
    let mut world = AuthWorld::with(|options| {
        options.create_auth_provider(move |cx| {
            let mut settings = OAuthSettings::default();
            settings.scope = Some("wished for".into());
            settings.dpop = Some(true);
            let provider = StoredOAuthProvider::new(cx)
                .with_settings(settings)
                .with_client_metadata_url(document);
            Ok(Rc::new(provider))
        })
    });
    *world.server.metadata.borrow_mut() = json!({
        "client_id_metadata_document_supported": true,
        "dpop_signing_alg_values_supported": ["ES256"],
    });
    world.server.dpop_nonce.replace(Some("as-nonce-1".into()));
    let known = json!({"token_endpoint_auth_method": "none", "redirect_uris": [CALLBACK]});
    let mut clients = world.server.clients.borrow_mut();
    clients.insert(document.into(), known);
    drop(clients);
    world.register();
    let url = world.connect();
    let asked = query(&url);
    assert_eq!(
        (&*asked["client_id"], &*asked["scope"]),
        (document, "wished for")
    );
    let back = world.server.consent(&url);
    world.come_back_well(&back);
    assert!(world.call("echo").is_ok());
    let sent = world.sent("tools/call");
    assert!(
        sent[0]
            .header("authorization")
            .unwrap()
            .starts_with("DPoP ")
    );
}
