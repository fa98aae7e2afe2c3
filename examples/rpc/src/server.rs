//! The server: an object that serves MCP over its binding, here and to TypeScript's agents alike.

use serde::Deserialize;
use serde_json::{Value, json};
use worker::{Result, durable_object};
use workers_agents::protocol::RpcError;
use workers_agents::serving::{RpcServer, ServeMcp, ServedCaller, ServedRequest, ServerProfile};
use workers_agents::{Hooks, Lifecycle, LifecycleObject};

/// The longest note, in bytes, and the most notes: together they fit into one value of the storage.
const MAX_NOTE: usize = 1 << 10;
const MAX_NOTES: usize = 100;
const KEY: &str = "notes";

#[durable_object]
pub struct NotesServer {
    lifecycle: Lifecycle,
    rpc: RpcServer<Notes>,
}

workers_agents::install!(NotesServer);
workers_agents::serve_rpc!(NotesServer, rpc);

impl LifecycleObject for NotesServer {
    fn new(lifecycle: Lifecycle) -> Self {
        let rpc = RpcServer::new(Notes(lifecycle.clone()));
        Self { lifecycle, rpc }
    }

    fn lifecycle(&self) -> &Lifecycle {
        &self.lifecycle
    }
}

impl Hooks for NotesServer {}

struct Notes(Lifecycle);

/// What the agent says when it adds the server.
#[derive(Default, Deserialize)]
struct Props {
    owner: String,
}

#[derive(Deserialize)]
struct ToolCall {
    name: String,
    #[serde(default)]
    arguments: Value,
}

impl ServeMcp for Notes {
    fn profile(&self) -> ServerProfile {
        ServerProfile {
            name: "notes".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            instructions: Some("Keeps notes.".into()),
            capabilities: [("tools".to_owned(), json!({}))].into_iter().collect(),
        }
    }

    async fn request(&self, request: &ServedRequest, _: &ServedCaller) -> Result<Value, RpcError> {
        match request.method.as_str() {
            "tools/list" => Ok(json!({"tools": [
                {
                    "name": "add_note",
                    "description": "Keeps a note",
                    "inputSchema": {
                        "type": "object",
                        "properties": {"text": {"type": "string", "maxLength": MAX_NOTE}},
                        "required": ["text"],
                    },
                },
                {
                    "name": "read_notes",
                    "description": "Reads all notes",
                    "inputSchema": {"type": "object"},
                },
            ]})),
            "tools/call" => {
                let ToolCall { name, arguments } = request.params()?;
                let outcome = match name.as_str() {
                    "add_note" => self.add(&arguments).await,
                    "read_notes" => self.read().await,
                    _ => {
                        let error = format!("no tool {name}");
                        return Err(RpcError::refusal(RpcError::INVALID_PARAMS, error));
                    }
                };
                // A tool that fails says so in its result, for the model to read.
                let is_error = outcome.is_err();
                let text = outcome.unwrap_or_else(|error| error.to_string());
                Ok(json!({"content": [{"type": "text", "text": text}], "isError": is_error}))
            }
            _ => Err(RpcError::unknown_method()),
        }
    }
}

impl Notes {
    async fn add(&self, arguments: &Value) -> Result<String> {
        let text = arguments.get("text").and_then(Value::as_str);
        let text = text.filter(|text| !text.trim().is_empty() && text.len() <= MAX_NOTE);
        let Some(text) = text else {
            return Err(format!("a note is a text of 1 to {MAX_NOTE} bytes").into());
        };
        let mut notes = self.stored().await?;
        if notes.len() >= MAX_NOTES {
            return Err(format!("there are {MAX_NOTES} notes already").into());
        }
        notes.push(text.to_owned());
        self.0.storage().put(KEY, &notes).await?;
        Ok(format!("Note {} is kept", notes.len()))
    }

    async fn read(&self) -> Result<String> {
        let Props { owner } = self.0.props()?.unwrap_or_default();
        let notes = self.stored().await?;
        Ok(format!("Notes of {owner}:\n{}", notes.join("\n")))
    }

    async fn stored(&self) -> Result<Vec<String>> {
        Ok(self.0.storage().get(KEY).await?.unwrap_or_default())
    }
}
