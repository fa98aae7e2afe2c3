//! One tool as a model knows it.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::rc::Rc;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::names::{NameChange, Wanted, hex};
use super::schema::{Converted, Dialect, Reading, convert, read_plain};
use super::text::shown;
use crate::mcp::ServerId;
use crate::protocol::Tool;
use crate::protocol::bounded::small_member;

/// The longest description that models are given, in characters: OpenAI takes no longer one.
pub(crate) const MAX_DESCRIPTION: usize = 1_024;
/// The longest annotations that are read, in bytes of JSON.
const MAX_ANNOTATIONS: usize = 4 << 10;

/// A tool of a [`ToolSet`](super::ToolSet). Cheap to clone.
#[derive(Clone)]
pub struct AiTool {
    pub(super) name: Rc<str>,
    pub(super) renamed: Option<NameChange>,
    pub(super) server_id: ServerId,
    pub(super) known: Rc<Known>,
}

/// What is worked out about a tool, once for as long as its server lists it unchanged.
pub(super) struct Known {
    pub(super) tool: Tool,
    pub(super) wanted: Wanted,
    conversions: Rc<Cell<usize>>,
    description: OnceCell<(String, bool)>,
    reading: OnceCell<Reading>,
    converted: [OnceCell<Converted>; 4],
    fingerprint: OnceCell<String>,
    annotations: OnceCell<ToolAnnotations>,
}

/// What a server says that its tool does. Hints from whoever wrote the tool: no protection against
/// a server that lies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolAnnotations {
    /// `readOnlyHint`: it changes nothing. Not said means that it may.
    pub read_only: Option<bool>,
    /// `destructiveHint`: it may destroy what is there. Not said means that it may.
    pub destructive: Option<bool>,
    /// `idempotentHint`: the same call again changes nothing more. Not said means that it may.
    pub idempotent: Option<bool>,
    /// `openWorldHint`: it reaches beyond its server. Not said means that it may.
    pub open_world: Option<bool>,
}

impl ToolAnnotations {
    /// Whether it says that it changes nothing.
    pub fn is_read_only(self) -> bool {
        self.read_only.unwrap_or(false)
    }

    /// Whether it may destroy what is there: unless it says otherwise, or that it changes nothing.
    pub fn may_destroy(self) -> bool {
        !self.is_read_only() && self.destructive.unwrap_or(true)
    }
}

impl AiTool {
    /// The name that models know it by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why that is not `tool_<server>_<tool>`, where it is not.
    pub fn renamed(&self) -> Option<NameChange> {
        self.renamed
    }

    /// The server.
    pub fn server_id(&self) -> &ServerId {
        &self.server_id
    }

    /// The tool as its server lists it, under its own name.
    pub fn tool(&self) -> &Tool {
        &self.known.tool
    }

    /// What models are told that it does: the server's text without what people cannot see, at most
    /// 1 024 characters. The title, where there is no description. Untrusted.
    pub fn description(&self) -> &str {
        &self.known.description().0
    }

    /// Whether the server's text was longer.
    pub fn is_description_cut(&self) -> bool {
        self.known.description().1
    }

    /// What it says of itself.
    pub fn annotations(&self) -> ToolAnnotations {
        self.known.annotations()
    }

    /// Tells this definition apart from others: a hash of name, title, description, schema and
    /// annotations. The order of members does not count.
    pub fn fingerprint(&self) -> &str {
        self.known.fingerprint()
    }

    /// The schema of its arguments in a dialect.
    pub fn schema(&self, dialect: Dialect) -> &Converted {
        self.known.converted(dialect)
    }
}

impl fmt::Debug for AiTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AiTool")
            .field("name", &self.name)
            .field("server_id", &self.server_id)
            .field("tool", &self.known.tool)
            .finish_non_exhaustive()
    }
}

impl Known {
    pub(super) fn new(server_id: &ServerId, tool: &Tool, conversions: &Rc<Cell<usize>>) -> Self {
        Self {
            tool: tool.clone(),
            wanted: Wanted::of(server_id.as_str(), tool.name()),
            conversions: conversions.clone(),
            description: OnceCell::new(),
            reading: OnceCell::new(),
            converted: Default::default(),
            fingerprint: OnceCell::new(),
            annotations: OnceCell::new(),
        }
    }

    fn description(&self) -> &(String, bool) {
        self.description.get_or_init(|| {
            let text = self.tool.description();
            let text = text.filter(|text| !text.trim().is_empty());
            let text = text.unwrap_or_else(|| self.tool.display_name());
            let is_cut = text.trim().chars().nth(MAX_DESCRIPTION).is_some();
            (shown(&text, MAX_DESCRIPTION), is_cut)
        })
    }

    /// The schema in its plain form.
    pub(super) fn reading(&self) -> &Reading {
        self.reading
            .get_or_init(|| read_plain(self.tool.input_schema()))
    }

    pub(super) fn converted(&self, dialect: Dialect) -> &Converted {
        let make = || {
            self.conversions.set(self.conversions.get() + 1);
            convert(self.reading(), dialect)
        };
        let [workers_ai, open_ai, strict, anthropic] = &self.converted;
        match dialect {
            Dialect::WorkersAi => workers_ai,
            Dialect::OpenAi => open_ai,
            Dialect::OpenAiStrict => strict,
            Dialect::Anthropic => anthropic,
        }
        .get_or_init(make)
    }

    fn annotations(&self) -> ToolAnnotations {
        *self.annotations.get_or_init(|| {
            let said: Option<Value> =
                small_member(self.tool.json(), "annotations", MAX_ANNOTATIONS);
            let hint = |name: &str| said.as_ref()?.get(name)?.as_bool();
            ToolAnnotations {
                read_only: hint("readOnlyHint"),
                destructive: hint("destructiveHint"),
                idempotent: hint("idempotentHint"),
                open_world: hint("openWorldHint"),
            }
        })
    }

    fn fingerprint(&self) -> &str {
        self.fingerprint.get_or_init(|| {
            let mut hasher = Sha256::new();
            for member in ["name", "title", "description", "inputSchema", "annotations"] {
                // Members of these are sorted; what is too deep to be read counts to the letter.
                let value: Option<Value> = self.tool.get(member);
                let text = value.map_or_else(
                    || {
                        crate::protocol::bounded::member_text(self.tool.json(), member)
                            .unwrap_or("null")
                            .to_owned()
                    },
                    |value| value.to_string(),
                );
                hasher.update(text.len().to_be_bytes().as_slice());
                hasher.update(text.as_bytes());
            }
            hex(&hasher.finalize())
        })
    }
}
