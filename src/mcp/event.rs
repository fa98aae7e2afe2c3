//! What happens to servers, and what they tell beyond the answers to requests.

use std::fmt;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::call::LogLevel;
use super::catalog::ListKind;
use super::{CatalogCounts, ServerId};
use crate::Error;
use crate::ports::Timestamp;
use crate::protocol::Revision;
use crate::transport::TransportKind;

/// Something that has happened to a server, or that it has told.
///
/// Nothing in here is a secret of ours: authorization URLs, tokens and headers never are. What
/// servers log is theirs, and can hold anything.
#[derive(Clone)]
#[non_exhaustive]
pub enum McpEvent {
    /// An attempt to connect begins.
    Connecting {
        /// The server.
        server_id: ServerId,
    },
    /// A connection is open.
    Connected {
        /// The server.
        server_id: ServerId,
        /// Over which transport.
        transport: TransportKind,
        /// The revision spoken.
        revision: Revision,
    },
    /// An attempt to connect has failed.
    ConnectFailed {
        /// The server.
        server_id: ServerId,
        /// Why.
        error: Error,
    },
    /// Connecting has been put off; the object is woken for the next attempt.
    Postponed {
        /// The server.
        server_id: ServerId,
        /// When it is tried again.
        at: Timestamp,
        /// How often it has been put off.
        attempts: u32,
    },
    /// The user has to sign in. Where is for [`auth_url`](super::McpClientManager::auth_url) to say.
    SignInRequired {
        /// The server.
        server_id: ServerId,
    },
    /// The lists are loaded.
    Discovered {
        /// The server.
        server_id: ServerId,
        /// How much there is.
        counts: CatalogCounts,
    },
    /// Loading the lists has failed.
    DiscoveryFailed {
        /// The server.
        server_id: ServerId,
        /// Why.
        error: Error,
    },
    /// A connection is closed.
    Closed {
        /// The server.
        server_id: ServerId,
    },
    /// A server has another id.
    Renamed {
        /// The server's id from now on.
        server_id: ServerId,
        /// Its id so far.
        from: ServerId,
    },
    /// A log message (`notifications/message`).
    Log {
        /// The server.
        server_id: ServerId,
        /// How grave it is; absent when the server named no known level.
        level: Option<LogLevel>,
        /// What logs, if the server said so.
        logger: Option<String>,
        /// Any JSON.
        data: std::rc::Rc<RawValue>,
    },
    /// A resource that was subscribed to has changed, or one below it.
    ResourceUpdated {
        /// The server.
        server_id: ServerId,
        /// The resource.
        uri: String,
    },
    /// A list has changed, and has been loaded anew.
    ListChanged {
        /// The server.
        server_id: ServerId,
        /// Which one.
        kind: ListKind,
    },
    /// The user is done with a page that a server had sent them to.
    ElicitationCompleted {
        /// The server.
        server_id: ServerId,
        /// The id that the question named.
        elicitation_id: String,
    },
    /// A task has come further.
    TaskChanged {
        /// The server.
        server_id: ServerId,
        /// The task.
        task_id: String,
    },
}

impl McpEvent {
    /// The server it concerns.
    pub fn server_id(&self) -> &ServerId {
        match self {
            Self::Connecting { server_id }
            | Self::Connected { server_id, .. }
            | Self::ConnectFailed { server_id, .. }
            | Self::Postponed { server_id, .. }
            | Self::SignInRequired { server_id }
            | Self::Discovered { server_id, .. }
            | Self::DiscoveryFailed { server_id, .. }
            | Self::Closed { server_id }
            | Self::Renamed { server_id, .. }
            | Self::Log { server_id, .. }
            | Self::ResourceUpdated { server_id, .. }
            | Self::ListChanged { server_id, .. }
            | Self::ElicitationCompleted { server_id, .. }
            | Self::TaskChanged { server_id, .. } => server_id,
        }
    }

    /// Whether a server has told it, rather than something that has happened to one.
    pub const fn is_told(&self) -> bool {
        matches!(
            self,
            Self::Log { .. }
                | Self::ResourceUpdated { .. }
                | Self::ListChanged { .. }
                | Self::ElicitationCompleted { .. }
                | Self::TaskChanged { .. }
        )
    }

    /// The name of its type, as the TypeScript package has it where it has one.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Connecting { .. } => "mcp:client:preconnect",
            Self::Connected { .. } | Self::ConnectFailed { .. } => "mcp:client:connect",
            Self::Postponed { .. } => "mcp:client:postponed",
            Self::SignInRequired { .. } => "mcp:client:authorize",
            Self::Discovered { .. } | Self::DiscoveryFailed { .. } => "mcp:client:discover",
            Self::Closed { .. } => "mcp:client:close",
            Self::Renamed { .. } => "mcp:client:renamed",
            Self::Log { .. } => "mcp:server:log",
            Self::ResourceUpdated { .. } => "mcp:server:resource-updated",
            Self::ListChanged { .. } => "mcp:server:list-changed",
            Self::ElicitationCompleted { .. } => "mcp:server:elicitation-completed",
            Self::TaskChanged { .. } => "mcp:server:task-changed",
        }
    }

    /// The event as `{"type", "timestamp", "payload"}`: for Workers' logs, say, which index the
    /// members of such an object. What servers log is left out; that there was something is not.
    pub fn to_json(&self, now: Timestamp) -> Value {
        let mut payload = Map::new();
        let mut set = |name: &str, value: Value| drop(payload.insert(name.into(), value));
        set("serverId", self.server_id().as_str().into());
        match self {
            Self::Connecting { .. } | Self::SignInRequired { .. } => {}
            Self::Connected {
                transport,
                revision,
                ..
            } => {
                set("state", "connected".into());
                set("transport", transport.as_str().into());
                set("protocolVersion", revision.as_str().into());
            }
            Self::ConnectFailed { error, .. } | Self::DiscoveryFailed { error, .. } => {
                set("state", "failed".into());
                set("error", error.describe().into());
                set("code", error.code().into());
                set("httpStatus", error.http_status().into());
            }
            Self::Postponed { at, attempts, .. } => {
                set("at", (*at).into());
                set("attempts", (*attempts).into());
            }
            Self::Discovered { counts, .. } => set("counts", json!(counts)),
            Self::Closed { .. } => set("state", "closed".into()),
            Self::Renamed { from, .. } => set("from", from.as_str().into()),
            Self::Log { level, logger, .. } => {
                set("level", level.map(LogLevel::as_str).into());
                set("logger", logger.clone().into());
            }
            Self::ResourceUpdated { uri, .. } => set("uri", uri.as_str().into()),
            Self::ListChanged { kind, .. } => set("list", kind.as_str().into()),
            Self::ElicitationCompleted { elicitation_id, .. } => {
                set("elicitationId", elicitation_id.as_str().into());
            }
            Self::TaskChanged { task_id, .. } => set("taskId", task_id.as_str().into()),
        }
        json!({"type": self.name(), "timestamp": now, "payload": payload})
    }
}

/// What is logged can hold anything, so only the kind of event is shown.
impl fmt::Debug for McpEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(self.name())
            .field("server_id", self.server_id())
            .finish_non_exhaustive()
    }
}
