//! Models over the platform: the binding `env.AI`, and HTTP by `fetch`.

use std::rc::Rc;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream;
use js_sys::{JSON, Reflect, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use super::error::{AiError, ModelError};
use super::open_ai::OpenAiModel;
use super::text::shown;
use super::tool_set::ToolSet;
use super::workers_ai::{AiBinding, AiOutput, WorkersAiModel};
use crate::agent::Agent;
use crate::mcp::ServerFilter;
use crate::ports::{Body, HttpError};

/// The longest text of an error, in characters.
const MAX_TEXT: usize = 300;

impl Agent {
    /// The tools of the selected servers for models, as
    /// [`McpClientManager::ai_tools`](crate::McpClientManager::ai_tools).
    pub fn ai_tools(&self, filter: &ServerFilter) -> ToolSet {
        self.mcp().ai_tools(filter)
    }

    /// A model of Workers AI by the name of a binding, such as `AI`, and its own.
    ///
    /// # Errors
    /// [`AiError::InvalidOption`] when there is no such binding.
    pub fn workers_ai_model(
        &self,
        binding: &str,
        model: impl Into<String>,
    ) -> Result<WorkersAiModel, AiError> {
        let found = member(self.env().as_ref(), binding).filter(JsValue::is_object);
        let found =
            found.ok_or_else(|| AiError::InvalidOption(format!("no binding \"{binding}\"")))?;
        let binding = Rc::new(Binding(found.unchecked_into()));
        Ok(WorkersAiModel::new(binding, model))
    }

    /// A model behind an endpoint that is compatible with OpenAI's chat completions, such as
    /// `https://api.openai.com/v1/chat/completions`. The URL is judged as those of servers are.
    ///
    /// # Errors
    /// [`AiError::InvalidOption`] for a URL that may not be requested.
    pub fn open_ai_model(
        &self,
        url: &str,
        model: impl Into<String>,
    ) -> Result<OpenAiModel, AiError> {
        let mcp = self.mcp();
        OpenAiModel::with_policy(mcp.http(), url, model, mcp.url_policy())
    }
}

impl From<AiError> for worker::Error {
    fn from(error: AiError) -> Self {
        Self::RustError(error.to_string())
    }
}

struct Binding(Ai);

#[async_trait(?Send)]
impl AiBinding for Binding {
    async fn run(&self, model: &str, inputs: &str, options: &str) -> Result<AiOutput, ModelError> {
        let inputs = JSON::parse(inputs).map_err(|error| failed(&error))?;
        let options = JSON::parse(options).map_err(|error| failed(&error))?;
        let abort = Abort(AbortController::new());
        Reflect::set(&options, &"signal".into(), &abort.0.signal())
            .map_err(|error| failed(&error))?;
        let output = self.0.run(model, &inputs, &options).await;
        let output = output.map_err(|error| failed(&error))?;
        let is_stream = member(&output, "getReader").is_some_and(|method| method.is_function());
        if is_stream {
            let reader = output.unchecked_into::<Stream>().get_reader();
            let reader = reader.map_err(|error| failed(&error))?;
            return Ok(AiOutput::Stream(chunks(Reading {
                reader,
                _abort: abort,
            })));
        }
        let text = JSON::stringify(&output).map_err(|error| failed(&error))?;
        let text = text.as_string();
        text.map(AiOutput::Json)
            .ok_or(ModelError::Unreadable("it is no JSON"))
    }
}

/// Gives the run up when it is dropped.
struct Abort(AbortController);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Reading {
    reader: Reader,
    _abort: Abort,
}

impl Drop for Reading {
    fn drop(&mut self) {
        let cancelled = JsFuture::from(self.reader.cancel());
        // A stream that has failed says so once more.
        wasm_bindgen_futures::spawn_local(async {
            let _ = cancelled.await;
        });
    }
}

fn chunks(reading: Reading) -> Body {
    stream::unfold(Some(reading), async |reading| {
        let reading = reading?;
        match reading.reader.read().await {
            Err(error) => Some((Err(HttpError(text_of(&error))), None)),
            Ok(step) if member(&step, "done").is_some_and(|done| done.is_truthy()) => None,
            Ok(step) => {
                let value = member(&step, "value").unwrap_or_default();
                // Bytes, or texts, as the model has it.
                let bytes = value
                    .as_string()
                    .map(String::into_bytes)
                    .or_else(|| value.dyn_ref::<Uint8Array>().map(Uint8Array::to_vec));
                Some((Ok(bytes.unwrap_or_default()), Some(reading)))
            }
        }
    })
    .boxed_local()
}

fn failed(error: &JsValue) -> ModelError {
    ModelError::Failed(text_of(error))
}

fn text_of(error: &JsValue) -> String {
    let text = member(error, "message").and_then(|message| message.as_string());
    let text = text.or_else(|| error.as_string()).unwrap_or_default();
    shown(&text.replace(['\n', '\t'], " "), MAX_TEXT)
}

fn member(of: &JsValue, name: &str) -> Option<JsValue> {
    if !of.is_object() {
        return None;
    }
    let value = Reflect::get(of, &name.into()).ok()?;
    (!value.is_undefined()).then_some(value)
}

// By their methods: what stands for the binding in tests is of no class.
#[wasm_bindgen]
extern "C" {
    type Ai;
    #[wasm_bindgen(method, catch)]
    async fn run(
        this: &Ai,
        model: &str,
        inputs: &JsValue,
        options: &JsValue,
    ) -> Result<JsValue, JsValue>;

    type Stream;
    #[wasm_bindgen(method, catch, js_name = getReader)]
    fn get_reader(this: &Stream) -> Result<Reader, JsValue>;

    type Reader;
    #[wasm_bindgen(method, catch)]
    async fn read(this: &Reader) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method)]
    fn cancel(this: &Reader) -> js_sys::Promise;

    type AbortController;
    #[wasm_bindgen(constructor)]
    fn new() -> AbortController;
    #[wasm_bindgen(method, getter)]
    fn signal(this: &AbortController) -> JsValue;
    #[wasm_bindgen(method)]
    fn abort(this: &AbortController);
}
