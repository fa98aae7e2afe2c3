//! Reading a server's schema: every dialect in, one plain form out.
//!
//! The plain form is 2020-12 without references, conditions and identifiers: an object at the root,
//! alternatives as `anyOf` or `oneOf`, tuples as `prefixItems`. It may take more than the schema
//! did, never less that matters: the server checks what it is sent.

use std::collections::BTreeSet;

use serde_json::value::RawValue;

use super::merge::merge;
use super::null::allow_null;
use super::pointer::resolve;
use super::root::as_root;
use super::tree::{Members, Node};
use crate::ai::text::shown;

/// The longest schema that is read, in bytes.
const MAX_BYTES: usize = 256 << 10;
/// How deep the text may be nested: far from what the parser takes.
const MAX_TEXT_DEPTH: usize = 100;
/// How deep schemas may be nested, and how many there may be, when references are written out.
const MAX_DEPTH: usize = 24;
const MAX_SCHEMAS: usize = 4_000;
/// The longest description within a schema, in characters.
const MAX_DESCRIPTION: usize = 1_024;

/// A schema in its plain form.
#[derive(Debug, Clone)]
pub(crate) struct Plain {
    pub(crate) root: Node,
    /// What got lost on the way.
    pub(crate) losses: BTreeSet<String>,
}

/// Reads a schema. An absent one is that of an object without members.
///
/// # Errors
/// Why nothing can be made of it.
pub(crate) fn read(schema: Option<&RawValue>) -> Result<Plain, String> {
    let text = schema.map_or("{}", RawValue::get);
    if text.len() > MAX_BYTES {
        return Err(format!("it is longer than {MAX_BYTES} bytes"));
    }
    if !crate::protocol::bounded::is_shallow(text, MAX_TEXT_DEPTH) {
        return Err("it is nested too deeply".into());
    }
    let root: Node = serde_json::from_str(text).map_err(|_| "it cannot be read".to_owned())?;
    let root = match root {
        Node::Null => Node::Object(Members::default()),
        root => root,
    };
    let mut reader = Reader {
        root: &root,
        left: MAX_SCHEMAS,
        within: Vec::new(),
        losses: BTreeSet::new(),
    };
    let plain = reader.schema(&root, 0)?;
    let mut losses = reader.losses;
    Ok(Plain {
        root: as_root(plain, &mut losses),
        losses,
    })
}

struct Reader<'a> {
    root: &'a Node,
    /// How many more schemas may be written.
    left: usize,
    /// The references that are being written out.
    within: Vec<&'a str>,
    losses: BTreeSet<String>,
}

impl<'a> Reader<'a> {
    fn schema(&mut self, schema: &'a Node, depth: usize) -> Result<Node, String> {
        self.left = self.left.checked_sub(1).ok_or("it is too large")?;
        if depth > MAX_DEPTH {
            return Err("it is nested too deeply".into());
        }
        let members = match schema {
            Node::Object(members) => members,
            Node::Bool(true) => return Ok(any()),
            Node::Bool(false) => return Ok(nothing()),
            _ => {
                self.lost("a subschema that is none");
                return Ok(any());
            }
        };
        let mut out = Members::default();
        let mut parts = Vec::new();
        for (keyword, value) in members.iter() {
            if matches!(keyword, "$ref" | "$dynamicRef" | "$recursiveRef") {
                parts.push(self.reference(value, depth)?);
            } else if keyword == "allOf" {
                for part in value.as_list().unwrap_or_default() {
                    parts.push(self.schema(part, depth + 1)?);
                }
            } else {
                self.keyword(keyword, value, members, &mut out, depth)?;
            }
        }
        for keyword in ["anyOf", "oneOf"] {
            // One alternative is none.
            if let Some([only]) = out.get(keyword).and_then(Node::as_list) {
                parts.push(only.clone());
                out.remove(keyword);
            }
        }
        let mut unmerged = Vec::new();
        for part in parts {
            if let Some(part) = merge(&mut out, part) {
                unmerged.push(part);
            }
        }
        if !unmerged.is_empty() {
            out.set("allOf", Node::List(unmerged));
        }
        complete(&mut out);
        if members.get("nullable") == Some(&Node::Bool(true)) {
            allow_null(&mut out);
        }
        Ok(Node::Object(out))
    }

    fn reference(&mut self, to: &'a Node, depth: usize) -> Result<Node, String> {
        let found = to
            .as_text()
            .and_then(|to| Some((to, resolve(self.root, to)?)));
        let Some((to, target)) = found else {
            self.lost("a reference to elsewhere");
            return Ok(any());
        };
        if self.within.contains(&to) {
            self.lost("what is nested in itself");
            let mut cut = Members::default();
            if let Some(kind) = target.get("type").filter(|kind| kind.as_text().is_some()) {
                cut.set("type", kind.clone());
            }
            if let Some(text) = target.get("description").and_then(Node::as_text) {
                cut.set("description", Node::Text(shown(text, MAX_DESCRIPTION)));
            }
            return Ok(Node::Object(cut));
        }
        self.within.push(to);
        let written = self.schema(target, depth + 1);
        self.within.pop();
        written
    }

    /// Writes one keyword, if it is one that says something to a model.
    fn keyword(
        &mut self,
        keyword: &'a str,
        value: &'a Node,
        beside: &'a Members,
        out: &mut Members,
        depth: usize,
    ) -> Result<(), String> {
        let plain = match keyword {
            "type" => self.kinds(value),
            "title" | "description" => value
                .as_text()
                .map(|text| Node::Text(shown(text, MAX_DESCRIPTION))),
            "format" | "pattern" => value.as_text().map(Node::text),
            "enum" => value
                .as_list()
                .filter(|values| !values.is_empty())
                .map(|values| Node::List(values.to_vec())),
            "const" | "default" => Some(value.clone()),
            "examples" => value.as_list().map(|values| Node::List(values.to_vec())),
            "multipleOf" => number(value).filter(|value| match value {
                Node::Number(number) => number.as_f64().is_some_and(|number| number > 0.0),
                _ => false,
            }),
            "minimum" | "maximum" => number(value).filter(|_| {
                // Draft 4: whether the bound itself is excluded.
                let exclusive = match keyword {
                    "minimum" => "exclusiveMinimum",
                    _ => "exclusiveMaximum",
                };
                beside.get(exclusive) != Some(&Node::Bool(true))
            }),
            "exclusiveMinimum" | "exclusiveMaximum" => match value {
                Node::Bool(true) => {
                    let bound = if keyword == "exclusiveMinimum" {
                        "minimum"
                    } else {
                        "maximum"
                    };
                    beside.get(bound).and_then(number)
                }
                value => number(value),
            },
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties"
            | "maxProperties" | "minContains" | "maxContains" => count(value),
            "uniqueItems" => matches!(value, Node::Bool(_)).then(|| value.clone()),
            "required" => value.as_list().map(|names| {
                let mut seen = BTreeSet::new();
                let names = names.iter().filter_map(Node::as_text);
                let names = names.filter(|name| seen.insert(*name));
                Node::List(names.map(Node::text).collect())
            }),
            "properties" | "patternProperties" => self.map(value, depth)?,
            "additionalProperties" | "propertyNames" | "contains" | "not" => {
                Some(as_bool(self.schema(value, depth + 1)?, keyword))
            }
            "items" => return self.items(value, beside, out, depth),
            "anyOf" | "oneOf" | "prefixItems" => self.list(value, depth)?,
            "if" | "dependentSchemas" | "dependentRequired" | "dependencies" => {
                self.lost("conditions");
                None
            }
            // Identifiers, definitions, comments, annotations of code generators, later keywords.
            _ => None,
        };
        if let Some(plain) = plain {
            out.set(keyword, plain);
        }
        Ok(())
    }

    /// Before 2020-12 a list of schemas is a tuple, and `additionalItems` what follows it.
    fn items(
        &mut self,
        value: &'a Node,
        beside: &'a Members,
        out: &mut Members,
        depth: usize,
    ) -> Result<(), String> {
        if !matches!(value, Node::List(_)) {
            out.set("items", as_bool(self.schema(value, depth + 1)?, "items"));
            return Ok(());
        }
        if let Some(tuple) = self.list(value, depth)? {
            out.set("prefixItems", tuple);
        }
        if let Some(rest) = beside.get("additionalItems") {
            out.set("items", as_bool(self.schema(rest, depth + 1)?, "items"));
        }
        Ok(())
    }

    fn map(&mut self, value: &'a Node, depth: usize) -> Result<Option<Node>, String> {
        let Some(members) = value.as_object() else {
            return Ok(None);
        };
        let mut out = Vec::with_capacity(members.len());
        for (name, schema) in members.iter() {
            out.push((name.to_owned(), self.schema(schema, depth + 1)?));
        }
        Ok(Some(Node::Object(out.into_iter().collect())))
    }

    fn list(&mut self, value: &'a Node, depth: usize) -> Result<Option<Node>, String> {
        let Some(schemas) = value.as_list().filter(|list| !list.is_empty()) else {
            return Ok(None);
        };
        let mut out = Vec::with_capacity(schemas.len());
        for schema in schemas {
            out.push(self.schema(schema, depth + 1)?);
        }
        Ok(Some(Node::List(out)))
    }

    fn kinds(&mut self, value: &Node) -> Option<Node> {
        let listed = match value {
            Node::List(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        let mut known: Vec<&str> = Vec::new();
        for kind in listed.iter().filter_map(Node::as_text) {
            if KINDS.contains(&kind) && !known.contains(&kind) {
                known.push(kind);
            }
        }
        if known.len() < listed.len() {
            self.lost("types that are none");
        }
        match known.as_slice() {
            [] => None,
            [one] => Some(Node::text(*one)),
            several => Some(Node::List(
                several.iter().map(|kind| Node::text(*kind)).collect(),
            )),
        }
    }

    fn lost(&mut self, what: &str) {
        self.losses.insert(what.to_owned());
    }
}

/// The types of JSON Schema.
pub(super) const KINDS: [&str; 7] = [
    "null", "boolean", "integer", "number", "string", "array", "object",
];

/// The schema that takes anything.
pub(super) fn any() -> Node {
    Node::Object(Members::default())
}

fn nothing() -> Node {
    let members = [("not".to_owned(), any())];
    Node::Object(members.into_iter().collect())
}

/// Where a keyword takes `true` and `false`, they are shorter.
fn as_bool(schema: Node, keyword: &str) -> Node {
    match keyword {
        "additionalProperties" | "items" if schema == any() => Node::Bool(true),
        "additionalProperties" | "items" if schema == nothing() => Node::Bool(false),
        _ => schema,
    }
}

fn number(value: &Node) -> Option<Node> {
    matches!(value, Node::Number(_)).then(|| value.clone())
}

fn count(value: &Node) -> Option<Node> {
    match value {
        Node::Number(number) if number.is_u64() => Some(value.clone()),
        // `2.0` is a whole number, too.
        Node::Number(number) => {
            let value = number.as_f64().filter(|value| value.fract() == 0.0)?;
            let whole = format!("{value:.0}").parse::<u64>().ok()?;
            Some(Node::Number(whole.into()))
        }
        _ => None,
    }
}

/// Says the type where only its keywords do, and lists what is required.
fn complete(schema: &mut Members) {
    if !schema.has("type") {
        let of_values = |values: &[Node]| {
            let mut kinds = values.iter().map(Node::kind);
            let first = kinds.next()?;
            kinds.all(|kind| kind == first).then_some(first)
        };
        let kind = if schema.has("properties") {
            Some("object")
        } else if schema.has("items") || schema.has("prefixItems") {
            Some("array")
        } else if let Some(value) = schema.get("const") {
            Some(value.kind())
        } else {
            schema
                .get("enum")
                .and_then(Node::as_list)
                .and_then(of_values)
        };
        if let Some(kind) = kind {
            schema.set("type", Node::text(kind));
        }
    }
    let required: Vec<String> = strings(schema.get("required"));
    if required.is_empty() {
        schema.remove("required");
        return;
    }
    let properties = schema.get("properties").and_then(Node::as_object);
    let mut properties = properties.cloned().unwrap_or_default();
    for name in required {
        if !properties.has(&name) {
            properties.set(&name, any());
        }
    }
    schema.set("properties", Node::Object(properties));
    if !schema.has("type") {
        schema.set("type", Node::text("object"));
    }
}

/// The texts of a list.
pub(super) fn strings(list: Option<&Node>) -> Vec<String> {
    let list = list.and_then(Node::as_list).unwrap_or_default();
    let texts = list.iter().filter_map(Node::as_text);
    texts.map(str::to_owned).collect()
}
