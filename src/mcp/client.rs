//! The protocol client of one server: agreement on a session, requests, and starting over when the
//! server has forgotten the session.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use futures::future::{LocalBoxFuture, Shared};
use futures::{FutureExt as _, StreamExt as _};
use http::{HeaderMap, HeaderValue};
use serde_json::value::RawValue;

use super::McpClientOptions;
use super::within::within;
use crate::ports::Ports;
use crate::protocol::jsonrpc::without_content;
use crate::protocol::model::{ResultHead, ServerCard};
use crate::protocol::request::{self, Call, ClientInfo, Envelope, Params};
use crate::protocol::version::{self, InitializeResult, ProbeAnswer, Verdict};
use crate::protocol::{Era, Message, ProtocolError, RequestId, Revision, clip};
use crate::transport::{Answer, HttpFailure, Incoming, Outgoing, Transport, TransportError};
use crate::{Error, Result};

/// How long telling a server about the end of a session may take.
const END_SESSION_TIMEOUT: Duration = Duration::from_secs(5);

/// What client and server agreed on.
#[derive(Clone)]
pub(crate) struct Session {
    /// The revision spoken.
    pub(crate) revision: Revision,
    /// The session id of a legacy server that issues them. Secret.
    pub(crate) id: Option<String>,
    /// What the server said about itself.
    pub(crate) card: ServerCard,
    /// Taken up again from storage; the server has not confirmed it yet.
    pub(crate) resumed: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("revision", &self.revision)
            .field("resumed", &self.resumed)
            .finish_non_exhaustive()
    }
}

/// Who we are in front of every server of a manager.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) info: ClientInfo,
    /// The capabilities to declare: only what has a handler behind it.
    pub(crate) capabilities: serde_json::Value,
}

type Renewal = Shared<LocalBoxFuture<'static, Result<()>>>;

pub(crate) struct Client {
    transport: Rc<dyn Transport>,
    ports: Ports,
    identity: Rc<Identity>,
    options: Rc<McpClientOptions>,
    /// Told about every new agreement.
    on_session: Box<dyn Fn(&Session)>,
    session: RefCell<Option<Rc<Session>>>,
    renewal: RefCell<Option<Renewal>>,
    next_id: Cell<i64>,
}

impl Client {
    pub(crate) fn new(
        transport: Rc<dyn Transport>,
        ports: Ports,
        identity: Rc<Identity>,
        options: Rc<McpClientOptions>,
        on_session: Box<dyn Fn(&Session)>,
    ) -> Self {
        Self {
            transport,
            ports,
            identity,
            options,
            on_session,
            session: RefCell::default(),
            renewal: RefCell::default(),
            next_id: Cell::new(1),
        }
    }

    /// Takes up a stored session, which sends nothing, or agrees on a new one.
    pub(crate) async fn open(&self, stored: Option<Session>) -> Result<()> {
        match stored {
            Some(session) => self.session.replace(Some(Rc::new(session))),
            None => return self.agree().await,
        };
        Ok(())
    }

    /// The current agreement.
    pub(crate) fn session(&self) -> Option<Rc<Session>> {
        self.session.borrow().clone()
    }

    /// Sends a request and returns its result.
    ///
    /// When the server has forgotten the session, a new one is agreed on and the request, which
    /// was not accepted, is sent once more (2025-11-25, "Session Management").
    pub(crate) async fn request(self: &Rc<Self>, call: &Call) -> Result<Box<RawValue>> {
        let session = self.session().ok_or(Error::Closed)?;
        let outcome = match self.within_session(call, &session).await {
            Err(error) if is_lost(&error, &session) => {
                self.renew(&session).await?;
                let fresh = self.session().ok_or(Error::Closed)?;
                self.within_session(call, &fresh).await
            }
            outcome => outcome,
        };
        let result = outcome.map_err(prefer_rpc)?;
        self.confirm(&session);
        Ok(result)
    }

    /// Ends a legacy session at the server, in the background.
    pub(crate) fn end(&self) {
        let Some(session) = self.session.take() else {
            return;
        };
        if session.id.is_none() {
            return;
        }
        let transport = self.transport.clone();
        let clock = self.ports.clock.clone();
        let headers = session_headers(&session);
        // A server that cannot be told forgets the session by itself; nobody waits for it.
        self.ports.spawn.spawn(Box::pin(async move {
            let ended = async { transport.end_session(headers).await.map_err(Error::from) };
            let _ = within(&*clock, END_SESSION_TIMEOUT, "ending the session", ended).await;
        }));
    }

    async fn within_session(
        self: &Rc<Self>,
        call: &Call,
        session: &Session,
    ) -> Result<Box<RawValue>> {
        let envelope = (session.revision.era() == Era::Modern).then_some(session.revision);
        let mut headers = call.headers(Some(session.revision));
        headers.extend(session_headers(session));
        let exchange = async {
            let (result, _) = self.exchange(call, envelope, headers, Some(self)).await?;
            if session.revision.era() == Era::Modern {
                require_complete(call.method, &result)?;
            }
            Ok(result)
        };
        within(
            &*self.ports.clock,
            self.options.request_timeout,
            call.method,
            exchange,
        )
        .await
    }

    /// One POST and the response to it, with the session id that came along.
    async fn exchange(
        &self,
        call: &Call,
        envelope: Option<Revision>,
        headers: HeaderMap,
        answers: Option<&Rc<Self>>,
    ) -> Result<(Box<RawValue>, Option<String>)> {
        let id = RequestId::Number(self.next_id.replace(self.next_id.get() + 1));
        let envelope = envelope.map(|revision| Envelope {
            protocol_version: revision.as_str(),
            client_info: &self.identity.info,
            client_capabilities: &self.identity.capabilities,
        });
        let body = call
            .body(&id, envelope.as_ref())
            .map_err(|error| Error::InvalidOption(error.to_string()))?;
        let Answer {
            session_id,
            messages,
        } = self
            .transport
            .send(&Outgoing {
                body,
                headers,
                expects_answer: true,
            })
            .await?;
        let result = response(&id, messages, answers).await?;
        Ok((result, session_id))
    }

    /// Agrees on a session: first as a modern client, then by handshake.
    async fn agree(&self) -> Result<()> {
        let session = match self.probe_era().await? {
            Some(session) => session,
            None => self.initialize().await?,
        };
        (self.on_session)(&session);
        self.session.replace(Some(Rc::new(session)));
        Ok(())
    }

    /// `None` when the server belongs to the legacy era.
    async fn probe_era(&self) -> Result<Option<Session>> {
        let mut revision = Revision::NEWEST_MODERN;
        // One more probe after a refusal, even if it names the revision that was just refused.
        for _ in 0..2 {
            let call = Call::new("server/discover");
            let headers = call.headers(Some(revision));
            let exchange = self.exchange(&call, Some(revision), headers, None);
            let outcome = within(
                &*self.ports.clock,
                self.options.request_timeout,
                call.method,
                exchange,
            )
            .await;
            let verdict = match &outcome {
                Ok((result, _)) => version::judge(&ProbeAnswer::Result(result)),
                Err(Error::Rpc(error)) => version::judge(&ProbeAnswer::Error(200, error)),
                Err(Error::Transport(TransportError::Status(failure))) => {
                    version::judge(&probe_answer(failure))
                }
                Err(_) => Verdict::NoEvidence,
            };
            let error = || {
                outcome
                    .as_ref()
                    .err()
                    .cloned()
                    .map_or(Error::Closed, prefer_rpc)
            };
            match verdict {
                Verdict::Modern(revision, card) => {
                    return Ok(Some(Session {
                        revision,
                        id: None,
                        card: *card,
                        resumed: false,
                    }));
                }
                Verdict::Legacy => return Ok(None),
                Verdict::ProbeAgain(next) => revision = next,
                Verdict::Refused(error) => return Err(error.into()),
                Verdict::NoEvidence | Verdict::RefusedRequest => return Err(error()),
            }
        }
        Err(ProtocolError::NoCommonVersion(vec![revision.as_str().to_owned()]).into())
    }

    /// The legacy handshake. The session id is taken from here and from nowhere else.
    async fn initialize(&self) -> Result<Session> {
        let broken = |error: serde_json::Error| Error::InvalidOption(error.to_string());
        let params = Params::default()
            .with("protocolVersion", &Revision::NEWEST_LEGACY.as_str())
            .and_then(|params| params.with("capabilities", &self.identity.capabilities))
            .and_then(|params| params.with("clientInfo", &self.identity.info))
            .map_err(broken)?;
        let call = Call {
            method: "initialize",
            target: None,
            params,
        };
        let exchange = self.exchange(&call, None, HeaderMap::new(), None);
        let exchange = within(
            &*self.ports.clock,
            self.options.request_timeout,
            call.method,
            exchange,
        );
        let (result, id) = exchange.await.map_err(prefer_rpc)?;
        let result: InitializeResult =
            serde_json::from_str(result.get()).map_err(|error| ProtocolError::MalformedResult {
                method: "initialize",
                reason: without_content(&error),
            })?;
        let session = Session {
            revision: result.revision()?,
            id,
            card: result.card,
            resumed: false,
        };
        self.notify("notifications/initialized", &session).await?;
        Ok(session)
    }

    async fn notify(&self, method: &'static str, session: &Session) -> Result<()> {
        let message = Outgoing {
            body: request::notification(method),
            headers: session_headers(session),
            expects_answer: false,
        };
        let sent = async { Ok(self.transport.send(&message).await.map(drop)?) };
        within(
            &*self.ports.clock,
            self.options.request_timeout,
            method,
            sent,
        )
        .await
    }

    /// Replaces a session that the server refused. Requests that meet the refusal at the same time
    /// share one new agreement.
    async fn renew(self: &Rc<Self>, refused: &Rc<Session>) -> Result<()> {
        let is_current = self
            .session
            .borrow()
            .as_ref()
            .is_some_and(|current| Rc::ptr_eq(current, refused));
        if !is_current {
            return Ok(());
        }
        let running = self.renewal.borrow().clone();
        let renewal = running.unwrap_or_else(|| {
            let this = self.clone();
            let work = async move {
                let outcome = this.agree().await;
                this.renewal.take();
                outcome
            };
            let renewal = work.boxed_local().shared();
            self.renewal.replace(Some(renewal.clone()));
            renewal
        });
        renewal.await
    }

    /// The server has answered within the session, so it is as good as a fresh one.
    fn confirm(&self, session: &Rc<Session>) {
        let mut current = self.session.borrow_mut();
        if session.resumed
            && current
                .as_ref()
                .is_some_and(|current| Rc::ptr_eq(current, session))
        {
            *current = Some(Rc::new(Session {
                resumed: false,
                ..(**session).clone()
            }));
        }
    }

    /// Answers a request of the server by a POST of its own.
    fn answer(self: &Rc<Self>, id: &RequestId, method: &str) {
        let Some(session) = self.session() else {
            return;
        };
        // In the modern era servers send no requests and clients no responses (streamable-http).
        if session.revision.era() == Era::Modern {
            return;
        }
        let Ok(body) = request::answer_to_server(id, method) else {
            return;
        };
        let this = self.clone();
        self.ports.spawn.spawn(Box::pin(async move {
            let message = Outgoing {
                body,
                headers: session_headers(&session),
                expects_answer: false,
            };
            let sent = async { Ok(this.transport.send(&message).await.map(drop)?) };
            // If the answer is lost, the server's own request times out.
            let _ = within(
                &*this.ports.clock,
                this.options.request_timeout,
                "an answer",
                sent,
            )
            .await;
        }));
    }
}

/// Reads messages until the response to `id`.
async fn response(
    id: &RequestId,
    mut messages: Incoming,
    answers: Option<&Rc<Client>>,
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
            Message::Request { id, method } => {
                if let Some(client) = answers {
                    client.answer(&id, &method);
                }
            }
            Message::Notification { .. } => {}
        }
    }
    Err(TransportError::Ended.into())
}

fn session_headers(session: &Session) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(
        request::PROTOCOL_VERSION,
        HeaderValue::from_static(session.revision.as_str()),
    );
    if let Some(mut value) = session
        .id
        .as_deref()
        .and_then(|id| HeaderValue::from_str(id).ok())
    {
        value.set_sensitive(true);
        headers.insert(request::SESSION_ID, value);
    }
    headers
}

fn probe_answer(failure: &HttpFailure) -> ProbeAnswer<'_> {
    match &failure.rpc {
        Some(error) => ProbeAnswer::Error(failure.status, error),
        None => ProbeAnswer::Status(failure.status),
    }
}

/// Whether the error says that the session is gone. A JSON-RPC error of code 404 does not.
fn is_lost(error: &Error, session: &Session) -> bool {
    let Error::Transport(TransportError::Status(failure)) = error else {
        return false;
    };
    match session.revision.era() {
        Era::Legacy => session.id.is_some() && failure.status == 404,
        // A belief from storage fails loudly when the server has changed since.
        Era::Modern => {
            session.resumed
                && matches!(
                    version::judge(&probe_answer(failure)),
                    Verdict::Legacy | Verdict::ProbeAgain(_)
                )
        }
    }
}

/// The JSON-RPC error says more than the status it came with, except where the status asks for
/// authorization.
fn prefer_rpc(error: Error) -> Error {
    match error {
        Error::Transport(TransportError::Status(failure)) => match *failure {
            HttpFailure {
                status,
                rpc: Some(rpc),
                ..
            } if !matches!(status, 401 | 403) => Error::Rpc(rpc),
            failure => Error::Transport(TransportError::Status(Box::new(failure))),
        },
        error => error,
    }
}

/// `resultType` decides before the result is read (2026-07-28, index). Absent means complete.
fn require_complete(method: &'static str, result: &RawValue) -> Result<()> {
    let head: ResultHead<'_> = serde_json::from_str(result.get()).unwrap_or_default();
    match head.result_type.as_deref() {
        None | Some("complete") => Ok(()),
        Some(kind) => Err(ProtocolError::UnexpectedResultType {
            method,
            kind: clip(kind, 40),
        }
        .into()),
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("session", &self.session.borrow())
            .finish_non_exhaustive()
    }
}
