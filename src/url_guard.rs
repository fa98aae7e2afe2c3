//! [`GuardedUrl`]: no request leaves without it.
//!
//! URLs of servers, and URLs that servers hand out, are chosen by others. The guard refuses those
//! that point into private networks or at the metadata services of cloud machines (server-side
//! request forgery). It judges the parsed address, as the WHATWG URL standard reads it, so that
//! `http://0x0a000001/` and `http://[::ffff:a00:1]/` are the same `10.0.0.1`.
//!
//! Loopback stays open: that is where servers under development live, and a deployed Worker has
//! nothing of value on it.
//!
//! **The limit: names are not resolved.** A public name that resolves to a private address passes,
//! now or after its record has changed. What stands behind the guard is the platform: requests of a
//! deployed Worker leave from Cloudflare's network, not from the network of its owner. A local
//! `wrangler dev` has no such second wall.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// An `http` or `https` URL that may be requested.
///
/// `Display` and `Debug` show origin and path only, because query parameters may hold secrets;
/// [`as_str`](Self::as_str) is the whole URL.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct GuardedUrl(Url);

impl GuardedUrl {
    /// Parses and judges an absolute URL.
    pub fn parse(text: &str) -> Result<Self, BlockedUrl> {
        Url::parse(text)
            .map_err(|_| BlockedUrl::malformed())
            .and_then(Self::try_from)
    }

    /// Resolves a reference that was found at this URL, and judges the result like any other: it
    /// may lead to another origin.
    pub fn join(&self, reference: &str) -> Result<Self, BlockedUrl> {
        self.0
            .join(reference)
            .map_err(|_| BlockedUrl::malformed())
            .and_then(Self::try_from)
    }

    /// Where a redirect may lead: the answer to this URL had `status` and the header
    /// `Location: <location>`.
    ///
    /// The next request must be the same request again, so only 307 and 308 are followed, and with
    /// GET also 301, 302 and 303; clients that turn a redirected POST into a GET lose its body. The
    /// target must have the same origin, or upgrade it from `http` to `https` on the default
    /// ports, because headers with credentials go along. The caller bounds the number of hops.
    pub fn redirect_target(
        &self,
        status: u16,
        location: &str,
        method_is_get: bool,
    ) -> Result<Self, RedirectError> {
        let target = self.join(location).map_err(RedirectError::Blocked)?;
        let keeps_method = match status {
            307 | 308 => true,
            301..=303 => method_is_get,
            _ => false,
        };
        if !keeps_method {
            let target = target.to_string();
            return Err(RedirectError::Moved { status, target });
        }
        if !self.same_origin(&target) && !self.upgrades_to(&target) {
            let target = target.to_string();
            return Err(RedirectError::OtherOrigin { target });
        }
        Ok(target)
    }

    /// Whether scheme, host and port are the same.
    pub fn same_origin(&self, other: &Self) -> bool {
        self.0.origin() == other.0.origin()
    }

    /// The whole URL, query included: for requests and storage, not for messages.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The parsed URL.
    pub fn url(&self) -> &Url {
        &self.0
    }

    fn upgrades_to(&self, target: &Self) -> bool {
        // `port()` is `None` for the default port of the scheme.
        (self.0.scheme(), self.0.port()) == ("http", None)
            && (target.0.scheme(), target.0.port()) == ("https", None)
            && self.0.host() == target.0.host()
    }
}

impl TryFrom<Url> for GuardedUrl {
    type Error = BlockedUrl;

    fn try_from(url: Url) -> Result<Self, BlockedUrl> {
        match refusal(&url) {
            None => Ok(Self(url)),
            Some(reason) => Err(BlockedUrl {
                reason,
                shown: without_secrets(&url),
            }),
        }
    }
}

impl fmt::Display for GuardedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_secrets(&self.0))
    }
}

impl fmt::Debug for GuardedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuardedUrl({self})")
    }
}

/// A URL that is not requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Blocked URL: {shown} — {reason}")]
pub struct BlockedUrl {
    reason: BlockReason,
    /// Origin and path; the rest may hold secrets.
    shown: String,
}

impl BlockedUrl {
    /// Why it is not requested.
    pub fn reason(&self) -> BlockReason {
        self.reason
    }

    /// Text that is no URL has no part that is known to be harmless, so none of it is shown.
    fn malformed() -> Self {
        Self {
            reason: BlockReason::Malformed,
            shown: "(unreadable)".to_owned(),
        }
    }
}

/// What is wrong with a [`BlockedUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockReason {
    /// It is not an absolute URL.
    Malformed,
    /// The scheme is neither `http` nor `https`.
    Scheme,
    /// It carries a user name or a password. `fetch` refuses such URLs, and they leak into logs.
    Credentials,
    /// The host is the metadata service of a cloud machine.
    Metadata,
    /// The host is an address that is not of the public Internet.
    Address,
}

impl fmt::Display for BlockReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "it is not an absolute URL",
            Self::Scheme => "MCP client connections need http or https",
            Self::Credentials => "a URL must not contain a user name or password",
            Self::Metadata | Self::Address => {
                "MCP client connections to private/internal addresses are not allowed"
            }
        })
    }
}

/// A redirect that is not followed. Targets are shown without their query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedirectError {
    /// The guard refuses the target.
    #[error("redirect to a blocked address")]
    Blocked(#[source] BlockedUrl),
    /// Following it would change the method.
    #[error("the server has moved to {target} (status {status})")]
    Moved {
        /// The status of the answer.
        status: u16,
        /// Where it points.
        target: String,
    },
    /// Following it would send headers to somebody else.
    #[error("redirect to another origin: {target}")]
    OtherOrigin {
        /// Where it points.
        target: String,
    },
}

fn refusal(url: &Url) -> Option<BlockReason> {
    if !matches!(url.scheme(), "http" | "https") {
        return Some(BlockReason::Scheme);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Some(BlockReason::Credentials);
    }
    match url.host() {
        None => Some(BlockReason::Malformed),
        Some(Host::Domain(name)) => is_metadata_name(name).then_some(BlockReason::Metadata),
        Some(Host::Ipv4(address)) => is_internal_v4(address).then_some(BlockReason::Address),
        Some(Host::Ipv6(address)) => is_internal_v6(address).then_some(BlockReason::Address),
    }
}

/// Names by which cloud machines reach their metadata service; the same services have addresses,
/// which [`is_internal_v4`] and [`is_internal_v6`] cover.
fn is_metadata_name(name: &str) -> bool {
    // A trailing dot only says that the name is complete.
    let name = name.trim_end_matches('.');
    METADATA_NAMES.iter().any(|metadata| {
        name.strip_suffix(metadata)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }) || (name.starts_with("instance-data.") && name.ends_with(".internal"))
}

/// Bare names are completed by the search domain of the machine.
const METADATA_NAMES: [&str; 5] = [
    "instance-data",
    "metadata",
    "metadata.azure.internal",
    "metadata.goog",
    "metadata.google.internal",
];

/// The IANA special-purpose registry without loopback (127/8), which is open on purpose.
fn is_internal_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    matches!(
        (a, b, c),
        // "This network", RFC 791, which often reaches the machine itself; private, RFC 1918;
        // multicast, RFC 5771; reserved, RFC 1112; broadcast.
        (0 | 10 | 224..=255, ..) | (172, 16..=31, _) | (192, 168, _)
        // Shared by carriers, RFC 6598; Alibaba's metadata service is here too.
        | (100, 64..=127, _)
        // Link-local, RFC 3927, with most metadata services.
        | (169, 254, _)
        // Protocol assignments, RFC 6890, with Oracle's metadata service; documentation, RFC 5737.
        | (192, 0, 0 | 2) | (198, 51, 100) | (203, 0, 113)
        // Benchmarks, RFC 2544.
        | (198, 18..=19, _)
    )
}

/// The IANA special-purpose registry without loopback. An address that carries an IPv4 address is
/// judged by that one.
fn is_internal_v6(address: Ipv6Addr) -> bool {
    if address.is_loopback() {
        return false;
    }
    // Mapped, RFC 4291 §2.5.5.2: the machine's own IPv4 stack, hence its own loopback too.
    if let Some(mapped) = address.to_ipv4_mapped() {
        return is_internal_v4(mapped);
    }
    match address.segments() {
        // Compatible, RFC 4291 §2.5.5.1, which includes `::`; translated, RFC 2765; NAT64,
        // RFC 6052; 6to4, RFC 3056.
        [0, 0, 0, 0, 0 | 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => is_internal_behind_a_gateway(high, low),
        // Teredo, RFC 4380: the server, and the client with inverted bits.
        [0x2001, 0, high, low, _, _, client_high, client_low] => {
            is_internal_behind_a_gateway(high, low)
                || is_internal_behind_a_gateway(!client_high, !client_low)
        }
        segments => matches!(
            segments,
            // Unique local, RFC 4193; link-local and multicast, RFC 4291. Site-local addresses
            // (fec0::/10) have lost their meaning, RFC 3879.
            [0xfc00..=0xfdff | 0xfe80..=0xfebf | 0xff00..=0xffff, ..]
            // Local NAT64, RFC 8215: where its IPv4 address stands is the operator's choice.
            | [0x64, 0xff9b, 1, ..]
            // Discard, RFC 6666; benchmarks, RFC 5180; documentation, RFC 3849 and RFC 9637.
            | [0x100, 0, 0, 0, ..] | [0x2001, 2, 0, ..]
            | [0x2001, 0xdb8, ..] | [0x3fff, ..=0x0fff, ..]
        ),
    }
}

/// Loopback behind a gateway is the gateway's, not that of a server under development.
fn is_internal_behind_a_gateway(high: u16, low: u16) -> bool {
    let address = Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    address.is_loopback() || is_internal_v4(address)
}

/// Origin and path, or only the scheme of a URL without a host, at a length that fits a message.
fn without_secrets(url: &Url) -> String {
    const MAX_CHARS: usize = 200;
    let Some(host) = url.host_str() else {
        return format!("{}:", url.scheme());
    };
    let port = url
        .port()
        .map_or_else(String::new, |port| format!(":{port}"));
    let mut shown = format!("{}://{host}{port}{}", url.scheme(), url.path());
    if let Some((end, _)) = shown.char_indices().nth(MAX_CHARS) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(text: &str) -> Option<BlockReason> {
        GuardedUrl::parse(text)
            .err()
            .map(|blocked| blocked.reason())
    }

    fn guarded(text: &str) -> GuardedUrl {
        GuardedUrl::parse(text).unwrap()
    }

    #[test]
    fn public_servers_and_loopback_are_open() {
        for url in [
            "http://localhost:8787/mcp",
            "http://LOCALHOST./mcp",
            "http://app.localhost/mcp",
            "http://127.0.0.1",
            "http://127.5.5.5:3000",
            "http://127.1/",
            "http://2130706433/",
            "http://[::1]/",
            "http://[0:0:0:0:0:0:0:1]:8787/mcp",
            "http://[::ffff:127.0.0.1]",
            "http://[::ffff:7f00:1]",
            "https://mcp.example.com/mcp?a=b#c",
            "https://mcp.example.com./mcp",
            "HTTPS://MCP.EXAMPLE.COM:8443",
            "http://10.example.com/",
            "http://internal.example/",
            "http://metadata.example.com/",
            "http://mymetadata/",
            "http://notmetadata.google.internal.example.com/",
            "http://host.docker.internal:3000/",
            "http://8.8.8.8",
        ] {
            assert_eq!(reason(url), None, "{url}");
        }
    }

    #[test]
    fn ipv4_ranges() {
        for (first, last) in [
            ("0.0.0.0", "0.255.255.255"),
            ("10.0.0.0", "10.255.255.255"),
            ("100.64.0.0", "100.127.255.255"),
            ("169.254.0.0", "169.254.255.255"),
            ("172.16.0.0", "172.31.255.255"),
            ("192.0.0.0", "192.0.0.255"),
            ("192.0.2.0", "192.0.2.255"),
            ("192.168.0.0", "192.168.255.255"),
            ("198.18.0.0", "198.19.255.255"),
            ("198.51.100.0", "198.51.100.255"),
            ("203.0.113.0", "203.0.113.255"),
            ("224.0.0.0", "255.255.255.255"),
        ] {
            let bits = |text: &str| text.parse::<Ipv4Addr>().unwrap().to_bits();
            let judge = |bits| reason(&format!("http://{}/", Ipv4Addr::from_bits(bits)));
            for inside in [bits(first), bits(first) + 1, bits(last)] {
                assert_eq!(judge(inside), Some(BlockReason::Address), "{first}-{last}");
            }
            for outside in [bits(first).checked_sub(1), bits(last).checked_add(1)] {
                assert_eq!(outside.and_then(judge), None, "outside {first}-{last}");
            }
        }
    }

    #[test]
    fn an_ipv4_address_is_judged_in_every_spelling() {
        for url in [
            "http://10.1/",
            "http://167772161/",
            "http://0x0a000001/",
            "http://0xA.0x0.0x0.0x1/",
            "http://012.0.0.1/",
            "http://%31%30.0.0.1/",
            "http://10.0.0.1./",
            "http://169.254.169.254./latest",
            "http://0xA9FEA9FE/latest",
            "http://2852039166/",
            "http://0/",
            "http:\\\\10.0.0.1\\mcp",
            "http:10.0.0.1/",
            "\thttp://10.0.0.1/ ",
            "http://1\n0.0.0.1/",
            "https://192.168.1.1:8443/mcp",
        ] {
            assert_eq!(reason(url), Some(BlockReason::Address), "{url:?}");
        }
        // Whether these are mapped to ASCII or refused by the parser depends on the Unicode
        // tables that the `url` crate was built with.
        for url in [
            "http://０.0.0.0/",
            "http://１０.0.0.1/",
            "http://10。0。0。1/",
            "http://①⓪.0.0.1/",
            "http://Aé.example/",
        ] {
            assert!(GuardedUrl::parse(url).is_err(), "{url}");
        }
        // A mark of direction, which no host may have: those tables decide, without a panic.
        let _ = GuardedUrl::parse("http://xn--3ug/");
    }

    #[test]
    fn ipv6_ranges() {
        for (address, blocked) in [
            ("::", true),
            ("0:0:0:0:0:0:0:0", true),
            // An IPv4 address inside.
            ("::ffff:10.0.0.1", true),
            ("::ffff:a00:1", true),
            ("::ffff:192.168.0.1", true),
            ("::ffff:172.16.0.1", true),
            ("::ffff:169.254.169.254", true),
            ("::ffff:a9fe:a9fe", true),
            ("::ffff:0.0.0.0", true),
            ("::FFFF:100.64.0.1", true),
            ("0:0:0:0:0:ffff:a00:1", true),
            ("::ffff:8.8.8.8", false),
            ("::10.0.0.1", true),
            ("::127.0.0.1", true),
            ("::8.8.8.8", false),
            ("::ffff:0:10.0.0.1", true),
            ("::ffff:0:8.8.8.8", false),
            ("64:ff9b::a00:1", true),
            ("64:ff9b::127.0.0.1", true),
            ("64:ff9b::8.8.8.8", false),
            ("64:ff9b:1::8.8.8.8", true),
            ("64:ff9b:1:ffff::", true),
            ("64:ff9b:2::1", false),
            ("2002:a00:1::", true),
            ("2002:7f00:1::1", true),
            ("2002:808:808::1", false),
            ("2001:0:a00:1::f7f7:f7f7", true),
            ("2001:0:808:808::f5ff:fffe", true),
            ("2001:0:808:808::f7f7:f7f7", false),
            // Special purposes.
            ("fc00::1", true),
            ("fd00:ec2::254", true),
            ("fdff::1", true),
            ("fbff::1", false),
            ("fe00::1", false),
            ("fe7f::1", false),
            ("fe80::1", true),
            ("fe81::1", true),
            ("feab::1", true),
            ("FE8F::1", true),
            ("febf::1", true),
            ("fec0::1", false),
            ("ff00::", true),
            ("ff02::1", true),
            ("100::1", true),
            ("100:0:0:1::1", false),
            ("2001:2::1", true),
            ("2001:2:1::1", false),
            ("2001:db8::1", true),
            ("2001:db9::1", false),
            ("3fff::1", true),
            ("3fff:fff::1", true),
            ("3fff:1000::1", false),
            ("2606:4700::1111", false),
            // Leading zeros count: these are 0fc0::1, 00fd::1 and 0fe8::1.
            ("fc0::1", false),
            ("fd::1", false),
            ("fe8::1", false),
        ] {
            let expected = blocked.then_some(BlockReason::Address);
            assert_eq!(
                reason(&format!("http://[{address}]/mcp")),
                expected,
                "{address}"
            );
        }
    }

    #[test]
    fn metadata_services_are_blocked_by_name() {
        for host in [
            "metadata.google.internal",
            "Metadata.Google.INTERNAL",
            "metadata.google.internal.",
            "metadata.google.internal..",
            "%6detadata.google.internal",
            "x.metadata.google.internal",
            "metadata.goog",
            "metadata.goog.",
            "metadata",
            "metadata.azure.internal",
            "instance-data",
            "instance-data.",
            "instance-data.ec2.internal",
            "instance-data.eu-west-1.compute.internal",
        ] {
            let expected = Some(BlockReason::Metadata);
            assert_eq!(reason(&format!("http://{host}/")), expected, "{host}");
        }
    }

    #[test]
    fn only_absolute_http_urls_without_credentials() {
        for (url, expected) in [
            ("", BlockReason::Malformed),
            ("not a url", BlockReason::Malformed),
            ("/mcp", BlockReason::Malformed),
            ("//example.com/mcp", BlockReason::Malformed),
            ("http://", BlockReason::Malformed),
            ("http://[fe80::1%25eth0]", BlockReason::Malformed),
            ("http://[fe80::1%eth0]/", BlockReason::Malformed),
            ("http://[::1/", BlockReason::Malformed),
            ("http://1.2.3.256/", BlockReason::Malformed),
            ("http://example.com:99999/", BlockReason::Malformed),
            ("ftp://example.com/", BlockReason::Scheme),
            ("ws://example.com/", BlockReason::Scheme),
            ("file:///etc/passwd", BlockReason::Scheme),
            ("javascript:alert(1)", BlockReason::Scheme),
            ("data:text/plain,x", BlockReason::Scheme),
            ("rpc:counter", BlockReason::Scheme),
            ("foo://0x0a000001/", BlockReason::Scheme),
            ("foo://10.0.0.1/", BlockReason::Scheme),
            ("http://user:pw@10.0.0.1/", BlockReason::Credentials),
            ("http://user:pw@example.com/", BlockReason::Credentials),
            ("http://user@example.com/", BlockReason::Credentials),
            ("http://:pw@example.com/", BlockReason::Credentials),
        ] {
            assert_eq!(reason(url), Some(expected), "{url}");
        }
    }

    #[test]
    fn messages_name_the_address_and_keep_secrets() {
        for (url, text) in [
            (
                "http://10.0.0.1:8080/a/b?token=secret#secret",
                "Blocked URL: http://10.0.0.1:8080/a/b — \
                 MCP client connections to private/internal addresses are not allowed",
            ),
            (
                "http://metadata.goog/?secret",
                "Blocked URL: http://metadata.goog/ — \
                 MCP client connections to private/internal addresses are not allowed",
            ),
            (
                "https://secret:secret@example.com/mcp?secret",
                "Blocked URL: https://example.com/mcp — \
                 a URL must not contain a user name or password",
            ),
            (
                "ftp://secret:secret@example.com/file?secret",
                "Blocked URL: ftp://example.com/file — MCP client connections need http or https",
            ),
            (
                "javascript:secret()",
                "Blocked URL: javascript: — MCP client connections need http or https",
            ),
            (
                "http://secret:secret@",
                "Blocked URL: (unreadable) — it is not an absolute URL",
            ),
        ] {
            let blocked = GuardedUrl::parse(url).unwrap_err();
            assert_eq!(blocked.to_string(), text);
            assert!(!format!("{blocked:?}").contains("secret"));
        }
        let long = format!("http://10.0.0.1/{}", "é".repeat(1000));
        let text = GuardedUrl::parse(&long).unwrap_err().to_string();
        assert!(text.chars().count() < 320, "{text}");
    }

    #[test]
    fn only_as_str_shows_the_query() {
        let url = guarded("https://example.com:8443/mcp?token=t#f");
        assert_eq!(url.as_str(), "https://example.com:8443/mcp?token=t#f");
        assert_eq!(url.url().query(), Some("token=t"));
        assert_eq!(url.to_string(), "https://example.com:8443/mcp");
        assert_eq!(
            format!("{url:?}"),
            "GuardedUrl(https://example.com:8443/mcp)"
        );
    }

    #[test]
    fn references_are_resolved_and_judged() {
        let base = guarded("http://mcp.example.com/weather/sse?k=1");
        for (reference, joined) in [
            ("/messages?sid=1", "http://mcp.example.com/messages?sid=1"),
            (
                "messages?sid=1",
                "http://mcp.example.com/weather/messages?sid=1",
            ),
            ("?sid=1", "http://mcp.example.com/weather/sse?sid=1"),
            ("", "http://mcp.example.com/weather/sse?k=1"),
            ("//other.example/x", "http://other.example/x"),
            ("https://mcp.example.com/x", "https://mcp.example.com/x"),
        ] {
            assert_eq!(
                base.join(reference).unwrap().as_str(),
                joined,
                "{reference}"
            );
        }
        for (reference, reason) in [
            ("//10.0.0.1/x", BlockReason::Address),
            ("http://metadata.goog/", BlockReason::Metadata),
            ("//user@mcp.example.com/", BlockReason::Credentials),
            ("file:///x", BlockReason::Scheme),
            ("http://[", BlockReason::Malformed),
        ] {
            assert_eq!(
                base.join(reference).unwrap_err().reason(),
                reason,
                "{reference}"
            );
        }
    }

    #[test]
    fn origins_compare_scheme_host_and_port() {
        let url = guarded("https://example.com/a");
        for (other, same) in [
            ("https://EXAMPLE.com:443/b?c", true),
            ("http://example.com/a", false),
            ("https://example.com:8443/a", false),
            ("https://www.example.com/a", false),
        ] {
            assert_eq!(url.same_origin(&guarded(other)), same, "{other}");
        }
    }

    #[test]
    fn redirects_that_repeat_the_request_are_followed() {
        for (from, status, location, is_get, target) in [
            (
                "http://a.example/mcp",
                307,
                "/mcp/",
                false,
                "http://a.example/mcp/",
            ),
            (
                "http://a.example/mcp",
                308,
                "/mcp/docs/1?x=y",
                false,
                "http://a.example/mcp/docs/1?x=y",
            ),
            (
                "http://a.example/mcp",
                307,
                "http://A.example:80/x",
                false,
                "http://a.example/x",
            ),
            (
                "http://a.example:8080/mcp",
                308,
                "//a.example:8080/x",
                false,
                "http://a.example:8080/x",
            ),
            (
                "http://a.example/mcp",
                301,
                "/x",
                true,
                "http://a.example/x",
            ),
            ("http://a.example/mcp", 302, "x", true, "http://a.example/x"),
            (
                "http://a.example/mcp",
                303,
                "?x",
                true,
                "http://a.example/mcp?x",
            ),
            (
                "http://a.example/mcp",
                308,
                "https://a.example/mcp",
                false,
                "https://a.example/mcp",
            ),
            (
                "http://a.example/mcp",
                301,
                "https://a.example:443/",
                true,
                "https://a.example/",
            ),
            (
                "http://127.0.0.1:1234/mcp",
                307,
                "/x",
                false,
                "http://127.0.0.1:1234/x",
            ),
        ] {
            let followed = guarded(from)
                .redirect_target(status, location, is_get)
                .unwrap();
            assert_eq!(followed.as_str(), target, "{from} {status} {location}");
        }
    }

    #[test]
    fn redirects_elsewhere_are_refused() {
        for (from, location) in [
            ("http://a.example/", "http://b.example/x?secret"),
            ("http://a.example/", "http://a.example:8080/x?secret"),
            ("https://a.example/", "http://a.example/x?secret"),
            ("http://a.example:8080/", "https://a.example/x?secret"),
            ("http://a.example/", "https://a.example:8443/x?secret"),
            ("http://a.example/", "https://b.example/x?secret"),
            ("http://a.example/", "http://127.0.0.1/x?secret"),
        ] {
            for (status, is_get) in [(307, false), (302, true)] {
                let error = guarded(from)
                    .redirect_target(status, location, is_get)
                    .unwrap_err();
                let target = location.trim_end_matches("?secret").to_owned();
                assert_eq!(error, RedirectError::OtherOrigin { target });
            }
        }
    }

    #[test]
    fn redirects_that_change_the_request_are_refused_and_named() {
        for (status, is_get) in [
            (301, false),
            (302, false),
            (303, false),
            (300, true),
            (304, true),
            (305, true),
        ] {
            let error = guarded("http://a.example/mcp")
                .redirect_target(status, "/mcp2?secret", is_get)
                .unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("the server has moved to http://a.example/mcp2 (status {status})")
            );
        }
    }

    #[test]
    fn redirects_to_blocked_addresses_are_refused() {
        let url = guarded("http://a.example/mcp");
        for (location, reason) in [
            ("http://10.0.0.5/mcp", BlockReason::Address),
            ("http://[::ffff:a9fe:a9fe]/", BlockReason::Address),
            ("http://user:pw@a.example/mcp", BlockReason::Credentials),
            ("file:///etc/passwd", BlockReason::Scheme),
            ("http://[", BlockReason::Malformed),
        ] {
            for (status, is_get) in [(307, false), (301, false), (302, true)] {
                let error = url.redirect_target(status, location, is_get).unwrap_err();
                assert_eq!(error.to_string(), "redirect to a blocked address");
                let RedirectError::Blocked(blocked) = error else {
                    panic!("{error:?}");
                };
                assert_eq!(blocked.reason(), reason, "{location}");
            }
        }
    }
}
