//! Reading the bodies of answers, within limits.

use std::collections::VecDeque;

use futures::StreamExt as _;
use futures::stream;

use super::failure::unusable;
use super::{Incoming, TransportError, UnusableReason};
use crate::ports::Body;
use crate::protocol::Message;
use crate::protocol::jsonrpc::decode;
use crate::protocol::sse::{SseDecoder, SseEvent, SseLimits};

/// The media type of event streams.
pub(super) const EVENT_STREAM: &str = "text/event-stream";
/// The media type of a single answer.
pub(super) const JSON: &str = "application/json";

/// The messages of a JSON body.
pub(super) async fn json_messages(
    status: u16,
    body: Body,
    limit: usize,
) -> Result<Incoming, TransportError> {
    let text = read_all(body, limit).await?;
    let reason = match decode(&text) {
        Ok(messages) if !messages.is_empty() => {
            return Ok(stream::iter(messages.into_iter().map(Ok)).boxed_local());
        }
        Ok(_) => UnusableReason::Empty,
        Err(_) if text.trim_ascii().is_empty() => UnusableReason::Empty,
        Err(error) => UnusableReason::Malformed(error),
    };
    Err(unusable(status, JSON, &text, reason))
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

/// The messages of one event. Events named otherwise than `message`, and events that only carry an
/// id, hold none; one that is malformed is passed over, as the stream goes on.
pub(super) fn event_messages(event: &SseEvent) -> Vec<Message> {
    match &event.data {
        Some(data) if event.name.is_none() && !data.is_empty() => {
            decode(data.as_bytes()).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// What a stream of events may bring.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamLimits {
    /// Most bytes of one event.
    pub(super) event_bytes: usize,
    /// Most bytes of all of it; `None` for streams that go on as long as the connection.
    pub(super) total_bytes: Option<usize>,
}

/// The events of a body as they arrive.
pub(super) struct Events {
    /// `None` when it has ended or broken.
    body: Option<Body>,
    decoder: SseDecoder,
    limits: StreamLimits,
    /// Bytes that have come, over all pieces of the stream.
    read: usize,
    ready: VecDeque<SseEvent>,
    /// Why no more comes after `ready`.
    broken: Option<TransportError>,
}

impl Events {
    pub(super) fn new(body: Body, limits: StreamLimits) -> Self {
        Self {
            body: Some(body),
            decoder: SseDecoder::new(SseLimits {
                event_bytes: limits.event_bytes,
            }),
            limits,
            read: 0,
            ready: VecDeque::new(),
            broken: None,
        }
    }

    /// Goes on with the next piece of the same stream, under the same limits.
    pub(super) fn go_on(&mut self, body: Body) {
        let read = self.read;
        *self = Self {
            read,
            ..Self::new(body, self.limits)
        };
    }

    /// Ends the exchange.
    pub(super) fn close(&mut self) {
        self.body = None;
        self.ready.clear();
        self.broken = None;
    }

    /// The latest reconnection delay that the server asked for on this piece, in milliseconds.
    pub(super) fn retry(&self) -> Option<u64> {
        self.decoder.retry()
    }

    /// The next event; `None` at the end, an error once when it broke.
    pub(super) async fn next(&mut self) -> Option<Result<SseEvent, TransportError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if let Some(error) = self.broken.take() {
                return Some(Err(error));
            }
            let chunk = self.body.as_mut()?.next().await;
            let outcome = match chunk {
                Some(Ok(chunk)) => self.take(&chunk),
                Some(Err(error)) => Err(error.into()),
                None => {
                    self.body = None;
                    return None;
                }
            };
            if let Err(error) = outcome {
                self.body = None;
                self.broken = Some(error);
            }
        }
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), TransportError> {
        self.read = self.read.saturating_add(chunk.len());
        if let Some(limit) = self.limits.total_bytes
            && self.read > limit
        {
            return Err(TransportError::TooLarge { limit });
        }
        let ready = &mut self.ready;
        Ok(self
            .decoder
            .push(chunk, &mut |event| ready.push_back(event))?)
    }
}
