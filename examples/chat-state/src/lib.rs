//! A chat that everybody sees alike: shared state, methods for browsers, streams, and work for later.
//!
//! With the npm client, or `useAgent` of `agents/react`:
//!
//! ```js
//! import { AgentClient } from "agents/client";
//! const chat = new AgentClient({ host, agent: "chat-agent", name: "lobby", onStateUpdate: show });
//! await chat.call("say", ["ada", "hello"]);
//! await chat.call("history", [10], { stream: { onChunk: (message) => … } });
//! await chat.call("remind", [60, "tea is ready"]);
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use worker::{Context, Date, Env, Request, Response, Result, event};
use workers_agents::{
    Call, CallError, CallResult, Connection, Hooks, Plan, ScheduledJob, route_agent_request,
};

/// Older messages are forgotten.
const MAX_MESSAGES: usize = 100;
/// In characters, as are names and topics.
const MAX_TEXT: usize = 500;
/// The longest time to be reminded after.
const A_WEEK: u64 = 7 * 24 * 60 * 60;
/// Who says what nobody has said.
const CLOCK: &str = "the clock";

workers_agents::agent! { pub struct ChatAgent; }

/// What everybody sees.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Chat {
    topic: String,
    messages: Vec<Message>,
}

#[derive(Serialize, Deserialize)]
struct Message {
    from: String,
    text: String,
    /// Milliseconds since the Unix epoch.
    at: u64,
}

impl Hooks for ChatAgent {
    fn initial_state(&self) -> Option<Value> {
        Some(json!({"topic": "", "messages": []}))
    }

    /// Viewers see everything and change nothing. Here the URL says who is one; elsewhere it would be
    /// the session of the request.
    fn is_readonly(&self, request: &Request) -> bool {
        request.url().is_ok_and(|url| {
            url.query_pairs()
                .any(|pair| pair == ("role".into(), "viewer".into()))
        })
    }

    /// Browsers may set the topic, by `setState`. Messages come by `say` only.
    fn validate_state(&self, state: &Value, _: &Connection) -> Result<()> {
        let state: Chat = serde_json::from_value(state.clone())?;
        let has_same_messages = {
            let now = serde_json::to_value(self.chat()?.messages)?;
            serde_json::to_value(&state.messages)? == now
        };
        if !has_same_messages {
            return Err("messages cannot be changed".into());
        }
        check(&state.topic).map_err(|error| error.to_string().into())
    }

    async fn on_call(&self, call: &Call) -> CallResult {
        match call.method() {
            "say" => {
                let (from, text): (String, String) = call.args()?;
                check(&from)?;
                check(&text)?;
                self.say(&from, &text)?;
                call.reply(&())
            }
            // One message after the other, as a stream.
            "history" => {
                let (most,): (usize,) = call.args()?;
                let chat = self.chat()?;
                let skipped = chat.messages.len().saturating_sub(most);
                let messages = chat.messages.iter().skip(skipped);
                let sent = messages.map(|message| call.send(message));
                call.reply(&json!({"sent": sent.collect::<Result<Vec<_>, _>>()?.len()}))
            }
            "remind" => {
                let (seconds, text): (u64, String) = call.args()?;
                check(&text)?;
                writer(call)?;
                let delay = Duration::from_secs(seconds.min(A_WEEK));
                let job = self.agent.schedule(Plan::after(delay), "remind", &text)?;
                call.reply(&json!({"id": job.id, "at": job.at}))
            }
            // In UTC: `0 9 * * 1-5`. A new time takes the place of the old one.
            "remindByCron" => {
                let (cron, text): (String, String) = call.args()?;
                check(&text)?;
                writer(call)?;
                let plan = Plan::cron(cron).id("regular");
                let job = self.agent.schedule(plan, "remind", &text)?;
                call.reply(&json!({"id": job.id, "at": job.at}))
            }
            "forget" => {
                let (id,): (String,) = call.args()?;
                writer(call)?;
                call.reply(&self.agent.lifecycle().cancel_schedule(&id)?)
            }
            _ => call.unknown(),
        }
    }

    /// Also after the object was evicted. Those who come later find it in the state.
    async fn on_schedule(&self, job: &ScheduledJob) -> Result<()> {
        match job.name.as_str() {
            "remind" => self
                .say(CLOCK, &job.payload::<String>()?)
                .map_err(Into::into),
            other => Err(format!("nothing is done at the schedule {other}").into()),
        }
    }
}

impl ChatAgent {
    fn chat(&self) -> workers_agents::Result<Chat> {
        Ok(self.agent.state()?.unwrap_or_default())
    }

    /// Fails while a call of a viewer is being handled.
    fn say(&self, from: &str, text: &str) -> workers_agents::Result<()> {
        let mut chat = self.chat()?;
        chat.messages.push(Message {
            from: from.to_owned(),
            text: text.to_owned(),
            at: Date::now().as_millis(),
        });
        let old = chat.messages.len().saturating_sub(MAX_MESSAGES);
        chat.messages.drain(..old);
        self.agent.set_state(&chat)
    }
}

/// The state is guarded against viewers; what is planned is for us to guard.
fn writer(call: &Call) -> Result<(), CallError> {
    if call.connection().is_readonly() {
        return Err(CallError::Failed("viewers cannot do that".into()));
    }
    Ok(())
}

fn check(text: &str) -> Result<(), CallError> {
    if text.chars().count() > MAX_TEXT {
        let error = format!("longer than {MAX_TEXT} characters");
        return Err(CallError::InvalidArguments(error));
    }
    Ok(())
}

#[event(fetch)]
async fn fetch(request: Request, env: Env, _: Context) -> Result<Response> {
    let routed = route_agent_request(request, &env).await?;
    routed.map_or_else(|| Response::error("Not found", 404), Ok)
}
