//! Elicitation forms and URLs: a form on the first line, content on the second, a URL on the third.

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use workers_agents::protocol::form::{Form, check_url};

use crate::lines;

pub fn check(input: &[u8]) {
    let Some([form, content, url]) = lines(input) else {
        return;
    };
    if let Ok(safe) = check_url(url) {
        assert!(safe.as_str().starts_with("http://") || safe.as_str().starts_with("https://"));
        assert!(!safe.host().is_empty() && safe.host().is_ascii());
    }
    let Ok(form) = serde_json::from_str::<Box<RawValue>>(form) else {
        return;
    };
    let Ok(form) = Form::read(&form) else {
        return;
    };
    let content: Map<String, Value> = serde_json::from_str(content).unwrap_or_default();
    let filled = form.with_defaults(content.clone());
    // Nothing that was said is lost, and filling in twice is filling in once.
    assert!(
        content
            .iter()
            .all(|(name, value)| filled.get(name) == Some(value))
    );
    assert_eq!(form.with_defaults(filled.clone()), filled);
    let _ = form.check(&filled);
}
