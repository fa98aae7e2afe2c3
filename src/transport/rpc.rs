//! Calls of an object of the same account, without HTTP: each message is the argument of one call,
//! and what comes back is its result.
//!
//! A server that asks something returns the question in place of the response. The answer goes to it
//! as the argument of a further call, and that one's result goes on where the first broke off: with
//! the next question, or with the response.
//!
//! So an `McpAgent` of the npm package `agents` does with its own questions, whose ids begin with
//! `elicit_`. It hands out the further results in the order in which the answers came: with several
//! calls under way, the response to one may be the result of another's. Responses are therefore told
//! apart by their ids alone. With questions that its tools ask through the MCP SDK it returns nothing
//! more, except to a call whose message has the id of the request. Such a call goes ahead of the
//! answer: a response that the server does not wait for, and passes over.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use futures::future::{AbortHandle, Abortable, Either, LocalBoxFuture, join, select};
use futures::{FutureExt as _, StreamExt as _, stream};
use http::HeaderMap;

use super::{Answer, Incoming, Outgoing, SessionHeader, Transport, TransportError};
use crate::ports::{Clock, ObjectError, RemoteObject, Spawn, Timestamp};
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
    /// When nothing was called for so long, the transport is closed: the object may have been
    /// evicted, and have forgotten what its caller can do. `None` where it need not know.
    pub forgets_after: Option<Duration>,
}

impl RpcLimits {
    /// 64 answers, and ten minutes for each; nothing is forgotten.
    pub const fn new(result_bytes: usize) -> Self {
        Self {
            result_bytes,
            answers: 64,
            answer_time: Duration::from_mins(10),
            forgets_after: None,
        }
    }
}

/// The transport to one object.
///
/// It is closed when the platform says that the object is gone, or when it may be: whatever was agreed
/// on with it is gone, too. There is no stream to listen on: a server says something only while it is called.
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
        let desk = Rc::<Desk>::default();
        desk.used(clock.now());
        Self {
            object,
            clock,
            spawn,
            limits,
            desk,
        }
    }

    fn call(&self, body: String) -> LocalBoxFuture<'static, Returned> {
        let (object, most) = (self.object.clone(), self.limits.result_bytes);
        let (clock, desk) = (self.clock.clone(), self.desk.clone());
        async move {
            let returned = object.call(&body, most).await;
            desk.used(clock.now());
            returned
        }
        .boxed_local()
    }

    /// What belongs to one request, as it comes.
    fn request(&self, id: &RequestId, body: &str) -> Incoming {
        let queue = self.desk.open(id);
        let exchange = Exchange {
            waiting: Waiting {
                id: id.clone(),
                desk: self.desk.clone(),
            },
            call: Some(self.call(body.to_owned())),
            queue,
        };
        stream::unfold(exchange, async |mut exchange| {
            let item = exchange.next().await?;
            Some((item, exchange))
        })
        .boxed_local()
    }

    /// Answers a question, and goes on with the request that it belongs to. Nobody waits for that
    /// here: the request does.
    fn answer(&self, question: &RequestId, body: String) -> Result<(), TransportError> {
        let asker = self.desk.begin_answer(question, self.limits.answers)?;
        let under_way = UnderWay(self.desk.clone());
        let desk = self.desk.clone();
        // Where the result of the answer is the continuation, it may be that of another request.
        let ahead = asker
            .as_ref()
            .filter(|_| !is_of_the_class(question))
            .and_then(|asker| Some((asker.clone(), self.call(nothing(asker)?))));
        let (abort, registration) = AbortHandle::new_pair();
        if let Some((asker, _)) = &ahead {
            desk.ends_with(asker, abort);
        }
        let answer = self.call(body);
        let patience = self.clock.sleep(self.limits.answer_time);
        let work = async move {
            let ahead = async {
                if let Some((asker, call)) = ahead {
                    // A server may refuse it as well as pass it over.
                    let returned = call.await.or_else(|error| match error {
                        ObjectError::Unreachable { .. } | ObjectError::TooLarge(_) => Err(error),
                        _ => Ok(None),
                    });
                    desk.take(Some(&asker), returned);
                }
            };
            let answer = async { desk.take(asker.as_ref(), answer.await) };
            select(pin!(join(ahead, answer)), patience).await;
            drop(under_way);
        };
        let work = Abortable::new(work, registration).map(drop);
        self.spawn.spawn(work.boxed_local());
        Ok(())
    }
}

#[async_trait(?Send)]
impl Transport for Rpc {
    async fn send(&self, message: &Outgoing) -> Result<Answer, TransportError> {
        let messages = match &message.id {
            _ if self.desk.0.borrow().is_closed => return Err(TransportError::Closed),
            Some(id) => {
                if !self.is_open() {
                    return Err(TransportError::Closed);
                }
                let mut messages = self.request(id, &message.body);
                let first = messages.next().await.transpose()?;
                stream::iter(first.map(Ok)).chain(messages).boxed_local()
            }
            None => {
                if let Some(question) = answered(&message.body) {
                    self.answer(&question, message.body.clone())?;
                } else {
                    // Nothing is due for a notification, and what comes may be somebody's all the same.
                    let returned = self.call(message.body.clone()).await;
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
        let state = self.desk.0.borrow();
        let idle = self.clock.now().saturating_sub(state.used_at);
        let idle = Duration::from_millis(idle);
        let is_used = !state.waiters.is_empty();
        let forgets = self.limits.forgets_after;
        !state.is_closed && (is_used || forgets.is_none_or(|after| idle < after))
    }
}

/// Whether the class `McpAgent` itself asks, and not one of its tools through the SDK.
fn is_of_the_class(question: &RequestId) -> bool {
    matches!(question, RequestId::Text(id) if id.starts_with("elicit_"))
}

/// A response to nothing, with the id of a request.
fn nothing(id: &RequestId) -> Option<String> {
    let id = serde_json::to_string(id).ok()?;
    Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#))
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
        for call in waiter.iter().flat_map(|waiter| &waiter.calls) {
            call.abort();
        }
    }
}

/// An answer that is on its way.
struct UnderWay(Rc<Desk>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.borrow_mut().answers -= 1;
        self.0.end_hopeless();
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
    fn open(&self, id: &RequestId) -> UnboundedReceiver<Item> {
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

    fn used(&self, now: Timestamp) {
        self.0.borrow_mut().used_at = now;
    }

    /// These calls are over when the request is.
    fn ends_with(&self, asker: &RequestId, calls: AbortHandle) {
        if let Some(waiter) = self.0.borrow_mut().waiters.get_mut(asker) {
            waiter.calls.push(calls);
        }
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
