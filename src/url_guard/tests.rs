//! What the guard opens and refuses.

use std::net::Ipv4Addr;

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
        // Public by the registry.
        "http://192.31.196.1/",
        "http://192.52.193.1/",
        "http://192.175.48.1/",
        "http://168.63.129.15/",
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
        ("192.88.99.0", "192.88.99.255"),
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
        "http://169.254.169.254../latest",
        "http://0xa000001...",
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
        ("100:0:0:1::1", true),
        ("100:0:0:2::1", false),
        ("2001:2::1", true),
        ("2001:2:1::1", true),
        // Protocol assignments, and what is reachable of them.
        ("2001:1::", true),
        ("2001:1::1", false),
        ("2001:1::3", false),
        ("2001:1::4", true),
        ("2001:1:0:1::1", true),
        ("2001:3::1", false),
        ("2001:4::1", true),
        ("2001:4:112::1", false),
        ("2001:4:113::1", true),
        ("2001:10::1", true),
        ("2001:1f:ffff::1", true),
        ("2001:20::1", false),
        ("2001:3f:ffff::1", false),
        ("2001:40::1", true),
        ("2001:1ff:ffff::1", true),
        ("2001:200::1", false),
        ("2620:4f:8000::1", false),
        ("5eff:ffff::1", false),
        ("5f00::1", true),
        ("5f00:ffff::1", true),
        ("5f01::1", false),
        ("2606:4700::5efe:10.0.0.1", true),
        ("2606:4700::200:5efe:7f00:1", true),
        ("2606:4700::5efe:8.8.8.8", false),
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
        "metadata.tencentyun.com",
        "metadata.platformequinix.com",
        "rancher-metadata",
        "rancher-metadata.rancher.internal",
        "168.63.129.16",
        "0xa83f8110",
        "[::ffff:168.63.129.16]",
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
        ("http://./", BlockReason::Malformed),
        ("http://../", BlockReason::Malformed),
        ("http://1.2.3.256../", BlockReason::Malformed),
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

fn by(policy: &UrlPolicy, url: &str) -> Option<BlockReason> {
    policy.guard(url).err().map(|blocked| blocked.reason())
}

fn problem(pattern: &str) -> Option<PatternProblem> {
    let error = UrlPolicy::default().allow_host(pattern).err();
    error.map(|error| error.problem())
}

#[test]
fn patterns_that_are_none_are_refused_when_they_are_given() {
    use PatternProblem as P;
    for (pattern, expected) in [
        ("", P::Host),
        (".", P::Host),
        ("*.", P::Host),
        ("*", P::Star),
        ("**.example.com", P::Star),
        ("*.*.example.com", P::Star),
        ("a.*.example.com", P::Star),
        ("*example.com", P::Star),
        ("*.10.0.0.1", P::Star),
        ("*.10.0.0.0/8", P::Star),
        ("https://example.com", P::Host),
        ("example.com/mcp", P::Host),
        ("user@example.com", P::Host),
        ("b\u{fc}cher.example", P::Host),
        ("1.2.3.256", P::Host),
        ("[10.0.0.1]", P::Host),
        ("[fd00::1", P::Host),
        ("[fd00::1]x", P::Host),
        ("[fe80::1%25eth0]", P::Host),
        ("a b", P::Host),
        ("example.com:", P::Port),
        ("example.com:0", P::Port),
        ("example.com:65536", P::Port),
        ("example.com:+80", P::Port),
        ("example.com:https", P::Port),
        ("10.0.0.0/8:x", P::Port),
        ("10.0.0.0/", P::Prefix),
        ("10.0.0.0/33", P::Prefix),
        ("10.0.0.0/-1", P::Prefix),
        ("10.0.0.0/+8", P::Prefix),
        ("10.0.0.0/255.0.0.0", P::Prefix),
        ("fd00::/129", P::Prefix),
        ("10.0.0.1/8", P::HostBits),
        ("fd00::1/8", P::HostBits),
        ("::ffff:10.0.0.1/104", P::HostBits),
        ("0.0.0.1/0", P::HostBits),
    ] {
        assert_eq!(problem(pattern), Some(expected), "{pattern:?}");
        let policy = UrlPolicy::default();
        assert!(policy.clone().deny_host(pattern).is_err(), "{pattern:?}");
        assert!(policy.only_hosts([pattern]).is_err(), "{pattern:?}");
    }
    let error = UrlPolicy::default().allow_host("10.0.0.1/8").unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"10.0.0.1/8\" is no pattern of hosts: its address has bits beyond the prefix"
    );
}

#[test]
fn patterns_open_what_they_name_and_no_more() {
    for (pattern, opened, closed) in [
        (
            "10.0.0.0/8",
            &[
                "http://10.0.0.1/",
                "http://10.255.255.255:8080/",
                "http://0x0a000001/",
                "http://[::ffff:a00:1]/",
            ][..],
            &[
                "http://192.168.0.1/",
                "http://[64:ff9b::a00:1]/",
                "http://[2002:a00:1::]/",
                "http://[::10.0.0.1]/",
                "http://[::ffff:192.168.0.1]/",
            ][..],
        ),
        (
            "012.0.0.1",
            &["http://10.0.0.1/", "http://167772161/"],
            &["http://10.0.0.2/"],
        ),
        (
            "::ffff:10.0.0.0/104",
            &["http://10.0.0.1/", "http://[::ffff:a00:1]/"],
            &["http://192.168.0.1/"],
        ),
        (
            "10.0.0.5:8443",
            &["https://10.0.0.5:8443/"],
            &["https://10.0.0.5/", "http://10.0.0.5:8444/"],
        ),
        (
            "10.0.0.0/8:443",
            &["https://10.0.0.5/"],
            &["http://10.0.0.5/"],
        ),
        (
            "fd00::/8",
            &["http://[fd00::1]/", "http://[FDFF::1]:1/"],
            &["http://[fc00::1]/", "http://[fe80::1]/"],
        ),
        (
            "[fd00::]/8:8080",
            &["http://[fd12::1]:8080/"],
            &["http://[fd12::1]/"],
        ),
        (
            "[fd00::5]:80",
            &["http://[fd00:0::5]/"],
            &["https://[fd00::5]/", "http://[fd00::6]/"],
        ),
        ("fd00::5", &["http://[fd00::5]/"], &["http://[fd00::6]/"]),
        (
            "Metadata.Google.Internal.",
            &[
                "http://metadata.google.internal/",
                "http://metadata.google.internal./",
            ],
            &["http://x.metadata.google.internal/", "http://metadata/"],
        ),
        (
            "*.metadata.goog",
            &["http://a.metadata.goog/", "http://a.b.metadata.goog./"],
            &["http://metadata.goog/"],
        ),
        ("0.0.0.0/0", &["http://10.0.0.1/"], &["http://[fd00::1]/"]),
        (
            "::/0",
            &["http://[fd00::1]/", "http://[64:ff9b::a00:1]/"],
            &["http://10.0.0.1/", "http://[::ffff:a00:1]/"],
        ),
    ] {
        let policy = UrlPolicy::default().allow_host(pattern).unwrap();
        for url in opened {
            assert_eq!(by(&policy, url), None, "{pattern}: {url}");
            let closed = policy.clone().deny_host(pattern).unwrap();
            assert_eq!(by(&closed, url), Some(BlockReason::Denied), "{url}");
            let only = UrlPolicy::default().only_hosts([pattern]).unwrap();
            assert_ne!(by(&only, url), Some(BlockReason::NotListed), "{url}");
            assert!(by(&only, url).is_some(), "a list opens nothing: {url}");
        }
        for url in closed {
            let reason = by(&policy, url);
            let refused = [Some(BlockReason::Address), Some(BlockReason::Metadata)];
            assert!(refused.contains(&reason), "{pattern}: {url} {reason:?}");
            let only = UrlPolicy::default().only_hosts([pattern]).unwrap();
            assert_eq!(by(&only, url), Some(BlockReason::NotListed), "{url}");
        }
    }
    // Neither scheme nor credentials can be opened.
    let policy = UrlPolicy::default().allow_host("10.0.0.1").unwrap();
    assert_eq!(by(&policy, "ftp://10.0.0.1/"), Some(BlockReason::Scheme));
    let credentials = Some(BlockReason::Credentials);
    assert_eq!(by(&policy, "http://u:p@10.0.0.1/"), credentials);
}

#[test]
fn what_is_denied_is_denied_in_every_spelling() {
    let policy = UrlPolicy::default();
    let policy = policy.deny_host("9.9.9.9").unwrap();
    let policy = policy.deny_host("bad.example").unwrap();
    let policy = policy.deny_host("*.worse.example:443").unwrap();
    let policy = policy.deny_host("127.0.0.0/8").unwrap();
    for url in [
        "http://9.9.9.9/",
        "http://0x9090909/",
        "http://9.9.9.9./",
        "http://9.9.9.9../",
        "http://[::ffff:9.9.9.9]/",
        "http://[::9.9.9.9]/",
        "http://[64:ff9b::9.9.9.9]/",
        "http://[2002:909:909::1]/",
        "http://[2001:0:808:808::f6f6:f6f6]/",
        "http://[2606:4700::5efe:9.9.9.9]/",
        "http://bad.example/",
        "http://BAD.example./",
        "http://b%61d.example../",
        "https://a.worse.example/",
        "https://a.b.worse.example:443/",
        "http://127.1/",
        "http://[::ffff:127.0.0.1]/",
    ] {
        assert_eq!(by(&policy, url), Some(BlockReason::Denied), "{url}");
    }
    for url in [
        "http://9.9.9.8/",
        "http://not-bad.example/",
        "http://sub.bad.example/",
        "http://bad.example.com/",
        "https://worse.example/",
        "https://evenworse.example/",
        "http://a.worse.example/",
        "http://localhost/",
    ] {
        assert_eq!(by(&policy, url), None, "{url}");
    }
    let mapped = UrlPolicy::default().deny_host("::/0").unwrap();
    let denied = Some(BlockReason::Denied);
    assert_eq!(by(&mapped, "http://[::ffff:8.8.8.8]/"), denied);
    assert_eq!(by(&mapped, "http://8.8.8.8/"), None);
}

#[test]
fn a_list_of_hosts_closes_all_others() {
    let none = UrlPolicy::default().only_hosts([""; 0]).unwrap();
    let unlisted = Some(BlockReason::NotListed);
    assert_eq!(by(&none, "https://mcp.example.com/"), unlisted);
    let policy = UrlPolicy::default().only_hosts(["mcp.example.com"]);
    let policy = policy.unwrap().only_hosts(["*.example.net"]).unwrap();
    let policy = policy.allow_host("10.0.0.1").unwrap();
    for (url, reason) in [
        ("https://mcp.example.com/", None),
        ("https://a.example.net/", None),
        ("https://example.com/", unlisted),
        ("https://mcp.example.com.evil.example/", unlisted),
        ("https://10.0.0.1/", unlisted),
        ("https://localhost/", unlisted),
    ] {
        assert_eq!(by(&policy, url), reason, "{url}");
    }
}

#[test]
fn loopback_can_be_closed_and_opened_in_part() {
    let closed = UrlPolicy::default().allow_loopback(false);
    let reason = Some(BlockReason::Loopback);
    for url in [
        "http://localhost/",
        "http://a.LOCALHOST./",
        "http://127.0.0.1/",
        "http://0x7f.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
    ] {
        assert_eq!(by(&closed, url), reason, "{url}");
        assert_eq!(by(&closed.clone().allow_loopback(true), url), None, "{url}");
    }
    let part = closed.allow_host("localhost:8787").unwrap();
    assert_eq!(by(&part, "http://localhost:8787/"), None);
    assert_eq!(by(&part, "http://localhost/"), reason);
    assert_eq!(by(&part, "http://127.0.0.1:8787/"), reason);
}

#[test]
fn a_server_elsewhere_names_nothing_on_loopback() {
    let server = guarded("https://mcp.example.com/mcp");
    let local = guarded("http://localhost:8787/mcp");
    for url in [
        "http://127.0.0.1:9/x",
        "http://[::1]/x",
        "http://localhost./",
    ] {
        let refused = |blocked: Result<_, BlockedUrl>| blocked.err().map(|error| error.reason());
        let reason = Some(BlockReason::Loopback);
        assert_eq!(refused(server.related(url).map(drop)), reason, "{url}");
        assert_eq!(refused(server.check_page(url)), reason, "{url}");
        assert!(local.related(url).is_ok() && local.check_page(url).is_ok());
    }
    let policy = UrlPolicy::default().allow_host("127.0.0.1:9").unwrap();
    let server = policy.guard("https://mcp.example.com/mcp").unwrap();
    assert!(server.related("http://127.0.0.1:9/x").is_ok());
    assert!(server.related("http://127.0.0.1:8/x").is_err());
    let closed = UrlPolicy::default().allow_loopback(false);
    let closed = closed.allow_host("127.0.0.1").unwrap();
    let local = closed.guard("http://127.0.0.1/").unwrap();
    assert!(local.related("http://localhost/").is_err());
    assert!(local.related("http://127.0.0.1:1/").is_ok());
}

#[test]
fn pages_may_have_a_user_name_but_no_closed_host() {
    let policy = UrlPolicy::default().deny_host("bad.example").unwrap();
    let server = policy.guard("https://mcp.example.com/mcp").unwrap();
    for (page, reason) in [
        ("https://user:pw@page.example/?state=1", None),
        ("http://page.example/", None),
        ("https://user:pw@10.0.0.1/", Some(BlockReason::Address)),
        ("http://a@169.254.169.254/", Some(BlockReason::Address)),
        ("http://metadata.goog/", Some(BlockReason::Metadata)),
        (
            "https://bad.example@bad.example./",
            Some(BlockReason::Denied),
        ),
        ("ftp://page.example/", Some(BlockReason::Scheme)),
        ("page.example", Some(BlockReason::Malformed)),
    ] {
        let refused = server.check_page(page).err().map(|error| error.reason());
        assert_eq!(refused, reason, "{page}");
    }
}

#[test]
fn what_is_found_at_a_url_is_judged_by_its_policy() {
    let policy = UrlPolicy::default().allow_host("10.0.0.0/8").unwrap();
    let policy = policy.deny_host("10.0.0.9").unwrap();
    let url = policy.guard("http://10.0.0.1/mcp#x").unwrap();
    assert!(url.join("/other").is_ok());
    assert!(url.related("https://10.1.1.1/as").is_ok());
    assert!(url.redirect_target(307, "/mcp/", false).is_ok());
    let next = url.join("http://10.0.0.2/").unwrap().without_fragment();
    assert!(next.join("//10.0.0.3/").is_ok(), "it is handed on");
    for refused in [next.join("//10.0.0.9/"), url.related("http://10.0.0.9/")] {
        assert_eq!(refused.unwrap_err().reason(), BlockReason::Denied);
    }
    let redirect = url.redirect_target(307, "http://10.0.0.9/", false);
    assert!(matches!(redirect, Err(RedirectError::Blocked(_))));
    let plain = url.clone().without_fragment();
    assert_eq!(plain.as_str(), "http://10.0.0.1/mcp");

    let one = guarded("https://example.com/");
    let other = policy.guard("https://example.com/").unwrap();
    let both: std::collections::HashSet<_> = [one, other].into_iter().collect();
    assert_eq!(both.len(), 1, "equal by URL");
}

#[test]
fn a_policy_shows_its_patterns() {
    let policy = UrlPolicy::default().deny_host("*.bad.example").unwrap();
    let policy = policy.allow_host("10.0.0.0/8:80").unwrap();
    assert_eq!(
        format!("{policy:?}"),
        "UrlPolicy { allow_loopback: true, allow: [10.0.0.0/8:80], deny: [*.bad.example], \
         only: None }"
    );
}
