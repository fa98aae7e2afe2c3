//! Who may use the ready-made Worker. Closed unless somebody opened it. Pure.

use subtle::ConstantTimeEq as _;
use url::{Host, Url};

/// How the Worker is configured.
#[derive(Default)]
pub(super) struct Access {
    /// The secret `AGENT_TOKEN`.
    pub(super) token: Option<String>,
    /// The variable `ALLOW_INSECURE_LOCAL`.
    pub(super) allow_insecure_local: bool,
    /// The variable `PUBLIC_ORIGIN`: where browsers find the Worker, if not where requests arrive.
    pub(super) public_origin: Option<String>,
}

/// What the gate looks at in a request.
pub(super) struct Asked<'a> {
    pub(super) url: &'a Url,
    /// Whether it can change anything: its method is another than `GET` or `HEAD`.
    pub(super) changes: bool,
    /// Whether it opens a WebSocket.
    pub(super) is_upgrade: bool,
    /// The header `authorization`.
    pub(super) authorization: Option<&'a str>,
    /// The header `origin`.
    pub(super) origin: Option<&'a str>,
    /// Whether it comes with the cookie of a session that is on.
    pub(super) has_session: bool,
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
    /// A page of another origin uses the session of its user.
    ForeignOrigin,
}

/// The parameter that stands for the header `authorization` where a WebSocket is opened: browsers and
/// Node can send no header then.
const TOKEN: &str = "token";

/// The URL without the token, if it has one.
pub(super) fn without_token(url: &Url) -> Option<Url> {
    url.query_pairs().find(|(name, _)| name == TOKEN)?;
    // To the letter: others may depend on how the rest is written.
    let kept: Vec<&str> = url
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| {
            let mut names = url::form_urlencoded::parse(pair.as_bytes());
            names.next().is_none_or(|(name, _)| name != TOKEN)
        })
        .collect();
    let mut clean = url.clone();
    clean.set_query(Some(kept.join("&").as_str()).filter(|query| !query.is_empty()));
    Some(clean)
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

    /// Whether `token` is the one that is set. Takes as long for any text of the same length.
    pub(super) fn is_token(&self, token: &str) -> bool {
        let set = self.token.as_deref();
        set.is_some_and(|set| bool::from(token.as_bytes().ct_eq(set.as_bytes())))
    }

    /// Whether a page of this origin is ours.
    pub(super) fn is_own_origin(&self, url: &Url, origin: &str) -> bool {
        let public = self.public_origin.as_deref();
        let public = public.and_then(|public| Url::parse(public).ok());
        [Some(url), public.as_ref()]
            .into_iter()
            .flatten()
            .any(|own| own.origin().is_tuple() && own.origin().ascii_serialization() == origin)
    }

    /// Judges a request.
    ///
    /// A token that is set always counts: in the header, or in the URL of a WebSocket. In place of it
    /// counts a session, which browsers send along whoever made them ask. So what changes something,
    /// or opens a WebSocket, must come from a page of ours then.
    ///
    /// Without a token, `ALLOW_INSECURE_LOCAL` admits requests to a loopback host that do not come from
    /// a page of another origin: a foreign page, or a name that was rebound to 127.0.0.1, must not reach
    /// a developer's servers.
    pub(super) fn admit(&self, asked: &Asked<'_>) -> Result<(), Refusal> {
        let url = asked.url;
        if self.token.is_some() {
            let in_url = || {
                let token = url.query_pairs().find(|(name, _)| name == TOKEN);
                token.filter(|_| asked.is_upgrade)
            };
            let given = match asked.authorization {
                Some(authorization) => bearer(authorization).map(Into::into),
                None => in_url().map(|(_, token)| token),
            };
            return match given {
                Some(given) if self.is_token(&given) => Ok(()),
                None if asked.authorization.is_none() && asked.has_session => {
                    let is_ours = asked
                        .origin
                        .is_some_and(|origin| self.is_own_origin(url, origin));
                    if is_ours || !(asked.changes || asked.is_upgrade) {
                        Ok(())
                    } else {
                        Err(Refusal::ForeignOrigin)
                    }
                }
                _ => Err(Refusal::Unauthorized),
            };
        }
        if !self.allow_insecure_local {
            return Err(Refusal::NotConfigured);
        }
        let same_origin =
            (asked.origin).is_none_or(|origin| origin == url.origin().ascii_serialization());
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
            public_origin: None,
        };
        access.admit(&Asked {
            authorization,
            origin,
            ..asked(&Url::parse(url).unwrap())
        })
    }

    fn asked(url: &Url) -> Asked<'_> {
        Asked {
            url,
            changes: false,
            is_upgrade: false,
            authorization: None,
            origin: None,
            has_session: false,
        }
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

    #[test]
    fn a_session_opens_and_changes_things_for_our_own_pages_only() {
        let access = Access {
            token: Some("s3cret".into()),
            public_origin: Some("https://agents.example.org/".into()),
            ..Access::default()
        };
        let url = Url::parse(PUBLIC).unwrap();
        let admit = |changes, is_upgrade, origin| {
            access.admit(&Asked {
                changes,
                is_upgrade,
                origin,
                has_session: true,
                ..asked(&url)
            })
        };
        for own in ["https://agents.example.com", "https://agents.example.org"] {
            assert_eq!(admit(true, false, Some(own)), Ok(()), "{own}");
            assert_eq!(admit(false, true, Some(own)), Ok(()), "{own}");
        }
        for origin in [
            None,
            Some("null"),
            Some("http://agents.example.com"),
            Some("https://agents.example.com:8443"),
            Some("https://agents.example.com.evil.example"),
            Some("https://evil.example"),
            Some(""),
        ] {
            assert_eq!(admit(true, false, origin), Err(Refusal::ForeignOrigin));
            assert_eq!(admit(false, true, origin), Err(Refusal::ForeignOrigin));
            // Nobody else's page can read the answer.
            assert_eq!(admit(false, false, origin), Ok(()));
        }
    }

    #[test]
    fn a_wrong_token_is_not_made_good_by_a_session() {
        let access = Access {
            token: Some("s3cret".into()),
            ..Access::default()
        };
        let url = Url::parse(PUBLIC).unwrap();
        for authorization in ["Bearer x", "Bearer ", "Basic x", ""] {
            let asked = Asked {
                authorization: Some(authorization),
                has_session: true,
                ..asked(&url)
            };
            assert_eq!(access.admit(&asked), Err(Refusal::Unauthorized));
        }
    }

    #[test]
    fn a_token_in_the_url_opens_websockets_and_nothing_else() {
        let access = Access {
            token: Some("s3+ret".into()),
            ..Access::default()
        };
        for (query, is_upgrade, admitted) in [
            ("token=s3%2Bret", true, true),
            ("_pk=1&token=s3%2Bret&mcp=servers", true, true),
            ("token=s3%2Bret", false, false),
            ("token=s3+ret", true, false),
            ("token=s3%2Bre", true, false),
            ("token=", true, false),
            ("token=x&token=s3%2Bret", true, false),
            ("Token=s3%2Bret", true, false),
            ("", true, false),
        ] {
            let url = Url::parse(&format!("{PUBLIC}?{query}")).unwrap();
            let asked = Asked {
                is_upgrade,
                origin: Some("https://elsewhere.example"),
                ..asked(&url)
            };
            assert_eq!(access.admit(&asked).is_ok(), admitted, "{query}");
        }
    }

    #[test]
    fn the_token_is_taken_out_of_the_url_and_nothing_else_is() {
        for (query, left) in [
            ("?token=x", Some("")),
            ("?a=%7e+b&token=x&c", Some("?a=%7e+b&c")),
            ("?token=x&a&token=y", Some("?a")),
            ("?tok%65n=x&a=1", Some("?a=1")),
            ("?tokens=x", None),
            ("?a=token", None),
            ("", None),
        ] {
            let url = Url::parse(&format!("{PUBLIC}{query}")).unwrap();
            let left = left.map(|left| format!("{PUBLIC}{left}"));
            assert_eq!(without_token(&url).map(String::from), left, "{query}");
        }
    }
}
