//! Objects behind bindings, in memory.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use async_trait::async_trait;
use futures::channel::oneshot;
use serde_json::{Value, json};
use workers_agents::ports::*;

/// What a call returns.
pub type Returned = Result<Option<String>, ObjectError>;

/// When a call returns.
pub enum Back {
    Now(Returned),
    /// When the test says so. Never, if it drops the sender.
    Later(oneshot::Receiver<Returned>),
}

impl Back {
    pub fn json(value: Value) -> Self {
        Self::Now(Ok(Some(value.to_string())))
    }

    pub fn nothing() -> Self {
        Self::Now(Ok(None))
    }

    pub fn result(asked: &Value, result: Value) -> Self {
        Self::json(response(asked, result))
    }

    pub fn later() -> (oneshot::Sender<Returned>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self::Later(receiver))
    }
}

pub fn response(asked: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": asked["id"], "result": result})
}

pub fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

type Behaviour = Rc<dyn Fn(&Value) -> Option<Back>>;

/// The bindings of a Worker.
#[derive(Default)]
pub struct Fleet {
    objects: RefCell<BTreeMap<String, Behaviour>>,
    pub connected: RefCell<Vec<ObjectAddress>>,
    /// What the next attempts to connect fail with.
    pub faults: RefCell<VecDeque<ObjectError>>,
    pub seen: RefCell<Vec<Value>>,
}

impl Fleet {
    /// A server of the legacy era under a binding, with what it does besides the ordinary.
    pub fn serve(&self, binding: &str, behaviour: impl Fn(&Value) -> Option<Back> + 'static) {
        self.objects
            .borrow_mut()
            .insert(binding.into(), Rc::new(behaviour));
    }

    pub fn methods(&self) -> Vec<String> {
        let seen = self.seen.borrow();
        let method = |message: &Value| message["method"].as_str().unwrap_or("answer").to_owned();
        seen.iter().map(method).collect()
    }

    /// What arrived of one method.
    pub fn all(&self, method: &str) -> Vec<Value> {
        let seen = self.seen.borrow();
        let all = seen.iter().filter(|message| message["method"] == method);
        all.cloned().collect()
    }

    /// What arrived that is an answer.
    pub fn answers(&self) -> Vec<Value> {
        let seen = self.seen.borrow();
        let all = seen.iter().filter(|message| message["method"].is_null());
        all.cloned().collect()
    }
}

pub struct Worker(pub Rc<Fleet>);

#[async_trait(?Send)]
impl Objects for Worker {
    fn caller(&self) -> String {
        "00ff".into()
    }

    async fn connect(&self, to: &ObjectAddress) -> Result<Rc<dyn RemoteObject>, ObjectError> {
        self.0.connected.borrow_mut().push(to.clone());
        if let Some(fault) = self.0.faults.borrow_mut().pop_front() {
            return Err(fault);
        }
        let behaviour = self.0.objects.borrow().get(&to.binding).cloned();
        let behaviour = behaviour.ok_or_else(|| ObjectError::NoBinding(to.binding.clone()))?;
        Ok(Rc::new(Object {
            fleet: self.0.clone(),
            behaviour,
        }))
    }
}

struct Object {
    fleet: Rc<Fleet>,
    behaviour: Behaviour,
}

#[async_trait(?Send)]
impl RemoteObject for Object {
    async fn call(&self, message: &str, max_bytes: usize) -> Returned {
        let message: Value = serde_json::from_str(message).unwrap();
        self.fleet.seen.borrow_mut().push(message.clone());
        let back = (self.behaviour)(&message).unwrap_or_else(|| ordinary(&message));
        let returned = match back {
            Back::Now(returned) => returned,
            Back::Later(returned) => match returned.await {
                Ok(returned) => returned,
                Err(_) => futures::future::pending().await,
            },
        };
        match returned {
            Ok(Some(text)) if text.len() > max_bytes => Err(ObjectError::TooLarge(max_bytes)),
            returned => returned,
        }
    }
}

/// What an `McpAgent` with two tools says.
fn ordinary(message: &Value) -> Back {
    match message["method"].as_str() {
        Some("initialize") => Back::result(
            message,
            json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "counter", "version": "1"},
            }),
        ),
        Some("tools/list") => Back::result(
            message,
            json!({"tools": [
                {"name": "ask", "inputSchema": {"type": "object"}},
                {"name": "echo", "inputSchema": {"type": "object"}},
            ]}),
        ),
        Some("tools/call") => Back::result(message, text(&message["params"]["name"].to_string())),
        Some(_) if !message["id"].is_null() => Back::json(json!({
            "jsonrpc": "2.0", "id": message["id"],
            "error": {"code": -32601, "message": "Method not found"},
        })),
        _ => Back::nothing(),
    }
}
