//! Errors as problem details (RFC 9457).

use serde_json::{Map, Value, json};
use worker::{Headers, Response, ResponseBuilder, Result};

use crate::Error;
use crate::mcp::ConnectionState;

/// A failed request. `kind` names the case for programs, `detail` says it to people.
#[derive(Debug)]
pub(super) struct Problem {
    status: u16,
    kind: &'static str,
    detail: String,
    allow: Option<&'static str>,
    members: Map<String, Value>,
}

impl Problem {
    pub(super) fn new(status: u16, kind: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            detail: detail.into(),
            allow: None,
            members: Map::new(),
        }
    }

    /// The method is not one of `allow` (RFC 9110 §15.5.6).
    pub(super) fn method_not_allowed(allow: &'static str) -> Self {
        let detail = format!("allowed here: {allow}");
        Self {
            allow: Some(allow),
            ..Self::new(405, "method-not-allowed", detail)
        }
    }

    /// Adds an extension member.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// The problem alone, for an answer that has begun.
    pub(super) fn into_body(self) -> Value {
        let title = http::StatusCode::from_u16(self.status)
            .ok()
            .and_then(|status| status.canonical_reason());
        let mut body = Map::new();
        body.insert("type".into(), "about:blank".into());
        body.insert("title".into(), title.unwrap_or("Error").into());
        body.insert("status".into(), self.status.into());
        body.insert("kind".into(), self.kind.into());
        body.insert("detail".into(), self.detail.into());
        body.extend(self.members);
        Value::Object(body)
    }

    /// The response, never to be cached.
    pub(super) fn into_response(self) -> Result<Response> {
        let (status, allow) = (self.status, self.allow);
        let headers = Headers::new();
        headers.set("content-type", "application/problem+json")?;
        headers.set("cache-control", "no-store")?;
        if let Some(allow) = allow {
            headers.set("allow", allow)?;
        }
        if status == 401 {
            headers.set("www-authenticate", "Bearer")?;
        }
        let body = self.into_body().to_string();
        Ok(ResponseBuilder::new()
            .with_status(status)
            .with_headers(headers)
            .fixed(body.into_bytes()))
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::UnknownServer(_) | Error::UnknownTask(_) => 404,
            Error::BlockedUrl(_)
            | Error::InvalidOption(_)
            | Error::InvalidRetry(_)
            | Error::UnsupportedTransport(_)
            | Error::NoCallback { .. }
            | Error::UnusableTool { .. } => 422,
            Error::SignInRequired { .. }
            | Error::ServerIdInUse { .. }
            | Error::DamagedRow { .. }
            | Error::NotConnected { .. }
            | Error::Closed
            | Error::TaskCancelled
            | Error::QuestionClosed => 409,
            Error::Timeout { .. } => 504,
            Error::Transport(_)
            | Error::Authorization(_)
            | Error::NoTransport { .. }
            | Error::Rpc(_)
            | Error::Protocol(_)
            | Error::InvalidOutput { .. }
            | Error::InputRefused { .. }
            | Error::Skill(_) => 502,
            Error::Connection(_) => 400,
            Error::ReadonlyConnection => 403,
            Error::Storage(_) | Error::Install(_) | Error::Runtime(_) => 500,
        };
        let mut problem = Self::new(status, error.code(), error.describe());
        if let Some(status) = error.http_status() {
            problem = problem.with("httpStatus", status);
        }
        if let Error::Rpc(rpc) = &error {
            problem = problem
                .with("code", rpc.code)
                .with("message", rpc.message.clone());
            let data = rpc
                .data
                .as_ref()
                .and_then(|data| serde_json::from_str::<Value>(data.get()).ok());
            if let Some(data) = data {
                problem = problem.with("data", data);
            }
        }
        if let Error::SignInRequired { id, auth_url } = &error {
            problem = problem
                .with("serverId", id.as_str())
                .with("state", json!(ConnectionState::Authenticating))
                .with("authUrl", auth_url.as_str());
        }
        if let Error::NotConnected { state, .. } = &error {
            problem = problem.with("state", json!(state));
        }
        problem
    }
}

impl From<worker::Error> for Problem {
    /// What the platform says is for the log, not for the caller.
    fn from(error: worker::Error) -> Self {
        worker::console_error!("request failed: {error}");
        Self::new(
            500,
            "runtime",
            "the platform refused; the Worker's log says more",
        )
    }
}
