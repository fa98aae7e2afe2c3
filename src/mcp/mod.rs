//! The MCP client manager: servers, connections, catalogues.
//!
//! Everything here works on [`ports`](crate::ports) and runs natively. Words: a *server* is a remote
//! MCP server, stored as a row; a *connection* is its live side; the *catalogue* is what it offers.
//!
//! A method of the manager always reads the same way: apply an event, await while holding nothing,
//! settle if the attempt is still the current one.

mod add;
mod asked;
mod attached;
mod authorization;
mod behind;
mod browser;
mod call;
mod callback;
mod capability;
mod catalog;
mod client;
mod connection;
mod deadline;
mod dial;
mod document;
mod elicitation;
mod event;
mod exchange;
mod features;
mod filter;
mod handlers;
mod handshake;
mod inbox;
mod info;
mod joined;
mod listening;
mod lists;
mod manager;
mod notify;
mod offers;
mod options;
mod pages;
mod permission;
mod permits;
mod planned;
mod questions;
mod reconnect;
mod refresh;
mod register;
mod rename;
mod sealed;
mod serial;
mod server;
mod server_id;
mod session;
mod sign_in;
mod skills;
mod slots;
mod snapshot;
mod state;
mod stored_catalog;
mod tasks;
mod tool_call;
mod tools;
mod within;

pub(crate) use add::Callback;
pub use add::{AddMcpServer, AddedServer};
pub use call::{CallOptions, LogLevel, Progress};
pub use callback::{OAuthCallback, SignInOutcome};
#[cfg(feature = "entrypoint")]
pub(crate) use capability::as_platform_response;
pub use catalog::{ListKind, ListProblem};
pub use elicitation::{ElicitMode, ElicitRequest, ElicitResult, ElicitationHandlers};
pub use event::McpEvent;
pub use features::{Completion, CompletionTarget};
pub use filter::ServerFilter;
pub use handlers::{Root, SamplingRequest, SamplingResult};
pub use info::{
    AuthorizationInfo, CatalogCounts, CatalogFreshness, Connected, ConnectionInfo, LastError,
    ServerItem,
};
pub use manager::McpClientManager;
pub use options::{CreateAuthProvider, McpClientOptions, ReconnectPolicy, StreamPolicy};
pub use questions::{OpenQuestions, Question};
pub use register::RegisterServer;
pub use server::StoredServer;
pub use server_id::ServerId;
pub use skills::LoadedSkill;
pub use snapshot::{McpServerState, McpServersState};
pub use state::ConnectionState;
pub use tasks::{KnownTask, Started, Task, TaskStatus};
pub use tools::OutputCheck;
