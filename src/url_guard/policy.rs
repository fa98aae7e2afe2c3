//! [`UrlPolicy`]: what an operator opens and closes.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use url::{Host, Url};

use super::ranges::{Place, carried, host_in_one_form, host_of, place_of};
use super::{BlockReason, BlockedUrl, GuardedUrl, without_secrets};

/// Which URLs may be requested. Cheap to clone.
///
/// By default every public host is open, and loopback, for servers under development. Hosts are
/// named by patterns, each with or without a port (`host:port`):
///
/// - a name, `mcp.example.com`: this one, without regard to case and trailing dot. Letters beyond
///   ASCII must be written as Punycode (`xn--…`);
/// - `*.example.com`: the names below it, but not `example.com` itself;
/// - an address in any spelling, `10.0.0.5`, `0x0a000005`, `fd00::5`, `[fd00::5]:8080`;
/// - a network, `10.0.0.0/8`, `fd00::/8`, `[fd00::]/8:8080`.
///
/// Patterns of addresses are no statement about names that resolve to them.
///
/// ```
/// use workers_agents::url_guard::UrlPolicy;
/// let policy = UrlPolicy::default()
///     .allow_loopback(false)
///     .allow_host("10.20.0.0/16")?
///     .deny_host("*.untrusted.example")?;
/// assert!(policy.guard("http://10.20.1.1/mcp").is_ok());
/// assert!(policy.guard("http://10.30.1.1/mcp").is_err());
/// # Ok::<(), workers_agents::url_guard::PatternError>(())
/// ```
#[derive(Clone, Default)]
pub struct UrlPolicy {
    /// `None`: nothing was said.
    rules: Option<Rc<Rules>>,
}

#[derive(Clone, Debug, Default)]
struct Rules {
    no_loopback: bool,
    allow: Vec<Pattern>,
    deny: Vec<Pattern>,
    only: Option<Vec<Pattern>>,
}

impl UrlPolicy {
    /// Whether hosts on this machine are open: `localhost` and names below it, 127/8, `::1`.
    /// Default: yes.
    #[must_use]
    pub fn allow_loopback(mut self, is_open: bool) -> Self {
        self.rules_mut().no_loopback = !is_open;
        self
    }

    /// Opens hosts that are closed otherwise: an operator's own network, or loopback while
    /// [`allow_loopback`](Self::allow_loopback) is off. Open to everybody who may name a URL, also to
    /// servers elsewhere.
    ///
    /// A network opens its addresses as such and mapped into IPv6, but not behind a gateway (NAT64,
    /// 6to4, Teredo): there they are somebody else's.
    ///
    /// # Errors
    /// The pattern is none.
    pub fn allow_host(mut self, pattern: &str) -> Result<Self, PatternError> {
        let pattern = Pattern::parse(pattern)?;
        self.rules_mut().allow.push(pattern);
        Ok(self)
    }

    /// Closes hosts, whatever else is said of them. An address is closed behind gateways, too.
    ///
    /// # Errors
    /// The pattern is none.
    pub fn deny_host(mut self, pattern: &str) -> Result<Self, PatternError> {
        let pattern = Pattern::parse(pattern)?;
        self.rules_mut().deny.push(pattern);
        Ok(self)
    }

    /// Closes all hosts but these and those of earlier calls. Being on this list opens nothing: an
    /// internal address or loopback must be open as well.
    ///
    /// # Errors
    /// One of the patterns is none.
    pub fn only_hosts<P: AsRef<str>>(
        mut self,
        patterns: impl IntoIterator<Item = P>,
    ) -> Result<Self, PatternError> {
        let patterns: Result<Vec<_>, _> = patterns
            .into_iter()
            .map(|pattern| Pattern::parse(pattern.as_ref()))
            .collect();
        let patterns = patterns?;
        self.rules_mut()
            .only
            .get_or_insert_default()
            .extend(patterns);
        Ok(self)
    }

    /// Parses and judges an absolute URL.
    ///
    /// # Errors
    /// Why it may not be requested.
    pub fn guard(&self, text: &str) -> Result<GuardedUrl, BlockedUrl> {
        let url = Url::parse(text).map_err(|_| BlockedUrl::malformed())?;
        self.guard_url(url)
    }

    pub(super) fn guard_url(&self, url: Url) -> Result<GuardedUrl, BlockedUrl> {
        let is_plain = url.username().is_empty() && url.password().is_none();
        let credentials = (!is_plain).then_some(BlockReason::Credentials);
        match refused_scheme(&url)
            .or(credentials)
            .or_else(|| self.refused_host(&url))
        {
            Some(reason) => Err(BlockedUrl {
                reason,
                shown: without_secrets(&url),
            }),
            None => Ok(GuardedUrl {
                url,
                policy: self.clone(),
            }),
        }
    }

    /// Judges the address of a page for a browser, which may have a user name before its host.
    /// Judges the address of a page that a user is to open, and that a server without a URL of its
    /// own has named.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn check_page(&self, text: &str) -> Result<(), BlockedUrl> {
        let url = Url::parse(text).map_err(|_| BlockedUrl::malformed())?;
        self.guard_page(url).map(drop)
    }

    pub(super) fn guard_page(&self, mut url: Url) -> Result<GuardedUrl, BlockedUrl> {
        // Both fail for URLs without a host only, and those are refused anyway.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        self.guard_url(url)
    }

    /// Whether a pattern opens the host, whatever it is.
    pub(super) fn allows_by_pattern(&self, url: &Url) -> bool {
        let port = url.port_or_known_default();
        host_of(url).is_some_and(|host| {
            let rules = self.rules.as_deref();
            rules.is_some_and(|rules| is_in(&rules.allow, &host, port))
        })
    }

    fn refused_host(&self, url: &Url) -> Option<BlockReason> {
        let Some(host) = host_of(url) else {
            return Some(BlockReason::Malformed);
        };
        let port = url.port_or_known_default();
        let place = place_of(&host);
        let mut loopback_is_open = true;
        if let Some(rules) = self.rules.as_deref() {
            if rules.denies(&host, port) || rules.denies_raw(url, port) {
                return Some(BlockReason::Denied);
            }
            let only = rules.only.as_deref();
            if only.is_some_and(|only| !is_in(only, &host, port)) {
                return Some(BlockReason::NotListed);
            }
            if is_in(&rules.allow, &host, port) {
                return None;
            }
            loopback_is_open = !rules.no_loopback;
        }
        match place {
            Place::Public => None,
            Place::Loopback => (!loopback_is_open).then_some(BlockReason::Loopback),
            Place::Metadata => Some(BlockReason::Metadata),
            Place::Internal => Some(BlockReason::Address),
        }
    }

    fn rules_mut(&mut self) -> &mut Rules {
        Rc::make_mut(self.rules.get_or_insert_default())
    }
}

fn refused_scheme(url: &Url) -> Option<BlockReason> {
    (!matches!(url.scheme(), "http" | "https")).then_some(BlockReason::Scheme)
}

fn is_in(patterns: &[Pattern], host: &Host, port: Option<u16>) -> bool {
    patterns.iter().any(|pattern| pattern.matches(host, port))
}

impl Rules {
    fn denies(&self, host: &Host, port: Option<u16>) -> bool {
        is_in(&self.deny, host, port)
    }

    /// By the address as it is written, and by those that it carries.
    fn denies_raw(&self, url: &Url, port: Option<u16>) -> bool {
        let Some(Host::Ipv6(address)) = url.host() else {
            return false;
        };
        self.denies(&Host::Ipv6(address), port)
            || carried(address).any(|inner| self.denies(&Host::Ipv4(inner), port))
    }
}

/// Lists are an operator's own, and no secret.
impl fmt::Debug for UrlPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Rules::default();
        let rules = self.rules.as_deref().unwrap_or(&default);
        f.debug_struct("UrlPolicy")
            .field("allow_loopback", &!rules.no_loopback)
            .field("allow", &rules.allow)
            .field("deny", &rules.deny)
            .field("only", &rules.only)
            .finish()
    }
}

/// A text that is no pattern of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pattern:?} is no pattern of hosts: {problem}")]
pub struct PatternError {
    pattern: String,
    problem: PatternProblem,
}

impl PatternError {
    /// What is wrong with it.
    pub fn problem(&self) -> PatternProblem {
        self.problem
    }
}

/// What is wrong with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternProblem {
    /// Neither a name nor an address stands where the host should.
    #[error("it has no valid host; write letters beyond ASCII as Punycode")]
    Host,
    /// A star stands elsewhere than in `*.` at the beginning, or before an address.
    #[error("a star may only stand in \"*.\" before a name")]
    Star,
    /// What follows the colon is no port.
    #[error("its port is not a number from 1 to 65535")]
    Port,
    /// What follows the slash is no length of a prefix.
    #[error("the length of its prefix is not a number within the address")]
    Prefix,
    /// A network has bits beyond its prefix, as `10.0.0.1/8` has.
    #[error("its address has bits beyond the prefix")]
    HostBits,
}

/// A pattern of hosts.
#[derive(Clone)]
struct Pattern {
    text: String,
    hosts: Hosts,
    port: Option<u16>,
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[derive(Clone)]
enum Hosts {
    Name(String),
    Below(String),
    V4 { network: Ipv4Addr, prefix: u32 },
    V6 { network: Ipv6Addr, prefix: u32 },
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, PatternError> {
        Self::read(text.trim()).map_err(|problem| PatternError {
            pattern: text.chars().take(MAX_SHOWN).collect(),
            problem,
        })
    }

    fn read(text: &str) -> Result<Self, PatternProblem> {
        let parts = Parts::of(text)?;
        let port = parts.port.map(|port| {
            let port = number::<u16>(port).filter(|port| *port != 0);
            port.ok_or(PatternProblem::Port)
        });
        let hosts = match parts.host.strip_prefix("*.") {
            Some(parent) => Hosts::below(parent, parts.prefix)?,
            None => Hosts::exactly(parts.host, parts.prefix)?,
        };
        Ok(Self {
            text: text.to_owned(),
            hosts,
            port: port.transpose()?,
        })
    }

    /// Whether a host in its one form is meant.
    fn matches(&self, host: &Host, port: Option<u16>) -> bool {
        if self.port.is_some() && self.port != port {
            return false;
        }
        match (&self.hosts, host) {
            (Hosts::Name(meant), Host::Domain(name)) => meant == name,
            (Hosts::Below(parent), Host::Domain(name)) => name
                .strip_suffix(parent.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            (Hosts::V4 { network, prefix }, Host::Ipv4(address)) => {
                let differs = network.to_bits() ^ address.to_bits();
                differs.checked_shr(u32::BITS - prefix).unwrap_or(0) == 0
            }
            (Hosts::V6 { network, prefix }, Host::Ipv6(address)) => {
                let differs = network.to_bits() ^ address.to_bits();
                differs.checked_shr(u128::BITS - prefix).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// The longest part of a bad pattern that an error shows, in characters.
const MAX_SHOWN: usize = 100;

/// `host`, `host:port`, `address/prefix` or `address/prefix:port`.
struct Parts<'a> {
    host: &'a str,
    prefix: Option<&'a str>,
    port: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self, PatternProblem> {
        let (host, rest) = if let Some(bracketed) = text.strip_prefix('[') {
            bracketed.split_once(']').ok_or(PatternProblem::Host)?
        } else if text.parse::<Ipv6Addr>().is_ok() {
            (text, "")
        } else {
            // Colons before a slash are those of an address.
            let end = text.find('/').or_else(|| text.find(':'));
            text.split_at(end.unwrap_or(text.len()))
        };
        if text.starts_with('[') && host.parse::<Ipv6Addr>().is_err() {
            return Err(PatternProblem::Host);
        }
        let (prefix, port) = match rest.strip_prefix('/') {
            Some(rest) => match rest.split_once(':') {
                Some((prefix, port)) => (Some(prefix), Some(port)),
                None => (Some(rest), None),
            },
            None if rest.is_empty() => (None, None),
            None => (
                None,
                Some(rest.strip_prefix(':').ok_or(PatternProblem::Host)?),
            ),
        };
        Ok(Self { host, prefix, port })
    }
}

impl Hosts {
    fn below(parent: &str, prefix: Option<&str>) -> Result<Self, PatternProblem> {
        match Self::exactly(parent, prefix)? {
            Self::Name(name) => Ok(Self::Below(name)),
            _ => Err(PatternProblem::Star),
        }
    }

    fn exactly(host: &str, prefix: Option<&str>) -> Result<Self, PatternProblem> {
        if host.contains('*') {
            return Err(PatternProblem::Star);
        }
        let address: Host = if let Ok(address) = host.parse::<Ipv6Addr>() {
            Host::Ipv6(address)
        } else {
            host_in_one_form(host).ok_or(PatternProblem::Host)?
        };
        match (address, prefix) {
            (Host::Domain(name), None) => Ok(Self::Name(name)),
            (Host::Domain(_), Some(_)) => Err(PatternProblem::Host),
            (Host::Ipv4(network), prefix) => Self::v4(network, length(prefix, u32::BITS)?),
            (Host::Ipv6(network), prefix) => {
                let prefix = length(prefix, u128::BITS)?;
                let mapped = network.to_ipv4_mapped().zip(prefix.checked_sub(96));
                match mapped {
                    Some((network, prefix)) => Self::v4(network, prefix),
                    None => Self::v6(network, prefix),
                }
            }
        }
    }

    fn v4(network: Ipv4Addr, prefix: u32) -> Result<Self, PatternProblem> {
        let beyond = network.to_bits().checked_shl(prefix).unwrap_or(0);
        if beyond != 0 {
            return Err(PatternProblem::HostBits);
        }
        Ok(Self::V4 { network, prefix })
    }

    fn v6(network: Ipv6Addr, prefix: u32) -> Result<Self, PatternProblem> {
        let beyond = network.to_bits().checked_shl(prefix).unwrap_or(0);
        if beyond != 0 {
            return Err(PatternProblem::HostBits);
        }
        Ok(Self::V6 { network, prefix })
    }
}

/// The length of a prefix, at most `max`, which is that of a single address.
fn length(text: Option<&str>, max: u32) -> Result<u32, PatternProblem> {
    let Some(text) = text else {
        return Ok(max);
    };
    let length = number::<u32>(text).filter(|length| *length <= max);
    length.ok_or(PatternProblem::Prefix)
}

/// Digits only: neither a sign nor spaces.
fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}
