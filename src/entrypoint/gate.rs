//! Who may use the ready-made Worker. Closed unless somebody opened it. Pure.

use subtle::ConstantTimeEq as _;
use url::{Host, Url};

/// How the Worker is configured.
pub(super) struct Access {
    /// The secret `AGENT_TOKEN`.
    pub(super) token: Option<String>,
    /// The variable `ALLOW_INSECURE_LOCAL`.
    pub(super) allow_insecure_local: bool,
}

/// Why a request is turned away.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nobody has set a token.
    NotConfigured,
    /// No token, or another one.
    Unauthorized,
    /// Open for this machine only, and the request is addressed to, or comes from, elsewhere.
    NotLocal,
}

/// Whether a URL is one of those that may come from anybody, below an object: its callback, with a
/// state as it is issued here, or its document.
pub(super) fn is_for_anybody(url: &Url) -> bool {
    let segments: Vec<&str> = url
        .path_segments()
        .map(Iterator::collect)
        .unwrap_or_default();
    match segments.as_slice() {
        ["agents", _, _, "callback"] => url.query_pairs().any(|(name, value)| {
            let nonce = value.split('.').next().unwrap_or_default();
            name == "state" && nonce.len() >= 21 && nonce.len() < value.len()
        }),
        ["agents", _, _, "client-metadata.json"] => true,
        _ => false,
    }
}

impl Access {
    /// Whether the Worker is open for anybody at all.
    pub(super) fn is_configured(&self) -> bool {
        self.token.is_some() || self.allow_insecure_local
    }

    /// Judges a request by its URL and the headers `authorization` and `origin`.
    ///
    /// A token that is set always counts. Without one, `ALLOW_INSECURE_LOCAL` admits requests to
    /// a loopback host that do not come from a page of another origin: a foreign page, or a name
    /// that was rebound to 127.0.0.1, must not reach a developer's servers.
    pub(super) fn admit(
        &self,
        url: &Url,
        authorization: Option<&str>,
        origin: Option<&str>,
    ) -> Result<(), Refusal> {
        if let Some(token) = &self.token {
            let given = authorization.and_then(bearer).unwrap_or_default();
            let equal = bool::from(given.as_bytes().ct_eq(token.as_bytes()));
            return if equal {
                Ok(())
            } else {
                Err(Refusal::Unauthorized)
            };
        }
        if !self.allow_insecure_local {
            return Err(Refusal::NotConfigured);
        }
        let same_origin = origin.is_none_or(|origin| origin == url.origin().ascii_serialization());
        if same_origin && is_loopback(url) {
            Ok(())
        } else {
            Err(Refusal::NotLocal)
        }
    }
}

fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(
        token: Option<&str>,
        local: bool,
        url: &str,
        authorization: Option<&str>,
        origin: Option<&str>,
    ) -> Result<(), Refusal> {
        let access = Access {
            token: token.map(str::to_owned),
            allow_insecure_local: local,
        };
        access.admit(&Url::parse(url).unwrap(), authorization, origin)
    }

    #[test]
    fn anybody_may_come_back() {
        for (url, open) in [
            ("callback?state=abcdefghijklmnopqrstu.server&code=c", true),
            ("callback?state=abcdefghijklmnopqrstu.&code=c", true),
            ("callback?state=abcdefghijklmnopqrstu", false),
            ("callback?state=short.server", false),
            ("callback", false),
            ("client-metadata.json", true),
            ("servers?state=abcdefghijklmnopqrstu.server", false),
            ("x/callback?state=abcdefghijklmnopqrstu.server", false),
        ] {
            let url = format!("https://a.example/agents/tool-agent/x/{url}");
            assert_eq!(is_for_anybody(&Url::parse(&url).unwrap()), open, "{url}");
        }
    }

    const PUBLIC: &str = "https://agents.example.com/agents/tool-agent/x/servers";
    const LOCAL: &str = "http://127.0.0.1:8787/agents/tool-agent/x/servers";

    #[test]
    fn it_is_closed_by_default() {
        assert_eq!(
            admit(None, false, PUBLIC, None, None),
            Err(Refusal::NotConfigured)
        );
        assert_eq!(
            admit(None, false, LOCAL, Some("Bearer x"), None),
            Err(Refusal::NotConfigured)
        );
    }

    #[test]
    fn a_token_is_compared_whole() {
        for (authorization, admitted) in [
            (Some("Bearer s3cret"), true),
            (Some("bearer s3cret"), true),
            (Some("Bearer s3cre"), false),
            (Some("Bearer s3crets"), false),
            (Some("Bearer "), false),
            (Some("Basic s3cret"), false),
            (Some("s3cret"), false),
            (None, false),
        ] {
            assert_eq!(
                admit(Some("s3cret"), false, PUBLIC, authorization, None).is_ok(),
                admitted,
                "{authorization:?}"
            );
        }
    }

    #[test]
    fn a_token_counts_even_where_local_access_is_open() {
        assert_eq!(
            admit(Some("s3cret"), true, LOCAL, None, None),
            Err(Refusal::Unauthorized)
        );
    }

    #[test]
    fn local_access_is_for_loopback_hosts_and_their_own_pages() {
        for (url, origin, admitted) in [
            (LOCAL, None, true),
            (LOCAL, Some("http://127.0.0.1:8787"), true),
            (LOCAL, Some("https://evil.example"), false),
            (LOCAL, Some("null"), false),
            (LOCAL, Some("http://127.0.0.1:9999"), false),
            ("http://localhost:8787/agents/a/b", None, true),
            ("http://[::1]:8787/agents/a/b", None, true),
            ("http://rebound.example:8787/agents/a/b", None, false),
            ("http://localhost.evil.example/agents/a/b", None, false),
            ("http://192.168.1.4:8787/agents/a/b", None, false),
        ] {
            assert_eq!(
                admit(None, true, url, None, origin).is_ok(),
                admitted,
                "{url} {origin:?}"
            );
        }
    }
}
