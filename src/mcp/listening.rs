//! The stream on which a server speaks unasked: which servers get one, and for how long.
//!
//! A standing stream occupies one of the Worker's few connections and keeps the object from
//! sleeping. So one is opened only when there is something to hear, only while the server is in
//! use, and only as many as there are [`Slots`](super::slots::Slots). The stream of HTTP+SSE, which
//! is the session itself, is let go in the same way; the next request opens a new one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{AbortHandle, Abortable, Either, Shared, select};
use futures::{FutureExt as _, StreamExt as _};
use serde_json::json;
use serde_json::value::RawValue;

use super::call::{CallOptions, LogLevel};
use super::client::{Client, How, Line};
use super::deadline::since;
use super::inbox::Notice;
use super::options::StreamPolicy;
use super::session::{Session, Wire};
use super::slots::{Holder, Slot};
use super::within::within;
use crate::ports::Timestamp;
use crate::protocol::bounded::raw_member;
use crate::protocol::request::{Additions, Call, Envelope, Params};
use crate::protocol::{Message, RequestId, RpcError};
use crate::transport::{Incoming, Outgoing, TransportError};
use crate::{Error, Result};

/// How long opening a stream may take, and how long a call waits for it.
const OPEN_LIMIT: Duration = Duration::from_secs(10);
const OPEN_WAIT: Duration = Duration::from_secs(2);
/// How long the stream of HTTP+SSE waits for a place.
const PLACE_WAIT: Duration = Duration::from_secs(2);
/// Streams in a row that brought nothing, after which a server is left alone until the next session.
const MAX_BARREN: u32 = 3;
/// A stream that was open for so long is none that is closed at once.
const LASTING: Duration = Duration::from_mins(1);
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
/// How often the pause doubles at most: to about half a minute.
const MAX_DOUBLINGS: u32 = 5;
/// The first pause before a stream is opened again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// What the host wants of a server, kept over sessions.
#[derive(Default)]
pub(crate) struct Wishes {
    resources: RefCell<BTreeSet<String>>,
    log_level: Cell<Option<LogLevel>>,
}

impl Wishes {
    /// Says whether anything changed.
    pub(crate) fn subscribe(&self, uri: &str) -> bool {
        self.resources.borrow_mut().insert(uri.to_owned())
    }

    /// Says whether anything changed.
    pub(crate) fn unsubscribe(&self, uri: &str) -> bool {
        self.resources.borrow_mut().remove(uri)
    }

    pub(crate) fn count(&self) -> usize {
        self.resources.borrow().len()
    }

    pub(crate) fn set_log_level(&self, level: LogLevel) {
        self.log_level.set(Some(level));
    }

    fn resources(&self) -> Vec<String> {
        self.resources.borrow().iter().cloned().collect()
    }
}

#[derive(Default)]
pub(crate) struct Listening {
    state: RefCell<State>,
    next: Cell<u64>,
    /// When loading the lists began last, and whether a tool was called since, which may have
    /// changed them.
    loaded: Cell<Option<Timestamp>>,
    called: Cell<bool>,
}

/// A stream that opens later than this after the lists were loaded opens after a silence.
const SILENCE: Timestamp = 5_000;

#[derive(Default)]
enum State {
    #[default]
    Off,
    /// The server offers none, or closes every one.
    NotOffered,
    On {
        number: u64,
        abort: AbortHandle,
        opened: Opened,
    },
}

/// Resolves when the stream is open, or is not going to be.
type Opened = Shared<oneshot::Receiver<()>>;

/// Why a stream is over.
enum Over {
    Idle,
    /// The server ended it, after saying something or nothing.
    Ended {
        was_barren: bool,
    },
    /// What came on it is that there is none.
    NotOffered,
}

/// A stream that is open.
struct Open {
    messages: Incoming,
    /// The request that it answers, in the modern era.
    id: Option<RequestId>,
}

impl Listening {
    /// Closes the stream.
    pub(crate) fn stop(&self) {
        if let State::On { abort, .. } = self.state.take() {
            abort.abort();
        }
    }

    /// Lists are about to be loaded.
    pub(super) fn loading(&self, now: Timestamp) {
        self.loaded.set(Some(now));
        self.called.set(false);
    }

    /// Lists have changed, and were not loaded.
    pub(super) fn missed(&self) {
        self.called.set(true);
    }

    /// Whether lists may have changed between their loading and the opening of a stream.
    fn may_have_missed(&self, now: Timestamp) -> bool {
        let loaded = self.loaded.get();
        loaded.is_some_and(|at| self.called.get() || now.saturating_sub(at) > SILENCE)
    }

    fn wait_no_more(&self) {
        if let State::On { opened, .. } = &mut *self.state.borrow_mut() {
            let (_, receiver) = oneshot::channel();
            *opened = receiver.shared();
        }
    }

    /// Whether a stream is open or being opened.
    pub(crate) fn is_on(&self) -> bool {
        matches!(*self.state.borrow(), State::On { .. })
    }

    fn settle(&self, number: u64, state: State) {
        let is_current =
            matches!(&*self.state.borrow(), State::On { number: found, .. } if *found == number);
        if is_current {
            self.state.replace(state);
        }
    }
}

impl Client {
    /// Opens the stream that a call may need. Waits for it where the server may ask the user
    /// something, since a question without a stream to come on is lost.
    pub(super) async fn listen_for(self: &Rc<Self>, call: &Call, session: &Rc<Session>) {
        if !matches!(call.method, "tools/call" | "prompts/get" | "resources/read") {
            return;
        }
        self.listening.called.set(true);
        let may_be_asked = !session.is_modern() && session.agreed.offers.any();
        if let Some(opened) = self.listen(session, may_be_asked)
            && may_be_asked
        {
            let open = async {
                let _ = opened.clone().await;
                Ok(())
            };
            let outcome = within(&*self.ports.clock, OPEN_WAIT, "a stream", open).await;
            if outcome.is_err() {
                // Nobody else waits for a server that lets us wait.
                self.listening.wait_no_more();
            }
        }
    }

    /// Opens the session's stream in the background, if there is anything to hear on it.
    pub(super) fn listen(
        self: &Rc<Self>,
        session: &Rc<Session>,
        may_be_asked: bool,
    ) -> Option<Opened> {
        if session.agreed.wire == Wire::Rpc {
            // Such a server says something only while it is called.
            return None;
        }
        let is_channel = session.agreed.wire == Wire::HttpSse;
        let wanted = match self.options.streams {
            StreamPolicy::Never => is_channel || may_be_asked,
            StreamPolicy::WhileInUse { .. } | StreamPolicy::Always => {
                is_channel || may_be_asked || self.expects_news(session)
            }
        };
        match &*self.listening.state.borrow() {
            State::On { opened, .. } => return Some(opened.clone()),
            State::NotOffered => return None,
            State::Off if !wanted => return None,
            State::Off => {}
        }
        let number = self.listening.next.replace(self.listening.next.get() + 1);
        let (abort, registration) = AbortHandle::new_pair();
        let (sender, opened) = oneshot::channel();
        let opened = opened.shared();
        self.listening.state.replace(State::On {
            number,
            abort,
            opened: opened.clone(),
        });
        let (this, session) = (Rc::downgrade(self), session.clone());
        let task = async move {
            let state = Self::hear(&this, &session, may_be_asked, sender).await;
            if let Some(this) = this.upgrade() {
                this.listening.settle(number, state);
                this.fall_asleep(&session);
            }
        };
        let task = Abortable::new(task, registration).map(drop);
        self.ports.spawn.spawn(task.boxed_local());
        Some(opened)
    }

    /// Whether the server has said that its lists may change, or something is subscribed to.
    fn expects_news(&self, session: &Session) -> bool {
        let card = &session.agreed.card;
        let changes = ["tools", "prompts", "resources"]
            .into_iter()
            .any(|kind| card.list_changes(kind));
        changes || self.wishes.count() > 0
    }

    /// Keeps a stream open for as long as the server is in use.
    async fn hear(
        this: &Weak<Self>,
        session: &Rc<Session>,
        may_be_asked: bool,
        opened: oneshot::Sender<()>,
    ) -> State {
        let is_channel = session.agreed.wire == Wire::HttpSse;
        let mut opened = Some(opened);
        let mut barren = 0;
        // Streams in a row that did not last, whatever they brought.
        let mut short = 0;
        // The channel of HTTP+SSE has its place already.
        let _slot = if is_channel {
            None
        } else {
            match Self::slot(this, may_be_asked).await {
                Some(slot) => Some(slot),
                None => return State::Off,
            }
        };
        let mut is_first = true;
        loop {
            let Some(client) = this.upgrade() else {
                return State::Off;
            };
            let stream = client.open_stream(session);
            let stream = within(&*client.ports.clock, OPEN_LIMIT, "a stream", stream).await;
            // Whatever came of it: a call waits for the first attempt only.
            drop(opened.take());
            match stream {
                Ok(Some(stream)) => {
                    if !is_first || client.listening.may_have_missed(client.ports.clock.now()) {
                        (client.hooks.on_notice)(Notice::Missed);
                    }
                    let clock = client.ports.clock.clone();
                    let begun = clock.now();
                    drop(client);
                    let over = Self::read(this, session, stream).await;
                    short = if since(begun, clock.now()) >= LASTING {
                        0
                    } else {
                        short + 1
                    };
                    match over {
                        Over::Idle => return State::Off,
                        Over::NotOffered => return State::NotOffered,
                        Over::Ended { was_barren: false } => barren = 0,
                        Over::Ended { .. } if since(begun, clock.now()) >= LASTING => barren = 0,
                        Over::Ended { was_barren: true } => barren += 1,
                    }
                }
                Ok(None) => return State::NotOffered,
                Err(error) if !error.is_transient() => return State::NotOffered,
                Err(_) => barren += 1,
            }
            if is_channel {
                return State::Off;
            }
            if barren >= MAX_BARREN {
                return State::NotOffered;
            }
            is_first = false;
            let Some(client) = this.upgrade() else {
                return State::Off;
            };
            if client.is_over_idle() {
                return State::Off;
            }
            let pause = FIRST_PAUSE * 2_u32.pow(barren.max(short).min(MAX_DOUBLINGS));
            client.ports.clock.sleep(pause).await;
        }
    }

    /// A place for a stream. Where a question may come on it, somebody else's idle stream makes way.
    async fn slot(this: &Weak<Self>, demand: bool) -> Option<Slot> {
        let client = this.upgrade()?;
        let holder = client.holder(|client| client.listening.stop());
        if demand {
            Some(client.slots.take(holder).await)
        } else {
            client.slots.try_take(holder).ok()
        }
    }

    /// A place for the stream that is the session of HTTP+SSE.
    ///
    /// Where every place is taken by a stream in use, one above their number: a user who thinks over
    /// a question must not keep other servers from being used.
    pub(super) async fn channel_slot(self: &Rc<Self>) -> Rc<Slot> {
        let holder = || {
            self.holder(|client| {
                if let Some(session) = client.session() {
                    client.fall_asleep(&session);
                }
                client.listening.stop();
            })
        };
        let free = async { Ok(self.slots.take(holder()).await) };
        let free = within(&*self.ports.clock, PLACE_WAIT, "a stream", free).await;
        Rc::new(free.unwrap_or_else(|_| self.slots.take_anyway(holder())))
    }

    fn holder(self: &Rc<Self>, let_go: fn(&Rc<Self>)) -> Holder {
        let (busy, gone) = (Rc::downgrade(self), Rc::downgrade(self));
        Holder {
            is_busy: Box::new(move || busy.upgrade().is_some_and(|client| client.is_in_use())),
            let_go: Box::new(move || {
                if let Some(client) = gone.upgrade() {
                    let_go(&client);
                }
            }),
        }
    }

    pub(super) fn is_over_idle(&self) -> bool {
        if self.is_in_use() {
            return false;
        }
        match self.options.streams {
            StreamPolicy::Always => false,
            StreamPolicy::Never => self.idle_for() > Duration::ZERO,
            StreamPolicy::WhileInUse { linger } => self.idle_for() >= linger,
        }
    }

    /// Reads a stream until it ends, or until the server is no longer in use.
    async fn read(this: &Weak<Self>, session: &Rc<Session>, mut stream: Open) -> Over {
        let mut was_barren = true;
        loop {
            let Some(client) = this.upgrade() else {
                return Over::Idle;
            };
            if client.is_over_idle() {
                return Over::Idle;
            }
            let linger = match client.options.streams {
                StreamPolicy::WhileInUse { linger } => linger,
                StreamPolicy::Never => Duration::from_secs(1),
                // Nothing to look for; any time does.
                StreamPolicy::Always => Duration::from_hours(1),
            };
            let rest = linger.saturating_sub(client.idle_for());
            let timer = client.ports.clock.sleep(rest.max(Duration::from_millis(1)));
            drop(client);
            let message = match select(stream.messages.next(), timer).await {
                Either::Left((message, _)) => message,
                Either::Right(_) => continue,
            };
            let (Some(Ok(message)), Some(client)) = (message, this.upgrade()) else {
                return Over::Ended { was_barren };
            };
            match message {
                // Servers end a subscription by its result or by this (2026-07-28, subscriptions and
                // cancellation).
                Message::Notification { method, params }
                    if method == "notifications/cancelled"
                        && stream.id.is_some()
                        && cancelled(params.as_deref()) == stream.id =>
                {
                    return Over::Ended { was_barren };
                }
                // Says that it listens, and no more.
                Message::Notification { method, .. } if method == ACKNOWLEDGED => continue,
                Message::Notification { method, params } => {
                    client.notified(&method, params.as_deref());
                }
                Message::Request { id, method, params } => {
                    if let Ok(line) = Line::of(session) {
                        client.asked(&line, id, method, params);
                    }
                }
                Message::Response {
                    outcome: Err(error),
                    ..
                } if session.is_modern() && error.code == RpcError::METHOD_NOT_FOUND => {
                    return Over::NotOffered;
                }
                Message::Response { .. } if session.is_modern() => {
                    return Over::Ended { was_barren };
                }
                Message::Response { .. } => {}
            }
            was_barren = false;
        }
    }

    async fn open_stream(&self, session: &Session) -> Result<Option<Open>> {
        let line = Line::of(session)?;
        if !line.is_modern {
            let messages = line.transport.listen(line.headers).await?;
            return Ok(messages.map(|messages| Open { messages, id: None }));
        }
        let broken = |error: serde_json::Error| Error::InvalidOption(error.to_string());
        let mut filter = serde_json::Map::new();
        for (kind, flag) in [
            ("tools", "toolsListChanged"),
            ("prompts", "promptsListChanged"),
            ("resources", "resourcesListChanged"),
        ] {
            if session.agreed.card.list_changes(kind) {
                filter.insert(flag.into(), json!(true));
            }
        }
        let resources = self.wishes.resources();
        if !resources.is_empty() {
            filter.insert("resourceSubscriptions".into(), json!(resources));
        }
        let call = Call {
            method: "subscriptions/listen",
            target: None,
            params: Params::default()
                .with("notifications", &filter)
                .map_err(broken)?,
        };
        let id = RequestId::Number(self.next_id());
        let capabilities = self.offers().declare(true, false);
        let add = Additions {
            envelope: Some(Envelope {
                protocol_version: session.agreed.revision.as_str(),
                client_info: &self.identity.info,
                client_capabilities: &capabilities,
            }),
            ..Additions::default()
        };
        let mut headers = line.headers;
        headers.extend(call.headers(Some(session.agreed.revision)));
        let message = Outgoing {
            body: call.body(&id, &add).map_err(broken)?,
            headers,
            id: Some(id.clone()),
            resumable: false,
        };
        match line.transport.send(&message).await {
            Ok(answer) => Ok(Some(Open {
                messages: answer.messages,
                id: Some(id),
            })),
            Err(TransportError::Status(failure))
                if is_not_offered(failure.status, failure.rpc.as_ref()) =>
            {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Repeats to a new legacy session what the host wanted of the one before.
    pub(super) fn wish_again(self: &Rc<Self>, session: &Rc<Session>) {
        if session.agreed.wire == Wire::HttpSse {
            // Nobody else reads the stream that everything comes on.
            self.listen(session, false);
        }
        let resources = self.wishes.resources();
        let level = self.wishes.log_level.get();
        if session.is_modern() || resources.is_empty() && level.is_none() {
            return;
        }
        let this = self.clone();
        self.ports.spawn.spawn(Box::pin(async move {
            // What fails here is missed by the host as it would be without a new session.
            if let Some(level) = level {
                let _ = this.set_log_level(level).await;
            }
            for uri in resources {
                let _ = this.subscribe(&uri, true).await;
            }
        }));
    }

    /// Sends `logging/setLevel`.
    pub(crate) async fn set_log_level(self: &Rc<Self>, level: LogLevel) -> Result<()> {
        self.send("logging/setLevel", "level", level.as_str()).await
    }

    /// Sends `resources/subscribe` or `resources/unsubscribe`; in the modern era opens the stream
    /// anew, with another filter.
    pub(crate) async fn subscribe(self: &Rc<Self>, uri: &str, on: bool) -> Result<()> {
        let session = self.session().ok_or(Error::Closed)?;
        if session.is_modern() {
            self.listening.stop();
            let opened = self.listen(&session, on);
            if let Some(opened) = opened {
                let opened = async {
                    let _ = opened.await;
                    Ok(())
                };
                let _ = within(&*self.ports.clock, OPEN_LIMIT, "a stream", opened).await;
            }
            return if !on || self.listening.is_on() {
                Ok(())
            } else {
                Err(Error::InvalidOption(
                    "the server offers no stream to hear of changes on".into(),
                ))
            };
        }
        let method = if on {
            "resources/subscribe"
        } else {
            "resources/unsubscribe"
        };
        self.send(method, "uri", uri).await?;
        if let Some(session) = self.session() {
            self.listen(&session, on);
        }
        Ok(())
    }

    async fn send(
        self: &Rc<Self>,
        method: &'static str,
        name: &'static str,
        value: &str,
    ) -> Result<()> {
        let params = Params::default().with(name, &value);
        let call = Call {
            method,
            target: None,
            params: params.map_err(|error| Error::InvalidOption(error.to_string()))?,
        };
        let options = CallOptions::default();
        self.request(&call, How::from(&options)).await.map(drop)
    }
}

/// Which request a `notifications/cancelled` is about.
fn cancelled(params: Option<&RawValue>) -> Option<RequestId> {
    let id = raw_member(params?, "requestId")?;
    serde_json::from_str(id.get()).ok()
}

fn is_not_offered(status: u16, rpc: Option<&RpcError>) -> bool {
    matches!(status, 400 | 404..=406 | 415 | 501)
        || rpc.is_some_and(|rpc| rpc.code == RpcError::METHOD_NOT_FOUND)
}
