//! Whether a schema takes `null`, and making it do so.

use super::tree::{Members, Node};

/// Makes a schema take `null` as well.
pub(crate) fn allow_null(schema: &mut Members) {
    if takes_null(schema) {
        return;
    }
    if let Some(Node::List(mut alternatives)) = schema.get("anyOf").cloned() {
        alternatives.push(null());
        schema.set("anyOf", Node::List(alternatives));
    }
    let kinds = match schema.get("type") {
        Some(Node::List(kinds)) => kinds.clone(),
        Some(kind) => vec![kind.clone()],
        None => Vec::new(),
    };
    if !kinds.is_empty() {
        let kinds = kinds.into_iter().chain([Node::text("null")]);
        schema.set("type", Node::List(kinds.collect()));
    }
    if let Some(value) = schema.remove("const") {
        schema.set("enum", Node::List(vec![value]));
    }
    if let Some(Node::List(mut values)) = schema.get("enum").cloned() {
        if !values.contains(&Node::Null) {
            values.push(Node::Null);
        }
        schema.set("enum", Node::List(values));
    }
}

fn null() -> Node {
    let members = [("type".to_owned(), Node::text("null"))];
    Node::Object(members.into_iter().collect())
}

/// Whether `null` fits, as far as types tell.
pub(crate) fn takes_null(schema: &Members) -> bool {
    let by_type = match schema.get("type") {
        None => true,
        Some(Node::List(kinds)) => kinds.iter().any(|kind| kind.as_text() == Some("null")),
        Some(kind) => kind.as_text() == Some("null"),
    };
    let by_value = match (schema.get("enum"), schema.get("const")) {
        (Some(values), _) => values
            .as_list()
            .is_some_and(|values| values.contains(&Node::Null)),
        (None, Some(value)) => *value == Node::Null,
        (None, None) => true,
    };
    let by_alternatives = ["anyOf", "oneOf"].iter().all(|keyword| {
        let alternatives = schema.get(keyword).and_then(Node::as_list);
        alternatives.is_none_or(|alternatives| {
            alternatives
                .iter()
                .any(|schema| schema.as_object().is_some_and(takes_null))
        })
    });
    by_type && by_value && by_alternatives
}
