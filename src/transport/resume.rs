//! The messages of an event stream, over all the pieces it comes in.
//!
//! MCP 2025-11-25, "Resumability and Redelivery": a stream that broke off is taken up by a GET that
//! names the last event id seen on it. A server may end a stream on purpose after giving an id and
//! have the client come back for the answer (SEP-1699), so a graceful end is no other than a break.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::answer::{EVENT_STREAM, Events, StreamLimits, event_messages};
use super::exchange::Exchanger;
use super::failure::{failure, media_type, unexpected_type};
use super::{Incoming, TransportError};
use crate::ports::{Body, Clock};
use crate::protocol::sse::SseEvent;
use crate::protocol::{Message, RequestId};
use crate::url_guard::GuardedUrl;

/// Attempts in a row that may bring nothing.
const MAX_ATTEMPTS: u32 = 2;
/// The delay before the first attempt, where the server has named none; it grows by half each time.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// The longest delay of our own.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// The delays that a server may ask for. Less would be a busy loop.
const MIN_RETRY: Duration = Duration::from_millis(50);
/// See [`MIN_RETRY`]; more would hardly fit into anybody's patience.
const MAX_RETRY: Duration = Duration::from_mins(1);
/// Pieces in a row without a message after which a listening stream is over, and after which a
/// polling server is asked half as often at most, down to about once a second.
const MAX_QUIET: u32 = 4;
const MAX_HALVINGS: u32 = 4;
/// Longest event id that is sent back, in bytes: a header must hold it.
const MAX_EVENT_ID: usize = 4 << 10;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How one stream is taken up again.
pub(super) struct Resumption {
    exchanger: Exchanger,
    clock: Rc<dyn Clock>,
    url: GuardedUrl,
    headers: HeaderMap,
    last_event_id: Option<HeaderValue>,
    retry: Option<Duration>,
    /// Attempts since the stream has brought something.
    attempts: u32,
    /// Pieces since it has brought a message.
    quiet: u32,
}

impl Resumption {
    /// `headers` are those of the message or of the listening stream: session and revision.
    pub(super) fn new(
        exchanger: Exchanger,
        clock: Rc<dyn Clock>,
        url: GuardedUrl,
        mut headers: HeaderMap,
    ) -> Self {
        headers.insert(ACCEPT, HeaderValue::from_static(EVENT_STREAM));
        Self {
            exchanger,
            clock,
            url,
            headers,
            last_event_id: None,
            retry: None,
            attempts: 0,
            quiet: 0,
        }
    }

    fn note(&mut self, event: &SseEvent) {
        let before = self.last_event_id.clone();
        if let Some(id) = &event.id {
            // An id that no header can hold is like none: taking up the stream further back would
            // repeat what has been delivered.
            self.last_event_id = Some(id)
                .filter(|id| (1..=MAX_EVENT_ID).contains(&id.len()) && id.is_ascii())
                .and_then(|id| HeaderValue::from_str(id).ok());
        }
        // The same id again says that nothing has happened.
        if self.last_event_id.is_some() && self.last_event_id != before {
            self.attempts = 0;
        }
    }

    /// A message has come.
    fn heard(&mut self) {
        self.attempts = 0;
        self.quiet = 0;
    }

    /// The next piece of a stream that ended or broke because of `reason`.
    async fn reopen(&mut self, mut reason: TransportError) -> Result<Body, TransportError> {
        loop {
            let id = self.last_event_id.clone().filter(|_| {
                // What a limit has ended, or the server has refused, stays so.
                self.attempts < MAX_ATTEMPTS && reason.is_transient()
            });
            let Some(id) = id else {
                return Err(reason);
            };
            let delay = self.delay();
            self.attempts += 1;
            self.quiet = self.quiet.saturating_add(1);
            self.clock.sleep(delay).await;
            match self.attempt(id).await {
                Ok(body) => return Ok(body),
                Err(error) => reason = error,
            }
        }
    }

    fn delay(&self) -> Duration {
        let least = MIN_RETRY * 2_u32.pow((self.quiet / MAX_QUIET).min(MAX_HALVINGS));
        match self.retry {
            Some(retry) => retry.clamp(least, MAX_RETRY),
            None => {
                (FIRST_DELAY * 3_u32.pow(self.attempts) / 2_u32.pow(self.attempts)).min(MAX_DELAY)
            }
        }
    }

    async fn attempt(&mut self, id: HeaderValue) -> Result<Body, TransportError> {
        let mut headers = self.headers.clone();
        headers.insert(LAST_EVENT_ID, id);
        let sent = self.exchanger.send(Method::GET, &self.url, &headers, None);
        let (response, _) = sent.await?;
        match response.status {
            // 204 is how event sources are told to stop (WHATWG HTML §9.2.3); 405 is a server
            // that gives ids and takes up nothing.
            204 | 405 => {
                self.last_event_id = None;
                Err(TransportError::Ended)
            }
            200..300 if media_type(&response.headers) == EVENT_STREAM => Ok(response.body),
            200..300 => Err(unexpected_type(&*self.clock, response).await),
            // Of another kind than a refusal of the message itself, which the server has taken.
            _ => Err(match failure(&*self.clock, response).await {
                TransportError::Status(failure) => TransportError::NotResumed(failure),
                other => other,
            }),
        }
    }
}

/// The messages of one stream.
pub(super) struct Messages {
    events: Events,
    /// The request that is answered; `None` for a stream that answers nothing.
    request: Option<RequestId>,
    /// `None` when the stream is not taken up again.
    resumption: Option<Resumption>,
    ready: VecDeque<Message>,
    is_done: bool,
}

impl Messages {
    pub(super) fn new(
        body: Body,
        limits: StreamLimits,
        request: Option<RequestId>,
        resumption: Option<Resumption>,
    ) -> Self {
        Self {
            events: Events::new(body, limits),
            request,
            resumption,
            ready: VecDeque::new(),
            is_done: false,
        }
    }

    /// Ends after the event with the response.
    pub(super) fn into_stream(self) -> Incoming {
        stream::unfold(self, |mut messages| async move {
            let next = messages.next().await?;
            Some((next, messages))
        })
        .boxed_local()
    }

    async fn next(&mut self) -> Option<Result<Message, TransportError>> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(Ok(message));
            }
            if self.is_done {
                return None;
            }
            let reason = match self.events.next().await {
                Some(Ok(event)) => {
                    self.take(&event);
                    continue;
                }
                Some(Err(error)) => error,
                None => TransportError::Ended,
            };
            if let Err(error) = self.go_on(reason).await {
                self.is_done = true;
                // The end of a stream that answers nothing keeps nobody waiting.
                let is_fine = self.request.is_none() && matches!(error, TransportError::Ended);
                return (!is_fine).then_some(Err(error));
            }
        }
    }

    fn take(&mut self, event: &SseEvent) {
        if let Some(resumption) = &mut self.resumption {
            resumption.note(event);
        }
        let before = self.ready.len();
        self.ready.extend(event_messages(event));
        if let Some(resumption) = &mut self.resumption
            && self.ready.len() > before
        {
            resumption.heard();
        }
        if self.request.is_some() && self.ready.iter().any(|message| self.answers(message)) {
            self.is_done = true;
            self.events.close();
        }
    }

    fn answers(&self, message: &Message) -> bool {
        matches!(message, Message::Response { id, .. } if *id == self.request)
    }

    async fn go_on(&mut self, reason: TransportError) -> Result<(), TransportError> {
        let Some(resumption) = &mut self.resumption else {
            return Err(reason);
        };
        if self.request.is_none() && resumption.quiet >= MAX_QUIET {
            return Err(TransportError::Ended);
        }
        if let Some(retry) = self.events.retry() {
            resumption.retry = Some(Duration::from_millis(retry));
        }
        let body = resumption.reopen(reason).await?;
        self.events.go_on(body);
        Ok(())
    }
}
