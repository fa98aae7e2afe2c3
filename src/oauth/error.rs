//! What can go wrong while getting permission.

use std::time::Duration;

use crate::ports::{CryptoError, HttpError, StoreError};
use crate::url_guard::BlockedUrl;

/// Why there is no permission.
///
/// Holds no token, no secret, no code and no state. Texts of servers are bounded, on one line and
/// without control characters, and not to be trusted: escape them before showing them in HTML.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum OAuthError {
    /// Nothing came back.
    #[error("{what} at {url} could not be reached: {reason}")]
    Network {
        /// What was asked for.
        what: &'static str,
        /// Where, without query.
        url: String,
        /// Why.
        reason: HttpError,
    },
    /// Nothing came back in time.
    #[error("{what} at {url} did not answer within {} ms", .after.as_millis())]
    Timeout {
        /// What was asked for.
        what: &'static str,
        /// Where, without query.
        url: String,
        /// The limit that applied.
        after: Duration,
    },
    /// A status that is no answer.
    #[error("{what} at {url} answered with HTTP status {status}")]
    Status {
        /// What was asked for.
        what: &'static str,
        /// Where, without query.
        url: String,
        /// The status.
        status: u16,
        /// When the server wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// A redirect that is not followed: to another origin, to a blocked address, or one too many.
    #[error("{what} at {url} redirects elsewhere, which is not followed")]
    Redirect {
        /// What was asked for.
        what: &'static str,
        /// Where, without query.
        url: String,
    },
    /// A document or an answer that cannot be used.
    #[error("{what} at {url} cannot be used: {reason}")]
    Unusable {
        /// What was asked for.
        what: &'static str,
        /// Where, without query.
        url: String,
        /// Why; names the member.
        reason: String,
    },
    /// A URL that is not requested.
    #[error("{what}: {reason}")]
    Blocked {
        /// What was to be asked for.
        what: &'static str,
        /// Why.
        reason: BlockedUrl,
    },
    /// A URL to which secrets would go in the clear.
    #[error("{what} at {url} is not https")]
    Insecure {
        /// What was to be asked for.
        what: &'static str,
        /// Where, without query.
        url: String,
    },
    /// The resource metadata is about another resource (RFC 9728 §3.3).
    #[error("the resource metadata is about {found}, which is not {expected}")]
    ResourceMismatch {
        /// The server's URL.
        expected: String,
        /// What the document says.
        found: String,
    },
    /// The server metadata, or a callback, is of another issuer (RFC 8414 §3.3, RFC 9207 §2.4).
    #[error("the authorization server says it is {found}, and was expected to be {expected}")]
    IssuerMismatch {
        /// Who was expected.
        expected: String,
        /// Who it says it is.
        found: String,
    },
    /// The server wants authorization and says nowhere how to get it.
    #[error("the server asks for authorization but publishes no authorization server")]
    NoAuthorizationServer,
    /// The authorization server cannot do what is needed; the text says what.
    #[error("the authorization server does not support {0}")]
    Unsupported(String),
    /// There is no client to sign in as, and none can be registered.
    #[error(
        "the authorization server registers no clients: give a client id, and its secret if it has one"
    )]
    NoClient,
    /// The registration was refused.
    #[error("the authorization server refused to register a client: {reason}")]
    RegistrationRefused {
        /// The status.
        status: u16,
        /// What it says.
        reason: String,
    },
    /// The authorization server said no (RFC 6749 §5.2).
    #[error("the authorization server refused: {}", shown(.code, .description.as_deref()))]
    Refused {
        /// The error code.
        code: String,
        /// What it says beyond that.
        description: Option<String>,
    },
    /// A client that the host has given is not known to the authorization server, or is bound to
    /// another one. It is kept.
    #[error("the configured client \"{client_id}\" cannot be used: {reason}")]
    ConfiguredClient {
        /// Its id.
        client_id: String,
        /// Why.
        reason: String,
    },
    /// A sign-in whose time is over, that was used, or that was never begun here.
    #[error("{0}")]
    SignInOver(&'static str),
    /// The server keeps asking for more scopes than were granted.
    #[error("the server still asks for other scopes after {0} sign-ins")]
    TooManySignIns(u32),
    /// A value given by the host is not usable; the text names it.
    #[error("{0}")]
    InvalidOption(String),
    /// The platform's cryptography refused.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
    /// The storage refused.
    #[error(transparent)]
    Storage(#[from] StoreError),
}

fn shown(code: &str, description: Option<&str>) -> String {
    match description {
        Some(description) => format!("{description} ({code})"),
        None => code.to_owned(),
    }
}

impl OAuthError {
    /// Whether the same may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Network { .. } | Self::Timeout { .. } => true,
            Self::Status { status, .. } => {
                matches!(status, 408 | 425 | 429 | 500 | 502..=504 | 506..)
            }
            // RFC 6749 §4.1.2.1; some send them from the token endpoint, too.
            Self::Refused { code, .. } => {
                matches!(
                    code.as_str(),
                    "server_error" | "temporarily_unavailable" | "slow_down"
                )
            }
            _ => false,
        }
    }

    /// When to try again, if the server said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// The beginning of a server's text, on one line and without what cannot be seen.
pub(super) fn one_line(text: &str) -> String {
    const MAX_CHARS: usize = 200;
    // Controls, line ends, and marks that turn the direction of writing or have no width.
    let is_hidden = |c: &char| {
        c.is_control()
            || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut letters = text.chars().filter(|c| !is_hidden(c));
    let mut line: String = letters.by_ref().take(MAX_CHARS).collect();
    if letters.next().is_some() {
        line.push('…');
    }
    line
}
