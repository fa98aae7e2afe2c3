//! Tool pinning: which definitions somebody has approved.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::tool::AiTool;
use super::tool_set::ToolSet;

/// The definitions that were approved, by server and tool: their fingerprints. Store it as JSON.
///
/// A server can change what its tools say at any time, long after somebody looked at them. With
/// pins ([`ToolSet::pinned`]), models get only what was approved, to the letter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolPins(BTreeMap<String, BTreeMap<String, String>>);

/// Why a tool is withheld.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PinChange {
    /// Nobody has approved it.
    New,
    /// It is another definition than the one that was approved.
    Changed,
}

/// A tool that models do not get.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WithheldTool {
    /// The tool.
    pub tool: AiTool,
    /// Why.
    pub why: PinChange,
}

impl ToolPins {
    /// Approves every tool of a set, and those that were withheld from it.
    pub fn approve_all(&mut self, set: &ToolSet) {
        let withheld = set.withheld().iter().map(|withheld| &withheld.tool);
        for tool in set.tools().iter().chain(withheld) {
            self.approve(tool);
        }
    }

    /// Approves a tool as it is defined now.
    pub fn approve(&mut self, tool: &AiTool) {
        let server = self.0.entry(tool.server_id().to_string()).or_default();
        server.insert(tool.tool().name().to_owned(), tool.fingerprint().to_owned());
    }

    /// Takes the approval of a server's tools back. Do so when it is removed: another one may get
    /// its id.
    pub fn forget_server(&mut self, server_id: &str) {
        self.0.remove(server_id);
    }

    /// What keeps a tool from being given to models, if anything.
    pub fn check(&self, tool: &AiTool) -> Option<PinChange> {
        let server = self.0.get(tool.server_id().as_str());
        match server.and_then(|tools| tools.get(tool.tool().name())) {
            None => Some(PinChange::New),
            Some(approved) if approved == tool.fingerprint() => None,
            Some(_) => Some(PinChange::Changed),
        }
    }
}
