//! The caller, as a server sees it while it works on a request.

use std::fmt;
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::desk::{Desk, Served};
use crate::protocol::bounded::raw_member;
use crate::protocol::{RequestId, RpcError};

/// Who has made the request that is worked on.
pub struct ServedCaller {
    pub(super) desk: Rc<Desk>,
    pub(super) served: Rc<Served>,
    /// Under which progress is reported, if the caller wants that: one JSON value.
    pub(super) progress_token: Option<Box<RawValue>>,
}

impl ServedCaller {
    /// Tells something. It arrives with the next question or with the response, before it.
    pub fn notify(&self, method: &str, params: &impl Serialize) {
        let notification = Ask {
            jsonrpc: "2.0",
            id: None,
            method,
            params,
        };
        // What is no JSON is not told.
        if let Ok(message) = serde_json::to_string(&notification) {
            self.served.notify(message);
        }
    }

    /// Reports progress, where the caller wants to hear of it.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            progress_token: &'a RawValue,
            progress: f64,
            #[serde(skip_serializing_if = "Option::is_none")]
            total: Option<f64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            message: Option<&'a str>,
        }
        if let Some(progress_token) = &self.progress_token {
            let params = Params {
                progress_token,
                progress,
                total,
                message,
            };
            self.notify("notifications/progress", &params);
        }
    }

    /// Asks the caller: `elicitation/create`, `sampling/createMessage` or `roots/list`. The call that
    /// made the request returns with the question, and the request goes on when the answer comes.
    ///
    /// # Errors
    /// What the caller refuses it with; that it does not offer such a thing; that it has gone.
    pub async fn ask(&self, method: &str, params: &impl Serialize) -> Result<Value, RpcError> {
        let capability = match method {
            "elicitation/create" => "elicitation",
            "sampling/createMessage" => "sampling",
            "roots/list" => "roots",
            _ => return Err(RpcError::unknown_method()),
        };
        // After a wake it is not known what the caller offers: it may have been told to another instance.
        let offered = self.greeted::<Value>("capabilities");
        if offered.is_some_and(|offered| offered.get(capability).is_none()) {
            let text = format!("the caller does not offer {capability}");
            return Err(RpcError::refusal(RpcError::METHOD_NOT_FOUND, text));
        }
        let broken = |text: &str| RpcError::refusal(RpcError::INTERNAL, text);
        let random = [getrandom::u64(), getrandom::u64()];
        let [Ok(high), Ok(low)] = random else {
            return Err(broken("there is no randomness"));
        };
        // The prefix tells callers that what comes after is the result of the answer.
        let id = RequestId::Text(format!("elicit_{high:016x}{low:016x}"));
        let question = Ask {
            jsonrpc: "2.0",
            id: Some(&id),
            method,
            params,
        };
        let question =
            serde_json::to_string(&question).map_err(|error| broken(&error.to_string()))?;
        let answer = self.desk.expect(id, self.served.clone());
        self.served.ask(question);
        let answer = answer.await.map_err(|_| broken("the request is over"))??;
        serde_json::from_str(answer.get()).map_err(|error| broken(&error.to_string()))
    }

    /// A member of what the caller said in its handshake, such as `clientInfo`. `None` after a wake,
    /// and where all callers share the object it is the last one who is known.
    pub fn greeted<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let greeting = self.desk.greeting.borrow().clone()?;
        serde_json::from_str(raw_member(&greeting, name)?.get()).ok()
    }
}

/// A request, or without an id a notification.
#[derive(Serialize)]
struct Ask<'a, P> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RequestId>,
    method: &'a str,
    params: &'a P,
}

impl fmt::Debug for ServedCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedCaller")
            .field("request", &self.served.id)
            .finish_non_exhaustive()
    }
}
