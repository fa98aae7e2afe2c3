//! What happens to servers, for the logs of the Worker.

use serde_json::Value;
use worker::{Date, console_log};

use crate::events::Subscription;
use crate::mcp::McpClientManager;

/// Writes every [event](crate::McpEvent) of a manager to the log as one line of JSON, whose members
/// Workers' logs index: `{"type", "timestamp", "payload", "agent", "name"}`. What servers log is
/// left out. `agent` is the class of the object, `name` its name.
pub fn log_events(mcp: &McpClientManager, agent: &str, name: &str) -> Subscription {
    let (agent, name) = (agent.to_owned(), name.to_owned());
    mcp.on_observability_event(move |event| {
        let mut line = event.to_json(Date::now().as_millis());
        if let Some(line) = line.as_object_mut() {
            line.insert("agent".into(), Value::from(agent.as_str()));
            line.insert("name".into(), Value::from(name.as_str()));
        }
        console_log!("{line}");
    })
}
