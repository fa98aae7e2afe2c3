//! Elicitation: what a server asks the user, and the handlers that a host registers for it.

use std::fmt;
use std::rc::Rc;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::ServerId;
use super::dial::Place;
use crate::protocol::bounded::raw_member;
use crate::protocol::clip;
use crate::protocol::form::{Form, SafeUrl, check_url};
use crate::{Error, Result};

/// The longest question that is kept for the user, in bytes.
const MAX_QUESTION: usize = 512 << 10;
/// The longest message that is shown, in characters.
const MAX_MESSAGE: usize = 4_000;

/// A question of a server to the user.
///
/// Text and schema are the server's: say which server asks, and do not trust them.
#[derive(Clone)]
pub struct ElicitRequest {
    /// What the server says, cut to 4 000 characters.
    pub message: String,
    /// How the user is to answer.
    pub mode: ElicitMode,
    params: Rc<RawValue>,
}

/// How a question is to be answered.
#[derive(Clone)]
pub enum ElicitMode {
    /// By filling in a form.
    Form {
        /// The form as the server sent it: key order, defaults and unknown keywords unchanged.
        requested_schema: Rc<RawValue>,
    },
    /// By visiting a page, of which neither client nor model may learn anything (2025-11-25,
    /// elicitation). Show the whole URL and its host, open it only when the user agrees, and never
    /// fetch it.
    Url {
        /// Where to. An absolute `http` or `https` URL that the manager's
        /// [`UrlPolicy`](crate::url_guard::UrlPolicy) opens.
        url: SafeUrl,
        /// What a later notice of completion names (2025-11-25 only).
        elicitation_id: Option<String>,
    },
}

/// The answer to a question.
#[derive(Clone, PartialEq)]
pub enum ElicitResult {
    /// The user has agreed.
    Accept {
        /// The filled form: strings, numbers, booleans and lists of strings. `None` for a URL, or a
        /// form of which every field may take its default.
        content: Option<Map<String, Value>>,
    },
    /// The user said no.
    Decline,
    /// The user said nothing.
    Cancel,
}

impl ElicitRequest {
    /// Reads the parameters of `elicitation/create`. Without a mode it is a form (2025-11-25).
    ///
    /// # Errors
    /// Why the question cannot be asked, for the server.
    pub(crate) fn read(params: Option<Box<RawValue>>) -> Result<Self, String> {
        let params: Rc<RawValue> = params.ok_or("elicitation/create has no parameters")?.into();
        if params.get().len() > MAX_QUESTION {
            return Err("the question is too long".into());
        }
        let message: String = text(&params, "message").ok_or("\"message\" is missing")?;
        // Only an absent mode is a form (2025-11-25, elicitation).
        let named = raw_member(&params, "mode").map(|mode| serde_json::from_str(mode.get()));
        let named: Option<String> = named.transpose().map_err(|_| "\"mode\" is no text")?;
        let is_url = match named.as_deref() {
            None | Some("form") => false,
            Some("url") => true,
            Some(_) => return Err("this client does not support that mode".into()),
        };
        let mode = if is_url {
            let url: String = text(&params, "url").ok_or("\"url\" is missing")?;
            let url = check_url(&url).map_err(|problem| problem.to_string())?;
            ElicitMode::Url {
                url,
                elicitation_id: text(&params, "elicitationId"),
            }
        } else {
            let schema = raw_member(&params, "requestedSchema");
            let schema = schema.ok_or("\"requestedSchema\" is missing")?.to_owned();
            ElicitMode::Form {
                requested_schema: schema.into(),
            }
        };
        Ok(Self {
            message: clip(&message, MAX_MESSAGE),
            mode,
            params,
        })
    }

    /// All parameters as the server sent them.
    pub fn params(&self) -> &RawValue {
        &self.params
    }

    /// Whether the form is one that can be filled in.
    ///
    /// # Errors
    /// Why it is not, for the server.
    pub(crate) fn check_form(&self) -> Result<(), String> {
        match &self.mode {
            ElicitMode::Url { .. } => Ok(()),
            ElicitMode::Form { requested_schema } => Form::read(requested_schema)
                .map(drop)
                .map_err(|error| error.to_string()),
        }
    }

    /// Whether the server at this place may show the page to a user.
    ///
    /// # Errors
    /// Why not, for the server.
    pub(crate) fn check_page(&self, server: &Place) -> Result<(), String> {
        match &self.mode {
            ElicitMode::Form { .. } => Ok(()),
            ElicitMode::Url { url, .. } => server
                .check_page(url.as_str())
                .map_err(|blocked| format!("the page is refused: {}", blocked.reason())),
        }
    }

    /// The answer as it is sent: an accepted form gets the defaults of the fields left out and is
    /// checked against its schema; nothing else has content.
    ///
    /// # Errors
    /// Which field does not fit, and why; never its value.
    pub(crate) fn complete(&self, result: ElicitResult) -> Result<ElicitResult, String> {
        let ElicitResult::Accept { content } = result else {
            return Ok(result);
        };
        let ElicitMode::Form { requested_schema } = &self.mode else {
            return Ok(ElicitResult::Accept { content: None });
        };
        let form = Form::read(requested_schema).map_err(|error| error.to_string())?;
        let content = form.with_defaults(content.unwrap_or_default());
        form.check(&content)
            .map_err(|problem| problem.to_string())?;
        Ok(ElicitResult::Accept {
            content: Some(content),
        })
    }
}

fn text<T: DeserializeOwned>(params: &RawValue, name: &str) -> Option<T> {
    serde_json::from_str(raw_member(params, name)?.get()).ok()
}

impl ElicitResult {
    /// Accepts with this content.
    pub fn accept(content: Map<String, Value>) -> Self {
        Self::Accept {
            content: Some(content),
        }
    }

    /// Accepts a URL, or a form with every field at its default.
    pub fn accept_empty() -> Self {
        Self::Accept { content: None }
    }
}

/// As on the wire: `{"action": "accept", "content": {…}}`.
impl Serialize for ElicitResult {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (action, content) = match self {
            Self::Accept { content } => ("accept", content.as_ref()),
            Self::Decline => ("decline", None),
            Self::Cancel => ("cancel", None),
        };
        Wire { action, content }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ElicitResult {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire: Wire<String, Map<String, Value>> = Wire::deserialize(deserializer)?;
        match wire.action.as_str() {
            "accept" => Ok(Self::Accept {
                content: wire.content,
            }),
            "decline" => Ok(Self::Decline),
            "cancel" => Ok(Self::Cancel),
            _ => Err(serde::de::Error::custom(
                "action is none of accept, decline, cancel",
            )),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Wire<A, C> {
    action: A,
    #[serde(skip_serializing_if = "Option::is_none", default = "none")]
    content: Option<C>,
}

fn none<T>() -> Option<T> {
    None
}

type Handler = Rc<dyn Fn(ElicitRequest, ServerId) -> LocalBoxFuture<'static, Result<ElicitResult>>>;

/// The handlers for questions of servers, one for each mode. Only modes with a handler are
/// declared to servers.
///
/// A handler's future is dropped when the server withdraws its question, when the call that led to
/// it is over, or when the connection is closed.
///
/// ```
/// use workers_agents::{ElicitResult, ElicitationHandlers};
/// let handlers = ElicitationHandlers::new().form(async |request, server_id| {
///     println!("{server_id} asks: {}", request.message);
///     Ok(ElicitResult::Decline)
/// });
/// ```
#[derive(Clone, Default)]
pub struct ElicitationHandlers {
    form: Option<Handler>,
    url: Option<Handler>,
}

impl ElicitationHandlers {
    /// No handlers: nothing is declared.
    pub fn new() -> Self {
        Self::default()
    }

    /// The handler for forms.
    #[must_use]
    pub fn form(
        mut self,
        handler: impl AsyncFn(ElicitRequest, ServerId) -> Result<ElicitResult> + 'static,
    ) -> Self {
        self.form = Some(boxed(handler));
        self
    }

    /// The handler for URLs.
    #[must_use]
    pub fn url(
        mut self,
        handler: impl AsyncFn(ElicitRequest, ServerId) -> Result<ElicitResult> + 'static,
    ) -> Self {
        self.url = Some(boxed(handler));
        self
    }

    pub(crate) fn has_form(&self) -> bool {
        self.form.is_some()
    }

    pub(crate) fn has_url(&self) -> bool {
        self.url.is_some()
    }

    /// Asks the handler for this question's mode.
    ///
    /// # Errors
    /// When there is no such handler, or what the handler failed with.
    pub(crate) async fn ask(&self, request: ElicitRequest, id: ServerId) -> Result<ElicitResult> {
        let (handler, mode) = match &request.mode {
            ElicitMode::Form { .. } => (&self.form, "form"),
            ElicitMode::Url { .. } => (&self.url, "url"),
        };
        let handler = handler.clone().ok_or_else(|| {
            Error::InvalidOption(format!(
                "No MCP {mode}-mode elicitation handler configured for this connection."
            ))
        })?;
        handler(request, id).await
    }
}

fn boxed(
    handler: impl AsyncFn(ElicitRequest, ServerId) -> Result<ElicitResult> + 'static,
) -> Handler {
    let handler = Rc::new(handler);
    Rc::new(move |request, id| {
        let handler = handler.clone();
        async move { handler(request, id).await }.boxed_local()
    })
}

impl fmt::Debug for ElicitationHandlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElicitationHandlers")
            .field("form", &self.has_form())
            .field("url", &self.has_url())
            .finish()
    }
}

/// Forms and addresses can hold anything, so only the mode is shown.
impl fmt::Debug for ElicitMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form { .. } => "Form",
            Self::Url { .. } => "Url",
        })
    }
}

/// What the user filled in is nobody else's business, so only the decision is shown.
impl fmt::Debug for ElicitResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept { .. } => "Accept",
            Self::Decline => "Decline",
            Self::Cancel => "Cancel",
        })
    }
}

/// A question can hold anything, so only its mode is shown.
impl fmt::Debug for ElicitRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            ElicitMode::Form { .. } => "form",
            ElicitMode::Url { .. } => "url",
        };
        f.debug_struct("ElicitRequest")
            .field("mode", &mode)
            .finish_non_exhaustive()
    }
}
