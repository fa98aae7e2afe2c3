//! Coming back after a wake: what is stored is known at once, and servers are connected in the
//! background or when they are used.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{join, join_all};

use super::connection::Connection;
use super::permits::Permits;
use super::planned::{Plan, random};
use super::server::StoredServer;
use super::state::{Event, Phase};
use super::within::within;
use super::{ConnectionState, McpClientManager, ReconnectPolicy, ServerId};
use crate::ports::CatalogHead;
use crate::retry::RetryOptions;
use crate::{Error, Result};

/// How long a server may put off the next attempt while the object stays awake for it.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

/// The shortest pause between two attempts, whatever a stored policy says.
const MIN_PAUSE: Duration = Duration::from_millis(50);

/// How long a call waits for the list of tools after a wake, where it needs it.
pub(super) const KNOW_WAIT: Duration = Duration::from_secs(5);

impl McpClientManager {
    /// Brings the stored servers back, each by its [policy](ReconnectPolicy). Called once, when the
    /// object starts; again it does nothing.
    ///
    /// A row that cannot be read is left alone and stops nobody. A server that waits for its user
    /// to sign in, and has granted nothing yet, is parked.
    ///
    /// # Errors
    /// Storage errors.
    pub fn restore(&self) -> Result<()> {
        self.remember()?;
        self.begin_to_come_back();
        Ok(())
    }

    /// Knows the stored servers and what they offer. Sends nothing.
    pub(super) fn remember(&self) -> Result<()> {
        if self.inner.restored.replace(true) {
            return Ok(());
        }
        let common = &self.inner.common;
        let read = || -> Result<_> {
            let rows = self.rows()?;
            let heads = common.ports.catalogs.heads()?;
            // Nobody waits for what is not there.
            let plans = if rows.is_empty() {
                Vec::new()
            } else {
                self.plans()?
            };
            Ok((rows, heads, plans))
        };
        let (rows, heads, plans) = read().inspect_err(|_| self.inner.restored.set(false))?;
        self.inner.number.set(Some(rows.len()));
        let now = common.ports.clock.now();
        let mut heads: HashMap<String, CatalogHead> = heads
            .into_iter()
            .map(|head| (head.server_id.clone(), head))
            .collect();
        let mut plans: HashMap<String, Plan> = plans
            .into_iter()
            .map(|plan| (plan.server_id.clone(), plan))
            .collect();
        let with_headers = common.vault.is_none();
        let live: HashSet<ServerId> = self.states().into_iter().map(|(id, _)| id).collect();
        for row in rows {
            let stored = match row {
                Ok(stored) => stored,
                Err(damaged) => {
                    heads.remove(&damaged.id);
                    continue;
                }
            };
            let id = stored.id.as_str();
            let head = heads.remove(id);
            if live.contains(&stored.id) {
                continue;
            }
            // One that was stored of another place, or as another user, says nothing of this server.
            let head = head.filter(|head| {
                head.server_url == stored.url
                    && head.fingerprint == stored.peer_fingerprint(with_headers)
            });
            let plan = plans.remove(id);
            let is_put_off = plan.as_ref().is_some_and(|plan| plan.not_before > now);
            let phase = match self.policy_of(&stored) {
                ReconnectPolicy::Never => Phase::Stored { usable: false },
                ReconnectPolicy::Lazy if head.is_some() => Phase::Stored { usable: true },
                ReconnectPolicy::Eager if is_put_off => Phase::Waiting(None),
                ReconnectPolicy::Eager | ReconnectPolicy::Lazy => {
                    Phase::Connecting { again: false }
                }
            };
            let connection = Connection::in_phase(phase, stored, common.clone());
            if let Some(head) = head {
                connection.lists.are_stored(head);
            }
            if let Some(plan) = plan {
                connection.plan.set(Some(plan.attempts));
            }
            self.inner.connections.borrow_mut().push(connection);
        }
        for id in heads.into_keys() {
            // Of a server that was removed by somebody who does not know of this table.
            let _ = common.ports.catalogs.delete(&id);
        }
        Ok(())
    }

    /// Connects, in the background and a few at a time, the servers that are to come back by
    /// themselves. After a wake that nobody asked for, an alarm, this is left to whoever comes next.
    pub(super) fn begin_to_come_back(&self) {
        if !self.inner.restored.get() || self.inner.came_back.replace(true) {
            return;
        }
        let connections = self.inner.connections.borrow().clone();
        for connection in connections {
            let parked = connection.server().awaits_sign_in();
            let is_due = connection.state() == ConnectionState::Connecting;
            if !(parked || is_due) || connection.attempt() > 0 {
                continue;
            }
            // What a lazy server offers is known, and its first use finds out what is granted.
            let waits_for_use = match self.policy_of(&connection.server()) {
                ReconnectPolicy::Eager => false,
                ReconnectPolicy::Lazy => connection.is_listed(),
                ReconnectPolicy::Never => true,
            };
            if parked && waits_for_use {
                continue;
            }
            self.come_back_in_background(&connection);
        }
    }

    pub(super) fn come_back_in_background(&self, connection: &Rc<Connection>) {
        let number = self.inner.pending.begin(connection.id());
        let (this, connection) = (self.clone(), connection.clone());
        self.inner.common.ports.spawn.spawn(Box::pin(async move {
            // What was granted before is as good as ever while the user is asked for more.
            if !connection.server().awaits_sign_in() || connection.has_permission().await {
                // The outcome is in the connection's state, for whoever looks.
                let _ = this.come_back(&connection, &this.inner.permits).await;
            }
            this.inner.pending.settle(connection.id(), number);
        }));
    }

    pub(super) fn policy_of(&self, server: &StoredServer) -> ReconnectPolicy {
        let default = self.inner.common.options.reconnect;
        server.reconnect_policy().unwrap_or(default)
    }

    /// Connects and lists, by the server's retry policy. When that is used up and the error may pass,
    /// the next attempt is planned, and the object may sleep until then.
    pub(super) async fn come_back(
        &self,
        connection: &Rc<Connection>,
        permits: &Rc<Permits>,
    ) -> Result<()> {
        let retry = connection.server().retry();
        let mut failed = 0;
        loop {
            let before = connection.plan.get();
            let outcome = self.attempt(connection, permits).await;
            let Err(error) = outcome else {
                self.unplan(connection);
                return Ok(());
            };
            if matches!(error, Error::Closed) {
                if !self.is_live(connection) || connection.is_closed() {
                    return Err(error);
                }
                // Somebody began anew. That attempt is the one to wait for.
                continue;
            }
            if !error.is_transient() {
                self.unplan(connection);
                return Err(error);
            }
            failed += 1;
            if failed >= retry.max_attempts.min(RetryOptions::MOST_ATTEMPTS) {
                self.put_off(connection, &error, before);
                return Err(error);
            }
            let delay = retry.delay(failed, random());
            let asked = error.retry_after().unwrap_or_default();
            if asked > MAX_RETRY_AFTER {
                // Longer than the object should be kept awake for.
                self.put_off(connection, &error, before);
                return Err(error);
            }
            connection.apply(connection.attempt(), Event::Postponed);
            let pause = delay.max(asked).max(MIN_PAUSE);
            self.inner.common.ports.clock.sleep(pause).await;
        }
    }

    /// One attempt to connect and list. Holds a permit for as long as it takes and no longer: servers
    /// that are down must not keep others waiting.
    pub(super) async fn attempt(
        &self,
        connection: &Rc<Connection>,
        permits: &Rc<Permits>,
    ) -> Result<()> {
        let _permit = permits.acquire().await;
        if !self.is_live(connection) || connection.is_closed() {
            return Err(Error::Closed);
        }
        // Somebody who needed it sooner may have opened it already.
        if !connection.is_open() {
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
        if connection.is_listed() || !self.inner.pending.has(connection.id().as_str()) {
            return;
        }
        let limit = self.inner.common.options.discovery_timeout;
        // Sooner than its turn after a wake, if need be.
        if let Ok(discovery) = connection.discover(limit) {
            let clock = &*self.inner.common.ports.clock;
            let _ = within(clock, KNOW_WAIT, "tools/list", discovery).await;
        }
    }

    /// Waits until everything that is under way now has settled, well or badly: servers that come
    /// back after a wake, connections that are being opened, lists that are being loaded, sign-ins
    /// that are being completed. At most for `timeout`; `None` waits without limit. What begins
    /// meanwhile is not waited for, and neither are servers that wait for their user, or for their
    /// next attempt at a later time.
    pub async fn wait_for_connections(&self, timeout: Option<Duration>) {
        self.begin_to_come_back();
        let waiting = self.inner.pending.wait_for(|_| true);
        let connections = self.inner.connections.borrow().clone();
        let under_way: Vec<_> = connections
            .iter()
            .flat_map(|connection| connection.under_way())
            .collect();
        if waiting.is_empty() && under_way.is_empty() {
            return;
        }
        let all = async {
            // A sender that is dropped has settled too.
            join(join_all(waiting), join_all(under_way)).await;
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

impl McpClientManager {
    /// Waits until the lists of every server that comes back after a wake are known, from storage or
    /// from the server, or it is known that they cannot be had; at most for `timeout`.
    pub async fn wait_for_lists(&self, timeout: Duration) {
        self.begin_to_come_back();
        let is_unknown =
            |id: &ServerId| (self.live(id.as_str())).is_some_and(|live| !live.is_listed());
        let waiting = self.inner.pending.wait_for(is_unknown);
        if waiting.is_empty() {
            return;
        }
        let all = async {
            join_all(waiting).await;
            Ok(())
        };
        drop(within(&*self.inner.common.ports.clock, timeout, "", all).await);
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

    pub(super) fn has(&self, id: &str) -> bool {
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

    /// One receiver for each of the servers that are asked for, resolved or cancelled when that has
    /// settled.
    fn wait_for(&self, is_asked: impl Fn(&ServerId) -> bool) -> Vec<oneshot::Receiver<()>> {
        let mut servers = self.servers.borrow_mut();
        let wait = |(_, server): (&ServerId, &mut ComingBack)| {
            let (sender, receiver) = oneshot::channel();
            server.waiting.retain(|waiting| !waiting.is_canceled());
            server.waiting.push(sender);
            receiver
        };
        let asked = servers.iter_mut().filter(|(id, _)| is_asked(id));
        asked.map(wait).collect()
    }
}
