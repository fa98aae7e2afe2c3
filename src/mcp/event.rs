//! What servers tell beyond the answers to requests.

use std::fmt;

use serde_json::value::RawValue;

use super::ServerId;
use super::call::LogLevel;
use super::catalog::ListKind;

/// Something a server has told, or that has happened to one. Texts are the server's.
#[derive(Clone)]
#[non_exhaustive]
pub enum McpEvent {
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
            Self::Log { server_id, .. }
            | Self::ResourceUpdated { server_id, .. }
            | Self::ListChanged { server_id, .. }
            | Self::ElicitationCompleted { server_id, .. }
            | Self::TaskChanged { server_id, .. } => server_id,
        }
    }
}

/// What is logged can hold anything, so only the kind of event is shown.
impl fmt::Debug for McpEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Log { .. } => "Log",
            Self::ResourceUpdated { .. } => "ResourceUpdated",
            Self::ListChanged { .. } => "ListChanged",
            Self::ElicitationCompleted { .. } => "ElicitationCompleted",
            Self::TaskChanged { .. } => "TaskChanged",
        };
        f.debug_struct(kind)
            .field("server_id", self.server_id())
            .finish_non_exhaustive()
    }
}
