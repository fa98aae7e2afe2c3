//! What happens on the sockets of an object: hooks are asked, frames are answered.

use worker::{Request, Response, WebSocket, WebSocketIncomingMessage, console_error};

use super::{Close, Hooks};
use crate::routing;
use crate::websockets::frames::{self, CallFrame, Incoming};
use crate::websockets::{Call, CallError, Connection, Flags, RefusedConnection, WebSockets};
use crate::{Error, Result};

/// The alphabet and the length of ids that nobody chose.
const ALPHABET: &[u8; 64] = b"useandom-26T198340PX75pxJACKVERYMINDBUSHWOLF_GQZbfghjklqvwyzrict";
const ID_LENGTH: usize = 21;

/// Accepts a socket, unless a limit or a tag forbids it.
pub(super) async fn upgrade<O: Hooks>(
    sockets: &WebSockets,
    object: &O,
    request: &Request,
) -> worker::Result<Response> {
    let url = request.url()?;
    let query = |name: &str| {
        let mut pairs = url.query_pairs().filter(|(key, _)| key == name);
        let (_, value) = pairs.next()?;
        Some(value.into_owned()).filter(|value| !value.is_empty())
    };
    let id = query("_pk").map_or_else(random_id, Ok)?;
    let mut flags = Flags::default();
    flags.is_readonly = object.is_readonly(request);
    flags.is_plain = !object.sends_protocol_messages(request);
    flags.is_compact = query("mcp").is_some_and(|mcp| mcp == "servers");
    let tags = object.connection_tags(request);
    let (connection, client) = match sockets.accept(id, tags, url.as_str(), flags) {
        Ok(accepted) => accepted,
        Err(Error::Connection(RefusedConnection::TooMany)) => {
            return routing::problem(503, "Service Unavailable", "too many connections");
        }
        Err(Error::Connection(refused)) => {
            return routing::problem(400, "Bad Request", &refused.to_string());
        }
        Err(error) => return Err(error.into()),
    };
    let outcome = match sockets.welcome(&connection).await {
        Ok(()) => object.on_connect(&connection, request).await,
        Err(error) => Err(error.into()),
    };
    if let Err(error) = outcome {
        console_error!("a new connection: {error}");
        // Nothing is wrong with the code or the reason.
        let _ = connection.close(1011, "the connection could not be set up");
    }
    Response::from_websocket(client)
}

/// A message. `false`: the socket was accepted by somebody else.
pub(super) async fn message<O: Hooks>(
    sockets: &WebSockets,
    object: &O,
    socket: &WebSocket,
    message: &mut Option<WebSocketIncomingMessage>,
) -> worker::Result<bool> {
    let Some(connection) = sockets.find(socket) else {
        return Ok(false);
    };
    let Some(message) = message.take() else {
        return Ok(true);
    };
    let frame = match &message {
        WebSocketIncomingMessage::String(text) => frames::parse(text),
        WebSocketIncomingMessage::Binary(_) => None,
    };
    let size = match &message {
        WebSocketIncomingMessage::String(text) => text.len(),
        WebSocketIncomingMessage::Binary(bytes) => bytes.len(),
    };
    let max = sockets.options().max_frame_bytes;
    if size > max {
        let error = format!("the message is larger than {max} bytes");
        match frame {
            Some(Incoming::Call(CallFrame { id, .. })) => {
                connection.send(&frames::failure(Some(&id), &error));
            }
            Some(Incoming::State(_)) => connection.send(&frames::state_error(&error)),
            // Not closed: a client that reconnects would send it again.
            _ => connection.send(&frames::failure(None, &error)),
        }
        return Ok(true);
    }
    match frame {
        Some(Incoming::Call(frame)) => call(sockets, object, connection, frame).await,
        Some(Incoming::State(state)) => set_state(sockets, object, &connection, state).await?,
        None => object.on_message(&connection, message).await?,
    }
    Ok(true)
}

async fn call<O: Hooks>(
    sockets: &WebSockets,
    object: &O,
    connection: Connection,
    frame: CallFrame<'_>,
) {
    let most = sockets.options().max_calls;
    let Some(_running) = connection.begin_call(most) else {
        let error = format!("more than {most} calls at a time");
        return connection.send(&frames::failure(Some(&frame.id), &error));
    };
    let call = Call::new(connection, frame);
    let outcome = match sockets.method(call.method()) {
        Some(method) => method(&call),
        None => object.on_call(&call).await,
    };
    if let Err(CallError::Failed(error)) = &outcome {
        console_error!("method {}: {error}", call.method());
    }
    call.answer(&outcome);
}

/// A browser sets the state: judged, stored, told to the others, and only then to the host.
async fn set_state<O: Hooks>(
    sockets: &WebSockets,
    object: &O,
    connection: &Connection,
    text: &str,
) -> worker::Result<()> {
    let refuse = |error: &str| connection.send(&frames::state_error(error));
    if connection.is_readonly() {
        refuse("Connection is readonly");
        return Ok(());
    }
    let state = match sockets.state().parse(text) {
        Ok(state) => state,
        Err(error) => {
            refuse(&error.describe());
            return Ok(());
        }
    };
    if let Err(error) = object.validate_state(&state, connection) {
        console_error!("a state is rejected: {error}");
        refuse("State update rejected");
        return Ok(());
    }
    if let Err(error) = sockets.set_state(text, Some(connection)) {
        refuse("State update rejected");
        return Err(error.into());
    }
    object.on_state_changed(&state, connection).await
}

/// The end of a socket. `false`: it was accepted by somebody else.
pub(super) async fn close<O: Hooks>(
    sockets: &WebSockets,
    object: &O,
    socket: &WebSocket,
    close: &Close,
) -> worker::Result<bool> {
    let Some(connection) = sockets.find(socket) else {
        return Ok(false);
    };
    // These are never sent (RFC 6455 §7.4.1). A close without a code is answered by another one.
    let code = match close.code {
        1006 | 1015 => None,
        1005 => Some(None),
        code => Some(Some(code)),
    };
    if let Some(code) = code {
        let reason = code.map(|_| close.reason.as_str());
        // Fails when the platform has answered by itself.
        let _ = socket.close(code, reason);
    }
    sockets.forget(&connection);
    object.on_close(&connection, close).await?;
    Ok(true)
}

/// An error of a socket. `false`: it was accepted by somebody else.
pub(super) async fn error<O: Hooks>(
    sockets: &WebSockets,
    object: &O,
    socket: &WebSocket,
    error: &worker::Error,
) -> worker::Result<bool> {
    let Some(connection) = sockets.find(socket) else {
        return Ok(false);
    };
    sockets.forget(&connection);
    object.on_error(&connection, error).await?;
    Ok(true)
}

fn random_id() -> Result<String> {
    let mut bytes = [0; ID_LENGTH];
    getrandom::fill(&mut bytes).map_err(|error| Error::Runtime(error.to_string()))?;
    let symbol = |byte: u8| ALPHABET.get(usize::from(byte % 64)).copied();
    Ok(bytes
        .into_iter()
        .filter_map(symbol)
        .map(char::from)
        .collect())
}
