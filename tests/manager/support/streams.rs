//! Event streams that the test feeds while they are being read.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use serde_json::{Value, json};
use workers_agents::ports::{Body, HttpError};

use super::mcp_server::tool;
use super::{Reply, Seen};

type Chunk = Result<Vec<u8>, HttpError>;

/// The test's end of a body. Dropping it ends the body in good order.
#[derive(Clone)]
pub struct Feed(UnboundedSender<Chunk>);

/// The client's end.
pub struct Fed(UnboundedReceiver<Chunk>);

impl Fed {
    pub fn into_body(self) -> Body {
        self.0.boxed_local()
    }
}

/// A reply with an event stream, and the means to feed it.
pub fn feed() -> (Feed, Reply) {
    let (sender, receiver) = unbounded();
    (Feed(sender), Reply::Fed(Fed(receiver)))
}

impl Feed {
    pub fn text(&self, text: &str) {
        self.bytes(text.as_bytes().to_vec());
    }

    /// One chunk.
    pub fn bytes(&self, bytes: Vec<u8>) {
        let _ = self.0.unbounded_send(Ok(bytes));
    }

    /// One event with one message.
    pub fn message(&self, message: &Value) {
        self.text(&event(message));
    }

    /// The connection breaks.
    pub fn reset(&self) {
        let _ = self
            .0
            .unbounded_send(Err(HttpError("connection reset".into())));
        self.0.close_channel();
    }

    /// The server ends the stream in good order, whoever else holds it.
    pub fn end(&self) {
        self.0.close_channel();
    }

    /// Whether the client has hung up.
    pub fn is_gone(&self) -> bool {
        self.0.is_closed()
    }
}

pub fn event(message: &Value) -> String {
    format!("data: {message}\n\n")
}

/// A server of HTTP+SSE. Every GET begins a session with an endpoint of its own.
pub struct SseServer {
    /// What the data of the endpoint event is, with `{}` for the number of the session.
    pub endpoint: &'static str,
    pub opened: Cell<u32>,
    pub feed: RefCell<Option<Feed>>,
    /// Says nothing to a call.
    pub is_silent: Cell<bool>,
}

impl SseServer {
    pub fn new(endpoint: &'static str) -> Rc<Self> {
        Rc::new(Self {
            endpoint,
            opened: Cell::new(0),
            feed: RefCell::default(),
            is_silent: Cell::new(false),
        })
    }

    /// Answers the GET.
    pub fn open(&self) -> Reply {
        let (feed, reply) = feed();
        self.opened.set(self.opened.get() + 1);
        let endpoint = self.endpoint.replace("{}", &self.opened.get().to_string());
        feed.text(&format!("event: endpoint\ndata: {endpoint}\n\n"));
        self.feed.replace(Some(feed));
        reply
    }

    /// Answers a POST to the endpoint: 202, and the rest on the stream.
    pub fn post(&self, seen: &Seen) -> Reply {
        let result = match seen.rpc().as_str() {
            "initialize" => {
                json!({"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {"name": "pier"}})
            }
            "tools/list" => json!({"tools": [tool("echo")]}),
            "tools/call" if self.is_silent.get() => return Reply::status(202),
            "tools/call" => {
                let text = seen.body["params"]["arguments"].to_string();
                json!({"content": [{"type": "text", "text": text}]})
            }
            _ => return Reply::status(202),
        };
        let answer = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result});
        self.feed.borrow().as_ref().unwrap().message(&answer);
        Reply::status(202)
    }

    /// The server goes down: the stream breaks.
    pub fn reboot(&self) {
        self.feed.take().unwrap().reset();
    }
}
