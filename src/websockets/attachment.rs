//! What a socket keeps for itself while its object sleeps. Pure.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most tags of a connection, its id included, and the longest one in characters: the
/// platform's limits.
const MAX_TAGS: usize = 10;
const MAX_TAG: usize = 256;
/// The longest URL that is kept, in bytes. The platform takes attachments of 16 KiB.
const MAX_URL: usize = 4 << 10;

/// The attachment of a socket that [`WebSockets`](super::WebSockets) has accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Attachment {
    #[serde(rename = "__pk")]
    pub(super) address: Address,
    /// The state of the connection, which is the host's.
    #[serde(rename = "__user", default)]
    pub(super) state: Value,
    #[serde(rename = "__agents", default)]
    pub(super) flags: Flags,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Address {
    pub(super) id: String,
    #[serde(default)]
    pub(super) tags: Vec<String>,
    /// The URL by which the socket was opened.
    #[serde(default)]
    pub(super) uri: Option<String>,
}

/// What a connection may do, and what it wants to hear.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Flags {
    /// Tells connections apart that were given the same id.
    pub(super) key: String,
    /// May not change the state.
    pub(crate) is_readonly: bool,
    /// Is sent no frames but answers.
    pub(crate) is_plain: bool,
    /// Fetches lists itself: frames about servers do not hold them.
    pub(crate) is_compact: bool,
}

/// Why a connection is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusedConnection {
    /// More tags than the platform takes.
    #[error("A connection can only have 10 tags, including the default id tag.")]
    TooManyTags,
    /// A tag without a letter.
    #[error("A connection tag must not be an empty string.")]
    EmptyTag,
    /// A tag, or an id, that is too long.
    #[error("A connection tag must not exceed 256 characters")]
    LongTag,
    /// The object has as many connections as it may.
    #[error("the object has too many connections")]
    TooMany,
}

impl Attachment {
    /// A new connection. The id comes first among its tags.
    pub(super) fn new(
        id: String,
        tags: Vec<String>,
        url: &str,
        flags: Flags,
    ) -> Result<Self, RefusedConnection> {
        let mut all = vec![id.clone()];
        for tag in tags {
            if !all.contains(&tag) {
                all.push(tag);
            }
        }
        if all.len() > MAX_TAGS {
            return Err(RefusedConnection::TooManyTags);
        }
        if all.iter().any(String::is_empty) {
            return Err(RefusedConnection::EmptyTag);
        }
        // As the platform counts: in UTF-16.
        if all.iter().any(|tag| tag.encode_utf16().count() > MAX_TAG) {
            return Err(RefusedConnection::LongTag);
        }
        Ok(Self {
            address: Address {
                id,
                tags: all,
                uri: Some(kept(url).to_owned()),
            },
            state: Value::Null,
            flags,
        })
    }
}

/// The URL, or without its query if it is too long, or nothing.
fn kept(url: &str) -> &str {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    [url, path]
        .into_iter()
        .find(|url| url.len() <= MAX_URL)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn attachment(id: &str, tags: &[&str]) -> Result<Attachment, RefusedConnection> {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        Attachment::new(id.to_owned(), tags, "wss://a.example/x", Flags::default())
    }

    #[test]
    fn tags_keep_to_the_limits_of_the_platform() {
        let nine = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        assert_eq!(attachment("id", &nine).unwrap().address.tags.len(), 10);
        let ten = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        assert_eq!(attachment("id", &ten), Err(RefusedConnection::TooManyTags));
        assert_eq!(
            attachment("id", &["a", "a", "id"]).unwrap().address.tags,
            ["id", "a"]
        );
        assert_eq!(attachment("id", &[""]), Err(RefusedConnection::EmptyTag));
        let long = "é".repeat(257);
        assert_eq!(attachment("id", &[&long]), Err(RefusedConnection::LongTag));
        assert_eq!(attachment(&long, &[]), Err(RefusedConnection::LongTag));
        assert!(attachment(&"é".repeat(256), &[]).is_ok());
    }

    #[test]
    fn a_long_url_loses_its_query() {
        let url = |length| format!("wss://a.example/x?{}", "y".repeat(length));
        let uri = |url: &str| {
            let made = Attachment::new("a".into(), Vec::new(), url, Flags::default());
            made.unwrap().address.uri.unwrap()
        };
        assert_eq!(uri(&url(10)), url(10));
        assert_eq!(uri(&url(MAX_URL)), "wss://a.example/x");
        assert_eq!(uri(&format!("wss://a.example/{}", "y".repeat(MAX_URL))), "");
    }

    #[test]
    fn it_is_stored_under_the_names_of_the_typescript_package() {
        let mut made = attachment("id", &["a"]).unwrap();
        made.state = json!({"n": 1});
        made.flags.is_readonly = true;
        let text = serde_json::to_value(&made).unwrap();
        assert_eq!(text["__pk"]["id"], "id");
        assert_eq!(text["__pk"]["uri"], "wss://a.example/x");
        assert_eq!(text["__user"], json!({"n": 1}));
        assert_eq!(serde_json::from_value::<Attachment>(text).unwrap(), made);
        // Others' attachments are not ours.
        for other in [json!(null), json!(1), json!({"x": 1}), json!({"__pk": 1})] {
            assert!(serde_json::from_value::<Attachment>(other).is_err());
        }
    }
}
