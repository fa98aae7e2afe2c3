//! A server that wants its user to sign in: the first visit leads there, and back to the tools.

use worker::{Context, Env, Request, Response, Result, event};
use workers_agents::{AddedServer, Hooks, OAuthCallback, ServerFilter, route_agent_request};

workers_agents::agent! { pub struct SignInAgent; }

impl Hooks for SignInAgent {
    async fn on_start(&self) -> Result<()> {
        // Relative to the callback, `/agents/sign-in-agent/<name>/callback`.
        let callback = OAuthCallback::new()
            .success_redirect("./")
            .error_redirect("./failed");
        self.agent.mcp().configure_oauth_callback(callback);
        Ok(())
    }

    async fn on_request(&self, request: Request) -> Result<Response> {
        // Otherwise whoever says no would be asked again and again.
        if request.path().ends_with("/failed") {
            return Response::error("The sign-in has failed. Go back to start again.", 403);
        }
        let url = self.agent.env().var("MCP_URL")?.to_string();
        match self.agent.add_mcp_server(("Protected", url)).await? {
            AddedServer::Ready { .. } => {
                Response::from_json(&self.agent.mcp().list_tools(&ServerFilter::all()))
            }
            // A secret: to the user whose visit this is, and to nobody else.
            AddedServer::Authenticating { auth_url, .. } => {
                Response::redirect(auth_url.as_str().parse()?)
            }
        }
    }
}

/// Whoever knows an agent's name uses it as its user. Let users in first, or look at `hidden-names`.
#[event(fetch)]
async fn fetch(request: Request, env: Env, _: Context) -> Result<Response> {
    let routed = route_agent_request(request, &env).await?;
    routed.map_or_else(|| Response::error("Not found", 404), Ok)
}
