//! Agents on Cloudflare Workers, written in Rust.

#[macro_use]
pub mod lifecycle;

pub mod agent;
#[cfg(feature = "entrypoint")]
mod entrypoint;
pub mod error;
pub mod events;
pub mod mcp;
pub mod ports;
pub mod protocol;
pub mod retry;
pub mod routing;
pub(crate) mod runtime;
pub mod transport;
pub mod url_guard;

pub use agent::Agent;
#[cfg(feature = "entrypoint")]
pub use entrypoint::ToolAgent;
pub use error::{Error, Result};
pub use lifecycle::{Capability, Hooks, Lifecycle, LifecycleObject};
pub use mcp::{
    CatalogCounts, ConnectionInfo, ConnectionState, McpClientManager, McpClientOptions,
    RegisterServer, ServerFilter, ServerId, ServerItem, StoredServer,
};
pub use routing::{kebab_case, route_agent_request};
