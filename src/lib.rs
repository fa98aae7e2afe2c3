//! Agents on Cloudflare Workers: a Durable Object that connects to MCP servers, remembers them and
//! uses their tools.
//!
//! An agent is a Durable Object with an [`Agent`] in it; [`agent!`] writes both:
//!
//! ```
//! use worker::{Request, Response, Result};
//! use workers_agents::{Hooks, ServerFilter};
//!
//! workers_agents::agent! { pub struct MyAgent; }
//!
//! impl Hooks for MyAgent {
//!     async fn on_request(&self, _: Request) -> Result<Response> {
//!         let mcp = self.agent.mcp();
//!         mcp.wait_for_connections(None).await;
//!         Response::from_json(&mcp.list_tools(&ServerFilter::all()))
//!     }
//! }
//! ```
//!
//! [`route_agent_request`] sends `/agents/my-agent/<name>/…` to the object of that name;
//! [`AgentRouter`] does so with options, and [`agent_by_name`] gives one object. A Durable Object
//! written by hand uses [`Lifecycle`], [`McpClientManager`] and [`install!`] instead.
//!
//! # The map
//!
//! Start at [`mcp::McpClientManager`], which tells what happens at each call, then read the state
//! machine in `mcp/state.rs` and the entry points in [`lifecycle`]. A module uses modules on lower
//! rows only; `tests/layers.rs` checks that.
//!
//! ```text
//!   entrypoint                  the deployable Worker (feature `entrypoint`)
//!   ai                          tools for models, and a loop; `ai/platform.rs` above the line
//!   agent                       lifecycle, manager and sockets, wired together
//!   mcp/capability.rs           installs the manager in a lifecycle
//!   lifecycle                   entry points of the object, startup, jobs
//!   websockets  routing  runtime   browser sockets; URLs to objects; adapters for the ports
//! ──────────────────────────────  the platform: `worker` and JavaScript only above this line
//!   mcp                         servers, connections, catalogues
//!   transport    oauth          sending messages; getting permission
//!   protocol                    MCP on the wire: values, parsers, decisions
//!   ports  error  retry  events  invocation  url_guard  vault
//! ```
//!
//! Below the line nothing knows the platform: it runs natively, against servers in memory and a
//! clock moved by hand. Nothing is `Send`: an object lives in one thread.
//!
//! # Panics
//!
//! One Wasm instance serves every object of an isolate, and a panic loses it. No input, storage,
//! network or user code reaches a panic here. If your own code panics, a Worker built by
//! `agents-build` answers 503 at once and starts a new instance; storage is untouched.
//! A job that was running runs again, alone; one that does so time and again is given up
//! ([`lifecycle::JobPolicy`]).

#[macro_use]
pub mod lifecycle;

mod agent;
pub mod ai;
#[cfg(feature = "entrypoint")]
mod entrypoint;
pub mod error;
pub mod events;
mod invocation;
pub mod mcp;
pub mod oauth;
pub mod ports;
pub mod protocol;
pub mod retry;
pub mod routing;
pub(crate) mod runtime;
#[doc(hidden)]
pub mod served;
pub mod serving;
pub mod transport;
pub mod url_guard;
pub mod vault;
pub mod websockets;

pub use agent::{Agent, AgentOptions};
pub use ai::{
    AiError, AiTool, GenerateOptions, GeneratedText, OpenAiModel, ToolPins, ToolSet,
    WorkersAiModel, generate_text,
};
#[cfg(feature = "entrypoint")]
pub use entrypoint::ToolAgent;
pub use error::{Error, Result};
pub use lifecycle::{
    Capability, Hooks, Lifecycle, LifecycleObject, Plan, ScheduledJob, Services, Start, StartCause,
};
pub use mcp::{
    AddMcpServer, AddedServer, AuthorizationInfo, CallOptions, CatalogCounts, CatalogFreshness,
    Completion, CompletionTarget, Connected, ConnectionInfo, ConnectionState, ElicitMode,
    ElicitRequest, ElicitResult, ElicitationHandlers, KnownTask, LastError, ListKind, ListProblem,
    LoadedSkill, LogLevel, McpClientManager, McpClientOptions, McpEvent, McpServerState,
    McpServersState, OAuthCallback, OpenQuestions, OutputCheck, Progress, Question,
    ReconnectPolicy, RegisterServer, Root, SamplingRequest, SamplingResult, ServerFilter, ServerId,
    ServerItem, SignInOutcome, Started, StoredServer, StreamPolicy, Task, TaskStatus,
};
pub use oauth::{ClientInformation, OAuthError, OAuthProvider, OAuthSettings, StoredOAuthProvider};
pub use protocol::Revision;
pub use retry::RetryOptions;
pub use routing::{AgentRouter, agent_by_name, kebab_case, route_agent_request};
pub use runtime::{binding_http, log_events};
pub use transport::TransportKind;
pub use url_guard::UrlPolicy;
pub use websockets::{
    Call, CallError, CallResult, Connection, Message, WebSocketOptions, WebSockets,
};
