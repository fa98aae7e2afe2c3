//! Which Durable Object binding a class in a URL means. Pure.

use super::kebab_case;

/// The binding that reads `class` in kebab case.
///
/// Of several the one that is written just like that wins, and else the first in the order of their
/// letters (`CHAT` before `Chat`), in whatever order they are configured.
pub(super) fn choose(bindings: impl Iterator<Item = String>, class: &str) -> Option<String> {
    bindings
        .filter(|binding| kebab_case(binding) == class)
        .min_by(|one, other| (one != class, one).cmp(&(other != class, other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(bindings: &[&str], class: &str) -> Option<String> {
        choose(bindings.iter().map(|binding| (*binding).to_owned()), class)
    }

    #[test]
    fn a_class_is_a_binding_in_kebab_case() {
        let bindings = ["MyAgent", "CHAT_ROOM", "counter"];
        assert_eq!(choice(&bindings, "my-agent").as_deref(), Some("MyAgent"));
        assert_eq!(choice(&bindings, "chat-room").as_deref(), Some("CHAT_ROOM"));
        assert_eq!(choice(&bindings, "counter").as_deref(), Some("counter"));
        for unknown in ["MyAgent", "my_agent", "", "my-agent-", "CHAT_ROOM"] {
            assert_eq!(choice(&bindings, unknown), None, "{unknown}");
        }
    }

    #[test]
    fn of_several_the_exact_one_wins_and_else_the_first_by_letter() {
        for bindings in [["Chat", "chat", "CHAT"], ["CHAT", "Chat", "chat"]] {
            assert_eq!(choice(&bindings, "chat").as_deref(), Some("chat"));
        }
        for bindings in [["MyAgent", "MY_AGENT"], ["MY_AGENT", "MyAgent"]] {
            assert_eq!(choice(&bindings, "my-agent").as_deref(), Some("MY_AGENT"));
        }
    }
}
