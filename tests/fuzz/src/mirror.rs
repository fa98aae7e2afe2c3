//! Arguments in headers: an input schema on the first line, arguments on the second.

use serde_json::value::RawValue;
use workers_agents::protocol::mirror::Mirrors;

use crate::lines;

pub fn check(input: &[u8]) {
    let Some([schema, arguments]) = lines(input) else {
        return;
    };
    let raw = |text: &str| serde_json::from_str::<Box<RawValue>>(text).ok();
    let (Some(schema), Some(arguments)) = (raw(schema), raw(arguments)) else {
        return;
    };
    let Ok(mirrors) = Mirrors::read(&schema) else {
        return;
    };
    let Ok(headers) = mirrors.headers(Some(&arguments)) else {
        return;
    };
    assert!(!mirrors.is_empty() || headers.is_empty());
    let mut names: Vec<String> = headers.iter().map(|(name, _)| name.to_string()).collect();
    assert!(names.iter().all(|name| name.starts_with("mcp-param-")));
    names.sort();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all, "a header twice");
}
