//! What may go wrong between a model and its tools.

use std::time::Duration;

use crate::Error;

/// Why a tool could not be called for a model, or a model not be asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AiError {
    /// The set has no such tool.
    #[error("there is no tool \"{0}\"")]
    UnknownTool(String),
    /// The arguments are no JSON object.
    #[error("the arguments are not a JSON object: {0}")]
    BadArguments(String),
    /// Its definition is not the one any more that was approved.
    #[error("tool \"{0}\" has changed since it was approved")]
    ToolChanged(String),
    /// The call failed.
    #[error(transparent)]
    Call(#[from] Error),
    /// The model could not be asked, or answered what cannot be used.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// There was not enough time.
    #[error("{what} took longer than {} ms", .after.as_millis())]
    Timeout {
        /// What took too long.
        what: &'static str,
        /// The limit.
        after: Duration,
    },
    /// The conversation has become larger than allowed.
    #[error("the conversation is larger than {0} bytes")]
    TooLarge(usize),
    /// Something in the options cannot be used; the text says what.
    #[error("{0}")]
    InvalidOption(String),
}

/// Why a model did not answer. Texts come from whoever runs it; they are cut, and hold no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// It could not be reached.
    #[error("the model cannot be reached: {0}")]
    Unreachable(String),
    /// It refused.
    #[error("the model answered with status {status}: {message}")]
    Status {
        /// The HTTP status.
        status: u16,
        /// What it said.
        message: String,
        /// After how many seconds it may be asked again, where it said so.
        retry_after: Option<u64>,
    },
    /// The binding threw.
    #[error("the model failed: {0}")]
    Failed(String),
    /// Its answer is not of the expected form.
    #[error("the answer of the model cannot be read: {0}")]
    Unreadable(&'static str),
    /// Its answer is too large.
    #[error("the answer of the model is larger than {0} bytes")]
    TooLarge(usize),
}
