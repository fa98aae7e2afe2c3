//! Two schemas that both hold, as one.

use super::read::strings;
use super::tree::{Members, Node};

/// Merges `part` into `schema`. Gives back what cannot be said in one schema.
///
/// What stands in `schema` already counts where only one can: a description beside a reference is
/// about this use of it.
pub(super) fn merge(schema: &mut Members, part: Node) -> Option<Node> {
    let Some(merged) = part.as_object().and_then(|part| both(schema, part)) else {
        return Some(part);
    };
    *schema = merged;
    None
}

fn both(schema: &Members, part: &Members) -> Option<Members> {
    let mut merged = schema.clone();
    for (keyword, value) in part.iter() {
        let Some(own) = merged.get(keyword).cloned() else {
            merged.set(keyword, value.clone());
            continue;
        };
        if own == *value {
            continue;
        }
        let both = match keyword {
            "title" | "description" | "default" | "examples" => own,
            "type" => kinds_of_both(&own, value)?,
            "properties" => properties_of_both(&own, value)?,
            "required" => {
                let mut names = strings(Some(&own));
                for name in strings(Some(value)) {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                Node::List(names.into_iter().map(Node::Text).collect())
            }
            "enum" => {
                let own = own.as_list().unwrap_or_default();
                let other = value.as_list().unwrap_or_default();
                let both = own.iter().filter(|value| other.contains(value));
                Node::List(both.cloned().collect())
            }
            "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => {
                outer(own, value, f64::gt)
            }
            "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => {
                outer(own, value, f64::lt)
            }
            "additionalProperties" if matches!(value, Node::Bool(true)) => own,
            "additionalProperties" if matches!(own, Node::Bool(true)) => value.clone(),
            "additionalProperties" if matches!(value, Node::Bool(false)) => value.clone(),
            "additionalProperties" if matches!(own, Node::Bool(false)) => own,
            _ => return None,
        };
        merged.set(keyword, both);
    }
    Some(merged)
}

fn properties_of_both(own: &Node, other: &Node) -> Option<Node> {
    let mut properties = own.as_object()?.clone();
    for (name, value) in other.as_object()?.iter() {
        let Some(Node::Object(own)) = properties.get(name) else {
            properties.set(name, value.clone());
            continue;
        };
        let mut both = own.clone();
        if merge(&mut both, value.clone()).is_some() {
            return None;
        }
        properties.set(name, Node::Object(both));
    }
    Some(Node::Object(properties))
}

fn kinds_of_both(own: &Node, other: &Node) -> Option<Node> {
    fn listed(kinds: &Node) -> &[Node] {
        kinds
            .as_list()
            .unwrap_or_else(|| std::slice::from_ref(kinds))
    }
    let takes = |kinds: &Node, kind: &Node| {
        let is_whole = kind.as_text() == Some("integer");
        listed(kinds)
            .iter()
            .any(|other| other == kind || is_whole && other.as_text() == Some("number"))
    };
    let mut both: Vec<Node> = Vec::new();
    for (kind, others) in listed(own)
        .iter()
        .map(|kind| (kind, other))
        .chain(listed(other).iter().map(|kind| (kind, own)))
    {
        if takes(others, kind) && !both.contains(kind) {
            both.push(kind.clone());
        }
    }
    match both.len() {
        0 => None,
        1 => both.pop(),
        _ => Some(Node::List(both)),
    }
}

/// The bound that counts.
fn outer(own: Node, other: &Node, is_it: fn(&f64, &f64) -> bool) -> Node {
    let value = |node: &Node| match node {
        Node::Number(number) => number.as_f64(),
        _ => None,
    };
    match (value(&own), value(other)) {
        (Some(a), Some(b)) if is_it(&b, &a) => other.clone(),
        _ => own,
    }
}
