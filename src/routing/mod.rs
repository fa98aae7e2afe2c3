//! From URLs to objects: `/agents/<class>/<name>/…`.
//!
//! `<class>` is the name of a Durable Object binding in kebab case: `MyAgent` is `my-agent`. Of two
//! bindings that read alike the one wins that is written just like that, and else the first by letter.
//! `<name>` is the instance, percent-encoded as [`encode_segment`] does it, and decoded exactly once, so
//! that every name reaches an object of its own.

mod class;
mod cors;
mod handle;
mod internal;
mod name;
mod path;
mod place;
pub(crate) mod props;
mod retry;
mod router;
mod target;

use worker::{Env, Request, Response, ResponseBuilder, Result};

pub use cors::Cors;
pub use handle::AgentHandle;
pub(crate) use internal::{started, take_internal};
pub use name::{MAX_NAME_BYTES, NameError, decode_segment, encode_segment};
pub use path::{AgentPath, agent_path, kebab_case};
pub use place::{Jurisdiction, LocationHint};
pub use retry::RoutingRetry;
pub use router::{AgentRoute, AgentRouter, Verdict};

/// Hands a request for `/agents/<class>/<name>/…` to the object of that name, without internal headers.
/// `None` when the path is no agent path.
///
/// The short form of [`AgentRouter::route`], which says what is answered when.
///
/// # Errors
/// When the platform refuses the request as it stands.
pub async fn route_agent_request(request: Request, env: &Env) -> Result<Option<Response>> {
    AgentRouter::new().route(request, env).await
}

/// The object of a Durable Object binding by its name, started: for code that finds the name by itself.
///
/// The short form of [`AgentRouter::agent_by_name`], which has options. An object without a
/// [`Lifecycle`](crate::Lifecycle) gets `GET https://agents-lifecycle.invalid/start`.
///
/// # Errors
/// When there is no such binding, when the name is none, and when the object does not start.
pub async fn agent_by_name(env: &Env, binding: &str, name: &str) -> Result<AgentHandle> {
    AgentRouter::new().agent_by_name(env, binding, name).await
}

/// A problem document (RFC 9457).
pub(crate) fn problem(status: u16, title: &str, detail: &str) -> Result<Response> {
    let body = serde_json::json!({"type": "about:blank", "title": title, "status": status, "detail": detail});
    let response = ResponseBuilder::new().with_status(status);
    Ok(response
        .with_header("content-type", "application/problem+json")?
        .fixed(body.to_string().into()))
}
