//! [`Model`]: what is asked and what it answers, whoever runs it.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::error::ModelError;
use super::output::ToolOutput;
use super::tool_set::ToolSet;

/// A model that chats and calls tools.
#[async_trait(?Send)]
pub trait Model {
    /// Asks it once. Dropping the future gives the request up.
    async fn generate(&self, request: &ModelRequest<'_>) -> Result<ModelAnswer, ModelError>;
}

/// What a model is asked.
#[non_exhaustive]
pub struct ModelRequest<'a> {
    /// What it is told before everything else.
    pub system: Option<&'a str>,
    /// The conversation so far.
    pub messages: &'a [ChatMessage],
    /// What it may call.
    pub tools: &'a ToolSet,
    /// The most tokens of its answer.
    pub max_tokens: Option<u32>,
    /// Given pieces of its text as they come. Without it the answer need not be streamed.
    pub on_text: Option<&'a dyn Fn(&str)>,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ChatMessage {
    /// From the user.
    User(String),
    /// From the model.
    Assistant {
        /// What it said; empty if nothing.
        text: String,
        /// What it wants to be called.
        calls: Vec<ToolRequest>,
    },
    /// What came of a call.
    Tool {
        /// The id of the call.
        call_id: String,
        /// The name that the model called.
        name: String,
        /// What came of it.
        output: ToolOutput,
    },
}

/// A call that a model asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolRequest {
    /// Tells it apart within the conversation.
    pub id: String,
    /// The name of the tool, as the model wrote it.
    pub name: String,
    /// The arguments as the model wrote them: supposed to be a JSON object.
    pub arguments: String,
}

/// What a model answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelAnswer {
    /// What it said.
    pub text: String,
    /// What it wants to be called. Ids may be missing.
    pub calls: Vec<ToolRequest>,
    /// Why it stopped.
    pub finish: FinishReason,
    /// What it took.
    pub usage: Usage,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FinishReason {
    /// It was done, or did not say otherwise.
    #[default]
    Stop,
    /// It wants tools to be called.
    ToolCalls,
    /// Its answer would have been too long.
    Length,
    /// What it said was held back.
    ContentFilter,
}

/// Tokens, as the provider counts them; 0 where it does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Usage {
    /// Of what the model read.
    pub input_tokens: u64,
    /// Of what it wrote.
    pub output_tokens: u64,
}

impl Usage {
    pub(super) fn add(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
    }
}

impl ChatMessage {
    /// A message from the user.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User(text.into())
    }

    /// A message from the model.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant {
            text: text.into(),
            calls: Vec::new(),
        }
    }

    /// Roughly how large it is in a request, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::User(text) => text.len(),
            Self::Assistant { text, calls } => calls
                .iter()
                .map(|call| call.id.len() + call.name.len() + call.arguments.len())
                .fold(text.len(), usize::saturating_add),
            Self::Tool { output, .. } => output.bytes(),
        }
    }
}

impl fmt::Debug for ModelRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelRequest")
            .field("messages", &self.messages.len())
            .field("tools", self.tools)
            .finish_non_exhaustive()
    }
}
