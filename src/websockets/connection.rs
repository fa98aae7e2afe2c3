//! One browser socket.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Serialize};
use url::Url;
use wasm_bindgen::prelude::*;
use worker::{WebSocket, WebSocketIncomingMessage};

use super::attachment::{Attachment, Flags};
use crate::{Error, Result};

/// `WebSocket.OPEN`; only `CONNECTING` is less.
const OPEN: u16 = 1;

/// A message on a WebSocket.
pub type Message = WebSocketIncomingMessage;

/// A WebSocket that the object has accepted. Cheap to clone; survives hibernation.
#[derive(Clone)]
pub struct Connection {
    inner: Rc<Inner>,
}

struct Inner {
    socket: WebSocket,
    attachment: RefCell<Attachment>,
    /// Calls of this connection that are being answered.
    calls: Cell<usize>,
}

#[wasm_bindgen]
extern "C" {
    /// The platform's socket, which takes a text that is in JavaScript already.
    type Socket;
    #[wasm_bindgen(method, catch)]
    fn send(this: &Socket, text: &JsValue) -> Result<(), JsValue>;
    #[wasm_bindgen(method, getter, js_name = readyState)]
    fn ready_state(this: &Socket) -> u16;
}

impl Connection {
    /// A socket that has just been accepted.
    pub(super) fn new(socket: WebSocket, attachment: Attachment) -> Result<Self> {
        let connection = Self {
            inner: Rc::new(Inner {
                socket,
                attachment: RefCell::new(attachment),
                calls: Cell::new(0),
            }),
        };
        connection.keep()?;
        Ok(connection)
    }

    /// A socket that was accepted before the object slept. `None`: by somebody else.
    pub(super) fn of(socket: &WebSocket) -> Option<Self> {
        let attachment = socket.deserialize_attachment().ok().flatten()?;
        Some(Self {
            inner: Rc::new(Inner {
                socket: socket.clone(),
                attachment: RefCell::new(attachment),
                calls: Cell::new(0),
            }),
        })
    }

    /// Its id: what the client asked for (query `_pk`), or a random one.
    pub fn id(&self) -> String {
        self.inner.attachment.borrow().address.id.clone()
    }

    /// Whether this is its id.
    pub fn has_id(&self, id: &str) -> bool {
        self.inner.attachment.borrow().address.id == id
    }

    /// Its tags; the first one is its id.
    pub fn tags(&self) -> Vec<String> {
        self.inner.attachment.borrow().address.tags.clone()
    }

    /// Whether it has this tag.
    pub fn has_tag(&self, tag: &str) -> bool {
        let attachment = self.inner.attachment.borrow();
        attachment.address.tags.iter().any(|other| other == tag)
    }

    /// The URL by which it was opened. `None` if that was extremely long.
    pub fn url(&self) -> Option<Url> {
        let attachment = self.inner.attachment.borrow();
        attachment.address.uri.as_ref()?.parse().ok()
    }

    /// Whether it may not change the object's state.
    pub fn is_readonly(&self) -> bool {
        self.inner.attachment.borrow().flags.is_readonly
    }

    /// Whether it is sent the frames of the protocol: identity, state, servers.
    pub fn is_sent_protocol_messages(&self) -> bool {
        !self.inner.attachment.borrow().flags.is_plain
    }

    /// Lets it change the object's state, or not. Lasts as long as the connection.
    ///
    /// # Errors
    /// As [`set_state`](Self::set_state).
    pub fn set_readonly(&self, is_readonly: bool) -> Result<()> {
        self.inner.attachment.borrow_mut().flags.is_readonly = is_readonly;
        self.keep()
    }

    /// What has been stored with the connection. `None` when nothing has been.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] when it is no value of this type.
    pub fn state<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let attachment = self.inner.attachment.borrow();
        Option::deserialize(&attachment.state)
            .map_err(|error| Error::InvalidOption(format!("the connection's state: {error}")))
    }

    /// Stores something with the connection: any JSON of up to about 10 kB. It survives
    /// hibernation, and ends with the connection.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] when it is no JSON, or too large; what was stored before stays.
    pub fn set_state(&self, state: &impl Serialize) -> Result<()> {
        let state = serde_json::to_value(state)
            .map_err(|error| Error::InvalidOption(format!("the connection's state: {error}")))?;
        let before = std::mem::replace(&mut self.inner.attachment.borrow_mut().state, state);
        self.keep()
            .inspect_err(|_| self.inner.attachment.borrow_mut().state = before)
    }

    /// Sends a text. One that cannot be sent any more is dropped: the end of the connection is told
    /// elsewhere.
    pub fn send(&self, text: &str) {
        self.send_js(&JsValue::from_str(text));
    }

    /// Sends JSON.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] when it is none.
    pub fn send_json(&self, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(value)
            .map_err(|error| Error::InvalidOption(format!("not JSON: {error}")))?;
        self.send(&text);
        Ok(())
    }

    /// Sends bytes, as [`send`](Self::send) does texts.
    pub fn send_bytes(&self, bytes: &[u8]) {
        // Fails when the connection is closing.
        let _ = self.inner.socket.send_with_bytes(bytes);
    }

    /// Sends a text that is in JavaScript already, so that it is copied once for all connections.
    pub(super) fn send_js(&self, text: &JsValue) {
        // Fails when the connection is closing.
        let _ = self.socket().send(text);
    }

    /// Closes the connection with a code (1000, or 3000 to 4999) and a reason of at most 123 bytes.
    /// One that is closed already stays closed.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for another code, or a longer reason.
    pub fn close(&self, code: u16, reason: &str) -> Result<()> {
        if reason.len() > 123 || !matches!(code, 1000 | 1001 | 1008 | 1009 | 1011 | 3000..=4999) {
            return Err(Error::InvalidOption(
                "a close code is 1000 or 3000 to 4999, and a reason has at most 123 bytes".into(),
            ));
        }
        // Fails when the connection is closed.
        let _ = self.inner.socket.close(Some(code), Some(reason));
        Ok(())
    }

    /// Whether it is the same connection.
    pub(super) fn is(&self, key: &str) -> bool {
        self.inner.attachment.borrow().flags.key == key
    }

    pub(super) fn key(&self) -> String {
        self.inner.attachment.borrow().flags.key.clone()
    }

    pub(crate) fn flags(&self) -> Flags {
        self.inner.attachment.borrow().flags.clone()
    }

    /// Whether messages can still be sent.
    pub(super) fn is_open(&self) -> bool {
        self.socket().ready_state() <= OPEN
    }

    fn socket(&self) -> &Socket {
        self.inner.socket.as_ref().unchecked_ref()
    }

    /// Takes one more call, unless `most` are being answered. The call ends when what is returned is
    /// dropped.
    pub(crate) fn begin_call(&self, most: usize) -> Option<RunningCall> {
        let running = self.inner.calls.get();
        if running >= most {
            return None;
        }
        self.inner.calls.set(running + 1);
        Some(RunningCall(self.clone()))
    }

    fn keep(&self) -> Result<()> {
        let attachment = self.inner.attachment.borrow();
        self.inner
            .socket
            .serialize_attachment(&*attachment)
            .map_err(|error| Error::InvalidOption(format!("what is kept with it: {error}")))
    }
}

/// A call that is being answered.
pub(crate) struct RunningCall(Connection);

impl Drop for RunningCall {
    fn drop(&mut self) {
        let calls = &self.0.inner.calls;
        calls.set(calls.get().saturating_sub(1));
    }
}

/// The URL may hold a secret in its query, and the state anything.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("id", &self.inner.attachment.borrow().address.id)
            .finish_non_exhaustive()
    }
}
