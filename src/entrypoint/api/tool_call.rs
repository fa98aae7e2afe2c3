//! `POST tools/call`: answered with the outcome, or with a stream that ends with it.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use worker::Request;

use super::{Answer, Api, Problem, level_of, object, read, send, stream};
use crate::mcp::{CallOptions, McpClientManager, Started};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    server_id: String,
    name: String,
    arguments: Option<Box<RawValue>>,
    /// Whether a task may come of it.
    #[serde(default)]
    task: bool,
    timeout_ms: Option<u64>,
    max_time_ms: Option<u64>,
    log_level: Option<String>,
}

/// A call that is ready to be made.
pub(super) struct ToolCall {
    server_id: String,
    name: String,
    arguments: Option<Box<RawValue>>,
    task: bool,
    pub(super) options: CallOptions,
}

/// Makes the call that a request asks for.
pub(super) async fn answer(api: Api<'_>, request: Request) -> Answer {
    let is_stream = stream::is_wanted(&request)?;
    let call = ToolCall::prepare(read(request).await?)?;
    if is_stream {
        let running = api.calls.begin().ok_or_else(|| {
            Problem::new(
                429,
                "too-many-calls",
                "too many calls are under way; wait for one",
            )
        })?;
        return stream::answer(api.mcp, call, running);
    }
    match call.run(api.mcp).await? {
        Started::Finished(result) => send(200, &result),
        Started::Task(task) => send(202, &task),
    }
}

impl ToolCall {
    fn prepare(body: Body) -> Result<Self, Problem> {
        let mut options = CallOptions::new();
        if let Some(ms) = body.timeout_ms {
            options = options.timeout(Duration::from_millis(ms));
        }
        if let Some(ms) = body.max_time_ms {
            options = options.max_time(Duration::from_millis(ms));
        }
        if let Some(level) = body.log_level {
            options = options.log_level(level_of(&level)?);
        }
        Ok(Self {
            server_id: body.server_id,
            name: body.name,
            arguments: object(body.arguments)?,
            task: body.task,
            options,
        })
    }

    /// Makes the call. The server is told when this is dropped before the end.
    pub(super) async fn run(self, mcp: &McpClientManager) -> Result<Started, Problem> {
        let Self {
            server_id,
            name,
            arguments,
            task,
            options,
        } = self;
        if task {
            let started = mcp
                .start_tool(&server_id, &name, arguments, None, &options)
                .await?;
            return Ok(started);
        }
        let result = mcp
            .call_tool_with(&server_id, &name, arguments, &options)
            .await?;
        Ok(Started::Finished(result))
    }
}
