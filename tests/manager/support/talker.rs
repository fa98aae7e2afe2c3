//! An MCP server that speaks unasked: its streams are written by the test.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures::channel::mpsc;
use serde_json::{Value, json};
use workers_agents::McpClientManager;

use super::mcp_server::{result, rpc_error, tool};
use super::{Reply, Seen, World, register};

type Handler = Rc<dyn Fn(&Seen) -> Reply>;

/// A server of either era. It keeps every stream that it opened.
pub struct Talker {
    pub is_modern: bool,
    pub capabilities: RefCell<Value>,
    /// Answers to single methods, before the built-in ones; the last one counts.
    handlers: RefCell<Vec<(&'static str, Handler)>>,
    /// Every stream so far, oldest first: those of GET, of `subscriptions/listen` and of methods
    /// that are [`live`](Self::live).
    pub streams: RefCell<Vec<Rc<Talk>>>,
    /// Whether it has a stream for what it says unasked.
    pub has_stream: Cell<bool>,
    pub session: RefCell<Option<String>>,
    sessions: Cell<u32>,
}

/// One stream, and the request it answers.
pub struct Talk {
    pub seen: Seen,
    sender: RefCell<mpsc::UnboundedSender<Vec<u8>>>,
}

impl Talk {
    pub fn say(&self, message: Value) {
        self.say_raw(&message.to_string());
    }

    /// As [`say`](Self::say), to the letter.
    pub fn say_raw(&self, message: &str) {
        let event = format!("data: {message}\n\n");
        // Nobody may be listening any more.
        let _ = self.sender.borrow().unbounded_send(event.into_bytes());
    }

    pub fn notify(&self, method: &str, params: Value) {
        self.say(json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    pub fn ask(&self, id: Value, method: &str, params: Value) {
        self.say(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    /// Answers the request, which ends the stream as far as we care.
    pub fn answer(&self, result: Value) {
        self.say(json!({"jsonrpc": "2.0", "id": self.seen.body["id"], "result": result}));
    }

    pub fn end(&self) {
        self.sender.borrow().close_channel();
    }

    pub fn is_open(&self) -> bool {
        !self.sender.borrow().is_closed()
    }
}

impl Talker {
    fn new(is_modern: bool, capabilities: Value) -> Rc<Self> {
        Rc::new(Self {
            is_modern,
            capabilities: RefCell::new(capabilities),
            handlers: RefCell::default(),
            streams: RefCell::default(),
            has_stream: Cell::new(true),
            session: RefCell::default(),
            sessions: Cell::new(0),
        })
    }

    pub fn legacy(capabilities: Value) -> Rc<Self> {
        Self::new(false, capabilities)
    }

    pub fn modern(capabilities: Value) -> Rc<Self> {
        Self::new(true, capabilities)
    }

    pub fn serve(self: &Rc<Self>, world: &World, url: &str) {
        let this = self.clone();
        world.network.serve(url, move |seen| this.respond(seen));
    }

    /// A world with this server in it, registered and ready.
    pub fn world(self: &Rc<Self>) -> (World, McpClientManager) {
        let mut world = World::new();
        let mcp = self.join(&mut world);
        (world, mcp)
    }

    /// A manager of this world that has this server, ready.
    pub fn join(self: &Rc<Self>, world: &mut World) -> McpClientManager {
        let mcp = world.manager();
        self.add(world, &mcp, "pier");
        mcp
    }

    pub fn add(self: &Rc<Self>, world: &mut World, mcp: &McpClientManager, id: &str) {
        let url = format!("https://{id}.example/mcp");
        self.serve(world, &url);
        register(world, mcp, id, &url);
        world
            .run(async {
                mcp.connect_to_server(id).await?;
                mcp.discover_if_connected(id, None).await
            })
            .unwrap();
        world.settle();
    }

    pub fn on(&self, method: &'static str, handler: impl Fn(&Seen) -> Reply + 'static) {
        self.handlers.borrow_mut().push((method, Rc::new(handler)));
    }

    /// Answers a method with this result.
    pub fn set(&self, method: &'static str, value: Value) {
        self.on(method, move |seen| result(seen, value.clone()));
    }

    /// Answers a method with a stream that the test writes.
    pub fn live(self: &Rc<Self>, method: &'static str) {
        let this = Rc::downgrade(self);
        self.on(method, move |seen| this.upgrade().unwrap().stream(seen));
    }

    /// The streams for what it says unasked that are open now.
    pub fn standing(&self) -> Vec<Rc<Talk>> {
        let streams = self.streams.borrow();
        let standing = streams.iter().filter(|talk| {
            talk.is_open() && matches!(talk.seen.rpc().as_str(), "GET" | "subscriptions/listen")
        });
        standing.cloned().collect()
    }

    /// The only standing stream.
    pub fn stream_of_its_own(&self) -> Rc<Talk> {
        let mut standing = self.standing();
        assert_eq!(standing.len(), 1, "standing streams");
        standing.remove(0)
    }

    /// The last stream that answers this method.
    pub fn talk(&self, method: &str) -> Rc<Talk> {
        let streams = self.streams.borrow();
        let talk = streams.iter().rev().find(|talk| talk.seen.rpc() == method);
        talk.expect(method).clone()
    }

    fn stream(&self, seen: &Seen) -> Reply {
        let (sender, receiver) = mpsc::unbounded();
        self.streams.borrow_mut().push(Rc::new(Talk {
            seen: seen.clone(),
            sender: RefCell::new(sender),
        }));
        Reply::Live(receiver)
    }

    fn respond(&self, seen: &Seen) -> Reply {
        let method = seen.rpc();
        let handlers = self.handlers.borrow();
        let handler = handlers.iter().rev().find(|(name, _)| *name == method);
        let handler = handler.map(|(_, handler)| handler.clone());
        drop(handlers);
        if let Some(handler) = handler {
            return handler(seen);
        }
        if self.is_modern {
            self.modern_answer(seen, &method)
        } else {
            self.legacy_answer(seen, &method)
        }
    }

    fn modern_answer(&self, seen: &Seen, method: &str) -> Reply {
        match method {
            "server/discover" => result(
                seen,
                json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": *self.capabilities.borrow()}),
            ),
            "subscriptions/listen" if self.has_stream.get() => self.stream(seen),
            _ => lists(seen, method).unwrap_or_else(|| rpc_error(404, seen, -32601, Value::Null)),
        }
    }

    fn legacy_answer(&self, seen: &Seen, method: &str) -> Reply {
        match method {
            "server/discover" => return rpc_error(400, seen, -32000, Value::Null),
            "initialize" => {
                self.sessions.set(self.sessions.get() + 1);
                let id = format!("s-{}", self.sessions.get());
                self.session.replace(Some(id.clone()));
                let body = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": {
                    "protocolVersion": "2025-11-25", "serverInfo": {"name": "t", "version": "1"},
                    "capabilities": *self.capabilities.borrow()}});
                return Reply::typed(200, "application/json", body.to_string())
                    .with("mcp-session-id", &id);
            }
            _ => {}
        }
        if seen.header("mcp-session-id") != self.session.borrow().as_deref() {
            return Reply::status(404);
        }
        match method {
            "GET" if self.has_stream.get() => self.stream(seen),
            "GET" => Reply::status(405),
            "DELETE" => Reply::status(200),
            "ping" => result(seen, json!({})),
            _ if seen.body["id"].is_null() || seen.body["method"].is_null() => Reply::status(202),
            _ => lists(seen, method).unwrap_or_else(|| rpc_error(200, seen, -32601, Value::Null)),
        }
    }
}

fn lists(seen: &Seen, method: &str) -> Option<Reply> {
    let value = match method {
        "tools/list" => json!({"tools": [tool("echo"), tool("add")]}),
        "prompts/list" => json!({"prompts": [{"name": "greet"}]}),
        "resources/list" => json!({"resources": [{"uri": "tide://now", "name": "now"}]}),
        "resources/templates/list" => json!({"resourceTemplates": []}),
        "tools/call" => {
            let text = seen.body["params"]["arguments"].to_string();
            json!({"content": [{"type": "text", "text": text}]})
        }
        "prompts/get" => json!({"messages": []}),
        "resources/read" => json!({"contents": []}),
        _ => return None,
    };
    Some(result(seen, value))
}

impl World {
    /// How often a method was asked for.
    pub fn count(&self, method: &str) -> usize {
        let methods = self.network.methods();
        methods.iter().filter(|name| *name == method).count()
    }

    /// What was sent with this method, oldest first.
    pub fn sent(&self, method: &str) -> Vec<Seen> {
        let seen = self.network.seen.borrow();
        let sent = seen.iter().filter(|seen| seen.rpc() == method);
        sent.cloned().collect()
    }

    /// The client's answers to requests of servers, oldest first.
    pub fn answers(&self) -> Vec<Value> {
        let seen = self.network.seen.borrow();
        let answers = seen.iter().filter(|seen| {
            !seen.body["id"].is_null() && seen.body["method"].is_null() && seen.method == "POST"
        });
        answers.map(|seen| seen.body.clone()).collect()
    }
}

pub fn text_of(result: &workers_agents::protocol::CallToolResult) -> Value {
    serde_json::from_str(result.json().get()).unwrap()
}
