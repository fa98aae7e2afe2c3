//! What browsers see of the servers.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    CatalogCounts, ConnectionState, McpClientManager, ServerFilter, ServerId, ServerItem,
    StoredServer,
};
use crate::protocol::{Prompt, Resource, ResourceTemplate, Tool, clip};
use crate::{Error, Result};

/// The longest error text, in characters.
const MAX_ERROR: usize = 500;

/// The servers of an object, and what they offer: what `getMcpServers()` of the TypeScript package
/// gives and its clients are sent, with the resource templates besides.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct McpServersState {
    /// Every server that is registered, by its id.
    pub servers: BTreeMap<ServerId, McpServerState>,
    /// The tools of all servers.
    pub tools: Vec<ServerItem<Tool>>,
    /// Their prompts.
    pub prompts: Vec<ServerItem<Prompt>>,
    /// Their resources.
    pub resources: Vec<ServerItem<Resource>>,
    /// Their resource templates.
    pub resource_templates: Vec<ServerItem<ResourceTemplate>>,
}

/// One server, as browsers see it.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct McpServerState {
    /// Its display name.
    pub name: String,
    /// Its URL, as registered.
    pub server_url: String,
    /// Where its user signs in, while it waits for that. For its user alone.
    pub auth_url: Option<String>,
    /// Its state.
    pub state: ConnectionState,
    /// Why it is down, without control characters, in at most 500 characters. Not to be trusted: it
    /// may come from the server.
    pub error: Option<String>,
    /// What it said it can do.
    pub capabilities: Option<Box<RawValue>>,
    /// How it wants to be used. Not to be trusted.
    pub instructions: Option<String>,
    /// How much it offers.
    pub counts: CatalogCounts,
}

impl McpClientManager {
    /// The servers, and what they offer. Asks nobody.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn snapshot(&self) -> Result<McpServersState> {
        let all = ServerFilter::all();
        Ok(McpServersState {
            tools: self.list_tools(&all),
            prompts: self.list_prompts(&all),
            resources: self.list_resources(&all),
            resource_templates: self.list_resource_templates(&all),
            ..self.servers_snapshot().await?
        })
    }

    /// The servers, without what they offer.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn servers_snapshot(&self) -> Result<McpServersState> {
        let mut servers = BTreeMap::new();
        let live: Vec<_> = self.inner.connections.borrow().clone();
        let is_complete = live.len() == self.number()?;
        for connection in live {
            let server = connection.server();
            servers.insert(server.id.clone(), self.describe(&server).await);
        }
        if !is_complete {
            // Closed ones, and those whose rows cannot be read, which are left out.
            for server in self.list_servers()? {
                if !servers.contains_key(&server.id) {
                    servers.insert(server.id.clone(), self.describe(&server).await);
                }
            }
        }
        Ok(McpServersState {
            servers,
            tools: Vec::new(),
            prompts: Vec::new(),
            resources: Vec::new(),
            resource_templates: Vec::new(),
        })
    }

    async fn describe(&self, server: &StoredServer) -> McpServerState {
        let id = server.id.as_str();
        let live = self.connection(id);
        let state = live
            .as_ref()
            .map_or(ConnectionState::NotConnected, |live| live.state);
        // Only these wait for their users; what cannot be read now is not known.
        let auth_url = match state {
            ConnectionState::Authenticating => self.auth_url(id).await.ok().flatten(),
            _ => None,
        };
        let card = live.as_ref().and_then(|live| live.card.as_ref());
        McpServerState {
            name: server.name.clone(),
            server_url: server.url.clone(),
            auth_url: auth_url.map(|url| url.as_str().to_owned()),
            state,
            error: live
                .as_ref()
                .and_then(|live| live.error.as_ref())
                .map(plain_text),
            capabilities: card
                .and_then(|card| serde_json::value::to_raw_value(&card.capabilities).ok()),
            instructions: card.and_then(|card| card.instructions.clone()),
            counts: live.as_ref().map(|live| live.counts).unwrap_or_default(),
        }
    }
}

fn plain_text(error: &Error) -> String {
    let text = error.describe();
    let is_plain = |letter: &char| !letter.is_control() || matches!(letter, '\n' | '\t' | '\r');
    clip(
        &text.chars().filter(is_plain).collect::<String>(),
        MAX_ERROR,
    )
}

impl McpServersState {
    /// As JSON of at most `max` bytes. Where it would be more, the lists are left out, the largest
    /// ones first, and a member `truncated` says so.
    pub(crate) fn to_json(&self, max: usize) -> Result<String> {
        let broken = |error: serde_json::Error| Error::Runtime(error.to_string());
        let servers = serde_json::to_string(&self.servers).map_err(broken)?;
        let mut lists = [
            (
                "prompts",
                serde_json::to_string(&self.prompts).map_err(broken)?,
                self.prompts.len(),
            ),
            (
                "resourceTemplates",
                serde_json::to_string(&self.resource_templates).map_err(broken)?,
                self.resource_templates.len(),
            ),
            (
                "resources",
                serde_json::to_string(&self.resources).map_err(broken)?,
                self.resources.len(),
            ),
            (
                "tools",
                serde_json::to_string(&self.tools).map_err(broken)?,
                self.tools.len(),
            ),
        ];
        let mut left_out = BTreeMap::new();
        while servers.len()
            + lists
                .iter()
                .map(|(_, json, _)| json.len() + 32)
                .sum::<usize>()
            > max
        {
            let Some((name, json, count)) = lists
                .iter_mut()
                .filter(|(_, json, _)| json != "[]")
                .max_by_key(|(_, json, _)| json.len())
            else {
                break;
            };
            left_out.insert(*name, *count);
            "[]".clone_into(json);
        }
        let mut members: Vec<String> = lists
            .iter()
            .map(|(name, json, _)| format!("\"{name}\":{json}"))
            .collect();
        members.push(format!("\"servers\":{servers}"));
        if !left_out.is_empty() {
            let truncated = serde_json::json!({
                "limit": max,
                "leftOut": left_out,
                "hint": "ask for the lists by HTTP, or by a method of the agent",
            });
            members.push(format!("\"truncated\":{truncated}"));
        }
        Ok(format!("{{{}}}", members.join(",")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn tools(count: usize) -> Vec<ServerItem<Tool>> {
        let tool = RawValue::from_string(r#"{"name":"echo","inputSchema":{}}"#.into()).unwrap();
        let tool = Tool::from_json(tool).unwrap();
        let item = ServerItem {
            server_id: ServerId::verbatim("s"),
            item: tool,
        };
        vec![item; count]
    }

    fn state(count: usize) -> McpServersState {
        McpServersState {
            servers: BTreeMap::new(),
            tools: tools(count),
            prompts: Vec::new(),
            resources: Vec::new(),
            resource_templates: Vec::new(),
        }
    }

    #[test]
    fn what_would_be_too_large_is_left_out_and_that_is_said() {
        let whole: Value = serde_json::from_str(&state(3).to_json(10_000).unwrap()).unwrap();
        assert_eq!(whole["tools"].as_array().unwrap().len(), 3);
        assert_eq!(whole["tools"][0]["serverId"], "s");
        assert!(whole.get("truncated").is_none());
        let text = state(1_000).to_json(10_000).unwrap();
        assert!(text.len() < 10_000);
        let reduced: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(reduced["tools"], serde_json::json!([]));
        assert_eq!(reduced["truncated"]["leftOut"]["tools"], 1_000);
    }

    #[test]
    fn error_texts_are_bounded_and_have_no_control_characters() {
        let error = Error::InvalidOption(format!("\u{7}bell\n{}", "x".repeat(600)));
        let text = plain_text(&error);
        assert!(text.starts_with("bell\nx") && text.ends_with("..."));
        assert_eq!(text.chars().count(), 503);
    }
}
