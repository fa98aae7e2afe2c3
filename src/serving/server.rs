//! [`RpcServer`]: one call after the other, and what each returns.

use std::fmt;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::channel::oneshot;
use futures::future::{AbortHandle, Abortable, Either, select, try_join_all};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::caller::ServedCaller;
use super::desk::{Desk, Outcome, Said, Served};
use super::{ServeMcp, ServedRequest, ServerProfile};
use crate::ports::{Clock, Spawn};
use crate::protocol::bounded::{self, raw_member};
use crate::protocol::jsonrpc::decode;
use crate::protocol::{Era, Message, RequestId, Revision, RpcError, request};

/// Invalid request (JSON-RPC 2.0 §5.1).
const INVALID_REQUEST: i64 = -32600;

/// What an [`RpcServer`] may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeLimits {
    /// The longest argument of one call, in bytes of JSON. Default 10 MiB.
    pub message_bytes: usize,
    /// The most messages in one call. Default 100.
    pub batch: usize,
    /// The most requests that are worked on at once. Default 100.
    pub requests: usize,
    /// How long one call may last: until the response or the next question. Default 60 s, as in the
    /// TypeScript package.
    pub timeout: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            message_bytes: 10 << 20,
            batch: 100,
            requests: 100,
            timeout: Duration::from_mins(1),
        }
    }
}

/// What a call throws. The texts are those of the TypeScript package.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An array without messages.
    #[error("Invalid JSON-RPC batch: array must not be empty")]
    EmptyBatch,
    /// Another request of this id is worked on.
    #[error("Duplicate pending RPC request id: {0}")]
    DuplicateId(String),
    /// It took too long, and was given up.
    #[error("Request timeout: No response received within {}ms", .0.as_millis())]
    Timeout(Duration),
    /// The argument is larger than [`ServeLimits`] allow.
    #[error("The message is larger than {0} bytes")]
    TooLarge(usize),
}

/// Serves MCP to whoever calls the object. Cheap to clone.
///
/// Requests are worked on at the same time. All callers share the server; responses go to the calls
/// that they belong to.
pub struct RpcServer<S> {
    server: Rc<S>,
    desk: Rc<Desk>,
    clock: Rc<dyn Clock>,
    spawn: Rc<dyn Spawn>,
    limits: ServeLimits,
}

impl<S: ServeMcp + 'static> RpcServer<S> {
    /// A server on ports of the caller's own. In a Durable Object use `RpcServer::new`.
    pub fn on_ports(server: S, clock: Rc<dyn Clock>, spawn: Rc<dyn Spawn>) -> Self {
        Self {
            server: Rc::new(server),
            desk: Rc::default(),
            clock,
            spawn,
            limits: ServeLimits::default(),
        }
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(self, limits: ServeLimits) -> Self {
        Self { limits, ..self }
    }

    /// Handles what one call brings, a message or an array of them, as the text of JSON. What it
    /// returns is the same; `None` is nothing.
    ///
    /// # Errors
    /// What the call throws.
    pub async fn handle(&self, text: &str) -> Result<Option<String>, ServeError> {
        if text.len() > self.limits.message_bytes {
            return Err(ServeError::TooLarge(self.limits.message_bytes));
        }
        if !text.trim_start().starts_with('[') {
            let said = self.message(text).await?;
            return Ok(match &said[..] {
                [] => None,
                [one] => Some(one.clone()),
                several => Some(array(several)),
            });
        }
        let batch = bounded::list::<Box<RawValue>>(text.as_bytes(), self.limits.batch);
        let Ok((messages, false)) = batch else {
            return Ok(Some(invalid("null")));
        };
        if messages.is_empty() {
            return Err(ServeError::EmptyBatch);
        }
        let said = messages.iter().map(|message| self.message(message.get()));
        let said = try_join_all(said).await?.concat();
        Ok((!said.is_empty()).then(|| array(&said)))
    }

    async fn message(&self, text: &str) -> Result<Said, ServeError> {
        let message = match decode(text.as_bytes()) {
            Ok(mut messages) if messages.len() == 1 => messages.pop(),
            _ => None,
        };
        match message {
            Some(Message::Request { id, method, params }) => {
                self.request(id, ServedRequest { method, params }).await
            }
            Some(Message::Notification { method, params }) => {
                self.notified(&method, params.as_deref());
                Ok(Said::new())
            }
            Some(Message::Response {
                id: Some(id),
                outcome,
            }) => match self.desk.answer(&id, outcome) {
                Some((served, next)) => self.next(&served, next).await,
                // To no question that is open.
                None => Ok(Said::new()),
            },
            Some(Message::Response { id: None, .. }) => Ok(Said::new()),
            None => Ok(vec![invalid(&id_of(text))]),
        }
    }

    async fn request(&self, id: RequestId, request: ServedRequest) -> Result<Said, ServeError> {
        match request.method.as_str() {
            "initialize" => {
                let result = self.greet(request.params);
                return Ok(vec![answered(&id, Ok(result))]);
            }
            "ping" => return Ok(vec![answered(&id, Ok(json!({})))]),
            _ if self.desk.count() >= self.limits.requests => {
                let refusal = RpcError::refusal(RpcError::INTERNAL, "too many requests at once");
                return Ok(vec![answered(&id, Err(refusal))]);
            }
            _ => {}
        }
        let (abort, registration) = AbortHandle::new_pair();
        let served = Served::new(id, abort);
        if !self.desk.begin(&served) {
            let id = serde_json::to_string(&served.id).unwrap_or_default();
            return Err(ServeError::DuplicateId(id.trim_matches('"').to_owned()));
        }
        let next = served.wait();
        let meta = request.params.as_deref();
        let meta = meta.and_then(|params| raw_member(params, "_meta"));
        let token = meta.and_then(|meta| raw_member(meta, "progressToken"));
        let caller = ServedCaller {
            desk: self.desk.clone(),
            served: served.clone(),
            progress_token: token.map(ToOwned::to_owned),
        };
        let this = self.clone();
        let work = async move {
            let outcome = this.server.request(&request, &caller).await;
            let id = &caller.served.id;
            this.desk.end(id);
            caller.served.end(answered(id, outcome));
        };
        self.spawn
            .spawn(Abortable::new(work, registration).map(drop).boxed_local());
        self.next(&served, next).await
    }

    /// What is said next for a request.
    async fn next(
        &self,
        served: &Rc<Served>,
        next: oneshot::Receiver<Said>,
    ) -> Result<Said, ServeError> {
        let limit = self.limits.timeout;
        match select(next, pin!(self.clock.sleep(limit))).await {
            // Cancelled: nobody wants to hear of it.
            Either::Left((said, _)) => Ok(said.unwrap_or_default()),
            Either::Right(_) => {
                self.desk.end(&served.id);
                served.cancel();
                Err(ServeError::Timeout(limit))
            }
        }
    }

    fn notified(&self, method: &str, params: Option<&RawValue>) {
        if method == "notifications/cancelled" {
            let id = params.and_then(|params| raw_member(params, "requestId"));
            let id = id.and_then(|id| serde_json::from_str::<RequestId>(id.get()).ok());
            if let Some(served) = id.and_then(|id| self.desk.end(&id)) {
                served.cancel();
            }
        }
        self.server.notified(method, params);
    }

    /// The result of a handshake. A revision that the server does not speak is answered with one that
    /// it does (2025-11-25, lifecycle).
    fn greet(&self, params: Option<Box<RawValue>>) -> Value {
        let asked = params
            .as_deref()
            .and_then(|params| raw_member(params, "protocolVersion"))
            .and_then(|asked| serde_json::from_str::<String>(asked.get()).ok())
            .and_then(|asked| Revision::parse(&asked))
            .filter(|asked| asked.era() == Era::Legacy);
        self.desk.greeting.replace(params.map(Into::into));
        let ServerProfile {
            name,
            version,
            instructions,
            capabilities,
        } = self.server.profile();
        let mut result = json!({
            "protocolVersion": asked.unwrap_or(Revision::NEWEST_LEGACY).as_str(),
            "capabilities": capabilities,
            "serverInfo": {"name": name, "version": version},
        });
        if let (Some(instructions), Some(result)) = (instructions, result.as_object_mut()) {
            result.insert("instructions".into(), instructions.into());
        }
        result
    }
}

fn array(messages: &[String]) -> String {
    format!("[{}]", messages.join(","))
}

/// The text of a response.
fn answered(id: &RequestId, outcome: Result<Value, RpcError>) -> String {
    let outcome: Outcome = outcome.and_then(|result| {
        serde_json::value::to_raw_value(&result)
            .map_err(|error| RpcError::refusal(RpcError::INTERNAL, error.to_string()))
    });
    let refused = outcome.as_ref().map(|result| &**result);
    let refused = refused.map_err(|error| (error.code, &*error.message));
    request::answer_to_server(id, refused).unwrap_or_else(|_| invalid("null"))
}

fn invalid(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","error":{{"code":{INVALID_REQUEST},"message":"Invalid Request"}},"id":{id}}}"#
    )
}

/// The id of what is no message, as JSON, so that the caller may know which it was.
fn id_of(text: &str) -> String {
    let text = serde_json::from_str::<&RawValue>(text).ok();
    let id = text.and_then(|text| raw_member(text, "id"));
    let id = id.and_then(|id| serde_json::from_str::<RequestId>(id.get()).ok());
    let id = id.and_then(|id| serde_json::to_string(&id).ok());
    id.unwrap_or_else(|| "null".to_owned())
}

impl<S> Clone for RpcServer<S> {
    fn clone(&self) -> Self {
        Self {
            server: self.server.clone(),
            desk: self.desk.clone(),
            clock: self.clock.clone(),
            spawn: self.spawn.clone(),
            limits: self.limits,
        }
    }
}

impl<S> fmt::Debug for RpcServer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RpcServer")
            .field("requests", &self.desk.count())
            .finish_non_exhaustive()
    }
}
