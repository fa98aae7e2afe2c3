//! What pages of other origins may do: the headers of the Fetch standard §3.3. Pure.

use http::{HeaderName, HeaderValue};
use url::{Origin, Url};

use crate::{Error, Result};

const ALLOW_ORIGIN: &str = "access-control-allow-origin";
const ALLOW_METHODS: &str = "access-control-allow-methods";
const ALLOW_HEADERS: &str = "access-control-allow-headers";
const ALLOW_CREDENTIALS: &str = "access-control-allow-credentials";
const MAX_AGE: &str = "access-control-max-age";

/// The longest list of headers that a preflight gets back.
const MAX_ASKED: usize = 2048;

/// What a router lets pages of other origins do.
///
/// The headers go with every answer to a route, errors included, and answer preflight requests. A
/// WebSocket has none: browsers let every page open one, so check `Origin` in
/// [`on_before_connect`](super::AgentRouter::on_before_connect).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    origins: Origins,
    headers: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Origins {
    /// Whatever the headers say.
    Fixed,
    /// These, each of which is told its own name.
    Listed(Vec<String>),
}

/// What becomes of the headers of one answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CorsHeaders {
    /// Taken away, should the object have set them.
    pub(super) removed: Vec<&'static str>,
    /// Set, in place of what the object may have set.
    pub(super) set: Vec<(String, String)>,
    /// What the answer depends on: names of request headers.
    pub(super) vary: Vec<&'static str>,
}

impl Cors {
    /// Any page: origin `*`, the methods GET, POST, HEAD and OPTIONS, headers `*`, remembered for a
    /// day. Pages send no cookies then, and `Authorization` only where [`header`](Self::header) names it
    /// in `Access-Control-Allow-Headers`.
    pub fn any() -> Self {
        let mut headers = vec![(ALLOW_ORIGIN.to_owned(), "*".to_owned())];
        headers.extend(methods_and_age());
        headers.push((ALLOW_HEADERS.to_owned(), "*".to_owned()));
        Self {
            origins: Origins::Fixed,
            headers,
        }
    }

    /// Pages of these origins (`https://app.example`), with whatever headers they ask for. Answers say
    /// `Vary: Origin`; other origins are told nothing.
    ///
    /// For cookies add `Access-Control-Allow-Credentials: true` by [`header`](Self::header).
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for what is no origin, such as a URL with a path, or `null`.
    pub fn origins<S: AsRef<str>>(origins: impl IntoIterator<Item = S>) -> Result<Self> {
        let origins = origins
            .into_iter()
            .map(|origin| read_origin(origin.as_ref()))
            .collect::<Result<_>>()?;
        Ok(Self {
            origins: Origins::Listed(origins),
            headers: methods_and_age().into(),
        })
    }

    /// Exactly these headers, whoever asks.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for what is no header.
    pub fn headers<N: AsRef<str>, V: AsRef<str>>(
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self> {
        let empty = Self {
            origins: Origins::Fixed,
            headers: Vec::new(),
        };
        let mut all = headers.into_iter();
        all.try_fold(empty, |cors, (name, value)| {
            cors.header(name.as_ref(), value.as_ref())
        })
    }

    /// One more header, or another value for one.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for what is no header, and for an allowed origin beside a list of them.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self> {
        let (Ok(known), Ok(_)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) else {
            return Err(Error::InvalidOption(format!(
                "CORS: \"{name}\" is no header, or its value is none"
            )));
        };
        let name = known.as_str();
        if name == ALLOW_ORIGIN && self.origins != Origins::Fixed {
            return Err(Error::InvalidOption(
                "CORS: the allowed origin comes from the list of origins".into(),
            ));
        }
        self.headers.retain(|(other, _)| other != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        Ok(self)
    }

    /// The headers of an answer to a request of `origin` that asks to send the headers `asked`: the
    /// values of `Origin` and of `Access-Control-Request-Headers`.
    pub(super) fn answer(&self, origin: Option<&str>, asked: Option<&str>) -> CorsHeaders {
        let Origins::Listed(listed) = &self.origins else {
            return CorsHeaders {
                set: self.headers.clone(),
                ..CorsHeaders::default()
            };
        };
        let mut vary = vec!["Origin"];
        let known = origin.filter(|origin| listed.iter().any(|known| known == origin));
        let Some(origin) = known else {
            return CorsHeaders {
                removed: vec![ALLOW_ORIGIN, ALLOW_CREDENTIALS],
                vary,
                ..CorsHeaders::default()
            };
        };
        let mut set = vec![(ALLOW_ORIGIN.to_owned(), origin.to_owned())];
        set.extend(self.headers.iter().cloned());
        let says_headers = self.headers.iter().any(|(name, _)| name == ALLOW_HEADERS);
        if let Some(asked) = asked.filter(|asked| !says_headers && asked.len() <= MAX_ASKED) {
            set.push((ALLOW_HEADERS.to_owned(), asked.to_owned()));
            vary.push("Access-Control-Request-Headers");
        }
        CorsHeaders {
            removed: Vec::new(),
            set,
            vary,
        }
    }
}

/// The value of `Vary` with these names in it.
pub(super) fn vary(before: Option<&str>, names: &[&str]) -> String {
    let mut value = before.unwrap_or_default().trim().to_owned();
    for name in names {
        let has = value
            .split(',')
            .any(|other| other.trim() == "*" || other.trim().eq_ignore_ascii_case(name));
        if has {
            continue;
        }
        if !value.is_empty() {
            value.push_str(", ");
        }
        value.push_str(name);
    }
    value
}

fn methods_and_age() -> [(String, String); 2] {
    [
        (
            ALLOW_METHODS.to_owned(),
            "GET, POST, HEAD, OPTIONS".to_owned(),
        ),
        (MAX_AGE.to_owned(), "86400".to_owned()),
    ]
}

/// An origin as browsers write it.
fn read_origin(text: &str) -> Result<String> {
    let url = Url::parse(text).ok();
    let is_bare = |url: &Url| {
        url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none()
    };
    url.filter(is_bare)
        .map(|url| url.origin())
        .filter(Origin::is_tuple)
        .map(|origin| origin.ascii_serialization())
        .ok_or_else(|| {
            Error::InvalidOption(format!(
                "CORS: \"{text}\" is no origin; write https://app.example"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(headers: &CorsHeaders) -> Vec<(&str, &str)> {
        let mut set: Vec<_> = headers
            .set
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        set.sort_unstable();
        set
    }

    #[test]
    fn any_page_gets_the_documented_headers() {
        let answer = Cors::any().answer(None, Some("x-mine"));
        assert_eq!(
            set(&answer),
            [
                ("access-control-allow-headers", "*"),
                ("access-control-allow-methods", "GET, POST, HEAD, OPTIONS"),
                ("access-control-allow-origin", "*"),
                ("access-control-max-age", "86400"),
            ]
        );
        assert!(answer.vary.is_empty() && answer.removed.is_empty());
    }

    #[test]
    fn a_listed_origin_is_told_its_own_name() {
        let cors = Cors::origins(["https://a.example", "HTTPS://B.example:443/"]).unwrap();
        let answer = cors.answer(Some("https://b.example"), Some("authorization, x-mine"));
        assert_eq!(
            set(&answer),
            [
                ("access-control-allow-headers", "authorization, x-mine"),
                ("access-control-allow-methods", "GET, POST, HEAD, OPTIONS"),
                ("access-control-allow-origin", "https://b.example"),
                ("access-control-max-age", "86400"),
            ]
        );
        assert_eq!(answer.vary, ["Origin", "Access-Control-Request-Headers"]);
        let plain = cors.answer(Some("https://a.example"), None);
        assert_eq!(plain.vary, ["Origin"]);
    }

    #[test]
    fn other_origins_are_told_nothing_and_caches_know() {
        let cors = Cors::origins(["https://a.example"]).unwrap();
        for origin in [
            None,
            Some("https://b.example"),
            Some("http://a.example"),
            Some("https://a.example:8443"),
            Some("https://a.example.evil.example"),
            Some("https://A.example"),
            Some("null"),
            Some(""),
        ] {
            let answer = cors.answer(origin, Some("x-mine"));
            assert!(answer.set.is_empty(), "{origin:?}");
            assert_eq!(answer.vary, ["Origin"]);
            assert_eq!(answer.removed, [ALLOW_ORIGIN, ALLOW_CREDENTIALS]);
        }
    }

    #[test]
    fn headers_may_be_added_and_replaced() {
        let cors = Cors::origins(["https://a.example"])
            .and_then(|cors| cors.header("Access-Control-Allow-Credentials", "true"))
            .and_then(|cors| cors.header("Access-Control-Allow-Headers", "x-only"))
            .and_then(|cors| cors.header("access-control-MAX-age", "5"))
            .unwrap();
        let answer = cors.answer(Some("https://a.example"), Some("x-mine"));
        assert_eq!(
            set(&answer),
            [
                ("access-control-allow-credentials", "true"),
                ("access-control-allow-headers", "x-only"),
                ("access-control-allow-methods", "GET, POST, HEAD, OPTIONS"),
                ("access-control-allow-origin", "https://a.example"),
                ("access-control-max-age", "5"),
            ]
        );
        let own = Cors::headers([("Access-Control-Allow-Origin", "https://my.example")]).unwrap();
        assert_eq!(
            set(&own.answer(Some("https://a.example"), None)),
            [("access-control-allow-origin", "https://my.example")]
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for origin in [
            "*",
            "null",
            "a.example",
            "https://a.example/x",
            "https://a.example/?q",
            "data:,x",
            "https://user@a.example",
            "",
        ] {
            assert!(Cors::origins([origin]).is_err(), "{origin}");
        }
        assert!(Cors::any().header("no header", "x").is_err());
        assert!(Cors::any().header("x", "a\r\nb: c").is_err());
        let listed = Cors::origins(["https://a.example"]).unwrap();
        assert!(listed.header("Access-Control-Allow-Origin", "*").is_err());
    }

    #[test]
    fn vary_keeps_what_was_there() {
        assert_eq!(vary(None, &["Origin"]), "Origin");
        assert_eq!(vary(Some("Accept"), &["Origin"]), "Accept, Origin");
        assert_eq!(vary(Some("Accept, origin"), &["Origin"]), "Accept, origin");
        assert_eq!(vary(Some("*"), &["Origin"]), "*");
        assert_eq!(vary(None, &[]), "");
    }
}
