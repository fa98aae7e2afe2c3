//! Sending messages. A transport moves JSON-RPC messages and knows nothing of what they mean.
//!
//! [`StreamableHttp`] posts each message and reads its answer from the same exchange; an answer
//! that breaks off may be taken up again. [`HttpSse`] is the older transport: answers arrive on one
//! stream, which stays open. [`Rpc`] calls an object of the same account, without HTTP.

use async_trait::async_trait;
use futures::stream::LocalBoxStream;
use http::HeaderMap;

use crate::protocol::{Message, RequestId};

mod answer;
mod calls;
mod delivery;
mod error;
mod exchange;
mod failure;
mod http_sse;
mod permission;
mod resume;
mod rpc;
mod streamable_http;

pub(crate) use error::is_transient_status;
pub use error::{HttpFailure, NoEndpoint, TransportError, UnusableAnswer, UnusableReason};
pub use http_sse::{HttpSse, HttpSseLimits};
pub use permission::{Permission, PermissionError, Ticket, Verdict};
pub use rpc::{Rpc, RpcLimits};
pub use streamable_http::StreamableHttp;

/// The transports a server can be registered with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportKind {
    /// The one the server speaks. The default.
    #[default]
    Auto,
    /// Streamable HTTP.
    StreamableHttp,
    /// HTTP+SSE, the transport of revision 2024-11-05.
    Sse,
    /// Calls of an object behind a binding. Servers are registered for it by
    /// [`RegisterServer::rpc`](crate::RegisterServer::rpc) alone.
    Rpc,
    /// A name found in storage or given by a caller that this version does not speak. Kept, so
    /// that a row written by another version stays intact.
    Other(String),
}

impl TransportKind {
    /// The name, as stored.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Auto => "auto",
            Self::StreamableHttp => "streamable-http",
            Self::Sse => "sse",
            Self::Rpc => "rpc",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for TransportKind {
    fn from(name: &str) -> Self {
        match name {
            "auto" => Self::Auto,
            "streamable-http" => Self::StreamableHttp,
            "sse" => Self::Sse,
            "rpc" => Self::Rpc,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl serde::Serialize for TransportKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> serde::Deserialize<'de> for TransportKind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|name| Self::from(name.as_str()))
    }
}

/// One message to send.
pub struct Outgoing {
    /// The JSON text.
    pub body: String,
    /// Headers that belong to this message.
    pub headers: HeaderMap,
    /// The id of a request. `None` is a notification or an answer of ours, to which nothing comes
    /// back: bodies of answers to those are not read.
    pub id: Option<RequestId>,
    /// Whether an answer that breaks off may be taken up again with `Last-Event-ID`: so it is in
    /// the legacy era (2025-11-25, "Resumability and Redelivery") and not in the modern one.
    pub resumable: bool,
}

/// The messages a server sends back. That of a request ends with the response, or with an error
/// that says why there is none.
pub type Incoming = LocalBoxStream<'static, Result<Message, TransportError>>;

/// What came back for one message.
pub struct Answer {
    /// What the response said about a session. It counts on the answer to `initialize` only
    /// (2025-11-25, "Session Management").
    pub session: SessionHeader,
    /// The messages; empty when no answer was expected.
    pub messages: Incoming,
}

/// The session id in the header of an answer. Secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum SessionHeader {
    /// Absent or empty: the server keeps no session.
    #[default]
    None,
    /// The id.
    Id(String),
    /// An id that is too long or not visible ASCII, so it could not be sent back.
    Illegal,
}

impl SessionHeader {
    /// The id, if the server issued one.
    ///
    /// # Errors
    /// [`TransportError::IllegalSessionId`].
    pub fn into_id(self) -> Result<Option<String>, TransportError> {
        match self {
            Self::None => Ok(None),
            Self::Id(id) => Ok(Some(id)),
            Self::Illegal => Err(TransportError::IllegalSessionId),
        }
    }
}

/// Moves messages to one server and back.
#[async_trait(?Send)]
pub trait Transport {
    /// Sends one message. Resolves when the server has begun to answer.
    ///
    /// Dropping the answer's stream gives up the exchange.
    async fn send(&self, message: &Outgoing) -> Result<Answer, TransportError>;

    /// Opens the stream on which the server sends what belongs to no request of ours. `None` when
    /// it offers none.
    ///
    /// The stream ends when the server ends it, and with an error when it breaks. Dropping it
    /// closes it.
    async fn listen(&self, headers: HeaderMap) -> Result<Option<Incoming>, TransportError>;

    /// Tells the server that a session is over. A server that does not support it is no error.
    async fn end_session(&self, headers: HeaderMap) -> Result<(), TransportError>;

    /// Whether messages can be sent. Once it is `false` it stays so, and only a new transport
    /// helps.
    fn is_open(&self) -> bool {
        true
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// Bodies hold arguments, which can be anything, so only the length is shown.
impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outgoing")
            .field("bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SessionHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Id(_) => "Id(..)",
            Self::Illegal => "Illegal",
        })
    }
}
