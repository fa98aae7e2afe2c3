//! What servers have told lately, for whoever looks.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use serde_json::{Value, json};

use crate::mcp::{LogLevel, McpClientManager, McpEvent};

/// How many events are kept.
const MAX_EVENTS: usize = 100;

/// The last events, oldest first. They do not survive an eviction of the object.
#[derive(Debug, Clone, Default)]
pub(super) struct RecentEvents {
    list: Rc<RefCell<VecDeque<Value>>>,
}

impl RecentEvents {
    pub(super) fn of(mcp: &McpClientManager) -> Self {
        let events = Self::default();
        let list = events.list.clone();
        let subscription = mcp.on_event(move |event| {
            let mut list = list.borrow_mut();
            if list.len() == MAX_EVENTS {
                list.pop_front();
            }
            list.push_back(describe(event));
        });
        subscription.detach();
        events
    }

    pub(super) fn list(&self) -> Vec<Value> {
        self.list.borrow().iter().cloned().collect()
    }
}

fn describe(event: &McpEvent) -> Value {
    let server = event.server_id();
    match event {
        McpEvent::Log {
            level,
            logger,
            data,
            ..
        } => json!({"type": "log", "serverId": server, "level": level.map(LogLevel::as_str),
            "logger": logger, "data": **data}),
        McpEvent::ResourceUpdated { uri, .. } => {
            json!({"type": "resource-updated", "serverId": server, "uri": uri})
        }
        McpEvent::ListChanged { kind, .. } => {
            json!({"type": "list-changed", "serverId": server, "list": kind.as_str()})
        }
        McpEvent::ElicitationCompleted { elicitation_id, .. } => json!({
            "type": "elicitation-completed", "serverId": server, "elicitationId": elicitation_id}),
        McpEvent::TaskChanged { task_id, .. } => {
            json!({"type": "task-changed", "serverId": server, "taskId": task_id})
        }
    }
}
