//! The guard of URLs: on one line the URL, on the next a reference found there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};
use workers_agents::url_guard::{GuardedUrl, RedirectError};

pub fn check(input: &[u8]) {
    let Some([text, reference]) = crate::lines(input) else {
        return;
    };
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
    !closed && address.to_ipv4_mapped().is_none_or(is_open_v4)
}
