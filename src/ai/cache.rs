//! What has been worked out about tools, kept with the manager for as long as it holds.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use super::names::assign;
use super::tool::{AiTool, Known};
use super::tool_set::{ToolSet, Tools};
use crate::mcp::{McpClientManager, ServerFilter, ServerId};
use crate::protocol::Tool;

/// How many sets are kept: one for each filter that is in use.
const MAX_SETS: usize = 4;

/// The lists of servers that a set was made of.
type Lists = Vec<(ServerId, Rc<[Tool]>)>;

#[derive(Default)]
struct Cache {
    servers: RefCell<HashMap<ServerId, Rc<[Rc<Known>]>>>,
    sets: RefCell<Vec<(Lists, Rc<Tools>)>>,
    conversions: Rc<Cell<usize>>,
}

impl McpClientManager {
    /// The tools of the selected live servers for models, as in [`list_tools`](Self::list_tools):
    /// wait for servers that are coming back first.
    ///
    /// Names are those of the TypeScript package, `tool_<server id without hyphens>_<tool>`, where
    /// a provider takes that and no two are the same; otherwise a hash follows
    /// ([`AiTool::renamed`]). While servers list the same, this costs next to nothing, and nothing
    /// is converted twice.
    pub fn ai_tools(&self, filter: &ServerFilter) -> ToolSet {
        let cache: Rc<Cache> = self.attachment();
        let lists = self.tool_lists(filter);
        let tools = cache.made_of(&lists).unwrap_or_else(|| {
            let live = self.states();
            cache
                .servers
                .borrow_mut()
                .retain(|id, _| live.iter().any(|(other, _)| other == id));
            cache.make(lists)
        });
        ToolSet {
            manager: self.clone(),
            tools,
        }
    }
}

impl Cache {
    fn made_of(&self, lists: &Lists) -> Option<Rc<Tools>> {
        let same = |known: &Lists| {
            known.len() == lists.len()
                && known
                    .iter()
                    .zip(lists)
                    .all(|((id, list), (other, now))| id == other && Rc::ptr_eq(list, now))
        };
        let sets = self.sets.borrow();
        let known = sets.iter().find(|(known, _)| same(known));
        known.map(|(_, tools)| tools.clone())
    }

    fn make(&self, lists: Lists) -> Rc<Tools> {
        let mut all: Vec<(ServerId, Rc<Known>)> = Vec::new();
        for (id, tools) in &lists {
            let known = self.know(id, tools);
            all.extend(known.iter().map(|known| (id.clone(), known.clone())));
        }
        let wanted: Vec<_> = all.iter().map(|(_, known)| &known.wanted).collect();
        let names = assign(&wanted);
        let tools = all.into_iter().zip(names);
        let tools = tools.map(|((server_id, known), (name, renamed))| AiTool {
            name: name.into(),
            renamed,
            server_id,
            known,
        });
        let made = Rc::new(Tools::new(tools.collect(), self.conversions.clone()));
        let mut sets = self.sets.borrow_mut();
        sets.truncate(MAX_SETS - 1);
        sets.insert(0, (lists, made.clone()));
        made
    }

    /// What is known of a server's tools. A tool that is listed anew as it was is the same.
    fn know(&self, id: &ServerId, tools: &Rc<[Tool]>) -> Rc<[Rc<Known>]> {
        let before = self.servers.borrow().get(id).cloned().unwrap_or_default();
        let before: HashMap<&str, &Rc<Known>> = before
            .iter()
            .map(|known| (known.tool.name(), known))
            .collect();
        let known = tools.iter().map(|tool| {
            let same = before.get(tool.name());
            let same = same.filter(|known| known.tool.text() == tool.text());
            same.map_or_else(
                || Rc::new(Known::new(id, tool, &self.conversions)),
                |known| (*known).clone(),
            )
        });
        let known: Rc<[Rc<Known>]> = known.collect();
        self.servers.borrow_mut().insert(id.clone(), known.clone());
        known
    }
}
