//! Browser sockets: accepted for hibernation, found again after a wake, told what changes.
//!
//! [`Hooks`](crate::Hooks) decides what happens on them; `lifecycle/sockets.rs` calls it.

mod attachment;
mod call;
mod connection;
pub(crate) mod frames;
pub(crate) mod state;

use std::cell::RefCell;
use std::fmt;
use std::rc::{Rc, Weak};

use futures::future::LocalBoxFuture;
use wasm_bindgen::JsValue;
use worker::{State, WebSocket, WebSocketPair};

use self::attachment::Attachment;
use self::state::SharedState;
use crate::events::{Listeners, Subscription};
use crate::ports::StateStore;
use crate::{Error, Result};

pub(crate) use attachment::Flags;
pub use attachment::RefusedConnection;
pub use call::{Call, CallError, CallResult};
pub use connection::{Connection, Message};

/// Limits of the sockets of an object.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WebSocketOptions {
    /// The most connections at a time. Default 10 000; the platform takes 32 768.
    pub max_connections: usize,
    /// The largest frame that is read from a browser, and the largest about servers that is sent, in
    /// bytes. Default 8 MiB; the platform takes 32 MiB.
    pub max_frame_bytes: usize,
    /// The most calls of one connection that are answered at a time. Default 64.
    pub max_calls: usize,
    /// The largest state, in bytes of JSON. Default 1 MiB; a row of the database takes 2 MB.
    pub max_state_bytes: usize,
}

impl Default for WebSocketOptions {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_frame_bytes: 8 << 20,
            max_calls: 64,
            max_state_bytes: 1 << 20,
        }
    }
}

/// The sockets of one object. Cheap to clone.
#[derive(Clone)]
pub struct WebSockets {
    inner: Rc<Inner>,
}

/// A handle that keeps nothing in memory.
#[derive(Clone)]
pub(crate) struct WeakWebSockets(Weak<Inner>);

impl WeakWebSockets {
    /// `None` once the object has left memory.
    pub(crate) fn upgrade(&self) -> Option<WebSockets> {
        let inner = self.0.upgrade()?;
        Some(WebSockets { inner })
    }
}

struct Inner {
    platform: Rc<State>,
    options: WebSocketOptions,
    /// Those that are open, once somebody has asked.
    connections: RefCell<Option<Vec<Connection>>>,
    state: SharedState,
    identity: RefCell<Option<Identity>>,
    greetings: RefCell<Vec<Rc<Greeting>>>,
    /// Methods of capabilities.
    methods: RefCell<Vec<(&'static str, Rc<Method>)>>,
    closed: Listeners<Connection>,
    state_changed: Listeners<()>,
}

/// Who the browsers are told they talk to.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) name: String,
    /// In kebab case.
    pub(crate) class: String,
}

/// What else a new connection is told.
type Greeting = dyn Fn(&Connection) -> LocalBoxFuture<'static, ()>;
/// What answers a method.
type Method = dyn Fn(&Call) -> CallResult;

impl WebSockets {
    /// The sockets of the object that `platform` is the state of. `store` keeps what it shares.
    pub(crate) fn new(
        platform: Rc<State>,
        store: Rc<dyn StateStore>,
        options: WebSocketOptions,
    ) -> Self {
        Self {
            inner: Rc::new(Inner {
                state: SharedState::new(store, options.max_state_bytes),
                platform,
                options,
                connections: RefCell::default(),
                identity: RefCell::default(),
                greetings: RefCell::default(),
                methods: RefCell::default(),
                closed: Listeners::default(),
                state_changed: Listeners::default(),
            }),
        }
    }

    /// A handle for what the sockets themselves hold.
    pub(crate) fn downgrade(&self) -> WeakWebSockets {
        WeakWebSockets(Rc::downgrade(&self.inner))
    }

    /// The open connections.
    pub fn connections(&self) -> Vec<Connection> {
        self.read();
        let connections = self.inner.connections.borrow();
        let open = connections.iter().flatten();
        open.filter(|connection| connection.is_open())
            .cloned()
            .collect()
    }

    /// The open connections that have a tag.
    pub fn connections_tagged(&self, tag: &str) -> Vec<Connection> {
        let mut connections = self.connections();
        connections.retain(|connection| connection.has_tag(tag));
        connections
    }

    /// The open connection of an id.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] when several have it.
    pub fn connection(&self, id: &str) -> Result<Option<Connection>> {
        let mut found = self.connections();
        found.retain(|connection| connection.has_id(id));
        if found.len() > 1 {
            return Err(Error::InvalidOption(format!(
                "more than one connection has the id {id:?}; use connections_tagged"
            )));
        }
        Ok(found.pop())
    }

    /// Sends a text to every connection, except those with these ids.
    pub fn broadcast(&self, text: &str, without: &[&str]) {
        self.send_where(text, |connection| {
            !without.iter().any(|id| connection.has_id(id))
        });
    }

    /// Calls `listener` after a connection has ended, before
    /// [`Hooks::on_close`](crate::Hooks::on_close).
    pub fn on_closed(&self, listener: impl Fn(&Connection) + 'static) -> Subscription {
        self.inner.closed.add(listener)
    }

    /// Calls `listener` after the state has changed, whoever changed it.
    pub fn on_state_changed(&self, listener: impl Fn() + 'static) -> Subscription {
        self.inner.state_changed.add(move |()| listener())
    }

    pub(crate) fn options(&self) -> &WebSocketOptions {
        &self.inner.options
    }

    pub(crate) fn state(&self) -> &SharedState {
        &self.inner.state
    }

    /// What new connections are told of the object. Nothing, where this is not called.
    pub(crate) fn introduce(&self, identity: Option<Identity>) {
        self.inner.identity.replace(identity);
    }

    /// Calls this for each new connection that takes frames, after identity and state.
    pub(crate) fn greet(
        &self,
        greeting: impl Fn(&Connection) -> LocalBoxFuture<'static, ()> + 'static,
    ) {
        self.inner.greetings.borrow_mut().push(Rc::new(greeting));
    }

    /// As [`greet`](Self::greet), where nothing is waited for.
    pub(crate) fn also_greet(&self, greeting: impl Fn(&Connection) + 'static) {
        self.greet(move |connection| {
            greeting(connection);
            Box::pin(std::future::ready(()))
        });
    }

    /// Answers a method, in the place of the host.
    pub(crate) fn handle(
        &self,
        method: &'static str,
        handler: impl Fn(&Call) -> CallResult + 'static,
    ) {
        self.inner
            .methods
            .borrow_mut()
            .push((method, Rc::new(handler)));
    }

    /// What answers a method that is not the host's.
    pub(crate) fn method(&self, name: &str) -> Option<Rc<Method>> {
        let methods = self.inner.methods.borrow();
        let (_, handler) = methods.iter().find(|(known, _)| *known == name)?;
        Some(handler.clone())
    }

    /// How many connections `is_meant` picks.
    pub(crate) fn count_where(&self, is_meant: impl Fn(&Connection) -> bool) -> usize {
        self.connections()
            .iter()
            .filter(|one| is_meant(one))
            .count()
    }

    /// Whether anybody is told what changes.
    pub(crate) fn has_listeners(&self) -> bool {
        self.connections()
            .iter()
            .any(Connection::is_sent_protocol_messages)
    }

    /// Stores a state and tells everybody but its source.
    pub(crate) fn set_state(&self, text: &str, source: Option<&Connection>) -> Result<()> {
        if !self.inner.state.set(text)? {
            return Ok(());
        }
        let source = source.map(Connection::key);
        self.send_where(&frames::state(text), |connection| {
            connection.is_sent_protocol_messages()
                && !source.as_ref().is_some_and(|key| connection.is(key))
        });
        self.inner.state_changed.call(&());
        Ok(())
    }

    /// Sends a text to the connections that `is_meant` picks.
    pub(crate) fn send_where(&self, text: &str, is_meant: impl Fn(&Connection) -> bool) {
        let connections = self.connections();
        let mut meant = connections.iter().filter(|one| is_meant(one)).peekable();
        if meant.peek().is_none() {
            return;
        }
        let text = JsValue::from_str(text);
        for connection in meant {
            connection.send_js(&text);
        }
    }

    /// Accepts a socket. What is returned second goes to the client.
    pub(crate) fn accept(
        &self,
        id: String,
        tags: Vec<String>,
        url: &str,
        mut flags: Flags,
    ) -> Result<(Connection, WebSocket)> {
        if self.connections().len() >= self.inner.options.max_connections {
            return Err(RefusedConnection::TooMany.into());
        }
        flags.key = random_key()?;
        let attachment = Attachment::new(id, tags, url, flags)?;
        let WebSocketPair { client, server } = WebSocketPair::new()?;
        let tags = attachment.address.tags.iter();
        let tags = tags.map(|tag| JsValue::from_str(tag)).collect();
        // Not the state's own method, which panics when the platform refuses.
        let platform = self.inner.platform.as_raw();
        platform
            .accept_websocket_with_tags(server.as_ref(), tags)
            .map_err(worker::Error::from)?;
        let connection = Connection::new(server, attachment)?;
        if let Some(connections) = &mut *self.inner.connections.borrow_mut() {
            connections.push(connection.clone());
        }
        Ok((connection, client))
    }

    /// Tells a new connection whom it talks to, and how things stand.
    pub(crate) async fn welcome(&self, connection: &Connection) -> Result<()> {
        if !connection.is_sent_protocol_messages() {
            return Ok(());
        }
        let state = self.inner.state.text()?;
        let identity = self.inner.identity.borrow().clone();
        if let Some(Identity { name, class }) = identity {
            connection.send(&frames::identity(&name, &class, state.is_some()));
        }
        if let Some(state) = state {
            connection.send(&frames::state(&state));
        }
        let greetings = self.inner.greetings.borrow().clone();
        for greeting in greetings {
            greeting(connection).await;
        }
        Ok(())
    }

    /// The connection of a socket. `None`: it was accepted by somebody else.
    pub(crate) fn find(&self, socket: &WebSocket) -> Option<Connection> {
        self.read();
        let found = Connection::of(socket)?;
        let key = found.key();
        let connections = self.inner.connections.borrow();
        let known = connections.iter().flatten().find(|known| known.is(&key));
        Some(known.cloned().unwrap_or(found))
    }

    /// A connection has ended.
    pub(crate) fn forget(&self, connection: &Connection) {
        let key = connection.key();
        if let Some(connections) = &mut *self.inner.connections.borrow_mut() {
            connections.retain(|other| !other.is(&key));
        }
        self.inner.closed.call(connection);
    }

    /// Ends every connection: the object goes away.
    pub(crate) fn close_all(&self) {
        for connection in self.connections() {
            // Nothing is wrong with the code or the reason.
            let _ = connection.close(1001, "Durable Object destroyed");
        }
    }

    /// Finds the sockets that were accepted before the object slept.
    fn read(&self) {
        if self.inner.connections.borrow().is_some() {
            return;
        }
        // Not the state's own method, which panics.
        let platform = self.inner.platform.as_raw();
        let sockets = platform.get_websockets().unwrap_or_default();
        let sockets = sockets.into_iter().map(WebSocket::from);
        let connections = sockets.filter_map(|socket| Connection::of(&socket));
        let connections = connections.collect();
        self.inner.connections.replace(Some(connections));
    }
}

/// 16 hexadecimal digits.
fn random_key() -> Result<String> {
    let random = getrandom::u64().map_err(|error| Error::Runtime(error.to_string()))?;
    Ok(format!("{random:016x}"))
}

impl fmt::Debug for WebSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSockets").finish_non_exhaustive()
    }
}
