use worker::{Context, Env, Request, Response, Result, event};
use workers_agents::{Hooks, ServerFilter, route_agent_request};

workers_agents::agent! { pub struct MyAgent; }

impl Hooks for MyAgent {
    async fn on_request(&self, _: Request) -> Result<Response> {
        let docs = ("Docs", "https://docs.mcp.cloudflare.com/mcp");
        let _ = self.agent.add_mcp_server(docs).await?;
        Response::from_json(&self.agent.mcp().list_tools(&ServerFilter::all()))
    }
}

#[event(fetch)]
async fn fetch(request: Request, env: Env, _: Context) -> Result<Response> {
    let routed = route_agent_request(request, &env).await?;
    routed.map_or_else(|| Response::error("Not found", 404), Ok)
}
