//! Giving a server another id.

use std::rc::Rc;
use std::time::Duration;

use futures::future::join_all;

use super::connection::Connection;
use super::event::McpEvent;
use super::server::{FormerId, StoredServer};
use super::state::Phase;
use super::within::within;
use super::{McpClientManager, ServerId};
use crate::oauth::key_prefix;
use crate::{Error, Result};

/// How long requests under way may take to end.
const DRAIN: Duration = Duration::from_secs(30);
/// How often it is looked whether they have.
const LOOK: Duration = Duration::from_millis(20);
/// For how long a user who was sent away under the old id may come back.
const FORMER: u64 = 600_000;

impl McpClientManager {
    /// Gives a server another id. Its row, session, lists, sign-in, tasks and planned attempts go
    /// with it, and a user who is away to sign in can come back.
    ///
    /// Waits for what is under way with the server, up to 30 s, and gives the rest up. The
    /// connection is taken up again under the new id.
    ///
    /// # Errors
    /// [`Error::UnknownServer`], [`Error::DamagedRow`]; [`Error::ServerIdInUse`] when another server
    /// has the id; [`Error::InvalidOption`] for an id that is none; storage errors, after which the
    /// call can be repeated.
    pub async fn rename_server(&self, from: &str, to: impl Into<Rc<str>>) -> Result<ServerId> {
        let to = ServerId::verbatim(to);
        super::register::validate_id(&to)?;
        if from == to.as_str() {
            return Ok(to);
        }
        // In one order, so that two who rename crosswise do not wait for each other.
        let (first, second) = if from < to.as_str() {
            (from, to.as_str())
        } else {
            (to.as_str(), from)
        };
        let _first = self.inner.serial.enter(first).await;
        let _second = self.inner.serial.enter(second).await;
        self.check_free(&to)?;
        let known = self.stored_server(from)?;
        if let Some(live) = self.live(from) {
            self.drain(&live).await;
        }
        let connection = match self.live(from) {
            Some(live) => live,
            None => Connection::new(known, self.inner.common.clone()),
        };
        if let Ok(Some(authorizer)) = connection.authorizer() {
            // A grant that is renewed right now is stored under the old id.
            authorizer.settle().await;
        }
        let moved = self.move_everything(from, &to).await;
        let (stored, keys) = moved.inspect_err(|_| {
            // It writes nothing any more. Whoever asks next has another one.
            self.inner.common.authorizers.borrow_mut().remove(from);
        })?;
        // Without a pause, so that nobody finds the connection under the old id.
        self.move_memory(from, &to, stored);
        if !keys.is_empty() {
            self.inner.common.ports.keys.delete(&keys).await?;
        }
        let from = ServerId::verbatim(from);
        let server_id = to.clone();
        (self.inner.common.event)(&McpEvent::Renamed { server_id, from });
        self.changed();
        Ok(to)
    }

    fn check_free(&self, id: &ServerId) -> Result<()> {
        match self.inner.common.ports.servers.get(id.as_str())? {
            None => Ok(()),
            Some(row) => Err(Error::ServerIdInUse {
                id: id.clone(),
                name: row.map(|row| row.name).unwrap_or_default(),
            }),
        }
    }

    pub(super) fn stored_server(&self, id: &str) -> Result<StoredServer> {
        let stored = self.server(id)?;
        stored.ok_or_else(|| Error::UnknownServer(id.to_owned()))
    }

    /// Waits for what is under way, as long as there is time.
    async fn drain(&self, connection: &Rc<Connection>) {
        let clock = &*self.inner.common.ports.clock;
        let drained = async {
            loop {
                let under_way = connection.under_way();
                if under_way.is_empty() && !connection.is_in_use() {
                    return Ok(());
                }
                if under_way.is_empty() {
                    clock.sleep(LOOK).await;
                }
                join_all(under_way).await;
            }
        };
        let _ = within(clock, DRAIN, "", drained).await;
    }

    /// Moves what is stored. Secrets are encrypted for one id, so they are encrypted anew.
    async fn move_everything(
        &self,
        from: &str,
        to: &ServerId,
    ) -> Result<(StoredServer, Vec<String>)> {
        let common = &self.inner.common;
        let ports = &common.ports;
        let old_prefix = key_prefix(&common.namespace, from);
        let new_prefix = key_prefix(&common.namespace, to.as_str());
        common.forget_keys(to.as_str()).await?;
        let keys = ports.keys.keys(&old_prefix).await?;
        for key in &keys {
            let rest = key.strip_prefix(&old_prefix).unwrap_or_default();
            if let Some(value) = ports.keys.get(key).await? {
                ports
                    .keys
                    .put(&format!("{new_prefix}{rest}"), &value)
                    .await?;
            }
        }
        // Between reading and writing others may write; then it is read anew.
        let (stored, row) = loop {
            let before = ports.servers.get(from)?;
            let mut stored = self.stored_server(from)?;
            common.reveal(&mut stored).await?;
            let auth_url = match &stored.auth_url {
                Some(url) => common.reveal_url(&stored.id, url).await,
                None => None,
            };
            stored.id = to.clone();
            stored.auth_url = match auth_url {
                Some(url) => Some(common.conceal_url(to, &url).await?),
                None => None,
            };
            stored.options.former_id = stored.auth_url.is_some().then(|| FormerId {
                id: from.to_owned(),
                until: ports.clock.now().saturating_add(FORMER),
            });
            let mut concealed = stored.clone();
            common.conceal(&mut concealed).await?;
            if ports.servers.get(from)? == before {
                break (stored, concealed.encode()?);
            }
        };
        // Without a pause, so that an eviction finds all of it done or nothing. The row comes last:
        // until then the call can be repeated.
        ports.catalogs.rename(from, to.as_str())?;
        ports.tasks.rename_server(from, to.as_str())?;
        self.rename_plan(from, to.as_str())?;
        if !ports.servers.rename(from, to.as_str())? {
            return Err(Error::UnknownServer(from.to_owned()));
        }
        ports.servers.put(&row)?;
        Ok((stored, keys))
    }

    /// Takes the connection up again under the new id, as a wake does.
    fn move_memory(&self, from: &str, to: &ServerId, stored: StoredServer) {
        let common = &self.inner.common;
        let provider = common.providers.borrow_mut().remove(from);
        if let Some(provider) = provider {
            common.providers.borrow_mut().insert(to.clone(), provider);
        }
        common.authorizers.borrow_mut().remove(from);
        let is_coming_back = self.inner.pending.has(from);
        self.inner.pending.forget(from);
        let before = self.live(from);
        let Some(before) = before else { return };
        let head = common.ports.catalogs.heads().unwrap_or_default();
        let head = head.into_iter().find(|head| head.server_id == to.as_str());
        let phase = before.phase_after_rename();
        let connection = Connection::in_phase(phase, stored, common.clone());
        if let Some(head) = head {
            connection.lists.are_stored(head);
        }
        connection.plan.set(before.plan.get());
        let mut connections = self.inner.connections.borrow_mut();
        if let Some(slot) = connections
            .iter_mut()
            .find(|live| Rc::ptr_eq(live, &before))
        {
            *slot = connection.clone();
        }
        drop(connections);
        let was_tried = is_coming_back || before.attempt() > 0;
        before.leave();
        if was_tried && connection.is_to_be_opened() {
            self.come_back_in_background(&connection);
        }
    }

    /// The id of the server that a user comes back to: of one that was renamed meanwhile, its new one.
    pub(super) fn present_id(&self, id: &str) -> String {
        if matches!(self.inner.common.ports.servers.get(id), Ok(None)) {
            let now = self.inner.common.ports.clock.now();
            let is_former = |stored: &StoredServer| {
                let former = stored.options.former_id.as_ref();
                former.is_some_and(|former| former.id == id && former.until >= now)
            };
            let rows = self.list_servers().unwrap_or_default();
            if let Some(stored) = rows.iter().find(|stored| is_former(stored)) {
                return stored.id.to_string();
            }
        }
        id.to_owned()
    }
}

impl Connection {
    fn is_to_be_opened(&self) -> bool {
        matches!(&*self.phase.borrow(), Phase::Connecting { .. })
    }

    /// What was open is taken up again at once; what was not stays as it was.
    fn phase_after_rename(&self) -> Phase {
        match &*self.phase.borrow() {
            Phase::Connected | Phase::Discovering | Phase::Ready => {
                Phase::Connecting { again: false }
            }
            // Between two attempts of those that are not planned.
            Phase::Waiting(_) if self.plan.get().is_none() => Phase::Connecting { again: true },
            phase => phase.clone(),
        }
    }

    fn is_in_use(&self) -> bool {
        let client = self.client();
        client.is_some_and(|client| client.is_in_use())
    }
}
