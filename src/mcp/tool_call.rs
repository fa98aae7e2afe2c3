//! Calling a tool: what is worked out before, and what is checked after.

use std::rc::Rc;

use serde_json::value::RawValue;

use super::CatalogFreshness;
use super::call::CallOptions;
use super::catalog::ListKind;
use super::client::How;
use super::connection::Connection;
use super::manager::{params, raw};
use super::reconnect::KNOW_WAIT;
use super::sign_in::Operation;
use super::tools::{OutputCheck, ToolFacts};
use super::within::within;
use crate::protocol::request::Call;
use crate::protocol::{CallToolResult, RpcError};
use crate::{Error, Result};

const ARGUMENTS: &str = "arguments";

/// One call of a tool.
pub(super) struct ToolCall<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: Box<RawValue>,
    pub(super) options: &'a CallOptions,
    /// Whether the answer may be a task.
    pub(super) tasks: bool,
    /// Further parameters.
    pub(super) members: Vec<(&'static str, Box<RawValue>)>,
}

impl Connection {
    /// Calls a tool and checks its structured output.
    pub(super) async fn call_tool(self: &Rc<Self>, call: ToolCall<'_>) -> Result<CallToolResult> {
        let name = call.name;
        if self.demands_task(name) {
            let ToolCall {
                arguments, options, ..
            } = call;
            return self.call_as_task(name, &arguments, options).await;
        }
        let (result, facts) = self.send_tool_call(call).await?;
        let result = CallToolResult::new(result);
        if let Some(facts) = facts
            && let Err(error) = facts.check(name, &result)
        {
            if !self.is_outdated() {
                return Err(error);
            }
            // The tool has run; it may have changed while the object slept. What cannot be found out
            // now is no reason to withhold its answer.
            self.revalidate().await;
            if !self.is_outdated() {
                self.check_output(name, &result)?;
            }
        }
        Ok(result)
    }

    /// Whether the lists are those from before the object slept.
    pub(super) fn is_outdated(&self) -> bool {
        self.lists.freshness() == CatalogFreshness::Stored
    }

    /// Waits a while for the lists to be loaded anew.
    async fn revalidate(self: &Rc<Self>) {
        if let Ok(discovery) = self.discover(self.common.options.discovery_timeout) {
            let clock = &*self.common.ports.clock;
            let _ = within(clock, KNOW_WAIT, "tools/list", discovery).await;
        }
    }

    /// Sends the call. When the server finds that headers and body disagree, its list of tools says
    /// something else than ours: it is loaded anew, and the call, which was refused, is sent once
    /// more (2026-07-28, tools).
    pub(super) async fn send_tool_call(
        self: &Rc<Self>,
        call: ToolCall<'_>,
    ) -> Result<(Box<RawValue>, Option<Rc<ToolFacts>>)> {
        let ToolCall {
            name,
            arguments,
            options,
            tasks,
            members,
        } = call;
        let mut members = members;
        members.splice(0..0, [("name", raw(&name)?), (ARGUMENTS, arguments)]);
        let request = Call {
            method: "tools/call",
            target: Some(name.to_owned()),
            params: params(members),
        };
        let send = || self.send_once(name, &request, options, tasks);
        match send().await {
            Err(Error::Rpc(RpcError {
                code: RpcError::HEADER_MISMATCH,
                ..
            })) => {
                let client = self.open_client()?;
                let limit = self.common.options.discovery_timeout;
                let catalog = self.load(&client, limit, &[ListKind::Tools], false).await?;
                if !self.take_over(catalog, &[ListKind::Tools]).is_empty() {
                    (self.common.changed)();
                }
                send().await
            }
            outcome => outcome,
        }
    }

    async fn send_once(
        self: &Rc<Self>,
        name: &str,
        request: &Call,
        options: &CallOptions,
        tasks: bool,
    ) -> Result<(Box<RawValue>, Option<Rc<ToolFacts>>)> {
        let client = self.open_client()?;
        let known = || {
            let catalog = self.catalog();
            catalog.index.facts(&catalog.tools, name)
        };
        let facts = match known() {
            Err(_) if self.is_outdated() => {
                self.revalidate().await;
                known()
            }
            facts => facts,
        }?;
        let mut how = How::from(options);
        how.tasks = tasks;
        // In the legacy era an annotation is only an unknown keyword.
        let is_modern = client.session().is_some_and(|session| session.is_modern());
        if let Some(facts) = facts.as_ref().filter(|_| is_modern) {
            how.mirrored = facts.mirrored(request.params.get(ARGUMENTS))?;
        }
        Ok((client.request(request, how).await?, facts))
    }

    /// How a result fits the output schema of its tool.
    pub(super) fn check_output(&self, name: &str, result: &CallToolResult) -> Result<OutputCheck> {
        let catalog = self.catalog();
        match catalog.index.facts(&catalog.tools, name)? {
            Some(facts) => facts.check(name, result),
            None => Ok(OutputCheck::NothingToCheck),
        }
    }

    /// Keeps account of how a request went, as far as it says something of the server. Where it was
    /// refused for want of permission, that is asked for.
    pub(super) async fn account<T>(
        self: &Rc<Self>,
        operation: Operation<'_>,
        outcome: Result<T>,
    ) -> Result<T> {
        let error = match outcome {
            Ok(result) => {
                self.succeeded();
                self.forgive(operation);
                return Ok(result);
            }
            Err(error) => self.seek_permission(error, operation).await,
        };
        if let Error::Timeout { .. }
        | Error::Transport(_)
        | Error::Protocol(_)
        | Error::NoTransport { .. }
        | Error::InvalidOutput { .. }
        | Error::Authorization(_)
        | Error::Rpc(_) = &error
        {
            self.failed(&error);
        }
        Err(error)
    }
}
