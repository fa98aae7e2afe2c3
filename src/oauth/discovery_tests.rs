use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use async_trait::async_trait;
use futures::executor::block_on;
use futures::future::{LocalBoxFuture, pending, ready};
use futures::{FutureExt as _, StreamExt as _, stream};
use serde_json::{Value, json};

use super::*;
use crate::ports::{Clock, Http, HttpError, HttpRequest, HttpResponse, Timestamp};

const PRM: &str = "https://m.example/.well-known/oauth-protected-resource";
const ORIGIN_OAUTH: &str = "https://m.example/.well-known/oauth-authorization-server";
const ORIGIN_OPENID: &str = "https://m.example/.well-known/openid-configuration";
const AS_OAUTH: &str = "https://as.example/.well-known/oauth-authorization-server";
const AS_OPENID: &str = "https://as.example/.well-known/openid-configuration";

#[derive(Clone)]
enum Answer {
    Body(u16, &'static str, String),
    Json(Value),
    Redirect(u16, &'static str),
    Reset,
    BreaksOff,
    Silence,
}

/// What is served, and what was asked for. Everything else is 404.
#[derive(Default)]
struct Web {
    pages: RefCell<HashMap<String, Answer>>,
    seen: RefCell<Vec<String>>,
    waits: RefCell<Vec<Duration>>,
}

#[async_trait(?Send)]
impl Http for Web {
    async fn send(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
        assert_eq!(request.method, Method::GET);
        assert_eq!(request.headers["accept"], "application/json");
        assert_eq!(request.headers["mcp-protocol-version"], "2025-11-25");
        assert_eq!(request.headers.len(), 2);
        let url = request.url.as_str().to_owned();
        let answer = self.pages.borrow().get(&url).cloned();
        self.seen.borrow_mut().push(url);
        let mut headers = HeaderMap::new();
        let not_found = Answer::Body(404, "text/plain", "Not Found".into());
        let (status, body) = match answer.unwrap_or(not_found) {
            Answer::Body(status, kind, body) => {
                headers.insert("content-type", HeaderValue::from_static(kind));
                (status, vec![Ok(body.into_bytes())])
            }
            Answer::Json(body) => {
                headers.insert("content-type", HeaderValue::from_static("application/json"));
                (200, vec![Ok(body.to_string().into_bytes())])
            }
            Answer::Redirect(status, location) => {
                headers.insert("location", HeaderValue::from_static(location));
                (status, vec![])
            }
            Answer::Reset => return Err(HttpError("reset".into())),
            Answer::BreaksOff => {
                let begun = Ok(b"{\"issuer\":".to_vec());
                (200, vec![begun, Err(HttpError("reset".into()))])
            }
            Answer::Silence => return pending().await,
        };
        Ok(HttpResponse {
            status,
            headers,
            body: stream::iter(body).boxed_local(),
        })
    }
}

impl Clock for Web {
    fn now(&self) -> Timestamp {
        0
    }

    /// Time passes at once where nothing else goes on.
    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()> {
        self.waits.borrow_mut().push(duration);
        ready(()).boxed_local()
    }
}

/// A server, and what is published around it.
struct World {
    web: Rc<Web>,
    server: GuardedUrl,
}

impl World {
    fn new(server: &str) -> Self {
        Self {
            web: Rc::default(),
            server: GuardedUrl::parse(server).unwrap(),
        }
    }

    fn page(self, url: &str, answer: Answer) -> Self {
        self.web.pages.borrow_mut().insert(url.to_owned(), answer);
        self
    }

    fn json(self, url: &str, body: Value) -> Self {
        self.page(url, Answer::Json(body))
    }

    fn status(self, url: &str, status: u16) -> Self {
        self.page(url, Answer::Body(status, "text/html", "<p>".into()))
    }

    /// Resource metadata that names `issuer`, at the path-based place of `/mcp`.
    fn names(self, issuer: &str) -> Self {
        let document = resource("https://m.example/mcp", issuer);
        self.json(&format!("{PRM}/mcp"), document)
    }

    fn run_with(&self, challenge: Option<&str>) -> Result<Discovered, OAuthError> {
        let challenge = challenge.map(|text| Challenge::parse(text).unwrap());
        block_on(discover(&self.net(), &self.server, challenge.as_ref()))
    }

    fn net(&self) -> Net {
        Net {
            http: self.web.clone(),
            clock: self.web.clone(),
        }
    }

    /// The outcome, and the places that were asked, in order.
    fn run(&self) -> (Result<Discovered, OAuthError>, Vec<String>) {
        let outcome = self.run_with(None);
        (outcome, self.seen())
    }

    fn seen(&self) -> Vec<String> {
        self.web.seen.take()
    }

    fn found(&self) -> Discovered {
        let (outcome, seen) = self.run();
        outcome.unwrap_or_else(|error| panic!("{error} after {seen:?}"))
    }

    fn error(&self) -> OAuthError {
        self.run().0.unwrap_err()
    }
}

fn mcp() -> World {
    World::new("https://m.example/mcp")
}

fn resource(resource: &str, issuer: &str) -> Value {
    json!({ "resource": resource, "authorization_servers": [issuer] })
}

fn issuer(issuer: &str) -> Value {
    let base = issuer.trim_end_matches('/');
    json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{base}/a"),
        "token_endpoint": format!("{base}/t"),
        "registration_endpoint": format!("{base}/r"),
        "code_challenge_methods_supported": ["S256"],
    })
}

fn with(mut document: Value, name: &str, value: Value) -> Value {
    document[name] = value;
    document
}

#[test]
fn od_01_no_challenge_at_all() {
    for (place, resource_url) in [
        (format!("{PRM}/v1/mcp"), "https://m.example/v1/mcp"),
        (PRM.to_owned(), "https://m.example"),
    ] {
        let world = World::new("https://m.example/v1/mcp")
            .json(&place, resource(resource_url, "https://as.example"))
            .json(AS_OAUTH, issuer("https://as.example"));
        let (found, seen) = world.run();
        let found = found.unwrap();
        assert_eq!(found.issuer, "https://as.example");
        assert_eq!(found.resource, resource_url);
        assert_eq!(found.resource_metadata_url.as_deref(), Some(place.as_str()));
        assert!(found.is_published);
        let mut expected = vec![format!("{PRM}/v1/mcp")];
        if place == PRM {
            expected.push(place);
        }
        expected.push(AS_OAUTH.into());
        assert_eq!(seen, expected);
    }
}

#[test]
fn od_05_everything_is_404() {
    let (found, seen) = mcp().run();
    let found = found.unwrap();
    assert!(!found.is_published);
    assert_eq!(
        seen,
        [
            format!("{PRM}/mcp"),
            PRM.into(),
            ORIGIN_OAUTH.into(),
            ORIGIN_OPENID.into()
        ]
    );
}

#[test]
fn od_05_web_pages_are_no_documents() {
    for body in [
        "<html>",
        "Not Found",
        "",
        "\"x\"",
        "[]",
        "null",
        "{}",
        r#"{"error":"no"}"#,
    ] {
        let page = Answer::Body(200, "text/html", body.into());
        let world = [&format!("{PRM}/mcp"), PRM, ORIGIN_OAUTH, ORIGIN_OPENID]
            .into_iter()
            .fold(mcp(), |world, url| world.page(url, page.clone()));
        let (found, seen) = world.run();
        assert!(!found.unwrap().is_published, "{body}");
        assert_eq!(seen.len(), 4);
        // One that is named has to publish something, and the message says what was there instead.
        let world = mcp().names("https://as.example");
        let world = world.page(AS_OAUTH, page);
        let error = world.error();
        assert!(!error.is_transient());
        let text = error.to_string();
        assert!(text.contains("publishes no metadata"), "{text}");
        assert!(text.contains("text/html"), "{text}");
    }
}

#[test]
fn od_06_the_first_place_is_in_trouble_and_the_second_is_fine() {
    let troubles = [
        Answer::Body(500, "text/html", String::new()),
        Answer::Body(502, "text/html", String::new()),
        Answer::Body(503, "text/html", String::new()),
        Answer::Body(429, "text/html", String::new()),
        Answer::Silence,
        Answer::Reset,
        Answer::BreaksOff,
    ];
    for trouble in troubles {
        let world = mcp()
            .names("https://as.example")
            .page(AS_OAUTH, trouble.clone())
            .json(AS_OPENID, issuer("https://as.example"));
        assert_eq!(world.found().issuer, "https://as.example");
        let waits = world.web.waits.take();
        assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(5)));
        // The same for the resource metadata.
        let world = mcp()
            .page(&format!("{PRM}/mcp"), trouble)
            .json(PRM, resource("https://m.example/mcp", "https://as.example"))
            .json(AS_OAUTH, issuer("https://as.example"));
        let (found, seen) = world.run();
        assert_eq!(found.unwrap().issuer, "https://as.example");
        assert_eq!(seen, [&format!("{PRM}/mcp"), PRM, AS_OAUTH]);
    }
}

#[test]
fn od_07_trouble_is_not_absence() {
    // Each place alone, with everything else absent; then all of them.
    let named = || mcp().names("https://as.example/t");
    let places = [
        "https://as.example/.well-known/oauth-authorization-server/t",
        "https://as.example/.well-known/openid-configuration/t",
        "https://as.example/t/.well-known/openid-configuration",
    ];
    for place in places {
        for status in [500, 502, 503, 504, 429] {
            let world = named().status(place, status);
            let (outcome, seen) = world.run();
            let OAuthError::Status { status: found, .. } = outcome.unwrap_err() else {
                panic!("{status} at {place}");
            };
            assert_eq!(found, status);
            assert_eq!(seen.len(), 4);
        }
        assert!(named().page(place, Answer::Reset).error().is_transient());
        assert!(named().page(place, Answer::Silence).error().is_transient());
    }
    let places = [&format!("{PRM}/mcp"), PRM, ORIGIN_OAUTH, ORIGIN_OPENID];
    for place in places {
        for status in [500, 502, 503] {
            let error = mcp().status(place, status).error();
            assert!(error.is_transient(), "{status} at {place}: {error}");
        }
        let error = mcp().page(place, Answer::Silence).error();
        assert!(matches!(error, OAuthError::Timeout { .. }), "{place}");
        let error = mcp().page(place, Answer::Reset).error();
        assert!(matches!(error, OAuthError::Network { .. }), "{place}");
    }
    let world = places
        .iter()
        .fold(mcp(), |world, place| world.status(place, 503));
    let (outcome, seen) = world.run();
    assert!(outcome.unwrap_err().is_transient());
    // No way leads from trouble to the procedure of 2025-03-26.
    assert_eq!(seen, [&format!("{PRM}/mcp"), PRM]);
}

#[test]
fn a_bad_gateway_may_mean_that_there_is_no_resource_metadata() {
    let world = mcp()
        .status(&format!("{PRM}/mcp"), 502)
        .status(PRM, 502)
        .json(ORIGIN_OAUTH, issuer("https://m.example"));
    assert!(world.found().is_published);
    // But not where the server itself says that there is some.
    let world = world.status("https://m.example/odd", 502);
    let challenge = r#"Bearer resource_metadata="https://m.example/odd""#;
    world.seen();
    let error = world.run_with(Some(challenge)).unwrap_err();
    assert!(error.is_transient());
    assert_eq!(world.seen(), ["https://m.example/odd"]);
}

#[test]
fn od_10_another_issuer() {
    for (found, shown) in [
        (json!("https://other.example"), "https://other.example"),
        (
            json!("https://as.example/backend"),
            "https://as.example/backend",
        ),
        (json!("https://as.example/"), "https://as.example/"),
        (json!("https://AS.example"), "https://AS.example"),
        (json!(null), "no issuer"),
        (json!(["https://as.example"]), "no issuer"),
        (json!(""), "no issuer"),
    ] {
        let document = with(issuer("https://other.example"), "issuer", found);
        let world = mcp()
            .names("https://as.example")
            .json(AS_OAUTH, document)
            .json(AS_OPENID, issuer("https://as.example"));
        let (outcome, seen) = world.run();
        let error = outcome.unwrap_err();
        assert!(matches!(error, OAuthError::IssuerMismatch { .. }));
        let text = error.to_string();
        assert!(text.contains(shown), "{text}");
        assert!(text.contains("expected to be https://as.example"), "{text}");
        assert_eq!(seen, [&format!("{PRM}/mcp"), AS_OAUTH]);
    }
}

#[test]
fn a_slash_may_differ_only_where_the_issuer_was_made_up() {
    for text in ["https://m.example", "https://m.example/"] {
        let found = mcp().json(ORIGIN_OAUTH, issuer(text)).found();
        assert_eq!(found.issuer, text);
        assert_eq!(found.server.issuer, text);
    }
    for text in [
        "https://m.example//",
        "https://m.example/mcp",
        "http://m.example",
    ] {
        let error = mcp().json(ORIGIN_OAUTH, issuer(text)).error();
        assert!(matches!(error, OAuthError::IssuerMismatch { .. }), "{text}");
    }
    // A name with a slash is kept with it.
    let world = mcp()
        .names("https://as.example/")
        .json(AS_OAUTH, issuer("https://as.example/"));
    assert_eq!(world.found().issuer, "https://as.example/");
}

#[test]
fn od_12_another_resource() {
    for text in [
        "http://other.example/api",
        "https://other.example/api",
        "https://m.example/api-evil",
        "https://m.example/ap",
        "https://m.example/API",
        "https://m.example/api/x",
        "https://m.example/%61pi",
        "https://m.example/x/../api",
        "https://m.example/%2e%2E/api",
        "https://m.example:444/api",
        "http://m.example/api",
        "https://m.example.evil.example/api",
        "https://user@m.example/api",
        "https://m.example\\api",
        "https:m.example/api",
        "https:///m.example/api",
        " https://m.example/api",
        "https://m.example/a\tpi",
        "https://m.example/api#x",
        "/api",
        "m.example/api",
        "",
    ] {
        let world = World::new("https://m.example/api")
            .json(&format!("{PRM}/api"), resource(text, "https://as.example"))
            .json(AS_OAUTH, issuer("https://as.example"));
        let (outcome, seen) = world.run();
        let error = outcome.expect_err(text);
        let is_mismatch = matches!(error, OAuthError::ResourceMismatch { .. });
        assert!(is_mismatch, "{text}: {error}");
        assert_eq!(seen.len(), 1, "{text}");
    }
}

#[test]
fn resources_above_the_server_are_taken_to_the_letter() {
    for (server, text) in [
        ("https://m.example/api/v1", "https://m.example/api/v1"),
        ("https://m.example/api/v1", "https://m.example/api/v1/"),
        ("https://m.example/api/v1/", "https://m.example/api/v1"),
        ("https://m.example/api/v1", "https://m.example/api"),
        ("https://m.example/api/v1", "https://m.example"),
        ("https://m.example/api/v1", "https://m.example/"),
        ("https://m.example/api/v1", "HTTPS://M.example:443/api/v1"),
        ("https://m.example", "https://m.example"),
        ("https://m.example", "https://m.example/"),
    ] {
        let path = GuardedUrl::parse(server).unwrap();
        let place = format!("{PRM}{}", inserted(path.url()));
        let world = World::new(server)
            .json(&place, resource(text, "https://as.example"))
            .json(AS_OAUTH, issuer("https://as.example"));
        let (outcome, seen) = world.run();
        assert_eq!(outcome.unwrap().resource, text);
        assert_eq!(seen, [place.as_str(), AS_OAUTH]);
    }
}

#[test]
fn od_13_a_server_with_a_query() {
    for text in ["https://m.example/mcp", "https://m.example/mcp?v=1"] {
        let place = format!("{PRM}/mcp?v=2");
        let world = World::new("https://m.example/mcp?v=2")
            .json(&place, resource(text, "https://as.example"))
            .json(AS_OAUTH, issuer("https://as.example"));
        let (outcome, seen) = world.run();
        assert_eq!(outcome.unwrap().resource, text);
        assert_eq!(seen, [place.as_str(), AS_OAUTH]);
    }
    let (_, seen) = World::new("https://m.example/?v=2").run();
    assert_eq!(seen[..2], [format!("{PRM}?v=2"), PRM.into()]);
    let (_, seen) = World::new("https://m.example/#f").run();
    assert_eq!(seen, [PRM, ORIGIN_OAUTH, ORIGIN_OPENID]);
}

#[test]
fn od_17_no_authorization_servers() {
    let base = json!({ "resource": "https://m.example/mcp" });
    for list in [
        json!(null),
        json!([]),
        json!(["not a url"]),
        json!([1, null, {}]),
        json!("https://as.example"),
        json!({}),
        json!([""]),
    ] {
        let document = with(base.clone(), "authorization_servers", list.clone());
        let world = mcp().json(&format!("{PRM}/mcp"), document);
        let (outcome, seen) = world.run();
        let error = outcome.unwrap_err();
        assert!(
            error.to_string().contains("authorization_servers"),
            "{error}"
        );
        assert!(!error.is_transient());
        assert_eq!(seen, [&format!("{PRM}/mcp"), ORIGIN_OAUTH, ORIGIN_OPENID]);
        let world = world.json(ORIGIN_OAUTH, issuer("https://m.example"));
        let found = world.found();
        assert_eq!(found.issuer, "https://m.example", "{list}");
        assert_eq!(found.resource, "https://m.example/mcp");
        assert!(found.is_published && found.resource_metadata.is_some());
        assert!(world.status(ORIGIN_OAUTH, 503).error().is_transient());
    }
    let world = mcp().json(&format!("{PRM}/mcp"), base);
    let world = world.json(ORIGIN_OPENID, issuer("https://m.example"));
    assert_eq!(world.found().issuer, "https://m.example");
}

#[test]
fn od_18_the_named_server_and_no_other() {
    let world = mcp()
        .names("https://as.example")
        .json(ORIGIN_OAUTH, issuer("https://m.example"));
    let error = world.error();
    assert!(matches!(error, OAuthError::Unusable { .. }), "{error}");
    let world = world.json(AS_OAUTH, issuer("https://as.example"));
    world.seen();
    let (outcome, seen) = world.run();
    let server = outcome.unwrap().server;
    for endpoint in [
        server.authorization_endpoint,
        server.token_endpoint,
        server.registration_endpoint,
    ] {
        assert!(endpoint.unwrap().starts_with("https://as.example/"));
    }
    assert_eq!(seen, [&format!("{PRM}/mcp"), AS_OAUTH]);
}

#[test]
fn one_of_several_servers_is_chosen() {
    let listed = |servers: Value| {
        let document = resource("https://m.example/mcp", "");
        let document = with(document, "authorization_servers", servers);
        mcp()
            .json(&format!("{PRM}/mcp"), document)
            .json(AS_OAUTH, issuer("https://as.example"))
            .json(
                "https://two.example/.well-known/oauth-authorization-server",
                issuer("https://two.example"),
            )
    };
    let two = json!(["https://as.example", "https://two.example"]);
    for (preferred, expected) in [
        (None, "https://as.example"),
        (Some("https://two.example"), "https://two.example"),
        (Some("https://three.example"), "https://as.example"),
        (Some("https://two.example/"), "https://as.example"),
    ] {
        let world = listed(two.clone());
        let net = world.net();
        let found = block_on(discover_preferring(&net, &world.server, None, preferred));
        assert_eq!(found.unwrap().issuer, expected);
        assert_eq!(world.seen().len(), 2);
    }
    for refused in [
        "http://127.0.0.1:9",
        "https://10.0.0.1",
        "http://two.example",
        "ftp://two.example",
        "https://two.example?x",
        "https://two.example#x",
        "https:two.example",
        "not a url",
    ] {
        let found = listed(json!([refused, "https://as.example"])).found();
        assert_eq!(found.issuer, "https://as.example", "{refused}");
        if refused != "not a url" {
            let (outcome, seen) = listed(json!([refused])).run();
            outcome.expect_err(refused);
            assert_eq!(seen.len(), 1, "{refused}");
        }
    }
}

#[test]
fn od_20_pkce() {
    let methods = |methods: Value| {
        let document = issuer("https://as.example");
        let document = with(document, "code_challenge_methods_supported", methods);
        let world = mcp().names("https://as.example");
        world.json(AS_OAUTH, document).found()
    };
    for (listed, allow_missing, passes) in [
        (json!(["plain", "S256"]), false, true),
        (json!(["plain"]), false, false),
        (json!(["plain"]), true, false),
        (json!([]), true, false),
        (json!(["s256"]), true, false),
        (json!([1]), true, false),
        (json!(null), false, false),
        (json!(null), true, true),
        (json!("S256"), false, false),
    ] {
        let found = methods(listed.clone());
        let outcome = found.check_pkce(allow_missing);
        assert_eq!(outcome.is_ok(), passes, "{listed}");
        assert_eq!(found.server.check_pkce(allow_missing).is_ok(), passes);
        if let Err(error) = outcome {
            assert!(error.to_string().contains("PKCE with S256"), "{error}");
        }
    }
    // Nothing published, nothing to check.
    let found = mcp().found();
    found.check_pkce(false).unwrap();
    found.server.check_code_flow().unwrap();
}

#[test]
fn the_code_flow_is_checked() {
    for (name, value, passes) in [
        ("response_types_supported", json!(null), true),
        ("response_types_supported", json!(["token", "code"]), true),
        ("response_types_supported", json!(["code token"]), false),
        ("response_types_supported", json!([]), false),
        ("authorization_endpoint", json!(null), false),
    ] {
        let document = with(issuer("https://as.example"), name, value.clone());
        let world = mcp().names("https://as.example");
        let found = world.json(AS_OAUTH, document).found();
        let outcome = found.server.check_code_flow();
        assert_eq!(outcome.is_ok(), passes, "{value}");
    }
}

#[test]
fn od_21_dangerous_endpoints() {
    for name in [
        "authorization_endpoint",
        "token_endpoint",
        "registration_endpoint",
    ] {
        for url in [
            "javascript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "ftp://as.example/a",
            "/a",
            "",
            "https://10.0.0.1/a",
            "https://[::ffff:a9fe:a9fe]/a",
            "http://localhost/a",
            "https://user:pw@as.example/a",
            "http://as.example/a",
        ] {
            let document = with(issuer("https://as.example"), name, json!(url));
            let world = mcp()
                .names("https://as.example")
                .json(AS_OAUTH, document)
                .json(AS_OPENID, issuer("https://as.example"));
            let (outcome, seen) = world.run();
            let error = outcome.expect_err(url);
            let is_refused = match url {
                "http://as.example/a" => matches!(error, OAuthError::Insecure { .. }),
                _ => matches!(error, OAuthError::Blocked { .. }),
            };
            assert!(is_refused, "{name} {url}: {error}");
            assert!(!error.to_string().contains("alert"), "{error}");
            assert_eq!(seen.len(), 2);
        }
    }
}

#[test]
fn places_that_the_server_may_not_name_are_not_asked() {
    for url in [
        "http://127.0.0.1:8080/x",
        "https://localhost/x",
        "https://10.0.0.1/x",
        "http://169.254.169.254/latest",
        "http://m.example/x",
    ] {
        let world = mcp();
        let challenge = format!("Bearer resource_metadata=\"{url}\"");
        world.run_with(Some(&challenge)).expect_err(url);
        assert!(world.seen().is_empty(), "{url}");
    }
    // A server that is on this machine itself may.
    let metadata = "http://127.0.0.1:9001/x";
    let world = World::new("http://localhost:9000/mcp")
        .json(
            metadata,
            resource("http://localhost:9000", "http://127.0.0.1:9001"),
        )
        .json(
            "http://127.0.0.1:9001/.well-known/oauth-authorization-server",
            issuer("http://127.0.0.1:9001"),
        );
    let challenge = format!("Bearer resource_metadata=\"{metadata}\"");
    let found = world.run_with(Some(&challenge)).unwrap();
    assert_eq!(found.issuer, "http://127.0.0.1:9001");
    // Nobody signs in where everybody can listen.
    let error = World::new("http://m.example/mcp").error();
    assert!(matches!(error, OAuthError::Insecure { .. }), "{error}");
}

#[test]
fn redirects_are_followed_at_home() {
    let world = mcp()
        .page(&format!("{PRM}/mcp"), Answer::Redirect(301, "/prm"))
        .json(
            "https://m.example/prm",
            resource("https://m.example/mcp", "https://as.example"),
        )
        .page(AS_OAUTH, Answer::Redirect(302, "https://login.example/"))
        .json(AS_OPENID, issuer("https://as.example"));
    let (outcome, seen) = world.run();
    assert_eq!(outcome.unwrap().issuer, "https://as.example");
    assert_eq!(
        seen,
        [
            &format!("{PRM}/mcp"),
            "https://m.example/prm",
            AS_OAUTH,
            AS_OPENID
        ]
    );
}

#[test]
fn members_of_a_wrong_type_do_not_lose_the_sign_in() {
    let odd = json!({ "x": [1] });
    let names = [
        "scopes_supported",
        "response_types_supported",
        "grant_types_supported",
        "registration_endpoint",
        "revocation_endpoint",
        "token_endpoint_auth_methods_supported",
        "token_endpoint_auth_signing_alg_values_supported",
        "client_id_metadata_document_supported",
        "authorization_response_iss_parameter_supported",
        "dpop_signing_alg_values_supported",
        "authorization_grant_profiles_supported",
    ];
    let document = names
        .iter()
        .fold(issuer("https://as.example"), |document, name| {
            with(document, name, odd.clone())
        });
    let metadata = resource("https://m.example/mcp", "https://as.example");
    let metadata = with(metadata, "scopes_supported", json!(7));
    let metadata = with(metadata, "dpop_bound_access_tokens_required", json!("yes"));
    let world = mcp()
        .json(&format!("{PRM}/mcp"), metadata)
        .json(AS_OAUTH, document);
    let found = world.found();
    let expected = ServerMetadata {
        registration_endpoint: None,
        ..ServerMetadata::of_origin("https://as.example")
    };
    let expected = ServerMetadata {
        authorization_endpoint: Some("https://as.example/a".into()),
        token_endpoint: Some("https://as.example/t".into()),
        code_challenge_methods_supported: Some(vec!["S256".into()]),
        ..expected
    };
    assert_eq!(found.server, expected);
    let metadata = found.resource_metadata.unwrap();
    assert_eq!(metadata.scopes_supported, None);
    assert!(!metadata.dpop_bound_access_tokens_required);
}

#[test]
fn documents_are_read_in_full_and_bounded() {
    let scopes = json!(["a", 1, "b c", "é", "", null, "d\"", "e"]);
    let document = with(issuer("https://as.example"), "scopes_supported", scopes);
    let document = with(
        document,
        "client_id_metadata_document_supported",
        json!(true),
    );
    let many: Vec<_> = (0..10_000).map(|n| format!("g{n}")).collect();
    let document = with(document, "grant_types_supported", json!(many));
    let text = format!("\u{feff}{document}");
    let world = mcp()
        .names("https://as.example")
        .page(AS_OAUTH, Answer::Body(200, "text/plain", text));
    let server = world.found().server;
    assert_eq!(server.scopes_supported.unwrap(), ["a", "b", "c", "e"]);
    assert!(server.client_id_metadata_document_supported);
    assert!(server.grant_types_supported.unwrap().len() <= 256);
    // Too long, and too deep.
    let long = with(
        issuer("https://as.example"),
        "x",
        json!("x".repeat(300_000)),
    );
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    for body in [long.to_string(), format!("{{\"issuer\":{deep}}}"), deep] {
        let world = mcp()
            .names("https://as.example")
            .page(AS_OAUTH, Answer::Body(200, "application/json", body));
        assert!(!world.error().is_transient());
    }
    // Without the endpoint that every use needs.
    let document = with(issuer("https://as.example"), "token_endpoint", json!(null));
    let world = mcp().names("https://as.example").json(AS_OAUTH, document);
    assert!(world.error().to_string().contains("token_endpoint"));
    // Resource metadata about nothing.
    let metadata = json!({ "authorization_servers": ["https://as.example"] });
    let (outcome, seen) = mcp().json(&format!("{PRM}/mcp"), metadata).run();
    assert!(outcome.unwrap_err().to_string().contains("resource"));
    assert_eq!(seen.len(), 1);
}

#[test]
fn texts_of_servers_are_shown_on_one_short_line() {
    let text = format!("https://other.example/\n\u{202e}\0{}", "x".repeat(1_500));
    let metadata = resource(&text, "https://as.example");
    let error = mcp().json(&format!("{PRM}/mcp"), metadata).error();
    let OAuthError::ResourceMismatch { found, .. } = error else {
        panic!("{error}");
    };
    assert!(found.starts_with("https://other.example/xxx"));
    assert_eq!(found.chars().count(), 201);
}

#[test]
fn the_canonical_url_of_a_server() {
    for (server, expected) in [
        ("HTTPS://M.Example", "https://m.example"),
        ("https://m.example/", "https://m.example"),
        ("https://m.example:443/mcp#x", "https://m.example/mcp"),
        ("https://m.example/mcp/", "https://m.example/mcp/"),
        ("https://m.example:8443/", "https://m.example:8443"),
        ("https://m.example/mcp?v=2", "https://m.example/mcp?v=2"),
    ] {
        assert_eq!(World::new(server).found().resource, expected, "{server}");
    }
}

/// The server of the conformance suite, its authorization server, and the latter's documents.
const SUITE: &str = "http://localhost:9000";
const SUITE_AS: &str = "http://localhost:9001";

#[test]
fn conformance_metadata_default() {
    let place = format!("{SUITE}/.well-known/oauth-protected-resource/mcp");
    let metadata = format!("{SUITE_AS}/.well-known/oauth-authorization-server");
    let world = World::new("http://localhost:9000/mcp")
        .json(&place, resource("http://localhost:9000/mcp", SUITE_AS))
        .json(&metadata, issuer(SUITE_AS));
    let challenge = format!("Bearer resource_metadata=\"{place}\"");
    let found = world.run_with(Some(&challenge)).unwrap();
    assert_eq!(found.resource, "http://localhost:9000/mcp");
    assert_eq!(world.seen(), [place, metadata]);
}

#[test]
fn conformance_metadata_var1() {
    let place = format!("{SUITE}/.well-known/oauth-protected-resource/mcp");
    let metadata = format!("{SUITE_AS}/.well-known/openid-configuration");
    let world = World::new("http://localhost:9000/mcp")
        .json(&place, resource("http://localhost:9000/mcp", SUITE_AS))
        .json(&metadata, issuer(SUITE_AS));
    world.run_with(Some("Bearer")).unwrap();
    let first = format!("{SUITE_AS}/.well-known/oauth-authorization-server");
    assert_eq!(world.seen(), [place, first, metadata]);
}

#[test]
fn conformance_metadata_var2() {
    let tenant = format!("{SUITE_AS}/tenant1");
    let place = format!("{SUITE}/.well-known/oauth-protected-resource");
    let metadata = format!("{SUITE_AS}/.well-known/oauth-authorization-server/tenant1");
    let world = World::new("http://localhost:9000/mcp")
        .json(&place, resource(SUITE, &tenant))
        .json(&metadata, issuer(&tenant));
    let (outcome, seen) = world.run();
    assert_eq!(outcome.unwrap().resource, SUITE);
    assert_eq!(seen, [format!("{place}/mcp"), place, metadata]);
}

#[test]
fn conformance_metadata_var3() {
    let tenant = format!("{SUITE_AS}/tenant1");
    let place = format!("{SUITE}/custom/metadata/location.json");
    let metadata = format!("{SUITE_AS}/tenant1/.well-known/openid-configuration");
    let world = World::new("http://localhost:9000/mcp")
        .json(&place, resource("http://localhost:9000/mcp", &tenant))
        .json(&metadata, issuer(&tenant));
    let challenge = format!("Bearer resource_metadata=\"{place}\"");
    world.run_with(Some(&challenge)).unwrap();
    let others = [
        format!("{SUITE_AS}/.well-known/oauth-authorization-server/tenant1"),
        format!("{SUITE_AS}/.well-known/openid-configuration/tenant1"),
    ];
    let [first, second] = others;
    assert_eq!(world.seen(), [place, first, second, metadata]);
}

#[test]
fn an_issuer_with_a_slash_at_its_end() {
    let world = mcp().names("https://as.example/t/");
    let (_, seen) = world.run();
    assert_eq!(
        seen[1..],
        [
            "https://as.example/.well-known/oauth-authorization-server/t",
            "https://as.example/.well-known/openid-configuration/t",
            "https://as.example/t/.well-known/openid-configuration",
        ]
    );
    let world = world.json(&seen[1], issuer("https://as.example/t/"));
    assert_eq!(world.found().issuer, "https://as.example/t/");
}

#[test]
fn conformance_resource_mismatch() {
    let place = format!("{SUITE}/.well-known/oauth-protected-resource/mcp");
    let document = resource("https://evil.example.com/mcp", SUITE_AS);
    let world = World::new("http://localhost:9000/mcp").json(&place, document);
    let (outcome, seen) = world.run();
    let error = outcome.unwrap_err();
    assert!(matches!(error, OAuthError::ResourceMismatch { .. }));
    assert_eq!(seen, [place]);
}

#[test]
fn conformance_2025_03_26_metadata_backcompat() {
    let metadata = format!("{SUITE}/.well-known/oauth-authorization-server");
    let document = issuer(SUITE);
    let document = with(
        document,
        "token_endpoint",
        json!(format!("{SUITE}/oauth/token")),
    );
    let world = World::new("http://localhost:9000/mcp").json(&metadata, document);
    let (outcome, seen) = world.run();
    let found = outcome.unwrap();
    assert!(found.is_published);
    assert_eq!(found.issuer, SUITE);
    assert_eq!(found.resource, "http://localhost:9000/mcp");
    let endpoint = found.server.token_endpoint.unwrap();
    assert_eq!(endpoint, "http://localhost:9000/oauth/token");
    let prm = format!("{SUITE}/.well-known/oauth-protected-resource");
    assert_eq!(seen, [format!("{prm}/mcp"), prm, metadata]);
}

#[test]
fn conformance_2025_03_26_endpoint_fallback() {
    let world = World::new("http://localhost:9000/mcp");
    let found = world.found();
    assert!(!found.is_published);
    assert_eq!(found.issuer, SUITE);
    let server = found.server;
    assert_eq!(
        [
            server.authorization_endpoint,
            server.token_endpoint,
            server.registration_endpoint
        ]
        .map(Option::unwrap),
        ["authorize", "token", "register"].map(|path| format!("{SUITE}/{path}"))
    );
    assert_eq!(server.revocation_endpoint, None);
}
