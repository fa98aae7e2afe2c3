//! Serving MCP over a binding: the other side of [`RegisterServer::rpc`](crate::RegisterServer::rpc).
//!
//! An object that has an [`RpcServer`] and the macro [`serve_rpc!`](crate::serve_rpc) is called like an
//! `McpAgent` of the npm package `agents`, by this crate and by that package alike. It speaks the
//! legacy era. Whoever has a binding can call it: Workers of the same account, and nobody else.

mod caller;
mod desk;
mod server;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::protocol::RpcError;

pub use caller::ServedCaller;
pub use server::{RpcServer, ServeError, ServeLimits};

/// What a server says of itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerProfile {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// How models are to use it.
    pub instructions: Option<String>,
    /// What it offers, as on the wire: `{"tools": {}}`.
    pub capabilities: Map<String, Value>,
}

/// A request of a caller.
pub struct ServedRequest {
    /// The method, such as `tools/call`.
    pub method: String,
    pub(crate) params: Option<Box<RawValue>>,
}

impl ServedRequest {
    /// Its parameters. Absent ones are `null`.
    ///
    /// # Errors
    /// For the caller: they are something else.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        let text = self.params.as_ref().map_or("null", |params| params.get());
        // Serde's texts can quote what was sent; it goes back to whoever sent it.
        serde_json::from_str(text)
            .map_err(|error| RpcError::refusal(RpcError::INVALID_PARAMS, error.to_string()))
    }
}

/// What a server does.
///
/// `initialize` and `ping` are answered without it.
pub trait ServeMcp {
    /// What it says of itself. Asked with every handshake.
    fn profile(&self) -> ServerProfile;

    /// Answers a request with a result, an object. [`RpcError::unknown_method`] for what it does not
    /// know.
    ///
    /// The future is dropped when the request is cancelled, and when it takes too long.
    fn request(
        &self,
        request: &ServedRequest,
        caller: &ServedCaller,
    ) -> impl Future<Output = Result<Value, RpcError>>;

    /// Takes note of a notification. Default: nothing.
    fn notified(&self, method: &str, params: Option<&RawValue>) {
        let _ = (method, params);
    }
}

/// Parameters can hold anything, so only the method is shown.
impl std::fmt::Debug for ServedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServedRequest")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}
