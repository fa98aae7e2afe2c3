//! The default policy against every special-purpose range in every spelling.
//!
//! `forbidden-urls.json` and `allowed-urls.json` are lists for tests in other languages, too. The first is made from
//! the tables here: `BLESS=1 cargo test --test url_policy` writes it anew.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed assertion by other means"
)]

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use workers_agents::url_guard::{GuardedUrl, UrlPolicy};

/// First and last address of every closed IPv4 range, and one that somebody would want to reach.
const V4: [[&str; 3]; 15] = [
    ["0.0.0.0", "0.255.255.255", "0.1.2.3"],
    ["10.0.0.0", "10.255.255.255", "10.0.0.1"],
    ["100.64.0.0", "100.127.255.255", "100.100.100.200"],
    ["169.254.0.0", "169.254.255.255", "169.254.169.254"],
    ["172.16.0.0", "172.31.255.255", "172.17.0.1"],
    ["192.0.0.0", "192.0.0.255", "192.0.0.192"],
    ["192.0.2.0", "192.0.2.255", "192.0.2.1"],
    ["192.88.99.0", "192.88.99.255", "192.88.99.1"],
    ["192.168.0.0", "192.168.255.255", "192.168.1.1"],
    ["198.18.0.0", "198.19.255.255", "198.18.0.1"],
    ["198.51.100.0", "198.51.100.255", "198.51.100.7"],
    ["203.0.113.0", "203.0.113.255", "203.0.113.1"],
    ["224.0.0.0", "239.255.255.255", "224.0.0.1"],
    ["240.0.0.0", "255.255.255.255", "240.0.0.1"],
    ["168.63.129.16", "168.63.129.16", "168.63.129.16"],
];

/// First and last address of every closed IPv6 range that carries no IPv4 address.
const V6: [[&str; 2]; 18] = [
    ["::", "::"],
    ["64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"],
    ["100::", "100::ffff:ffff:ffff:ffff"],
    ["100:0:0:1::", "100::1:ffff:ffff:ffff:ffff"],
    ["2001:1::", "2001:1::"],
    ["2001:1::4", "2001:1:ffff:ffff:ffff:ffff:ffff:ffff"],
    ["2001:2::", "2001:2:ffff:ffff:ffff:ffff:ffff:ffff"],
    ["2001:4::", "2001:4:111:ffff:ffff:ffff:ffff:ffff"],
    ["2001:4:113::", "2001:f:ffff:ffff:ffff:ffff:ffff:ffff"],
    ["2001:10::", "2001:1f:ffff:ffff:ffff:ffff:ffff:ffff"],
    ["2001:40::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"],
    ["2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"],
    ["3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"],
    ["5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
    ["fc00::", "fcff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
    ["fd00:ec2::254", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
    ["fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
    ["ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
];

const METADATA: [&str; 13] = [
    "metadata",
    "instance-data",
    "rancher-metadata",
    "metadata.goog",
    "metadata.google.internal",
    "metadata.azure.internal",
    "metadata.packet.net",
    "metadata.platformequinix.com",
    "metadata.tencentyun.com",
    "rancher-metadata.rancher.internal",
    "instance-data.ec2.internal",
    "instance-data.eu-west-1.compute.internal",
    "x.metadata.google.internal",
];

/// What is closed for other reasons, or spelled in ways of its own.
const OTHERS: [&str; 43] = [
    "",
    " ",
    "not a url",
    "/mcp",
    "//example.com/mcp",
    "http://",
    "http://./",
    "http://1.2.3.256/",
    "http://example.com:99999/",
    "http://[::1/",
    "http://[fe80::1%25eth0]",
    "http://[fe80::1%eth0]/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "data:text/plain,x",
    "blob:https://example.com/x",
    "about:blank",
    "ws://example.com/",
    "wss://example.com/",
    "gopher://example.com:70/",
    "rpc:counter",
    "foo://10.0.0.1/",
    "foo://0x0a000001/",
    "http://user:pw@example.com/",
    "http://user@example.com/",
    "http://:pw@example.com/",
    "http://example.com@10.0.0.1/",
    "http://user:pw@10.0.0.1/",
    "http://localhost@169.254.169.254/",
    "http:\\\\10.0.0.1\\mcp",
    "http:10.0.0.1/",
    "http:/10.0.0.1/",
    "http:////10.0.0.1/",
    "\thttp://10.0.0.1/ ",
    "http://1\n0.0.0.1/",
    "http://%31%30.0.0.1/",
    "http://%30%78a000001/",
    "http://１０.0.0.1/",
    "http://０.0.0.0/",
    "http://10。0。0。1/",
    "http://①⓪.0.0.1/",
    "http://[::127.0.0.1]/",
];

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

fn read(name: &str) -> Vec<String> {
    serde_json::from_str(&fs::read_to_string(file(name)).unwrap()).unwrap()
}

/// Every way to write an IPv4 address as the host of a URL.
fn spellings(address: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = address.octets();
    let bits = address.to_bits();
    let low = bits & 0xffff;
    let [high, low_hex] = [bits >> 16, low].map(|half| format!("{half:x}"));
    let [not_high, not_low] = [!bits >> 16, !bits & 0xffff].map(|half| format!("{half:x}"));
    vec![
        address.to_string(),
        format!("{address}."),
        format!("{address}.."),
        bits.to_string(),
        format!("{bits:#x}"),
        format!("0X{bits:08X}"),
        format!("0{bits:o}"),
        format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("000{a:o}.{b:#x}.{c}.{d}"),
        format!("{a}.{b}.{low}"),
        format!("{a}.{}", bits & 0x00ff_ffff),
        address.to_string().replace('.', "%2e"),
        format!("[::ffff:{address}]"),
        format!("[::FFFF:{high}:{low_hex}]"),
        format!("[0:0:0:0:0:ffff:{high}:{low_hex}]"),
        format!("[::{address}]"),
        format!("[::ffff:0:{address}]"),
        format!("[64:ff9b::{address}]"),
        format!("[2002:{high}:{low_hex}::1]"),
        format!("[2001:0:{high}:{low_hex}::f7f7:f7f7]"),
        format!("[2001:0:808:808::{not_high}:{not_low}]"),
        format!("[2606:4700::5efe:{address}]"),
    ]
}

fn forbidden() -> Vec<String> {
    let mut urls: Vec<String> = OTHERS.map(str::to_owned).into();
    for [first, last, wanted] in V4 {
        urls.extend([first, last].map(|host| format!("http://{host}/mcp")));
        let wanted = spellings(wanted.parse().unwrap());
        urls.extend(wanted.iter().map(|host| format!("http://{host}/mcp")));
    }
    for [first, last] in V6 {
        let address: Ipv6Addr = first.parse().unwrap();
        let long = address.segments().map(|segment| format!("{segment:04X}"));
        let long = long.join(":");
        for host in [first, last, &long] {
            urls.push(format!("https://[{host}]:8443/mcp"));
        }
    }
    for name in METADATA {
        for host in [
            name.to_owned(),
            name.to_uppercase(),
            format!("{name}."),
            format!("{name}.."),
            name.replacen('m', "%6d", 1),
        ] {
            urls.push(format!("http://{host}/latest/meta-data/"));
        }
    }
    let mut known = BTreeSet::new();
    urls.retain(|url| known.insert(url.clone()));
    urls
}

#[test]
fn the_list_of_forbidden_urls_is_that_of_the_tables() {
    let urls = forbidden();
    if std::env::var_os("BLESS").is_some() {
        let text = serde_json::to_string_pretty(&urls).unwrap() + "\n";
        fs::write(file("forbidden-urls.json"), text).unwrap();
    }
    assert!(urls.len() >= 200, "only {}", urls.len());
    assert_eq!(read("forbidden-urls.json"), urls);
}

#[test]
fn what_is_forbidden_is_refused() {
    let server = GuardedUrl::parse("https://mcp.example.com/mcp").unwrap();
    let open: Vec<_> = forbidden()
        .into_iter()
        .filter(|url| GuardedUrl::parse(url).is_ok() || server.related(url).is_ok())
        .collect();
    assert_eq!(open, [""; 0]);
}

#[test]
fn what_is_allowed_is_open_and_keeps_its_host() {
    for url in read("allowed-urls.json") {
        let guarded = GuardedUrl::parse(&url).unwrap_or_else(|error| panic!("{url}: {error}"));
        let closed = UrlPolicy::default().allow_loopback(false);
        assert_eq!(closed.guard(&url).is_ok(), !guarded.is_loopback(), "{url}");
    }
}

/// Just outside of each range there are public addresses, or those of another range.
#[test]
fn ranges_end_where_they_end() {
    let inside = |bits: u32| {
        V4.iter().any(|[first, last, _]| {
            let [first, last] = [first, last].map(|text| text.parse::<Ipv4Addr>().unwrap());
            (first.to_bits()..=last.to_bits()).contains(&bits)
        })
    };
    for [first, last, _] in V4 {
        let [first, last] = [first, last].map(|text| text.parse::<Ipv4Addr>().unwrap().to_bits());
        for bits in [first.checked_sub(1), last.checked_add(1)] {
            let Some(bits) = bits else { continue };
            let is_open = GuardedUrl::parse(&format!("http://{bits}/")).is_ok();
            assert_eq!(is_open, !inside(bits), "{}", Ipv4Addr::from_bits(bits));
        }
    }
}
