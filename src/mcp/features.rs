//! The rest of what a host can say to servers and for its user: handlers, subscriptions,
//! completion, logging, ping.

use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use super::call::{CallOptions, LogLevel};
use super::client::How;
use super::connection::Connection;
use super::elicitation::ElicitationHandlers;
use super::handlers::{Root, SamplingRequest, SamplingResult, boxed_sampling};
use super::manager::{params, raw};
use super::server::change;
use super::sign_in::Operation;
use super::{ConnectionState, McpClientManager, ServerId};
use crate::protocol::RpcError;
use crate::protocol::bounded::{raw_member, small_member};
use crate::protocol::request::Call;
use crate::transport::TransportKind;
use crate::{Error, Result};

/// How long a server may take to answer a ping.
const PING_LIMIT: Duration = Duration::from_secs(10);
/// The most suggestions of a completion (2025-11-25, completion), and the longest list that is read.
const MAX_VALUES: usize = 100;
const MAX_COMPLETION: usize = 256 << 10;

/// What is being completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type")]
pub enum CompletionTarget {
    /// An argument of a prompt.
    #[serde(rename = "ref/prompt")]
    Prompt {
        /// The prompt's name.
        name: String,
    },
    /// A variable of a resource template.
    #[serde(rename = "ref/resource")]
    Resource {
        /// The template.
        uri: String,
    },
}

/// Suggestions for the value of an argument.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Completion {
    /// The values, at most 100, the best first.
    pub values: Vec<String>,
    /// How many there are in all, where the server said so.
    pub total: Option<u64>,
    /// Whether there are more.
    pub has_more: bool,
}

impl McpClientManager {
    /// Sets who answers when a server asks the user something. Replaces the handlers before; none at
    /// all means that servers are no longer told that they may ask.
    ///
    /// Takes effect at once for questions of the modes that a server was told of, and for what new
    /// sessions are told. What was told is stored with each server, so that a session which is taken
    /// up after a wake is told the same before the host has had its turn.
    pub fn configure_elicitation_handlers(&self, handlers: ElicitationHandlers) {
        self.inner.common.handlers.set_elicitation(handlers);
        self.stamp();
    }

    /// Sets who answers when a server asks for a model's completion; `None` answers no more.
    pub fn configure_sampling(
        &self,
        handler: impl AsyncFn(SamplingRequest, ServerId) -> Result<SamplingResult> + 'static,
    ) {
        let handler = boxed_sampling(handler);
        self.inner.common.handlers.set_sampling(Some(handler));
        self.stamp();
    }

    /// Answers no more sampling requests.
    pub fn clear_sampling(&self) {
        self.inner.common.handlers.set_sampling(None);
        self.stamp();
    }

    /// Sets the places that servers are let know of; `None` declares nothing. Servers of the legacy
    /// era that know of roots are told that they have changed.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a root that is no `file://` URI.
    pub fn configure_roots(&self, roots: Option<Vec<Root>>) -> Result<()> {
        self.inner.common.handlers.set_roots(roots)?;
        self.stamp();
        let live: Vec<Rc<Connection>> = self.inner.connections.borrow().clone();
        for connection in live {
            if let Ok(client) = connection.open_client() {
                client.tell_roots_changed();
            }
        }
        Ok(())
    }

    /// Stores with every server that is live what it is going to be told, where that is something
    /// else than before. Others are told, and stamped, when they are connected.
    fn stamp(&self) {
        let offers = self.inner.common.handlers.offers();
        let servers = &*self.inner.common.ports.servers;
        let live: Vec<Rc<Connection>> = self.inner.connections.borrow().clone();
        for connection in live {
            let server = connection.server();
            if matches!(server.transport(), TransportKind::Other(_)) {
                continue;
            }
            // What cannot be stored is told anew by the host when it wakes.
            let _ = change(servers, connection.id(), |stored| stored.set_offers(offers));
        }
    }

    /// Asks to be told when a resource changes: see
    /// [`McpEvent::ResourceUpdated`](super::McpEvent::ResourceUpdated). Holds until
    /// [`unsubscribe_resource`](Self::unsubscribe_resource), over lost sessions, and not over a wake.
    ///
    /// Changes are heard while the server has a stream: see
    /// [`McpClientOptions::streams`](super::McpClientOptions::streams).
    ///
    /// # Errors
    /// As [`call_tool`](Self::call_tool).
    pub async fn subscribe_resource(&self, server_id: &str, uri: &str) -> Result<()> {
        let connection = self.open_connection(server_id).await?;
        let client = connection.open_client()?;
        if !connection.wishes().subscribe(uri) {
            return Ok(());
        }
        let outcome = client.subscribe(uri, true).await;
        if outcome.is_err() {
            connection.wishes().unsubscribe(uri);
        }
        let operation = Operation::on("resources/subscribe", uri);
        connection.account(operation, outcome).await
    }

    /// Ends a subscription.
    ///
    /// # Errors
    /// As [`call_tool`](Self::call_tool).
    pub async fn unsubscribe_resource(&self, server_id: &str, uri: &str) -> Result<()> {
        let connection = self.open_connection(server_id).await?;
        let client = connection.open_client()?;
        if !connection.wishes().unsubscribe(uri) {
            return Ok(());
        }
        let outcome = client.subscribe(uri, false).await;
        let operation = Operation::on("resources/subscribe", uri);
        connection.account(operation, outcome).await
    }

    /// Says from which level on a server of the legacy era sends log messages: see
    /// [`McpEvent::Log`](super::McpEvent::Log). One of the modern era is asked at every call:
    /// [`CallOptions::log_level`].
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a server of the modern era; else as
    /// [`call_tool`](Self::call_tool).
    pub async fn set_log_level(&self, server_id: &str, level: LogLevel) -> Result<()> {
        let connection = self.open_connection(server_id).await?;
        let client = connection.open_client()?;
        if client.session().is_some_and(|session| session.is_modern()) {
            return Err(Error::InvalidOption(
                "this server takes a log level with each call only".into(),
            ));
        }
        connection.wishes().set_log_level(level);
        let outcome = client.set_log_level(level).await;
        let operation = Operation::of("logging/setLevel");
        connection.account(operation, outcome).await
    }

    /// Asks a server for values of an argument. `chosen` is anything that serialises to an object of
    /// arguments that have been chosen already; `()` is none.
    ///
    /// # Errors
    /// As [`call_tool`](Self::call_tool).
    pub async fn complete(
        &self,
        server_id: &str,
        target: &CompletionTarget,
        argument: &str,
        value: &str,
        chosen: impl Serialize,
    ) -> Result<Completion> {
        let argument = serde_json::json!({"name": argument, "value": value});
        let chosen = Some(raw(&chosen)?).filter(|chosen| chosen.get() != "null");
        let context = chosen.map(|arguments| raw(&Context { arguments }));
        let mut members = vec![("ref", raw(target)?), ("argument", raw(&argument)?)];
        members.extend(context.transpose()?.map(|context| ("context", context)));
        let call = Call {
            method: "completion/complete",
            target: None,
            params: params(members),
        };
        let result = self.request(server_id, &call).await?;
        Ok(read_completion(&result))
    }

    /// Asks a server whether it is there. One that answers that it does not know the question is.
    ///
    /// # Errors
    /// [`Error::UnknownServer`], [`Error::NotConnected`], and why there was no answer.
    pub async fn ping(&self, server_id: &str) -> Result<()> {
        let connection = self.open_connection(server_id).await?;
        let client = connection.open_client()?;
        // The modern era has no ping; every server answers this (2026-07-28, discover).
        let is_modern = client.session().is_some_and(|session| session.is_modern());
        let method = if is_modern { "server/discover" } else { "ping" };
        let options = CallOptions::new().timeout(PING_LIMIT);
        let outcome = client
            .request(&Call::new(method), How::from(&options))
            .await;
        match outcome {
            Err(Error::Rpc(RpcError {
                code: RpcError::METHOD_NOT_FOUND,
                ..
            })) => Ok(()),
            outcome => {
                let operation = Operation::of(method);
                connection.account(operation, outcome.map(drop)).await
            }
        }
    }

    /// The servers that are open, each with its state: a cheap look for monitors.
    pub fn states(&self) -> Vec<(ServerId, ConnectionState)> {
        let connections = self.inner.connections.borrow();
        let states = connections
            .iter()
            .map(|live| (live.id().clone(), live.state()));
        states.collect()
    }
}

/// What has been chosen already.
#[derive(Serialize)]
struct Context {
    arguments: Box<RawValue>,
}

fn read_completion(result: &RawValue) -> Completion {
    let Some(completion) = raw_member(result, "completion") else {
        return Completion::default();
    };
    let mut values: Vec<String> =
        small_member(completion, "values", MAX_COMPLETION).unwrap_or_default();
    let has_more: bool = small_member(completion, "hasMore", 8).unwrap_or(false);
    let is_cut = values.len() > MAX_VALUES;
    values.truncate(MAX_VALUES);
    Completion {
        values,
        total: small_member(completion, "total", 32),
        has_more: has_more || is_cut,
    }
}
