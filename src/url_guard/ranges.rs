//! Where a host is: on the public Internet, on this machine, or somewhere else.
//!
//! The addresses are those of the IANA registries of special-purpose addresses (RFC 6890 and its
//! updates). What they call "not globally reachable" is internal, and so are multicast and what is
//! retired. Open are the entries that the registries call globally reachable: the AS112 name servers
//! (`192.31.196.0/24`, `192.175.48.0/24`, `2001:4:112::/48`, `2620:4f:8000::/48`), AMT relays
//! (`192.52.193.0/24`, `2001:3::/32`), the anycast addresses `2001:1::1` to `2001:1::3`, and the
//! identifiers of `2001:20::/28` and `2001:30::/28`: all of them are public, none of them is near.
//! Only `192.0.0.9` and `192.0.0.10` are an exception of the exception: their block also has a
//! metadata service, and nobody serves MCP there.

use std::net::{Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// Where a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Anywhere on the Internet, as far as the text tells.
    Public,
    /// This machine.
    Loopback,
    /// The metadata service of a cloud machine.
    Metadata,
    /// Not the public Internet.
    Internal,
}

/// The host in its one form: a name without trailing dots, an IPv4 address also where it was
/// written as a mapped IPv6 address. `None` when there is no host that anybody could reach.
pub(super) fn host_of(url: &Url) -> Option<Host> {
    match url.host()? {
        Host::Domain(name) => host_in_one_form(name),
        Host::Ipv4(address) => Some(Host::Ipv4(address)),
        Host::Ipv6(address) => Some(unmapped(address)),
    }
}

/// As [`host_of`], of the text of a host: IPv6 addresses stand in brackets.
pub(super) fn host_in_one_form(text: &str) -> Option<Host> {
    // A trailing dot only says that a name is complete. A parser of addresses takes one of them for
    // that; others may take more.
    match Host::parse(text.trim_end_matches('.')).ok()? {
        Host::Ipv6(address) => Some(unmapped(address)),
        host => Some(host),
    }
}

/// Mapped, RFC 4291 §2.5.5.2: the IPv4 stack of this machine, hence its loopback too.
fn unmapped(address: Ipv6Addr) -> Host {
    let mapped = address.to_ipv4_mapped();
    mapped.map_or(Host::Ipv6(address), Host::Ipv4)
}

/// Where a host in its one form is.
pub(super) fn place_of(host: &Host) -> Place {
    match host {
        Host::Domain(name) => place_of_name(name),
        Host::Ipv4(address) => place_of_v4(*address),
        Host::Ipv6(address) => place_of_v6(*address),
    }
}

fn place_of_name(name: &str) -> Place {
    let is_or_below = |parent: &str| {
        name.strip_suffix(parent)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    // The whole domain is loopback, RFC 6761 §6.3.
    if is_or_below("localhost") {
        return Place::Loopback;
    }
    let is_metadata = METADATA_NAMES.iter().copied().any(is_or_below)
        || (name.starts_with("instance-data.") && name.ends_with(".internal"));
    if is_metadata {
        Place::Metadata
    } else {
        Place::Public
    }
}

/// Names by which cloud machines reach their metadata service. Bare names are completed by the
/// search domain of the machine.
const METADATA_NAMES: [&str; 10] = [
    "instance-data",
    "metadata",
    "metadata.azure.internal",
    "metadata.goog",
    "metadata.google.internal",
    "metadata.packet.net",
    "metadata.platformequinix.com",
    "metadata.tencentyun.com",
    "rancher-metadata",
    "rancher-metadata.rancher.internal",
];

/// Azure's service for the machines on it. Its address looks public.
const WIRE_SERVER: [u8; 4] = [168, 63, 129, 16];

fn place_of_v4(address: Ipv4Addr) -> Place {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        (127, ..) => Place::Loopback,
        // "This network", RFC 791, which often reaches the machine itself; private, RFC 1918;
        // multicast, RFC 5771; reserved, RFC 1112; broadcast.
        (0 | 10 | 224..=255, ..) | (172, 16..=31, _) | (192, 168, _)
        // Shared by carriers, RFC 6598; Alibaba's metadata service is here too.
        | (100, 64..=127, _)
        // Link-local, RFC 3927, with most metadata services.
        | (169, 254, _)
        // Protocol assignments, RFC 6890, with Oracle's metadata service; documentation, RFC 5737.
        | (192, 0, 0 | 2) | (198, 51, 100) | (203, 0, 113)
        // The nearest relay of 6to4, retired by RFC 7526, and of 6a44, RFC 6751.
        | (192, 88, 99)
        // Benchmarks, RFC 2544.
        | (198, 18..=19, _) => Place::Internal,
        _ if address.octets() == WIRE_SERVER => Place::Metadata,
        _ => Place::Public,
    }
}

fn place_of_v6(address: Ipv6Addr) -> Place {
    if address.is_loopback() {
        return Place::Loopback;
    }
    // Loopback behind a gateway is the gateway's, not that of a server under development.
    let leads_inside = carried(address).any(|inner| place_of_v4(inner) != Place::Public);
    if leads_inside || is_internal_v6(address) {
        Place::Internal
    } else {
        Place::Public
    }
}

fn is_internal_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // Protocol assignments (2001::/23, RFC 2928) are closed, as those for benchmarks (2001:2::/48,
    // RFC 5180) and ORCHID (2001:10::/28, RFC 4843) are. But Teredo is judged by what it carries, and
    // the registry calls these globally reachable: anycast, RFC 7723, RFC 8155 and RFC 9665; AMT,
    // RFC 7450; AS112, RFC 7535; ORCHIDv2, RFC 7343; DRIP, RFC 9374.
    let is_assignment = matches!(segments, [0x2001, ..=0x1ff, ..])
        && !matches!(
            segments,
            [0x2001, 0 | 3 | 0x20..=0x3f, ..]
                | [0x2001, 1, 0, 0, 0, 0, 0, 1..=3]
                | [0x2001, 4, 0x112, ..]
        );
    is_assignment
        || matches!(
            segments,
            // Segment routing, RFC 9602; unique local, RFC 4193; link-local and multicast, RFC 4291.
            // Site-local addresses (fec0::/10) have lost their meaning, RFC 3879.
            [0x5f00 | 0xfc00..=0xfdff | 0xfe80..=0xfebf | 0xff00..=0xffff, ..]
            // Local NAT64, RFC 8215: where its IPv4 address stands is the operator's choice.
            | [0x64, 0xff9b, 1, ..]
            // Discard, RFC 6666, and its dummy prefix, RFC 9780.
            | [0x100, 0, 0, 0 | 1, ..]
            // Documentation, RFC 3849 and RFC 9637.
            | [0x2001, 0xdb8, ..] | [0x3fff, ..=0x0fff, ..]
        )
}

/// The IPv4 addresses to which a gateway would send what is sent to this address.
pub(super) fn carried(address: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    let (first, second) = match address.segments() {
        // Compatible, RFC 4291 §2.5.5.1, which includes `::`; mapped, §2.5.5.2; translated,
        // RFC 2765; NAT64, RFC 6052; 6to4, RFC 3056; ISATAP, RFC 5214 §6.1.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..]
        | [.., 0 | 0x200, 0x5efe, high, low] => (Some(v4(high, low)), None),
        // Teredo, RFC 4380: the server, and the client with inverted bits.
        [0x2001, 0, high, low, _, _, client_high, client_low] => {
            let client = v4(!client_high, !client_low);
            (Some(v4(high, low)), Some(client))
        }
        _ => (None, None),
    };
    first.into_iter().chain(second)
}
