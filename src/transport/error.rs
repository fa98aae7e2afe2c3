//! What can go wrong between a message and its answer.

use std::fmt;
use std::time::Duration;

use super::PermissionError;
use crate::ports::{HttpError, ObjectError};
use crate::protocol::sse::SseError;
use crate::protocol::{ProtocolError, RpcError};
use crate::url_guard::{BlockedUrl, RedirectError};

/// A message did not get through, or no usable answer came back.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// Nothing came back.
    #[error(transparent)]
    Network(#[from] HttpError),
    /// The object behind a binding did not answer.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A status other than 2xx.
    #[error(transparent)]
    Status(Box<HttpFailure>),
    /// The server has taken the message and begun to answer, and then refused to take the answer up
    /// again. Whether it did the work is unknown.
    #[error("the answer broke off and could not be taken up again: {0}")]
    NotResumed(Box<HttpFailure>),
    /// There was no permission to send it with.
    #[error(transparent)]
    Permission(#[from] PermissionError),
    /// A redirect that may not be followed.
    #[error(transparent)]
    Redirect(#[from] RedirectError),
    /// More redirects in a row than allowed.
    #[error("more than {0} redirects in a row")]
    TooManyRedirects(u32),
    /// A status of 2xx with a body that is no answer.
    #[error(transparent)]
    Unusable(Box<UnusableAnswer>),
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
    /// The stream that carries the answers is gone, so nothing was sent. Only a new transport
    /// helps.
    #[error("the stream of the transport is gone")]
    Closed,
    /// The server issued a session id that cannot be sent back.
    #[error("the server issued a session id that is too long or not visible ASCII")]
    IllegalSessionId,
    /// HTTP+SSE: the event stream did not say where to post to.
    #[error("the event stream named no endpoint: {0}")]
    NoEndpoint(NoEndpoint),
    /// HTTP+SSE: the endpoint is not where the event stream came from, so credentials must not go
    /// there.
    #[error("the endpoint is on another origin: {origin}")]
    EndpointOrigin {
        /// Scheme, host and port of the endpoint.
        origin: String,
    },
    /// HTTP+SSE: the guard refuses the endpoint.
    #[error("the endpoint is a blocked address")]
    EndpointBlocked(#[source] BlockedUrl),
}

impl TransportError {
    /// See [`Error::is_transient`](crate::Error::is_transient).
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Network(_) | Self::Ended | Self::Closed => true,
            Self::Status(failure) | Self::NotResumed(failure) => {
                is_transient_status(failure.status)
            }
            // What threw may be fixed by the next deployment, as a server that says 500.
            Self::Object(error) => matches!(
                error,
                ObjectError::Unreachable { .. }
                    | ObjectError::Overloaded(_)
                    | ObjectError::Threw(_)
            ),
            Self::Permission(error) => error.is_transient,
            Self::NoEndpoint(reason) => *reason != NoEndpoint::OtherEvent,
            Self::Redirect(_)
            | Self::TooManyRedirects(_)
            | Self::Unusable(_)
            | Self::TooLarge { .. }
            | Self::EventStream(_)
            | Self::IllegalSessionId
            | Self::EndpointOrigin { .. }
            | Self::EndpointBlocked(_) => false,
        }
    }
}

/// Whether a status says that the same request may succeed later.
pub(crate) const fn is_transient_status(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500 | 502..=504 | 506..)
}

/// Why the event stream of HTTP+SSE named no endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoEndpoint {
    /// The stream ended first.
    #[error("it ended")]
    Ended,
    /// The first event was another one.
    #[error("it began with another event")]
    OtherEvent,
    /// Nothing came in time.
    #[error("nothing came within {} ms", .0.as_millis())]
    Timeout(Duration),
}

/// A status other than 2xx. All texts in it are untrusted.
#[derive(Clone)]
#[non_exhaustive]
pub struct HttpFailure {
    /// The status code.
    pub status: u16,
    /// The media type of the body, cut and escaped like `excerpt`.
    pub content_type: Option<String>,
    /// The JSON-RPC error in the body, if there was one.
    pub rpc: Option<RpcError>,
    /// When the server wants to be asked again.
    pub retry_after: Option<Duration>,
    /// What the server asks for in `WWW-Authenticate`: all its values, joined by `, `, at most
    /// 4 KiB. Never part of a text.
    pub challenge: Option<String>,
    /// The beginning of a body that is text and no JSON-RPC error: at most 200 characters on one
    /// line, escaped for HTML.
    pub excerpt: Option<String>,
}

impl fmt::Display for HttpFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered with HTTP status {}", self.status)?;
        if let Some(rpc) = &self.rpc {
            return write!(f, ": {} ({})", rpc.message, rpc.code);
        }
        if let Some(content_type) = &self.content_type {
            write!(f, " ({content_type})")?;
        }
        match &self.excerpt {
            Some(excerpt) => write!(f, ": {excerpt}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for HttpFailure {}

/// Without the challenge, which can name resources and hold nonces.
impl fmt::Debug for HttpFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpFailure")
            .field("status", &self.status)
            .field("content_type", &self.content_type)
            .field("rpc", &self.rpc)
            .field("retry_after", &self.retry_after)
            .field("has_challenge", &self.challenge.is_some())
            .field("excerpt", &self.excerpt)
            .finish()
    }
}

/// A status of 2xx with a body that is no answer: often the page of a proxy or of a sign-in.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UnusableAnswer {
    /// The status code.
    pub status: u16,
    /// The media type of the body, cut and escaped like `excerpt`.
    pub content_type: Option<String>,
    /// The beginning of a body that is text: at most 200 characters on one line, escaped for HTML.
    /// Untrusted.
    pub excerpt: Option<String>,
    /// What is wrong with it.
    pub reason: UnusableReason,
}

impl fmt::Display for UnusableAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content_type = self.content_type.as_deref().unwrap_or("no content type");
        let (reason, status) = (&self.reason, self.status);
        write!(f, "{reason}: {content_type}, HTTP status {status}")?;
        match &self.excerpt {
            Some(excerpt) => write!(f, ": {excerpt}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for UnusableAnswer {}

/// What is wrong with an [`UnusableAnswer`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnusableReason {
    /// Neither JSON nor an event stream; where only one of them is legal, not that one.
    #[error("unexpected content type")]
    ContentType,
    /// There is no message in it.
    #[error("the answer is empty")]
    Empty,
    /// It is JSON by its type and no message by its content.
    #[error(transparent)]
    Malformed(ProtocolError),
}
