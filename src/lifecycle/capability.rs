//! Parts of an object that take events before the host does.

use async_trait::async_trait;
use worker::{Request, Response};

use crate::Result;

/// A part that is installed in a [`Lifecycle`](super::Lifecycle).
#[async_trait(?Send)]
pub trait Capability {
    /// What it is called in logs and errors.
    fn id(&self) -> &'static str;

    /// The object wakes. An error aborts the startup.
    async fn on_start(&self) -> Result<()> {
        Ok(())
    }

    /// A request. `None` leaves it to the next capability, and at last to the host.
    async fn on_request(&self, request: &Request) -> Result<Option<Response>> {
        let _ = request;
        Ok(None)
    }

    /// The object is being destroyed. Called in reverse order of installation.
    async fn dispose(&self) -> Result<()> {
        Ok(())
    }
}
