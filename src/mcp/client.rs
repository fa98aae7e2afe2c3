//! The protocol client of one server: requests within a session, and starting over when the server
//! has forgotten the session.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{Either, Shared, select};
use futures::{FutureExt as _, StreamExt as _};
use http::HeaderMap;
use serde_json::value::RawValue;

use super::McpClientOptions;
use super::handshake::agree;
use super::joined::Running;
use super::session::{Identity, Session};
use super::within::within;
use crate::ports::Ports;
use crate::protocol::bounded::{is_object, raw_member};
use crate::protocol::request::{self, Call, Envelope};
use crate::protocol::version;
use crate::protocol::{Message, ProtocolError, RequestId, Revision, RpcError, clip};
use crate::transport::{
    Answer, HttpFailure, Incoming, Outgoing, SessionHeader, Transport, TransportError,
};
use crate::{Error, Result};

/// How long telling a server about the end of a session may take.
const END_SESSION_TIMEOUT: Duration = Duration::from_secs(5);
/// Answers to requests of the server that may be on their way at once. What comes on top is not
/// answered: a server that asks faster than it listens gets no say in our memory.
const MAX_ANSWERS: usize = 8;

pub(crate) struct Client {
    pub(super) transport: Rc<dyn Transport>,
    pub(super) ports: Ports,
    pub(super) identity: Rc<Identity>,
    pub(super) options: Rc<McpClientOptions>,
    /// Told about every new agreement.
    on_session: Box<dyn Fn(&Session)>,
    session: RefCell<Option<Rc<Session>>>,
    renewal: RefCell<Option<Running>>,
    /// Resolves when the client is ended; dropping `open` ends it.
    ended: Shared<oneshot::Receiver<()>>,
    open: RefCell<Option<oneshot::Sender<()>>>,
    next_id: Cell<i64>,
    answers: Rc<Cell<usize>>,
}

/// What to do about requests of the server that come before the response.
pub(super) enum Replies<'a> {
    /// Nothing: the modern era has no such requests (2026-07-28, streamable-http).
    None,
    /// Answer them with these headers; there is no session yet.
    With(HeaderMap),
    /// Answer them within the session.
    Within(&'a Session),
}

impl Client {
    pub(crate) fn new(
        transport: Rc<dyn Transport>,
        ports: Ports,
        identity: Rc<Identity>,
        options: Rc<McpClientOptions>,
        on_session: Box<dyn Fn(&Session)>,
    ) -> Self {
        let (open, ended) = oneshot::channel();
        Self {
            transport,
            ports,
            identity,
            options,
            on_session,
            session: RefCell::default(),
            renewal: RefCell::default(),
            ended: ended.shared(),
            open: RefCell::new(Some(open)),
            next_id: Cell::new(first_id()),
            answers: Rc::default(),
        }
    }

    /// Takes up a stored session, which sends nothing, or agrees on a new one.
    pub(crate) async fn open(&self, stored: Option<Session>) -> Result<()> {
        match stored {
            Some(session) => drop(self.session.replace(Some(Rc::new(session)))),
            None => self.adopt(agree(self).await?),
        }
        Ok(())
    }

    /// The current agreement.
    pub(crate) fn session(&self) -> Option<Rc<Session>> {
        self.session.borrow().clone()
    }

    /// Sends a request and returns its result, an object.
    ///
    /// When the server has forgotten the session, a new one is agreed on and the request, which
    /// was not accepted, is sent once more (2025-11-25, "Session Management"). All of it together
    /// takes the request timeout at most, and ends when the client is ended.
    pub(crate) async fn request(self: &Rc<Self>, call: &Call) -> Result<Box<RawValue>> {
        let work = within(
            &*self.ports.clock,
            self.options.request_timeout,
            call.method,
            self.attempts(call),
        );
        match select(std::pin::pin!(work), self.ended.clone()).await {
            Either::Left((outcome, _)) => outcome.map_err(prefer_rpc),
            Either::Right(_) => Err(Error::Closed),
        }
    }

    async fn attempts(self: &Rc<Self>, call: &Call) -> Result<Box<RawValue>> {
        let session = self.session().ok_or(Error::Closed)?;
        let error = match self.within_session(call, &session).await {
            Ok(result) => {
                self.confirm(&session);
                return Ok(result);
            }
            Err(error) => error,
        };
        let doubt = doubt(&error, &session);
        if doubt == Doubt::None {
            return Err(error);
        }
        self.renew(&session).await?;
        let fresh = self.session().ok_or(Error::Closed)?;
        // Where the refusal may as well be the tool's own answer, only another era is a reason to
        // send the request again: the tool may have run.
        if doubt == Doubt::Era && fresh.is_modern() == session.is_modern() {
            return Err(error);
        }
        self.within_session(call, &fresh).await
    }

    /// Ends everything: requests under way fail with [`Error::Closed`], and a legacy server is told
    /// in the background that the session is over.
    pub(crate) fn end(&self) {
        drop(self.open.take());
        if let Some(renewal) = self.renewal.take() {
            renewal.abort();
        }
        if let Some(session) = self.session.take() {
            self.end_at_server(&session);
        }
    }

    /// Tells a legacy server in the background that a session is over.
    pub(super) fn end_at_server(&self, session: &Session) {
        if session.id.is_none() {
            return;
        }
        let (transport, clock) = (self.transport.clone(), self.ports.clock.clone());
        let headers = session.headers();
        // A server that cannot be told forgets the session by itself; nobody waits for it.
        self.ports.spawn.spawn(Box::pin(async move {
            let ended = async { Ok(transport.end_session(headers).await?) };
            let _ = within(&*clock, END_SESSION_TIMEOUT, "ending the session", ended).await;
        }));
    }

    async fn within_session(
        self: &Rc<Self>,
        call: &Call,
        session: &Session,
    ) -> Result<Box<RawValue>> {
        let is_modern = session.is_modern();
        let mut headers = call.headers(Some(session.revision));
        headers.extend(session.headers());
        let replies = if is_modern {
            Replies::None
        } else {
            Replies::Within(session)
        };
        let envelope = is_modern.then_some(session.revision);
        let (result, _) = self.exchange(call, envelope, headers, replies).await?;
        require_complete(call.method, &result, is_modern)?;
        Ok(result)
    }

    /// One message and the response to it, with what it said about a session.
    pub(super) async fn exchange(
        &self,
        call: &Call,
        envelope: Option<Revision>,
        headers: HeaderMap,
        replies: Replies<'_>,
    ) -> Result<(Box<RawValue>, SessionHeader)> {
        let id = RequestId::Number(self.next_id.replace(self.next_id.get() + 1));
        let envelope = envelope.map(|revision| Envelope {
            protocol_version: revision.as_str(),
            client_info: &self.identity.info,
            client_capabilities: &self.identity.capabilities,
        });
        let body = call
            .body(&id, envelope.as_ref())
            .map_err(|error| Error::InvalidOption(error.to_string()))?;
        let message = Outgoing {
            body,
            headers,
            id: Some(id.clone()),
            resumable: envelope.is_none(),
        };
        let Answer { session, messages } = self.transport.send(&message).await?;
        let result = self.response(&id, messages, &replies).await?;
        Ok((result, session))
    }

    /// Reads messages until the response to `id`.
    async fn response(
        &self,
        id: &RequestId,
        mut messages: Incoming,
        replies: &Replies<'_>,
    ) -> Result<Box<RawValue>> {
        while let Some(message) = messages.next().await {
            match message? {
                Message::Response {
                    id: Some(found),
                    outcome,
                } if found == *id => return Ok(outcome?),
                // A server that could not read the request answers without an id.
                Message::Response {
                    id: None,
                    outcome: Err(error),
                } => return Err(error.into()),
                // Nobody else's response belongs on this stream, and ours will not come any more.
                Message::Response { .. } => return Err(ProtocolError::WrongResponseId.into()),
                Message::Request { id, method, .. } => match replies {
                    Replies::None => {}
                    Replies::With(headers) => self.answer(&id, &method, headers.clone()),
                    Replies::Within(session) => self.answer(&id, &method, session.headers()),
                },
                Message::Notification { .. } => {}
            }
        }
        Err(TransportError::Ended.into())
    }

    /// Answers a request of the server by a POST of its own.
    fn answer(&self, id: &RequestId, method: &str, headers: HeaderMap) {
        let Ok(body) = request::answer_to_server(id, method) else {
            return;
        };
        if self.answers.get() >= MAX_ANSWERS {
            return;
        }
        self.answers.set(self.answers.get() + 1);
        let (transport, clock) = (self.transport.clone(), self.ports.clock.clone());
        let (answers, limit) = (self.answers.clone(), self.options.request_timeout);
        let ended = self.ended.clone();
        self.ports.spawn.spawn(Box::pin(async move {
            let message = Outgoing {
                body,
                headers,
                id: None,
                resumable: false,
            };
            let sent = async { Ok(transport.send(&message).await.map(drop)?) };
            // If the answer is lost, the server's own request times out.
            let _ = select(
                std::pin::pin!(within(&*clock, limit, "an answer", sent)),
                ended,
            )
            .await;
            answers.set(answers.get() - 1);
        }));
    }

    /// Replaces a session that the server refused. Requests that meet the refusal at the same time
    /// share one new agreement.
    async fn renew(self: &Rc<Self>, refused: &Rc<Session>) -> Result<()> {
        if !self.is_current(refused) {
            return Ok(());
        }
        let is_replacement = refused.id.is_some();
        let running = self.renewal.borrow().as_ref().map(Running::join);
        let renewal = running.unwrap_or_else(|| {
            let this = self.clone();
            let running = Running::start(&*self.ports.spawn, async move {
                let outcome = agree(&this).await;
                this.renewal.take();
                outcome.map(|session| {
                    this.adopt(Session {
                        is_replacement,
                        ..session
                    });
                })
            });
            let renewal = running.join();
            self.renewal.replace(Some(running));
            renewal
        });
        renewal.await
    }

    fn adopt(&self, session: Session) {
        (self.on_session)(&session);
        self.session.replace(Some(Rc::new(session)));
    }

    /// The server has answered within the session, so it is as good as a fresh one.
    fn confirm(&self, session: &Rc<Session>) {
        if session.resumed && self.is_current(session) {
            self.session.replace(Some(Rc::new(Session {
                resumed: false,
                ..(**session).clone()
            })));
        }
    }

    fn is_current(&self, session: &Rc<Session>) -> bool {
        self.session
            .borrow()
            .as_ref()
            .is_some_and(|current| Rc::ptr_eq(current, session))
    }
}

/// Where the ids of a client begin. A session that is taken up again after a wake may still have
/// requests of the client before it, and ids must not repeat within a session (2025-11-25, index).
/// Far below 2^53, where JavaScript stops telling integers apart.
fn first_id() -> i64 {
    i64::from(getrandom::u32().unwrap_or(1)) << 16
}

/// What an error says about the agreement it came within.
#[derive(Debug, PartialEq, Eq)]
enum Doubt {
    /// Nothing.
    None,
    /// The agreement is void, and the request was refused because of that.
    Agreement,
    /// The server may have changed its era. Whether the request was refused because of that shows
    /// only when the server is asked.
    Era,
}

fn doubt(error: &Error, session: &Session) -> Doubt {
    let (status, rpc) = match error {
        Error::Rpc(rpc) => (200, Some(rpc)),
        Error::Transport(TransportError::Status(failure)) => (failure.status, failure.rpc.as_ref()),
        _ => return Doubt::None,
    };
    if rpc.is_some_and(|rpc| rpc.code == RpcError::UNSUPPORTED_VERSION) {
        return Doubt::Agreement;
    }
    if status < 300 || !version::is_evidence(status) {
        return Doubt::None;
    }
    if session.is_modern() {
        let is_legacy = rpc.is_none() || session.resumed;
        return if is_legacy { Doubt::Era } else { Doubt::None };
    }
    // Servers should say 404 (2025-11-25, "Session Management"); some say 400. A bad request gets
    // that too, so it costs one new session at most. A JSON-RPC error of code 404 says nothing.
    let is_about_params = rpc.is_some_and(|rpc| matches!(rpc.code, -32700 | -32603..=-32601));
    let is_odd = status == 400 && !is_about_params && !session.is_replacement;
    if session.id.is_some() && (status == 404 || is_odd || session.resumed && !is_about_params) {
        Doubt::Agreement
    } else {
        Doubt::None
    }
}

/// The JSON-RPC error says more than the status it came with, except where the status asks for
/// authorization. It keeps the status.
pub(super) fn prefer_rpc(error: Error) -> Error {
    match error {
        Error::Transport(TransportError::Status(failure)) => match *failure {
            HttpFailure {
                status,
                rpc: Some(mut rpc),
                retry_after,
                ..
            } if !matches!(status, 401 | 403) => {
                rpc.http_status = Some(status);
                rpc.retry_after = retry_after;
                Error::Rpc(rpc)
            }
            failure => Error::Transport(TransportError::Status(Box::new(failure))),
        },
        error => error,
    }
}

/// A result is an object, and in the modern era its `resultType` decides before it is read; absent
/// means complete (2026-07-28, index). Legacy results may use that name for anything.
fn require_complete(
    method: &'static str,
    result: &RawValue,
    is_modern: bool,
) -> Result<(), ProtocolError> {
    if !is_object(result) {
        return Err(ProtocolError::MalformedResult {
            method,
            reason: "not an object".into(),
        });
    }
    let Some(kind) = raw_member(result, "resultType").filter(|_| is_modern) else {
        return Ok(());
    };
    match serde_json::from_str::<String>(kind.get()) {
        Ok(kind) if kind == "complete" => Ok(()),
        kind => {
            let kind = clip(&kind.unwrap_or_else(|_| "(no text)".to_owned()), 40);
            Err(ProtocolError::UnexpectedResultType { method, kind })
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("session", &self.session.borrow())
            .finish_non_exhaustive()
    }
}
