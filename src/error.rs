//! The crate's error type. Branch on variants and numbers, never on texts.

use std::time::Duration;

use crate::lifecycle::InstallError;
use crate::mcp::{ConnectionState, ServerId};
use crate::oauth::{AuthorizationUrl, OAuthError};
use crate::ports::{DamagedRow, StoreError};
use crate::protocol::{ProtocolError, RpcError, SkillMismatch};
use crate::retry::InvalidRetry;
use crate::transport::{TransportError, is_transient_status};
use crate::url_guard::BlockedUrl;
use crate::websockets::RefusedConnection;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong while managing and using MCP servers.
///
/// Cloneable, because everybody who waits for one attempt receives its outcome. No variant holds a
/// header, a token or a query string. Texts that came from a server are bounded in length and are
/// not to be trusted: escape them before showing them in HTML.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No server is stored under this id.
    #[error("no MCP server is registered as \"{0}\"")]
    UnknownServer(String),
    /// The URL points where MCP connections may not go, or is no URL at all.
    #[error(transparent)]
    BlockedUrl(#[from] BlockedUrl),
    /// The id is taken by a server with another name or URL.
    #[error("MCP server id \"{id}\" is already in use by server \"{name}\"")]
    ServerIdInUse {
        /// The requested id.
        id: ServerId,
        /// Display name of the server that holds it.
        name: String,
    },
    /// A value given by the caller is not usable; the text names it and says why.
    #[error("{0}")]
    InvalidOption(String),
    /// The retry policy breaks its own rules.
    #[error(transparent)]
    InvalidRetry(#[from] InvalidRetry),
    /// The stored row of this server cannot be read. It is kept as it is.
    #[error("the stored row of MCP server \"{id}\" cannot be read: {reason}")]
    DamagedRow {
        /// The row's primary key.
        id: String,
        /// Which column, and why.
        reason: String,
    },
    /// The operation needs a live connection in another state.
    #[error("MCP server \"{id}\" is {state}{}", detail(.error.as_deref()))]
    NotConnected {
        /// The server.
        id: ServerId,
        /// Its state when the operation was asked for.
        state: ConnectionState,
        /// Why it is in that state, when known.
        error: Option<String>,
    },
    /// The connection was closed, replaced or removed while the operation ran.
    #[error("the connection was closed meanwhile")]
    Closed,
    /// The configured time ran out; what was under way is abandoned.
    #[error("no answer to {what} within {} ms", .after.as_millis())]
    Timeout {
        /// The JSON-RPC method or step.
        what: String,
        /// The limit that applied.
        after: Duration,
    },
    /// The tool is not listed, because its definition is not usable.
    #[error("tool \"{name}\" cannot be used: {reason}")]
    UnusableTool {
        /// The tool.
        name: String,
        /// What is wrong with its definition.
        reason: String,
    },
    /// The tool has run, and its structured content does not fit the output schema it declares.
    #[error("the structured content of tool \"{tool}\" does not fit its output schema: {reason}")]
    InvalidOutput {
        /// The tool.
        tool: String,
        /// Where it does not fit, and why. Holds no value.
        reason: String,
    },
    /// The server required an input that this client cannot or will not give, so the call ends here
    /// (MCP 2026-07-28, mrtr).
    #[error("the server required {method}, which failed: {reason}")]
    InputRefused {
        /// What was required.
        method: String,
        /// Why there is no answer.
        reason: String,
    },
    /// The server speaks neither Streamable HTTP nor HTTP+SSE.
    #[error("no transport works: Streamable HTTP: {streamable_http}; HTTP+SSE: {http_sse}")]
    NoTransport {
        /// Why Streamable HTTP does not.
        streamable_http: Box<Self>,
        /// Why HTTP+SSE does not.
        http_sse: Box<Self>,
    },
    /// No task of this id is known.
    #[error("no task \"{0}\" is known")]
    UnknownTask(String),
    /// The task was cancelled, here or at the server.
    #[error("the task was cancelled")]
    TaskCancelled,
    /// A question that is no longer open.
    #[error("the question is no longer open")]
    QuestionClosed,
    /// The row asks for a transport that this version does not speak.
    #[error("transport \"{0}\" is not supported")]
    UnsupportedTransport(String),
    /// The message did not get through.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The server answered with a JSON-RPC error.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The user must sign in, or consent to more, before this can be done.
    #[error("MCP server \"{id}\" needs its user to sign in")]
    SignInRequired {
        /// The server.
        id: ServerId,
        /// Where to send the user.
        auth_url: AuthorizationUrl,
    },
    /// The server wants its user to sign in, and nobody has said where users come back to.
    #[error(
        "MCP server \"{id}\" asks for a sign-in, but has no callback URL: give a callback host ({error})"
    )]
    NoCallback {
        /// The server.
        id: ServerId,
        /// What the server answered.
        error: Box<Self>,
    },
    /// Permission could not be got.
    #[error(transparent)]
    Authorization(#[from] OAuthError),
    /// The server broke the protocol, or speaks none of our revisions.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// A skill, or a file of one, is not what its server listed.
    #[error(transparent)]
    Skill(#[from] SkillMismatch),
    /// The object's storage refused.
    #[error(transparent)]
    Storage(#[from] StoreError),
    /// The capability is not installed.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// A connection that may only read wants to change something.
    #[error("Connection is readonly")]
    ReadonlyConnection,
    /// The WebSocket is not accepted.
    #[error(transparent)]
    Connection(#[from] RefusedConnection),
    /// The platform refused.
    #[error("runtime: {0}")]
    Runtime(String),
}

impl From<DamagedRow> for Error {
    fn from(DamagedRow { id, reason }: DamagedRow) -> Self {
        Self::DamagedRow { id, reason }
    }
}

fn detail(error: Option<&str>) -> String {
    error.map(|error| format!(": {error}")).unwrap_or_default()
}

impl Error {
    /// The error and its causes, as one line.
    pub fn describe(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }

    /// Whether the server asked for authorization: HTTP status 401, or a sign-in that has begun
    /// because of it.
    pub fn is_unauthorized(&self) -> bool {
        self.http_status() == Some(401) || matches!(self, Self::SignInRequired { .. })
    }

    /// Whether the server has no endpoint for this transport: HTTP status 404 or 405.
    pub fn is_transport_not_implemented(&self) -> bool {
        matches!(self.http_status(), Some(404 | 405))
    }

    /// The HTTP status that ended the exchange, when one did.
    pub fn http_status(&self) -> Option<u16> {
        match self {
            Self::Transport(
                TransportError::Status(failure) | TransportError::NotResumed(failure),
            ) => Some(failure.status),
            Self::Transport(TransportError::Unusable(answer)) => Some(answer.status),
            Self::Rpc(error) => error.http_status,
            Self::NoTransport {
                streamable_http, ..
            } => streamable_http.http_status(),
            _ => None,
        }
    }

    /// A short name for the kind of failure, the same over versions: for logs, alerts and pages.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownServer(_) => "unknown-server",
            Self::BlockedUrl(_) => "blocked-url",
            Self::ServerIdInUse { .. } => "server-id-in-use",
            Self::InvalidOption(_) => "invalid-option",
            Self::InvalidRetry(_) => "invalid-retry",
            Self::DamagedRow { .. } => "damaged-row",
            Self::NotConnected { .. } => "not-connected",
            Self::Closed => "closed",
            Self::Timeout { .. } => "timeout",
            Self::UnusableTool { .. } => "unusable-tool",
            Self::InvalidOutput { .. } => "invalid-output",
            Self::InputRefused { .. } => "input-refused",
            Self::NoTransport { .. } => "no-transport",
            Self::UnknownTask(_) => "unknown-task",
            Self::TaskCancelled => "task-cancelled",
            Self::Skill(_) => "skill",
            Self::QuestionClosed => "question-closed",
            Self::UnsupportedTransport(_) => "unsupported-transport",
            Self::Transport(TransportError::Status(failure)) if failure.status == 401 => {
                "unauthorized"
            }
            Self::SignInRequired { .. } => "sign-in-required",
            Self::Authorization(_) | Self::Transport(TransportError::Permission(_)) => {
                "authorization"
            }
            Self::Transport(_) => "transport",
            Self::Rpc(_) => "rpc",
            Self::Protocol(_) => "protocol",
            Self::Storage(_) => "storage",
            Self::Install(_) => "install",
            Self::NoCallback { .. } => "no-callback",
            Self::ReadonlyConnection => "readonly-connection",
            Self::Connection(_) => "connection",
            Self::Runtime(_) => "runtime",
        }
    }

    /// Whether the same attempt may succeed later: the network, a timeout, or a status by which
    /// the server says so (408, 425, 429, 5xx without 501 and 505).
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::Transport(error) => error.is_transient(),
            Self::Authorization(error) => error.is_transient(),
            Self::Rpc(error) => error.http_status.is_some_and(is_transient_status),
            _ => false,
        }
    }

    /// When the server wants to be asked again, if it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Transport(TransportError::Status(failure)) => failure.retry_after,
            Self::Transport(TransportError::Permission(error)) => error.retry_after,
            Self::Authorization(error) => error.retry_after(),
            Self::Rpc(error) => error.retry_after,
            _ => None,
        }
    }
}
