//! Sending messages. A transport moves JSON-RPC messages and knows nothing of what they mean.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::LocalBoxStream;
use http::HeaderMap;

use crate::ports::HttpError;
use crate::protocol::sse::SseError;
use crate::protocol::{Message, ProtocolError, RequestId, RpcError};
use crate::url_guard::RedirectError;

mod streamable_http;

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
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for TransportKind {
    fn from(name: &str) -> Self {
        match name {
            "auto" => Self::Auto,
            "streamable-http" => Self::StreamableHttp,
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

/// The messages a server sends back, ending with the response. An error ends the stream.
pub type Incoming = LocalBoxStream<'static, Result<Message, TransportError>>;

/// What came back for one message.
pub struct Answer {
    /// The session id that the response named, if any.
    pub session_id: Option<String>,
    /// The messages; empty when no answer was expected.
    pub messages: Incoming,
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
    /// Dropping the stream closes it.
    async fn listen(&self, headers: HeaderMap) -> Result<Option<Incoming>, TransportError>;

    /// Tells the server that a session is over. A server that does not support it is no error.
    async fn end_session(&self, headers: HeaderMap) -> Result<(), TransportError>;
}

/// A message did not get through, or no usable answer came back.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// Nothing came back.
    #[error(transparent)]
    Network(#[from] HttpError),
    /// A status other than 2xx.
    #[error(transparent)]
    Status(Box<HttpFailure>),
    /// A redirect that may not be followed.
    #[error(transparent)]
    Redirect(#[from] RedirectError),
    /// More redirects in a row than allowed.
    #[error("more than {0} redirects in a row")]
    TooManyRedirects(u32),
    /// The answer is neither JSON nor an event stream.
    #[error("unexpected content type: {0}")]
    ContentType(String),
    /// The answer is larger than configured.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// The limit that applied, in bytes.
        limit: usize,
    },
    /// An event of the stream is larger than configured.
    #[error(transparent)]
    EventStream(#[from] SseError),
    /// The stream ended before the response came. Whether the server did the work is unknown.
    #[error("the stream ended without the answer")]
    Ended,
    /// What came back is no message.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

impl TransportError {
    /// See [`Error::is_transient`](crate::Error::is_transient).
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Network(_) | Self::Ended => true,
            Self::Status(failure) => is_transient_status(failure.status),
            Self::Redirect(_)
            | Self::TooManyRedirects(_)
            | Self::ContentType(_)
            | Self::TooLarge { .. }
            | Self::EventStream(_)
            | Self::Protocol(_) => false,
        }
    }
}

/// A status other than 2xx.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HttpFailure {
    /// The status code.
    pub status: u16,
    /// The JSON-RPC error in the body, if there was one.
    pub rpc: Option<RpcError>,
    /// When the server wants to be asked again.
    pub retry_after: Option<Duration>,
    /// The beginning of a body that is JSON or plain text and no JSON-RPC error, at most 200
    /// characters. Untrusted.
    pub excerpt: Option<String>,
}

/// Whether a status says that the same request may succeed later.
pub(crate) const fn is_transient_status(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500 | 502..=504 | 506..)
}

impl std::fmt::Display for HttpFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the server answered with HTTP status {}", self.status)?;
        match (&self.rpc, &self.excerpt) {
            (Some(rpc), _) => write!(f, ": {} ({})", rpc.message, rpc.code),
            (None, Some(excerpt)) => write!(f, ": {excerpt}"),
            (None, None) => Ok(()),
        }
    }
}

impl std::error::Error for HttpFailure {}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer")
            .field("has_session", &self.session_id.is_some())
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
