//! A protected MCP server in memory, and an object that uses it. Every error that a test sees is
//! kept, and none may hold a secret.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Response;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use url::Url;
use workers_agents::ports::ServerRow;
use workers_agents::{
    Connected, ConnectionState, Error, McpClientManager, McpClientOptions, RegisterServer,
};

use super::auth_server::merge;
pub use super::auth_server::{AuthServer, Form, Watch, claims, error_reply, query};
use super::mcp_server::{result, rpc_error, tool};
use super::{Network, Reply, Seen, URL, World};

/// The usual authorization server.
pub const ISSUER: &str = "https://as.example";
/// The path has the form of one that is routed to an object.
pub const CALLBACK: &str = "https://app.example/agents/my-agent/gull/callback";
pub const METADATA: &str = "https://pier.example/.well-known/oauth-protected-resource/mcp";

/// How long tokens are good.
pub const HOUR: Duration = Duration::from_hours(1);

/// A protected MCP server of the 2026 era.
pub struct Pier {
    pub servers: RefCell<Vec<Rc<AuthServer>>>,
    /// Members of the resource metadata, over the usual ones.
    pub metadata: RefCell<Value>,
    /// What a challenge names.
    pub challenge_scope: RefCell<Option<String>>,
    /// What tools need: scopes. Those that are not here need nothing.
    pub needs: RefCell<BTreeMap<&'static str, &'static str>>,
    /// What the next calls are answered with.
    pub instead: RefCell<VecDeque<Reply>>,
    /// Refuses everything that comes from this sign-in.
    pub refuses_family: Cell<Option<u32>>,
    pub refuses_all: Cell<bool>,
    pub wants_dpop: Cell<bool>,
    /// What must be in proofs.
    pub dpop_nonce: RefCell<Option<String>>,
    /// A static value of `authorization` that is good.
    pub accepts: RefCell<Option<String>>,
    /// `authorization` of every request, oldest first.
    pub authorizations: RefCell<Vec<Option<String>>>,
}

impl Pier {
    pub fn new(server: &Rc<AuthServer>) -> Rc<Self> {
        Rc::new(Self {
            servers: RefCell::new(vec![server.clone()]),
            metadata: RefCell::new(json!({})),
            challenge_scope: RefCell::default(),
            needs: RefCell::default(),
            instead: RefCell::default(),
            refuses_family: Cell::new(None),
            refuses_all: Cell::new(false),
            wants_dpop: Cell::new(false),
            dpop_nonce: RefCell::default(),
            accepts: RefCell::default(),
            authorizations: RefCell::default(),
        })
    }

    pub fn serve(self: &Rc<Self>, network: &Network, url: &str) {
        let this = self.clone();
        network.serve(url, move |seen| this.respond(seen));
        let metadata = Url::parse(url).unwrap();
        let place = metadata
            .join(&format!(
                "/.well-known/oauth-protected-resource{}",
                metadata.path()
            ))
            .unwrap();
        let (this, url) = (self.clone(), url.to_owned());
        network.serve(place.as_str(), move |_| {
            let servers = this.servers.borrow();
            let issuers: Vec<&str> = servers.iter().map(|server| &*server.issuer).collect();
            let mut document = json!({"resource": url, "authorization_servers": issuers});
            merge(&mut document, &this.metadata.borrow());
            Reply::Json(200, document)
        });
    }

    fn challenge(&self, status: u16, seen: &Seen, more: &str) -> Reply {
        let scheme = if self.wants_dpop.get() {
            "DPoP"
        } else {
            "Bearer"
        };
        let url = Url::parse(&seen.url).unwrap();
        let place = format!("/.well-known/oauth-protected-resource{}", url.path());
        let place = url.join(&place).unwrap();
        let value = format!("{scheme} resource_metadata=\"{place}\"{more}");
        Reply::typed(status, "text/plain", "who are you?").with("www-authenticate", &value)
    }

    fn respond(&self, seen: &Seen) -> Reply {
        let authorization = seen.header("authorization").map(str::to_owned);
        self.authorizations.borrow_mut().push(authorization.clone());
        let token = authorization
            .as_deref()
            .and_then(|value| value.split_once(' '));
        let is_static = authorization.is_some() && authorization == *self.accepts.borrow();
        let scopes = token.and_then(|(scheme, token)| {
            let servers = self.servers.borrow();
            let server = servers
                .iter()
                .find(|server| server.scopes(token, scheme == "DPoP").is_some())?;
            let refused =
                self.refuses_all.get() || self.refuses_family.get() == Some(server.family(token));
            server.scopes(token, scheme == "DPoP").filter(|_| !refused)
        });
        let Some(scopes) = scopes.or_else(|| is_static.then(String::new)) else {
            let scope = self.challenge_scope.borrow();
            let scope = scope.as_ref().map(|scope| format!(", scope=\"{scope}\""));
            return self.challenge(401, seen, &scope.unwrap_or_default());
        };
        if let Some(nonce) = &*self.dpop_nonce.borrow() {
            let proof = claims(seen.header("dpop").unwrap());
            let (_, token) = token.unwrap();
            assert_eq!(proof["ath"], URL_SAFE_NO_PAD.encode(Sha256::digest(token)));
            assert_eq!(
                (&proof["htm"], &proof["htu"]),
                (&json!("POST"), &json!(seen.url))
            );
            if proof["nonce"] != **nonce {
                let more = ", error=\"use_dpop_nonce\"";
                return self.challenge(401, seen, more).with("dpop-nonce", nonce);
            }
        }
        let name = seen.body["params"]["name"].as_str().unwrap_or_default();
        if let Some(needed) = self.needs.borrow().get(name) {
            let has = |word: &str| scopes.split(' ').any(|scope| scope == word);
            if !needed.split(' ').all(has) {
                let more = format!(", error=\"insufficient_scope\", scope=\"{needed}\"");
                return self.challenge(403, seen, &more);
            }
        }
        if seen.rpc() == "tools/call"
            && let Some(reply) = self.instead.borrow_mut().pop_front()
        {
            return reply;
        }
        match seen.rpc().as_str() {
            "server/discover" => result(
                seen,
                json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}}}),
            ),
            "tools/list" => {
                let tools = ["echo", "read", "write", "admin"].map(tool);
                result(seen, json!({"resultType": "complete", "tools": tools}))
            }
            "tools/call" => {
                let content = json!([{"type": "text", "text": name}]);
                result(seen, json!({"resultType": "complete", "content": content}))
            }
            _ => rpc_error(404, seen, -32601, Value::Null),
        }
    }

    /// The token that came last.
    pub fn last_token(&self) -> String {
        let authorizations = self.authorizations.borrow();
        let last = authorizations.last().unwrap().as_ref().expect("a token");
        last.split_once(' ').unwrap().1.to_owned()
    }

    /// The tokens that came since this was asked last.
    pub fn take_tokens(&self) -> BTreeSet<String> {
        let tokens = self.authorizations.take().into_iter().flatten();
        tokens
            .map(|value| {
                value
                    .split_once(' ')
                    .map_or_else(|| value.clone(), |(_, token)| token.to_owned())
            })
            .collect()
    }
}

/// One object, its protected server, and who gives permission for it.
pub struct AuthWorld {
    pub world: World,
    pub server: Rc<AuthServer>,
    pub pier: Rc<Pier>,
    pub mcp: McpClientManager,
    pub watch: Rc<Watch>,
}

impl Deref for AuthWorld {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl DerefMut for AuthWorld {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

impl AuthWorld {
    pub fn new() -> Self {
        Self::with(|options| options)
    }

    /// With options of the manager's.
    pub fn with(options: impl FnOnce(McpClientOptions) -> McpClientOptions) -> Self {
        let mut world = World::new();
        world.options = options(McpClientOptions::default());
        // Not the beginning of time: life times are subtracted.
        world.advance(Duration::from_secs(1_000_000));
        let watch = Rc::new(Watch::default());
        let server = AuthServer::new(ISSUER, &world, &watch);
        let pier = Pier::new(&server);
        pier.serve(&world.network, URL);
        let mcp = world.manager();
        let mut this = Self {
            world,
            server,
            pier,
            mcp,
            watch,
        };
        this.look_on();
        this
    }

    /// Signed in and ready.
    pub fn ready() -> Self {
        let mut this = Self::new();
        this.register();
        this.sign_in();
        this
    }

    /// Keeps every error of every connection.
    fn look_on(&mut self) {
        let (mcp, watch) = (self.mcp.clone(), self.watch.clone());
        let subscription = self.mcp.on_server_state_changed(move || {
            watch.shown(format!("{mcp:?}"));
            for server in mcp.list_servers().unwrap() {
                watch.shown(format!("{server:?}"));
                let Some(info) = mcp.connection(server.id.as_str()) else {
                    continue;
                };
                if let Some(error) = &info.error {
                    watch.error(error);
                }
                if let Some(last) = &info.last_error {
                    watch.error(&last.error);
                }
            }
        });
        std::mem::forget(subscription);
    }

    /// The object is evicted, and wakes.
    pub fn evict(&mut self) {
        self.mcp = self.world.wake();
        self.look_on();
    }

    /// As [`evict`](Self::evict), and what runs on waking has run.
    pub fn wake_up(&mut self) {
        self.evict();
        self.world.settle();
    }

    pub fn register(&mut self) {
        self.register_as("pier", |server| server);
    }

    pub fn register_as(&mut self, id: &str, more: impl FnOnce(RegisterServer) -> RegisterServer) {
        let server = RegisterServer::new("Pier", URL).callback_url(CALLBACK);
        let mcp = self.mcp.clone();
        self.world
            .run(mcp.register_server(id, more(server)))
            .unwrap();
    }

    pub fn noted<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        outcome.inspect_err(|error| self.watch.error(error))
    }

    pub fn try_connect(&mut self) -> Result<Connected, Error> {
        let mcp = self.mcp.clone();
        let outcome = self.world.run(mcp.connect_to_server("pier"));
        let outcome = self.noted(outcome);
        if let Ok(connected) = &outcome {
            self.watch.shown(format!("{connected:?}"));
        }
        outcome
    }

    /// Connects, which leads to a sign-in. Gives its URL.
    pub fn connect(&mut self) -> Url {
        match self.try_connect() {
            Ok(Connected::Authenticating { auth_url }) => self.seen_url(auth_url.as_str()),
            other => panic!("no sign-in: {other:?}"),
        }
    }

    fn seen_url(&self, url: &str) -> Url {
        let url = Url::parse(url).unwrap();
        self.watch
            .secret(query(&url)["state"].split_once('.').unwrap().0);
        url
    }

    /// The URL that is offered while the server waits for its user.
    pub fn offered(&self) -> Url {
        let offered = futures::executor::block_on(self.mcp.auth_url("pier")).unwrap();
        self.seen_url(offered.expect("a URL to go on with").as_str())
    }

    /// The user comes back.
    pub fn come_back(&mut self, url: &Url) -> Response<String> {
        let mcp = self.mcp.clone();
        let response = self.world.run(mcp.handle_callback(url));
        self.watch.shown(format!("{response:?}"));
        response
    }

    /// The user comes back, and that is a success.
    pub fn come_back_well(&mut self, url: &Url) {
        let response = self.come_back(url);
        assert_eq!(response.status(), 302, "{}", response.body());
        assert_eq!(response.headers()["location"], "https://app.example/");
        self.world.settle();
    }

    /// The user comes back in vain. Gives the page.
    pub fn come_back_badly(&mut self, url: &Url) -> String {
        let response = self.come_back(url);
        assert_eq!(response.status(), 400);
        response.into_body()
    }

    /// The whole of it.
    pub fn sign_in(&mut self) {
        let url = self.connect();
        let back = self.server.consent(&url);
        self.come_back_well(&back);
        assert_eq!(self.state(), ConnectionState::Ready);
    }

    pub fn state(&self) -> ConnectionState {
        super::state(&self.mcp)
    }

    pub fn call(&mut self, tool: &str) -> Result<(), Error> {
        let mcp = self.mcp.clone();
        let outcome = self.world.run(mcp.call_tool("pier", tool, json!({})));
        self.noted(outcome.map(drop))
    }

    /// As [`call`](Self::call), letting time pass while it waits.
    pub fn call_slowly(&mut self, tool: &'static str) -> Result<(), Error> {
        let mcp = self.mcp.clone();
        let call = self
            .world
            .start(async move { mcp.call_tool("pier", tool, json!({})).await.map(drop) });
        for _ in 0..200 {
            if let Some(outcome) = call.outcome() {
                return self.noted(outcome);
            }
            self.world.advance(Duration::from_millis(250));
        }
        panic!("the call does not end");
    }

    /// A call that leads to a sign-in. Gives its URL.
    pub fn call_for_sign_in(&mut self, tool: &str) -> Url {
        match self.call(tool) {
            Err(Error::SignInRequired { auth_url, .. }) => self.seen_url(auth_url.as_str()),
            other => panic!("no sign-in: {other:?}"),
        }
    }

    /// The id that the next call will have.
    pub fn next_id(&self) -> u64 {
        let seen = self.network.seen.borrow();
        let mut ids = seen
            .iter()
            .rev()
            .filter_map(|seen| seen.body["id"].as_u64());
        ids.next().map_or(0, |id| id + 1)
    }

    pub fn row(&self) -> ServerRow {
        let rows = self.table.rows.borrow();
        rows.iter().find(|row| row.id == "pier").unwrap().clone()
    }

    /// All keys, without what is random in them.
    pub fn stored_keys(&self) -> Vec<String> {
        let values = self.keys.values.borrow();
        let keys = values.keys().map(|key| {
            let mut parts: Vec<&str> = key.split('/').collect();
            for index in 1..parts.len() {
                if matches!(parts[index - 1], "state" | "code_verifier" | "used")
                    && !parts[index].is_empty()
                {
                    parts[index] = "*";
                }
            }
            parts.join("/")
        });
        keys.collect()
    }

    /// The value under the only key that ends so.
    pub fn value(&self, end: &str) -> Value {
        let values = self.keys.values.borrow();
        let mut found = values.iter().filter(|(key, _)| key.ends_with(end));
        let (_, value) = found.next().expect(end);
        assert!(found.next().is_none(), "several {end}");
        serde_json::from_str(value).unwrap()
    }

    pub fn set_value(&self, end: &str, change: impl FnOnce(&mut Value)) {
        let mut value = self.value(end);
        change(&mut value);
        let mut values = self.keys.values.borrow_mut();
        let key = values
            .keys()
            .find(|key| key.ends_with(end))
            .unwrap()
            .clone();
        values.insert(key, value.to_string());
    }

    pub fn token(&self) -> Value {
        self.value("/token")
    }

    /// Everything that outlives the object's memory, as text.
    pub fn everything_stored(&self) -> String {
        let mut text = String::new();
        for (key, value) in &*self.keys.values.borrow() {
            let _ = writeln!(text, "{key} {value}");
        }
        for row in &*self.table.rows.borrow() {
            let ServerRow {
                auth_url,
                server_options,
                client_id,
                ..
            } = row;
            let _ = writeln!(text, "{auth_url:?} {server_options:?} {client_id:?}");
        }
        text
    }
}

/// No error, log or page of any test here holds a secret.
impl Drop for AuthWorld {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let leaks = self.watch.leaks();
            assert!(leaks.is_empty(), "secrets were shown: {leaks:#?}");
        }
    }
}

impl AuthWorld {
    /// Another authorization server.
    pub fn another_server(&self, issuer: &str) -> Rc<AuthServer> {
        AuthServer::new(issuer, &self.world, &self.watch)
    }

    /// As [`call_for_sign_in`](Self::call_for_sign_in), letting time pass while it waits.
    pub fn call_for_sign_in_slowly(&mut self, tool: &'static str) -> Url {
        match self.call_slowly(tool) {
            Err(Error::SignInRequired { auth_url, .. }) => self.seen_url(auth_url.as_str()),
            other => panic!("no sign-in: {other:?}"),
        }
    }
}

/// Answers everything that is for the server with this status and challenge.
pub fn serve_instead(network: &Network, status: u16, challenge: &'static str) {
    network.serve(URL, move |_| {
        Reply::status(status).with("www-authenticate", challenge)
    });
}
