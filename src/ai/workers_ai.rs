//! [`WorkersAiModel`]: a model of Workers AI, by whatever runs it.

use std::fmt;
use std::rc::Rc;

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::chat::{self, Format, MAX_ANSWER};
use super::error::ModelError;
use super::model::{Model, ModelAnswer, ModelRequest};
use super::open_ai::read_stream;
use crate::ports::Body;

/// Runs models: the binding `env.AI`, or what stands for it in tests.
#[async_trait(?Send)]
pub trait AiBinding {
    /// Runs a model with inputs and options, each one JSON object. Dropping the future, or the
    /// stream, gives the run up.
    async fn run(&self, model: &str, inputs: &str, options: &str) -> Result<AiOutput, ModelError>;
}

/// What a model gave back.
#[non_exhaustive]
pub enum AiOutput {
    /// One JSON value.
    Json(String),
    /// An event stream.
    Stream(Body),
}

/// A model of Workers AI, such as `@cf/zai-org/glm-4.7-flash`.
/// [`Agent::workers_ai_model`](crate::Agent::workers_ai_model) makes one of a binding.
#[derive(Clone)]
pub struct WorkersAiModel {
    binding: Rc<dyn AiBinding>,
    model: String,
    parameters: Map<String, Value>,
    options: Map<String, Value>,
}

impl WorkersAiModel {
    /// A model by its name.
    pub fn new(binding: Rc<dyn AiBinding>, model: impl Into<String>) -> Self {
        Self {
            binding,
            model: model.into(),
            parameters: Map::new(),
            options: Map::new(),
        }
    }

    /// A member of the inputs, such as `temperature`. What is sent anyway is not replaced.
    #[must_use]
    pub fn parameter(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.parameters.insert(name.to_owned(), value.into());
        self
    }

    /// An option of the run, such as `gateway`.
    #[must_use]
    pub fn option(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.options.insert(name.to_owned(), value.into());
        self
    }
}

#[async_trait(?Send)]
impl Model for WorkersAiModel {
    async fn generate(&self, request: &ModelRequest<'_>) -> Result<ModelAnswer, ModelError> {
        let tools = request.tools.to_workers_ai();
        let inputs = chat::body(
            request,
            Format::WorkersAi,
            tools.json(),
            &self.parameters,
            None,
        );
        let options = Value::Object(self.options.clone()).to_string();
        let on_text = request.on_text.unwrap_or(&|_| {});
        match self.binding.run(&self.model, &inputs, &options).await? {
            AiOutput::Json(text) if text.len() > MAX_ANSWER => {
                Err(ModelError::TooLarge(MAX_ANSWER))
            }
            AiOutput::Json(text) => {
                let answer = chat::read(&text)?;
                if !answer.text.is_empty() {
                    on_text(&answer.text);
                }
                Ok(answer)
            }
            AiOutput::Stream(body) => read_stream(body, on_text).await,
        }
    }
}

impl fmt::Debug for WorkersAiModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkersAiModel")
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for AiOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json(_) => "Json(..)",
            Self::Stream(_) => "Stream(..)",
        })
    }
}
