//! Tasks: calls that a server works on after it has answered.
//!
//! Two designs exist. In 2025-11-25 (experimental) the client asks for a task and fetches its result
//! by `tasks/result`; in the tasks extension of 2026-07-28 the server decides, and `tasks/get`
//! carries result, error or required inputs. Here both are one: start, look, wait, cancel. A task
//! that has been started is stored, so it is found again after a wake.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::call::CallOptions;
use super::client::{Client, How, Line};
use super::connection::Connection;
use super::manager::{params, raw};
use super::offers::TASKS_EXTENSION;
use super::sign_in::Operation;
use super::tool_call::ToolCall;
use super::within::within;
use super::{McpClientManager, ServerId};
use crate::ports::{TaskRow, Timestamp};
use crate::protocol::bounded::{is_object, raw_member, small_member};
use crate::protocol::jsonrpc::read_error;
use crate::protocol::model::TaskSupport;
use crate::protocol::request::Call;
use crate::protocol::{CallToolResult, ProtocolError, RpcError};
use crate::{Error, Result};

/// The pause between two looks, where the server names none, and its bounds.
const POLL: Duration = Duration::from_secs(1);
const SHORTEST_POLL: Duration = Duration::from_millis(100);
const LONGEST_POLL: Duration = Duration::from_mins(1);
/// The longest id of a task, in bytes.
const MAX_ID: usize = 1_024;
/// The most tasks that are kept in mind. The oldest one makes way.
const MAX_TASKS: usize = 1_000;
/// The longest text of a task that is kept, in bytes of JSON.
const MAX_TEXT: usize = 8 << 10;

/// What came of starting a tool.
#[derive(Debug, Clone)]
pub enum Started {
    /// The server has answered already.
    Finished(CallToolResult),
    /// The server is working on it.
    Task(Task),
}

/// A task as its server describes it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Task {
    /// The server that works on it.
    pub server_id: ServerId,
    /// Its id, unique at the server.
    #[serde(rename = "taskId")]
    pub id: String,
    /// How it stands.
    pub status: TaskStatus,
    /// What the server says about that. Untrusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_message: Option<String>,
    /// How long the server keeps it, from its creation, in milliseconds. `None`: unlimited, or
    /// unknown.
    pub ttl_ms: Option<u64>,
    /// How often the server wants to be asked, in milliseconds.
    pub poll_interval_ms: Option<u64>,
}

/// How a task stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TaskStatus {
    /// Under way.
    Working,
    /// Waiting for an answer of the user.
    InputRequired,
    /// Done. The tool's own failure is a result, too.
    Completed,
    /// Ended by an error.
    Failed,
    /// Ended on request.
    Cancelled,
}

impl TaskStatus {
    /// Whether nothing more will come of it.
    pub const fn is_over(&self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    fn parse(name: &str) -> Option<Self> {
        match name {
            "working" | "submitted" => Some(Self::Working),
            "input_required" => Some(Self::InputRequired),
            "completed" => Some(Self::Completed),
            "failed" => Some(Self::Failed),
            "cancelled" => Some(Self::Cancelled),
            _ => None,
        }
    }
}

impl Task {
    /// Reads a task out of a result: that of `tasks/get`, or the member `task` of the one that
    /// created it.
    fn read(server_id: &ServerId, method: &'static str, task: &RawValue) -> Result<Self> {
        let malformed = |reason: &str| ProtocolError::MalformedResult {
            method,
            reason: reason.into(),
        };
        let id: String = small_member(task, "taskId", MAX_TEXT)
            .filter(|id: &String| !id.is_empty() && id.len() <= MAX_ID)
            .ok_or_else(|| malformed("\"taskId\" is missing"))?;
        let status: String =
            small_member(task, "status", 64).ok_or_else(|| malformed("\"status\" is missing"))?;
        let number = |names: [&str; 2]| {
            let [new, old] = names;
            small_member(task, new, 32).or_else(|| small_member(task, old, 32))
        };
        Ok(Self {
            server_id: server_id.clone(),
            id,
            status: TaskStatus::parse(&status)
                .ok_or_else(|| malformed("\"status\" is none that is known"))?,
            status_message: small_member(task, "statusMessage", MAX_TEXT),
            ttl_ms: number(["ttlMs", "ttl"]),
            poll_interval_ms: number(["pollIntervalMs", "pollInterval"]),
        })
    }

    fn poll_interval(&self) -> Duration {
        let asked = self.poll_interval_ms.map_or(POLL, Duration::from_millis);
        asked.clamp(SHORTEST_POLL, LONGEST_POLL)
    }
}

/// A task that this object has started and not yet seen the end of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct KnownTask {
    /// The server.
    pub server_id: ServerId,
    /// Its id.
    pub task_id: String,
    /// The tool.
    pub tool: String,
    /// When it was started, in milliseconds since the Unix epoch.
    pub started_at: Timestamp,
}

impl McpClientManager {
    /// Starts a tool as a task, where tool and server can do that; else calls it.
    ///
    /// `ttl` is how long the server is asked to keep the task (2025-11-25 only).
    ///
    /// # Errors
    /// As [`call_tool`](Self::call_tool).
    pub async fn start_tool(
        &self,
        server_id: &str,
        name: &str,
        arguments: impl Serialize,
        ttl: Option<Duration>,
        options: &CallOptions,
    ) -> Result<Started> {
        let arguments = raw(&arguments)?;
        let connection = self.open_connection(server_id).await?;
        self.know_tools(&connection).await;
        let outcome = connection.start_tool(name, &arguments, ttl, options).await;
        let operation = Operation::on("tools/call", name);
        connection.account(operation, outcome).await
    }

    /// Asks a server how a task stands.
    ///
    /// # Errors
    /// [`Error::UnknownTask`] when the server does not know it; else as
    /// [`call_tool`](Self::call_tool).
    pub async fn task(&self, server_id: &str, task_id: &str) -> Result<Task> {
        let connection = self.open_connection(server_id).await?;
        let outcome = connection.look_at(task_id, &CallOptions::default()).await;
        let outcome = outcome.map(|(task, _)| task);
        connection
            .account(Operation::of("tasks/get"), outcome)
            .await
    }

    /// Waits for a task and returns what the call would have returned. Questions to the user that
    /// come with it go to the elicitation handlers.
    ///
    /// Takes [`CallOptions::max_time`] at most; the task goes on when that is over, and can be
    /// awaited again.
    ///
    /// # Errors
    /// [`Error::UnknownTask`], [`Error::TaskCancelled`], [`Error::Rpc`] when it failed,
    /// [`Error::Timeout`]; else as [`call_tool`](Self::call_tool).
    pub async fn await_task(
        &self,
        server_id: &str,
        task_id: &str,
        options: &CallOptions,
    ) -> Result<CallToolResult> {
        let connection = self.open_connection(server_id).await?;
        let limit = options.max_time;
        let limit = limit.unwrap_or(self.inner.common.options.max_request_time);
        let work = connection.await_task(task_id, options);
        let outcome = within(&*self.inner.common.ports.clock, limit, "a task", work).await;
        connection
            .account(Operation::of("tasks/get"), outcome)
            .await
    }

    /// Asks a server to give a task up. It may complete all the same.
    ///
    /// # Errors
    /// [`Error::UnknownTask`] when the server does not know it; else as
    /// [`call_tool`](Self::call_tool).
    pub async fn cancel_task(&self, server_id: &str, task_id: &str) -> Result<()> {
        let connection = self.open_connection(server_id).await?;
        let options = CallOptions::default();
        let outcome = connection
            .task_request("tasks/cancel", task_id, None, &options)
            .await;
        if outcome.is_ok() {
            connection.forget_task(task_id);
        }
        let outcome = outcome.map(drop);
        connection
            .account(Operation::of("tasks/cancel"), outcome)
            .await
    }

    /// The tasks that have been started here and whose end has not been seen, oldest first; those
    /// that the servers keep no longer are left out. Asks nobody.
    ///
    /// # Errors
    /// Storage errors.
    pub fn known_tasks(&self) -> Result<Vec<KnownTask>> {
        let now = self.inner.common.ports.clock.now();
        let rows = self.inner.common.ports.tasks.list()?;
        let rows = rows
            .into_iter()
            .filter(|row| row.expires_at.is_none_or(|at| at > now));
        Ok(rows
            .map(|row| KnownTask {
                server_id: ServerId::verbatim(row.server_id),
                task_id: row.task_id,
                tool: row.tool,
                started_at: row.started_at,
            })
            .collect())
    }
}

impl Connection {
    async fn start_tool(
        self: &Rc<Self>,
        name: &str,
        arguments: &RawValue,
        ttl: Option<Duration>,
        options: &CallOptions,
    ) -> Result<Started> {
        let way = self.task_way(name)?;
        let mut task = Map::new();
        if let Some(ttl) = ttl {
            task.insert(
                "ttl".into(),
                json!(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            );
        }
        let mut members = Vec::new();
        if way == Way::Asked {
            members.push(("task", raw(&Value::Object(task))?));
        }
        let call = ToolCall {
            name,
            arguments: arguments.to_owned(),
            options,
            tasks: way == Way::Extension,
            members,
        };
        let (result, facts) = self.send_tool_call(call).await?;
        let created = match way {
            Way::None => None,
            Way::Asked => raw_member(&result, "task").filter(|task| task.get() != "null"),
            Way::Extension => {
                let kind: Option<String> = small_member(&result, "resultType", 64);
                (kind.as_deref() == Some("task")).then_some(&*result)
            }
        };
        if let Some(created) = created {
            let task = Task::read(self.id(), "tools/call", created)?;
            // If it cannot be stored, it is not found again after a wake; it runs all the same.
            let _ = self.keep_task(&task, name);
            return Ok(Started::Task(task));
        }
        let result = CallToolResult::new(result);
        if let Some(facts) = facts {
            facts.check(name, &result)?;
        }
        Ok(Started::Finished(result))
    }

    /// Calls a tool that its server runs as a task only, and waits for it.
    pub(super) async fn call_as_task(
        self: &Rc<Self>,
        name: &str,
        arguments: &RawValue,
        options: &CallOptions,
    ) -> Result<CallToolResult> {
        match self.start_tool(name, arguments, None, options).await? {
            Started::Finished(result) => Ok(result),
            Started::Task(task) => {
                let limit = options.max_time;
                let limit = limit.unwrap_or(self.common.options.max_request_time);
                let work = self.await_task(&task.id, options);
                within(&*self.common.ports.clock, limit, "tools/call", work).await
            }
        }
    }

    /// How a call of this tool becomes a task.
    fn task_way(&self, name: &str) -> Result<Way> {
        let client = self.open_client()?;
        let session = client.session().ok_or(Error::Closed)?;
        let card = &session.agreed.card;
        if session.is_modern() {
            return Ok(if card.offers_extension(TASKS_EXTENSION) {
                Way::Extension
            } else {
                Way::None
            });
        }
        let catalog = self.catalog();
        let facts = catalog.index.facts(&catalog.tools, name)?;
        let support = facts.map_or(TaskSupport::Forbidden, |facts| facts.task_support());
        Ok(
            if card.runs_tools_as_tasks() && support != TaskSupport::Forbidden {
                Way::Asked
            } else {
                Way::None
            },
        )
    }

    /// Whether a tool can be called as a task only.
    pub(super) fn demands_task(&self, name: &str) -> bool {
        let catalog = self.catalog();
        let facts = catalog.index.facts(&catalog.tools, name).ok().flatten();
        facts.is_some_and(|facts| facts.task_support() == TaskSupport::Required)
            && self.task_way(name).is_ok_and(|way| way == Way::Asked)
    }

    async fn look_at(
        self: &Rc<Self>,
        task_id: &str,
        options: &CallOptions,
    ) -> Result<(Task, Box<RawValue>)> {
        let result = self
            .task_request("tasks/get", task_id, None, options)
            .await?;
        let task = Task::read(self.id(), "tasks/get", &result)?;
        if task.id != task_id {
            return Err(ProtocolError::MalformedResult {
                method: "tasks/get",
                reason: "it is about another task".into(),
            }
            .into());
        }
        Ok((task, result))
    }

    async fn await_task(
        self: &Rc<Self>,
        task_id: &str,
        options: &CallOptions,
    ) -> Result<CallToolResult> {
        let client = self.open_client()?;
        let _use = client.begin_use();
        let mut answered = BTreeSet::new();
        loop {
            let (task, result) = self.look_at(task_id, options).await?;
            let is_modern = client.session().is_some_and(|session| session.is_modern());
            let outcome = match task.status {
                TaskStatus::Working => None,
                TaskStatus::Cancelled => Some(Err(Error::TaskCancelled)),
                // It blocks until the task is over, and what the server asks comes with it.
                _ if !is_modern => {
                    let result = self
                        .task_request("tasks/result", task_id, None, options)
                        .await;
                    // One request for it is over, the task is not.
                    let is_over = !matches!(result, Err(Error::Timeout { .. }));
                    is_over.then_some(result)
                }
                TaskStatus::InputRequired => {
                    self.give_inputs(&client, task_id, &result, &mut answered, options)
                        .await?;
                    None
                }
                TaskStatus::Completed => {
                    let result = raw_member(&result, "result").map(ToOwned::to_owned);
                    let malformed = ProtocolError::MalformedResult {
                        method: "tasks/get",
                        reason: "\"result\" is missing".into(),
                    };
                    Some(result.ok_or_else(|| malformed.into()))
                }
                TaskStatus::Failed => {
                    let error = raw_member(&result, "error").map(read_error);
                    let unknown =
                        || RpcError::new(RpcError::INTERNAL, "the task failed".into(), None);
                    Some(Err(error.unwrap_or_else(unknown).into()))
                }
            };
            match outcome {
                None => self.common.ports.clock.sleep(task.poll_interval()).await,
                Some(outcome) => {
                    let is_lost = matches!(
                        &outcome,
                        Err(Error::Timeout { .. } | Error::Transport(_) | Error::Closed)
                    );
                    let tool = self.tool_of(task_id);
                    if !is_lost {
                        self.forget_task(task_id);
                    }
                    return self.task_result(tool.as_deref(), outcome?);
                }
            }
        }
    }

    /// Answers what a task of the modern era waits for. Nobody is asked the same twice: the status
    /// may lag behind (tasks extension, `tasks/update`).
    async fn give_inputs(
        self: &Rc<Self>,
        client: &Rc<Client>,
        task_id: &str,
        task: &RawValue,
        answered: &mut BTreeSet<String>,
        options: &CallOptions,
    ) -> Result<()> {
        // As text, so that the user's form is what the server sent.
        let requests = raw_member(task, "inputRequests").filter(|value| value.get() != "null");
        let Some(requests) = requests else {
            return Ok(());
        };
        let requests: Option<BTreeMap<_, _>> = Some(requests.get())
            .filter(|text| text.len() <= MAX_INPUTS)
            .and_then(|text| serde_json::from_str(text).ok());
        let malformed = || ProtocolError::MalformedResult {
            method: "tasks/get",
            reason: "its input requests are none".into(),
        };
        let mut requests: BTreeMap<String, Box<RawValue>> = requests.ok_or_else(malformed)?;
        requests.retain(|key, _| !answered.contains(key));
        if requests.is_empty() {
            return Ok(());
        }
        let session = client.session().ok_or(Error::Closed)?;
        let mut line = Line::of(&session)?;
        line.offers = client.offers();
        let keys: Vec<String> = requests.keys().cloned().collect();
        let responses = client
            .input_responses("tasks/get", &line, &raw(&requests)?)
            .await?;
        self.task_request("tasks/update", task_id, Some(responses), options)
            .await?;
        answered.extend(keys);
        Ok(())
    }

    async fn task_request(
        self: &Rc<Self>,
        method: &'static str,
        task_id: &str,
        responses: Option<Box<RawValue>>,
        options: &CallOptions,
    ) -> Result<Box<RawValue>> {
        let mut members = vec![("taskId", raw(&task_id)?)];
        members.extend(responses.map(|responses| ("inputResponses", responses)));
        let call = Call {
            method,
            target: Some(task_id.to_owned()),
            params: params(members),
        };
        let mut how = How::from(options);
        how.tasks = true;
        let outcome = self.open_client()?.request(&call, how).await;
        match outcome {
            // Of other methods the code may say that the task is over, or be the task's own error.
            Err(Error::Rpc(error))
                if error.code == RpcError::INVALID_PARAMS && method == "tasks/get" =>
            {
                self.forget_task(task_id);
                Err(Error::UnknownTask(task_id.to_owned()))
            }
            outcome => outcome,
        }
    }

    /// The tool that a task was started with, where that is known.
    fn tool_of(&self, task_id: &str) -> Option<String> {
        let rows = self.common.ports.tasks.list().ok()?;
        let row = rows
            .into_iter()
            .find(|row| row.server_id == self.id().as_str() && row.task_id == task_id);
        row.map(|row| row.tool)
    }

    /// The result of a task, held to what a call's would be.
    fn task_result(&self, tool: Option<&str>, result: Box<RawValue>) -> Result<CallToolResult> {
        if !is_object(&result) {
            return Err(ProtocolError::MalformedResult {
                method: "tools/call",
                reason: "not an object".into(),
            }
            .into());
        }
        let result = CallToolResult::new(result);
        if let Some(tool) = tool {
            self.check_output(tool, &result)?;
        }
        Ok(result)
    }

    fn keep_task(&self, task: &Task, tool: &str) -> Result<()> {
        let ports = &self.common.ports;
        let now = ports.clock.now();
        let rows = ports.tasks.list()?;
        let over = rows
            .iter()
            .filter(|row| row.expires_at.is_some_and(|at| at <= now));
        let surplus = rows.iter().take((rows.len() + 1).saturating_sub(MAX_TASKS));
        for row in over.chain(surplus) {
            ports.tasks.delete(&row.server_id, &row.task_id)?;
        }
        Ok(ports.tasks.put(&TaskRow {
            server_id: self.id().to_string(),
            task_id: task.id.clone(),
            tool: tool.to_owned(),
            started_at: now,
            expires_at: task.ttl_ms.map(|ttl| now.saturating_add(ttl)),
        })?)
    }

    fn forget_task(&self, task_id: &str) {
        // If it cannot be forgotten, it is once more asked for in vain.
        let _ = self.common.ports.tasks.delete(self.id().as_str(), task_id);
    }
}

/// The longest map of input requests of a task, in bytes of JSON.
const MAX_INPUTS: usize = 256 << 10;

/// How a call becomes a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Not at all.
    None,
    /// By asking for it (2025-11-25).
    Asked,
    /// If the server likes (2026-07-28, tasks extension).
    Extension,
}
