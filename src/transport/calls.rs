//! Who waits for what: which request each message that a call brings belongs to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use futures::future::AbortHandle;

use super::TransportError;
use crate::ports::{ObjectError, Timestamp};
use crate::protocol::jsonrpc::decode;
use crate::protocol::{Message, RequestId};

pub(super) type Item = Result<Message, TransportError>;
/// What a call returns.
pub(super) type Returned = Result<Option<String>, ObjectError>;

/// Dropping it gives up a request: nothing is delivered to it any more.
pub(super) struct Waiting {
    pub(super) id: RequestId,
    pub(super) desk: Rc<Desk>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.desk.0.borrow_mut();
        let waiter = state.waiters.remove(&self.id);
        state.questions.retain(|_, asker| *asker != self.id);
        drop(state);
        for call in waiter.iter().flat_map(|waiter| &waiter.calls) {
            call.abort();
        }
    }
}

/// An answer that is on its way.
pub(super) struct UnderWay(pub(super) Rc<Desk>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.borrow_mut().answers -= 1;
        self.0.end_hopeless();
    }
}

/// Who waits for what.
#[derive(Default)]
pub(super) struct Desk(RefCell<State>);

#[derive(Default)]
struct State {
    waiters: HashMap<RequestId, Waiter>,
    /// Questions that are not answered, and the requests that they came for.
    questions: HashMap<RequestId, RequestId>,
    /// Answers that are under way.
    answers: usize,
    is_closed: bool,
    /// When a call has returned last.
    used_at: Timestamp,
}

struct Waiter {
    sender: UnboundedSender<Item>,
    /// Whether the call of the request itself is under way.
    is_called: bool,
    /// Further calls that are made for it alone.
    calls: Vec<AbortHandle>,
}

impl Desk {
    /// Whether the object is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.0.borrow().is_closed
    }

    /// Since when nothing is called. `None` while something is.
    pub(super) fn idle_since(&self) -> Option<Timestamp> {
        let state = self.0.borrow();
        state.waiters.is_empty().then_some(state.used_at)
    }

    pub(super) fn open(&self, id: &RequestId) -> UnboundedReceiver<Item> {
        let (sender, queue) = mpsc::unbounded();
        let waiter = Waiter {
            sender,
            is_called: true,
            calls: Vec::new(),
        };
        let earlier = self.0.borrow_mut().waiters.insert(id.clone(), waiter);
        drop(earlier);
        queue
    }

    /// The call of a request has returned.
    pub(super) fn end_call(&self, id: &RequestId, returned: Returned) {
        if let Some(waiter) = self.0.borrow_mut().waiters.get_mut(id) {
            waiter.is_called = false;
        }
        self.take(Some(id), returned);
        self.end_hopeless();
    }

    /// An answer goes out: to which request's question?
    pub(super) fn begin_answer(
        &self,
        question: &RequestId,
        most: usize,
    ) -> Result<Option<RequestId>, TransportError> {
        let mut state = self.0.borrow_mut();
        let asker = state.questions.remove(question);
        if state.answers >= most {
            drop(state);
            let error = ObjectError::Overloaded("too many answers are under way".into());
            self.fail(asker.as_ref(), &error);
            return Err(error.into());
        }
        state.answers += 1;
        Ok(asker)
    }

    pub(super) fn used(&self, now: Timestamp) {
        self.0.borrow_mut().used_at = now;
    }

    /// These calls are over when the request is.
    pub(super) fn ends_with(&self, asker: &RequestId, calls: AbortHandle) {
        if let Some(waiter) = self.0.borrow_mut().waiters.get_mut(asker) {
            waiter.calls.push(calls);
        }
    }

    /// Hands out what a call returned. `asker` is the request that it was made for.
    pub(super) fn take(&self, asker: Option<&RequestId>, returned: Returned) {
        let error = match returned {
            Ok(None) => return,
            Ok(Some(text)) => match decode(text.as_bytes()) {
                Ok(messages) => {
                    for message in messages {
                        self.deliver(asker, message);
                    }
                    return;
                }
                Err(error) => ObjectError::NotJson(error.to_string()),
            },
            Err(error) => error,
        };
        if matches!(error, ObjectError::Unreachable { .. }) {
            self.0.borrow_mut().is_closed = true;
        }
        self.fail(asker, &error);
    }

    fn fail(&self, asker: Option<&RequestId>, error: &ObjectError) {
        if let Some(sender) = asker.and_then(|asker| self.sender(asker)) {
            let _ = sender.unbounded_send(Err(error.clone().into()));
        }
    }

    fn deliver(&self, asker: Option<&RequestId>, message: Message) {
        let to = match &message {
            // One that nobody waits for is somebody else's, or too late.
            Message::Response { id: Some(id), .. } => Some(id.clone()),
            // The object could not read what it was given.
            Message::Response { id: None, .. } => asker.cloned(),
            Message::Request { id, .. } => {
                let asker = self.asker(asker);
                if let Some(asker) = &asker {
                    let mut state = self.0.borrow_mut();
                    state.questions.insert(id.clone(), asker.clone());
                }
                asker
            }
            Message::Notification { .. } => self.asker(asker),
        };
        if let Some(sender) = to.and_then(|to| self.sender(&to)) {
            let _ = sender.unbounded_send(Ok(message));
        }
    }

    /// The request that a result is for, or any other one: what is not a response may be anybody's,
    /// and is heard as long as somebody listens.
    fn asker(&self, asker: Option<&RequestId>) -> Option<RequestId> {
        let state = self.0.borrow();
        let asker = asker.filter(|asker| state.waiters.contains_key(asker));
        asker.or_else(|| state.waiters.keys().next()).cloned()
    }

    fn sender(&self, id: &RequestId) -> Option<UnboundedSender<Item>> {
        let state = self.0.borrow();
        Some(state.waiters.get(id)?.sender.clone())
    }

    /// Ends the requests whose response cannot come any more: their calls have returned, nobody is
    /// asked for them, and no answer is under way whose result it could be.
    fn end_hopeless(&self) {
        let state = self.0.borrow();
        if state.answers > 0 {
            return;
        }
        let is_hopeless = |(id, waiter): &(&RequestId, &Waiter)| {
            !waiter.is_called && !state.questions.values().any(|asker| asker == *id)
        };
        let hopeless = state.waiters.iter().filter(is_hopeless);
        let senders: Vec<_> = hopeless.map(|(_, waiter)| waiter.sender.clone()).collect();
        drop(state);
        for sender in senders {
            // Behind the response, if that has come: it is not read then.
            let _ = sender.unbounded_send(Err(TransportError::Ended));
        }
    }
}
