//! The gate of the ready-made Worker: the token, the URL, and the headers `authorization` and `origin`, a line
//! each.

use url::{Host, Url};

/// The gate is private to the Worker, and depends on nothing of it.
#[path = "../../../src/entrypoint/gate.rs"]
mod real;

use real::{Access, Asked, Refusal};

pub fn check(input: &[u8]) {
    let Some([token, url, authorization, origin]) = crate::lines(input) else {
        return;
    };
    // A Worker is reached by no other scheme.
    let Some(url) = Url::parse(url)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"))
    else {
        return;
    };
    let given = |text: &'_ str| (!text.is_empty()).then(|| text.to_owned());
    let (authorization, origin) = (given(authorization), given(origin));
    let admit = |token: Option<&str>, allow_insecure_local| {
        let token = token.map(str::to_owned);
        let access = Access {
            token,
            allow_insecure_local,
            public_origin: None,
        };
        let is_configured = access.token.is_some() || allow_insecure_local;
        assert_eq!(access.is_configured(), is_configured);
        let asked = |is_upgrade, has_session| Asked {
            url: &url,
            changes: true,
            is_upgrade,
            authorization: authorization.as_deref(),
            origin: origin.as_deref(),
            has_session,
        };
        // A session changes things for pages of this origin, and never where the token is wrong.
        if access.admit(&asked(false, true)).is_ok() && access.admit(&asked(false, false)).is_err()
        {
            assert_eq!(authorization, None);
            assert_eq!(origin, Some(url.origin().ascii_serialization()));
        }
        // The token in the URL counts for WebSockets alone, and goes no further.
        if access.admit(&asked(true, false)).is_ok() && access.admit(&asked(false, false)).is_err()
        {
            let clean = real::without_token(&url).expect("a token");
            assert_eq!(real::without_token(&clean), None);
        }
        access.admit(&asked(false, false))
    };

    // What anybody may ask for is one segment below an object, whatever else stands there.
    if real::is_for_anybody(&url) {
        let segments: Vec<_> = url.path_segments().expect("a path").collect();
        assert_eq!((segments.len(), segments[0]), (4, "agents"), "{url}");
        assert!(
            ["callback", "client-metadata.json"].contains(&segments[3]),
            "{url}"
        );
    }

    if !token.is_empty() {
        let bearer = authorization.as_deref().and_then(|header| {
            let (scheme, rest) = header.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| rest.trim())
        });
        let expected = if bearer == Some(token) {
            Ok(())
        } else {
            Err(Refusal::Unauthorized)
        };
        assert_eq!(admit(Some(token), false), expected);
        assert_eq!(admit(Some(token), true), expected);
    }

    assert_eq!(admit(None, false), Err(Refusal::NotConfigured));

    if admit(None, true).is_ok() {
        let is_loopback = match url.host().expect("a host") {
            Host::Domain(name) => name.rsplit('.').next() == Some("localhost"),
            Host::Ipv4(address) => address.octets()[0] == 127,
            Host::Ipv6(address) => address.segments() == [0, 0, 0, 0, 0, 0, 0, 1],
        };
        assert!(is_loopback, "{url}");
        if let Some(origin) = origin {
            let page = Url::parse(&origin).expect("an origin");
            assert_eq!(page.origin(), url.origin());
        }
    }
}
