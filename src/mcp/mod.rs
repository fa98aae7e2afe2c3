//! The MCP client manager: servers, connections, catalogues.
//!
//! Everything here works on [`ports`](crate::ports) and runs natively. Words: a *server* is a remote
//! MCP server, stored as a row; a *connection* is its live side; the *catalogue* is what it offers.
//!
//! A method of the manager always reads the same way: apply an event, await while holding nothing,
//! settle if the attempt is still the current one.

mod capability;
mod catalog;
mod client;
mod connection;
mod filter;
mod handshake;
mod info;
mod joined;
mod manager;
mod options;
mod permits;
mod reconnect;
mod register;
mod server;
mod server_id;
mod session;
mod skills;
mod state;
mod within;

pub use catalog::ListProblem;
pub use filter::ServerFilter;
pub use info::{CatalogCounts, ConnectionInfo, ServerItem};
pub use manager::McpClientManager;
pub use options::McpClientOptions;
pub use register::RegisterServer;
pub use server::StoredServer;
pub use server_id::ServerId;
pub use skills::LoadedSkill;
pub use state::ConnectionState;
