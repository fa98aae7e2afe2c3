//! The methods of [`ToolAgent`](super::ToolAgent) that browsers call: `agent.call(…)` of the npm
//! clients.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::agent::Agent;
use crate::mcp::{AddMcpServer, AddedServer, CallOptions};
use crate::transport::TransportKind;
use crate::websockets::{Call, CallError, CallResult};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ToolCall {
    server_id: String,
    name: String,
    arguments: Option<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Options {
    id: Option<String>,
    transport: Transport,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Transport {
    r#type: Option<TransportKind>,
    headers: std::collections::BTreeMap<String, String>,
}

/// - `callTool({serverId, name, arguments})` streams `{progress, total, message}` and returns the
///   result;
/// - `addMcpServer(name, url, {id, transport: {type, headers}})` returns `{id, state, authUrl}`;
/// - `removeMcpServer(id)` returns whether it was there;
/// - `getMcpServers()` returns what the frame `cf_agent_mcp_servers` holds.
pub(super) async fn answer(agent: &Agent, call: &Call) -> CallResult {
    match call.method() {
        "callTool" => {
            let (tool,): (ToolCall,) = call.args()?;
            let progress = call.clone();
            let options = CallOptions::new().on_progress(move |step| {
                // Nobody may be there any more; then the result is dropped, too.
                let _ = progress.send(step);
            });
            let (server, name) = (&tool.server_id, &tool.name);
            let called = agent
                .mcp()
                .call_tool_with(server, name, tool.arguments, &options);
            call.reply(&called.await?)
        }
        "addMcpServer" => {
            let (name, url, options) = added(call)?;
            let mut server = AddMcpServer::new(name, url);
            server.id = options.id;
            if let Some(kind) = options.transport.r#type {
                server = server.transport(kind);
            }
            for (name, value) in options.transport.headers {
                server = server.header(name, value);
            }
            match agent.add_mcp_server(server).await? {
                AddedServer::Ready { id } => {
                    call.reply(&serde_json::json!({"id": id, "state": "ready"}))
                }
                AddedServer::Authenticating { id, auth_url } => call.reply(&serde_json::json!({
                    "id": id, "state": "authenticating", "authUrl": auth_url.as_str(),
                })),
            }
        }
        "removeMcpServer" => {
            let (id,): (String,) = call.args()?;
            call.reply(&agent.remove_mcp_server(&id).await?)
        }
        "getMcpServers" => call.reply(&agent.mcp_servers().await?),
        _ => call.unknown(),
    }
}

/// The arguments of `addMcpServer`, of which the last one may be left out.
fn added(call: &Call) -> Result<(String, String, Options), CallError> {
    let mut given: Vec<Value> = call.args()?;
    if given.len() == 2 {
        given.push(Value::Object(serde_json::Map::new()));
    }
    serde_json::from_value(Value::Array(given))
        .map_err(|error| CallError::InvalidArguments(error.to_string()))
}
