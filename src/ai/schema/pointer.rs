//! Where a reference within a schema leads. Nothing is ever fetched.

use percent_encoding::percent_decode_str;

use super::tree::Node;

/// How many values are looked at to find an anchor.
const MAX_SEARCH: usize = 10_000;

/// What `$ref` names in this document: all of it, a pointer (RFC 6901), or an anchor.
pub(super) fn resolve<'a>(root: &'a Node, reference: &str) -> Option<&'a Node> {
    let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
    let own = root.get("$id").or_else(|| root.get("id"));
    let own = own.and_then(Node::as_text).unwrap_or_default();
    let own = own.split('#').next().unwrap_or_default();
    if !document.is_empty() && document != own {
        return None;
    }
    let fragment = percent_decode_str(fragment).decode_utf8().ok()?;
    if fragment.is_empty() {
        return Some(root);
    }
    let Some(path) = fragment.strip_prefix('/') else {
        return anchor(root, &fragment);
    };
    path.split('/').try_fold(root, |node, step| {
        let step = step.replace("~1", "/").replace("~0", "~");
        match node {
            Node::Object(members) => members.get(&step),
            Node::List(list) => list.get(step.parse::<usize>().ok()?),
            _ => None,
        }
    })
}

fn anchor<'a>(root: &'a Node, name: &str) -> Option<&'a Node> {
    let old_name = format!("#{name}");
    let is_it = |node: &Node| {
        let text = |keyword| node.get(keyword).and_then(Node::as_text);
        text("$anchor") == Some(name)
            || text("$dynamicAnchor") == Some(name)
            // Up to draft 7.
            || text("$id") == Some(&old_name)
            || text("id") == Some(&old_name)
    };
    let mut waiting = vec![root];
    let mut looked_at = 0;
    while let Some(node) = waiting.pop() {
        looked_at += 1;
        if looked_at > MAX_SEARCH {
            return None;
        }
        match node {
            Node::Object(members) => {
                if is_it(node) {
                    return Some(node);
                }
                waiting.extend(members.iter().map(|(_, value)| value));
            }
            Node::List(list) => waiting.extend(list),
            _ => {}
        }
    }
    None
}
