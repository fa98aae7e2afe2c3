//! Who gets which message of a stream that carries everything.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use futures::channel::oneshot;
use futures::{FutureExt as _, Stream};

use super::TransportError;
use crate::protocol::{Message, RequestId};

type Outcome = Result<Message, TransportError>;

/// Hands responses to whoever waits for them, and everything else to one listener.
///
/// Wakers and senders leave the cell before they are dropped: with them may go a task that waits
/// here, too.
pub(super) struct Delivery(RefCell<State>);

struct State {
    waiters: HashMap<RequestId, oneshot::Sender<Outcome>>,
    /// What the listener has not taken.
    queue: VecDeque<Message>,
    queued_bytes: usize,
    limits: QueueLimits,
    is_listening: bool,
    listener: Option<Waker>,
    is_open: bool,
    /// What the listener is told at the end.
    fault: Option<TransportError>,
}

/// What may wait for the listener.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueLimits {
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

impl Delivery {
    pub(super) fn new(limits: QueueLimits) -> Rc<Self> {
        Rc::new(Self(RefCell::new(State {
            waiters: HashMap::new(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            limits,
            is_listening: false,
            listener: None,
            is_open: true,
            fault: None,
        })))
    }

    pub(super) fn is_open(&self) -> bool {
        self.0.borrow().is_open
    }

    /// Asks for the response to `id` before the request is sent.
    pub(super) fn wait_for(self: &Rc<Self>, id: RequestId) -> Result<Waiting, TransportError> {
        let mut state = self.0.borrow_mut();
        if !state.is_open {
            return Err(TransportError::Closed);
        }
        let (sender, receiver) = oneshot::channel();
        let earlier = state.waiters.insert(id.clone(), sender);
        drop(state);
        drop(earlier);
        Ok(Waiting {
            id,
            receiver,
            delivery: self.clone(),
        })
    }

    /// `None` while somebody listens already.
    pub(super) fn listen(self: &Rc<Self>) -> Result<Option<Listener>, TransportError> {
        let mut state = self.0.borrow_mut();
        if !state.is_open {
            return Err(TransportError::Closed);
        }
        let is_taken = std::mem::replace(&mut state.is_listening, true);
        Ok((!is_taken).then(|| Listener(self.clone())))
    }

    pub(super) fn deliver(&self, message: Message) {
        let message = match self.waiter(&message) {
            // Somebody may have stopped waiting just now.
            Some(waiter) => match waiter.send(Ok(message)) {
                Err(Ok(message)) => message,
                Ok(()) | Err(Err(_)) => return,
            },
            None => message,
        };
        if let Some(listener) = self.enqueue(message) {
            listener.wake();
        }
    }

    /// Ends everything: whoever waits is told `fault`, or that the stream ended.
    pub(super) fn close(&self, fault: Option<TransportError>) {
        let (waiters, listener) = {
            let mut state = self.0.borrow_mut();
            if !std::mem::replace(&mut state.is_open, false) {
                return;
            }
            state.fault.clone_from(&fault);
            (std::mem::take(&mut state.waiters), state.listener.take())
        };
        let error = fault.unwrap_or(TransportError::Ended);
        for waiter in waiters.into_values() {
            let _ = waiter.send(Err(error.clone()));
        }
        if let Some(listener) = listener {
            listener.wake();
        }
    }

    fn waiter(&self, message: &Message) -> Option<oneshot::Sender<Outcome>> {
        match message {
            Message::Response { id: Some(id), .. } => self.0.borrow_mut().waiters.remove(id),
            _ => None,
        }
    }

    /// What finds no room is dropped, so that what came first is answered first.
    fn enqueue(&self, message: Message) -> Option<Waker> {
        let mut state = self.0.borrow_mut();
        let bytes = state.queued_bytes.saturating_add(weight(&message));
        let is_full = state.queue.len() >= state.limits.messages || bytes > state.limits.bytes;
        if is_full && !state.queue.is_empty() {
            return None;
        }
        state.queued_bytes = bytes;
        state.queue.push_back(message);
        state.listener.take()
    }
}

/// About how many bytes a message holds.
fn weight(message: &Message) -> usize {
    match message {
        Message::Request { method, params, .. } | Message::Notification { method, params } => {
            method.len() + params.as_ref().map_or(0, |params| params.get().len())
        }
        Message::Response { outcome, .. } => match outcome {
            Ok(result) => result.get().len(),
            Err(error) => {
                error.message.len() + error.data.as_ref().map_or(0, |data| data.get().len())
            }
        },
    }
}

/// Resolves with the response to one request. Dropping it gives up waiting.
pub(super) struct Waiting {
    id: RequestId,
    receiver: oneshot::Receiver<Outcome>,
    delivery: Rc<Delivery>,
}

impl Future for Waiting {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let received = self.receiver.poll_unpin(context);
        received.map(|received| received.unwrap_or(Err(TransportError::Ended)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.receiver.close();
        let mut state = self.delivery.0.borrow_mut();
        // Another request may wait under the same id by now.
        let is_ours = |waiter: &oneshot::Sender<Outcome>| waiter.is_canceled();
        let waiter = if state.waiters.get(&self.id).is_some_and(is_ours) {
            state.waiters.remove(&self.id)
        } else {
            None
        };
        drop(state);
        drop(waiter);
    }
}

/// Everything that is no awaited response. Dropping it lets somebody else listen.
pub(super) struct Listener(Rc<Delivery>);

impl Stream for Listener {
    type Item = Outcome;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Outcome>> {
        let mut state = self.0.0.borrow_mut();
        if let Some(message) = state.queue.pop_front() {
            state.queued_bytes = state.queued_bytes.saturating_sub(weight(&message));
            return Poll::Ready(Some(Ok(message)));
        }
        if !state.is_open {
            return Poll::Ready(state.fault.take().map(Err));
        }
        let earlier = state.listener.replace(context.waker().clone());
        drop(state);
        drop(earlier);
        Poll::Pending
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = self.0.0.borrow_mut();
        state.is_listening = false;
        let waker = state.listener.take();
        drop(state);
        drop(waker);
    }
}
