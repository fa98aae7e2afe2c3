//! [`ServerId`]: what a registered MCP server is called in storage, in addresses and in tool names.

use std::borrow::Borrow;
use std::fmt;
use std::rc::Rc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest id that [`ServerId::normalize`] makes.
const MAX_LEN: usize = 64;

/// The id of a registered server, unique in its agent. Cloning is cheap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(Rc<str>);

impl ServerId {
    /// Makes an id out of any text that a user chose: at most 64 characters of `a-z`, `0-9`, `_`
    /// and `-`, starting with a letter. Without its hyphens it can stand in a tool name.
    ///
    /// Different texts may become the same id (`GitHub MCP!` and `github-mcp`), and text without a
    /// usable character becomes `id`.
    pub fn normalize(text: &str) -> Self {
        let mut id = String::with_capacity(text.len());
        for letter in text.to_lowercase().chars() {
            match letter {
                'a'..='z' | '0'..='9' | '_' => id.push(letter),
                _ if id.ends_with('-') => {}
                _ => id.push('-'),
            }
        }
        let mut id = id.trim_matches(['-', '_']).to_owned();
        if !id.starts_with(|first: char| first.is_ascii_lowercase()) {
            id.insert_str(0, "id-");
        }
        // Only ASCII is left, so every length is a character boundary.
        id.truncate(MAX_LEN);
        Self::verbatim(id.trim_end_matches('-'))
    }

    /// Takes an id exactly as it is: from storage, from a request that names a server, or from a
    /// caller who registers under an id of their own form.
    pub fn verbatim(id: impl Into<Rc<str>>) -> Self {
        Self(id.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for ServerId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Lets maps with ids as keys be asked with a `&str`.
impl Borrow<str> for ServerId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Serialize for ServerId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ServerId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::verbatim)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;

    fn normalized(text: &str) -> String {
        ServerId::normalize(text).to_string()
    }

    #[test]
    fn any_text_becomes_an_id() {
        for (text, id) in [
            ("my-supplied-id", "my-supplied-id"),
            ("GitHub MCP!", "github-mcp"),
            ("42-things", "id-42-things"),
            ("slack_v2", "slack_v2"),
            ("_underscore_first", "underscore_first"),
            ("É", "id"),
            ("", "id"),
            ("!!!", "id"),
            ("   ", "id"),
            ("---", "id"),
            ("_-_", "id"),
            ("foo/bar.baz", "foo-bar-baz"),
            ("a   b", "a-b"),
            ("a - b", "a-b"),
            ("a.-.b", "a-b"),
            ("a-_-b", "a-_-b"),
            ("---github---", "github"),
            ("__slack__", "slack"),
            ("-_foo_-", "foo"),
            ("a__b", "a__b"),
            ("7", "id-7"),
            ("Ünï", "n"),
            ("ÄA", "a"),
            // KELVIN SIGN is a `k` in lower case.
            ("\u{212A}ey", "key"),
            // So is this an `i`, followed by a combining dot.
            ("\u{130}d", "i-d"),
        ] {
            assert_eq!(normalized(text), id, "{text:?}");
        }
    }

    #[test]
    fn long_text_is_cut() {
        let a = |count| "a".repeat(count);
        assert_eq!(normalized(&a(64)), a(64));
        assert_eq!(normalized(&a(114)), a(64));
        assert_eq!(normalized(&(a(63) + "-b")), a(63));
        assert_eq!(normalized(&(a(63) + "_b")), a(63) + "_");
        assert_eq!(normalized(&(a(62) + "_-b")), a(62) + "_");
        assert_eq!(
            normalized(&"7".repeat(64)),
            format!("id-{}", "7".repeat(61))
        );
    }

    #[test]
    fn normalizing_twice_changes_nothing() {
        let cut = "a".repeat(62) + "_-b";
        for text in [
            "",
            "GitHub MCP!",
            "42-things",
            "a__b",
            "-_foo_-",
            cut.as_str(),
        ] {
            let once = normalized(text);
            // A cut may leave an underscore at the end, which a second run strips.
            let expected = once.trim_end_matches('_');
            assert_eq!(normalized(&once), expected, "{text:?}");
        }
    }

    #[test]
    fn an_id_is_taken_verbatim_from_storage_and_json() {
        let id = ServerId::verbatim("My.Id ");
        assert_eq!(id.as_str(), "My.Id ");
        assert_eq!(serde_json::to_string(&id).unwrap(), r#""My.Id ""#);
        assert_eq!(
            serde_json::from_str::<ServerId>(r#""My.\u0049d ""#).unwrap(),
            id
        );
    }

    #[test]
    fn a_map_is_asked_with_plain_text() {
        let id = ServerId::normalize("docs");
        assert_eq!(HashMap::from([(id.clone(), 1)]).get("docs"), Some(&1));
        assert_eq!(BTreeMap::from([(id, 1)]).get("docs"), Some(&1));
    }
}
