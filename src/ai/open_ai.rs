//! [`OpenAiModel`]: a model behind an HTTP endpoint that is compatible with OpenAI's chat
//! completions.

use std::fmt;
use std::rc::Rc;

use async_trait::async_trait;
use futures::StreamExt as _;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Map, Value};

use super::chat::{self, Format, MAX_ANSWER, Streamed};
use super::error::{AiError, ModelError};
use super::model::{Model, ModelAnswer, ModelRequest};
use super::text::clip_to;
use crate::ports::{Body, Http, HttpRequest, HttpResponse};
use crate::url_guard::{GuardedUrl, UrlPolicy};

/// The longest text of a failed request that is read, in bytes.
const MAX_ERROR: usize = 64 << 10;
/// The longest text of the platform that is repeated, in characters.
const MAX_TEXT: usize = 300;

/// A model behind an HTTP endpoint such as `https://api.openai.com/v1/chat/completions`.
///
/// Redirects are not followed, and nothing is tried again.
#[derive(Clone)]
pub struct OpenAiModel {
    http: Rc<dyn Http>,
    url: GuardedUrl,
    model: String,
    headers: HeaderMap,
    key: Option<String>,
    parameters: Map<String, Value>,
    is_strict: bool,
}

impl OpenAiModel {
    /// A model by its name at an endpoint. The URL is judged by the default [`UrlPolicy`]; in an
    /// agent, [`Agent::open_ai_model`](crate::Agent::open_ai_model) makes one.
    ///
    /// # Errors
    /// [`AiError::InvalidOption`] for a URL that may not be requested.
    pub fn new(http: Rc<dyn Http>, url: &str, model: impl Into<String>) -> Result<Self, AiError> {
        Self::with_policy(http, url, model, &UrlPolicy::default())
    }

    /// As [`new`](Self::new), with a policy of one's own.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_policy(
        http: Rc<dyn Http>,
        url: &str,
        model: impl Into<String>,
        policy: &UrlPolicy,
    ) -> Result<Self, AiError> {
        let url = policy
            .guard(url)
            .map_err(|error| AiError::InvalidOption(error.to_string()))?;
        Ok(Self {
            http,
            url,
            model: model.into(),
            headers: HeaderMap::new(),
            key: None,
            parameters: Map::new(),
            is_strict: false,
        })
    }

    /// The key, sent as `Authorization: Bearer`.
    ///
    /// # Errors
    /// [`AiError::InvalidOption`] for one that no header can hold.
    pub fn key(mut self, key: impl Into<String>) -> Result<Self, AiError> {
        let key = key.into();
        self = self.header("authorization", &format!("Bearer {key}"))?;
        self.key = Some(key);
        Ok(self)
    }

    /// Another header, such as `cf-aig-authorization` of an AI gateway.
    ///
    /// # Errors
    /// [`AiError::InvalidOption`] for what is no header.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, AiError> {
        let name = HeaderName::try_from(name.to_ascii_lowercase());
        let name = name.map_err(|_| AiError::InvalidOption("no name of a header".into()))?;
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| AiError::InvalidOption(format!("no value of the header {name}")))?;
        value.set_sensitive(name == AUTHORIZATION);
        self.headers.insert(name, value);
        Ok(self)
    }

    /// A member of the body, such as `temperature`. What is sent anyway is not replaced.
    #[must_use]
    pub fn parameter(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.parameters.insert(name.to_owned(), value.into());
        self
    }

    /// Asks for strict mode for the tools whose schemas can be said in it.
    #[must_use]
    pub fn strict_tools(mut self) -> Self {
        self.is_strict = true;
        self
    }

    async fn send(&self, body: &str, is_streamed: bool) -> Result<HttpResponse, ModelError> {
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let accept = if is_streamed {
            "text/event-stream, application/json"
        } else {
            "application/json"
        };
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        let request = HttpRequest {
            method: Method::POST,
            url: self.url.clone(),
            headers,
            body: Some(body),
            max_response_bytes: MAX_ANSWER,
        };
        let response = self.http.send(&request).await;
        response.map_err(|error| ModelError::Unreachable(clip_to(&error.0, MAX_TEXT)))
    }

    async fn refusal(&self, response: HttpResponse) -> ModelError {
        let retry_after = response.headers.get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let text = read_all(response.body, MAX_ERROR).await.unwrap_or_default();
        ModelError::Status {
            status: response.status,
            message: chat::complaint(&text, self.key.as_deref()),
            retry_after,
        }
    }
}

#[async_trait(?Send)]
impl Model for OpenAiModel {
    async fn generate(&self, request: &ModelRequest<'_>) -> Result<ModelAnswer, ModelError> {
        let tools = request.tools.to_openai_chat(self.is_strict);
        let model = Some(self.model.as_str());
        let body = chat::body(
            request,
            Format::OpenAi,
            tools.json(),
            &self.parameters,
            model,
        );
        let response = self.send(&body, request.on_text.is_some()).await?;
        if !(200..300).contains(&response.status) {
            return Err(self.refusal(response).await);
        }
        let kind = response.headers.get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let on_text = request.on_text.unwrap_or(&|_| {});
        if kind
            .trim_start()
            .to_ascii_lowercase()
            .starts_with("text/event-stream")
        {
            return read_stream(response.body, on_text).await;
        }
        let answer = chat::read(&read_all(response.body, MAX_ANSWER).await?)?;
        // It came in one piece though it was asked for in several.
        if !answer.text.is_empty() {
            on_text(&answer.text);
        }
        Ok(answer)
    }
}

/// Reads an answer that comes as an event stream.
pub(super) async fn read_stream(
    mut body: Body,
    on_text: &dyn Fn(&str),
) -> Result<ModelAnswer, ModelError> {
    let mut stream = Streamed::new();
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|error| ModelError::Unreachable(clip_to(&error.0, MAX_TEXT)))?;
        if stream.push(&chunk, on_text)? {
            break;
        }
    }
    stream.finish()
}

async fn read_all(mut body: Body, most: usize) -> Result<String, ModelError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|error| ModelError::Unreachable(clip_to(&error.0, MAX_TEXT)))?;
        bytes.extend(chunk);
        if bytes.len() > most {
            return Err(ModelError::TooLarge(most));
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Headers hold the key.
impl fmt::Debug for OpenAiModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiModel")
            .field("url", &self.url)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}
