//! What client and server agreed on.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use http::{HeaderMap, HeaderValue};

use super::offers::Offers;
use super::slots::Slot;
use crate::protocol::model::ServerCard;
use crate::protocol::request::{ClientInfo, PROTOCOL_VERSION, SESSION_ID};
use crate::protocol::{Era, Revision};
use crate::transport::{Transport, TransportError, TransportKind};

/// Which of the transports a session runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    StreamableHttp,
    /// The HTTP+SSE transport of 2024-11-05. Its stream is the session.
    HttpSse,
    /// Calls of an object behind a binding.
    Rpc,
}

impl Wire {
    /// As it is shown.
    pub(crate) fn kind(self) -> TransportKind {
        match self {
            Self::StreamableHttp => TransportKind::StreamableHttp,
            Self::HttpSse => TransportKind::Sse,
            Self::Rpc => TransportKind::Rpc,
        }
    }
}

/// An agreement with a server, without the way to it.
#[derive(Clone)]
pub(crate) struct Agreement {
    /// The revision spoken.
    pub(crate) revision: Revision,
    pub(crate) wire: Wire,
    /// The session id of a legacy server that issues them. Secret.
    pub(crate) id: Option<String>,
    /// What the server said about itself.
    pub(crate) card: ServerCard,
    /// What we declared, for as long as the session lives. In the modern era every request declares
    /// anew.
    pub(crate) offers: Offers,
}

/// An agreement, and the way to the server.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) agreed: Agreement,
    /// Taken up again from storage; the server has not confirmed it yet.
    resumed: Cell<bool>,
    /// Agreed on because the server refused the one before, without proof that this was the reason.
    is_replacement: Cell<bool>,
    /// `None` when the stream that is the session was let go while nobody used it.
    transport: Option<Rc<dyn Transport>>,
    /// The place of that stream among those of the object.
    slot: RefCell<Option<Rc<Slot>>>,
}

impl Session {
    pub(crate) fn new(agreed: Agreement, transport: Rc<dyn Transport>) -> Self {
        Self {
            agreed,
            resumed: Cell::new(false),
            is_replacement: Cell::new(false),
            transport: Some(transport),
            slot: RefCell::default(),
        }
    }

    /// The same, holding the place of its stream.
    pub(crate) fn holding(self, slot: Rc<Slot>) -> Self {
        self.slot.replace(Some(slot));
        self
    }

    /// Gives the place back, while requests may still hold the session.
    pub(crate) fn give_place_back(&self) {
        drop(self.slot.take());
    }

    /// One that has just been read from storage.
    pub(crate) fn resumed(agreed: Agreement, transport: Rc<dyn Transport>) -> Self {
        let session = Self::new(agreed, transport);
        session.resumed.set(true);
        session
    }

    /// The same, agreed on because the server refused the one before.
    pub(crate) fn replacing(self, is_replacement: bool) -> Self {
        self.is_replacement.set(is_replacement);
        self
    }

    /// Whether it comes from storage and the server has not confirmed it yet.
    pub(crate) fn is_resumed(&self) -> bool {
        self.resumed.get()
    }

    /// Whether the refusal that it was agreed on for may have meant something else.
    pub(crate) fn is_replacement(&self) -> bool {
        self.is_replacement.get()
    }

    /// The server has answered within it, so it is as good as a fresh one.
    pub(crate) fn confirm(&self) {
        self.resumed.set(false);
    }

    /// What the session before was refused for has worked in this one: the refusal did mean the
    /// session, and the next one may again.
    pub(crate) fn prove(&self) {
        self.is_replacement.set(false);
    }

    /// The same without its stream.
    pub(crate) fn asleep(&self) -> Self {
        Self {
            transport: None,
            slot: RefCell::default(),
            ..self.clone()
        }
    }

    /// The way to the server.
    ///
    /// # Errors
    /// When there is none any more: a new session has to be agreed on.
    pub(crate) fn transport(&self) -> Result<&Rc<dyn Transport>, TransportError> {
        if let Some(slot) = &*self.slot.borrow() {
            slot.touch();
        }
        self.transport
            .as_ref()
            .filter(|transport| transport.is_open())
            .ok_or(TransportError::Closed)
    }

    /// Whether every request states revision and capabilities by itself.
    pub(crate) fn is_modern(&self) -> bool {
        self.agreed.revision.era() == Era::Modern
    }
}

impl Agreement {
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
            .field("revision", &self.agreed.revision)
            .field("wire", &self.agreed.wire)
            .field("resumed", &self.resumed)
            .finish_non_exhaustive()
    }
}

/// Who we are in front of every server of a manager.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) info: ClientInfo,
}
