//! Taking `null` out of arguments where it stands for nothing.
//!
//! In strict mode models must write every argument, `null` where they would leave one out; and many
//! models do so in any mode. Servers refuse that.

use serde_json::Value;

use super::null::takes_null;
use super::read::strings;
use super::tree::{Members, Node};

/// Takes out members that are `null`, may be left out, and may not be `null`.
pub(crate) fn prune(arguments: &mut Value, schema: &Node) {
    let Some(schema) = schema.as_object() else {
        return;
    };
    match arguments {
        Value::Object(members) => {
            let Some(properties) = schema.get("properties").and_then(Node::as_object) else {
                if let Some(only) = the_one_for(schema, "object") {
                    prune(arguments, only);
                }
                return;
            };
            let required = strings(schema.get("required"));
            members.retain(|name, value| {
                let property = properties.get(name).and_then(Node::as_object);
                let is_needed = required.contains(name) || property.is_none_or(takes_null);
                !value.is_null() || is_needed
            });
            for (name, value) in members.iter_mut() {
                if let Some(schema) = properties.get(name) {
                    prune(value, schema);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for item in items {
                    prune(item, schema);
                }
            } else if let Some(only) = the_one_for(schema, "array") {
                prune(arguments, only);
            }
        }
        _ => {}
    }
}

/// The alternative that a value of this type must be of, where that is clear.
fn the_one_for<'s>(schema: &'s Members, kind: &str) -> Option<&'s Node> {
    let alternatives = schema.get("anyOf").or_else(|| schema.get("oneOf"))?;
    let mut fitting = alternatives
        .as_list()?
        .iter()
        .filter(|schema| schema.get("type").and_then(Node::as_text) == Some(kind));
    let only = fitting.next()?;
    fitting.next().is_none().then_some(only)
}
