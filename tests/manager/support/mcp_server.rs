//! MCP servers in memory. They speak the wire format of their era and check what they receive.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde_json::{Value, json};

use super::{Reply, Seen};

/// A server of the 2025 era with session ids.
#[derive(Default)]
pub struct LegacyServer {
    pub sessions: Cell<u32>,
    /// The session it knows; any other is answered with 404.
    pub current: RefCell<Option<String>>,
    /// Answers to list methods and others, before the built-in ones.
    pub overrides: RefCell<Vec<(&'static str, Value)>>,
    pub version: Cell<&'static str>,
}

pub fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

pub fn result(seen: &Seen, result: Value) -> Reply {
    Reply::Json(
        200,
        json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result}),
    )
}

pub fn rpc_error(status: u16, seen: &Seen, code: i64, data: Value) -> Reply {
    let error = json!({"code": code, "message": "refused", "data": data});
    Reply::Json(
        status,
        json!({"jsonrpc": "2.0", "id": seen.body["id"], "error": error}),
    )
}

impl LegacyServer {
    pub fn new() -> Rc<Self> {
        let server = Self::default();
        server.version.set("2025-11-25");
        Rc::new(server)
    }

    pub fn set(&self, method: &'static str, result: Value) {
        self.overrides.borrow_mut().push((method, result));
    }

    pub fn answer(&self, seen: &Seen) -> Reply {
        assert!(
            seen.method != "POST"
                || seen.header("accept") == Some("application/json, text/event-stream")
        );
        let method = seen.rpc();
        if method == "DELETE" {
            return Reply::status(200);
        }
        // It has no stream to listen to, and is no server of HTTP+SSE.
        if method == "GET" {
            return Reply::status(405);
        }
        if method == "server/discover" {
            return rpc_error(400, seen, -32000, Value::Null);
        }
        if method == "initialize" {
            assert!(
                seen.header("mcp-session-id").is_none(),
                "a session id on initialize"
            );
            self.sessions.set(self.sessions.get() + 1);
            let id = format!("session-{}", self.sessions.get());
            self.current.replace(Some(id.clone()));
            let body = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": {
                "protocolVersion": self.version.get(), "serverInfo": {"name": "pier", "version": "1"},
                "capabilities": {"tools": {}, "prompts": {}, "resources": {}}, "instructions": "be kind"}});
            let headers = vec![
                ("content-type", "application/json".to_owned()),
                ("mcp-session-id", id),
            ];
            return Reply::Raw(200, headers, vec![body.to_string().into_bytes()]);
        }
        assert_eq!(
            seen.header("mcp-protocol-version"),
            Some(self.version.get())
        );
        if seen.header("mcp-session-id") != self.current.borrow().as_deref() {
            return Reply::status(404);
        }
        if let Some((_, value)) = self
            .overrides
            .borrow()
            .iter()
            .rev()
            .find(|(name, _)| *name == method)
        {
            return result(seen, value.clone());
        }
        match method.as_str() {
            "notifications/initialized" => Reply::status(202),
            "tools/list" => result(seen, json!({"tools": [tool("echo"), tool("add")]})),
            "prompts/list" => result(seen, json!({"prompts": [{"name": "greet"}]})),
            "resources/list" => result(
                seen,
                json!({"resources": [{"uri": "tide://now", "name": "now"}]}),
            ),
            "resources/templates/list" => result(
                seen,
                json!({"resourceTemplates": [{"uriTemplate": "tide://{port}", "name": "port"}]}),
            ),
            "tools/call" => {
                let text = seen.body["params"]["arguments"].to_string();
                result(seen, json!({"content": [{"type": "text", "text": text}]}))
            }
            _ => rpc_error(200, seen, -32601, Value::Null),
        }
    }
}

/// A server of the 2026 era.
pub fn modern(seen: &Seen) -> Reply {
    let meta = &seen.body["params"]["_meta"];
    assert_eq!(seen.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(
        meta["io.modelcontextprotocol/protocolVersion"],
        "2026-07-28"
    );
    assert_eq!(seen.header("mcp-method"), seen.body["method"].as_str());
    assert!(seen.header("mcp-session-id").is_none());
    match seen.rpc().as_str() {
        "server/discover" => result(
            seen,
            json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}),
        ),
        "tools/list" => result(
            seen,
            json!({"resultType": "complete", "tools": [tool("echo")]}),
        ),
        "tools/call" => {
            assert_eq!(
                seen.header("mcp-name"),
                seen.body["params"]["name"].as_str()
            );
            result(seen, json!({"resultType": "complete", "content": []}))
        }
        _ => rpc_error(404, seen, -32601, Value::Null),
    }
}
