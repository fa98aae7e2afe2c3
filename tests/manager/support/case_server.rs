//! The server that the cases from bug reports start from.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde_json::{Value, json};

use super::mcp_server::{result, rpc_error, tool};
use super::{Reply, Seen, URL, World};

/// Streamable HTTP of 2025-11-25 with one tool `echo`. Strict about session and revision.
pub struct CaseServer {
    /// What it answers to `initialize`, and demands of every later request.
    pub version: Cell<&'static str>,
    /// Sessions issued: `s1`, `s2` and so on.
    pub issued: Cell<u32>,
    /// The session that it knows.
    pub known: RefCell<Option<String>>,
    keeps_sessions: bool,
    lost: fn(&Seen) -> Reply,
}

impl CaseServer {
    /// One without sessions.
    pub fn stateless() -> Rc<Self> {
        Rc::new(Self {
            version: Cell::new("2025-11-25"),
            issued: Cell::new(0),
            known: RefCell::default(),
            keeps_sessions: false,
            lost: session_not_found,
        })
    }

    /// One that answers requests of a session that it does not know with 404.
    pub fn with_sessions() -> Rc<Self> {
        Self::that_says(session_not_found)
    }

    /// One that answers requests of a session that it does not know in its own way.
    pub fn that_says(lost: fn(&Seen) -> Reply) -> Rc<Self> {
        Rc::new(Self {
            version: Cell::new("2025-11-25"),
            issued: Cell::new(0),
            known: RefCell::default(),
            keeps_sessions: true,
            lost,
        })
    }

    /// A world where it is at [`URL`].
    pub fn world(self: &Rc<Self>) -> World {
        let world = World::new();
        let server = self.clone();
        world.network.serve(URL, move |seen| server.answer(seen));
        world
    }

    pub fn forget_sessions(&self) {
        self.known.replace(None);
    }

    pub fn answer(&self, seen: &Seen) -> Reply {
        let method = seen.rpc();
        match method.as_str() {
            "server/discover" => return rpc_error(400, seen, -32000, Value::Null),
            "initialize" => return self.initialize(seen),
            _ => {}
        }
        if self.keeps_sessions
            && (seen.header("mcp-session-id") != self.known.borrow().as_deref()
                || self.known.borrow().is_none())
        {
            return (self.lost)(seen);
        }
        if seen.header("mcp-protocol-version") != Some(self.version.get()) {
            return Reply::typed(400, "text/plain", "wrong MCP-Protocol-Version");
        }
        match method.as_str() {
            "DELETE" => Reply::status(200),
            "GET" => Reply::status(405),
            "tools/list" => result(seen, json!({"tools": [tool("echo")]})),
            "tools/call" => {
                let text = seen.body["params"]["arguments"].to_string();
                result(seen, json!({"content": [{"type": "text", "text": text}]}))
            }
            _ if seen.body["id"].is_null() => Reply::status(202),
            _ => rpc_error(200, seen, -32601, Value::Null),
        }
    }

    fn initialize(&self, seen: &Seen) -> Reply {
        if seen.header("mcp-session-id").is_some() {
            return Reply::status(404);
        }
        let reply = initialized(seen, self.version.get());
        if !self.keeps_sessions {
            return reply;
        }
        self.issued.set(self.issued.get() + 1);
        let id = format!("s{}", self.issued.get());
        self.known.replace(Some(id.clone()));
        reply.with("mcp-session-id", &id)
    }
}

fn session_not_found(seen: &Seen) -> Reply {
    let error = json!({"code": -32001, "message": "Session not found"});
    Reply::Json(
        404,
        json!({"jsonrpc": "2.0", "id": seen.body["id"], "error": error}),
    )
}

/// The result of `initialize`.
pub fn handshake(version: &str) -> Value {
    json!({"protocolVersion": version, "capabilities": {"tools": {"listChanged": true}},
        "serverInfo": {"name": "m", "version": "1"}})
}

/// The answer to `initialize`.
pub fn initialized(seen: &Seen, version: &str) -> Reply {
    let answer = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": handshake(version)});
    Reply::typed(200, "application/json", answer.to_string())
}
