//! The names under which models know tools.

use std::collections::HashMap;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The longest name that every provider takes.
pub(crate) const MAX_NAME: usize = 64;
/// Digits of a suffix, and how many more each time that one does not tell names apart.
const DIGITS: usize = 8;
const MOST_DIGITS: usize = 48;

/// Why a tool has another name than `tool_<server>_<tool>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NameChange {
    /// Its name has characters that models cannot write.
    Characters,
    /// It would be longer than 64 characters.
    TooLong,
    /// Two tools would have the same name.
    Collision,
}

/// What a tool would be called, were it alone.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// As the TypeScript package calls it, with `_` for what no provider takes.
    base: String,
    change: Option<NameChange>,
    hash: String,
}

impl Wanted {
    /// `tool_`, the id without hyphens, `_`, the tool.
    pub(crate) fn of(server_id: &str, tool: &str) -> Self {
        let mut plain = String::from("tool_");
        plain.extend(server_id.chars().filter(|letter| *letter != '-'));
        plain.push('_');
        plain.push_str(tool);
        let is_legal =
            |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
        let base: String = plain
            .chars()
            .map(|letter| if is_legal(letter) { letter } else { '_' })
            .collect();
        let change = if base != plain {
            Some(NameChange::Characters)
        } else if base.len() > MAX_NAME {
            Some(NameChange::TooLong)
        } else {
            None
        };
        let mut hasher = Sha256::new();
        // The length tells where the id ends.
        hasher.update(server_id.len().to_be_bytes().as_slice());
        hasher.update(server_id.as_bytes());
        hasher.update(tool.as_bytes());
        Self {
            base,
            change,
            hash: hex(&hasher.finalize()),
        }
    }

    fn with_digits(&self, digits: usize) -> String {
        if digits == 0 {
            return self.base.clone();
        }
        let room = MAX_NAME - digits - 1;
        let base = self.base.get(..room).unwrap_or(&self.base);
        let hash = self.hash.get(..digits).unwrap_or(&self.hash);
        format!("{base}_{hash}")
    }
}

/// Gives every tool a name of its own. Which one depends on the others only where two would be
/// called the same, and never on their order.
pub(crate) fn assign(wanted: &[&Wanted]) -> Vec<(String, Option<NameChange>)> {
    let mut digits: Vec<usize> = wanted
        .iter()
        .map(|wanted| if wanted.change.is_some() { DIGITS } else { 0 })
        .collect();
    loop {
        let names: Vec<String> = wanted
            .iter()
            .zip(&digits)
            .map(|(wanted, digits)| wanted.with_digits(*digits))
            .collect();
        let mut uses: HashMap<&str, usize> = HashMap::with_capacity(names.len());
        for name in &names {
            *uses.entry(name).or_default() += 1;
        }
        let mut is_settled = true;
        for (name, digits) in names.iter().zip(&mut digits) {
            if uses.get(name.as_str()).is_some_and(|uses| *uses > 1) && *digits < MOST_DIGITS {
                *digits += DIGITS;
                is_settled = false;
            }
        }
        if is_settled {
            let change = |(wanted, digits): (&&Wanted, &usize)| {
                let collision = (*digits > 0).then_some(NameChange::Collision);
                wanted.change.or(collision)
            };
            let changes = wanted.iter().zip(&digits).map(change);
            return names.iter().cloned().zip(changes).collect();
        }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn names(tools: &[(&str, &str)]) -> Vec<(String, Option<NameChange>)> {
        let wanted: Vec<_> = tools
            .iter()
            .map(|(id, tool)| Wanted::of(id, tool))
            .collect();
        assign(&wanted.iter().collect::<Vec<_>>())
    }

    #[test]
    fn names_are_those_of_the_typescript_package_where_they_can_be() {
        let found = names(&[
            ("github", "create_pull_request"),
            ("github-mcp", "create-issue"),
        ]);
        assert_eq!(found[0], ("tool_github_create_pull_request".into(), None));
        assert_eq!(found[1], ("tool_githubmcp_create-issue".into(), None));
    }

    #[test]
    fn tools_that_would_share_a_name_are_told_apart_whatever_their_order() {
        let tools = [("a", "b_c"), ("a_b", "c"), ("a-_b", "c"), ("x", "y")];
        let found = names(&tools);
        let mut backwards = tools;
        backwards.reverse();
        let mut again = names(&backwards);
        again.reverse();
        assert_eq!(found, again);
        let distinct: HashSet<_> = found.iter().map(|(name, _)| name).collect();
        assert_eq!(distinct.len(), tools.len());
        assert!(
            found[..3]
                .iter()
                .all(|(_, change)| *change == Some(NameChange::Collision))
        );
        assert_eq!(found[3].1, None);
    }

    #[test]
    fn a_name_that_imitates_a_suffix_gains_nothing() {
        let odd = names(&[("s", "a.b")])[0].0.clone();
        let imitation = odd.strip_prefix("tool_s_").unwrap();
        let found = names(&[("s", "a.b"), ("s", imitation)]);
        assert_ne!(found[0].0, found[1].0);
        assert!(found.iter().all(|(name, _)| name.len() <= MAX_NAME));
    }

    #[test]
    fn tl_18_names_without_any_ascii_letter_are_distinct() {
        let long = "x".repeat(200);
        let found = names(&[
            ("数据库", "查询"),
            ("数据库", "查詢"),
            ("数据库", "🔍"),
            ("s", &long),
            ("s", &long[1..]),
        ]);
        let distinct: HashSet<_> = found.iter().map(|(name, _)| name).collect();
        assert_eq!(distinct.len(), 5);
        for (name, change) in &found {
            assert!(name.len() <= MAX_NAME, "{name}");
            assert!(
                name.bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            );
            assert!(change.is_some());
        }
        assert_eq!(found[3].1, Some(NameChange::TooLong));
    }
}
