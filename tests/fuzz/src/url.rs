//! The guard of URLs: on one line the URL, on the next a reference found there, on the third a pattern of hosts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};
use workers_agents::url_guard::{BlockReason, GuardedUrl, RedirectError, UrlPolicy};

pub fn check(input: &[u8]) {
    let Some([text, reference, pattern]) = crate::lines(input) else {
        return;
    };
    patterns(text, pattern);
    let url = match GuardedUrl::parse(text) {
        Ok(url) => url,
        Err(blocked) => return assert!(!blocked.to_string().contains(['?', '#'])),
    };
    is_open(&url);
    if let Ok(joined) = url.join(reference) {
        is_open(&joined);
    }
    for status in [300, 301, 302, 303, 304, 305, 307, 308] {
        for is_get in [false, true] {
            redirects(&url, status, reference, is_get);
        }
    }
}

fn redirects(url: &GuardedUrl, status: u16, location: &str, is_get: bool) {
    let target = match url.redirect_target(status, location, is_get) {
        Ok(target) => target,
        Err(RedirectError::Blocked(_)) => return assert!(url.join(location).is_err()),
        Err(error) => return assert!(!error.to_string().contains(['?', '#'])),
    };
    assert!(matches!(status, 307 | 308) || is_get && matches!(status, 301..=303));
    is_open(&target);
    let place = |url: &GuardedUrl| {
        let url = url.url();
        (
            url.scheme().to_owned(),
            url.host_str().map(str::to_owned),
            url.port_or_known_default(),
        )
    };
    let (from, to) = (place(url), place(&target));
    let upgraded = ("https".to_owned(), from.1.clone(), Some(443));
    assert!(
        to == from || (from.0 == "http" && from.2 == Some(80) && to == upgraded),
        "{from:?} to {to:?}"
    );
}

/// What a pattern opens it also closes, and it opens nothing but hosts.
fn patterns(text: &str, pattern: &str) {
    let Ok(open) = UrlPolicy::default().allow_host(pattern) else {
        let policy = UrlPolicy::default();
        assert!(policy.clone().deny_host(pattern).is_err());
        return assert!(policy.only_hosts([pattern]).is_err());
    };
    let closed = open.clone().deny_host(pattern).expect("a pattern");
    let only = open.clone().only_hosts([pattern]).expect("a pattern");
    let before = GuardedUrl::parse(text).map_err(|blocked| blocked.reason());
    let [open, closed, only] =
        [open, closed, only].map(|policy| policy.guard(text).map_err(|blocked| blocked.reason()));
    match (&before, &open) {
        (Ok(before), open) => assert_eq!(open.as_ref(), Ok(before), "open before"),
        (Err(BlockReason::Address | BlockReason::Metadata), Ok(_)) => {
            assert!(only.is_ok(), "opened by the pattern")
        }
        (Err(_), Ok(_)) => panic!("a pattern opened what is no host"),
        (Err(reason), Err(still)) => assert_eq!(reason, still),
    }
    // The host is meant: then it is open, but for a policy that closes it.
    match (only, closed) {
        (Ok(url), Err(reason)) => {
            assert_eq!((open, reason), (Ok(url), BlockReason::Denied));
        }
        (Ok(_), Ok(_)) => panic!("not closed by the pattern"),
        // Closed further than it opens: behind gateways.
        (Err(_), _) => {}
    }
    // A host is a pattern of itself, unless it looks like one of several.
    let Ok(url) = before else { return };
    let host = url.url().host_str().expect("a host");
    if !host.contains('*') {
        let closed = UrlPolicy::default().deny_host(host).expect("a pattern");
        let blocked = closed.guard(text).expect_err("closed");
        assert_eq!(blocked.reason(), BlockReason::Denied);
    }
}

/// The URL may be requested, by its text alone.
fn is_open(url: &GuardedUrl) {
    let again = GuardedUrl::parse(url.as_str()).expect("accepted again");
    assert_eq!(again, *url);
    let parsed = Url::parse(url.as_str()).expect("a URL");
    assert!(matches!(parsed.scheme(), "http" | "https"));
    assert!(parsed.username().is_empty() && parsed.password().is_none());
    assert!(!url.to_string().contains(['?', '#']), "{url}");
    match parsed.host().expect("a host") {
        Host::Domain(name) => {
            // Other parsers than ours must not take the name for an address.
            let name = name.strip_suffix('.').unwrap_or(name);
            assert!(name.parse::<IpAddr>().is_err(), "{name}");
            assert!(!["metadata.google.internal", "instance-data"].contains(&name));
        }
        Host::Ipv4(address) => assert!(is_open_v4(address), "{address}"),
        Host::Ipv6(address) => assert!(is_open_v6(address), "{address}"),
    }
}

fn is_open_v4(address: Ipv4Addr) -> bool {
    !(address.is_private()
        || address.is_link_local()
        || address.is_unspecified()
        || address.is_broadcast()
        || address.is_multicast()
        || address.is_documentation())
}

fn is_open_v6(address: Ipv6Addr) -> bool {
    let closed = address.is_unspecified()
        || address.is_multicast()
        || address.is_unique_local()
        || address.is_unicast_link_local();
    let octets = address.octets();
    let carried = |at: usize| {
        let bytes: [u8; 4] = octets[at..at + 4].try_into().expect("four");
        Ipv4Addr::from(bytes)
    };
    let is_open_behind_a_gateway =
        |address: Ipv4Addr| is_open_v4(address) && !address.is_loopback();
    let leads_inside = match address.segments() {
        [0x2002, ..] => !is_open_behind_a_gateway(carried(2)),
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => !is_open_behind_a_gateway(carried(12)),
        [0x2001, 0, ..] => !is_open_behind_a_gateway(carried(4)),
        [0, 0, 0, 0, 0, 0, ..] if !address.is_loopback() => !is_open_behind_a_gateway(carried(12)),
        _ => false,
    };
    !closed && !leads_inside && address.to_ipv4_mapped().is_none_or(is_open_v4)
}
