//! [`ToolSet`]: the tools of several servers, as models know them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;

use futures::FutureExt as _;
use serde::Serialize;
use serde_json::value::RawValue;

use super::definitions::{Form, ToolDefinitions};
use super::error::AiError;
use super::pins::{ToolPins, WithheldTool};
use super::schema::prune;
use super::text::{clip_to, shown};
use super::tool::AiTool;
use crate::mcp::{CallOptions, McpClientManager, ServerFilter, ServerId};
use crate::protocol::CallToolResult;

/// The longest instructions of one server that are given out, in characters.
const MAX_INSTRUCTIONS: usize = 2_000;
/// The longest name that is repeated in an error, in characters.
const MAX_SHOWN_NAME: usize = 128;

/// The tools of the selected servers, each under a name that every provider takes: at most 64
/// letters, digits, `_` and `-`, and no two the same. Cheap to clone.
///
/// Made by [`McpClientManager::ai_tools`]. It shows the tools as they were then; calls go to the
/// servers as they are.
#[derive(Clone)]
pub struct ToolSet {
    pub(super) manager: McpClientManager,
    pub(super) tools: Rc<Tools>,
}

/// The tools, and what was made of them.
pub(super) struct Tools {
    list: Vec<AiTool>,
    by_name: HashMap<Rc<str>, usize>,
    withheld: Vec<WithheldTool>,
    is_pinned: bool,
    definitions: RefCell<BTreeMap<Form, ToolDefinitions>>,
    conversions: Rc<Cell<usize>>,
}

impl Tools {
    pub(super) fn new(list: Vec<AiTool>, conversions: Rc<Cell<usize>>) -> Self {
        let names = list.iter().enumerate();
        let by_name = names.map(|(at, tool)| (tool.name.clone(), at)).collect();
        Self {
            list,
            by_name,
            withheld: Vec::new(),
            is_pinned: false,
            definitions: RefCell::default(),
            conversions,
        }
    }
}

impl ToolSet {
    /// The tools, in the order of the servers and their lists.
    pub fn tools(&self) -> &[AiTool] {
        &self.tools.list
    }

    /// The tool that models know by this name.
    pub fn get(&self, name: &str) -> Option<&AiTool> {
        self.tools.list.get(*self.tools.by_name.get(name)?)
    }

    /// The same set without the tools of a server that are not listed here, by their own names.
    /// Names for models stay as they are.
    #[must_use]
    pub fn only<T: AsRef<str>>(self, server_id: &str, tools: impl IntoIterator<Item = T>) -> Self {
        let allowed: Vec<T> = tools.into_iter().collect();
        self.retain(|tool| {
            tool.server_id().as_str() != server_id
                || allowed
                    .iter()
                    .any(|name| name.as_ref() == tool.tool().name())
        })
    }

    /// The same set without the tools that this does not hold for.
    #[must_use]
    pub fn retain(self, is_kept: impl Fn(&AiTool) -> bool) -> Self {
        let list = self.tools.list.iter().filter(|tool| is_kept(tool));
        let withheld = self.tools.withheld.clone();
        self.with(list.cloned().collect(), withheld, self.tools.is_pinned)
    }

    /// The same set without what nobody has approved, or what has changed since. That is in
    /// [`withheld`](Self::withheld). Calls check once more that the tool is what it was.
    #[must_use]
    pub fn pinned(self, pins: &ToolPins) -> Self {
        let mut kept = Vec::new();
        let mut withheld = self.tools.withheld.clone();
        for tool in &self.tools.list {
            match pins.check(tool) {
                None => kept.push(tool.clone()),
                Some(why) => withheld.push(WithheldTool {
                    tool: tool.clone(),
                    why,
                }),
            }
        }
        self.with(kept, withheld, true)
    }

    /// The tools that were left out for want of an approval.
    pub fn withheld(&self) -> &[WithheldTool] {
        &self.tools.withheld
    }

    fn with(&self, list: Vec<AiTool>, withheld: Vec<WithheldTool>, is_pinned: bool) -> Self {
        let mut tools = Tools::new(list, self.tools.conversions.clone());
        tools.withheld = withheld;
        tools.is_pinned = is_pinned;
        Self {
            manager: self.manager.clone(),
            tools: Rc::new(tools),
        }
    }

    /// What the servers of these tools say on how to use them, each without what people cannot see
    /// and at most 2 000 characters. Untrusted: give it to a model as what a server says, or not at
    /// all.
    pub fn instructions(&self) -> Vec<(ServerId, String)> {
        let mut said: Vec<(ServerId, String)> = Vec::new();
        let mut last: Option<&ServerId> = None;
        for tool in &self.tools.list {
            let id = tool.server_id();
            if last.replace(id) == Some(id) {
                continue;
            }
            let card = self
                .manager
                .connection(id.as_str())
                .and_then(|live| live.card);
            if let Some(text) = card.and_then(|card| card.instructions) {
                said.push((id.clone(), shown(&text, MAX_INSTRUCTIONS)));
            }
        }
        said
    }

    // ---- for the body of a request

    /// The value of `tools` for `env.AI.run` with a model of Workers AI.
    pub fn to_workers_ai(&self) -> ToolDefinitions {
        self.definitions(Form::WorkersAi)
    }

    /// The value of `tools` for OpenAI's chat completions, and what is compatible with them.
    /// `strict` asks for strict mode for every tool whose schema can be said in it.
    pub fn to_openai_chat(&self, strict: bool) -> ToolDefinitions {
        self.definitions(Form::OpenAiChat { strict })
    }

    /// The value of `tools` for OpenAI's responses.
    pub fn to_openai_responses(&self, strict: bool) -> ToolDefinitions {
        self.definitions(Form::OpenAiResponses { strict })
    }

    /// The value of `tools` for Anthropic's messages.
    pub fn to_anthropic(&self) -> ToolDefinitions {
        self.definitions(Form::Anthropic)
    }

    fn definitions(&self, form: Form) -> ToolDefinitions {
        let made = self.tools.definitions.borrow().get(&form).cloned();
        made.unwrap_or_else(|| {
            let made = ToolDefinitions::of(&self.tools.list, form);
            self.tools
                .definitions
                .borrow_mut()
                .insert(form, made.clone());
            made
        })
    }

    /// How many schemas have been converted for the manager so far. A list that has not changed is
    /// not converted again.
    pub fn conversions(&self) -> usize {
        self.tools.conversions.get()
    }

    // ---- calls

    /// Calls the tool that models know by this name. `arguments` is anything that serialises to a
    /// JSON object, or to `null` for none. Members that are `null` for want of a value are taken
    /// out. A tool that fails says so in its result.
    ///
    /// # Errors
    /// [`AiError::UnknownTool`], [`AiError::BadArguments`], [`AiError::ToolChanged`] for a pinned
    /// one; else as [`McpClientManager::call_tool`].
    pub async fn call(
        &self,
        name: &str,
        arguments: impl Serialize,
    ) -> Result<CallToolResult, AiError> {
        self.call_with(name, arguments, &CallOptions::default())
            .await
    }

    /// As [`call`](Self::call), with limits and listeners of its own.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn call_with(
        &self,
        name: &str,
        arguments: impl Serialize,
        options: &CallOptions,
    ) -> Result<CallToolResult, AiError> {
        let arguments = serde_json::value::to_raw_value(&arguments)
            .map_err(|error| AiError::BadArguments(error.to_string()))?;
        self.call_raw(name, arguments, options).boxed_local().await
    }

    async fn call_raw(
        &self,
        name: &str,
        arguments: Box<RawValue>,
        options: &CallOptions,
    ) -> Result<CallToolResult, AiError> {
        let unknown = || AiError::UnknownTool(clip_to(name, MAX_SHOWN_NAME));
        let tool = self.get(name).ok_or_else(unknown)?;
        let arguments = cleaned(arguments, tool)?;
        if self.tools.is_pinned && !self.is_unchanged(tool) {
            return Err(AiError::ToolChanged(name.to_owned()));
        }
        let server = tool.server_id().as_str();
        let result = self
            .manager
            .call_tool_with(server, tool.tool().name(), arguments, options)
            .await?;
        Ok(result)
    }

    /// Whether the server still lists the tool as it was.
    fn is_unchanged(&self, tool: &AiTool) -> bool {
        let filter = ServerFilter::all().server_id(tool.server_id().as_str());
        let lists = self.manager.tool_lists(&filter);
        let mut listed = lists.iter().flat_map(|(_, tools)| tools.iter());
        let listed = listed.find(|listed| listed.name() == tool.tool().name());
        listed.is_some_and(|listed| listed.text() == tool.tool().text())
    }
}

/// Arguments as a server takes them.
fn cleaned(arguments: Box<RawValue>, tool: &AiTool) -> Result<Box<RawValue>, AiError> {
    let text = arguments.get();
    if text == "null" {
        return RawValue::from_string("{}".into())
            .map_err(|error| AiError::BadArguments(error.to_string()));
    }
    if !text.starts_with('{') {
        return Err(AiError::BadArguments("another type".into()));
    }
    let Ok(plain) = tool.known.reading() else {
        return Ok(arguments);
    };
    // Numbers pass through to the letter where nothing is to be taken out.
    if !text.contains("null") {
        return Ok(arguments);
    }
    let mut value =
        serde_json::from_str(text).map_err(|error| AiError::BadArguments(error.to_string()))?;
    prune(&mut value, &plain.root);
    serde_json::value::to_raw_value(&value)
        .map_err(|error| AiError::BadArguments(error.to_string()))
}

impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolSet")
            .field("tools", &self.tools.list.len())
            .field("withheld", &self.tools.withheld.len())
            .finish_non_exhaustive()
    }
}
