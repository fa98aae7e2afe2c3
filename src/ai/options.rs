//! [`GenerateOptions`]: what [`generate_text`](super::generate_text) may be told.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use serde_json::value::RawValue;

use super::Step;
use super::model::ChatMessage;
use super::output::OutputLimits;
use super::tool::AiTool;

/// What is asked, and within which limits.
#[derive(Clone)]
pub struct GenerateOptions {
    pub(super) messages: Vec<ChatMessage>,
    pub(super) system: Option<String>,
    pub(super) max_steps: usize,
    stop_when: Option<Rc<StopWhen>>,
    pub(super) max_tokens: Option<u32>,
    pub(super) max_calls: usize,
    pub(super) parallel: usize,
    pub(super) model_timeout: Duration,
    pub(super) tool_timeout: Duration,
    pub(super) timeout: Duration,
    pub(super) max_bytes: usize,
    pub(super) output: OutputLimits,
    pub(super) approve: Option<Rc<Approve>>,
    pub(super) on_text: Option<Rc<OnText>>,
}

type StopWhen = dyn Fn(&[Step]) -> bool;
type OnText = dyn Fn(&str);
type Approve = dyn Fn(PendingCall) -> LocalBoxFuture<'static, Approval>;

/// A call that a model asks for, before it is made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PendingCall {
    /// The tool.
    pub tool: AiTool,
    /// The arguments: one JSON object.
    pub arguments: Box<RawValue>,
}

/// Whether a call may be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// It may.
    Allow,
    /// It may not. The model is told why.
    Deny(String),
}

impl GenerateOptions {
    /// One question of a user.
    pub fn prompt(text: impl Into<String>) -> Self {
        Self::messages(vec![ChatMessage::user(text)])
    }

    /// A conversation that goes on.
    pub fn messages(messages: Vec<ChatMessage>) -> Self {
        Self {
            messages,
            system: None,
            max_steps: 5,
            stop_when: None,
            max_tokens: None,
            max_calls: 16,
            parallel: 4,
            model_timeout: Duration::from_mins(2),
            tool_timeout: Duration::from_mins(1),
            timeout: Duration::from_mins(10),
            max_bytes: 8 << 20,
            output: OutputLimits::default(),
            approve: None,
            on_text: None,
        }
    }

    /// What the model is told before everything else.
    #[must_use]
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.system = Some(text.into());
        self
    }

    /// How often the model is asked at most. Default: 5. At least 1.
    #[must_use]
    pub fn max_steps(mut self, steps: usize) -> Self {
        self.max_steps = steps.max(1);
        self
    }

    /// Stops after a step, tools called, when this holds for the steps so far.
    #[must_use]
    pub fn stop_when(mut self, condition: impl Fn(&[Step]) -> bool + 'static) -> Self {
        self.stop_when = Some(Rc::new(condition));
        self
    }

    /// Whether it is to stop after these steps.
    pub(super) fn stops(&self, steps: &[Step]) -> bool {
        self.stop_when.as_ref().is_some_and(|stop| stop(steps))
    }

    /// The most tokens of one answer.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = Some(tokens);
        self
    }

    /// The most calls of one step; further ones are refused, which the model is told. Default: 16.
    #[must_use]
    pub fn max_calls(mut self, calls: usize) -> Self {
        self.max_calls = calls;
        self
    }

    /// How many calls run at once. Default: 4. At least 1.
    #[must_use]
    pub fn parallel(mut self, calls: usize) -> Self {
        self.parallel = calls.max(1);
        self
    }

    /// How long one answer of the model may take. Default: 2 min.
    #[must_use]
    pub fn model_timeout(mut self, limit: Duration) -> Self {
        self.model_timeout = limit;
        self
    }

    /// How long one call may take in all, whatever progress it makes. The model is told when it
    /// takes longer. Default: 1 min.
    #[must_use]
    pub fn tool_timeout(mut self, limit: Duration) -> Self {
        self.tool_timeout = limit;
        self
    }

    /// How long all of it may take, approvals included. Default: 10 min.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// How large the conversation may become, in bytes. Default: 8 MiB.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// What the model is given of each result.
    #[must_use]
    pub fn output_limits(mut self, limits: OutputLimits) -> Self {
        self.output = limits;
        self
    }

    /// Asked before every call, such as for those that [may
    /// destroy](super::ToolAnnotations::may_destroy) something. Calls of one step are asked about
    /// one after the other.
    #[must_use]
    pub fn approve<F: Future<Output = Approval> + 'static>(
        mut self,
        approve: impl Fn(PendingCall) -> F + 'static,
    ) -> Self {
        self.approve = Some(Rc::new(move |call| approve(call).boxed_local()));
        self
    }

    /// Given the text of the model piece by piece.
    #[must_use]
    pub fn on_text(mut self, listener: impl Fn(&str) + 'static) -> Self {
        self.on_text = Some(Rc::new(listener));
        self
    }
}

impl fmt::Debug for GenerateOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenerateOptions")
            .field("messages", &self.messages.len())
            .field("max_steps", &self.max_steps)
            .finish_non_exhaustive()
    }
}
