//! What a Durable Object implements.

use worker::{Request, Response, Result};

use super::Lifecycle;

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

    /// The object's alarm. Default: nothing.
    async fn on_alarm(&self) -> Result<()> {
        Ok(())
    }
}
