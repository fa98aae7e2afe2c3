//! [`GuardedUrl`]: no request leaves without it. [`UrlPolicy`]: what it opens and refuses.
//!
//! URLs of servers, and URLs that servers hand out, are chosen by others. The guard refuses those
//! that point into private networks or at the metadata services of cloud machines (server-side
//! request forgery). It judges the parsed address, as the WHATWG URL standard reads it, so that
//! `http://0x0a000001/` and `http://[::ffff:a00:1]/` are the same `10.0.0.1`.
//!
//! One policy holds for every request: to the server, to where it redirects, to what its
//! authorization needs (metadata, registration, tokens, revocation); and for the pages that a server
//! wants to show to a user. It is asked when a server is registered, before every connection, thus
//! also of URLs that were stored under another policy, and at every hop of a redirect. Open are
//! `http` and `https` without user name and password; closed are the IANA registries of
//! special-purpose IPv4 and IPv6 addresses, also where an IPv6 address carries an IPv4 one (mapped,
//! compatible, translated, NAT64, 6to4, Teredo, ISATAP), and the names of metadata services. An
//! operator opens and closes hosts with [`UrlPolicy`]. Redirects stay within their origin, so that
//! headers with credentials never reach another one.
//!
//! Loopback stays open: that is where servers under development live, and a deployed Worker has
//! nothing of value on it. But only a server on loopback may name URLs on loopback.
//! [`UrlPolicy::allow_loopback`] closes it.
//!
//! **The limit: names are not resolved.** A public name that resolves to a private address passes,
//! now or after its record has changed. What stands behind the guard is the platform: requests of a
//! deployed Worker leave from Cloudflare's network, not from the network of its owner. A local
//! `wrangler dev` has no such second wall. Where that is not enough, name the hosts that may be
//! reached with [`UrlPolicy::only_hosts`].

mod policy;
mod ranges;

use std::fmt;
use std::hash::{Hash, Hasher};

use url::Url;

pub use policy::{PatternError, PatternProblem, UrlPolicy};
use ranges::{Place, host_of, place_of};

/// An `http` or `https` URL that may be requested.
///
/// `Display` and `Debug` show origin and path only, because query parameters may hold secrets;
/// [`as_str`](Self::as_str) is the whole URL. It remembers the policy that has opened it, and judges
/// by it what is found there. Two of them are equal when their URLs are.
#[derive(Clone)]
pub struct GuardedUrl {
    url: Url,
    policy: UrlPolicy,
}

impl GuardedUrl {
    /// Parses and judges an absolute URL by the default policy; [`UrlPolicy::guard`] by another.
    pub fn parse(text: &str) -> Result<Self, BlockedUrl> {
        UrlPolicy::default().guard(text)
    }

    /// Resolves a reference that was found at this URL, and judges the result like any other: it
    /// may lead to another origin.
    pub fn join(&self, reference: &str) -> Result<Self, BlockedUrl> {
        self.url
            .join(reference)
            .map_err(|_| BlockedUrl::malformed())
            .and_then(|url| self.policy.guard_url(url))
    }

    /// The same URL without its fragment.
    #[must_use]
    pub fn without_fragment(mut self) -> Self {
        self.url.set_fragment(None);
        self
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

    /// Parses and judges an absolute URL that the server at this one has named, directly or by a
    /// document of its own. Such a URL may be on loopback only if this one is, or if a pattern of
    /// [`UrlPolicy::allow_host`] opens it: a server elsewhere has no business on this machine.
    pub fn related(&self, text: &str) -> Result<Self, BlockedUrl> {
        self.judge_related(self.policy.guard(text)?)
    }

    /// Judges the address of a page that the server at this URL wants a user to open, like any
    /// [`related`](Self::related) one. A user name before the host is no reason to refuse it: the
    /// page is for a browser, and whoever shows the address shows the host apart.
    pub fn check_page(&self, text: &str) -> Result<(), BlockedUrl> {
        let url = Url::parse(text).map_err(|_| BlockedUrl::malformed())?;
        self.judge_related(self.policy.guard_page(url)?).map(drop)
    }

    fn judge_related(&self, named: Self) -> Result<Self, BlockedUrl> {
        let is_foreign = named.is_loopback() && !self.is_loopback();
        if is_foreign && !self.policy.allows_by_pattern(&named.url) {
            return Err(BlockedUrl {
                reason: BlockReason::Loopback,
                shown: named.to_string(),
            });
        }
        Ok(named)
    }

    /// Whether the host is this machine: `localhost`, a name below it, 127/8 or `::1`.
    pub fn is_loopback(&self) -> bool {
        host_of(&self.url).is_some_and(|host| place_of(&host) == Place::Loopback)
    }

    /// Whether nobody on the way can read what is sent: `https`, or this machine.
    pub fn is_private(&self) -> bool {
        self.url.scheme() == "https" || self.is_loopback()
    }

    /// Whether scheme, host and port are the same.
    pub fn same_origin(&self, other: &Self) -> bool {
        self.url.origin() == other.url.origin()
    }

    /// The whole URL, query included: for requests and storage, not for messages.
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// The parsed URL.
    pub fn url(&self) -> &Url {
        &self.url
    }

    fn upgrades_to(&self, target: &Self) -> bool {
        // `port()` is `None` for the default port of the scheme.
        (self.url.scheme(), self.url.port()) == ("http", None)
            && (target.url.scheme(), target.url.port()) == ("https", None)
            && self.url.host() == target.url.host()
    }
}

/// By the default policy.
impl TryFrom<Url> for GuardedUrl {
    type Error = BlockedUrl;

    fn try_from(url: Url) -> Result<Self, BlockedUrl> {
        UrlPolicy::default().guard_url(url)
    }
}

impl PartialEq for GuardedUrl {
    fn eq(&self, other: &Self) -> bool {
        self.url == other.url
    }
}

impl Eq for GuardedUrl {}

impl Hash for GuardedUrl {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.url.hash(state);
    }
}

impl fmt::Display for GuardedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_secrets(&self.url))
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
    /// The host is this machine, which is closed, or which a server elsewhere has named.
    Loopback,
    /// The host is on the list of those that are closed.
    Denied,
    /// The host is not on the list of those that may be reached.
    NotListed,
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
            Self::Loopback => "MCP client connections to loopback are not allowed here",
            Self::Denied => "the host is on the list of hosts that are not allowed",
            Self::NotListed => "the host is not on the list of hosts that are allowed",
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
mod tests;
