use worker::{Context, Env, Request, Response, Result, event};
use workers_agents::{Hooks, RegisterServer, ServerFilter, route_agent_request};

workers_agents::agent! { pub struct MyAgent; }

impl Hooks for MyAgent {
    async fn on_request(&self, _: Request) -> Result<Response> {
        let (mcp, url) = (self.agent.mcp(), "https://docs.mcp.cloudflare.com/mcp");
        if mcp.connection("docs").is_none() {
            mcp.register_server("docs", RegisterServer::new("Cloudflare Docs", url))
                .await?;
            mcp.connect_to_server("docs").await?;
            mcp.discover_if_connected("docs", None).await?;
        }
        mcp.wait_for_connections(None).await;
        Response::from_json(&mcp.list_tools(&ServerFilter::all()))
    }
}

#[event(fetch)]
async fn fetch(request: Request, env: Env, _: Context) -> Result<Response> {
    let routed = route_agent_request(request, &env).await?;
    routed.map_or_else(|| Response::error("Not found", 404), Ok)
}
