use worker::{Context, Env, Request, Response, Result, event};
use workers_agents::{AddedServer, Hooks, OAuthCallback, ServerFilter, route_agent_request};

workers_agents::agent! { pub struct MyAgent; }

impl Hooks for MyAgent {
    /// Once each time the object wakes.
    async fn on_start(&self) -> Result<()> {
        // After a sign-in, back to the page: relative to the callback.
        let callback = OAuthCallback::new().success_redirect("./");
        self.agent.mcp().configure_oauth_callback(callback);
        Ok(())
    }

    async fn on_request(&self, _: Request) -> Result<Response> {
        let url = self.agent.env().var("MCP_URL")?.to_string();
        match self.agent.add_mcp_server(("My server", url)).await? {
            AddedServer::Ready { .. } => {
                Response::from_json(&self.agent.mcp().list_tools(&ServerFilter::all()))
            }
            AddedServer::Authenticating { auth_url, .. } => {
                Response::redirect(auth_url.as_str().parse()?)
            }
        }
    }
}

#[event(fetch)]
async fn fetch(request: Request, env: Env, _: Context) -> Result<Response> {
    let routed = route_agent_request(request, &env).await?;
    routed.map_or_else(|| Response::error("Not found", 404), Ok)
}
