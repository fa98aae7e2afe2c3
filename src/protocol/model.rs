//! What servers offer and return, kept as the text the server sent.
//!
//! A tool, a prompt, a resource and a result are JSON whose members this crate does not own: schemas
//! with unknown keywords, `_meta` of extensions, members of later revisions. Each value therefore
//! holds the server's text and reads the members it is asked for. Serialising one writes that text
//! back, byte for byte, so key order, numbers and `$ref` survive. Cloning is cheap.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use super::bounded::{Cursor, is_key, member_text, push_string, raw_member, small_member};
use super::clip;

/// Reads one member of a JSON object's text. `None` when it is absent, `null`, or of another type.
fn member<T: DeserializeOwned>(object: &RawValue, name: &str) -> Option<T> {
    serde_json::from_str(member_text(object, name)?)
        .ok()
        .flatten()
}

/// The text of an item: its own, or a part of the text of a stored catalogue.
#[derive(Clone)]
enum Text {
    Own(Rc<RawValue>),
    Part { whole: Rc<str>, range: (u32, u32) },
}

impl Text {
    fn as_str(&self) -> &str {
        match self {
            Self::Own(json) => json.get(),
            Self::Part { whole, range } => {
                let range = range.0 as usize..range.1 as usize;
                whole.get(range).unwrap_or("null")
            }
        }
    }

    fn raw(&self) -> &RawValue {
        match self {
            Self::Own(json) => json,
            // It was valid when it was stored.
            Self::Part { .. } => serde_json::from_str(self.as_str()).unwrap_or(RawValue::NULL),
        }
    }
}

/// An item of a catalogue: the text, and the string that names it.
macro_rules! item {
    ($(#[$doc:meta])* $name:ident, $key:literal, $(#[$key_doc:meta])* $accessor:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name {
            key: Rc<str>,
            json: Text,
        }

        impl $name {
            /// Takes the server's text. `None` when it is not an object or lacks the member that
            /// names the item.
            pub fn from_json(json: Box<RawValue>) -> Option<Self> {
                let key: String = member(&json, $key)?;
                Some(Self { key: key.into(), json: Text::Own(json.into()) })
            }

            /// An item of a catalogue that was stored. Nothing is read before it is asked for.
            pub(crate) fn stored(key: Rc<str>, whole: &Rc<str>, range: (u32, u32)) -> Self {
                let whole = whole.clone();
                Self { key, json: Text::Part { whole, range } }
            }

            /// The text, as the server sent it.
            pub(crate) fn text(&self) -> &str {
                self.json.as_str()
            }

            $(#[$key_doc])*
            pub fn $accessor(&self) -> &str {
                &self.key
            }

            /// What names the item, to keep.
            #[allow(dead_code, reason = "not every kind of item is looked up")]
            pub(crate) fn shared_name(&self) -> Rc<str> {
                self.key.clone()
            }

            /// The text for people, where the server gave one.
            pub fn title(&self) -> Option<String> {
                self.get("title")
            }

            /// The description, where the server gave one. Untrusted.
            pub fn description(&self) -> Option<String> {
                self.get("description")
            }

            /// Reads any member. `None` when it is absent, `null`, or of another type.
            pub fn get<T: DeserializeOwned>(&self, member_name: &str) -> Option<T> {
                member(self.json(), member_name)
            }

            /// The item as the server sent it.
            pub fn json(&self) -> &RawValue {
                self.json.raw()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.json().serialize(serializer)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.key).finish()
            }
        }
    };
}

item!(
    /// A tool (`tools/list`).
    Tool, "name",
    /// The name to call it by. Unique per server, case-sensitive, of any shape.
    name
);
item!(
    /// A prompt (`prompts/list`).
    Prompt, "name",
    /// The name to get it by.
    name
);
item!(
    /// A resource (`resources/list`).
    Resource, "uri",
    /// The URI to read it by.
    uri
);
item!(
    /// A resource template (`resources/templates/list`).
    ResourceTemplate, "uriTemplate",
    /// The RFC 6570 template.
    uri_template
);

impl Tool {
    /// The title for people: `title`, else `annotations.title`, else the name.
    pub fn display_name(&self) -> String {
        let annotated = || {
            self.get::<serde_json::Value>("annotations")?
                .get("title")?
                .as_str()
                .map(str::to_owned)
        };
        self.title()
            .or_else(annotated)
            .unwrap_or_else(|| self.name().to_owned())
    }

    /// Whether the tool runs as a task.
    pub fn task_support(&self) -> TaskSupport {
        let execution: Option<serde_json::Value> =
            small_member(self.json(), "execution", MAX_EXECUTION);
        let support = execution
            .as_ref()
            .and_then(|execution| execution.get("taskSupport"));
        match support.and_then(serde_json::Value::as_str) {
            Some("required") => TaskSupport::Required,
            Some("optional") => TaskSupport::Optional,
            _ => TaskSupport::Forbidden,
        }
    }

    /// The JSON Schema of the arguments, as the server sent it.
    pub fn input_schema(&self) -> Option<&RawValue> {
        raw_member(self.json(), "inputSchema")
    }

    /// The JSON Schema of `structuredContent`, as the server sent it.
    pub fn output_schema(&self) -> Option<&RawValue> {
        raw_member(self.json(), "outputSchema")
    }
}

/// The longest `execution` that is read, in bytes of JSON.
const MAX_EXECUTION: usize = 4 << 10;

/// Whether a tool runs as a task (2025-11-25, `execution.taskSupport`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TaskSupport {
    /// Never. What a tool that says nothing means.
    #[default]
    Forbidden,
    /// If asked.
    Optional,
    /// Only so.
    Required,
}

/// A result, kept as the text the server sent.
macro_rules! result {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name {
            json: Box<RawValue>,
        }

        impl $name {
            pub(crate) fn new(json: Box<RawValue>) -> Self {
                Self { json }
            }

            /// The result as the server sent it.
            pub fn json(&self) -> &RawValue {
                &self.json
            }

            /// Reads any member. `None` when it is absent, `null`, or of another type.
            pub fn get<T: DeserializeOwned>(&self, member_name: &str) -> Option<T> {
                member(&self.json, member_name)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.json.serialize(serializer)
            }
        }

        /// Results can hold anything, secrets included, so only the length is shown.
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("bytes", &self.json.get().len()).finish()
            }
        }
    };
}

result!(
    /// The result of `tools/call`. A tool that failed says so in it: see [`is_error`](Self::is_error).
    CallToolResult
);
result!(
    /// The result of `prompts/get`.
    GetPromptResult
);
result!(
    /// The result of `resources/read`.
    ReadResourceResult
);

impl CallToolResult {
    /// Whether the tool itself reports a failure. The call as such succeeded.
    pub fn is_error(&self) -> bool {
        self.get("isError").unwrap_or(false)
    }

    /// The content blocks; empty when the server sent none. Blocks of unknown types are kept.
    pub fn content(&self) -> Vec<serde_json::Value> {
        self.get("content").unwrap_or_default()
    }

    /// All text blocks, joined by line breaks.
    pub fn text(&self) -> String {
        let mut text = Vec::new();
        Cursor::new(&self.json).object(|key, value| {
            if !is_key(key, "content") {
                value.skip();
                return;
            }
            // The last one wins when a name is repeated.
            text.clear();
            let mut has_text = false;
            value.list(|block| {
                let Some(found) = text_of(block) else { return };
                let before = text.len();
                if has_text {
                    text.push(b'\n');
                }
                if push_string(&mut text, found).is_some() {
                    has_text = true;
                } else {
                    text.truncate(before);
                }
            });
        });
        String::from_utf8(text).unwrap_or_default()
    }

    /// The structured content. An explicit `null` is a value here (MCP 2026-07-28, tools).
    pub fn structured_content(&self) -> Option<&RawValue> {
        raw_member(&self.json, "structuredContent")
    }
}

/// The member `text` of a text block, as JSON. Passes over the block.
fn text_of<'a>(block: &mut Cursor<'a>) -> Option<&'a str> {
    let (mut is_text, mut text) = (false, None);
    block.object(|key, value| {
        let value = value.skip();
        if is_key(key, "type") {
            is_text = is_key(value, "text");
        } else if is_key(key, "text") {
            text = Some(value);
        }
    });
    text.filter(|_| is_text)
}

/// What a server says about itself in either era.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ServerCard {
    /// The server's capabilities, kept with unknown members.
    #[serde(default)]
    pub capabilities: BTreeMap<String, serde_json::Value>,
    /// Guidance for a model. Untrusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Name and version as the server states them. Untrusted, for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_info: Option<serde_json::Value>,
    /// Whether the server has said nothing of this.
    #[serde(skip)]
    pub(crate) is_assumed: bool,
}

/// The longest capabilities and identity that are read, in bytes of JSON.
const MAX_CARD_MEMBER: usize = 64 << 10;
/// The longest instructions that are kept, in characters.
const MAX_INSTRUCTIONS: usize = 64 << 10;

impl ServerCard {
    /// What is not known, and taken for all there can be.
    pub(crate) fn assumed() -> Self {
        let names = ["tools", "prompts", "resources"];
        let capability = |name: &str| (name.to_owned(), serde_json::Map::new().into());
        Self {
            capabilities: names.map(capability).into(),
            is_assumed: true,
            ..Self::default()
        }
    }

    /// Reads the members of an `initialize` or `server/discover` result. What is of another type,
    /// or absurdly long, counts as absent.
    pub(crate) fn read(result: &RawValue) -> Self {
        let instructions: Option<String> = member(result, "instructions");
        Self {
            capabilities: small_member(result, "capabilities", MAX_CARD_MEMBER).unwrap_or_default(),
            instructions: instructions.map(|text| clip(&text, MAX_INSTRUCTIONS)),
            server_info: small_member(result, "serverInfo", MAX_CARD_MEMBER),
            is_assumed: false,
        }
    }

    /// Whether tools can be called as tasks (2025-11-25, tasks).
    pub fn runs_tools_as_tasks(&self) -> bool {
        let tasks = self.capabilities.get("tasks");
        let call = tasks.and_then(|tasks| tasks.get("requests")?.get("tools")?.get("call"));
        call.is_some_and(serde_json::Value::is_object)
    }

    /// Whether the server declared that one of its lists may change.
    pub fn list_changes(&self, capability: &str) -> bool {
        self.capabilities
            .get(capability)
            .and_then(|value| value.get("listChanged"))
            .is_some_and(|changes| changes == &serde_json::json!(true))
    }

    /// Whether the server declared a capability. `null` and `false` count as not declared.
    pub fn offers(&self, capability: &str) -> bool {
        self.capabilities
            .get(capability)
            .is_some_and(|value| !value.is_null() && value != &serde_json::json!(false))
    }

    /// Whether the server declared an extension, which it does by an object of settings.
    pub fn offers_extension(&self, name: &str) -> bool {
        self.capabilities
            .get("extensions")
            .and_then(|extensions| extensions.get(name))
            .is_some_and(serde_json::Value::is_object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.into()).unwrap()
    }

    #[test]
    fn a_tool_serialises_to_the_text_the_server_sent() {
        let text = r#"{"name":"n", "zz":1.50,"inputSchema":{"type":"object","$ref":"x","properties":{}},"a":[]}"#;
        let tool = Tool::from_json(raw(text)).unwrap();
        assert_eq!(serde_json::to_string(&tool).unwrap(), text);
        assert_eq!(
            tool.input_schema().unwrap().get(),
            r#"{"type":"object","$ref":"x","properties":{}}"#
        );
        assert!(tool.output_schema().is_none());
    }

    #[test]
    fn an_item_without_its_name_is_no_item() {
        for text in [
            r#"{"title":"x"}"#,
            r#"{"name":null}"#,
            r#"{"name":3}"#,
            "[]",
            "3",
        ] {
            assert!(Tool::from_json(raw(text)).is_none(), "{text}");
        }
        assert!(Tool::from_json(raw(r#"{"name":""}"#)).is_some());
    }

    #[test]
    fn names_with_escapes_are_decoded() {
        let tool = Tool::from_json(raw(r#"{"name":"a\u00e9\n","n\u0061me2":1}"#)).unwrap();
        assert_eq!(tool.name(), "aé\n");
        assert_eq!(tool.get::<i64>("name2"), Some(1));
    }

    #[test]
    fn the_display_name_falls_back_in_the_specified_order() {
        for (text, name) in [
            (
                r#"{"name":"n","title":"t","annotations":{"title":"a"}}"#,
                "t",
            ),
            (r#"{"name":"n","annotations":{"title":"a"}}"#, "a"),
            (r#"{"name":"n","annotations":{}}"#, "n"),
        ] {
            assert_eq!(Tool::from_json(raw(text)).unwrap().display_name(), name);
        }
    }

    #[test]
    fn a_card_takes_what_it_understands_and_no_more_than_it_can_hold() {
        let long = "x".repeat(MAX_INSTRUCTIONS + 1);
        let deep = "[".repeat(200) + &"]".repeat(200);
        for (text, offers, instructions) in [
            (
                r#"{"capabilities":{"tools":{}},"instructions":"be kind"}"#.to_owned(),
                true,
                Some(7),
            ),
            (r#"{"capabilities":{"tools":null}}"#.to_owned(), false, None),
            (
                r#"{"capabilities":{"tools":false}}"#.to_owned(),
                false,
                None,
            ),
            (
                r#"{"capabilities":null,"instructions":null}"#.to_owned(),
                false,
                None,
            ),
            (
                r#"{"capabilities":["tools"],"instructions":3}"#.to_owned(),
                false,
                None,
            ),
            (
                format!(r#"{{"capabilities":{{"tools":{{"x":"{long}"}}}}}}"#),
                false,
                None,
            ),
            (
                format!(r#"{{"capabilities":{{"tools":{deep}}}}}"#),
                false,
                None,
            ),
            (
                format!(r#"{{"instructions":"{long}"}}"#),
                false,
                Some(MAX_INSTRUCTIONS + 3),
            ),
        ] {
            let card = ServerCard::read(&raw(&text));
            assert_eq!(card.offers("tools"), offers);
            assert_eq!(card.instructions.map(|text| text.len()), instructions);
        }
    }

    #[test]
    fn a_call_result_reads_what_it_is_asked_for() {
        let result = CallToolResult::new(raw(
            r#"{"content":[{"type":"text","text":"a"},{"type":"later"},{"type":"text","text":"b"}],"structuredContent":null}"#,
        ));
        assert!(!result.is_error());
        assert_eq!(result.text(), "a\nb");
        assert_eq!(result.content().len(), 3);
        assert_eq!(result.structured_content().unwrap().get(), "null");
        for (content, text) in [
            (
                r#"[{"text":"a\n\u00e9","type":"text"},{"type":"text","text":""}]"#,
                "a\né\n",
            ),
            (
                r#"[3,null,{"type":"text","text":3},{"type":"text","text":"\ud800"},{"type":"text","text":"b"}]"#,
                "b",
            ),
            (
                r#"[{"type":"image","text":"a"},[{"type":"text","text":"b"}]]"#,
                "",
            ),
            (r#"{"type":"text","text":"a"}"#, ""),
            (
                r#"[{"type":"text","text":"a"}],"\u0063ontent":[{"type":"text","text":"b"}]"#,
                "b",
            ),
        ] {
            let result =
                CallToolResult::new(raw(&format!(r#"{{"isError":false,"content":{content}}}"#)));
            assert_eq!(result.text(), text, "{content}");
        }
        assert!(
            CallToolResult::new(raw("{}"))
                .structured_content()
                .is_none()
        );
    }
}
