//! Writing a schema for providers that take it as a hint.
//!
//! Sources of the rules: OpenAI, "Function calling" and the errors of its API (arrays need `items`,
//! objects `properties`); Anthropic, "Tool use" and the errors of its API (valid 2020-12, names of
//! properties `^[a-zA-Z0-9_.-]{1,64}$`, no alternatives at the root); Workers AI, the input schema
//! of its text generation models (every argument has one `type` and a `description`).

use std::collections::BTreeSet;

use super::Dialect;
use super::read::{any, strings};
use super::tree::{Members, Node};

/// The longest name of a property (Anthropic).
const MAX_KEY: usize = 64;

/// Writes a plain root in a dialect.
pub(super) fn write(root: &Node, dialect: Dialect, losses: &mut BTreeSet<String>) -> Node {
    let mut root = schema(root, dialect, losses);
    if dialect == Dialect::WorkersAi {
        describe_arguments(&mut root, losses);
    }
    root
}

fn schema(from: &Node, dialect: Dialect, losses: &mut BTreeSet<String>) -> Node {
    let Node::Object(members) = from else {
        return any();
    };
    let mut out = Members::default();
    let mut unnamed = Vec::new();
    for (keyword, value) in members.iter() {
        let Some(keyword) = keyword_in(keyword, dialect, losses) else {
            continue;
        };
        let value = match keyword {
            "type" if dialect == Dialect::WorkersAi => one_kind(value, losses),
            "properties" => {
                let names = value.as_object().into_iter().flat_map(Members::iter);
                let mut properties = Vec::new();
                for (name, value) in names {
                    if dialect == Dialect::Anthropic && !is_key(name) {
                        losses.insert("names of properties".into());
                        unnamed.push(name);
                    } else {
                        properties.push((name.to_owned(), schema(value, dialect, losses)));
                    }
                }
                Node::Object(properties.into_iter().collect())
            }
            "patternProperties" => {
                let patterns = value.as_object().into_iter().flat_map(Members::iter);
                let patterns =
                    patterns.map(|(name, value)| (name.to_owned(), schema(value, dialect, losses)));
                Node::Object(patterns.collect())
            }
            "items" | "additionalProperties" if !matches!(value, Node::Object(_)) => value.clone(),
            "items" | "additionalProperties" | "propertyNames" | "contains" | "not" => {
                schema(value, dialect, losses)
            }
            "anyOf" | "oneOf" | "allOf" | "prefixItems" => {
                let list = value.as_list().unwrap_or_default();
                Node::List(
                    list.iter()
                        .map(|value| schema(value, dialect, losses))
                        .collect(),
                )
            }
            _ => value.clone(),
        };
        if keyword == "anyOf" && out.has("anyOf") {
            losses.insert("several alternatives at once".into());
            continue;
        }
        out.set(keyword, value);
    }
    leave_out(&mut out, &unnamed);
    if dialect != Dialect::Anthropic {
        tuple_as_list(&mut out, losses);
        complete(&mut out);
    }
    Node::Object(out)
}

/// What a keyword is called in a dialect, if it can be said.
fn keyword_in<'k>(
    keyword: &'k str,
    dialect: Dialect,
    losses: &mut BTreeSet<String>,
) -> Option<&'k str> {
    match keyword {
        _ if dialect == Dialect::Anthropic => Some(keyword),
        // More than one alternative may hold then.
        "oneOf" => Some("anyOf"),
        "not" | "allOf" | "patternProperties" | "propertyNames" | "contains" | "minContains"
        | "maxContains" | "minProperties" | "maxProperties" => {
            losses.insert(keyword.to_owned());
            None
        }
        _ => Some(keyword),
    }
}

/// `null` is the least of what a type may be.
fn one_kind(kinds: &Node, losses: &mut BTreeSet<String>) -> Node {
    let Node::List(kinds) = kinds else {
        return kinds.clone();
    };
    let mut others = kinds.iter().filter(|kind| kind.as_text() != Some("null"));
    let first = others.next().cloned();
    if others.next().is_some() {
        losses.insert("several types".into());
    }
    first.unwrap_or_else(|| Node::text("null"))
}

fn is_key(name: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=MAX_KEY).contains(&name.len()) && name.bytes().all(is_legal)
}

/// What cannot be a property is told in words, and may be sent all the same.
fn leave_out(schema: &mut Members, names: &[&str]) {
    if names.is_empty() {
        return;
    }
    let required = strings(schema.get("required"));
    let required = required
        .into_iter()
        .filter(|name| !names.contains(&&**name));
    let required: Vec<Node> = required.map(Node::Text).collect();
    if required.is_empty() {
        schema.remove("required");
    } else {
        schema.set("required", Node::List(required));
    }
    if schema.get("additionalProperties") == Some(&Node::Bool(false)) {
        schema.set("additionalProperties", Node::Bool(true));
    }
    let before = schema.get("description").and_then(Node::as_text);
    let mut text = before.map_or_else(String::new, |text| format!("{text}\n"));
    text.push_str("Further members:");
    for name in names.iter().take(MAX_TOLD) {
        let name = super::super::text::shown(name, 2 * MAX_KEY);
        text.push(' ');
        text.push_str(&Node::Text(name).to_json());
    }
    schema.set("description", Node::Text(text));
}

/// How many such names are told.
const MAX_TOLD: usize = 20;

/// A tuple as a list of any of its items.
pub(super) fn tuple_as_list(schema: &mut Members, losses: &mut BTreeSet<String>) {
    let Some(Node::List(tuple)) = schema.remove("prefixItems") else {
        return;
    };
    losses.insert("tuples".into());
    let mut kinds: Vec<Node> = Vec::new();
    let rest = schema.get("items").cloned();
    let is_closed = rest == Some(Node::Bool(false));
    for item in tuple
        .iter()
        .cloned()
        .chain(rest.filter(|rest| matches!(rest, Node::Object(_))))
    {
        if !kinds.contains(&item) {
            kinds.push(item);
        }
    }
    let items = if let [only] = kinds.as_slice() {
        only.clone()
    } else {
        let members = [("anyOf".to_owned(), Node::List(kinds))];
        Node::Object(members.into_iter().collect())
    };
    schema.set("items", items);
    if is_closed && !schema.has("maxItems") {
        schema.set("maxItems", Node::Number(tuple.len().into()));
    }
}

/// Arrays need items, and objects properties.
fn complete(schema: &mut Members) {
    let is = |kind: &str| match schema.get("type") {
        Some(Node::List(kinds)) => kinds.iter().any(|other| other.as_text() == Some(kind)),
        Some(other) => other.as_text() == Some(kind),
        None => false,
    };
    let (is_array, is_object) = (is("array"), is("object"));
    if is_array && !matches!(schema.get("items"), Some(Node::Object(_))) {
        schema.set("items", any());
    }
    if is_object && !schema.has("properties") {
        schema.set("properties", any());
    }
}

/// Gives every argument the type and the description that it must have.
fn describe_arguments(root: &mut Node, losses: &mut BTreeSet<String>) {
    let Node::Object(root) = root else { return };
    let Some(Node::Object(properties)) = root.remove("properties") else {
        return;
    };
    let described = properties.iter().map(|(name, schema)| {
        let mut schema = schema.as_object().cloned().unwrap_or_default();
        if !schema.has("type") {
            let kind = kind_of_alternatives(&schema).unwrap_or_else(|| {
                losses.insert("arguments of any type".into());
                "string"
            });
            schema.set("type", Node::text(kind));
            complete(&mut schema);
        }
        if !schema.has("description") {
            let title = schema.get("title").and_then(Node::as_text).unwrap_or(name);
            schema.set("description", Node::text(title));
        }
        (name.to_owned(), Node::Object(schema))
    });
    root.set("properties", Node::Object(described.collect()));
}

/// The first type that is not `null`.
fn kind_of_alternatives(schema: &Members) -> Option<&'static str> {
    let alternatives = schema.get("anyOf")?.as_list()?;
    let kinds = alternatives
        .iter()
        .filter_map(|schema| schema.get("type")?.as_text());
    let first = kinds.into_iter().find(|kind| *kind != "null")?;
    super::read::KINDS.into_iter().find(|kind| *kind == first)
}
