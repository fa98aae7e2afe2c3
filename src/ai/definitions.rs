//! The value of `tools` in the body of a request to a model.

use std::rc::Rc;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::names::NameChange;
use super::schema::Dialect;
use super::tool::AiTool;
use crate::mcp::ServerId;

/// Tools in the form of a provider: serialises to the JSON array that stands in the body of a
/// request. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ToolDefinitions {
    json: Rc<RawValue>,
    reports: Rc<[ToolReport]>,
}

/// Something about a tool that is not as its server listed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolReport {
    /// The name that models know it by.
    pub name: String,
    /// The server.
    pub server_id: ServerId,
    /// Its own name.
    pub tool: String,
    /// What is different.
    pub change: ToolChange,
}

/// What is different from what a server listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ToolChange {
    /// It is not called `tool_<server>_<tool>`.
    Renamed(NameChange),
    /// Its description was cut.
    DescriptionCut,
    /// Nothing can be made of its schema: it takes any object. Why.
    SchemaReplaced(String),
    /// It is offered without strict mode. Why.
    NotStrict(String),
    /// What the schema says and the provider's dialect cannot, and what is lost with it.
    SchemaReduced(Vec<String>),
}

/// Whose body it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    WorkersAi,
    OpenAiChat { strict: bool },
    OpenAiResponses { strict: bool },
    Anthropic,
}

impl Form {
    fn dialect(self) -> Dialect {
        match self {
            Self::WorkersAi => Dialect::WorkersAi,
            Self::OpenAiChat { strict: true } | Self::OpenAiResponses { strict: true } => {
                Dialect::OpenAiStrict
            }
            Self::OpenAiChat { strict: false } | Self::OpenAiResponses { strict: false } => {
                Dialect::OpenAi
            }
            Self::Anthropic => Dialect::Anthropic,
        }
    }

    fn write(self, tool: &AiTool, out: &mut String) {
        let text = |text: &str| serde_json::Value::from(text).to_string();
        let (name, description) = (text(tool.name()), text(tool.description()));
        let converted = tool.schema(self.dialect());
        let (schema, is_strict) = (&converted.json, converted.is_strict);
        let definition = match self {
            Self::WorkersAi | Self::OpenAiChat { strict: false } => format!(
                r#"{{"type":"function","function":{{"name":{name},"description":{description},"parameters":{schema}}}}}"#
            ),
            Self::OpenAiChat { strict: true } => format!(
                r#"{{"type":"function","function":{{"name":{name},"description":{description},"parameters":{schema},"strict":{is_strict}}}}}"#
            ),
            // Here a function is strict unless it says otherwise.
            Self::OpenAiResponses { .. } => format!(
                r#"{{"type":"function","name":{name},"description":{description},"parameters":{schema},"strict":{is_strict}}}"#
            ),
            Self::Anthropic => {
                format!(r#"{{"name":{name},"description":{description},"input_schema":{schema}}}"#)
            }
        };
        out.push_str(&definition);
    }
}

impl ToolDefinitions {
    pub(super) fn of(tools: &[AiTool], form: Form) -> Self {
        let mut json = String::from("[");
        let mut reports = Vec::new();
        for tool in tools {
            if json.len() > 1 {
                json.push(',');
            }
            form.write(tool, &mut json);
            report(tool, form, &mut reports);
        }
        json.push(']');
        // It was put together here from JSON, so it is JSON.
        let json = RawValue::from_string(json).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self {
            json: json.into(),
            reports: reports.into(),
        }
    }

    /// The array.
    pub fn json(&self) -> &RawValue {
        &self.json
    }

    /// Which tools are not as their servers listed them, and in what.
    pub fn reports(&self) -> &[ToolReport] {
        &self.reports
    }
}

fn report(tool: &AiTool, form: Form, reports: &mut Vec<ToolReport>) {
    let converted = tool.schema(form.dialect());
    let changes = [
        tool.renamed().map(ToolChange::Renamed),
        tool.is_description_cut()
            .then_some(ToolChange::DescriptionCut),
        converted.replaced.clone().map(ToolChange::SchemaReplaced),
        converted.not_strict.clone().map(ToolChange::NotStrict),
        (!converted.losses.is_empty())
            .then(|| ToolChange::SchemaReduced(converted.losses.iter().cloned().collect())),
    ];
    reports.extend(changes.into_iter().flatten().map(|change| ToolReport {
        name: tool.name().to_owned(),
        server_id: tool.server_id().clone(),
        tool: tool.tool().name().to_owned(),
        change,
    }));
}

impl Serialize for ToolDefinitions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}
