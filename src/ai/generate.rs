//! [`generate_text`]: a model that uses tools until it is done.

use std::collections::HashSet;

use futures::future::{Either, select};
use futures::{FutureExt as _, StreamExt as _, stream};
use serde_json::value::RawValue;

use super::error::AiError;
use super::model::{
    ChatMessage, FinishReason, Model, ModelAnswer, ModelRequest, ToolRequest, Usage,
};
use super::options::{Approval, GenerateOptions, PendingCall};
use super::output::ToolOutput;
use super::text::{clip_to, shown};
use super::tool_set::ToolSet;
use crate::mcp::CallOptions;
use crate::ports::Clock;

/// The longest reason that a model is told, in characters.
const MAX_REASON: usize = 1_000;
/// The longest name and id that are taken from a model, in characters.
const MAX_TAKEN: usize = 256;

/// What came of it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GeneratedText {
    /// What the model said last.
    pub text: String,
    /// Why it ended.
    pub ended: Ended,
    /// What happened, step by step.
    pub steps: Vec<Step>,
    /// The conversation with all of that, to go on from.
    pub messages: Vec<ChatMessage>,
    /// What all steps took.
    pub usage: Usage,
}

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Ended {
    /// The model asked for no more calls.
    Done(FinishReason),
    /// There were as many steps as allowed.
    MaxSteps,
    /// As [`GenerateOptions::stop_when`] asked for.
    Stopped,
}

/// One answer of the model, and the calls that it led to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Step {
    /// What the model said.
    pub text: String,
    /// What it had called, and what came of it, in its order.
    pub calls: Vec<(ToolRequest, ToolOutput)>,
    /// Why it stopped.
    pub finish: FinishReason,
    /// What it took.
    pub usage: Usage,
}

/// Lets a model answer, calls the tools that it asks for, and tells it what came of that, until it
/// asks for no more or a limit is reached. Calls that fail, that are refused or that make no sense
/// are told to the model.
///
/// ```no_run
/// # use workers_agents::{Agent, ServerFilter};
/// # use workers_agents::ai::{AiError, Approval, GenerateOptions, generate_text};
/// # async fn example(agent: &Agent) -> Result<(), AiError> {
/// let model = agent.workers_ai_model("AI", "@cf/zai-org/glm-4.7-flash")?;
/// let tools = agent.ai_tools(&ServerFilter::all());
/// let options = GenerateOptions::prompt("What is the tide in Brest?")
///     .max_steps(8)
///     .approve(|call| async move {
///         match call.tool.annotations().may_destroy() {
///             true => Approval::Deny("ask the user first".into()),
///             false => Approval::Allow,
///         }
///     });
/// let answer = generate_text(&model, &tools, options).await?;
/// println!("{}", answer.text);
/// # Ok(())
/// # }
/// ```
///
/// Dropping the future gives up what is under way: the request to the model, and the calls, whose
/// servers are told.
///
/// # Errors
/// [`AiError::Model`], [`AiError::Timeout`] and [`AiError::TooLarge`]. Tools may have been called
/// by then.
pub async fn generate_text(
    model: &dyn Model,
    tools: &ToolSet,
    options: GenerateOptions,
) -> Result<GeneratedText, AiError> {
    let clock = tools.manager.clock();
    let limit = options.timeout;
    let run = Run {
        model,
        tools,
        clock: &*clock,
        options: &options,
    };
    let work = run.run().boxed_local();
    match select(work, clock.sleep(limit)).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right(_) => Err(AiError::Timeout {
            what: "all of it",
            after: limit,
        }),
    }
}

struct Run<'a> {
    model: &'a dyn Model,
    tools: &'a ToolSet,
    clock: &'a dyn Clock,
    options: &'a GenerateOptions,
}

impl Run<'_> {
    async fn run(&self) -> Result<GeneratedText, AiError> {
        let mut messages = self.options.messages.clone();
        let mut steps: Vec<Step> = Vec::new();
        let mut usage = Usage::default();
        loop {
            self.measure(&messages)?;
            let mut answer = self.ask(&messages).await?;
            usage.add(answer.usage);
            name_calls(&mut answer.calls, &messages);
            messages.push(ChatMessage::Assistant {
                text: answer.text.clone(),
                calls: answer.calls.clone(),
            });
            let outputs = self.call_all(&answer.calls).await;
            for (call, output) in answer.calls.iter().zip(&outputs) {
                messages.push(ChatMessage::Tool {
                    call_id: call.id.clone(),
                    name: call.name.clone(),
                    output: output.clone(),
                });
            }
            let is_done = answer.calls.is_empty();
            steps.push(Step {
                text: answer.text,
                calls: answer.calls.into_iter().zip(outputs).collect(),
                finish: answer.finish,
                usage: answer.usage,
            });
            let ended = if is_done {
                Ended::Done(answer.finish)
            } else if self.options.stops(&steps) {
                Ended::Stopped
            } else if steps.len() >= self.options.max_steps {
                Ended::MaxSteps
            } else {
                continue;
            };
            let text = steps.last().map(|step| step.text.clone());
            return Ok(GeneratedText {
                text: text.unwrap_or_default(),
                ended,
                steps,
                messages,
                usage,
            });
        }
    }

    fn measure(&self, messages: &[ChatMessage]) -> Result<(), AiError> {
        let max = self.options.max_bytes;
        let system = self.options.system.as_ref().map_or(0, String::len);
        let bytes = messages
            .iter()
            .map(ChatMessage::bytes)
            .fold(system, usize::saturating_add);
        if bytes > max {
            return Err(AiError::TooLarge(max));
        }
        Ok(())
    }

    async fn ask(&self, messages: &[ChatMessage]) -> Result<ModelAnswer, AiError> {
        let request = ModelRequest {
            system: self.options.system.as_deref(),
            messages,
            tools: self.tools,
            max_tokens: self.options.max_tokens,
            on_text: self.options.on_text.as_deref(),
        };
        let after = self.options.model_timeout;
        match select(self.model.generate(&request), self.clock.sleep(after)).await {
            Either::Left((answer, _)) => Ok(answer?),
            Either::Right(_) => Err(AiError::Timeout {
                what: "the answer of the model",
                after,
            }),
        }
    }

    /// Approvals are asked for one after the other, then calls run side by side.
    async fn call_all(&self, calls: &[ToolRequest]) -> Vec<ToolOutput> {
        let mut checked = Vec::with_capacity(calls.len());
        for (at, call) in calls.iter().enumerate() {
            checked.push((call, self.check(at, call).await));
        }
        let running = checked.into_iter().map(|(call, checked)| async move {
            match checked {
                Ok(arguments) => self.call(call, arguments).await,
                Err(refusal) => refusal,
            }
        });
        stream::iter(running)
            .buffered(self.options.parallel)
            .collect()
            .await
    }

    /// The arguments of a call that may be made, or what the model is told instead.
    async fn check(&self, at: usize, call: &ToolRequest) -> Result<Box<RawValue>, ToolOutput> {
        if at >= self.options.max_calls {
            return Err(ToolOutput::error("not called: too many calls at once"));
        }
        let Some(tool) = self.tools.get(&call.name) else {
            let name = shown(&call.name, MAX_TAKEN);
            return Err(ToolOutput::error(&format!("there is no tool \"{name}\"")));
        };
        // Models leave out what is empty.
        let text = match call.arguments.trim() {
            "" | "null" => "{}",
            text => text,
        };
        let arguments = RawValue::from_string(text.to_owned());
        let arguments = arguments
            .ok()
            .filter(|arguments| arguments.get().starts_with('{'));
        let Some(arguments) = arguments else {
            let text = "not called: the arguments are not a JSON object";
            return Err(ToolOutput::error(text));
        };
        let Some(approve) = &self.options.approve else {
            return Ok(arguments);
        };
        let pending = PendingCall {
            tool: tool.clone(),
            arguments: arguments.clone(),
        };
        match approve(pending).await {
            Approval::Allow => Ok(arguments),
            Approval::Deny(reason) => {
                let reason = clip_to(&reason, MAX_REASON);
                Err(ToolOutput::error(&format!("not called: {reason}")))
            }
        }
    }

    async fn call(&self, call: &ToolRequest, arguments: Box<RawValue>) -> ToolOutput {
        let limit = self.options.tool_timeout;
        let options = CallOptions::new().timeout(limit).max_time(limit);
        let called = self.tools.call_with(&call.name, arguments, &options);
        match called.await {
            Ok(result) => ToolOutput::of(&result, &self.options.output),
            Err(error) => ToolOutput::error(&shown(&error.to_string(), MAX_REASON)),
        }
    }
}

/// Gives calls ids that tell them apart: some models give none, or the same again.
fn name_calls(calls: &mut [ToolRequest], messages: &[ChatMessage]) {
    let before = messages.iter().flat_map(|message| match message {
        ChatMessage::Assistant { calls, .. } => calls.as_slice(),
        ChatMessage::User(_) | ChatMessage::Tool { .. } => &[],
    });
    let mut used: HashSet<String> = before.map(|call| call.id.clone()).collect();
    for call in calls {
        call.name = clip_to(&call.name, MAX_TAKEN);
        let is_usable = !call.id.is_empty() && call.id.len() <= MAX_TAKEN;
        if is_usable && used.insert(call.id.clone()) {
            continue;
        }
        let mut number = used.len();
        while !used.insert(format!("call_{number}")) {
            number += 1;
        }
        call.id = format!("call_{number}");
    }
}
