use worker::{Context, Env, Request, Response, Result, event};
use workers_agents::{Hooks, RegisterServer, ServerFilter, route_agent_request};

workers_agents::agent! { pub struct MyAgent; }

impl Hooks for MyAgent {
    async fn on_request(&self, _: Request) -> Result<Response> {
        let (mcp, all) = (self.agent.mcp(), ServerFilter::all());
        mcp.wait_for_connections(None).await;
        if mcp.list_tools(&all).is_empty() {
            let docs = RegisterServer::new("Docs", "https://docs.mcp.cloudflare.com/mcp");
            mcp.register_server("docs", docs).await?;
            mcp.connect_to_server("docs").await?;
            mcp.discover_if_connected("docs", None).await?;
        }
        Response::from_json(&mcp.list_tools(&all))
    }
}

#[event(fetch)]
async fn fetch(request: Request, env: Env, _: Context) -> Result<Response> {
    let routed = route_agent_request(request, &env).await?;
    routed.map_or_else(|| Response::error("Not found", 404), Ok)
}
