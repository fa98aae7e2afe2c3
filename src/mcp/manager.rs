//! [`McpClientManager`]: the servers of one object.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt as _;
use serde::Serialize;
use serde_json::value::RawValue;

use super::attached::Attached;
use super::call::CallOptions;
use super::callback::OAuthCallback;
use super::catalog::Catalog;
use super::client::How;
use super::connection::{Common, Connection};
use super::event::McpEvent;
use super::handlers::Handlers;
use super::notify::Notifier;
use super::permits::Permits;
use super::reconnect::Pending;
use super::register::RegisterServer;
use super::serial::Serial;
use super::server::{StoredServer, change};
use super::session::Identity;
use super::sign_in::Operation;
use super::slots::Slots;
use super::tool_call::ToolCall;
use super::tools::OutputCheck;
use super::{
    Connected, ConnectionInfo, ConnectionState, McpClientOptions, ServerFilter, ServerId,
    ServerItem,
};
use crate::events::{Listeners, Subscription};
use crate::oauth::StoredOAuthProvider;
use crate::ports::{DamagedRow, Ports};
use crate::protocol::request::{Call, ClientInfo, Params};
use crate::protocol::{
    CallToolResult, GetPromptResult, Prompt, ReadResourceResult, Resource, ResourceTemplate, Tool,
};
use crate::vault::{SealedStore, Vault};
use crate::{Error, Result};

/// Connects one object to MCP servers and remembers them. Cheap to clone.
///
/// Every server is a row of the table `cf_agents_mcp_servers`. A row has at most one live
/// connection; rows come back by themselves after a wake (see [`restore`](Self::restore)).
#[derive(Clone)]
pub struct McpClientManager {
    pub(super) inner: Rc<Inner>,
}

pub(super) struct Inner {
    pub(super) common: Rc<Common>,
    /// In the order of registration.
    pub(super) connections: RefCell<Vec<Rc<Connection>>>,
    /// Servers that are coming back, and who waits for them.
    pub(super) pending: Pending,
    pub(super) state_changed: Rc<Listeners<()>>,
    pub(super) events: Rc<Listeners<McpEvent>>,
    /// Whether the stored servers are known, and whether they have begun to come back.
    pub(super) restored: Cell<bool>,
    pub(super) came_back: Cell<bool>,
    /// How many rows there are, once that is known.
    pub(super) number: Cell<Option<usize>>,
    /// How many servers are connected at once in the background.
    pub(super) permits: Rc<Permits>,
    /// Changes of one server, one after the other.
    pub(super) serial: Serial,
    pub(super) callback: RefCell<Rc<OAuthCallback>>,
    pub(super) attached: RefCell<Attached>,
}

impl McpClientManager {
    /// A manager on ports of the caller's own. In a Durable Object use `McpClientManager::new`.
    pub fn on_ports(ports: Ports, name: &str, version: &str, options: McpClientOptions) -> Self {
        let state_changed = Rc::new(Listeners::default());
        let events: Rc<Listeners<McpEvent>> = Rc::default();
        let notifier = Notifier::new(state_changed.clone(), ports.spawn.clone());
        let event_listeners = events.clone();
        let identity = Identity {
            info: ClientInfo {
                name: name.to_owned(),
                version: version.to_owned(),
            },
        };
        let vault = options
            .encryption
            .clone()
            .map(|ring| Rc::new(Vault::new(ports.crypto.clone(), ring)));
        let mut ports = ports;
        ports.keys = Rc::new(SealedStore::new(ports.keys, vault.clone()));
        let common = Common {
            vault,
            authorizers: RefCell::default(),
            namespace: options
                .oauth_namespace
                .clone()
                .unwrap_or_else(|| name.to_owned()),
            providers: RefCell::default(),
            ports,
            identity: Rc::new(identity),
            slots: Slots::new(options.max_streams),
            options: Rc::new(options),
            handlers: Rc::new(Handlers::default()),
            changed: Box::new(move || notifier.notify()),
            event: Box::new(move |event| event_listeners.call(event)),
        };
        Self {
            inner: Rc::new(Inner {
                connections: RefCell::default(),
                pending: Pending::default(),
                state_changed,
                events,
                restored: Cell::new(false),
                came_back: Cell::new(false),
                number: Cell::new(None),
                serial: Serial::default(),
                permits: Permits::new(common.options.reconnect_concurrency.max(1)),
                callback: RefCell::default(),
                attached: RefCell::default(),
                common: Rc::new(common),
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
        self.register(ServerId::verbatim(id), server)
            .boxed_local()
            .await
    }

    /// Compiled once, whatever ids are made of.
    async fn register(&self, id: ServerId, server: RegisterServer) -> Result<ServerId> {
        server.validate(&id, &self.inner.common.options.url_policy)?;
        let _entered = self.inner.serial.enter(id.as_str()).await;
        let mut previous = self.server(id.as_str())?;
        if let Some(previous) = &mut previous {
            self.inner.common.reveal(previous).await?;
        }
        if previous.is_none() && self.number()? >= self.inner.common.options.max_servers {
            return Err(Error::InvalidOption(
                "there are too many servers: remove one first".into(),
            ));
        }
        let before = previous.clone();
        let (client, provider) = (server.oauth.client.clone(), server.oauth.provider.clone());
        let mut stored = server.into_stored(id.clone(), previous)?;
        if before
            .as_ref()
            .is_some_and(|before| before.url != stored.url)
        {
            // What was granted for the server before is not for this one.
            self.forget_sign_in(id.as_str()).await?;
            if client.is_none() {
                stored.client_id = None;
            }
        } else if before.is_none() {
            // Another server may have left it when moving to or from this id was interrupted.
            self.inner.common.forget_keys(id.as_str()).await?;
        }
        let mut is_given = false;
        if let Some(client) = &client {
            let context = self.inner.common.provider_context(&stored);
            let provider = StoredOAuthProvider::new(context);
            is_given = provider.save_configured(client).await?;
        }
        if let Some(provider) = provider {
            let mut providers = self.inner.common.providers.borrow_mut();
            let before = providers.insert(id.clone(), provider.clone());
            is_given |= !before.is_some_and(|before| Rc::ptr_eq(&before, &provider));
        }
        let is_other_sign_in = before
            .as_ref()
            .is_some_and(|before| is_given || !before.same_sign_in(&stored));
        if is_other_sign_in {
            // What was begun in the old way does not end in the new one.
            stored.auth_url = None;
            stored.options.authorization = None;
            self.change_sign_in(&stored).await?;
        }
        let is_same_peer = before
            .as_ref()
            .is_some_and(|before| before.same_peer(&stored));
        if let Some(before) = &before
            && !is_other_sign_in
            && self.live(id.as_str()).is_some()
            && before.encode()? == stored.encode()?
        {
            // Nothing is new.
            return Ok(id);
        }
        let previous_peer = before.is_some() && !is_same_peer;
        if self.inner.common.handlers.is_configured() {
            stored.set_offers(self.inner.common.handlers.offers());
        }
        let mut concealed = stored.clone();
        self.inner.common.conceal(&mut concealed).await?;
        self.inner.common.ports.servers.put(&concealed.encode()?)?;
        if before.is_none() {
            self.count(|number| number + 1);
        }
        match self.live(id.as_str()) {
            Some(live) if is_same_peer && !is_other_sign_in => {
                live.update(stored);
            }
            _ => {
                self.forget(id.as_str());
                if previous_peer {
                    // Tasks are the server's that was registered here before.
                    self.inner
                        .common
                        .ports
                        .tasks
                        .delete_of_server(id.as_str())?;
                    self.cancel_plan(id.as_str());
                }
                if previous_peer || is_other_sign_in {
                    // What another user is offered may be something else.
                    self.inner.common.ports.catalogs.delete(id.as_str())?;
                }
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
    pub async fn connect_to_server(&self, id: &str) -> Result<Connected> {
        let connection = self.live_or_stored(id)?;
        match connection.connect().await {
            Ok(()) => {
                self.unplan(&connection);
                Ok(Connected::Connected)
            }
            Err(Error::SignInRequired { auth_url, .. }) => {
                Ok(Connected::Authenticating { auth_url })
            }
            Err(error) => Err(error),
        }
    }

    /// What has been said about a stored server, to say it again with changes. What is not said of its
    /// sign-in stays as it is.
    ///
    /// # Errors
    /// [`Error::UnknownServer`], [`Error::DamagedRow`]; storage errors, also when headers were
    /// encrypted with a key that is not there.
    pub async fn registration(&self, id: &str) -> Result<RegisterServer> {
        let stored = self.server(id)?;
        let mut stored = stored.ok_or_else(|| Error::UnknownServer(id.to_owned()))?;
        self.inner.common.reveal(&mut stored).await?;
        Ok(RegisterServer::again(&stored))
    }

    /// The live connection, or one that is not kept.
    pub(super) fn connection_of(&self, id: &str) -> Result<Rc<Connection>> {
        if let Some(live) = self.live(id) {
            return Ok(live);
        }
        let stored = self
            .server(id)?
            .ok_or_else(|| Error::UnknownServer(id.to_owned()))?;
        Ok(Connection::new(stored, self.inner.common.clone()))
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
        if connection.opens_on_use() {
            connection.connect().await?;
        }
        let timeout = timeout.unwrap_or(self.inner.common.options.discovery_timeout);
        connection.discover(timeout)?.await?;
        self.unplan(&connection);
        Ok(connection.state())
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
        let servers = &*self.inner.common.ports.servers;
        let saved = change(servers, &id, |stored| stored.set_agreement(None));
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
        let _entered = self.inner.serial.enter(id).await;
        let forgotten = self.forget_sign_in(id).await;
        let ports = &self.inner.common.ports;
        let deleted = ports.servers.delete(id)?;
        if deleted {
            self.count(|number| number.saturating_sub(1));
        }
        self.forget(id);
        ports.tasks.delete_of_server(id)?;
        ports.catalogs.delete(id)?;
        self.cancel_plan(id);
        self.changed();
        forgotten.map(|()| deleted)
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

    /// The servers whose lists are those from before the object slept.
    pub fn stale_servers(&self) -> Vec<ServerId> {
        let connections = self.inner.connections.borrow();
        let stale = connections.iter().filter(|live| live.is_outdated());
        stale.map(|live| live.id().clone()).collect()
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
        let server = live.server();
        let session = live.session();
        let wire = session.as_ref().map(|session| session.agreed.wire.kind());
        let revision = session.as_ref().map(|session| session.agreed.revision);
        let card = session.map(|session| session.agreed.card.clone());
        let card = card.filter(|card| !card.is_assumed);
        Some(ConnectionInfo {
            state: live.state(),
            error: live.error(),
            last_error: live.last_error(),
            transport: wire,
            listening: live.is_listening(),
            // What was agreed on before the last wake is what is known of a server until then.
            revision: revision.or_else(|| server.revision()),
            card: card.or_else(|| server.card()),
            problems: live.lists.problems(),
            counts: live.lists.counts(),
            freshness: live.lists.freshness(),
            loaded_at: live.lists.loaded_at(),
        })
    }

    /// Calls `listener` after servers have changed: registered, state, catalogue, removed. What
    /// changes without waiting for anything in between is told once.
    ///
    /// A listener that holds a clone of this manager keeps it in memory for as long as it listens.
    pub fn on_server_state_changed(&self, listener: impl Fn() + 'static) -> Subscription {
        self.inner.state_changed.add(move |()| listener())
    }

    /// Calls `listener` at once with what happens to servers (connected, failed, listed, closed) and
    /// with what they tell unasked: log messages, changed lists and resources, tasks that have come
    /// further.
    pub fn on_observability_event(&self, listener: impl Fn(&McpEvent) + 'static) -> Subscription {
        self.inner.events.add(listener)
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
    /// to a JSON object; raw JSON passes through unread. Dropping the future gives the call up, and
    /// the server is told.
    ///
    /// # Errors
    /// [`Error::UnknownServer`], [`Error::NotConnected`], [`Error::UnusableTool`], [`Error::Rpc`]
    /// when the server refuses, [`Error::InvalidOutput`] when the tool has run and its structured
    /// content breaks its own schema, [`Error::InputRefused`], [`Error::Timeout`], and transport
    /// errors. After the last two the tool may have run.
    pub async fn call_tool(
        &self,
        server_id: &str,
        name: &str,
        arguments: impl Serialize,
    ) -> Result<CallToolResult> {
        self.call_tool_with(server_id, name, arguments, &CallOptions::default())
            .await
    }

    /// As [`call_tool`](Self::call_tool), with limits and listeners of its own.
    ///
    /// # Errors
    /// As [`call_tool`](Self::call_tool).
    pub async fn call_tool_with(
        &self,
        server_id: &str,
        name: &str,
        arguments: impl Serialize,
        options: &CallOptions,
    ) -> Result<CallToolResult> {
        self.call_tool_raw(server_id, name, raw(&arguments)?, options)
            .boxed_local()
            .await
    }

    /// Compiled once, whatever arguments are made of.
    async fn call_tool_raw(
        &self,
        server_id: &str,
        name: &str,
        arguments: Box<RawValue>,
        options: &CallOptions,
    ) -> Result<CallToolResult> {
        let connection = self.open_connection(server_id).await?;
        self.know_tools(&connection).await;
        let call = ToolCall {
            name,
            arguments,
            options,
            tasks: false,
            members: Vec::new(),
        };
        let outcome = connection.call_tool(call).await;
        connection
            .account(Operation::on("tools/call", name), outcome)
            .await
    }

    /// What is known of how a result fits the output schema of its tool.
    ///
    /// # Errors
    /// [`Error::UnknownServer`], [`Error::NotConnected`], [`Error::InvalidOutput`].
    pub fn check_output(
        &self,
        server_id: &str,
        name: &str,
        result: &CallToolResult,
    ) -> Result<OutputCheck> {
        let connection = self
            .live(server_id)
            .ok_or_else(|| self.why_not_live(server_id))?;
        connection.check_output(name, result)
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

    pub(super) async fn call(
        &self,
        server_id: &str,
        method: &'static str,
        target: impl Into<Option<&str>>,
        params: Params,
    ) -> Result<Box<RawValue>> {
        let call = Call {
            method,
            target: target.into().map(str::to_owned),
            params,
        };
        self.request(server_id, &call).await
    }

    /// Sends one request to a server.
    pub(super) async fn request(&self, server_id: &str, call: &Call) -> Result<Box<RawValue>> {
        let connection = self.open_connection(server_id).await?;
        let options = CallOptions::default();
        let outcome = connection
            .open_client()?
            .request(call, How::from(&options))
            .await;
        let operation = Operation {
            method: call.method,
            target: call.target.as_deref(),
        };
        connection.account(operation, outcome).await
    }

    /// The connection of a server, opened if it is just being opened.
    pub(super) async fn open_connection(&self, server_id: &str) -> Result<Rc<Connection>> {
        let Some(connection) = self.live(server_id) else {
            return Err(self.why_not_live(server_id));
        };
        let is_first_use = connection.opens_on_use();
        let is_wanted = match connection.state() {
            // Sooner than its turn after a wake, or than it is planned, if need be.
            ConnectionState::Connecting | ConnectionState::Reconnecting => true,
            ConnectionState::Failed => self.may_try_again(&connection, &connection.server()),
            _ => is_first_use,
        };
        if is_wanted {
            connection.connect().await?;
            self.unplan(&connection);
        }
        if is_wanted && !self.inner.pending.has(server_id) {
            // What is known is from before the object slept, or the server was down, and nobody else is
            // about to list it. Nobody waits for this.
            let _ = connection.discover(self.inner.common.options.discovery_timeout);
        }
        if !connection.is_usable() && connection.state() == ConnectionState::Authenticating {
            let authorizer = connection.authorizer()?;
            let is_back = match authorizer {
                // It may have been the authorization server's fault.
                Some(authorizer) => authorizer.try_again().await,
                None => false,
            };
            if !is_back && let Some(auth_url) = self.auth_url(server_id).await? {
                return Err(connection.sign_in_required(auth_url));
            }
            // Or the user has let the time pass: then there is a new URL.
            connection.is_unasked.set(true);
            connection.connect().await?;
        }
        Ok(connection)
    }

    // ---- rows and connections

    pub(super) fn rows(&self) -> Result<Vec<Result<StoredServer, DamagedRow>>> {
        let rows = self.inner.common.ports.servers.list()?;
        Ok(rows
            .into_iter()
            .map(|row| row.and_then(StoredServer::decode))
            .collect())
    }

    /// How many rows there are. They are read once: nobody else writes them.
    pub(super) fn number(&self) -> Result<usize> {
        let known = self.inner.number.get();
        let number = match known {
            Some(number) => number,
            None => self.inner.common.ports.servers.list()?.len(),
        };
        self.inner.number.set(Some(number));
        Ok(number)
    }

    fn count(&self, change: impl FnOnce(usize) -> usize) {
        self.inner.number.set(self.inner.number.get().map(change));
    }

    pub(super) fn live(&self, id: &str) -> Option<Rc<Connection>> {
        self.inner
            .connections
            .borrow()
            .iter()
            .find(|live| live.id().as_str() == id)
            .cloned()
    }

    pub(super) fn is_live(&self, connection: &Rc<Connection>) -> bool {
        self.inner
            .connections
            .borrow()
            .iter()
            .any(|live| Rc::ptr_eq(live, connection))
    }

    pub(super) fn live_or_stored(&self, id: &str) -> Result<Rc<Connection>> {
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

    pub(super) fn why_not_live(&self, id: &str) -> Error {
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
    pub(super) fn forget(&self, id: &str) {
        let live = self.live(id);
        self.inner
            .connections
            .borrow_mut()
            .retain(|other| other.id().as_str() != id);
        self.inner.pending.forget(id);
        if let Some(live) = live {
            self.unplan(&live);
            live.close();
            let server_id = live.id().clone();
            (self.inner.common.event)(&McpEvent::Closed { server_id });
        }
    }

    pub(super) fn changed(&self) {
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

pub(super) fn raw(value: &impl Serialize) -> Result<Box<RawValue>> {
    serde_json::value::to_raw_value(value)
        .map_err(|error| Error::InvalidOption(format!("not JSON: {error}")))
}

/// Members of `null` are left out: a call without arguments has no such member.
pub(super) fn params(members: impl IntoIterator<Item = (&'static str, Box<RawValue>)>) -> Params {
    members
        .into_iter()
        .filter(|(_, value)| value.get() != "null")
        .collect()
}

impl fmt::Debug for McpClientManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpClientManager")
            .field("connections", &self.inner.connections.borrow())
            .finish()
    }
}
