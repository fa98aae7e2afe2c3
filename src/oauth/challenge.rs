//! `WWW-Authenticate` (RFC 9110 §11.6.1): what a server asks for.

use super::metadata::{is_plain_http_url, scope_tokens};

/// The longest header that is read, in bytes. What follows is not looked at.
const MAX_HEADER: usize = 16 << 10;
/// The longest URL, in bytes.
const MAX_URL: usize = 2 << 10;
/// The longest list of scopes, in bytes.
const MAX_SCOPE: usize = 2 << 10;
/// The longest scheme and error code, in bytes.
const MAX_CODE: usize = 64;

/// The challenge that says most about how to get permission. Texts are the server's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Challenge {
    /// The scheme, in lower case.
    pub scheme: String,
    /// Where the resource metadata is (RFC 9728 §5.1), as it was given.
    pub resource_metadata: Option<String>,
    /// The scopes that the request needs, separated by blanks.
    pub scope: Option<String>,
    /// The error code (RFC 6750 §3.1).
    pub error: Option<String>,
}

impl Challenge {
    /// The challenge to go by: one with `resource_metadata` or of the scheme `Bearer` or `DPoP`.
    /// Takes all values of the header, joined by commas.
    ///
    /// Among several of these schemes the first counts that names an error, else scopes, else the
    /// metadata; what it lacks is taken from the others. Text that is no challenge is passed over.
    pub fn parse(values: &str) -> Option<Self> {
        let values = values
            .get(..values.floor_char_boundary(MAX_HEADER))
            .unwrap_or_default();
        let found = Parser::new(values).challenges();
        let ours = || found.iter().filter(|challenge| challenge.is_token_scheme());
        let chosen = ours()
            .find(|challenge| challenge.error.is_some())
            .or_else(|| ours().find(|challenge| challenge.scope.is_some()))
            .or_else(|| ours().find(|challenge| challenge.resource_metadata.is_some()))
            .or_else(|| ours().next())
            .or_else(|| {
                let mut all = found.iter();
                all.find(|challenge| challenge.resource_metadata.is_some())
            })?;
        let mut chosen = chosen.clone();
        if chosen.scope.is_none() {
            chosen.scope = ours().find_map(|challenge| challenge.scope.clone());
        }
        if chosen.resource_metadata.is_none() {
            let mut all = ours().chain(&found);
            chosen.resource_metadata = all.find_map(|other| other.resource_metadata.clone());
        }
        Some(chosen)
    }

    /// One that only says where the resource metadata is.
    pub(super) fn naming(resource_metadata: String) -> Self {
        Self {
            scheme: "bearer".into(),
            resource_metadata: Some(resource_metadata),
            ..Self::default()
        }
    }

    /// Whether the token lacks scopes (RFC 6750 §3.1).
    pub fn is_insufficient_scope(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    /// Whether the request is to be repeated with the nonce that came along (RFC 9449 §9).
    pub fn is_use_dpop_nonce(&self) -> bool {
        self.wants_dpop() && self.error.as_deref() == Some("use_dpop_nonce")
    }

    /// Whether tokens must be bound to a key (RFC 9449).
    pub fn wants_dpop(&self) -> bool {
        self.scheme == "dpop"
    }

    fn is_token_scheme(&self) -> bool {
        matches!(self.scheme.as_str(), "bearer" | "dpop")
    }

    /// Takes a parameter over if it has a meaning here. The first of a name counts.
    fn set(&mut self, name: &str, value: &str) {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        let (member, value) = if is("resource_metadata") {
            let is_url = value.len() <= MAX_URL && is_plain_http_url(value);
            (
                &mut self.resource_metadata,
                is_url.then(|| value.to_owned()),
            )
        } else if is("scope") {
            (&mut self.scope, scope(value))
        } else if is("error") {
            // RFC 6750 §3: what may stand in a scope may stand here.
            let is_code = value.len() <= MAX_CODE && scope_tokens(value).eq([value]);
            (&mut self.error, is_code.then(|| value.to_owned()))
        } else {
            return;
        };
        if member.is_none() {
            *member = value;
        }
    }
}

/// The legal scopes of a list (RFC 6749 §3.3), as many as fit.
fn scope(list: &str) -> Option<String> {
    let mut scope = String::new();
    for token in scope_tokens(list) {
        if scope.len() + token.len() >= MAX_SCOPE {
            break;
        }
        if !scope.is_empty() {
            scope.push(' ');
        }
        scope.push_str(token);
    }
    (!scope.is_empty()).then_some(scope)
}

/// Reads a list of challenges from left to right. No byte is looked at more than twice.
struct Parser<'a> {
    rest: &'a str,
    found: Vec<Challenge>,
    /// Whether a new challenge may begin here: at the start and behind a comma.
    is_fresh: bool,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            rest: text,
            found: Vec::new(),
            is_fresh: true,
        }
    }

    /// Every challenge, in order.
    fn challenges(mut self) -> Vec<Challenge> {
        while let Some(first) = self.rest.chars().next() {
            match first {
                ',' => {
                    self.is_fresh = true;
                    self.skip(1);
                }
                '"' => {
                    self.quoted();
                }
                _ if is_token(first) => self.item(),
                // A blank, or what has no business here.
                _ => self.skip(first.len_utf8()),
            }
        }
        self.found
    }

    /// A scheme or a parameter.
    fn item(&mut self) {
        let name = self.take_while(is_token);
        let behind_name = self.rest;
        self.take_while(is_blank);
        if self.rest.starts_with('=') {
            self.skip(1);
            self.take_while(is_blank);
            self.value(name);
            self.is_fresh = false;
            return;
        }
        let is_whole = behind_name.is_empty() || behind_name.starts_with([' ', '\t', ',']);
        if !(self.is_fresh && is_whole) {
            // A stray word: a quote that was not escaped tears its text to pieces.
            self.is_fresh = false;
            return;
        }
        let scheme = name.get(..MAX_CODE).unwrap_or(name).to_ascii_lowercase();
        self.found.push(Challenge {
            scheme,
            ..Challenge::default()
        });
        // A comma directly behind the scheme is seen by the caller.
        self.is_fresh = false;
        self.token68();
    }

    /// Passes over credentials in place of parameters, if that is what stands here.
    fn token68(&mut self) {
        let is_token68 = |c: char| c.is_ascii_alphanumeric() || "-._~+/".contains(c);
        let behind = self.rest.trim_start_matches(is_token68);
        let behind = behind.trim_start_matches('=').trim_start_matches(is_blank);
        if behind.is_empty() || behind.starts_with(',') {
            self.rest = behind;
        }
    }

    /// The value of a parameter.
    fn value(&mut self, name: &str) {
        let quoted;
        let value = if self.rest.starts_with('"') {
            // One that does not end was cut off, so it says something else than was meant.
            let Some(text) = self.quoted() else {
                return;
            };
            quoted = text;
            quoted.as_str()
        } else {
            // URLs are no tokens, and are sent without quotes all the same.
            self.take_while(|c| !is_blank(c) && c != ',')
        };
        if let Some(challenge) = self.found.last_mut() {
            challenge.set(name, value);
        }
    }

    /// A quoted string without its quotes and escapes. `None` if it does not end.
    fn quoted(&mut self) -> Option<String> {
        let mut text = String::new();
        let mut letters = self.rest.char_indices().skip(1);
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.rest = self.rest.get(at + 1..).unwrap_or_default();
                    return Some(text);
                }
                '\\' => text.extend(letters.next().map(|(_, escaped)| escaped)),
                _ => text.push(letter),
            }
        }
        self.rest = "";
        None
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }
}

/// RFC 9110 §5.6.2.
fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRM: &str = "https://pier.example/.well-known/oauth-protected-resource/mcp";

    fn parse(values: &str) -> Challenge {
        Challenge::parse(values).unwrap_or_else(|| panic!("{values}"))
    }

    fn challenge(scheme: &str, members: [&str; 3]) -> Challenge {
        let member = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let [resource_metadata, scope, error] = members;
        Challenge {
            scheme: scheme.into(),
            resource_metadata: member(resource_metadata),
            scope: member(scope),
            error: member(error),
        }
    }

    #[test]
    fn one_challenge_is_read_however_it_is_written() {
        let expected = challenge("bearer", [PRM, "a b", "invalid_token"]);
        for text in [
            format!(r#"Bearer resource_metadata="{PRM}", scope="a b", error="invalid_token""#),
            format!(r#"bEARER Resource_Metadata="{PRM}",SCOPE="a b",Error=invalid_token"#),
            format!(
                r#"Bearer error = "invalid_token" , scope	=	"  a  b ", resource_metadata={PRM}"#
            ),
            format!(r#"Bearer error=invalid_token scope="a b" resource_metadata="{PRM}""#),
            format!(
                r#", ,Bearer ,, error="invalid_token",, scope="a b",resource_metadata="{PRM}",,"#
            ),
            format!(
                r#"Bearer realm="a \"b\", Basic x=\\", scope="\a b", error="invalid_token", resource_metadata="{PRM}""#
            ),
            format!(
                r#"Bearer scope="a b", scope="c", error="invalid_token", error="x", resource_metadata="{PRM}", foo"#
            ),
            format!(
                r#"  @;Bearer scope="a b é", error="invalid_token", é, resource_metadata="{PRM}""#
            ),
        ] {
            assert_eq!(parse(&text), expected, "{text}");
        }
    }

    #[test]
    fn several_challenges_are_told_apart() {
        for (text, expected) in [
            ("Bearer", challenge("bearer", ["", "", ""])),
            ("Negotiate, Bearer", challenge("bearer", ["", "", ""])),
            (
                "Negotiate dG9rZW4=, Bearer scope=x",
                challenge("bearer", ["", "x", ""]),
            ),
            (
                "Bearer dG9rZW4==,DPoP scope=x",
                challenge("dpop", ["", "x", ""]),
            ),
            (
                r#"Basic realm="old", scope="no", Bearer scope="yes""#,
                challenge("bearer", ["", "yes", ""]),
            ),
            (
                r#"Basic realm="Bearer scope=\"no\"", DPoP algs="ES256 RS256""#,
                challenge("dpop", ["", "", ""]),
            ),
            (
                r#"Bearer scope="a", DPoP error="use_dpop_nonce""#,
                challenge("dpop", ["", "a", "use_dpop_nonce"]),
            ),
            (
                r#"Bearer, Bearer error="insufficient_scope", scope="w""#,
                challenge("bearer", ["", "w", "insufficient_scope"]),
            ),
            (
                r#"Custom resource_metadata="https://a.example/x", Basic realm="y""#,
                challenge("custom", ["https://a.example/x", "", ""]),
            ),
            (
                r#"Bearer error="invalid_token", Custom resource_metadata="https://a.example/x""#,
                challenge("bearer", ["https://a.example/x", "", "invalid_token"]),
            ),
            (
                r#"Custom resource_metadata="https://a.example/x", DPoP resource_metadata="https://b.example/y""#,
                challenge("dpop", ["https://b.example/y", "", ""]),
            ),
            // Quotes that were not escaped.
            (
                r#"Bearer error_description="The "access token" expired", scope="a""#,
                challenge("bearer", ["", "a", ""]),
            ),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_challenge_is_none() {
        for text in [
            "",
            " ",
            ",,,",
            "Basic realm=\"x\"",
            "Negotiate",
            "scope=x",
            "=",
            "\"",
            "\"Bearer\"",
            "Bearer\u{7f}",
        ] {
            assert_eq!(Challenge::parse(text), None, "{text}");
        }
    }

    #[test]
    fn values_that_cannot_be_meant_are_dropped() {
        for url in [
            "/.well-known/oauth-protected-resource",
            "//pier.example/x",
            "pier.example/x",
            "https:pier.example/x",
            "https:///pier.example/x",
            "ftp://pier.example/x",
            "javascript:alert(1)",
            "https://",
            "https://pier.example/a b",
            "",
        ] {
            let found = parse(&format!(r#"Bearer resource_metadata="{url}""#));
            assert_eq!(found, challenge("bearer", ["", "", ""]), "{url}");
        }
        let cut = format!(r#"Bearer scope=a, resource_metadata="{PRM}"#);
        assert_eq!(parse(&cut), challenge("bearer", ["", "a", ""]));
        let found = parse("Bearer scope=\"a\\\\b ok \u{e9} c\\\"d\", error=\"two words\"");
        assert_eq!(found, challenge("bearer", ["", "ok", ""]));
        let found = parse("Bearer error=\"\", scope=\"  \"");
        assert_eq!(found, challenge("bearer", ["", "", ""]));
    }

    #[test]
    fn kinds_are_named() {
        assert!(parse("Bearer error=insufficient_scope").is_insufficient_scope());
        let nonce = parse("DPoP error=\"use_dpop_nonce\"");
        assert!(nonce.is_use_dpop_nonce() && nonce.wants_dpop());
        assert!(!parse("Bearer error=\"use_dpop_nonce\"").is_use_dpop_nonce());
        assert!(!parse("DPoP").is_use_dpop_nonce());
    }

    #[test]
    fn sizes_are_bounded() {
        let many = "scope ".repeat(10_000);
        let found = parse(&format!("Bearer error=x, scope=\"{}\"", &many[..12_000]));
        assert!(found.scope.unwrap().len() <= MAX_SCOPE);
        let long = "x".repeat(3_000);
        let found = parse(&format!(
            "Bearer resource_metadata=\"https://a.example/{long}\", error={long}"
        ));
        assert_eq!(found, challenge("bearer", ["", "", ""]));
        let far = format!("{}Bearer scope=a", "é,".repeat(MAX_HEADER));
        assert_eq!(Challenge::parse(&far), None);
    }

    /// Whatever is cut off or put in: no panic, and half a URL never passes for one.
    #[test]
    fn damaged_headers_do_no_harm() {
        let whole = format!(
            r#"Basic cmVhbG0=, , Bearer realm="a\"é, Bearer x=\\y", scope="a b", error="e", resource_metadata="{PRM}", DPoP algs="ES256" "#
        );
        for at in 0..=whole.len() {
            let (Some(head), Some(tail)) = (whole.get(..at), whole.get(at..)) else {
                continue;
            };
            for text in [head.to_owned(), tail.to_owned()].into_iter().chain(
                ["\"", "\\", ",", "=", " ", "é", "\0", "\u{ffff}"]
                    .map(|mark| format!("{head}{mark}{tail}")),
            ) {
                Challenge::parse(&text);
            }
            if let Some(found) = Challenge::parse(head) {
                let url = found.resource_metadata.as_deref();
                assert!(url.is_none_or(|url| url == PRM), "{head}");
            }
        }
    }

    #[test]
    fn long_headers_are_read_to_their_end() {
        for piece in [
            "\"", "\\", ",", "a ", "a=", "a=\"", "Bearer a", "=", "a,", "\"\\",
        ] {
            let text = piece.repeat(MAX_HEADER / piece.len());
            Challenge::parse(&text);
        }
    }
}
