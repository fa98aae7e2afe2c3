//! Streamable HTTP: one POST per message, answered by JSON or by an event stream.

use std::fmt;
use std::rc::Rc;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};

use super::answer::{EVENT_STREAM, JSON, StreamLimits, json_messages};
use super::exchange::Exchanger;
use super::failure::{failure, media_type, unexpected_type};
use super::resume::{Messages, Resumption};
use super::{Answer, Incoming, Outgoing, Permission, SessionHeader, Transport, TransportError};
use crate::ports::{Clock, Http};
use crate::protocol::request::SESSION_ID;
use crate::url_guard::GuardedUrl;

/// How much larger than one event the whole stream of an answer may be.
const STREAM_TO_EVENT: usize = 4;
/// Longest session id that is accepted, in bytes.
const MAX_SESSION_ID: usize = 1_024;
/// Both must be listed on every POST (all revisions, "Sending Messages to the Server").
const ACCEPT_BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// The transport to one URL.
pub struct StreamableHttp {
    exchanger: Exchanger,
    clock: Rc<dyn Clock>,
    url: GuardedUrl,
    max_response_bytes: usize,
}

impl StreamableHttp {
    /// A transport that sends `headers` with every request, below the protocol's own headers. Those
    /// that only the protocol may send are left out.
    ///
    /// A JSON answer or one event of a stream has at most `max_response_bytes`, all pieces of an
    /// answer together four times as many. A listening stream has no such sum.
    pub fn new(
        http: Rc<dyn Http>,
        clock: Rc<dyn Clock>,
        url: GuardedUrl,
        headers: HeaderMap,
        max_response_bytes: usize,
    ) -> Self {
        Self {
            exchanger: Exchanger::new(http, headers).reading_at_once(max_response_bytes),
            clock,
            url,
            max_response_bytes,
        }
    }

    /// Shows this permission with every request.
    #[must_use]
    pub fn with_permission(self, permission: Option<Rc<dyn Permission>>) -> Self {
        Self {
            exchanger: self.exchanger.with_permission(permission),
            ..self
        }
    }

    fn limits(&self, total_bytes: Option<usize>) -> StreamLimits {
        StreamLimits {
            event_bytes: self.max_response_bytes,
            total_bytes,
        }
    }

    fn resumption(&self, headers: HeaderMap) -> Resumption {
        Resumption::new(
            self.exchanger.clone(),
            self.clock.clone(),
            self.url.clone(),
            headers,
        )
    }
}

#[async_trait(?Send)]
impl Transport for StreamableHttp {
    async fn send(&self, message: &Outgoing) -> Result<Answer, TransportError> {
        let mut headers = message.headers.clone();
        headers.insert(ACCEPT, ACCEPT_BOTH);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        let sent = self
            .exchanger
            .send_owned(Method::POST, &self.url, headers, Some(&message.body));
        let (response, _) = sent.await?;
        if !(200..300).contains(&response.status) {
            return Err(failure(&*self.clock, response).await);
        }
        let session = session_header(&response.headers);
        // 202, and whatever else a server answers to a notification: nothing in it concerns us.
        if message.id.is_none() {
            return Ok(Answer {
                session,
                messages: stream::empty().boxed_local(),
            });
        }
        let messages = match media_type(&response.headers).as_str() {
            JSON => json_messages(response.status, response.body, self.max_response_bytes).await?,
            EVENT_STREAM => {
                let total = self.max_response_bytes.saturating_mul(STREAM_TO_EVENT);
                let resumption = message
                    .resumable
                    .then(|| self.resumption(message.headers.clone()));
                let (limits, id) = (self.limits(Some(total)), message.id.clone());
                Messages::new(response.body, limits, id, resumption).into_stream()
            }
            _ => return Err(unexpected_type(&*self.clock, response).await),
        };
        Ok(Answer { session, messages })
    }

    async fn listen(&self, headers: HeaderMap) -> Result<Option<Incoming>, TransportError> {
        let resumption = self.resumption(headers.clone());
        let mut headers = headers;
        headers.insert(ACCEPT, HeaderValue::from_static(EVENT_STREAM));
        let sent = self
            .exchanger
            .send_owned(Method::GET, &self.url, headers, None);
        let (response, _) = sent.await?;
        match response.status {
            200..300 if media_type(&response.headers) == EVENT_STREAM => {
                let limits = self.limits(None);
                let messages = Messages::new(response.body, limits, None, Some(resumption));
                Ok(Some(messages.into_stream()))
            }
            // The specification has 405 for it (2025-11-25, "Listening for Messages from the
            // Server"); servers that route by method have the others, and some serve a page.
            200..300 | 400 | 404..=406 | 501 => Ok(None),
            _ => Err(failure(&*self.clock, response).await),
        }
    }

    async fn end_session(&self, headers: HeaderMap) -> Result<(), TransportError> {
        let sent = self
            .exchanger
            .send_owned(Method::DELETE, &self.url, headers, None);
        let (response, _) = sent.await?;
        match response.status {
            // 405: not offered. 404: already gone (2025-11-25, "Session Management").
            200..300 | 404 | 405 => Ok(()),
            _ => Err(failure(&*self.clock, response).await),
        }
    }
}

/// Visible ASCII only (2025-11-25, "Session Management"); anything else could not be sent back.
fn session_header(headers: &HeaderMap) -> SessionHeader {
    let Some(value) = headers.get(SESSION_ID).filter(|value| !value.is_empty()) else {
        return SessionHeader::None;
    };
    let is_visible = value.as_bytes().iter().all(u8::is_ascii_graphic);
    match value.to_str() {
        Ok(id) if is_visible && id.len() <= MAX_SESSION_ID => SessionHeader::Id(id.to_owned()),
        _ => SessionHeader::Illegal,
    }
}

impl fmt::Debug for StreamableHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamableHttp")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}
