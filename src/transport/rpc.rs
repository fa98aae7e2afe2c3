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

use std::fmt;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use futures::channel::mpsc::UnboundedReceiver;
use futures::future::{AbortHandle, Abortable, Either, LocalBoxFuture, join, select};
use futures::{FutureExt as _, StreamExt as _, stream};
use http::HeaderMap;

use super::calls::{Desk, Item, Returned, UnderWay, Waiting};
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
            _ if self.desk.is_closed() => return Err(TransportError::Closed),
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
        let forgets = self.limits.forgets_after;
        let is_forgotten = forgets
            .zip(self.desk.idle_since())
            .is_some_and(|(after, since)| {
                let idle = self.clock.now().saturating_sub(since);
                Duration::from_millis(idle) >= after
            });
        !self.desk.is_closed() && !is_forgotten
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

impl fmt::Debug for Rpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rpc")
            .field("is_open", &self.is_open())
            .finish_non_exhaustive()
    }
}
