//! MCP on the wire: values, parsers and decisions. Pure: no I/O, no clock, no randomness.
//!
//! An exchange is one JSON-RPC message sent and a list of messages received that ends with the
//! response. Two eras exist. In the *legacy* era (revisions up to 2025-11-25) an `initialize`
//! handshake agrees on a session; in the *modern* era (2026-07-28) every request carries its
//! revision and the client's capabilities in `params._meta`. A server's era is found by sending a
//! modern `server/discover` first and judging what comes back ([`version::judge`]).

pub(crate) mod bounded;
pub mod form;
mod frontmatter;
pub mod jsonrpc;
pub mod mirror;
pub mod model;
pub mod request;
pub mod schema;
pub mod skills;
pub mod sse;
pub mod version;

pub use jsonrpc::{Message, RequestId, RpcError};
pub use model::{
    CallToolResult, GetPromptResult, Prompt, ReadResourceResult, Resource, ResourceTemplate, Tool,
};
pub use skills::{Skill, SkillFile, SkillMismatch};
pub use version::{Era, Revision};

/// The server's bytes do not mean what the protocol asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// Not JSON, or not a JSON-RPC message; the text is the parser's and quotes nothing.
    #[error("the answer is not a JSON-RPC message: {0}")]
    NotJsonRpc(String),
    /// A result lacks a member or has another type than the method's result.
    #[error("the result of {method} is malformed: {reason}")]
    MalformedResult {
        /// The method that was called.
        method: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A response to another request arrived where ours was due.
    #[error("the response id does not match the request")]
    WrongResponseId,
    /// The server chose a revision that this client does not speak.
    #[error(
        "the server's protocol version is not supported: {0}; this client speaks 2024-11-05 to 2026-07-28"
    )]
    UnsupportedVersion(String),
    /// Server and client share no revision.
    #[error("no common protocol version; the server supports: {}", .0.join(", "))]
    NoCommonVersion(Vec<String>),
    /// A result kind (`resultType`) that was not asked for.
    #[error(
        "the server answered {method} with result type \"{kind}\", which this client did not offer"
    )]
    UnexpectedResultType {
        /// The method that was called.
        method: &'static str,
        /// The `resultType` received, cut to a sane length.
        kind: String,
    },
    /// The server kept requiring input.
    #[error("{method} still required input after {rounds} rounds")]
    TooManyRounds {
        /// The method that was called.
        method: &'static str,
        /// The limit that applied.
        rounds: u32,
    },
    /// A list did not end.
    #[error("{method}: the list did not end within {pages} pages")]
    EndlessList {
        /// The list method.
        method: &'static str,
        /// The limit that applied.
        pages: u32,
    },
    /// A list goes in circles: a page brings nothing new and says that there is more.
    #[error("{method}: the list goes in circles; what came before is kept")]
    CircularList {
        /// The list method.
        method: &'static str,
    },
    /// A list, over all its pages, has more items than the configured limit.
    #[error("{method}: the list has more than {items} items")]
    ListTooLong {
        /// The list method.
        method: &'static str,
        /// The limit that applied.
        items: usize,
    },
    /// A list, over all its pages, is larger than the configured limit.
    #[error("{method}: the list is larger than {bytes} bytes")]
    ListTooLarge {
        /// The list method.
        method: &'static str,
        /// The limit that applied.
        bytes: usize,
    },
}

/// Cuts untrusted text to at most `max` characters and marks the cut.
pub(crate) fn clip(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
