//! What an object is started with, as routers of this system hand it over: JSON in a header.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Base64 of JSON, or JSON itself when it is an object or an array. `None` when it is neither.
pub(crate) fn decode(header: &str) -> Option<Value> {
    let text = header.trim();
    if text.starts_with(['{', '[']) {
        return serde_json::from_str(text).ok();
    }
    let bytes = STANDARD.decode(text).ok()?;
    serde_json::from_slice(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_forms_are_read() {
        assert_eq!(decode(r#" {"a":1} "#), Some(json!({"a": 1})));
        assert_eq!(decode("[1]"), Some(json!([1])));
        assert_eq!(decode("eyJhIjoiw6kifQ=="), Some(json!({"a": "é"})));
        assert_eq!(decode("Nw=="), Some(json!(7)));
        for neither in ["", "{", "7", "no base64", "/w=="] {
            assert_eq!(decode(neither), None, "{neither}");
        }
    }
}
