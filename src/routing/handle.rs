//! One object, for code that addresses it by its name.

use std::fmt;

use worker::{Request, Response, Result, Stub};

use super::internal::{start_request, with_props};
use super::retry::RoutingRetry;
use super::target::Target;

/// A way to one object, from [`agent_by_name`](super::agent_by_name). Cheap to clone.
#[derive(Clone)]
pub struct AgentHandle {
    pub(super) target: Target,
    /// As it stands in the header.
    pub(super) props: Option<String>,
    pub(super) retry: Option<RoutingRetry>,
}

impl AgentHandle {
    /// The name of the instance.
    pub fn name(&self) -> &str {
        &self.target.name
    }

    /// Starts the object, unless it is started.
    pub(super) async fn start(&self) -> Result<()> {
        let request = start_request(self.props.as_deref())?;
        let answer = self.target.fetch(request, self.retry.as_ref()).await?;
        match answer.status_code() {
            status @ 500.. => {
                Err(format!("the agent does not start: it answers with status {status}").into())
            }
            // An object that is no agent says what it likes.
            _ => Ok(()),
        }
    }

    /// Sends a request to the object. Its internal headers are removed; its path may be any.
    ///
    /// # Errors
    /// When the object cannot be reached, or throws.
    pub async fn fetch(&self, request: Request) -> Result<Response> {
        let request = with_props(request, self.props.as_deref())?;
        self.target.fetch(request, self.retry.as_ref()).await
    }

    /// The platform's own stub, for RPC methods. Requests that it sends are passed on as they are:
    /// do not hand it requests from outside, which may carry internal headers.
    ///
    /// # Errors
    /// When the platform refuses the name.
    pub fn stub(&self) -> Result<Stub> {
        self.target.stub()
    }
}

impl fmt::Debug for AgentHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentHandle")
            .field("name", &self.target.name)
            .finish_non_exhaustive()
    }
}
