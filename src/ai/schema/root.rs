//! The root of a schema of arguments: always an object, without alternatives. No provider takes
//! others.

use std::collections::BTreeSet;

use super::read::{any, strings};
use super::tree::{Members, Node};

/// Makes a schema the one of an object.
pub(super) fn as_root(schema: Node, losses: &mut BTreeSet<String>) -> Node {
    let Node::Object(mut root) = schema else {
        return empty();
    };
    for keyword in ["anyOf", "oneOf", "allOf"] {
        if let Some(Node::List(alternatives)) = root.remove(keyword) {
            losses.insert(format!("{keyword} at the root"));
            take_in(&mut root, &alternatives, keyword == "allOf");
        }
    }
    for keyword in ["not", "enum", "const"] {
        if root.remove(keyword).is_some() {
            losses.insert(format!("{keyword} at the root"));
        }
    }
    root.set("type", Node::text("object"));
    let properties = root.remove("properties");
    let properties = properties.unwrap_or_else(|| Node::Object(Members::default()));
    let properties = match properties {
        Node::Object(_) => properties,
        _ => Node::Object(Members::default()),
    };
    root.set("properties", properties);
    // What is said of other types says nothing.
    let of_objects = |keyword: &str| {
        matches!(
            keyword,
            "type"
                | "title"
                | "description"
                | "default"
                | "examples"
                | "properties"
                | "required"
                | "additionalProperties"
                | "patternProperties"
                | "propertyNames"
                | "minProperties"
                | "maxProperties"
        )
    };
    let kept = root.iter().filter(|(keyword, _)| of_objects(keyword));
    let kept = kept.map(|(keyword, value)| (keyword.to_owned(), value.clone()));
    Node::Object(kept.collect())
}

/// The schema of an object that may have any members: for tools of whose schema nothing can be
/// made.
pub(crate) fn permissive() -> Node {
    let Node::Object(mut schema) = empty() else {
        return empty();
    };
    schema.set("additionalProperties", Node::Bool(true));
    Node::Object(schema)
}

fn empty() -> Node {
    let members = [
        ("type".to_owned(), Node::text("object")),
        ("properties".to_owned(), Node::Object(Members::default())),
    ];
    Node::Object(members.into_iter().collect())
}

/// Offers the properties of every alternative; required is what all of them require.
fn take_in(root: &mut Members, alternatives: &[Node], all_hold: bool) {
    let properties = root.get("properties").and_then(Node::as_object);
    let mut properties = properties.cloned().unwrap_or_default();
    let mut required: Option<Vec<String>> = None;
    for alternative in alternatives {
        let own = alternative.get("properties").and_then(Node::as_object);
        for (name, schema) in own.into_iter().flat_map(Members::iter) {
            let either = match properties.get(name) {
                None => schema.clone(),
                Some(known) if known == schema || *schema == any() => continue,
                Some(known) if *known == any() => schema.clone(),
                Some(known) => either(known, schema),
            };
            properties.set(name, either);
        }
        let names = strings(alternative.get("required"));
        required = Some(match required {
            None => names,
            Some(before) if all_hold => before.into_iter().chain(names).collect(),
            Some(before) => before
                .into_iter()
                .filter(|name| names.contains(name))
                .collect(),
        });
    }
    let mut all = strings(root.get("required"));
    for name in required.unwrap_or_default() {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    root.set("properties", Node::Object(properties));
    // An alternative may close the object for the properties of the others.
    if root.get("additionalProperties") == Some(&Node::Bool(false)) {
        root.remove("additionalProperties");
    }
    if !all.is_empty() {
        let names = all.into_iter().map(Node::Text);
        root.set("required", Node::List(names.collect()));
    }
}

fn either(one: &Node, other: &Node) -> Node {
    let mut alternatives = Vec::new();
    for schema in [one, other] {
        let of = schema.as_object();
        match of.and_then(|members| members.get("anyOf")) {
            Some(Node::List(list)) if of.is_some_and(|members| members.len() == 1) => {
                alternatives.extend(list.iter().cloned());
            }
            _ => alternatives.push(schema.clone()),
        }
    }
    let members = [("anyOf".to_owned(), Node::List(alternatives))];
    Node::Object(members.into_iter().collect())
}
