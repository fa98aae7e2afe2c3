//! One live server: its phase, its client and its catalogue.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::{Rc, Weak};
use std::time::Duration;

use futures::FutureExt as _;

use super::catalog::{Catalog, ListKind, Loader};
use super::client::{Client, ClientHooks, ClientParts};
use super::dial::{Dial, Place};
use super::document::document_beside;
use super::event::McpEvent;
use super::handlers::Handlers;
use super::handshake::Hint;
use super::inbox::Notice;
use super::joined::{Joined, Running};
use super::listening::Wishes;
use super::lists::Lists;
use super::permission::Tokens;
use super::refresh::Refresh;
use super::server::{StoredServer, change};
use super::session::{Agreement, Identity, Session};
use super::sign_in::Operation;
use super::slots::Slots;
use super::state::{Event, Phase};
use super::{ConnectionState, LastError, McpClientOptions, ServerId};
use crate::oauth::{Authorizer, OAuthProvider, ProviderContext};
use crate::ports::Ports;
use crate::vault::Vault;
use crate::{Error, Result};

/// What every connection of a manager has in common.
pub(crate) struct Common {
    pub(crate) ports: Ports,
    pub(crate) identity: Rc<Identity>,
    pub(crate) options: Rc<McpClientOptions>,
    pub(crate) handlers: Rc<Handlers>,
    /// The places for standing streams.
    pub(crate) slots: Rc<Slots>,
    /// Called after every change of a phase or a catalogue.
    pub(crate) changed: Box<dyn Fn()>,
    /// Called with what servers tell.
    pub(crate) event: Box<dyn Fn(&McpEvent)>,
    /// Providers that the host has given with a registration.
    pub(crate) providers: RefCell<HashMap<ServerId, Rc<dyn OAuthProvider>>>,
    /// Who gets permission, for each server where somebody has asked.
    pub(crate) authorizers: RefCell<HashMap<ServerId, Rc<Authorizer>>>,
    /// What the keys of sign-ins begin with.
    pub(crate) namespace: String,
    /// Encrypts headers, where there is a key.
    pub(crate) vault: Option<Rc<Vault>>,
}

impl Common {
    /// For which server a provider is made.
    pub(crate) fn provider_context(&self, server: &StoredServer) -> ProviderContext {
        let callback_url = Some(server.callback_url.clone()).filter(|url| !url.is_empty());
        let oauth = server.options.oauth.clone().unwrap_or_default();
        let document = self.options.client_metadata_url.clone();
        let document = oauth.client_metadata_url.or(document);
        ProviderContext {
            keys: self.ports.keys.clone(),
            namespace: self.namespace.clone(),
            server_id: server.id.to_string(),
            server_url: server.url.clone(),
            client_metadata_url: document
                .or_else(|| callback_url.as_deref().and_then(document_beside)),
            callback_url,
            client_id: server.client_id.clone(),
            client_name: self.identity.info.name.clone(),
            settings: oauth.settings,
            grant: oauth.grant.into(),
        }
    }
}

pub(crate) struct Connection {
    server: RefCell<Rc<StoredServer>>,
    id: ServerId,
    pub(super) common: Rc<Common>,
    pub(super) phase: RefCell<Phase>,
    client: RefCell<Option<Rc<Client>>>,
    pub(super) lists: Lists,
    /// How often connecting was put off, while another attempt is planned.
    pub(super) plan: Cell<Option<u32>>,
    /// Why the last discovery failed, if it did.
    discovery_error: RefCell<Option<Error>>,
    /// The last failure of any kind, and how many there were in a row.
    last_error: RefCell<Option<LastError>>,
    failures: Cell<u32>,
    /// What the host wants of the server, whatever becomes of sessions.
    wishes: Rc<Wishes>,
    pub(super) refresh: Refresh,
    /// Grows with every attempt to connect and with closing. Work whose number is no longer the
    /// current one must not touch the connection any more.
    attempt: Cell<u64>,
    connecting: RefCell<Option<Running>>,
    discovering: RefCell<Option<Running>>,
    /// Whether the attempt under way is not one that somebody has asked for.
    pub(super) is_unasked: Cell<bool>,
    /// A sign-in that is being begun, and one that is being ended.
    pub(super) signing_in: RefCell<Option<Running>>,
    pub(super) exchanging: RefCell<Option<Running>>,
}

impl Connection {
    /// A connection that is about to be opened, or that waits for its user to sign in.
    pub(crate) fn new(server: StoredServer, common: Rc<Common>) -> Rc<Self> {
        Self::in_phase(Phase::Connecting { again: false }, server, common)
    }

    /// A connection in another phase, unless it waits for its user to sign in.
    pub(crate) fn in_phase(phase: Phase, server: StoredServer, common: Rc<Common>) -> Rc<Self> {
        let phase = if server.awaits_sign_in() {
            Phase::Authenticating { usable: false }
        } else {
            phase
        };
        Rc::new(Self {
            id: server.id.clone(),
            server: RefCell::new(Rc::new(server)),
            common,
            phase: RefCell::new(phase),
            client: RefCell::default(),
            lists: Lists::default(),
            plan: Cell::new(None),
            discovery_error: RefCell::default(),
            last_error: RefCell::default(),
            failures: Cell::new(0),
            wishes: Rc::default(),
            refresh: Refresh::default(),
            attempt: Cell::new(0),
            connecting: RefCell::default(),
            discovering: RefCell::default(),
            is_unasked: Cell::new(false),
            signing_in: RefCell::default(),
            exchanging: RefCell::default(),
        })
    }

    pub(crate) fn id(&self) -> &ServerId {
        &self.id
    }

    pub(crate) fn server(&self) -> Rc<StoredServer> {
        self.server.borrow().clone()
    }

    /// Takes over what was said anew about the server, when the connection itself does not change.
    pub(crate) fn update(&self, server: StoredServer) {
        self.server.replace(Rc::new(server));
    }

    pub(crate) fn state(&self) -> ConnectionState {
        self.phase.borrow().state()
    }

    /// Whether the connection is open.
    pub(super) fn is_open(&self) -> bool {
        self.phase.borrow().is_open()
    }

    /// Whether it has not been opened since the object woke, and the first request opens it.
    pub(super) fn opens_on_use(&self) -> bool {
        matches!(&*self.phase.borrow(), Phase::Stored { usable: true })
    }

    /// Whether requests can be sent.
    pub(super) fn is_usable(&self) -> bool {
        self.phase.borrow().is_usable()
    }

    /// Whether it is not to be used any more.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.phase.borrow().error(), Some(Error::Closed))
    }

    /// The number of the current attempt.
    pub(super) fn attempt(&self) -> u64 {
        self.attempt.get()
    }

    pub(super) fn client(&self) -> Option<Rc<Client>> {
        self.client.borrow().clone()
    }

    pub(crate) fn error(&self) -> Option<Error> {
        let failed = self.phase.borrow().error().cloned();
        failed.or_else(|| self.discovery_error.borrow().clone())
    }

    pub(crate) fn last_error(&self) -> Option<LastError> {
        self.last_error.borrow().clone()
    }

    /// Tells whoever listens what has happened.
    pub(super) fn tell(&self, event: impl FnOnce(ServerId) -> McpEvent) {
        (self.common.event)(&event(self.id.clone()));
    }

    /// Keeps account of a failure.
    pub(crate) fn failed(&self, error: &Error) {
        if matches!(error, Error::Closed | Error::SignInRequired { .. }) {
            return;
        }
        let attempts = self.failures.get().saturating_add(1);
        self.failures.set(attempts);
        self.last_error.replace(Some(LastError {
            error: error.clone(),
            at: self.common.ports.clock.now(),
            attempts,
        }));
    }

    /// The server does not let us in any more. The session stays: it may be good again once there is
    /// permission.
    pub(crate) fn lock_out(&self, error: &Error) {
        if self.is_open() {
            if let Some(client) = &*self.client.borrow() {
                client.listening.stop();
            }
            self.apply(self.attempt.get(), Event::Failed(error.clone()));
        }
    }

    /// No further attempt is planned.
    pub(super) fn give_up(&self) {
        let usable = self.is_listed();
        self.apply(self.attempt.get(), Event::GivenUp { usable });
    }

    /// Something has worked: the next failure is the first again.
    pub(crate) fn succeeded(&self) {
        self.failures.set(0);
    }

    pub(crate) fn is_listening(&self) -> bool {
        let client = self.client.borrow();
        client
            .as_ref()
            .is_some_and(|client| client.listening.is_on())
    }

    pub(crate) fn wishes(&self) -> &Rc<Wishes> {
        &self.wishes
    }

    pub(crate) fn session(&self) -> Option<Rc<Session>> {
        self.client.borrow().as_ref()?.session()
    }

    /// Opens the connection, or joins the attempt that is under way.
    pub(crate) fn connect(self: &Rc<Self>) -> Joined {
        if let Some(running) = &*self.connecting.borrow() {
            return running.join();
        }
        let exchange = self.exchanging.borrow().as_ref().map(Running::join);
        if let Some(exchange) = exchange {
            // The user has just come back: what comes of that decides.
            let this = self.clone();
            let after = async move {
                exchange.await?;
                if this.is_usable() {
                    return Ok(());
                }
                this.connect().await
            };
            return after.boxed_local().shared();
        }
        self.connect_anew()
    }

    /// Opens the connection, whatever is under way.
    pub(super) fn connect_anew(self: &Rc<Self>) -> Joined {
        let attempt = self.supersede();
        self.discovery_error.take();
        self.apply(attempt, Event::Connect);
        self.tell(|server_id| McpEvent::Connecting { server_id });
        let this = self.clone();
        // Closing aborts this, so it never finishes for an attempt that is over.
        let running = Running::start(&*self.common.ports.spawn, async move {
            let mut outcome = this.open(attempt).await;
            if let Err(error) = outcome {
                outcome = Err(this.seek_permission(error, Operation::CONNECT).await);
            }
            this.connecting.take();
            this.is_unasked.set(false);
            match outcome {
                Ok(client) => {
                    if let Some(session) = client.session() {
                        let agreed = &session.agreed;
                        this.tell(|server_id| McpEvent::Connected {
                            server_id,
                            transport: agreed.wire.kind(),
                            revision: agreed.revision,
                        });
                    }
                    this.client.replace(Some(client));
                    this.let_in();
                    this.succeeded();
                    this.forgive(Operation::CONNECT);
                    this.apply(attempt, Event::Opened);
                    Ok(())
                }
                // The phase says so already.
                Err(error @ Error::SignInRequired { .. }) => {
                    this.tell(|server_id| McpEvent::SignInRequired { server_id });
                    Err(error)
                }
                Err(error) => {
                    this.failed(&error);
                    this.apply(attempt, Event::Failed(error.clone()));
                    this.tell(|server_id| McpEvent::ConnectFailed {
                        server_id,
                        error: error.clone(),
                    });
                    Err(error)
                }
            }
        });
        let work = running.join();
        self.connecting.replace(Some(running));
        work
    }

    /// Loads the catalogue, or joins the load that is under way.
    ///
    /// Needs an open connection. A failure leaves it open and the catalogue as it was.
    pub(crate) fn discover(self: &Rc<Self>, timeout: Duration) -> Result<Joined> {
        if let Some(running) = &*self.discovering.borrow() {
            return Ok(running.join());
        }
        let client = self.open_client()?;
        let attempt = self.attempt.get();
        self.apply(attempt, Event::Discover);
        let this = self.clone();
        let running = Running::start(&*self.common.ports.spawn, async move {
            // Sooner than the lists, so that no change falls between; but not within a session that
            // the server may have forgotten.
            if let Some(session) = client.session().filter(|session| !session.is_resumed()) {
                client.listen(&session, false);
            }
            let mut outcome = this.load(&client, timeout, &ListKind::ALL, false).await;
            if let Err(error) = outcome {
                outcome = Err(this.seek_permission(error, Operation::LIST).await);
            }
            this.discovering.take();
            match outcome {
                Ok(catalog) => {
                    this.take_over(catalog, &ListKind::ALL);
                    this.discovery_error.take();
                    this.succeeded();
                    this.forgive(Operation::LIST);
                    if let Some(session) = client.session() {
                        client.listen(&session, false);
                    }
                    this.apply(attempt, Event::Discovered);
                    let counts = this.lists.counts();
                    this.tell(|server_id| McpEvent::Discovered { server_id, counts });
                    if this.asks_for_more() {
                        this.apply(attempt, Event::SignIn { usable: true });
                    }
                    Ok(())
                }
                Err(error @ Error::SignInRequired { .. }) => {
                    this.tell(|server_id| McpEvent::SignInRequired { server_id });
                    Err(error)
                }
                Err(error) => {
                    // A session from storage that has not once been answered was never a connection.
                    let is_unconfirmed =
                        client.session().is_some_and(|session| session.is_resumed());
                    let event = if is_unconfirmed {
                        Event::Failed(error.clone())
                    } else {
                        Event::DiscoveryFailed
                    };
                    this.discovery_error.replace(Some(error.clone()));
                    this.failed(&error);
                    this.apply(attempt, event);
                    this.tell(|server_id| McpEvent::DiscoveryFailed {
                        server_id,
                        error: error.clone(),
                    });
                    Err(error)
                }
            }
        });
        let work = running.join();
        self.discovering.replace(Some(running));
        Ok(work)
    }

    pub(super) async fn load(
        &self,
        client: &Rc<Client>,
        limit: Duration,
        kinds: &[ListKind],
        in_background: bool,
    ) -> Result<Catalog> {
        let Common { ports, options, .. } = &*self.common;
        let loader = Loader {
            client,
            clock: &*ports.clock,
            options,
            limit,
            in_background,
        };
        let previous = self.catalog();
        let before = client.session().ok_or(Error::Closed)?;
        client.listening.loading(ports.clock.now());
        let catalog = Catalog::load(&loader, &before.agreed.card, &previous, kinds).await?;
        let after = client.session().ok_or(Error::Closed)?;
        if before.agreed.card.capabilities == after.agreed.card.capabilities {
            return Ok(catalog);
        }
        // The server has come back as another one meanwhile, and offers other lists.
        Catalog::load(&loader, &after.agreed.card, &previous, &ListKind::ALL).await
    }

    /// The client of an open connection.
    pub(crate) fn open_client(&self) -> Result<Rc<Client>> {
        let client = self.client.borrow().clone();
        let state = self.state();
        client
            .filter(|_| self.is_usable())
            .ok_or_else(|| Error::NotConnected {
                id: self.id.clone(),
                state,
                error: self.error().map(|error| error.describe()),
            })
    }

    /// Gives up whatever is under way and ends the session. The object is not used afterwards.
    pub(crate) fn close(&self) {
        self.supersede();
        // An exchange goes on: what it brings is kept, or taken back, but never lost.
        self.exchanging.take();
        // For those who still hold it.
        self.phase.replace(Phase::Failed(Error::Closed));
    }

    /// What is under way and will settle by itself.
    pub(super) fn under_way(&self) -> Vec<Joined> {
        let running = [&self.connecting, &self.discovering, &self.exchanging];
        let join = |running: &RefCell<Option<Running>>| {
            let running = running.borrow();
            running.as_ref().map(Running::join)
        };
        running.into_iter().filter_map(join).collect()
    }

    /// Gives the object up for another one that takes up the session. The server is told nothing.
    pub(super) fn leave(&self) {
        if let Some(client) = &*self.client.borrow() {
            client.leave();
        }
        self.close();
    }

    /// Begins a new attempt: what belongs to the one before ends here.
    fn supersede(&self) -> u64 {
        let attempt = self.attempt.get() + 1;
        self.attempt.set(attempt);
        let running = [
            self.connecting.take(),
            self.discovering.take(),
            self.signing_in.take(),
        ];
        for running in running.into_iter().flatten() {
            running.abort();
        }
        self.refresh.stop();
        if let Some(client) = self.client.take() {
            client.end();
        }
        attempt
    }

    /// Moves the phase, unless the event belongs to an attempt that is over.
    pub(super) fn apply(&self, attempt: u64, event: Event) {
        if self.attempt.get() != attempt {
            return;
        }
        let next = self.phase.borrow().on(event);
        if let Ok(next) = next {
            self.phase.replace(next);
            (self.common.changed)();
        }
    }

    async fn open(self: &Rc<Self>, attempt: u64) -> Result<Rc<Client>> {
        let server = self.server();
        let Common {
            ports,
            identity,
            options,
            handlers,
            slots,
            ..
        } = &*self.common;
        // Judged again at every attempt: the row may be older than the guard.
        let place = Place::of(&server, ports, &options.url_policy)?;
        let mut revealed = (*server).clone();
        if !self.common.reveal(&mut revealed).await? {
            self.conceal_anew(&revealed).await;
        }
        let permission = self
            .authorizer()?
            .map(|authorizer| Rc::new(Tokens(authorizer)) as Rc<_>);
        let dial = Dial::new(
            ports.clone(),
            place,
            revealed.header_map()?,
            permission,
            options,
        );
        // Only the first attempt after a wake takes up what was stored.
        let stored = if attempt == 1 {
            server.agreement()
        } else {
            None
        };
        let now = ports.clock.now();
        let hint = if attempt == 1 {
            server.hint(now)
        } else {
            // What an attempt has found out is in the row, and the copy in memory is older.
            let row = ports.servers.get(self.id.as_str()).ok().flatten();
            let row = row.and_then(|row| StoredServer::decode(row.ok()?).ok());
            row.map_or(Hint::Nothing, |row| row.hint(now))
        };
        let client = Client::new(ClientParts {
            server: self.id.clone(),
            dial,
            kind: server.transport(),
            revisions: server.revisions().into(),
            ports: ports.clone(),
            identity: identity.clone(),
            options: options.clone(),
            handlers: handlers.clone(),
            slots: slots.clone(),
            wishes: self.wishes.clone(),
            seed: server.offers(),
            hooks: ClientHooks {
                on_session: self.session_keeper(attempt),
                on_notice: self.notice_taker(attempt),
            },
        });
        let ended = EndUnlessKept(Some(client));
        if let Some(client) = &ended.0 {
            client.open(stored, hint).await?;
        }
        ended.keep().ok_or(Error::Closed)
    }

    /// Encrypts headers that were stored before there was a key, or with an old one. If that fails
    /// they stay as they are until the next attempt.
    async fn conceal_anew(&self, revealed: &StoredServer) {
        let mut concealed = revealed.clone();
        if let Ok(true) = self.common.conceal(&mut concealed).await {
            let _ = change(&*self.common.ports.servers, &self.id, |stored| {
                let is_same = stored.url == concealed.url;
                if is_same {
                    stored.take_headers_of(concealed);
                }
                is_same
            });
        }
    }

    /// Stores every new agreement of an attempt, as long as the attempt is the current one.
    fn session_keeper(self: &Rc<Self>, attempt: u64) -> Box<dyn Fn(&Agreement)> {
        let this: Weak<Self> = Rc::downgrade(self);
        Box::new(move |agreed| {
            if let Some(this) = this.upgrade()
                && this.attempt.get() == attempt
            {
                this.keep_agreement(agreed);
            }
        })
    }

    fn keep_agreement(&self, agreed: &Agreement) {
        let Common { ports, options, .. } = &*self.common;
        let now = ports.clock.now();
        let lifetime = u64::try_from(options.verdict_lifetime.as_millis()).unwrap_or(u64::MAX);
        // What a wake before this one had declared counts until a handshake has succeeded without
        // any handler to declare.
        let offers = self.common.handlers.offers();
        // A session that cannot be stored costs a handshake after the next wake, no more.
        let _ = change(&*ports.servers, &self.id, |stored| {
            let session = stored.set_agreement(Some(agreed));
            let verdict = stored.set_verdict(agreed, now, lifetime);
            let offers = stored.set_offers(offers);
            session || verdict || offers
        });
    }

    fn notice_taker(self: &Rc<Self>, attempt: u64) -> Box<dyn Fn(Notice)> {
        let this: Weak<Self> = Rc::downgrade(self);
        Box::new(move |notice| {
            if let Some(this) = this.upgrade()
                && this.attempt.get() == attempt
            {
                this.noticed(notice);
            }
        })
    }

    fn noticed(self: &Rc<Self>, notice: Notice) {
        let server_id = self.id.clone();
        let event = match notice {
            Notice::ListChanged(kind) => return self.refresh_soon(&[kind]),
            Notice::Missed => {
                let session = self.session();
                let changes = |kind: &ListKind| {
                    let card = session.as_ref().map(|session| &session.agreed.card);
                    card.is_some_and(|card| card.list_changes(kind.as_str()))
                };
                let kinds: Vec<ListKind> = ListKind::ALL.into_iter().filter(changes).collect();
                if !kinds.is_empty() {
                    self.refresh_soon(&kinds);
                }
                return;
            }
            Notice::ResourceUpdated(uri) => McpEvent::ResourceUpdated { server_id, uri },
            Notice::Log {
                level,
                logger,
                data,
            } => McpEvent::Log {
                server_id,
                level,
                logger,
                data: data.into(),
            },
            Notice::ElicitationCompleted(elicitation_id) => McpEvent::ElicitationCompleted {
                server_id,
                elicitation_id,
            },
            Notice::TaskChanged(task_id) => McpEvent::TaskChanged { server_id, task_id },
        };
        (self.common.event)(&event);
    }
}

/// A client that nobody has taken over is ended: it may hold streams.
struct EndUnlessKept(Option<Rc<Client>>);

impl EndUnlessKept {
    fn keep(mut self) -> Option<Rc<Client>> {
        self.0.take()
    }
}

impl Drop for EndUnlessKept {
    fn drop(&mut self) {
        if let Some(client) = &self.0 {
            client.end();
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("id", &self.id)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
