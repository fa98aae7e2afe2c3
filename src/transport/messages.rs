//! The messages of an event stream.

use std::collections::VecDeque;

use futures::StreamExt as _;
use futures::stream;

use super::answer::{Events, StreamLimits, event_messages};
use super::{Incoming, TransportError};
use crate::ports::Body;
use crate::protocol::sse::SseEvent;
use crate::protocol::{Message, RequestId};

/// The messages of one stream.
pub(super) struct Messages {
    events: Events,
    /// The request that is answered.
    request: RequestId,
    ready: VecDeque<Message>,
    is_done: bool,
}

impl Messages {
    pub(super) fn new(body: Body, limits: StreamLimits, request: RequestId) -> Self {
        Self {
            events: Events::new(body, limits),
            request,
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
            self.is_done = true;
            return Some(Err(reason));
        }
    }

    fn take(&mut self, event: &SseEvent) {
        self.ready.extend(event_messages(event));
        if self.ready.iter().any(|message| self.answers(message)) {
            self.is_done = true;
            self.events.close();
        }
    }

    fn answers(&self, message: &Message) -> bool {
        matches!(message, Message::Response { id, .. } if id.as_ref() == Some(&self.request))
    }
}
