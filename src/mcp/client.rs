//! The protocol client of one server: requests within a session, and starting over when the server
//! has forgotten the session.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::channel::oneshot;
use futures::future::{Either, Shared, select};
use http::HeaderMap;
use serde_json::value::RawValue;

use super::call::CallOptions;
use super::deadline::Life;
use super::dial::Dial;
use super::handlers::Handlers;
use super::handshake::{Hint, agree};
use super::inbox::{Inbox, Notice};
use super::joined::Running;
use super::listening::{Listening, Wishes};
use super::offers::Offers;
use super::session::{Agreement, Identity, Session, Wire};
use super::slots::Slots;
use super::within::within;
use super::{McpClientOptions, ServerId};
use crate::ports::{Ports, Timestamp};
use crate::protocol::request::Call;
use crate::protocol::version;
use crate::protocol::{Revision, RpcError};
use crate::transport::{HttpFailure, Transport, TransportError, TransportKind};
use crate::{Error, Result};

/// How long telling a server about the end of a session may take.
const END_SESSION_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct Client {
    pub(super) server: ServerId,
    pub(super) dial: Dial,
    pub(super) kind: TransportKind,
    /// The revisions to offer.
    pub(super) revisions: Rc<[Revision]>,
    pub(super) ports: Ports,
    pub(super) identity: Rc<Identity>,
    pub(super) options: Rc<McpClientOptions>,
    pub(super) handlers: Rc<Handlers>,
    pub(super) slots: Rc<Slots>,
    pub(super) wishes: Rc<Wishes>,
    pub(super) hooks: ClientHooks,
    pub(super) inbox: Inbox,
    pub(super) listening: Listening,
    /// What was declared before the last wake; it counts until the host configures handlers.
    seed: Offers,
    session: RefCell<Option<Rc<Session>>>,
    renewal: RefCell<Option<Running>>,
    /// Resolves when the client is ended; dropping `open` ends it.
    pub(super) ended: Shared<oneshot::Receiver<()>>,
    open: RefCell<Option<oneshot::Sender<()>>>,
    next_id: Cell<i64>,
    in_use: Cell<usize>,
    last_use: Cell<Timestamp>,
}

/// Whom a client tells.
pub(crate) struct ClientHooks {
    /// Told about every new agreement.
    pub(crate) on_session: Box<dyn Fn(&Agreement)>,
    /// Told about what servers say beyond responses.
    pub(crate) on_notice: Box<dyn Fn(Notice)>,
}

/// What a client is made of.
pub(crate) struct ClientParts {
    pub(crate) server: ServerId,
    pub(crate) dial: Dial,
    pub(crate) kind: TransportKind,
    pub(crate) revisions: Rc<[Revision]>,
    pub(crate) ports: Ports,
    pub(crate) identity: Rc<Identity>,
    pub(crate) options: Rc<McpClientOptions>,
    pub(crate) handlers: Rc<Handlers>,
    pub(crate) slots: Rc<Slots>,
    pub(crate) wishes: Rc<Wishes>,
    pub(crate) seed: Offers,
    pub(crate) hooks: ClientHooks,
}

/// The way that messages take within one agreement.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) transport: Rc<dyn Transport>,
    /// The headers of every message.
    pub(super) headers: HeaderMap,
    pub(super) offers: Offers,
    pub(super) is_modern: bool,
}

impl Line {
    /// Before there is an agreement.
    pub(super) fn bare(transport: &Rc<dyn Transport>, is_modern: bool) -> Self {
        Self {
            transport: transport.clone(),
            headers: HeaderMap::new(),
            offers: Offers::default(),
            is_modern,
        }
    }

    pub(super) fn of(session: &Session) -> Result<Self, TransportError> {
        Ok(Self {
            transport: session.transport()?.clone(),
            headers: session.agreed.headers(),
            offers: session.agreed.offers,
            is_modern: session.is_modern(),
        })
    }
}

/// How a request is made.
pub(crate) struct How<'a> {
    pub(crate) options: &'a CallOptions,
    /// Whether the answer may be a task (2026-07-28, tasks extension).
    pub(crate) tasks: bool,
    /// Headers that mirror arguments (2026-07-28, `x-mcp-header`).
    pub(crate) mirrored: HeaderMap,
    /// Whether nobody asked for it: then it does not count as a use of the server.
    pub(crate) in_background: bool,
}

impl<'a> From<&'a CallOptions> for How<'a> {
    fn from(options: &'a CallOptions) -> Self {
        Self {
            options,
            tasks: false,
            in_background: false,
            mirrored: HeaderMap::new(),
        }
    }
}

/// While it lives, the client's streams are in use.
pub(super) struct InUse {
    client: Rc<Client>,
    /// Whether the streams are kept for a while after it.
    counts: bool,
}

impl Drop for InUse {
    fn drop(&mut self) {
        let client = &self.client;
        client.in_use.set(client.in_use.get() - 1);
        if self.counts {
            client.last_use.set(client.ports.clock.now());
        }
        if client.in_use.get() == 0 {
            client.slots.look_again();
        }
    }
}

impl Client {
    pub(crate) fn new(parts: ClientParts) -> Rc<Self> {
        let ClientParts {
            server,
            dial,
            kind,
            revisions,
            ports,
            identity,
            options,
            handlers,
            slots,
            wishes,
            seed,
            hooks,
        } = parts;
        let (open, ended) = oneshot::channel();
        Rc::new(Self {
            server,
            dial,
            kind,
            revisions,
            last_use: Cell::new(ports.clock.now()),
            ports,
            identity,
            options,
            handlers,
            slots,
            wishes,
            hooks,
            inbox: Inbox::default(),
            listening: Listening::default(),
            seed,
            session: RefCell::default(),
            renewal: RefCell::default(),
            ended: ended.shared(),
            open: RefCell::new(Some(open)),
            next_id: Cell::new(first_id()),
            in_use: Cell::new(0),
        })
    }

    /// Takes up a stored agreement, which sends nothing, or makes a new one.
    pub(crate) async fn open(self: &Rc<Self>, stored: Option<Agreement>, hint: Hint) -> Result<()> {
        let _use = self.begin_use();
        match stored {
            Some(agreed) => {
                let session = Session::resumed(agreed, self.dial.streamable_http()?);
                self.session.replace(Some(Rc::new(session)));
            }
            None => self.adopt(agree(self, hint).await?),
        }
        Ok(())
    }

    /// The current session.
    pub(crate) fn session(&self) -> Option<Rc<Session>> {
        self.session.borrow().clone()
    }

    /// What is declared to servers now.
    pub(super) fn offers(&self) -> Offers {
        if self.handlers.is_configured() {
            self.handlers.offers()
        } else {
            self.seed
        }
    }

    pub(super) fn begin_use(self: &Rc<Self>) -> InUse {
        self.begin(true)
    }

    fn begin(self: &Rc<Self>, counts: bool) -> InUse {
        self.in_use.set(self.in_use.get() + 1);
        InUse {
            client: self.clone(),
            counts,
        }
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.in_use.get() > 0
    }

    /// How long nobody has used the client. Zero while somebody does.
    pub(super) fn idle_for(&self) -> Duration {
        if self.is_in_use() {
            return Duration::ZERO;
        }
        let now = self.ports.clock.now();
        Duration::from_millis(now.saturating_sub(self.last_use.get()))
    }

    pub(super) fn next_id(&self) -> i64 {
        self.next_id.replace(self.next_id.get() + 1)
    }

    /// Sends a request and returns its result, an object.
    ///
    /// When the server has forgotten the session, a new one is agreed on and the request, which
    /// was not accepted, is sent once more (2025-11-25, "Session Management"). Progress and open
    /// questions prolong the request timeout, up to the ceiling. It all ends when the client does.
    pub(crate) async fn request(
        self: &Rc<Self>,
        call: &Call,
        how: How<'_>,
    ) -> Result<Box<RawValue>> {
        let _use = self.begin(!how.in_background);
        let traced = how.options.traced();
        let how = How {
            options: traced.as_ref().unwrap_or(how.options),
            ..how
        };
        let limit = how.options.timeout.unwrap_or(self.options.request_timeout);
        let ceiling = how
            .options
            .max_time
            .unwrap_or(self.options.max_request_time);
        let clock = &*self.ports.clock;
        let life = Rc::new(Life::new(clock, self.inbox.questions.clone()));
        let work = life.keep(
            clock,
            limit,
            ceiling,
            call.method,
            self.attempts(call, &how, &life),
        );
        match select(std::pin::pin!(work), self.ended.clone()).await {
            Either::Left((outcome, _)) => outcome.map_err(prefer_rpc),
            Either::Right(_) => Err(Error::Closed),
        }
    }

    async fn attempts(
        self: &Rc<Self>,
        call: &Call,
        how: &How<'_>,
        life: &Rc<Life>,
    ) -> Result<Box<RawValue>> {
        let session = self.session().ok_or(Error::Closed)?;
        let error = match self.within_session(call, how, &session, life).await {
            Ok(result) => {
                session.confirm();
                return Ok(result);
            }
            Err(error) => error,
        };
        let doubt = doubt(&error, &session);
        if doubt == Doubt::None {
            return Err(error);
        }
        self.renew(&session, &error).await?;
        let fresh = self.session().ok_or(Error::Closed)?;
        // Where the refusal may as well be the tool's own answer, only another era is a reason to
        // send the request again: the tool may have run.
        if doubt == Doubt::Era && fresh.is_modern() == session.is_modern() {
            return Err(error);
        }
        let outcome = self.within_session(call, how, &fresh, life).await;
        if outcome.is_ok() {
            fresh.prove();
        }
        outcome
    }

    /// Ends everything: requests under way fail with [`Error::Closed`], and a legacy server is told
    /// in the background that the session is over.
    pub(crate) fn end(&self) {
        drop(self.open.take());
        if let Some(renewal) = self.renewal.take() {
            renewal.abort();
        }
        self.inbox.close();
        self.listening.stop();
        if let Some(session) = self.session.take() {
            self.end_at_server(&session);
        }
    }

    /// Lets go of the session without telling the server that it is over.
    pub(super) fn leave(&self) {
        self.listening.stop();
        drop(self.session.take());
    }

    pub(super) fn is_ended(&self) -> bool {
        self.open.borrow().is_none()
    }

    /// Tells a legacy server in the background that a session is over.
    pub(super) fn end_at_server(&self, session: &Session) {
        if session.agreed.id.is_none() {
            return;
        }
        let Ok(transport) = session.transport().cloned() else {
            return;
        };
        let clock = self.ports.clock.clone();
        let headers = session.agreed.headers();
        // A server that cannot be told forgets the session by itself; nobody waits for it.
        self.ports.spawn.spawn(Box::pin(async move {
            let ended = async { Ok(transport.end_session(headers).await?) };
            let _ = within(&*clock, END_SESSION_TIMEOUT, "ending the session", ended).await;
        }));
    }

    /// Replaces a session that the server refused, or that was let go. Requests that meet the
    /// refusal at the same time share one new agreement.
    async fn renew(self: &Rc<Self>, refused: &Rc<Session>, error: &Error) -> Result<()> {
        let refused = match self.session() {
            // Somebody has replaced it already, and not by one whose stream was let go.
            Some(current) if !Rc::ptr_eq(&current, refused) => {
                if current.transport().is_ok() {
                    return Ok(());
                }
                current
            }
            _ => refused.clone(),
        };
        if refused.agreed.wire == Wire::HttpSse {
            // Its stream and its place are given back first: the next stream needs them.
            self.listening.stop();
            self.fall_asleep(&refused);
            refused.give_place_back();
        }
        let is_replacement = refused.agreed.id.is_some() && refused.transport().is_ok();
        let hint = match refused.agreed.wire {
            Wire::HttpSse => Hint::HttpSse,
            // A server that has lost a session is hardly of another era since.
            Wire::StreamableHttp | Wire::Rpc
                if !refused.is_modern() && !refuses_revision(error) =>
            {
                Hint::Legacy
            }
            Wire::StreamableHttp | Wire::Rpc => Hint::Nothing,
        };
        let running = self.renewal.borrow().as_ref().map(Running::join);
        let renewal = running.unwrap_or_else(|| {
            let this = self.clone();
            let running = Running::start(&*self.ports.spawn, async move {
                let _use = this.begin_use();
                let outcome = agree(&this, hint).await;
                this.renewal.take();
                outcome.map(|session| this.adopt(session.replacing(is_replacement)))
            });
            let renewal = running.join();
            self.renewal.replace(Some(running));
            renewal
        });
        renewal.await
    }

    fn adopt(self: &Rc<Self>, session: Session) {
        if self.is_ended() {
            self.end_at_server(&session);
            return;
        }
        (self.hooks.on_session)(&session.agreed);
        let session = Rc::new(session);
        self.session.replace(Some(session.clone()));
        // The new session has streams of its own.
        self.listening.stop();
        self.wish_again(&session);
    }

    /// Lets the stream of an HTTP+SSE session go. The next request agrees on a new one.
    pub(super) fn fall_asleep(&self, session: &Rc<Session>) {
        if self.is_current(session) && session.agreed.wire == Wire::HttpSse {
            let asleep = Rc::new(session.asleep());
            self.session.replace(Some(asleep));
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

/// Whether the server refuses the revision, which a server of another era does.
fn refuses_revision(error: &Error) -> bool {
    let rpc = match error {
        Error::Rpc(rpc) => Some(rpc),
        Error::Transport(TransportError::Status(failure)) => failure.rpc.as_ref(),
        _ => None,
    };
    rpc.is_some_and(|rpc| rpc.code == RpcError::UNSUPPORTED_VERSION)
}

fn doubt(error: &Error, session: &Session) -> Doubt {
    let failure = match error {
        Error::Transport(TransportError::Closed) => return Doubt::Agreement,
        Error::Transport(TransportError::Status(failure)) => Some(&**failure),
        _ => None,
    };
    let (status, rpc) = match (error, failure) {
        (Error::Rpc(rpc), _) => (200, Some(rpc)),
        (_, Some(failure)) => (failure.status, failure.rpc.as_ref()),
        _ => return Doubt::None,
    };
    if refuses_revision(error) {
        return Doubt::Agreement;
    }
    // Some servers say 401 for a session that they have forgotten. A demand for authorization
    // comes with a challenge (RFC 9110 §15.5.2); without one, a new session is worth one try.
    let is_bare_401 = status == 401 && failure.is_some_and(|failure| failure.challenge.is_none());
    if is_bare_401 && session.agreed.id.is_some() && !session.is_replacement() {
        return Doubt::Agreement;
    }
    if status < 300 || !version::is_evidence(status) {
        return Doubt::None;
    }
    if session.is_modern() {
        // No modern server answers with one of the codes that have no meaning there.
        let is_foreign = |rpc: &RpcError| (-32019..=-32000).contains(&rpc.code);
        let is_legacy = rpc.is_none_or(is_foreign) || session.is_resumed();
        return if is_legacy { Doubt::Era } else { Doubt::None };
    }
    let is_about_params = rpc.is_some_and(|rpc| matches!(rpc.code, -32700 | -32603..=-32601));
    if session.agreed.wire == Wire::HttpSse && !is_about_params {
        // The message was not taken, so the stream it would be answered on is no longer known.
        return Doubt::Agreement;
    }
    // Servers should say 404 (2025-11-25, "Session Management"); some say 400. A bad request gets
    // that too, so it costs one new session at most. A JSON-RPC error of code 404 says nothing.
    let is_odd = status == 400 && !is_about_params && !session.is_replacement();
    if session.agreed.id.is_some()
        && (status == 404 || is_odd || session.is_resumed() && !is_about_params)
    {
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

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("session", &self.session.borrow())
            .finish_non_exhaustive()
    }
}
