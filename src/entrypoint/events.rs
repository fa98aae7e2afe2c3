//! What servers have told lately, for whoever looks.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::mcp::{LogLevel, McpClientManager, McpEvent, ServerId};

/// How many events are kept, and how much text of servers in them.
const MAX_EVENTS: usize = 100;
const MAX_BYTES: usize = 256 << 10;

/// The last events, oldest first. They do not survive an eviction of the object.
#[derive(Debug, Clone, Default)]
pub(super) struct RecentEvents {
    list: Rc<RefCell<VecDeque<McpEvent>>>,
}

impl RecentEvents {
    pub(super) fn of(mcp: &McpClientManager) -> Self {
        let events = Self::default();
        let list = events.list.clone();
        let subscription = mcp.on_observability_event(move |event| {
            if !event.is_told() {
                return;
            }
            let mut list = list.borrow_mut();
            list.push_back(event.clone());
            let mut bytes: usize = list.iter().map(size).sum();
            while list.len() > MAX_EVENTS || bytes > MAX_BYTES && list.len() > 1 {
                bytes -= list.pop_front().as_ref().map(size).unwrap_or_default();
            }
        });
        subscription.detach();
        events
    }

    /// The events as JSON. What servers logged is repeated as they sent it.
    pub(super) fn list(&self) -> serde_json::Result<Box<RawValue>> {
        let list = self.list.borrow();
        let events: Vec<Shown<'_>> = list.iter().map(Shown::of).collect();
        serde_json::value::to_raw_value(&events)
    }
}

/// How much text of a server an event holds.
fn size(event: &McpEvent) -> usize {
    match event {
        McpEvent::Log { data, logger, .. } => {
            data.get().len() + logger.as_deref().map(str::len).unwrap_or_default()
        }
        McpEvent::ResourceUpdated { uri, .. } => uri.len(),
        McpEvent::ElicitationCompleted { elicitation_id, .. } => elicitation_id.len(),
        McpEvent::TaskChanged { task_id, .. } => task_id.len(),
        _ => 0,
    }
}

/// An event as it is shown.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    server_id: &'a ServerId,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logger: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    elicitation_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a str>,
}

impl<'a> Shown<'a> {
    fn of(event: &'a McpEvent) -> Self {
        let blank = Self {
            kind: "log",
            server_id: event.server_id(),
            level: None,
            logger: None,
            data: None,
            uri: None,
            list: None,
            elicitation_id: None,
            task_id: None,
        };
        match event {
            McpEvent::Log {
                level,
                logger,
                data,
                ..
            } => Self {
                level: level.map(LogLevel::as_str),
                logger: logger.as_deref(),
                data: Some(data),
                ..blank
            },
            McpEvent::ResourceUpdated { uri, .. } => Self {
                kind: "resource-updated",
                uri: Some(uri),
                ..blank
            },
            McpEvent::ListChanged { kind, .. } => Self {
                kind: "list-changed",
                list: Some(kind.as_str()),
                ..blank
            },
            McpEvent::ElicitationCompleted { elicitation_id, .. } => Self {
                kind: "elicitation-completed",
                elicitation_id: Some(elicitation_id),
                ..blank
            },
            McpEvent::TaskChanged { task_id, .. } => Self {
                kind: "task-changed",
                task_id: Some(task_id),
                ..blank
            },
            // Those are not kept.
            _ => blank,
        }
    }
}
