//! Calls of an object of the same account, without HTTP: each message is the argument of one call,
//! and what comes back is its result.
//!
//! A server that asks something returns the question in place of the response. The answer goes to it
//! as the argument of a further call, and that one's result goes on where the first broke off: with
//! the next question, or with the response. An `McpAgent` of the npm package `agents` hands out those
//! further results in the order in which the answers came, so with several calls under way the
//! response to one may be the result of another's: responses are told apart by their ids alone.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use futures::future::{Either, LocalBoxFuture, select};
use futures::{FutureExt as _, StreamExt as _, stream};
use http::HeaderMap;

use super::{Answer, Incoming, Outgoing, SessionHeader, Transport, TransportError};
use crate::ports::{Clock, ObjectError, RemoteObject, Spawn};
use crate::protocol::jsonrpc::decode;
use crate::protocol::{Message, RequestId};

/// What an [`Rpc`] may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RpcLimits {
    /// The longest result of one call, in bytes of JSON.
    pub result_bytes: usize,
    /// How many answers to questions may be under way at once. Each lasts until the server has gone
    /// on and come to the next question or to the response.
    pub answers: usize,
    /// How long an answer may be under way.
    pub answer_time: Duration,
}

impl RpcLimits {
    /// 64 answers, and ten minutes for each.
    pub const fn new(result_bytes: usize) -> Self {
        Self {
            result_bytes,
            answers: 64,
            answer_time: Duration::from_mins(10),
        }
    }
}

/// The transport to one object.
///
/// It is closed when the platform says that the object is gone: whatever was agreed on with it is
/// gone, too. There is no stream to listen on: a server says something only while it is called.
pub struct Rpc {
    object: Rc<dyn RemoteObject>,
    clock: Rc<dyn Clock>,
    spawn: Rc<dyn Spawn>,
    limits: RpcLimits,
    desk: Rc<Desk>,
}

type Item = Result<Message, TransportError>;
type Returned = Result<Option<String>, ObjectError>;

impl Rpc {
    /// A transport to an object that has been started.
    pub fn new(
        object: Rc<dyn RemoteObject>,
        clock: Rc<dyn Clock>,
        spawn: Rc<dyn Spawn>,
        limits: RpcLimits,
    ) -> Self {
        Self {
            object,
            clock,
            spawn,
            limits,
            desk: Rc::default(),
        }
    }

    fn call(&self, body: &str) -> LocalBoxFuture<'static, Returned> {
        let (object, body, most) = (
            self.object.clone(),
            body.to_owned(),
            self.limits.result_bytes,
        );
        async move { object.call(&body, most).await }.boxed_local()
    }

    /// What belongs to one request, as it comes.
    fn request(&self, id: &RequestId, body: &str) -> Result<Incoming, TransportError> {
        let queue = self.desk.open(id)?;
        let exchange = Exchange {
            waiting: Waiting {
                id: id.clone(),
                desk: self.desk.clone(),
            },
            call: Some(self.call(body)),
            queue,
        };
        Ok(stream::unfold(exchange, async |mut exchange| {
            let item = exchange.next().await?;
            Some((item, exchange))
        })
        .boxed_local())
    }

    /// Answers a question, and goes on with the request that it belongs to. Nobody waits for that
    /// here: the request does. The call is waited for even when the request is given up, because its
    /// result may be the response to another one.
    fn answer(&self, question: &RequestId, body: &str) -> Result<(), TransportError> {
        let asker = self.desk.begin_answer(question, self.limits.answers)?;
        let (call, desk) = (self.call(body), self.desk.clone());
        let patience = self.clock.sleep(self.limits.answer_time);
        self.spawn.spawn(Box::pin(async move {
            let returned = match select(call, patience).await {
                Either::Left((returned, _)) => returned,
                Either::Right(_) => Ok(None),
            };
            desk.end_answer(asker.as_ref(), returned);
        }));
        Ok(())
    }
}

#[async_trait(?Send)]
impl Transport for Rpc {
    async fn send(&self, message: &Outgoing) -> Result<Answer, TransportError> {
        if !self.is_open() {
            return Err(TransportError::Closed);
        }
        let messages = match &message.id {
            Some(id) => {
                let mut messages = self.request(id, &message.body)?;
                let first = messages.next().await.transpose()?;
                stream::iter(first.map(Ok)).chain(messages).boxed_local()
            }
            None => {
                if let Some(question) = answered(&message.body) {
                    self.answer(&question, &message.body)?;
                } else {
                    // Nothing is due for a notification, and what comes may be somebody's all the same.
                    let returned = self.call(&message.body).await;
                    let failed = returned.as_ref().err().cloned();
                    self.desk.take(None, returned);
                    failed.map_or(Ok(()), Err)?;
                }
                stream::empty().boxed_local()
            }
        };
        Ok(Answer {
            session: SessionHeader::None,
            messages,
        })
    }

    /// There is none.
    async fn listen(&self, _: HeaderMap) -> Result<Option<Incoming>, TransportError> {
        Ok(None)
    }

    /// The object keeps nothing of a session that could be ended.
    async fn end_session(&self, _: HeaderMap) -> Result<(), TransportError> {
        Ok(())
    }

    fn is_open(&self) -> bool {
        !self.desk.0.borrow().is_closed
    }
}

/// Which question of the server a message answers.
fn answered(body: &str) -> Option<RequestId> {
    match decode(body.as_bytes()).ok()?.pop()? {
        Message::Response { id, .. } => id,
        Message::Request { .. } | Message::Notification { .. } => None,
    }
}

/// One request on its way.
struct Exchange {
    waiting: Waiting,
    /// Its own call, until that has returned.
    call: Option<LocalBoxFuture<'static, Returned>>,
    queue: UnboundedReceiver<Item>,
}

impl Exchange {
    async fn next(&mut self) -> Option<Item> {
        loop {
            let Some(call) = self.call.take() else {
                return self.queue.next().await;
            };
            match select(self.queue.next(), call).await {
                Either::Left((item, call)) => {
                    self.call = Some(call);
                    return item;
                }
                Either::Right((returned, _)) => {
                    let Waiting { id, desk } = &self.waiting;
                    desk.end_call(id, returned);
                }
            }
        }
    }
}

/// Dropping it gives up a request: nothing is delivered to it any more.
struct Waiting {
    id: RequestId,
    desk: Rc<Desk>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.desk.0.borrow_mut();
        let waiter = state.waiters.remove(&self.id);
        state.questions.retain(|_, asker| *asker != self.id);
        drop(state);
        drop(waiter);
    }
}

/// Who waits for what.
#[derive(Default)]
struct Desk(RefCell<State>);

#[derive(Default)]
struct State {
    waiters: HashMap<RequestId, Waiter>,
    /// Questions that are not answered, and the requests that they came for.
    questions: HashMap<RequestId, RequestId>,
    /// Answers that are under way.
    answers: usize,
    is_closed: bool,
}

struct Waiter {
    sender: UnboundedSender<Item>,
    is_called: bool,
}

impl Desk {
    fn open(&self, id: &RequestId) -> Result<UnboundedReceiver<Item>, TransportError> {
        let (sender, queue) = mpsc::unbounded();
        let waiter = Waiter {
            sender,
            is_called: true,
        };
        let earlier = self.0.borrow_mut().waiters.insert(id.clone(), waiter);
        drop(earlier);
        Ok(queue)
    }

    /// The call of a request has returned.
    fn end_call(&self, id: &RequestId, returned: Returned) {
        if let Some(waiter) = self.0.borrow_mut().waiters.get_mut(id) {
            waiter.is_called = false;
        }
        self.take(Some(id), returned);
        self.end_hopeless();
    }

    /// An answer goes out: to which request's question?
    fn begin_answer(
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

    fn end_answer(&self, asker: Option<&RequestId>, returned: Returned) {
        self.0.borrow_mut().answers -= 1;
        self.take(asker, returned);
        self.end_hopeless();
    }

    /// Hands out what a call returned. `asker` is the request that it was made for.
    fn take(&self, asker: Option<&RequestId>, returned: Returned) {
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

impl fmt::Debug for Rpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rpc")
            .field("is_open", &self.is_open())
            .finish_non_exhaustive()
    }
}
