//! From paths to names: `/agents/<class>/<name>` and the kebab case of class names.
//!
//! Only text is decided here; whether the class exists is the router's question.

use super::name::{NameError, encode_segment};

/// The form of a Durable Object binding name in a URL: `MyAgent` and `MY_AGENT` are `my-agent`.
///
/// The browser clients of the `agents` npm package compute the same form, so its corners are kept:
/// every capital starts a word (`AIAssistant` is `a-i-assistant`), only all-capital names are read
/// as words joined by underscores, and `_Foo` is `--foo`.
pub fn kebab_case(name: &str) -> String {
    let lower = name.to_lowercase();
    // A name without letters equals its upper case too, but is no constant-style name.
    if name == name.to_uppercase() && name != lower {
        return lower.replace('_', "-");
    }
    let mut kebab = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            kebab.push('-');
        }
        kebab.push(letter.to_ascii_lowercase());
    }
    // The order matters: a leading underscore is not dropped, a trailing one is.
    let kebab = kebab.strip_prefix('-').unwrap_or(&kebab).replace('_', "-");
    kebab.strip_suffix('-').unwrap_or(&kebab).to_owned()
}

/// The two segments of a request path that name an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentPath<'a> {
    /// The kebab case of the binding name.
    pub class: &'a str,
    /// The instance name, as it stands in the path. [`decode_segment`](super::decode_segment) reads it.
    pub name: &'a str,
}

impl<'a> AgentPath<'a> {
    /// Reads the class and the name that follow `prefix` in the path of a URL.
    ///
    /// The prefix may have several segments (`api/agents`). Empty segments count in neither, so
    /// `//agents/chat/` misses a name. What follows the name is the object's business. `None` means
    /// that the path is not for an agent.
    pub fn parse(path: &'a str, prefix: &str) -> Option<Self> {
        let mut segments = segments(path);
        for expected in self::segments(prefix) {
            if segments.next()? != expected {
                return None;
            }
        }
        Some(Self {
            class: segments.next()?,
            name: segments.next()?,
        })
    }
}

/// The path of an instance, as a router with this prefix reads it: `/agents/my-agent/a%20b`.
///
/// `class` is the name of the binding, or its kebab case.
///
/// # Errors
/// [`NameError`] for a name that no URL can hold.
pub fn agent_path(prefix: &str, class: &str, name: &str) -> Result<String, NameError> {
    let mut path: String = segments(prefix)
        .flat_map(|segment| ["/", segment])
        .collect();
    for segment in [&kebab_case(class), &encode_segment(name)?] {
        path.push('/');
        path.push_str(segment);
    }
    Ok(path)
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_names_in_kebab_case() {
        for (name, kebab) in [
            ("MyAgent", "my-agent"),
            ("MY_AGENT", "my-agent"),
            ("TestOAuthAgent", "test-o-auth-agent"),
            ("AIAssistant", "a-i-assistant"),
            ("fooBAR", "foo-b-a-r"),
            ("chat", "chat"),
            ("MyAgent_", "my-agent"),
            ("My_Agent", "my--agent"),
            ("CHAT2", "chat2"),
            ("_Foo", "--foo"),
            ("MY_AGENT_", "my-agent-"),
            ("_MY", "-my"),
            ("A", "a"),
            ("aB", "a-b"),
            ("my_agent", "my-agent"),
            ("_foo", "-foo"),
            ("-foo", "foo"),
            ("foo__", "foo-"),
            ("42", "42"),
            ("_", ""),
            ("", ""),
            ("ÉCOLE", "école"),
            ("Élan", "Élan"),
        ] {
            assert_eq!(kebab_case(name), kebab, "{name}");
        }
    }

    #[test]
    fn kebab_case_is_stable_for_ordinary_names() {
        for name in ["MyAgent", "MY_AGENT", "AIAssistant", "chat", "CHAT2"] {
            let kebab = kebab_case(name);
            assert_eq!(kebab_case(&kebab), kebab);
        }
    }

    #[test]
    fn a_path_names_a_class_and_an_instance() {
        for (path, prefix, class, name) in [
            ("/agents/chat/room-1", "agents", "chat", "room-1"),
            ("/agents/chat/room-1/", "agents", "chat", "room-1"),
            ("/agents/chat/room-1/a/b", "agents", "chat", "room-1"),
            ("//agents//chat///room-1", "agents", "chat", "room-1"),
            ("agents/chat/room-1", "agents", "chat", "room-1"),
            ("/agents/chat/a%20b", "agents", "chat", "a%20b"),
            ("/agents/chat/a%2Fb", "agents", "chat", "a%2Fb"),
            ("/agents/agents/agents", "agents", "agents", "agents"),
            ("/api/v1/agents/chat/x", "api/v1/agents", "chat", "x"),
            ("/api/v1/chat/x", "/api//v1/", "chat", "x"),
            ("/chat/x", "", "chat", "x"),
            ("/agents/Chat/X", "agents", "Chat", "X"),
        ] {
            assert_eq!(
                AgentPath::parse(path, prefix),
                Some(AgentPath { class, name }),
                "{path} under {prefix}"
            );
        }
    }

    #[test]
    fn a_path_is_built_as_it_is_read() {
        for (prefix, class, name, path) in [
            ("agents", "MyAgent", "a b", "/agents/my-agent/a%20b"),
            ("/api//agents/", "chat", "u1/s1", "/api/agents/chat/u1%2Fs1"),
            ("", "CHAT_ROOM", "x", "/chat-room/x"),
        ] {
            assert_eq!(agent_path(prefix, class, name).as_deref(), Ok(path));
            let read = AgentPath::parse(path, prefix).unwrap();
            assert_eq!(read.class, kebab_case(class));
            assert_eq!(super::super::decode_segment(read.name).unwrap(), name);
        }
        assert_eq!(agent_path("agents", "chat", ".."), Err(NameError::Dots));
    }

    #[test]
    fn other_paths_are_not_for_agents() {
        for (path, prefix) in [
            ("", "agents"),
            ("/", "agents"),
            ("/agents", "agents"),
            ("/agents/chat", "agents"),
            ("/agents/chat/", "agents"),
            ("/agents//x", "agents"),
            ("/Agents/chat/x", "agents"),
            ("/agentsx/chat/x", "agents"),
            ("/x/agents/chat/y", "agents"),
            ("/agent%73/chat/x", "agents"),
            ("/api/agents/chat/x", "api/v1"),
            ("/api/v1/chat", "api/v1"),
            ("/chat", ""),
        ] {
            assert_eq!(
                AgentPath::parse(path, prefix),
                None,
                "{path} under {prefix}"
            );
        }
    }
}
