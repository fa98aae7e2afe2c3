//! Two objects in one Worker: a server that keeps notes, and an agent that uses it over its binding.

mod server;

use serde_json::json;
use worker::{Context, Env, Method, Request, Response, Result, event};
use workers_agents::{AddMcpServer, Hooks, route_agent_request};

workers_agents::agent! { pub struct NotesAgent; }

/// `POST` keeps the body as a note, `GET` reads them all.
impl Hooks for NotesAgent {
    async fn on_request(&self, mut request: Request) -> Result<Response> {
        let (tool, arguments) = match request.method() {
            Method::Get => ("read_notes", json!({})),
            Method::Post => ("add_note", json!({"text": request.text().await?})),
            _ => return Response::error("Method not allowed", 405),
        };
        // Notes of its own for each agent; without `isolated` they would share them.
        let owner = json!({"owner": self.agent.name()?});
        let notes = AddMcpServer::rpc("Notes", "NotesServer")
            .props(&owner)
            .isolated();
        let added = self.agent.add_mcp_server(notes).await?;
        let mcp = self.agent.mcp();
        let result = mcp.call_tool(added.id().as_str(), tool, arguments).await?;
        let status = if result.is_error() { 422 } else { 200 };
        Ok(Response::ok(result.text())?.with_status(status))
    }
}

/// The server answers nothing but calls over its binding: a request of a browser gets 404.
#[event(fetch)]
async fn fetch(request: Request, env: Env, _: Context) -> Result<Response> {
    let routed = route_agent_request(request, &env).await?;
    routed.map_or_else(|| Response::error("Not found", 404), Ok)
}
