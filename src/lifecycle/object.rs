//! What a Durable Object implements.

use serde_json::Value;
use worker::{Request, Response, Result, WebSocket, WebSocketIncomingMessage};

use super::{Close, Lifecycle, ScheduledJob};
use crate::websockets::{Call, CallResult, Connection, Message};

/// A Durable Object whose entry points a [`Lifecycle`] owns.
///
/// [`install!`](crate::install) writes the forwarding; [`agent!`](crate::agent) also writes the
/// struct and this implementation.
pub trait LifecycleObject: Hooks + Sized {
    /// Makes the object. Runs on every wake, before anything else: no I/O, no panic.
    fn new(lifecycle: Lifecycle) -> Self;

    /// The lifecycle that `new` was given.
    fn lifecycle(&self) -> &Lifecycle;
}

/// What a host may do at the events of its object. Every hook has a default.
///
/// Hooks run one after the other only as far as they do not await: other events of the object come
/// in between.
#[allow(
    async_fn_in_trait,
    reason = "single-threaded by design: nothing is Send"
)]
pub trait Hooks {
    /// The object wakes. Runs once per wake, after the capabilities have started and before any
    /// event is delivered. An error fails that event; the next one tries again.
    async fn on_start(&self) -> Result<()> {
        Ok(())
    }

    /// A request that no capability has answered. Default: status 404.
    async fn on_request(&self, request: Request) -> Result<Response> {
        let _ = request;
        Response::error("Not implemented", 404)
    }

    /// A connection has been opened, and has been told how things stand. An error closes it (1011).
    ///
    /// This and all hooks about connections are for hosts that have
    /// [`WebSockets`](crate::WebSockets), as every [`Agent`](crate::Agent) has.
    async fn on_connect(&self, connection: &Connection, request: &Request) -> Result<()> {
        let _ = (connection, request);
        Ok(())
    }

    /// A message that is no frame of the protocol. An error goes to the log, as it does in the two
    /// hooks below.
    async fn on_message(&self, connection: &Connection, message: Message) -> Result<()> {
        let _ = (connection, message);
        Ok(())
    }

    /// A connection has ended.
    async fn on_close(&self, connection: &Connection, close: &Close) -> Result<()> {
        let _ = (connection, close);
        Ok(())
    }

    /// A connection has failed, and has ended.
    async fn on_error(&self, connection: &Connection, error: &worker::Error) -> Result<()> {
        let _ = (connection, error);
        Ok(())
    }

    /// A browser calls a method. Default: there is none.
    ///
    /// Other calls come in between wherever this awaits. See [`Call`] for an example.
    async fn on_call(&self, call: &Call) -> CallResult {
        call.unknown()
    }

    /// Tags of a new connection, besides its id: at most nine, of at most 256 characters each.
    fn connection_tags(&self, request: &Request) -> Vec<String> {
        let _ = request;
        Vec::new()
    }

    /// Whether a new connection is sent the frames of the protocol: identity, state, servers. Its
    /// calls are answered all the same. Default: it is.
    fn sends_protocol_messages(&self, request: &Request) -> bool {
        let _ = request;
        true
    }

    /// Whether a new connection may not change the state. Default: it may.
    fn is_readonly(&self, request: &Request) -> bool {
        let _ = request;
        false
    }

    /// The state of an object that has none yet. Not stored.
    fn initial_state(&self) -> Option<Value> {
        None
    }

    /// A connection wants to set the state. An error refuses it; its text goes to the log only.
    fn validate_state(&self, state: &Value, source: &Connection) -> Result<()> {
        let _ = (state, source);
        Ok(())
    }

    /// A connection has set the state: it is stored, and the others know. What the host sets itself
    /// ([`Agent::set_state`](crate::Agent::set_state)) does not come here.
    async fn on_state_changed(&self, state: &Value, source: &Connection) -> Result<()> {
        let _ = (state, source);
        Ok(())
    }

    /// A request that opens a WebSocket, in a host without [`WebSockets`](crate::WebSockets), and that
    /// no capability has answered. Default: status 404.
    async fn on_upgrade(&self, request: Request) -> Result<Response> {
        let _ = request;
        crate::routing::problem(404, "Not Found", "WebSocket upgrades are not enabled")
    }

    /// A message of a WebSocket that was accepted for hibernation by the host itself. An error goes to
    /// the log, as it does in the two hooks below.
    async fn on_socket_message(
        &self,
        socket: WebSocket,
        message: WebSocketIncomingMessage,
    ) -> Result<()> {
        let _ = (socket, message);
        Ok(())
    }

    /// The end of such a WebSocket.
    async fn on_socket_close(&self, socket: WebSocket, close: Close) -> Result<()> {
        let _ = (socket, close);
        Ok(())
    }

    /// An error of such a WebSocket.
    async fn on_socket_error(&self, socket: WebSocket, error: worker::Error) -> Result<()> {
        let _ = (socket, error);
        Ok(())
    }

    /// Something is due that [`Lifecycle::schedule`] has planned. An error is retried; after that
    /// what repeats waits for its next time, and what does not is dropped.
    ///
    /// May run more than once for one time, since the object can go down at any moment.
    async fn on_schedule(&self, job: &ScheduledJob) -> Result<()> {
        Err(format!("nothing is done at the schedule \"{}\"", job.name).into())
    }

    /// The object's alarm has gone off, for whatever reason: also for jobs, which have been run.
    /// Default: nothing.
    ///
    /// An alarm of one's own is left alone as long as no jobs are planned.
    async fn on_alarm(&self) -> Result<()> {
        Ok(())
    }

    /// The object is being destroyed: [`Lifecycle::destroy`]. The capabilities come after it. Not
    /// called when the object is evicted.
    async fn on_dispose(&self) -> Result<()> {
        Ok(())
    }
}
