//! Servers ask, a page shows their forms, and whoever looks at it answers.

use serde_json::Value;
use worker::{Context, Env, Request, Response, ResponseBuilder, Result, event};
use workers_agents::routing::Verdict;
use workers_agents::{AddedServer, AgentRouter, Call, CallError, CallResult, Hooks};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

workers_agents::agent! { pub struct AskingAgent; }

impl Hooks for AskingAgent {
    async fn on_start(&self) -> Result<()> {
        self.agent.ask_browsers();
        Ok(())
    }

    async fn on_call(&self, call: &Call) -> CallResult {
        match call.method() {
            "addServer" => {
                let url = self.agent.env().var("MCP_URL")?.to_string();
                match self.agent.add_mcp_server(("Asking server", url)).await? {
                    AddedServer::Ready { id } => call.reply(&id),
                    AddedServer::Authenticating { .. } => Err(CallError::Failed(
                        "this server wants a sign-in: see the example oauth".into(),
                    )),
                }
            }
            // Its answer may take until the question is answered; other calls come in between.
            "callTool" => {
                let (server, tool, arguments): (String, String, Value) = call.args()?;
                let mcp = self.agent.mcp();
                call.reply(&mcp.call_tool(&server, &tool, arguments).await?)
            }
            _ => call.unknown(),
        }
    }
}

#[event(fetch)]
async fn fetch(request: Request, env: Env, _: Context) -> Result<Response> {
    match request.path().as_str() {
        "/" => return asset("text/html; charset=utf-8", include_str!("page.html")),
        "/page.js" => return asset("text/javascript", include_str!("page.js")),
        "/page.css" => return asset("text/css", include_str!("page.css")),
        _ => {}
    }
    let routed = AgentRouter::new()
        .on_before_connect(async |request, _| {
            // Pages of other origins may open WebSockets, and would be asked as well.
            if is_of_this_origin(&request)? {
                return Ok(Verdict::Continue(request));
            }
            Response::error("Not for other origins", 403).map(Verdict::Answer)
        })
        .route(request, &env)
        .await?;
    routed.map_or_else(|| Response::error("Not found", 404), Ok)
}

/// Programs that are no browsers send no `Origin`.
fn is_of_this_origin(request: &Request) -> Result<bool> {
    let own = request.url()?.origin().ascii_serialization();
    let origin = request.headers().get("origin")?;
    Ok(origin.is_none_or(|origin| origin == own))
}

fn asset(kind: &str, text: &str) -> Result<Response> {
    let response = ResponseBuilder::new()
        .with_header("content-type", kind)?
        .with_header("content-security-policy", POLICY)?
        .with_header("x-content-type-options", "nosniff")?;
    Ok(response.fixed(text.into()))
}
