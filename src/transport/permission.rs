//! Permission for requests: what is added to them, and what a refusal comes to.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, Method};

use crate::url_guard::GuardedUrl;

/// Shows a server that requests to it are permitted.
///
/// Every request asks: POST, GET and DELETE, each hop of a redirect by itself.
#[async_trait(?Send)]
pub trait Permission {
    /// Adds credentials to the headers of a request that is about to be sent. What they replace is
    /// lost.
    async fn apply(
        &self,
        method: &Method,
        url: &GuardedUrl,
        headers: &mut HeaderMap,
    ) -> Result<Ticket, PermissionError>;

    /// A response to a request with this ticket has come.
    fn heard(&self, ticket: &Ticket, status: u16, headers: &HeaderMap);

    /// The server answered 401 to a request with this ticket. Whether to send it once more, and
    /// where it `may_renew`, with another permission.
    async fn refused(
        &self,
        ticket: &Ticket,
        headers: &HeaderMap,
        may_renew: bool,
    ) -> Result<Verdict, PermissionError>;
}

/// What a request was sent with. Secret.
#[derive(Clone, Default)]
pub struct Ticket(pub Option<Rc<str>>);

/// What a refusal comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Send it again: the permission is another one now.
    Again,
    /// Send it again: only a detail of its form was wrong (RFC 9449 §9).
    Reformed,
    /// It stays refused.
    Final,
}

/// Permission could not be got, so nothing was sent, or not again.
#[derive(Debug, Clone, thiserror::Error)]
#[error("no permission: {reason}")]
#[non_exhaustive]
pub struct PermissionError {
    /// Why. Holds no secret.
    pub reason: String,
    /// Whether the same may succeed later.
    pub is_transient: bool,
    /// When to try again.
    pub retry_after: Option<Duration>,
}

impl PermissionError {
    /// A reason, and whether it may pass.
    pub fn new(reason: String, is_transient: bool, retry_after: Option<Duration>) -> Self {
        Self {
            reason,
            is_transient,
            retry_after,
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(_) => "Ticket(..)",
            None => "Ticket(none)",
        })
    }
}
