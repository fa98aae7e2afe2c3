//! One live server: its phase, its client and its catalogue.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{AbortHandle, Abortable, LocalBoxFuture, Shared};

use super::catalog::Catalog;
use super::client::{Client, Identity, Session};
use super::server::{StoredServer, save_session};
use super::state::{Event, Phase};
use super::within::within;
use super::{ConnectionState, McpClientOptions, ServerId};
use crate::ports::Ports;
use crate::transport::{StreamableHttp, TransportKind};
use crate::url_guard::GuardedUrl;
use crate::{Error, Result};

/// Work that everybody who asks for it shares.
type Joined = Shared<LocalBoxFuture<'static, Result<()>>>;

/// What every connection of a manager has in common.
pub(crate) struct Common {
    pub(crate) ports: Ports,
    pub(crate) identity: Rc<Identity>,
    pub(crate) options: Rc<McpClientOptions>,
    /// Called after every change of a phase or a catalogue.
    pub(crate) changed: Box<dyn Fn()>,
}

pub(crate) struct Connection {
    pub(crate) server: StoredServer,
    common: Rc<Common>,
    phase: RefCell<Phase>,
    client: RefCell<Option<Rc<Client>>>,
    catalog: RefCell<Rc<Catalog>>,
    /// Grows with every attempt to connect and with closing. Work whose number is no longer the
    /// current one must not touch the connection any more.
    attempt: Cell<u64>,
    connecting: RefCell<Option<Running>>,
    discovering: RefCell<Option<Running>>,
}

struct Running {
    work: Joined,
    abort: AbortHandle,
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
            server,
            common,
            phase: RefCell::new(phase),
            client: RefCell::default(),
            catalog: RefCell::default(),
            attempt: Cell::new(0),
            connecting: RefCell::default(),
            discovering: RefCell::default(),
        })
    }

    pub(crate) fn id(&self) -> &ServerId {
        &self.server.id
    }

    pub(crate) fn state(&self) -> ConnectionState {
        self.phase.borrow().state()
    }

    pub(crate) fn error(&self) -> Option<Error> {
        self.phase.borrow().error().cloned()
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
            return running.work.clone();
        }
        let attempt = self.supersede();
        self.apply(attempt, Event::Connect);
        let this = self.clone();
        let running = self.start(async move {
            let outcome = this.open(attempt).await;
            if this.attempt.get() == attempt {
                this.connecting.take();
            }
            match outcome {
                Ok(client) => {
                    if !this.is_current(attempt) {
                        client.end();
                        return Err(Error::Closed);
                    }
                    this.client.replace(Some(client));
                    this.apply(attempt, Event::Opened);
                    Ok(())
                }
                Err(error) => {
                    this.apply(attempt, Event::Failed(error.clone()));
                    Err(error)
                }
            }
        });
        let work = running.work.clone();
        self.connecting.replace(Some(running));
        work
    }

    /// Loads the catalogue, or joins the load that is under way.
    ///
    /// Needs an open connection. A failure leaves it open and the catalogue as it was.
    pub(crate) fn discover(self: &Rc<Self>, timeout: Duration) -> Result<Joined> {
        if let Some(running) = &*self.discovering.borrow() {
            return Ok(running.work.clone());
        }
        let client = self.open_client()?;
        let attempt = self.attempt.get();
        self.apply(attempt, Event::Discover);
        let this = self.clone();
        let running = self.start(async move {
            let options = this.common.options.clone();
            let previous = this.catalog();
            let load = async {
                let card = client.session().ok_or(Error::Closed)?;
                Catalog::load(&client, &options, &card.card, &previous).await
            };
            let outcome = within(&*this.common.ports.clock, timeout, "discovery", load).await;
            if !this.is_current(attempt) {
                return Err(Error::Closed);
            }
            this.discovering.take();
            match outcome {
                Ok(catalog) => {
                    this.catalog.replace(Rc::new(catalog));
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
                    this.apply(attempt, event);
                    Err(error)
                }
            }
        });
        let work = running.work.clone();
        self.discovering.replace(Some(running));
        Ok(work)
    }

    /// The client of an open connection.
    pub(crate) fn open_client(&self) -> Result<Rc<Client>> {
        let client = self.client.borrow().clone();
        let state = self.state();
        client
            .filter(|_| state.is_open())
            .ok_or_else(|| Error::NotConnected {
                id: self.id().clone(),
                state,
                error: self.error().map(|error| error.describe()),
            })
    }

    /// Gives up whatever is under way and ends the session. The object is not used afterwards.
    pub(crate) fn close(&self) {
        self.supersede();
    }

    /// Begins a new attempt: what belongs to the one before ends here.
    fn supersede(&self) -> u64 {
        let attempt = self.attempt.get() + 1;
        self.attempt.set(attempt);
        for running in [self.connecting.take(), self.discovering.take()]
            .into_iter()
            .flatten()
        {
            running.abort.abort();
        }
        if let Some(client) = self.client.take() {
            client.end();
        }
        attempt
    }

    fn is_current(&self, attempt: u64) -> bool {
        self.attempt.get() == attempt
    }

    /// Moves the phase, unless the event belongs to an attempt that is over.
    fn apply(&self, attempt: u64, event: Event) {
        if !self.is_current(attempt) {
            return;
        }
        let next = self.phase.borrow().on(event);
        if let Ok(next) = next {
            self.phase.replace(next);
            (self.common.changed)();
        }
    }

    /// Runs work to its end even if nobody waits for it any more.
    fn start(&self, work: impl Future<Output = Result<()>> + 'static) -> Running {
        let (abort, registration) = AbortHandle::new_pair();
        let work =
            Abortable::new(work, registration).map(|outcome| outcome.unwrap_or(Err(Error::Closed)));
        let work = work.boxed_local().shared();
        self.common
            .ports
            .spawn
            .spawn(work.clone().map(drop).boxed_local());
        Running { work, abort }
    }

    async fn open(&self, attempt: u64) -> Result<Rc<Client>> {
        match self.server.transport() {
            TransportKind::Auto | TransportKind::StreamableHttp => {}
            TransportKind::Other(name) => return Err(Error::UnsupportedTransport(name)),
        }
        let Common {
            ports,
            identity,
            options,
            ..
        } = &*self.common;
        // Judged again at every attempt: the row may be older than the guard.
        let url = GuardedUrl::parse(&self.server.url)?;
        let headers = self.server.header_map()?;
        let transport =
            StreamableHttp::new(ports.http.clone(), url, headers, options.max_response_bytes);
        let store = ports.servers.clone();
        let id = self.id().clone();
        let on_session = Box::new(move |session: &Session| {
            // A session that cannot be stored costs a handshake after the next wake, no more.
            let _ = save_session(&*store, &id, Some(session));
        });
        let client = Rc::new(Client::new(
            Rc::new(transport),
            ports.clone(),
            identity.clone(),
            options.clone(),
            on_session,
        ));
        // Only the first attempt after a wake takes up what was stored.
        let stored = if attempt == 1 {
            self.server.session()
        } else {
            None
        };
        client.open(stored).await?;
        Ok(client)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("id", self.id())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
