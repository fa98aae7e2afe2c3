//! Answering what a server asks: its requests in the legacy era, the inputs that a result requires
//! in the modern one.

use std::rc::Rc;

use serde::Serialize;
use serde_json::value::RawValue;

use super::ServerId;
use super::dial::Place;
use super::elicitation::{ElicitMode, ElicitRequest};
use super::handlers::{Handlers, SamplingResult, sampling_request};
use super::offers::Offers;
use crate::protocol::bounded::raw_member;
use crate::protocol::{RpcError, clip};

/// The longest reason that a server is told, in characters.
const MAX_REASON: usize = 500;

/// Why a server gets no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Nothing of the kind was declared.
    NotOffered,
    /// The request is none that can be answered.
    Invalid(String),
    /// The user refused a sampling.
    Rejected,
    /// The handler failed.
    Failed(String),
}

impl Refusal {
    /// Code and message of the legacy era's answer.
    pub(crate) fn to_rpc(&self) -> (i64, &str) {
        match self {
            Self::NotOffered => (RpcError::METHOD_NOT_FOUND, "Method not found"),
            Self::Invalid(reason) => (RpcError::INVALID_PARAMS, reason),
            // The specification's own code for it (2025-11-25, sampling).
            Self::Rejected => (-1, "User rejected sampling request"),
            Self::Failed(reason) => (RpcError::INTERNAL, reason),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.to_rpc().1)
    }
}

/// Who asks, and what was declared to them.
#[derive(Clone)]
pub(crate) struct Asker {
    pub(crate) server: ServerId,
    pub(crate) offers: Offers,
    pub(crate) handlers: Rc<Handlers>,
    /// Where they are.
    pub(crate) place: Place,
}

/// Answers one request of a server with the result as it goes on the wire.
pub(crate) async fn answer(
    asker: Asker,
    method: &str,
    params: Option<Box<RawValue>>,
) -> Result<Box<RawValue>, Refusal> {
    let Asker {
        server,
        offers,
        handlers,
        place,
    } = asker;
    if !offers.cover(method) {
        return Err(Refusal::NotOffered);
    }
    match method {
        "elicitation/create" => elicit(server, &place, offers, &handlers, params).await,
        "sampling/createMessage" => sample(server, &handlers, params).await,
        "roots/list" => {
            let roots = handlers.roots().ok_or(Refusal::NotOffered)?;
            result(&serde_json::json!({ "roots": &*roots }))
        }
        _ => Err(Refusal::NotOffered),
    }
}

async fn elicit(
    server: ServerId,
    place: &Place,
    offers: Offers,
    handlers: &Handlers,
    params: Option<Box<RawValue>>,
) -> Result<Box<RawValue>, Refusal> {
    let request = ElicitRequest::read(params).map_err(Refusal::Invalid)?;
    let (is_offered, mode) = match request.mode {
        ElicitMode::Form { .. } => (offers.form, "form"),
        ElicitMode::Url { .. } => (offers.url, "url"),
    };
    if !is_offered {
        // The code is a rule (2025-11-25, elicitation).
        return Err(Refusal::Invalid(format!(
            "this client does not support {mode}-mode elicitation"
        )));
    }
    let handlers = handlers.elicitation();
    if !handlers.has_form() && !handlers.has_url() {
        return Err(Refusal::Failed(
            "Elicitation handler must be implemented for your platform.".into(),
        ));
    }
    request.check_form().map_err(Refusal::Invalid)?;
    request.check_page(place).map_err(Refusal::Invalid)?;
    let outcome = handlers
        .ask(request.clone(), server)
        .await
        .map_err(failed)?;
    let outcome = request
        .complete(outcome)
        .map_err(|reason| Refusal::Failed(format!("the answer does not fit the form: {reason}")))?;
    result(&outcome)
}

async fn sample(
    server: ServerId,
    handlers: &Handlers,
    params: Option<Box<RawValue>>,
) -> Result<Box<RawValue>, Refusal> {
    let handler = handlers.sampling().ok_or(Refusal::NotOffered)?;
    let params = params.ok_or_else(|| Refusal::Invalid("no parameters".into()))?;
    let request = sampling_request(params.into());
    // Looked at as text: a few bytes of it may stand for much memory.
    let begins = |name: &str, with: char| {
        raw_member(request.params(), name).is_some_and(|value| value.get().starts_with(with))
    };
    if !begins("messages", '[') {
        return Err(Refusal::Invalid("\"messages\" is missing".into()));
    }
    // Neither tools nor context of other servers were declared (2025-11-25, sampling).
    let tools = raw_member(request.params(), "tools");
    let has_tools = tools.is_some_and(|tools| tools.get() != "null");
    if has_tools {
        return Err(Refusal::Invalid(
            "this client does not support tools in sampling".into(),
        ));
    }
    match handler(request, server).await.map_err(failed)? {
        SamplingResult::Message(message) if message.is_object() => result(&message),
        SamplingResult::Message(_) => Err(Refusal::Failed("the handler gave no message".into())),
        SamplingResult::Rejected => Err(Refusal::Rejected),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
fn failed(error: crate::Error) -> Refusal {
    Refusal::Failed(clip(&error.describe(), MAX_REASON))
}

fn result(value: &impl Serialize) -> Result<Box<RawValue>, Refusal> {
    serde_json::value::to_raw_value(value).map_err(|error| Refusal::Failed(error.to_string()))
}
