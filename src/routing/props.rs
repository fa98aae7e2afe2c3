//! What an object is started with, as routers of this system hand it over: JSON in a header.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;

use crate::{Error, Result};

/// The longest header that is written or read, in bytes.
const MAX_HEADER: usize = 64 * 1024;

/// Base64 of JSON in UTF-8, as the TypeScript package writes it.
pub(super) fn encode(props: &impl Serialize) -> Result<String> {
    let json = serde_json::to_vec(props)
        .map_err(|error| Error::InvalidOption(format!("the props: {error}")))?;
    let header = STANDARD.encode(json);
    if header.len() > MAX_HEADER {
        return Err(Error::InvalidOption(format!(
            "the props: {} bytes in base64, of which at most {MAX_HEADER} fit into a header",
            header.len()
        )));
    }
    Ok(header)
}

/// Base64 of JSON, or JSON itself when it is an object or an array. `None` when it is neither, or
/// too long.
pub(crate) fn decode(header: &str) -> Option<Value> {
    let text = header.trim();
    if text.len() > MAX_HEADER {
        return None;
    }
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

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(encode(&json!({"a": "é"})).unwrap(), "eyJhIjoiw6kifQ==");
        for props in [
            json!({"user": {"id": 7, "name": "名前\n\"x\""}}),
            json!(null),
            json!("text"),
            json!([1, 2.5, false]),
        ] {
            assert_eq!(decode(&encode(&props).unwrap()), Some(props));
        }
    }

    #[test]
    fn they_have_a_limit() {
        let fits = "x".repeat(MAX_HEADER / 4 * 3 - 2);
        let header = encode(&fits).unwrap();
        assert_eq!(header.len(), MAX_HEADER);
        assert_eq!(decode(&header), Some(json!(fits)));
        let error = encode(&format!("{fits}x")).unwrap_err();
        assert!(error.to_string().contains("65536"), "{error}");
        assert_eq!(decode(&format!("[\"{}\"]", "x".repeat(MAX_HEADER))), None);
    }

    #[test]
    fn what_is_no_json_is_refused() {
        struct Broken;
        impl Serialize for Broken {
            fn serialize<S: serde::Serializer>(
                &self,
                _: S,
            ) -> std::result::Result<S::Ok, S::Error> {
                Err(serde::ser::Error::custom("on purpose"))
            }
        }
        assert!(
            encode(&Broken)
                .unwrap_err()
                .to_string()
                .contains("on purpose")
        );
    }
}
