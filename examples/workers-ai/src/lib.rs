//! A model of Workers AI that uses the tools of MCP servers until it knows the answer.

mod model;

use serde_json::Value;
use worker::{Ai, Context, Env, Method, Request, Response, Result, event};
use workers_agents::{AddedServer, Hooks, McpClientManager, ServerFilter, route_agent_request};

use crate::model::{Conversation, Turn, Wanted};

/// How often the model may ask for tools before it has to answer.
const MAX_ROUNDS: usize = 5;
/// The most calls of one round; those above it are answered with a refusal.
const MAX_CALLS: usize = 8;
/// The longest question, and how much of a tool's result the model is shown, in bytes.
const MAX_QUESTION: usize = 8 << 10;
const MAX_RESULT: usize = 16 << 10;

workers_agents::agent! { pub struct ModelAgent; }

impl Hooks for ModelAgent {
    /// `POST` a question as text, get the answer as text.
    async fn on_request(&self, mut request: Request) -> Result<Response> {
        if request.method() != Method::Post {
            return Response::error("POST a question", 405);
        }
        let question = request.text().await?;
        if question.trim().is_empty() || question.len() > MAX_QUESTION {
            let error = format!("a question has 1 to {MAX_QUESTION} bytes");
            return Response::error(error, 422);
        }
        let env = self.agent.env();
        let server = ("Server", env.var("MCP_URL")?.to_string());
        if let AddedServer::Authenticating { .. } = self.agent.add_mcp_server(server).await? {
            return Response::error("the server wants a sign-in: see the example oauth", 409);
        }
        let (ai, model) = (env.ai("AI")?, env.var("MODEL")?.to_string());
        match self.answer(&ai, &model, &question).await? {
            Some(answer) => Response::ok(answer),
            None => Response::error("the model has not come to an answer", 502),
        }
    }
}

impl ModelAgent {
    async fn answer(&self, ai: &Ai, model: &str, question: &str) -> Result<Option<String>> {
        let mcp = self.agent.mcp();
        let mut conversation = Conversation::new(&mcp.list_tools(&ServerFilter::all()), question);
        for _ in 0..MAX_ROUNDS {
            let answer: Value = ai.run(model, conversation.input(true)?).await?;
            match Turn::read(&answer) {
                Turn::Answer(text) => return Ok(Some(text)),
                Turn::Calls(calls) => {
                    conversation.asked(&calls);
                    for (number, call) in calls.iter().enumerate() {
                        let result = if number < MAX_CALLS {
                            run(mcp, &conversation, call).await
                        } else {
                            "Error: too many calls at once".into()
                        };
                        conversation.told(call, clip(&result));
                    }
                }
                Turn::Nothing => return Ok(None),
            }
        }
        // Without tools there is nothing left but to answer.
        let answer: Value = ai.run(model, conversation.input(false)?).await?;
        Ok(match Turn::read(&answer) {
            Turn::Answer(text) => Some(text),
            Turn::Calls(_) | Turn::Nothing => None,
        })
    }
}

/// Runs a tool. What goes wrong is for the model to read, which may then do better.
///
/// The model decides what is run: let the user agree before tools that change something.
async fn run(mcp: &McpClientManager, conversation: &Conversation, call: &Wanted) -> String {
    let Some((server, tool)) = conversation.tool(&call.name) else {
        return format!("Error: there is no tool {}", call.name);
    };
    match mcp.call_tool(server.as_str(), tool, &call.arguments).await {
        Ok(result) if result.is_error() => format!("Error: {}", result.text()),
        Ok(result) => match result.text() {
            text if !text.is_empty() => text,
            _ => result
                .structured_content()
                .map_or_else(|| "Done".into(), |content| content.get().to_owned()),
        },
        Err(error) => format!("Error: {}", error.describe()),
    }
}

fn clip(text: &str) -> &str {
    let mut end = text.len().min(MAX_RESULT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[event(fetch)]
async fn fetch(request: Request, env: Env, _: Context) -> Result<Response> {
    let routed = route_agent_request(request, &env).await?;
    routed.map_or_else(|| Response::error("Not found", 404), Ok)
}
