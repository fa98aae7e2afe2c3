//! Writing a schema for OpenAI's strict mode.
//!
//! Source of the rules: OpenAI, "Structured outputs", supported schemas. Objects are closed and
//! require every member; what may be left out may be `null` instead (it is taken out again before a
//! tool is called); only some keywords and formats exist; sizes are limited.

use std::collections::BTreeSet;

use super::null::allow_null;
use super::read::strings;
use super::tree::{Members, Node};
use super::write::tuple_as_list;

/// Limits of a schema as a whole.
const MAX_DEPTH: usize = 10;
const MAX_PROPERTIES: usize = 5_000;
const MAX_ENUM: usize = 1_000;
const MAX_LETTERS: usize = 120_000;
/// From how many values on the letters of one enumeration are limited, and to how many.
const LONG_ENUM: usize = 250;
const MAX_ENUM_LETTERS: usize = 15_000;

/// The formats of texts that are known.
const FORMATS: [&str; 9] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
];

/// Writes a plain root for strict mode.
///
/// # Errors
/// What strict mode cannot say.
pub(super) fn strict(root: &Node, losses: &mut BTreeSet<String>) -> Result<Node, String> {
    let mut writer = Writer {
        losses,
        properties: 0,
        values: 0,
        letters: 0,
    };
    writer.schema(root, 0, true)
}

struct Writer<'a> {
    losses: &'a mut BTreeSet<String>,
    properties: usize,
    values: usize,
    letters: usize,
}

impl Writer<'_> {
    fn schema(&mut self, from: &Node, depth: usize, is_root: bool) -> Result<Node, String> {
        let Node::Object(from) = from else {
            return Err("a subschema that is none".into());
        };
        if depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} levels"));
        }
        if let Some(alternatives) = alternatives(from) {
            return self.any_of(from, &alternatives, depth);
        }
        let kinds: Vec<&str> = match from.get("type") {
            Some(Node::List(kinds)) => kinds.iter().filter_map(Node::as_text).collect(),
            Some(kind) => kind.as_text().into_iter().collect(),
            None => Vec::new(),
        };
        if kinds.is_empty() && !from.has("enum") && !from.has("const") {
            return Err("values of any type".into());
        }
        if let (Some(_), Some(_)) = (from.get("allOf"), from.get("type")) {
            return Err("schemas that must all hold".into());
        }
        let mut out = Members::default();
        let mut source = from.clone();
        tuple_as_list(&mut source, self.losses);
        for (keyword, value) in source.iter() {
            if let Some((keyword, value)) = self.keyword(keyword, value, depth)? {
                out.set(keyword, value);
            }
        }
        if kinds.contains(&"array") && !out.has("items") {
            return Err("lists of anything".into());
        }
        if kinds.contains(&"object") {
            self.object(&source, &mut out, depth, is_root)?;
        }
        Ok(Node::Object(out))
    }

    fn any_of(
        &mut self,
        from: &Members,
        alternatives: &[Node],
        depth: usize,
    ) -> Result<Node, String> {
        let is_mixed = |keyword: &str| {
            matches!(keyword, "properties" | "items" | "enum" | "const" | "allOf")
                || keyword == "anyOf" && from.has("oneOf")
        };
        if from.iter().any(|(keyword, _)| is_mixed(keyword))
            && (from.has("anyOf") || from.has("oneOf"))
        {
            return Err("alternatives beside other keywords".into());
        }
        let mut out = Members::default();
        for keyword in ["title", "description"] {
            if let Some(text) = from.get(keyword) {
                out.set(keyword, text.clone());
            }
        }
        let mut list = Vec::with_capacity(alternatives.len());
        for alternative in alternatives {
            list.push(self.schema(alternative, depth + 1, false)?);
        }
        out.set("anyOf", Node::List(list));
        Ok(Node::Object(out))
    }

    fn keyword<'k>(
        &mut self,
        keyword: &'k str,
        value: &Node,
        depth: usize,
    ) -> Result<Option<(&'k str, Node)>, String> {
        Ok(match keyword {
            "type" | "title" | "description" | "minimum" | "maximum" | "exclusiveMinimum"
            | "exclusiveMaximum" | "multipleOf" | "minItems" | "maxItems" => {
                Some((keyword, value.clone()))
            }
            "enum" => {
                self.count_values(value.as_list().unwrap_or_default())?;
                Some((keyword, value.clone()))
            }
            "const" => {
                let value = std::slice::from_ref(value);
                self.count_values(value)?;
                Some(("enum", Node::List(value.to_vec())))
            }
            "items" if matches!(value, Node::Object(_)) => {
                Some((keyword, self.schema(value, depth + 1, false)?))
            }
            // The others are written with the object.
            "items" | "properties" | "required" | "additionalProperties" => None,
            "format" if FORMATS.contains(&value.as_text().unwrap_or_default()) => {
                Some((keyword, value.clone()))
            }
            // Groups that look around are not known.
            "pattern" if !value.as_text().unwrap_or_default().contains("(?") => {
                Some((keyword, value.clone()))
            }
            "patternProperties" => return Err("objects with members of any name".into()),
            _ => {
                self.losses.insert(keyword.to_owned());
                None
            }
        })
    }

    fn object(
        &mut self,
        from: &Members,
        out: &mut Members,
        depth: usize,
        is_root: bool,
    ) -> Result<(), String> {
        let properties = from.get("properties").and_then(Node::as_object);
        let is_empty = properties.is_none_or(Members::is_empty);
        match from.get("additionalProperties") {
            Some(Node::Bool(false)) => {}
            // A schema that says nothing of further members means those that it lists.
            None if !is_empty || is_root => {}
            _ => return Err("objects with members of any name".into()),
        }
        let required = strings(from.get("required"));
        let mut closed = Vec::new();
        for (name, schema) in properties.into_iter().flat_map(Members::iter) {
            self.properties += 1;
            self.count_letters(name)?;
            if self.properties > MAX_PROPERTIES {
                return Err(format!("more than {MAX_PROPERTIES} properties"));
            }
            let mut schema = self.schema(schema, depth + 1, false)?;
            if let Node::Object(members) = &mut schema
                && !required.iter().any(|required| required == name)
            {
                allow_null(members);
            }
            closed.push((name.to_owned(), schema));
        }
        let names = closed.iter().map(|(name, _)| Node::text(name));
        let names = Node::List(names.collect());
        out.set("properties", Node::Object(closed.into_iter().collect()));
        out.set("required", names);
        out.set("additionalProperties", Node::Bool(false));
        Ok(())
    }

    fn count_values(&mut self, values: &[Node]) -> Result<(), String> {
        self.values += values.len();
        let mut letters = 0;
        for value in values {
            if matches!(value, Node::List(_) | Node::Object(_)) {
                return Err("values that are lists or objects".into());
            }
            let text = value.as_text().unwrap_or_default();
            letters += text.chars().count();
            self.count_letters(text)?;
        }
        if self.values > MAX_ENUM || values.len() > LONG_ENUM && letters > MAX_ENUM_LETTERS {
            return Err("too many values to choose from".into());
        }
        Ok(())
    }

    fn count_letters(&mut self, text: &str) -> Result<(), String> {
        self.letters += text.chars().count();
        if self.letters > MAX_LETTERS {
            return Err(format!(
                "more than {MAX_LETTERS} characters of names and values"
            ));
        }
        Ok(())
    }
}

/// What may be chosen from, if anything.
fn alternatives(from: &Members) -> Option<Vec<Node>> {
    for keyword in ["anyOf", "oneOf"] {
        if let Some(Node::List(list)) = from.get(keyword) {
            return Some(list.clone());
        }
    }
    let Some(Node::List(kinds)) = from.get("type") else {
        return None;
    };
    let several = kinds.iter().filter(|kind| kind.as_text() != Some("null"));
    if several.count() < 2 || from.has("enum") {
        return None;
    }
    // Types that have little in common each get what is said of them.
    let one = |kind: &Node| {
        let own = from.iter().filter(|(keyword, _)| is_of(keyword, kind));
        let own = own.map(|(keyword, value)| (keyword.to_owned(), value.clone()));
        let mut schema: Members = own.collect();
        schema.set("type", kind.clone());
        Node::Object(schema)
    };
    Some(kinds.iter().map(one).collect())
}

/// Whether a keyword says something of a type.
fn is_of(keyword: &str, kind: &Node) -> bool {
    let of = match keyword {
        "properties" | "required" | "additionalProperties" | "patternProperties" => "object",
        "items" | "prefixItems" | "minItems" | "maxItems" | "uniqueItems" => "array",
        "pattern" | "format" | "minLength" | "maxLength" => "string",
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => "number",
        _ => return false,
    };
    let kind = kind.as_text().unwrap_or_default();
    kind == of || kind == "integer" && of == "number"
}
