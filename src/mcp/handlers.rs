//! Everything a host can answer servers with: elicitation, sampling and roots.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::ServerId;
use super::elicitation::ElicitationHandlers;
use super::offers::Offers;
use crate::protocol::bounded::raw_member;
use crate::{Error, Result};

/// A server asks the host's model for a completion (`sampling/createMessage`).
///
/// Ask a human before and after: the prompt is the server's, and the answer goes to it.
#[derive(Clone)]
pub struct SamplingRequest {
    params: Rc<RawValue>,
}

impl SamplingRequest {
    /// All parameters as the server sent them: `messages`, `maxTokens`, `modelPreferences` and so on.
    pub fn params(&self) -> &RawValue {
        &self.params
    }

    /// Reads one parameter. `None` when it is absent or of another type.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(raw_member(&self.params, name)?.get()).ok()
    }
}

/// The answer to a [`SamplingRequest`].
#[derive(Clone)]
pub enum SamplingResult {
    /// The model's message: `{"role", "content", "model", "stopReason"}`.
    Message(serde_json::Value),
    /// The user refused.
    Rejected,
}

/// A place that the host lets servers know of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Root {
    /// A `file://` URI: the protocol knows no others.
    pub uri: String,
    /// The name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

pub(super) type SamplingHandler =
    Rc<dyn Fn(SamplingRequest, ServerId) -> LocalBoxFuture<'static, Result<SamplingResult>>>;

/// What a host has registered. Shared by every connection of a manager.
#[derive(Default)]
pub(crate) struct Handlers {
    elicitation: RefCell<ElicitationHandlers>,
    sampling: RefCell<Option<SamplingHandler>>,
    roots: RefCell<Option<Rc<[Root]>>>,
    /// Whether the host has said anything since this object woke.
    configured: Cell<bool>,
}

impl Handlers {
    pub(crate) fn set_elicitation(&self, handlers: ElicitationHandlers) {
        self.configured.set(true);
        self.elicitation.replace(handlers);
    }

    pub(crate) fn set_sampling(&self, handler: Option<SamplingHandler>) {
        self.configured.set(true);
        self.sampling.replace(handler);
    }

    /// # Errors
    /// [`Error::InvalidOption`] for a root that is no `file://` URI.
    pub(crate) fn set_roots(&self, roots: Option<Vec<Root>>) -> Result<()> {
        let foreign = roots
            .iter()
            .flatten()
            .find(|root| !root.uri.starts_with("file://"));
        if foreign.is_some() {
            return Err(Error::InvalidOption(
                "a root must be a file:// URI (MCP, roots)".into(),
            ));
        }
        self.configured.set(true);
        self.roots.replace(roots.map(Into::into));
        Ok(())
    }

    pub(crate) fn elicitation(&self) -> ElicitationHandlers {
        self.elicitation.borrow().clone()
    }

    pub(crate) fn sampling(&self) -> Option<SamplingHandler> {
        self.sampling.borrow().clone()
    }

    pub(crate) fn roots(&self) -> Option<Rc<[Root]>> {
        self.roots.borrow().clone()
    }

    pub(crate) fn is_configured(&self) -> bool {
        self.configured.get()
    }

    /// What has a handler behind it.
    pub(crate) fn offers(&self) -> Offers {
        let elicitation = self.elicitation.borrow();
        Offers {
            form: elicitation.has_form(),
            url: elicitation.has_url(),
            sampling: self.sampling.borrow().is_some(),
            roots: self.roots.borrow().is_some(),
        }
    }
}

pub(crate) fn sampling_request(params: Rc<RawValue>) -> SamplingRequest {
    SamplingRequest { params }
}

pub(crate) fn boxed_sampling(
    handler: impl AsyncFn(SamplingRequest, ServerId) -> Result<SamplingResult> + 'static,
) -> SamplingHandler {
    let handler = Rc::new(handler);
    Rc::new(move |request, id| {
        let handler = handler.clone();
        async move { handler(request, id).await }.boxed_local()
    })
}

/// What a model says can be anything, so only the kind is shown.
impl fmt::Debug for SamplingResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Message(_) => "Message",
            Self::Rejected => "Rejected",
        })
    }
}

/// Prompts can hold anything, so nothing of one is shown.
impl fmt::Debug for SamplingRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SamplingRequest").finish_non_exhaustive()
    }
}
