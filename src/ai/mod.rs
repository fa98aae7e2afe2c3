//! Tools for models: the tools of MCP servers in the form that models take, and a small loop that
//! lets a model use them.
//!
//! [`McpClientManager::ai_tools`](crate::McpClientManager::ai_tools) gives a [`ToolSet`]. It is
//! written into the body of a request ([`ToolSet::to_openai_chat`] and so on), calls tools by the
//! names that models know ([`ToolSet::call`]), and results are written back ([`ToolOutput`]).
//! [`generate_text`] does all of that with a [`Model`].
//!
//! What servers say is untrusted, and a model reads it: names, descriptions and results are cut and
//! cleaned of what people cannot see. That does not keep a server from lying. So choose the tools
//! ([`ToolSet::only`]), pin what somebody has approved ([`ToolSet::pinned`]), and ask before calls
//! that may do harm ([`GenerateOptions::approve`]).
//!
//! A Worker that uses none of this links none of it.

mod cache;
mod chat;
mod definitions;
mod error;
mod generate;
mod model;
mod names;
mod open_ai;
mod options;
mod output;
mod pins;
mod platform;
mod schema;
mod text;
mod tool;
mod tool_set;
mod workers_ai;

pub use definitions::{ToolChange, ToolDefinitions, ToolReport};
pub use error::{AiError, ModelError};
pub use generate::{Ended, GeneratedText, Step, generate_text};
pub use model::{ChatMessage, FinishReason, Model, ModelAnswer, ModelRequest, ToolRequest, Usage};
pub use names::NameChange;
pub use open_ai::OpenAiModel;
pub use options::{Approval, GenerateOptions, PendingCall};
pub use output::{OutputLimits, ToolOutput};
pub use pins::{PinChange, ToolPins, WithheldTool};
pub use schema::{Converted, Dialect, convert_schema};
pub use tool::{AiTool, ToolAnnotations};
pub use tool_set::ToolSet;
pub use workers_ai::{AiBinding, AiOutput, WorkersAiModel};
