//! An authorization server in memory, and a watch over what is said of secrets.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use futures::channel::oneshot;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use url::Url;
use workers_agents::Error;
use workers_agents::ports::Clock as _;

use super::{ManualClock, Network, Reply, Seen, World};

/// A form, or a query.
pub type Form = BTreeMap<String, String>;

fn form(text: &str) -> Form {
    url::form_urlencoded::parse(text.as_bytes())
        .into_owned()
        .collect()
}

pub fn query(url: &Url) -> Form {
    url.query_pairs().into_owned().collect()
}

/// What must not be shown, and what was shown.
#[derive(Default)]
pub struct Watch {
    secrets: RefCell<BTreeSet<String>>,
    shown: RefCell<Vec<String>>,
}

impl Watch {
    pub fn secret(&self, secret: &str) {
        if secret.len() >= 4 {
            self.secrets.borrow_mut().insert(secret.to_owned());
        }
    }

    pub fn shown(&self, text: String) {
        self.shown.borrow_mut().push(text);
    }

    pub fn error(&self, error: &Error) {
        self.shown(format!("{error} | {} | {error:?}", error.describe()));
    }

    /// The texts that hold a secret.
    pub fn leaks(&self) -> Vec<String> {
        let (secrets, shown) = (self.secrets.borrow(), self.shown.borrow());
        let leaks = |text: &&String| secrets.iter().any(|secret| text.contains(secret.as_str()));
        shown.iter().filter(leaks).cloned().collect()
    }

    /// The secrets that a store holds in the clear.
    pub fn found_in(&self, text: &str) -> Vec<String> {
        let secrets = self.secrets.borrow();
        let found = secrets
            .iter()
            .filter(|secret| text.contains(secret.as_str()));
        found.cloned().collect()
    }

    /// Forgets what was shown.
    pub fn forget(&self) {
        self.shown.take();
    }
}

struct Code {
    client_id: String,
    challenge: String,
    redirect_uri: String,
    scope: Option<String>,
    resource: Option<String>,
}

#[derive(Clone)]
struct Issued {
    access_token: String,
    refresh_token: Option<String>,
    scope: Option<String>,
    ends_at: Option<u64>,
    is_good: bool,
    /// The sign-in that it comes from.
    family: u32,
    is_bound: bool,
}

/// A request for tokens.
#[derive(Clone)]
pub struct Asked {
    pub form: Form,
    pub authorization: Option<String>,
    pub dpop: Option<String>,
    pub url: String,
}

impl Asked {
    pub fn grant(&self) -> &str {
        &self.form["grant_type"]
    }
}

/// An authorization server.
pub struct AuthServer {
    pub issuer: String,
    clock: Rc<ManualClock>,
    watch: Rc<Watch>,
    number: Cell<u32>,
    /// Clients by id, as registered.
    pub clients: RefCell<BTreeMap<String, Value>>,
    /// What was sent to register.
    pub registrations: RefCell<Vec<Value>>,
    codes: RefCell<BTreeMap<String, Code>>,
    issued: RefCell<Vec<Issued>>,
    /// Every request for tokens.
    pub asked: RefCell<Vec<Asked>>,
    /// Every request to take tokens back.
    pub revoked: RefCell<Vec<Asked>>,
    /// Members of its metadata, over the usual ones. Null takes one out.
    pub metadata: RefCell<Value>,
    /// Members of the answer to a registration, over the usual ones.
    pub registration: RefCell<Value>,
    /// What the next requests for tokens are answered with, in place of tokens.
    pub instead: RefCell<VecDeque<Reply>>,
    /// What every refresh is answered with, in place of tokens.
    pub refuses_refresh: RefCell<Option<(u16, Value)>>,
    /// The next answer of the token endpoint waits for this.
    pub gate: RefCell<Option<oneshot::Receiver<()>>>,
    /// Null where it is not said.
    pub expires_in: RefCell<Value>,
    pub rotates: Cell<bool>,
    /// Whether an answer to a refresh repeats refresh token and scope.
    pub is_terse: Cell<bool>,
    pub gives_refresh: Cell<bool>,
    pub names_itself: Cell<bool>,
    /// Whether it has metadata.
    pub is_published: Cell<bool>,
    /// What it grants in place of what it is asked for.
    pub grants: RefCell<Option<String>>,
    /// Binds tokens to keys, and wants to see this nonce.
    pub dpop_nonce: RefCell<Option<String>>,
}

impl AuthServer {
    pub fn new(issuer: &str, world: &World, watch: &Rc<Watch>) -> Rc<Self> {
        let server = Rc::new(Self {
            issuer: issuer.to_owned(),
            clock: world.clock.clone(),
            watch: watch.clone(),
            number: Cell::new(0),
            clients: RefCell::default(),
            registrations: RefCell::default(),
            codes: RefCell::default(),
            issued: RefCell::default(),
            asked: RefCell::default(),
            revoked: RefCell::default(),
            metadata: RefCell::new(json!({})),
            registration: RefCell::new(json!({})),
            instead: RefCell::default(),
            refuses_refresh: RefCell::default(),
            gate: RefCell::default(),
            expires_in: RefCell::new(json!(3600)),
            rotates: Cell::new(true),
            is_terse: Cell::new(false),
            gives_refresh: Cell::new(true),
            names_itself: Cell::new(false),
            is_published: Cell::new(true),
            grants: RefCell::default(),
            dpop_nonce: RefCell::default(),
        });
        server.serve(&world.network);
        server
    }

    fn serve(self: &Rc<Self>, network: &Network) {
        let this = self.clone();
        let at = format!("{}/.well-known/oauth-authorization-server", self.issuer);
        network.serve(&at, move |_| {
            if this.is_published.get() {
                Reply::Json(200, this.document())
            } else {
                Reply::status(404)
            }
        });
        let this = self.clone();
        network.serve(&format!("{}/register", self.issuer), move |seen| {
            this.register(seen)
        });
        self.serve_tokens(network, &format!("{}/token", self.issuer));
        let this = self.clone();
        network.serve(&format!("{}/revoke", self.issuer), move |seen| {
            this.revoked.borrow_mut().push(asked(seen));
            Reply::status(200)
        });
    }

    /// Takes requests for tokens here, too.
    pub fn serve_tokens(self: &Rc<Self>, network: &Network, url: &str) {
        let this = self.clone();
        network.serve(url, move |seen| this.token(seen));
    }

    fn document(&self) -> Value {
        let issuer = &self.issuer;
        let mut document = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize?tenant=1"),
            "token_endpoint": format!("{issuer}/token"),
            "registration_endpoint": format!("{issuer}/register"),
            "revocation_endpoint": format!("{issuer}/revoke"),
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported":
                ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"],
            "authorization_response_iss_parameter_supported": self.names_itself.get(),
        });
        merge(&mut document, &self.metadata.borrow());
        document
    }

    fn next(&self, what: &str) -> String {
        self.number.set(self.number.get() + 1);
        let host = self.issuer.trim_start_matches("https://");
        format!("{what}-{}-{host}", self.number.get())
    }

    fn secret(&self, what: &str) -> String {
        let secret = self.next(what);
        self.watch.secret(&secret);
        secret
    }

    fn register(&self, seen: &Seen) -> Reply {
        self.registrations.borrow_mut().push(seen.body.clone());
        let mut answer = seen.body.clone();
        answer["client_id"] = self.next("client").into();
        // Not for it to say.
        answer["issuer"] = "https://evil.example".into();
        merge(&mut answer, &self.registration.borrow());
        if let Some(secret) = answer["client_secret"].as_str() {
            self.watch.secret(secret);
        }
        let id = answer["client_id"].as_str().unwrap().to_owned();
        self.clients.borrow_mut().insert(id, answer.clone());
        Reply::Json(201, answer)
    }

    pub fn forget_clients(&self) {
        self.clients.borrow_mut().clear();
    }

    /// The user consents. Gives the URL that the browser is sent back to.
    pub fn consent(&self, url: &Url) -> Url {
        let asked = query(url);
        let own = asked.get("tenant").map(String::as_str);
        let is_published = self.is_published.get();
        assert_eq!(own, is_published.then_some("1"), "the endpoint's own query");
        assert_eq!(url.path(), "/authorize");
        self.watch.secret(asked["state"].split_once('.').unwrap().0);
        let client_id = asked["client_id"].clone();
        let clients = self.clients.borrow();
        let client = clients.get(&client_id).expect("a known client");
        let redirect_uri = &asked["redirect_uri"];
        let known = client["redirect_uris"].as_array().unwrap();
        assert!(known.contains(&json!(redirect_uri)), "{redirect_uri}");
        assert_eq!(asked["code_challenge_method"], "S256");
        let code = self.secret("code");
        let granted = Code {
            client_id,
            challenge: asked["code_challenge"].clone(),
            redirect_uri: redirect_uri.clone(),
            scope: asked.get("scope").cloned(),
            resource: asked.get("resource").cloned(),
        };
        self.codes.borrow_mut().insert(code.clone(), granted);
        self.answer(url, &[("code", &code)])
    }

    /// The user does not consent.
    pub fn deny(&self, url: &Url) -> Url {
        self.watch
            .secret(query(url)["state"].split_once('.').unwrap().0);
        let text = "<b>not today</b>";
        self.answer(
            url,
            &[("error", "access_denied"), ("error_description", text)],
        )
    }

    pub fn answer(&self, url: &Url, parameters: &[(&str, &str)]) -> Url {
        let asked = query(url);
        let mut back = Url::parse(&asked["redirect_uri"]).unwrap();
        back.query_pairs_mut()
            .extend_pairs(parameters)
            .append_pair("state", &asked["state"]);
        if self.names_itself.get() {
            back.query_pairs_mut().append_pair("iss", &self.issuer);
        }
        back
    }

    fn token(&self, seen: &Seen) -> Reply {
        let asked = asked(seen);
        for (name, value) in &asked.form {
            if matches!(
                name.as_str(),
                "code_verifier" | "client_secret" | "client_assertion" | "assertion"
            ) {
                self.watch.secret(value);
            }
        }
        self.asked.borrow_mut().push(asked.clone());
        let answer = self.token_answer(&asked);
        match self.gate.take() {
            Some(gate) => Reply::Later(gate, Box::new(answer)),
            None => answer,
        }
    }

    fn token_answer(&self, asked: &Asked) -> Reply {
        let nonce = self.dpop_nonce.borrow();
        if let Some(nonce) = &*nonce {
            let proof = asked.dpop.as_deref().map(claims);
            if proof.is_none_or(|proof| proof["nonce"] != **nonce) {
                return error_reply(400, "use_dpop_nonce").with("dpop-nonce", nonce);
            }
        }
        let is_bound = nonce.is_some();
        if let Some(reply) = self.instead.borrow_mut().pop_front() {
            return reply;
        }
        let refusal = self.refuses_refresh.borrow().clone();
        if let Some((status, body)) = refusal.filter(|_| asked.grant() == "refresh_token") {
            return Reply::Json(status, body);
        }
        let form = &asked.form;
        match asked.grant() {
            "authorization_code" => {
                let Some(client_id) = self.client(asked) else {
                    return error_reply(401, "invalid_client");
                };
                // Each is good once.
                let Some(code) = self.codes.borrow_mut().remove(&form["code"]) else {
                    return error_reply(400, "invalid_grant");
                };
                let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&form["code_verifier"]));
                let fits = code.client_id == client_id
                    && code.challenge == challenge
                    && code.redirect_uri == form["redirect_uri"]
                    && code.resource.as_ref() == form.get("resource");
                if !fits {
                    return error_reply(400, "invalid_grant");
                }
                self.number.set(self.number.get() + 1);
                self.issue(code.scope, self.number.get(), None, is_bound)
            }
            "refresh_token" => {
                if self.client(asked).is_none() {
                    return error_reply(401, "invalid_client");
                }
                let token = &form["refresh_token"];
                let issued = self.issued.borrow();
                let of = |issued: &&Issued| issued.refresh_token.as_ref() == Some(token);
                let Some(old) = issued.iter().rev().find(of).cloned() else {
                    return error_reply(400, "invalid_grant");
                };
                drop(issued);
                let mut issued = self.issued.borrow_mut();
                let of_family = issued
                    .iter_mut()
                    .filter(|issued| issued.family == old.family);
                let mut spent = false;
                for other in of_family {
                    if self.rotates.get() && other.refresh_token.as_ref() == Some(token) {
                        spent |= !other.is_good;
                        other.is_good = false;
                    }
                }
                drop(issued);
                if spent {
                    // Somebody has stolen it: nothing of the family is good any more.
                    self.end_grants();
                    return error_reply(400, "invalid_grant");
                }
                let kept = (!self.rotates.get()).then(|| token.clone());
                self.issue(old.scope, old.family, kept, is_bound)
            }
            "client_credentials" => {
                if self.client(asked).is_none() {
                    return error_reply(401, "invalid_client");
                }
                self.issue(form.get("scope").cloned(), 0, None, is_bound)
            }
            _ => self.issue(form.get("scope").cloned(), 0, None, is_bound),
        }
    }

    /// Who asks, if it can show that.
    fn client(&self, asked: &Asked) -> Option<String> {
        let (mut id, mut secret) = (
            asked.form.get("client_id").cloned(),
            asked.form.get("client_secret").cloned(),
        );
        let mut method = if secret.is_some() {
            "client_secret_post"
        } else {
            "none"
        };
        if let Some(basic) = &asked.authorization {
            let pair = STANDARD.decode(basic.strip_prefix("Basic ")?).ok()?;
            let pair = String::from_utf8(pair).ok()?;
            let (user, password) = pair.split_once(':')?;
            let decode = |text: &str| form(&format!("x={text}")).remove("x");
            (id, secret) = (decode(user), decode(password));
            method = "client_secret_basic";
        }
        if let Some(assertion) = asked.form.get("client_assertion") {
            let claims = claims(assertion);
            if claims["aud"] != *self.issuer || claims["sub"] != claims["iss"] {
                return None;
            }
            id = id.or_else(|| claims["sub"].as_str().map(str::to_owned));
            method = "private_key_jwt";
        }
        let id = id?;
        let clients = self.clients.borrow();
        let client = clients.get(&id)?;
        let fits = client["token_endpoint_auth_method"] == method
            && client["client_secret"].as_str() == secret.as_deref();
        fits.then_some(id)
    }

    fn issue(
        &self,
        scope: Option<String>,
        family: u32,
        kept: Option<String>,
        is_bound: bool,
    ) -> Reply {
        let scope = self.grants.borrow().clone().or(scope);
        let is_refresh = kept.is_some()
            || self
                .asked
                .borrow()
                .last()
                .is_some_and(|asked| asked.grant() == "refresh_token");
        let life = self.expires_in.borrow().clone();
        let may_refresh = self.gives_refresh.get() && family != 0;
        let is_terse = self.is_terse.get() && is_refresh;
        let refresh_token = kept.or_else(|| may_refresh.then(|| self.secret("refresh")));
        let issued = Issued {
            access_token: self.secret("access"),
            refresh_token,
            scope,
            ends_at: life.as_u64().map(|life| self.clock.now() + life * 1_000),
            is_good: true,
            family,
            is_bound,
        };
        let kind = if is_bound { "DPoP" } else { "Bearer" };
        let mut answer = json!({"access_token": issued.access_token, "token_type": kind});
        if !life.is_null() {
            answer["expires_in"] = life;
        }
        if !is_terse {
            if let Some(token) = &issued.refresh_token {
                answer["refresh_token"] = token.clone().into();
            }
            if let Some(scope) = &issued.scope {
                answer["scope"] = scope.clone().into();
            }
        }
        self.issued.borrow_mut().push(issued);
        Reply::Json(200, answer)
    }

    /// No access token is good any more; refresh tokens are.
    pub fn end_access(&self) {
        for issued in &mut *self.issued.borrow_mut() {
            issued.ends_at = Some(0);
        }
    }

    /// Nothing that was issued is good any more.
    pub fn end_grants(&self) {
        for issued in &mut *self.issued.borrow_mut() {
            issued.ends_at = Some(0);
            issued.is_good = false;
        }
    }

    /// The scopes of a token, if it is good.
    pub fn scopes(&self, token: &str, is_bound: bool) -> Option<String> {
        let issued = self.issued.borrow();
        let issued = issued.iter().find(|issued| issued.access_token == token)?;
        let is_over = issued.ends_at.is_some_and(|end| self.clock.now() >= end);
        (!is_over && issued.is_bound == is_bound).then(|| issued.scope.clone().unwrap_or_default())
    }

    /// Whether a server may let this token in.
    pub fn is_good(&self, token: &str) -> bool {
        self.scopes(token, false).is_some()
    }

    /// How many access tokens were issued before this one.
    pub fn number_of(&self, token: &str) -> Option<usize> {
        let issued = self.issued.borrow();
        issued
            .iter()
            .position(|issued| issued.access_token == token)
    }

    /// The sign-in that a token comes from.
    pub fn family(&self, token: &str) -> u32 {
        let issued = self.issued.borrow();
        let issued = issued.iter().find(|issued| issued.access_token == token);
        issued.map_or(0, |issued| issued.family)
    }

    pub fn refreshes(&self) -> usize {
        self.count("refresh_token")
    }

    pub fn exchanges(&self) -> usize {
        self.count("authorization_code")
    }

    pub fn count(&self, grant: &str) -> usize {
        let asked = self.asked.borrow();
        asked.iter().filter(|asked| asked.grant() == grant).count()
    }

    pub fn last_asked(&self) -> Asked {
        self.asked.borrow().last().expect("a request").clone()
    }
}

fn asked(seen: &Seen) -> Asked {
    assert_eq!(seen.method, "POST");
    assert_eq!(
        seen.header("content-type"),
        Some("application/x-www-form-urlencoded")
    );
    Asked {
        form: form(&seen.text),
        authorization: seen.header("authorization").map(str::to_owned),
        dpop: seen.header("dpop").map(str::to_owned),
        url: seen.url.clone(),
    }
}

/// What a signed token says; not verified.
pub fn claims(token: &str) -> Value {
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

pub fn error_reply(status: u16, code: &str) -> Reply {
    let body = json!({"error": code, "error_description": format!("it is {code}")});
    Reply::typed(status, "application/json", body.to_string())
}

pub fn merge(document: &mut Value, over: &Value) {
    for (name, value) in over.as_object().unwrap() {
        if value.is_null() {
            document.as_object_mut().unwrap().remove(name);
        } else {
            document[name] = value.clone();
        }
    }
}
