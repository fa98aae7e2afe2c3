//! Sets of scopes (RFC 6749 §3.3): words separated by blanks, in the order they came.

/// The scopes that a sign-in may ask for at most, in bytes.
const MAX_SCOPE: usize = 4 << 10;

/// Asks for tokens that outlive the user's visit (`OpenID` Connect Core §11).
pub(super) const OFFLINE: &str = "offline_access";

/// All words of all sets, each once. `None` when there is none.
pub(super) fn union<'a>(sets: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut words: Vec<&str> = Vec::new();
    let mut length = 0;
    for word in sets.into_iter().flat_map(str::split_ascii_whitespace) {
        if !words.contains(&word) && length + word.len() < MAX_SCOPE {
            length += word.len() + 1;
            words.push(word);
        }
    }
    (!words.is_empty()).then(|| words.join(" "))
}

pub(super) fn contains(set: &str, word: &str) -> bool {
    set.split_ascii_whitespace().any(|other| other == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_union_keeps_order_and_repeats_nothing() {
        assert_eq!(union(["a b", "b  c", ""]), Some("a b c".into()));
        assert_eq!(union(["", "  "]), None);
        assert_eq!(union([]), None);
        assert!(contains("a bc", "bc") && !contains("a bc", "b"));
    }
}
