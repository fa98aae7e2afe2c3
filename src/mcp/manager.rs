//! [`McpClientManager`]: the servers of one object.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::join_all;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::catalog::{Catalog, ListProblem};
use super::connection::{Common, Connection};
use super::permits::Permits;
use super::server::{RegisterServer, StoredServer, save_session};
use super::session::Identity;
use super::{ConnectionState, McpClientOptions, ServerFilter, ServerId};
use crate::events::{Listeners, Subscription};
use crate::ports::{DamagedRow, Ports};
use crate::protocol::request::{Call, ClientInfo, Params};
use crate::protocol::{
    CallToolResult, GetPromptResult, Prompt, ReadResourceResult, Resource, ResourceTemplate,
    Revision, Tool,
};
use crate::{Error, Result};

/// How long a server may put off the next attempt at most.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

/// Connects one object to MCP servers and remembers them. Cheap to clone.
///
/// Every server is a row of the table `cf_agents_mcp_servers`. A row has at most one live
/// connection; rows come back by themselves after a wake (see [`restore`](Self::restore)).
#[derive(Clone)]
pub struct McpClientManager {
    inner: Rc<Inner>,
}

struct Inner {
    common: Rc<Common>,
    /// In the order of registration.
    connections: RefCell<Vec<Rc<Connection>>>,
    /// Who waits for work in the background, by the server it is about.
    pending: RefCell<HashMap<ServerId, Pending>>,
    next_pending: Cell<u64>,
    state_changed: Rc<Listeners<()>>,
    restored: Cell<bool>,
}

struct Pending {
    /// Tells work apart from the work that replaced it.
    number: u64,
    waiting: Vec<oneshot::Sender<()>>,
}

/// What [`McpClientManager::connection`] says about a live connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// Its state.
    pub state: ConnectionState,
    /// Why connecting, or the last discovery, failed. Holds no secret, but text from the server.
    pub error: Option<Error>,
    /// The revision spoken, once agreed on.
    pub revision: Option<Revision>,
    /// What the server said about itself, once agreed on.
    pub card: Option<crate::protocol::model::ServerCard>,
    /// Lists that could not be loaded, each with the reason.
    pub problems: Vec<ListProblem>,
    /// How many tools, prompts, resources and resource templates are known.
    pub counts: CatalogCounts,
}

/// Sizes of a catalogue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogCounts {
    /// Tools.
    pub tools: usize,
    /// Prompts.
    pub prompts: usize,
    /// Resources.
    pub resources: usize,
    /// Resource templates.
    pub resource_templates: usize,
}

/// An item of an aggregated list. Serialises as the server sent it, plus `serverId`.
#[derive(Debug, Clone)]
pub struct ServerItem<T> {
    /// The server that offers it.
    pub server_id: ServerId,
    /// The item.
    pub item: T,
}

impl McpClientManager {
    /// A manager on ports of the caller's own. In a Durable Object use `McpClientManager::new`.
    pub fn on_ports(ports: Ports, name: &str, version: &str, options: McpClientOptions) -> Self {
        let state_changed = Rc::new(Listeners::default());
        let listeners = state_changed.clone();
        let identity = Identity {
            info: ClientInfo {
                name: name.to_owned(),
                version: version.to_owned(),
            },
            capabilities: serde_json::json!({}),
        };
        let common = Common {
            ports,
            identity: Rc::new(identity),
            options: Rc::new(options),
            changed: Box::new(move || listeners.call(&())),
        };
        Self {
            inner: Rc::new(Inner {
                common: Rc::new(common),
                connections: RefCell::default(),
                pending: RefCell::default(),
                state_changed,
                next_pending: Cell::new(0),
                restored: Cell::new(false),
            }),
        }
    }

    // ---- servers

    /// Stores a server without connecting. Sends nothing.
    ///
    /// The id is stored as it is; make one from any text with [`ServerId::normalize`]. An id that
    /// is registered already is registered anew: the row is replaced, and if URL, transport or
    /// headers changed, the live connection is closed and replaced too.
    ///
    /// # Errors
    /// [`Error::BlockedUrl`], [`Error::InvalidRetry`], [`Error::UnsupportedTransport`],
    /// [`Error::InvalidOption`] for an empty or absurdly long id, name or URL, a header that is none,
    /// or too many servers; [`Error::DamagedRow`] when the id belongs to a row that cannot be read.
    pub async fn register_server(
        &self,
        id: impl Into<Rc<str>>,
        server: RegisterServer,
    ) -> Result<ServerId> {
        let id = ServerId::verbatim(id);
        server.validate(&id)?;
        let previous = self.server(id.as_str())?;
        if previous.is_none() && self.rows()?.len() >= self.inner.common.options.max_servers {
            return Err(Error::InvalidOption(
                "there are too many servers: remove one first".into(),
            ));
        }
        let stored = server.into_stored(id.clone(), previous)?;
        self.inner.common.ports.servers.put(&stored.encode()?)?;
        match self.live(id.as_str()) {
            Some(live) if live.server().same_peer(&stored) => live.update(stored),
            _ => {
                self.forget(id.as_str());
                let connection = Connection::new(stored, self.inner.common.clone());
                self.inner.connections.borrow_mut().push(connection);
            }
        }
        self.changed();
        Ok(id)
    }

    /// Opens the connection to a stored server, or joins the attempt that is under way. One
    /// attempt, no retry, no listing: call [`discover_if_connected`](Self::discover_if_connected)
    /// next.
    ///
    /// # Errors
    /// [`Error::UnknownServer`], [`Error::DamagedRow`], or why connecting failed; the state is
    /// `failed` then and the row stays.
    pub async fn connect_to_server(&self, id: &str) -> Result<()> {
        self.live_or_stored(id)?.connect().await
    }

    /// Loads a server's tools, prompts, resources and templates, or joins the load under way.
    /// `timeout` replaces the configured one. May be called again to refresh.
    ///
    /// # Errors
    /// [`Error::UnknownServer`]; [`Error::NotConnected`] when there is no open connection; otherwise
    /// why loading failed. The connection stays open then, and the catalogue is what it was.
    pub async fn discover_if_connected(
        &self,
        id: &str,
        timeout: Option<Duration>,
    ) -> Result<ConnectionState> {
        let connection = self.live(id).ok_or_else(|| self.why_not_live(id))?;
        let timeout = timeout.unwrap_or(self.inner.common.options.discovery_timeout);
        connection.discover(timeout)?.await?;
        Ok(connection.state())
    }

    /// Waits until the connections that are coming back after a wake have settled, well or badly,
    /// at most for `timeout`. `None` waits without limit.
    pub async fn wait_for_connections(&self, timeout: Option<Duration>) {
        let waiting: Vec<_> = self
            .inner
            .pending
            .borrow_mut()
            .values_mut()
            .map(Pending::wait)
            .collect();
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
                drop(
                    super::within::within(&*self.inner.common.ports.clock, timeout, "", all).await,
                );
            }
        }
    }

    /// Closes a connection and keeps the server stored.
    ///
    /// # Errors
    /// [`Error::UnknownServer`]; [`Error::NotConnected`] when there is no live connection; storage
    /// errors.
    pub async fn close_connection(&self, id: &str) -> Result<()> {
        let connection = self.live(id).ok_or_else(|| self.why_not_live(id))?;
        let id = connection.id().clone();
        self.forget(id.as_str());
        let saved = save_session(&*self.inner.common.ports.servers, &id, None);
        self.changed();
        saved
    }

    /// Closes every connection and keeps the servers stored.
    ///
    /// # Errors
    /// Storage errors; every connection is closed all the same.
    pub async fn close_all_connections(&self) -> Result<()> {
        let ids: Vec<ServerId> = self
            .inner
            .connections
            .borrow()
            .iter()
            .map(|live| live.id().clone())
            .collect();
        let mut outcome = Ok(());
        for id in ids {
            outcome = self.close_connection(id.as_str()).await.and(outcome);
        }
        outcome
    }

    /// Closes the connection and deletes the server. Says whether the server existed.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn remove_server(&self, id: &str) -> Result<bool> {
        let deleted = self.inner.common.ports.servers.delete(id)?;
        self.forget(id);
        self.changed();
        Ok(deleted)
    }

    /// Every stored server whose row can be read.
    ///
    /// # Errors
    /// Storage errors.
    pub fn list_servers(&self) -> Result<Vec<StoredServer>> {
        Ok(self.rows()?.into_iter().filter_map(Result::ok).collect())
    }

    /// One stored server.
    ///
    /// # Errors
    /// [`Error::DamagedRow`]; storage errors.
    pub fn server(&self, id: &str) -> Result<Option<StoredServer>> {
        let row = self.inner.common.ports.servers.get(id)?;
        Ok(row
            .map(|row| row.and_then(StoredServer::decode))
            .transpose()?)
    }

    /// The rows that cannot be read, each with the reason. They are kept as they are; remove one
    /// with [`remove_server`](Self::remove_server).
    ///
    /// # Errors
    /// Storage errors.
    pub fn damaged_servers(&self) -> Result<Vec<DamagedRow>> {
        Ok(self.rows()?.into_iter().filter_map(Result::err).collect())
    }

    /// The live connection of a server, if there is one.
    pub fn connection(&self, id: &str) -> Option<ConnectionInfo> {
        let live = self.live(id)?;
        let catalog = live.catalog();
        let session = live.session();
        Some(ConnectionInfo {
            state: live.state(),
            error: live.error(),
            revision: session.as_ref().map(|session| session.revision),
            card: session.map(|session| session.card.clone()),
            problems: catalog.problems.clone(),
            counts: CatalogCounts {
                tools: catalog.tools.len(),
                prompts: catalog.prompts.len(),
                resources: catalog.resources.len(),
                resource_templates: catalog.templates.len(),
            },
        })
    }

    /// Calls `listener` after every change of a server: registered, state, catalogue, removed.
    ///
    /// A listener that holds a clone of this manager keeps it in memory for as long as it listens.
    pub fn on_server_state_changed(&self, listener: impl Fn() + 'static) -> Subscription {
        self.inner.state_changed.add(move |()| listener())
    }

    // ---- what servers offer

    /// The tools of the selected live servers, in the servers' order.
    pub fn list_tools(&self, filter: &ServerFilter) -> Vec<ServerItem<Tool>> {
        self.items(filter, |catalog| catalog.tools.clone())
    }

    /// The prompts of the selected live servers, in the servers' order.
    pub fn list_prompts(&self, filter: &ServerFilter) -> Vec<ServerItem<Prompt>> {
        self.items(filter, |catalog| catalog.prompts.clone())
    }

    /// The resources of the selected live servers, in the servers' order.
    pub fn list_resources(&self, filter: &ServerFilter) -> Vec<ServerItem<Resource>> {
        self.items(filter, |catalog| catalog.resources.clone())
    }

    /// The resource templates of the selected live servers, in the servers' order.
    pub fn list_resource_templates(
        &self,
        filter: &ServerFilter,
    ) -> Vec<ServerItem<ResourceTemplate>> {
        self.items(filter, |catalog| catalog.templates.clone())
    }

    /// Calls a tool. A tool that fails says so in its result
    /// ([`is_error`](CallToolResult::is_error)); that is no error here.
    ///
    /// Waits for a connection that is just being opened. `arguments` is anything that serialises
    /// to a JSON object; raw JSON passes through unread.
    ///
    /// # Errors
    /// [`Error::UnknownServer`], [`Error::NotConnected`], [`Error::Rpc`] when the server refuses,
    /// [`Error::Timeout`], and transport errors. After the last two the tool may have run.
    pub async fn call_tool(
        &self,
        server_id: &str,
        name: &str,
        arguments: impl Serialize,
    ) -> Result<CallToolResult> {
        let params = params([("name", raw(&name)?), ("arguments", raw(&arguments)?)]);
        self.call(server_id, "tools/call", name, params)
            .await
            .map(CallToolResult::new)
    }

    /// Gets a prompt. `arguments` is anything that serialises to an object of strings.
    ///
    /// # Errors
    /// As [`call_tool`](Self::call_tool).
    pub async fn get_prompt(
        &self,
        server_id: &str,
        name: &str,
        arguments: impl Serialize,
    ) -> Result<GetPromptResult> {
        let params = params([("name", raw(&name)?), ("arguments", raw(&arguments)?)]);
        self.call(server_id, "prompts/get", name, params)
            .await
            .map(GetPromptResult::new)
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// As [`call_tool`](Self::call_tool).
    pub async fn read_resource(&self, server_id: &str, uri: &str) -> Result<ReadResourceResult> {
        let params = params([("uri", raw(&uri)?)]);
        self.call(server_id, "resources/read", uri, params)
            .await
            .map(ReadResourceResult::new)
    }

    async fn call(
        &self,
        server_id: &str,
        method: &'static str,
        target: &str,
        params: Params,
    ) -> Result<Box<RawValue>> {
        let Some(connection) = self.live(server_id) else {
            return Err(self.why_not_live(server_id));
        };
        if connection.state() == ConnectionState::Connecting {
            // Sooner than its turn after a wake, if need be.
            connection.connect().await?;
        }
        let call = Call {
            method,
            target: Some(target.to_owned()),
            params,
        };
        connection.open_client()?.request(&call).await
    }

    // ---- waking

    /// Brings every stored server back: connects and lists, in the background, a few at a time, each
    /// by its own retry policy. Called once, when the object starts; again it does nothing.
    ///
    /// A row that cannot be read is left alone and stops nobody. A server that waits for its user
    /// to sign in is parked.
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
            if parked {
                continue;
            }
            let number = self.begin(connection.id());
            let (this, permits) = (self.clone(), permits.clone());
            self.inner.common.ports.spawn.spawn(Box::pin(async move {
                // The outcome is in the connection's state, for whoever looks.
                let _ = this.come_back(&connection, &permits).await;
                this.settle(connection.id(), number);
            }));
        }
        Ok(())
    }

    async fn come_back(&self, connection: &Rc<Connection>, permits: &Rc<Permits>) -> Result<()> {
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
            failed += 1;
            if failed >= retry.max_attempts || !error.is_transient() {
                return Err(error);
            }
            let delay = retry.delay(failed, getrandom::u64().unwrap_or(u64::MAX / 2));
            let asked = error.retry_after().unwrap_or_default().min(MAX_RETRY_AFTER);
            self.inner.common.ports.clock.sleep(delay.max(asked)).await;
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

    fn begin(&self, id: &ServerId) -> u64 {
        let number = self.inner.next_pending.get();
        self.inner.next_pending.set(number + 1);
        self.inner.pending.borrow_mut().insert(
            id.clone(),
            Pending {
                number,
                waiting: Vec::new(),
            },
        );
        number
    }

    fn settle(&self, id: &ServerId, number: u64) {
        let mut pending = self.inner.pending.borrow_mut();
        if pending.get(id).is_some_and(|entry| entry.number == number) {
            // Dropping the senders tells those who wait.
            pending.remove(id);
        }
    }

    // ---- rows and connections

    fn rows(&self) -> Result<Vec<Result<StoredServer, DamagedRow>>> {
        let rows = self.inner.common.ports.servers.list()?;
        Ok(rows
            .into_iter()
            .map(|row| row.and_then(StoredServer::decode))
            .collect())
    }

    fn live(&self, id: &str) -> Option<Rc<Connection>> {
        self.inner
            .connections
            .borrow()
            .iter()
            .find(|live| live.id().as_str() == id)
            .cloned()
    }

    fn is_live(&self, connection: &Rc<Connection>) -> bool {
        self.inner
            .connections
            .borrow()
            .iter()
            .any(|live| Rc::ptr_eq(live, connection))
    }

    fn live_or_stored(&self, id: &str) -> Result<Rc<Connection>> {
        if let Some(live) = self.live(id) {
            return Ok(live);
        }
        let stored = self
            .server(id)?
            .ok_or_else(|| Error::UnknownServer(id.to_owned()))?;
        let connection = Connection::new(stored, self.inner.common.clone());
        self.inner.connections.borrow_mut().push(connection.clone());
        Ok(connection)
    }

    fn why_not_live(&self, id: &str) -> Error {
        match self.server(id) {
            Ok(Some(stored)) => Error::NotConnected {
                id: stored.id,
                state: ConnectionState::NotConnected,
                error: None,
            },
            Ok(None) => Error::UnknownServer(id.to_owned()),
            Err(error) => error,
        }
    }

    /// Closes and drops the live connection of a server.
    fn forget(&self, id: &str) {
        let live = self.live(id);
        self.inner
            .connections
            .borrow_mut()
            .retain(|other| other.id().as_str() != id);
        self.inner.pending.borrow_mut().remove(id);
        if let Some(live) = live {
            live.close();
        }
    }

    fn changed(&self) {
        (self.inner.common.changed)();
    }

    fn items<T: Clone>(
        &self,
        filter: &ServerFilter,
        list: fn(&Catalog) -> Rc<[T]>,
    ) -> Vec<ServerItem<T>> {
        let connections = self.inner.connections.borrow();
        let selected = connections
            .iter()
            .filter(|live| filter.matches(live.id(), &live.server().name, live.state()));
        let mut items = Vec::new();
        for live in selected {
            let list = list(&live.catalog());
            items.extend(list.iter().map(|item| ServerItem {
                server_id: live.id().clone(),
                item: item.clone(),
            }));
        }
        items
    }
}

impl Pending {
    fn wait(&mut self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.retain(|waiting| !waiting.is_canceled());
        self.waiting.push(sender);
        receiver
    }
}

fn raw(value: &impl Serialize) -> Result<Box<RawValue>> {
    serde_json::value::to_raw_value(value)
        .map_err(|error| Error::InvalidOption(format!("not JSON: {error}")))
}

/// Members of `null` are left out: a call without arguments has no such member.
fn params<const N: usize>(members: [(&'static str, Box<RawValue>); N]) -> Params {
    members
        .into_iter()
        .filter(|(_, value)| value.get() != "null")
        .collect()
}

impl<T: Serialize> Serialize for ServerItem<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::Error as _;
        let item = serde_json::to_string(&self.item).map_err(S::Error::custom)?;
        let id = serde_json::to_string(&self.server_id).map_err(S::Error::custom)?;
        // Last, so that it wins over a member of the same name in the server's text.
        let open = item
            .trim_end()
            .strip_suffix('}')
            .ok_or_else(|| S::Error::custom("not an object"))?;
        let comma = if open.trim_end().ends_with('{') {
            ""
        } else {
            ","
        };
        RawValue::from_string(format!("{open}{comma}\"serverId\":{id}}}"))
            .map_err(S::Error::custom)?
            .serialize(serializer)
    }
}

impl fmt::Debug for McpClientManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpClientManager")
            .field("connections", &self.inner.connections.borrow())
            .finish()
    }
}
