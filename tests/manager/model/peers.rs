//! MCP servers whose tools change, and that have all kinds of trouble.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::object::{Entry, Outside, Sent};
use crate::support::Seen;

/// The header that tells registrations apart.
pub const OWNER: &str = "x-owner";

type Headers = Vec<(&'static str, String)>;

pub enum Answer {
    Now(u16, Headers, String),
    After(u64, u16, Headers, String),
    Held(u16, Headers, String),
    Refused,
    Silence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    Modern,
    Legacy,
    /// Legacy, without session ids.
    Sessionless,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    Status(u16),
    /// 503, and when to ask again, in seconds.
    Busy(u64),
    Refused,
    /// The request is heeded, and the answer lost.
    Lost,
    Silence,
    /// Milliseconds.
    Slow(u64),
    Held,
    Garbage,
}

/// What the trouble is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    All,
    Handshake,
    Lists,
    Calls,
}

impl Scope {
    fn covers(self, rpc: &str) -> bool {
        match self {
            Self::All => true,
            Self::Handshake => {
                matches!(
                    rpc,
                    "server/discover" | "initialize" | "notifications/initialized"
                )
            }
            Self::Lists => rpc.ends_with("/list"),
            Self::Calls => rpc == "tools/call",
        }
    }
}

pub struct Server {
    pub index: usize,
    pub url: String,
    pub era: Cell<Era>,
    /// Grows with every change of its tools.
    pub version: Cell<u32>,
    pub trouble: Cell<Option<(Trouble, Scope, u32)>>,
    sessions: RefCell<BTreeSet<String>>,
    begun: Cell<u32>,
}

impl Server {
    pub fn new(index: usize) -> Self {
        Self {
            index,
            url: format!("https://s{index}.example/mcp"),
            era: Cell::new(Era::Modern),
            version: Cell::new(0),
            trouble: Cell::new(None),
            sessions: RefCell::default(),
            begun: Cell::new(0),
        }
    }

    /// The names of its tools at a version.
    pub fn tools(&self, version: u32) -> Vec<String> {
        let number = 3_u32.saturating_sub(version % 4);
        (0..number)
            .map(|tool| format!("s{}-v{version}-t{tool}", self.index))
            .collect()
    }

    pub fn become_of(&self, era: Era) {
        self.era.set(era);
        self.forget();
    }

    /// Forgets all sessions.
    pub fn forget(&self) {
        self.sessions.take();
    }

    fn trouble_with(&self, rpc: &str) -> Option<Trouble> {
        let (trouble, scope, times) = self.trouble.get()?;
        if !scope.covers(rpc) {
            return None;
        }
        self.trouble
            .set((times > 1).then_some((trouble, scope, times - 1)));
        Some(trouble)
    }

    pub fn answer(&self, outside: &Outside, seen: &Seen, sent: &Sent) -> Answer {
        let trouble = self.trouble_with(&sent.rpc);
        match trouble {
            Some(Trouble::Status(status)) => return Answer::Now(status, vec![], String::new()),
            Some(Trouble::Busy(seconds)) => {
                let headers = vec![("retry-after", seconds.to_string())];
                return Answer::Now(503, headers, String::new());
            }
            Some(Trouble::Refused) => return Answer::Refused,
            Some(Trouble::Silence) => return Answer::Silence,
            Some(Trouble::Lost | Trouble::Slow(_) | Trouble::Held | Trouble::Garbage) | None => {}
        }
        let (status, headers, body) = self.heed(outside, seen, sent);
        match trouble {
            Some(Trouble::Lost) => Answer::Refused,
            Some(Trouble::Slow(pause)) => Answer::After(pause, status, headers, body),
            Some(Trouble::Held) => Answer::Held(status, headers, body),
            Some(Trouble::Garbage) => Answer::Now(status, headers, "{oops".into()),
            _ => Answer::Now(status, headers, body),
        }
    }

    fn heed(&self, outside: &Outside, seen: &Seen, sent: &Sent) -> (u16, Headers, String) {
        let is_modern = seen.header("mcp-method").is_some();
        let plain = |status| (status, vec![], String::new());
        match (seen.method.as_str(), self.era.get()) {
            ("GET", _) => return plain(405),
            ("DELETE", _) => {
                let id = seen.header("mcp-session-id").unwrap_or_default();
                self.sessions.borrow_mut().remove(id);
                return plain(200);
            }
            (_, Era::Modern) if !is_modern => return plain(400),
            (_, Era::Legacy | Era::Sessionless) if is_modern => {
                return json_of(400, &refusal(seen, -32000));
            }
            _ => {}
        }
        let of_era = |mut result: Value| {
            if is_modern {
                result["resultType"] = "complete".into();
            }
            json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result})
        };
        if sent.rpc == "initialize" {
            return self.initialize(seen);
        }
        if self.era.get() == Era::Legacy {
            let id = seen.header("mcp-session-id").unwrap_or_default();
            if !self.sessions.borrow().contains(id) {
                return plain(404);
            }
        }
        match sent.rpc.as_str() {
            "server/discover" => json_of(
                200,
                &of_era(
                    json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}),
                ),
            ),
            "notifications/initialized" | "notifications/cancelled" => plain(202),
            "tools/list" => {
                outside.note(Entry::Listed(self.index, sent.owner));
                let tools = self.tools(self.version.get());
                let tools: Vec<Value> = tools
                    .iter()
                    .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
                    .collect();
                json_of(200, &of_era(json!({"tools": tools})))
            }
            "tools/call" => {
                let operation = seen.body["params"]["arguments"]["operation"].as_u64();
                let operation = operation.unwrap();
                outside.note(Entry::Ran(usize::try_from(operation).unwrap()));
                let text = format!("{} {} {operation}", self.index, sent.owner);
                let content = json!([{"type": "text", "text": text}]);
                json_of(200, &of_era(json!({"content": content})))
            }
            other => {
                outside.fault(format!("server {} was asked {other}", self.index));
                plain(404)
            }
        }
    }

    fn initialize(&self, seen: &Seen) -> (u16, Headers, String) {
        let body = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": {
            "protocolVersion": "2025-11-25", "serverInfo": {"name": "s", "version": "1"},
            "capabilities": {"tools": {}}}});
        let (status, mut headers, body) = json_of(200, &body);
        if self.era.get() == Era::Legacy {
            self.begun.set(self.begun.get() + 1);
            let id = format!("session-{}-{}", self.index, self.begun.get());
            self.sessions.borrow_mut().insert(id.clone());
            headers.push(("mcp-session-id", id));
        }
        (status, headers, body)
    }
}

fn refusal(seen: &Seen, code: i64) -> Value {
    json!({"jsonrpc": "2.0", "id": seen.body["id"], "error": {"code": code, "message": "no"}})
}

fn json_of(status: u16, body: &Value) -> (u16, Headers, String) {
    let headers = vec![("content-type", "application/json".to_owned())];
    (status, headers, body.to_string())
}
