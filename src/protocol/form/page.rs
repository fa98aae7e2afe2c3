//! URL mode: the address of a page that a server wants a user to open.

use url::{Host, Url};

/// The address of a page that may be shown to a user, who decides whether to open it.
///
/// It is not a permission to request it: the page is for the user's browser, and neither the
/// object nor a model may see it.
#[derive(Clone, PartialEq, Eq)]
pub struct SafeUrl(Url);

/// Path and query may be secret.
impl std::fmt::Debug for SafeUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SafeUrl")
            .field("host", &self.host())
            .finish_non_exhaustive()
    }
}

/// Why an address is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlProblem {
    /// Not an absolute URL, or one with characters that no URL has.
    #[error("the address is not an absolute URL")]
    Malformed,
    /// Neither `https` nor `http`.
    #[error("the address is not that of a web page")]
    NotWeb,
    /// Too long to be shown as a whole.
    #[error("the address is too long")]
    TooLong,
}

/// Nobody reads longer ones.
const MAX_URL: usize = 8 * 1024;

/// Judges the text of an address of a page. Whether its host may be shown is not judged here: that is
/// for whoever knows which server asks.
pub fn check_url(text: &str) -> Result<SafeUrl, UrlProblem> {
    if text.len() > MAX_URL {
        return Err(UrlProblem::TooLong);
    }
    // Browsers drop line breaks and tabs within an address, which hides what it is.
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(UrlProblem::Malformed);
    }
    let url = Url::parse(text).map_err(|_| UrlProblem::Malformed)?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err(UrlProblem::NotWeb);
    }
    // `https:host` and `https:\host` mean a host to a browser, and a path to a reader.
    let rest = text.get(url.scheme().len()..).unwrap_or_default();
    if !rest.starts_with("://") || !url.has_host() {
        return Err(UrlProblem::Malformed);
    }
    Ok(SafeUrl(url))
}

impl SafeUrl {
    /// The whole address, which must be shown before it is opened.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The host to highlight. Letters beyond ASCII are shown as Punycode (`xn--…`).
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// Whether a part of the host is written in Punycode: it may look like another host.
    pub fn is_punycode(&self) -> bool {
        self.host()
            .split('.')
            .any(|label| label.starts_with("xn--"))
    }

    /// Whether a user name or a password stands before the host, where a reader may take it for
    /// the host.
    pub fn has_userinfo(&self) -> bool {
        !self.0.username().is_empty() || self.0.password().is_some()
    }

    /// Whether the page is `https`.
    pub fn is_secure(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Whether the page is on the user's own machine, where `http` is fine.
    pub fn is_loopback(&self) -> bool {
        match self.0.host() {
            Some(Host::Domain(name)) => {
                let name = name.trim_end_matches('.');
                name == "localhost" || name.ends_with(".localhost")
            }
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => {
                let mapped = address.to_ipv4_mapped();
                address.is_loopback() || mapped.is_some_and(|mapped| mapped.is_loopback())
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn el_07_only_web_pages_are_shown() {
        for (text, problem) in [
            ("javascript:alert(1)", UrlProblem::NotWeb),
            ("JavaScript://x.example/%0aalert(1)", UrlProblem::NotWeb),
            ("java\nscript:alert(1)", UrlProblem::Malformed),
            (" https://a.example/", UrlProblem::Malformed),
            ("file:///etc/passwd", UrlProblem::NotWeb),
            ("data:text/html,x", UrlProblem::NotWeb),
            ("blob:https://a.example/x", UrlProblem::NotWeb),
            ("mailto:a@b.example", UrlProblem::NotWeb),
            ("", UrlProblem::Malformed),
            ("/path", UrlProblem::Malformed),
            ("//a.example/", UrlProblem::Malformed),
            ("a.example", UrlProblem::Malformed),
            ("https:a.example", UrlProblem::Malformed),
            (r"https:\\a.example", UrlProblem::Malformed),
            ("https://", UrlProblem::Malformed),
            ("https://exämple.example/", UrlProblem::Malformed),
        ] {
            assert_eq!(check_url(text).err(), Some(problem), "{text:?}");
        }
        let long = format!("https://a.example/{}", "a".repeat(MAX_URL));
        assert_eq!(check_url(&long), Err(UrlProblem::TooLong));
    }

    #[test]
    fn el_07_the_real_host_and_what_is_odd_are_told() {
        let told = |text| {
            let url = check_url(text).unwrap();
            let flags = (
                url.is_punycode(),
                url.has_userinfo(),
                url.is_secure(),
                url.is_loopback(),
            );
            (url.host().to_owned(), flags)
        };
        for (text, host, flags) in [
            (
                "http://user:pw@bank.example.evil.example/",
                "bank.example.evil.example",
                (false, true, false, false),
            ),
            (
                "https://bank.example@evil.example",
                "evil.example",
                (false, true, true, false),
            ),
            (
                "https://XN--pypal-4ve.example/",
                "xn--pypal-4ve.example",
                (true, false, true, false),
            ),
            (
                "https://a.example/x?y#z",
                "a.example",
                (false, false, true, false),
            ),
            (
                "http://localhost:8787/",
                "localhost",
                (false, false, false, true),
            ),
            ("http://0x7f.1/", "127.0.0.1", (false, false, false, true)),
            ("http://[::1]/", "[::1]", (false, false, false, true)),
            (
                "http://localhost./",
                "localhost.",
                (false, false, false, true),
            ),
            (
                "http://[::ffff:127.0.0.1]/",
                "[::ffff:7f00:1]",
                (false, false, false, true),
            ),
            (
                "https://localhost.evil.example/",
                "localhost.evil.example",
                (false, false, true, false),
            ),
        ] {
            assert_eq!(told(text), (host.to_owned(), flags), "{text}");
        }
    }
}
