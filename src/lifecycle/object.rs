//! What a Durable Object implements.

use worker::{Request, Response, Result, WebSocket, WebSocketIncomingMessage};

use super::{Close, Lifecycle, ScheduledJob};

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

    /// A request that opens a WebSocket and that no capability has answered. Default: status 404.
    async fn on_upgrade(&self, request: Request) -> Result<Response> {
        let _ = request;
        crate::routing::problem(404, "Not Found", "WebSocket upgrades are not enabled")
    }

    /// A message of a WebSocket that was accepted for hibernation and is no capability's. An error
    /// goes to the log, as it does in the two hooks below.
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
