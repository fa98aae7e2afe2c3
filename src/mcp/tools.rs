//! What is known about a server's tools beyond their text: which are usable, what of their
//! arguments goes into headers, and what their structured output must look like.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use http::HeaderMap;
use serde_json::value::RawValue;

use crate::protocol::bounded::{member_of, member_text};
use crate::protocol::clip;
use crate::protocol::mirror::Mirrors;
use crate::protocol::model::TaskSupport;
use crate::protocol::schema::{Schema, Violation};
use crate::protocol::{CallToolResult, Tool};
use crate::{Error, Result};

/// The longest `type` that is read, in bytes of JSON.
const MAX_TYPE: usize = 256;
/// The longest name that is repeated in a reason, in characters.
const MAX_NAME: usize = 128;

/// A tool that is not listed, and cannot be called.
#[derive(Debug, Clone)]
pub(crate) struct DroppedTool {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// Tells the tools that can be used from those that cannot. One bad tool costs no other.
pub(crate) fn screen(
    tools: &Rc<[Tool]>,
    mirrors_arguments: bool,
) -> (Rc<[Tool]>, Vec<DroppedTool>) {
    let mut dropped = Vec::new();
    let mut usable = Vec::with_capacity(tools.len());
    for tool in tools.iter() {
        match fault(tool, mirrors_arguments) {
            None => usable.push(tool.clone()),
            Some(reason) => dropped.push(DroppedTool {
                name: clip(tool.name(), MAX_NAME),
                reason,
            }),
        }
    }
    if dropped.is_empty() {
        (tools.clone(), dropped)
    } else {
        (usable.into(), dropped)
    }
}

/// Why a tool cannot be used, if it cannot.
fn fault(tool: &Tool, mirrors_arguments: bool) -> Option<String> {
    if tool.name().is_empty() {
        return Some("its name is empty".into());
    }
    // Without a schema anything is an argument; `null` is as good as none.
    let schema = member_text(tool.json(), "inputSchema").filter(|schema| *schema != "null")?;
    if !schema.starts_with('{') {
        return Some("its inputSchema is not an object".into());
    }
    if !takes_objects(schema) {
        return Some("its inputSchema is not the schema of an object".into());
    }
    if mirrors_arguments {
        let mirrors = Mirrors::read(tool.input_schema()?);
        return mirrors.err().map(|fault| fault.to_string());
    }
    None
}

/// The root of an input schema has type `object` (all revisions, tools). A root that says nothing
/// of types is taken for one, unless it offers alternatives, of which nobody knows what they are.
fn takes_objects(schema: &str) -> bool {
    let Some(kind) = member_of(schema, "type") else {
        return ["anyOf", "oneOf", "allOf"]
            .into_iter()
            .all(|keyword| member_of(schema, keyword).is_none());
    };
    if kind == "\"object\"" {
        return true;
    }
    if kind.len() > MAX_TYPE {
        return false;
    }
    match serde_json::from_str::<serde_json::Value>(kind) {
        Ok(serde_json::Value::String(kind)) => kind == "object",
        Ok(serde_json::Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        _ => false,
    }
}

/// The tools of a catalogue by name, with what was worked out about them.
#[derive(Debug, Default)]
pub(crate) struct ToolIndex {
    dropped: Vec<DroppedTool>,
    by_name: OnceCell<HashMap<Rc<str>, usize>>,
    facts: RefCell<HashMap<usize, Rc<ToolFacts>>>,
}

/// What was worked out about one tool.
#[derive(Debug)]
pub(crate) struct ToolFacts {
    mirrors: Mirrors,
    output: Output,
    task_support: TaskSupport,
}

#[derive(Debug)]
enum Output {
    Undeclared,
    Checked(Schema),
    /// The schema cannot be checked against, and why.
    Unchecked(String),
}

/// What came of checking structured output.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputCheck {
    /// The tool declares no output schema, reports a failure, or is not in the catalogue.
    NothingToCheck,
    /// The structured content fits the schema.
    Valid,
    /// The schema is one that cannot be checked here: another dialect, references to elsewhere, or
    /// too much work. Why, in words.
    Unchecked(String),
}

impl ToolIndex {
    pub(crate) fn new(dropped: Vec<DroppedTool>) -> Self {
        Self {
            dropped,
            ..Self::default()
        }
    }

    /// The tools that cannot be used.
    pub(crate) fn dropped(&self) -> &[DroppedTool] {
        &self.dropped
    }

    /// What is known about a tool. `None` when the catalogue does not have it, which is no reason
    /// not to call it.
    ///
    /// # Errors
    /// [`Error::UnusableTool`] for one that was left out.
    pub(crate) fn facts(&self, tools: &[Tool], name: &str) -> Result<Option<Rc<ToolFacts>>> {
        let by_name = self.by_name.get_or_init(|| {
            let names = tools.iter().enumerate();
            names.map(|(at, tool)| (tool.shared_name(), at)).collect()
        });
        let Some(at) = by_name.get(name) else {
            let dropped = self.dropped.iter().find(|tool| tool.name == name);
            return dropped.map_or(Ok(None), |tool| {
                Err(Error::UnusableTool {
                    name: tool.name.clone(),
                    reason: tool.reason.clone(),
                })
            });
        };
        let known = self.facts.borrow().get(at).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let facts = tools.get(*at).map(|tool| Rc::new(ToolFacts::of(tool)));
        if let Some(facts) = &facts {
            self.facts.borrow_mut().insert(*at, facts.clone());
        }
        Ok(facts)
    }
}

impl ToolFacts {
    fn of(tool: &Tool) -> Self {
        let input = tool.input_schema();
        let output = tool.output_schema().filter(|schema| schema.get() != "null");
        Self {
            task_support: tool.task_support(),
            mirrors: input
                .and_then(|schema| Mirrors::read(schema).ok())
                .unwrap_or_default(),
            output: output.map_or(Output::Undeclared, |schema| match Schema::compile(schema) {
                Ok(schema) => Output::Checked(schema),
                Err(uncheckable) => Output::Unchecked(uncheckable.to_string()),
            }),
        }
    }

    /// Whether the tool runs as a task.
    pub(crate) fn task_support(&self) -> TaskSupport {
        self.task_support
    }

    /// The headers that mirror arguments (2026-07-28, `x-mcp-header`).
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for an argument that no header can hold.
    pub(crate) fn mirrored(&self, arguments: Option<&RawValue>) -> Result<HeaderMap> {
        if self.mirrors.is_empty() {
            return Ok(HeaderMap::new());
        }
        let headers = self.mirrors.headers(arguments);
        let headers = headers.map_err(|error| Error::InvalidOption(error.to_string()))?;
        Ok(headers.into_iter().collect())
    }

    /// Checks a result against the tool's output schema. A result that reports a failure is not
    /// checked (2025-06-18, tools).
    ///
    /// # Errors
    /// [`Error::InvalidOutput`].
    pub(crate) fn check(&self, name: &str, result: &CallToolResult) -> Result<OutputCheck> {
        let schema = match &self.output {
            Output::Undeclared => return Ok(OutputCheck::NothingToCheck),
            Output::Unchecked(reason) => return Ok(OutputCheck::Unchecked(reason.clone())),
            Output::Checked(schema) => schema,
        };
        if result.is_error() {
            return Ok(OutputCheck::NothingToCheck);
        }
        let invalid = |reason: String| Error::InvalidOutput {
            tool: clip(name, MAX_NAME),
            reason,
        };
        let content = result
            .structured_content()
            .ok_or_else(|| invalid("there is no structured content".into()))?;
        match schema.validate(content) {
            Ok(()) => Ok(OutputCheck::Valid),
            // The check says nothing of the content.
            Err(gave_up @ Violation::GaveUp(_)) => Ok(OutputCheck::Unchecked(gave_up.to_string())),
            Err(violation) => Err(invalid(violation.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(texts: &[&str]) -> Rc<[Tool]> {
        let raw = |text: &&str| RawValue::from_string((*text).to_owned()).unwrap();
        texts
            .iter()
            .map(raw)
            .map(|text| Tool::from_json(text).unwrap())
            .collect()
    }

    #[test]
    fn tl_01_a_bad_schema_costs_its_own_tool_alone() {
        let list = tools(&[
            r#"{"name":"good1","inputSchema":{"type":"object"}}"#,
            r#"{"name":"bad","inputSchema":{"type":"string"}}"#,
            r#"{"name":"bad2","inputSchema":{"anyOf":[{"type":"object"}]}}"#,
            r#"{"name":"bad3","inputSchema":[]}"#,
            r#"{"name":"good2","inputSchema":{"type":["object","null"]}}"#,
            r#"{"name":"good3"}"#,
            r#"{"name":"good4","inputSchema":{"properties":{"a":{}}}}"#,
        ]);
        let (usable, dropped) = screen(&list, false);
        let names: Vec<_> = usable.iter().map(Tool::name).collect();
        assert_eq!(names, ["good1", "good2", "good3", "good4"]);
        assert_eq!(dropped.len(), 3);
        let index = ToolIndex::new(dropped);
        assert!(matches!(
            index.facts(&usable, "bad"),
            Err(Error::UnusableTool { .. })
        ));
        assert!(index.facts(&usable, "good2").unwrap().is_some());
        assert!(index.facts(&usable, "unheard-of").unwrap().is_none());
    }

    #[test]
    fn annotations_count_in_the_modern_era_only() {
        let list = tools(&[
            r#"{"name":"n","inputSchema":{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"A"}}}}"#,
        ]);
        assert_eq!(screen(&list, false).1.len(), 0);
        assert_eq!(screen(&list, true).1.len(), 1);
    }

    #[test]
    fn tl_25_only_the_structured_content_is_checked() {
        let list = tools(&[
            r#"{"name":"n","outputSchema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}"#,
            r#"{"name":"plain"}"#,
            r#"{"name":"odd","outputSchema":{"$schema":"urn:other"}}"#,
        ]);
        let index = ToolIndex::default();
        let check = |name: &str, result: &str| {
            let result = CallToolResult::new(RawValue::from_string(result.into()).unwrap());
            index
                .facts(&list, name)
                .unwrap()
                .unwrap()
                .check(name, &result)
        };
        for (result, outcome) in [
            (r#"{"content":[],"structuredContent":{"a":1}}"#, true),
            (r#"{"content":[],"structuredContent":{"a":"1"}}"#, false),
            (r#"{"content":[],"structuredContent":{"a":1,"b":2}}"#, false),
            (r#"{"content":[],"structuredContent":null}"#, false),
            (r#"{"content":[]}"#, false),
        ] {
            assert_eq!(check("n", result).is_ok(), outcome, "{result}");
        }
        let failed = r#"{"content":[],"isError":true}"#;
        assert_eq!(check("n", failed).unwrap(), OutputCheck::NothingToCheck);
        assert_eq!(check("plain", "{}").unwrap(), OutputCheck::NothingToCheck);
        assert!(matches!(check("odd", "{}"), Ok(OutputCheck::Unchecked(_))));
    }
}
