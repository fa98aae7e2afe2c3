//! Streamable HTTP: one POST per message, answered by JSON or by an event stream.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream;
use http::header::{ACCEPT, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method};

use super::{Answer, HttpFailure, Incoming, Outgoing, Transport, TransportError};
use crate::ports::{Body, Http, HttpRequest, HttpResponse};
use crate::protocol::jsonrpc::decode;
use crate::protocol::request::{self, SESSION_ID};
use crate::protocol::sse::{SseDecoder, SseEvent, SseLimits};
use crate::protocol::{Message, clip};
use crate::url_guard::GuardedUrl;

/// Redirects followed for one message.
const MAX_REDIRECTS: u32 = 5;
/// How much of an error's body is read.
const MAX_ERROR_BODY: usize = 1 << 20;
/// How much larger than one event the whole stream of an answer may be.
const STREAM_TO_EVENT: usize = 4;
/// Longest session id that is accepted, in bytes.
const MAX_SESSION_ID: usize = 1_024;
/// Both must be listed on every POST (all revisions, "Sending Messages to the Server").
const ACCEPT_BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// The transport to one URL.
pub struct StreamableHttp {
    http: Rc<dyn Http>,
    url: GuardedUrl,
    headers: HeaderMap,
    max_response_bytes: usize,
}

impl StreamableHttp {
    /// A transport that sends `headers` with every request, below the protocol's own headers. Those
    /// that only the protocol may send are left out.
    pub fn new(
        http: Rc<dyn Http>,
        url: GuardedUrl,
        headers: HeaderMap,
        max_response_bytes: usize,
    ) -> Self {
        let mut headers = headers;
        let reserved: Vec<_> = headers
            .keys()
            .filter(|name| request::is_reserved(name))
            .cloned()
            .collect();
        for name in reserved {
            headers.remove(name);
        }
        Self {
            http,
            url,
            headers,
            max_response_bytes,
        }
    }

    /// Sends and follows redirects that keep method, body and origin.
    async fn exchange(
        &self,
        method: Method,
        headers: &HeaderMap,
        body: Option<&str>,
    ) -> Result<HttpResponse, TransportError> {
        let mut merged = self.headers.clone();
        // The caller's headers lie lowest: none of them may replace what the protocol needs.
        for (name, value) in headers {
            merged.insert(name.clone(), value.clone());
        }
        let mut request = HttpRequest {
            method,
            url: self.url.clone(),
            headers: merged,
            body: body.map(str::to_owned),
        };
        for _ in 0..=MAX_REDIRECTS {
            let response = self.http.send(&request).await?;
            let location = response
                .headers
                .get(LOCATION)
                .filter(|_| (300..400).contains(&response.status));
            let Some(location) = location else {
                return Ok(response);
            };
            let location = String::from_utf8_lossy(location.as_bytes());
            request.url = request.url.redirect_target(
                response.status,
                &location,
                request.method == Method::GET,
            )?;
        }
        Err(TransportError::TooManyRedirects(MAX_REDIRECTS))
    }
}

#[async_trait(?Send)]
impl Transport for StreamableHttp {
    async fn send(&self, message: &Outgoing) -> Result<Answer, TransportError> {
        let mut headers = message.headers.clone();
        headers.insert(ACCEPT, ACCEPT_BOTH);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let response = self
            .exchange(Method::POST, &headers, Some(&message.body))
            .await?;
        if !(200..300).contains(&response.status) {
            return Err(failure(response).await);
        }
        let session_id = session_id(&response.headers);
        // 202, and whatever else a server answers to a notification: nothing in it concerns us.
        if message.id.is_none() {
            return Ok(Answer {
                session_id,
                messages: stream::empty().boxed_local(),
            });
        }
        let content_type = media_type(&response.headers);
        let messages = match content_type.as_str() {
            "application/json" => json_messages(response.body, self.max_response_bytes).await?,
            "text/event-stream" => event_messages(response.body, self.max_response_bytes),
            _ => return Err(TransportError::ContentType(clip(&content_type, 100))),
        };
        Ok(Answer {
            session_id,
            messages,
        })
    }

    async fn listen(&self, headers: HeaderMap) -> Result<Option<Incoming>, TransportError> {
        let _ = headers;
        Ok(None)
    }

    async fn end_session(&self, headers: HeaderMap) -> Result<(), TransportError> {
        let response = self.exchange(Method::DELETE, &headers, None).await?;
        match response.status {
            // 405: not offered. 404: already gone (2025-11-25, "Session Management").
            200..300 | 404 | 405 => Ok(()),
            _ => Err(failure(response).await),
        }
    }
}

/// Visible ASCII only (2025-11-25, "Session Management"); anything else could not be sent back.
fn session_id(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(SESSION_ID)?.to_str().ok()?;
    let legal = (1..=MAX_SESSION_ID).contains(&text.len())
        && text.bytes().all(|byte| (0x21..=0x7e).contains(&byte));
    legal.then(|| text.to_owned())
}

/// The media type without parameters, in lower case.
fn media_type(headers: &HeaderMap) -> String {
    let value = headers
        .get(CONTENT_TYPE)
        .map(|value| String::from_utf8_lossy(value.as_bytes()));
    let value = value.as_deref().unwrap_or("none");
    value
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

async fn failure(response: HttpResponse) -> TransportError {
    let HttpResponse {
        status,
        headers,
        body,
    } = response;
    // Retry-After as a date is left to the caller's own delay.
    let seconds = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let content_type = media_type(&headers);
    let (is_json, is_text) = (content_type.ends_with("json"), content_type == "text/plain");
    // A page of an intermediary says nothing that its status does not say.
    let text = if is_json || is_text {
        read_all(body, MAX_ERROR_BODY).await.unwrap_or_default()
    } else {
        Vec::new()
    };
    let messages = if is_json {
        decode(&text).unwrap_or_default()
    } else {
        Vec::new()
    };
    let rpc = messages.into_iter().find_map(|message| match message {
        Message::Response {
            outcome: Err(error),
            ..
        } => Some(error),
        _ => None,
    });
    let excerpt = (rpc.is_none() && !text.is_empty()).then(|| excerpt(&text));
    let retry_after = seconds.map(Duration::from_secs);
    TransportError::Status(Box::new(HttpFailure {
        status,
        rpc,
        retry_after,
        excerpt,
    }))
}

/// The beginning of a text, on one line.
fn excerpt(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text.get(..1_000).unwrap_or(text)).into_owned();
    let text: String = text
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect();
    clip(text.trim(), 200)
}

async fn read_all(mut body: Body, limit: usize) -> Result<Vec<u8>, TransportError> {
    let mut text = Vec::new();
    while let Some(chunk) = body.next().await {
        let chunk = chunk?;
        if chunk.len() > limit - text.len() {
            return Err(TransportError::TooLarge { limit });
        }
        if text.is_empty() {
            text = chunk;
        } else {
            text.extend_from_slice(&chunk);
        }
    }
    Ok(text)
}

async fn json_messages(body: Body, limit: usize) -> Result<Incoming, TransportError> {
    let messages = decode(&read_all(body, limit).await?)?;
    Ok(stream::iter(messages.into_iter().map(Ok)).boxed_local())
}

/// Messages of an event stream. One that is malformed is passed over, as the stream goes on.
fn event_messages(body: Body, limit: usize) -> Incoming {
    struct State {
        body: Body,
        decoder: SseDecoder,
        /// Bytes of the stream that may still come.
        left: usize,
        /// What has arrived, and at last why nothing more does.
        ready: VecDeque<Result<Message, TransportError>>,
        ended: bool,
    }
    let decoder = SseDecoder::new(SseLimits { event_bytes: limit });
    let left = limit.saturating_mul(STREAM_TO_EVENT);
    let state = State {
        body,
        decoder,
        left,
        ready: VecDeque::new(),
        ended: false,
    };
    stream::unfold(state, move |mut state| async move {
        loop {
            if let Some(message) = state.ready.pop_front() {
                return Some((message, state));
            }
            if state.ended {
                return None;
            }
            let State {
                body,
                decoder,
                ready,
                left,
                ..
            } = &mut state;
            let outcome = match body.next().await {
                Some(Ok(chunk)) if chunk.len() > *left => Err(TransportError::TooLarge {
                    limit: limit.saturating_mul(STREAM_TO_EVENT),
                }),
                Some(Ok(chunk)) => {
                    *left -= chunk.len();
                    let mut take = |event| ready.extend(event_payload(event).into_iter().map(Ok));
                    decoder
                        .push(&chunk, &mut take)
                        .map_err(TransportError::from)
                }
                Some(Err(error)) => Err(error.into()),
                None => {
                    state.ended = true;
                    continue;
                }
            };
            if let Err(error) = outcome {
                ready.push_back(Err(error));
                state.ended = true;
            }
        }
    })
    .boxed_local()
}

/// Events named otherwise than `message`, and events that only carry an id, hold no message.
fn event_payload(event: SseEvent) -> Vec<Message> {
    let is_message = event.name.as_deref().is_none_or(|name| name == "message");
    match event.data {
        Some(data) if is_message && !data.is_empty() => decode(data.as_bytes()).unwrap_or_default(),
        _ => Vec::new(),
    }
}

impl std::fmt::Debug for StreamableHttp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamableHttp")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}
