//! One live server: its phase, its client and its catalogue.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};
use std::time::Duration;

use super::catalog::{Catalog, Loader};
use super::client::Client;
use super::joined::{Joined, Running};
use super::server::{StoredServer, clear_sign_in, save_session};
use super::session::{Identity, Session};
use super::state::{Event, Phase};
use super::{ConnectionState, McpClientOptions, ServerId};
use crate::ports::Ports;
use crate::transport::{StreamableHttp, TransportKind};
use crate::url_guard::GuardedUrl;
use crate::{Error, Result};

/// What every connection of a manager has in common.
pub(crate) struct Common {
    pub(crate) ports: Ports,
    pub(crate) identity: Rc<Identity>,
    pub(crate) options: Rc<McpClientOptions>,
    /// Called after every change of a phase or a catalogue.
    pub(crate) changed: Box<dyn Fn()>,
}

pub(crate) struct Connection {
    server: RefCell<Rc<StoredServer>>,
    id: ServerId,
    common: Rc<Common>,
    phase: RefCell<Phase>,
    client: RefCell<Option<Rc<Client>>>,
    catalog: RefCell<Rc<Catalog>>,
    /// Why the last discovery failed, if it did.
    discovery_error: RefCell<Option<Error>>,
    /// Grows with every attempt to connect and with closing. Work whose number is no longer the
    /// current one must not touch the connection any more.
    attempt: Cell<u64>,
    connecting: RefCell<Option<Running>>,
    discovering: RefCell<Option<Running>>,
}

impl Connection {
    /// A connection that is about to be opened, or that waits for its user to sign in.
    pub(crate) fn new(server: StoredServer, common: Rc<Common>) -> Rc<Self> {
        let phase = if server.awaits_sign_in() {
            Phase::Authenticating
        } else {
            Phase::Connecting
        };
        Rc::new(Self {
            id: server.id.clone(),
            server: RefCell::new(Rc::new(server)),
            common,
            phase: RefCell::new(phase),
            client: RefCell::default(),
            catalog: RefCell::default(),
            discovery_error: RefCell::default(),
            attempt: Cell::new(0),
            connecting: RefCell::default(),
            discovering: RefCell::default(),
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

    pub(crate) fn error(&self) -> Option<Error> {
        let failed = self.phase.borrow().error().cloned();
        failed.or_else(|| self.discovery_error.borrow().clone())
    }

    pub(crate) fn catalog(&self) -> Rc<Catalog> {
        self.catalog.borrow().clone()
    }

    pub(crate) fn session(&self) -> Option<Rc<Session>> {
        self.client.borrow().as_ref()?.session()
    }

    /// Opens the connection, or joins the attempt that is under way.
    pub(crate) fn connect(self: &Rc<Self>) -> Joined {
        if let Some(running) = &*self.connecting.borrow() {
            return running.join();
        }
        let attempt = self.supersede();
        self.discovery_error.take();
        self.apply(attempt, Event::Connect);
        let this = self.clone();
        // Closing aborts this, so it never finishes for an attempt that is over.
        let running = Running::start(&*self.common.ports.spawn, async move {
            let outcome = this.open(attempt).await;
            this.connecting.take();
            match outcome {
                Ok(client) => {
                    this.client.replace(Some(client));
                    if this.server().awaits_sign_in() {
                        // If it cannot be stored, the server is parked once more after the next wake.
                        let _ = clear_sign_in(&*this.common.ports.servers, &this.id);
                    }
                    this.apply(attempt, Event::Opened);
                    Ok(())
                }
                Err(error) => {
                    this.apply(attempt, Event::Failed(error.clone()));
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
            let outcome = this.load(&client, timeout).await;
            this.discovering.take();
            match outcome {
                Ok(catalog) => {
                    this.catalog.replace(Rc::new(catalog));
                    this.discovery_error.take();
                    this.apply(attempt, Event::Discovered);
                    Ok(())
                }
                Err(error) => {
                    // A session from storage that has not once been answered was never a connection.
                    let is_unconfirmed = client.session().is_some_and(|session| session.resumed);
                    let event = if is_unconfirmed {
                        Event::Failed(error.clone())
                    } else {
                        Event::DiscoveryFailed
                    };
                    this.discovery_error.replace(Some(error.clone()));
                    this.apply(attempt, event);
                    Err(error)
                }
            }
        });
        let work = running.join();
        self.discovering.replace(Some(running));
        Ok(work)
    }

    async fn load(&self, client: &Rc<Client>, limit: Duration) -> Result<Catalog> {
        let Common { ports, options, .. } = &*self.common;
        let loader = Loader {
            client,
            clock: &*ports.clock,
            options,
            limit,
        };
        let previous = self.catalog();
        let before = client.session().ok_or(Error::Closed)?;
        let catalog = Catalog::load(&loader, &before.card, &previous).await?;
        let after = client.session().ok_or(Error::Closed)?;
        if before.card.capabilities == after.card.capabilities {
            return Ok(catalog);
        }
        // The server has come back as another one meanwhile, and offers other lists.
        Catalog::load(&loader, &after.card, &previous).await
    }

    /// The client of an open connection.
    pub(crate) fn open_client(&self) -> Result<Rc<Client>> {
        let client = self.client.borrow().clone();
        let state = self.state();
        client
            .filter(|_| state.is_open())
            .ok_or_else(|| Error::NotConnected {
                id: self.id.clone(),
                state,
                error: self.error().map(|error| error.describe()),
            })
    }

    /// Gives up whatever is under way and ends the session. The object is not used afterwards.
    pub(crate) fn close(&self) {
        self.supersede();
        // For those who still hold it.
        self.phase.replace(Phase::Failed(Error::Closed));
    }

    /// Begins a new attempt: what belongs to the one before ends here.
    fn supersede(&self) -> u64 {
        let attempt = self.attempt.get() + 1;
        self.attempt.set(attempt);
        let running = [self.connecting.take(), self.discovering.take()];
        for running in running.into_iter().flatten() {
            running.abort();
        }
        if let Some(client) = self.client.take() {
            client.end();
        }
        attempt
    }

    /// Moves the phase, unless the event belongs to an attempt that is over.
    fn apply(&self, attempt: u64, event: Event) {
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
        match server.transport() {
            TransportKind::Auto | TransportKind::StreamableHttp => {}
            kind => return Err(Error::UnsupportedTransport(kind.as_str().to_owned())),
        }
        let Common {
            ports,
            identity,
            options,
            ..
        } = &*self.common;
        // Judged again at every attempt: the row may be older than the guard.
        let url = GuardedUrl::parse(&server.url)?;
        let headers = server.header_map()?;
        let transport = StreamableHttp::new(
            ports.http.clone(),
            ports.clock.clone(),
            url,
            headers,
            options.max_response_bytes,
        );
        let (ports, identity, options) = (ports.clone(), identity.clone(), options.clone());
        let on_session = self.session_keeper(attempt);
        let client = Rc::new(Client::new(
            Rc::new(transport),
            ports,
            identity,
            options,
            on_session,
        ));
        // Only the first attempt after a wake takes up what was stored.
        let stored = if attempt == 1 { server.session() } else { None };
        client.open(stored).await?;
        Ok(client)
    }

    /// Stores every new agreement of an attempt, as long as the attempt is the current one.
    fn session_keeper(self: &Rc<Self>, attempt: u64) -> Box<dyn Fn(&Session)> {
        let this: Weak<Self> = Rc::downgrade(self);
        Box::new(move |session| {
            if let Some(this) = this.upgrade()
                && this.attempt.get() == attempt
            {
                // A session that cannot be stored costs a handshake after the next wake, no more.
                let _ = save_session(&*this.common.ports.servers, &this.id, Some(session));
            }
        })
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
