//! What client and server agreed on.

use std::fmt;

use http::{HeaderMap, HeaderValue};

use crate::protocol::model::ServerCard;
use crate::protocol::request::{ClientInfo, PROTOCOL_VERSION, SESSION_ID};
use crate::protocol::{Era, Revision};

/// An agreement with a server.
#[derive(Clone)]
pub(crate) struct Session {
    /// The revision spoken.
    pub(crate) revision: Revision,
    /// The session id of a legacy server that issues them. Secret.
    pub(crate) id: Option<String>,
    /// What the server said about itself.
    pub(crate) card: ServerCard,
    /// Taken up again from storage; the server has not confirmed it yet.
    pub(crate) resumed: bool,
    /// Agreed on because the server refused the one before.
    pub(crate) is_replacement: bool,
}

impl Session {
    /// Whether every request states revision and capabilities by itself.
    pub(crate) fn is_modern(&self) -> bool {
        self.revision.era() == Era::Modern
    }

    /// The headers of every message within the session.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(
            PROTOCOL_VERSION,
            HeaderValue::from_static(self.revision.as_str()),
        );
        if let Some(mut value) = self
            .id
            .as_deref()
            .and_then(|id| HeaderValue::from_str(id).ok())
        {
            value.set_sensitive(true);
            headers.insert(SESSION_ID, value);
        }
        headers
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("revision", &self.revision)
            .field("resumed", &self.resumed)
            .finish_non_exhaustive()
    }
}

/// Who we are in front of every server of a manager.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) info: ClientInfo,
    /// The capabilities to declare: only what has a handler behind it.
    pub(crate) capabilities: serde_json::Value,
}
