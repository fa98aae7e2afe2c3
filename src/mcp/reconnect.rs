//! Coming back after a wake: every stored server is connected and listed in the background.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::join_all;

use super::connection::Connection;
use super::permits::Permits;
use super::within::within;
use super::{McpClientManager, ServerId};
use crate::retry::RetryOptions;
use crate::{Error, Result};

/// How long a server may put off the next attempt at most.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

/// The shortest pause between two attempts, whatever a stored policy says.
const MIN_PAUSE: Duration = Duration::from_millis(50);

/// How long a call waits for the list of tools after a wake.
const KNOW_WAIT: Duration = Duration::from_secs(5);

impl McpClientManager {
    /// Brings every stored server back: connects and lists, in the background, a few at a time, each
    /// by its own retry policy. Called once, when the object starts; again it does nothing.
    ///
    /// A row that cannot be read is left alone and stops nobody. A server that waits for its user
    /// to sign in, and has granted nothing yet, is parked.
    ///
    /// # Errors
    /// Storage errors.
    pub fn restore(&self) -> Result<()> {
        if self.inner.restored.replace(true) {
            return Ok(());
        }
        let rows = self
            .rows()
            .inspect_err(|_| self.inner.restored.set(false))?;
        let permits = Permits::new(self.inner.common.options.reconnect_concurrency.max(1));
        for stored in rows.into_iter().filter_map(Result::ok) {
            if self.live(stored.id.as_str()).is_some() {
                continue;
            }
            let parked = stored.awaits_sign_in();
            let connection = Connection::new(stored, self.inner.common.clone());
            self.inner.connections.borrow_mut().push(connection.clone());
            let number = self.inner.pending.begin(connection.id());
            let (this, permits) = (self.clone(), permits.clone());
            self.inner.common.ports.spawn.spawn(Box::pin(async move {
                // What was granted before is as good as ever while the user is asked for more.
                if !parked || connection.has_permission().await {
                    // The outcome is in the connection's state, for whoever looks.
                    let _ = this.come_back(&connection, &permits).await;
                }
                this.inner.pending.settle(connection.id(), number);
            }));
        }
        Ok(())
    }

    pub(super) async fn come_back(
        &self,
        connection: &Rc<Connection>,
        permits: &Rc<Permits>,
    ) -> Result<()> {
        let retry = connection.server().retry();
        let mut failed = 0;
        loop {
            // Held for one attempt only: servers that are down must not keep others waiting.
            let permit = permits.acquire().await;
            if !self.is_live(connection) {
                return Err(Error::Closed);
            }
            let outcome = self.open_and_discover(connection).await;
            drop(permit);
            let Err(error) = outcome else { return Ok(()) };
            if matches!(error, Error::Closed) && self.is_live(connection) {
                // Somebody began anew. That attempt is the one to wait for.
                continue;
            }
            failed += 1;
            if failed >= retry.max_attempts.min(RetryOptions::MOST_ATTEMPTS)
                || !error.is_transient()
            {
                return Err(error);
            }
            let delay = retry.delay(failed, getrandom::u64().unwrap_or(u64::MAX / 2));
            let asked = error.retry_after().unwrap_or_default().min(MAX_RETRY_AFTER);
            self.inner
                .common
                .ports
                .clock
                .sleep(delay.max(asked).max(MIN_PAUSE))
                .await;
        }
    }

    async fn open_and_discover(&self, connection: &Rc<Connection>) -> Result<()> {
        // Somebody who needed it sooner may have opened it already.
        if !connection.state().is_open() {
            connection.connect().await?;
        }
        connection
            .discover(self.inner.common.options.discovery_timeout)?
            .await
    }

    /// Waits for the list of a server's tools where it is about to be loaded for the first time after
    /// a wake: what a tool's arguments and output must look like is in there. A server that lets us
    /// wait is called without.
    pub(super) async fn know_tools(&self, connection: &Rc<Connection>) {
        if connection.is_listed() || !self.inner.pending.has(connection.id()) {
            return;
        }
        let limit = self.inner.common.options.discovery_timeout;
        // Sooner than its turn after a wake, if need be.
        if let Ok(discovery) = connection.discover(limit) {
            let clock = &*self.inner.common.ports.clock;
            let _ = within(clock, KNOW_WAIT, "tools/list", discovery).await;
        }
    }

    /// Waits until the connections that are coming back after a wake have settled, well or badly,
    /// at most for `timeout`. `None` waits without limit.
    pub async fn wait_for_connections(&self, timeout: Option<Duration>) {
        let waiting = self.inner.pending.wait_for_all();
        if waiting.is_empty() {
            return;
        }
        let all = async {
            // A sender that is dropped has settled too.
            join_all(waiting).await;
            Ok(())
        };
        match timeout {
            None => drop(all.await),
            Some(timeout) => {
                drop(within(&*self.inner.common.ports.clock, timeout, "", all).await);
            }
        }
    }
}

/// The servers that are coming back, and who waits for each.
#[derive(Default)]
pub(super) struct Pending {
    servers: RefCell<HashMap<ServerId, ComingBack>>,
    next: Cell<u64>,
}

struct ComingBack {
    /// Tells work apart from the work that replaced it.
    number: u64,
    waiting: Vec<oneshot::Sender<()>>,
}

impl Pending {
    pub(super) fn begin(&self, id: &ServerId) -> u64 {
        let number = self.next.get();
        self.next.set(number + 1);
        self.servers.borrow_mut().insert(
            id.clone(),
            ComingBack {
                number,
                waiting: Vec::new(),
            },
        );
        number
    }

    fn has(&self, id: &ServerId) -> bool {
        self.servers.borrow().contains_key(id)
    }

    pub(super) fn settle(&self, id: &ServerId, number: u64) {
        let mut servers = self.servers.borrow_mut();
        if servers
            .get(id)
            .is_some_and(|server| server.number == number)
        {
            // Dropping the senders tells those who wait.
            servers.remove(id);
        }
    }

    /// Whoever waits for this server waits no longer.
    pub(super) fn forget(&self, id: &str) {
        self.servers.borrow_mut().remove(id);
    }

    /// One receiver for each server, resolved or cancelled when that has settled.
    fn wait_for_all(&self) -> Vec<oneshot::Receiver<()>> {
        let mut servers = self.servers.borrow_mut();
        let wait = |server: &mut ComingBack| {
            let (sender, receiver) = oneshot::channel();
            server.waiting.retain(|waiting| !waiting.is_canceled());
            server.waiting.push(sender);
            receiver
        };
        servers.values_mut().map(wait).collect()
    }
}
