//! The URL that a user is sent to.

use std::fmt;

use oauth2::{PkceCodeChallenge, PkceCodeVerifier};
use url::Url;

use super::provider::PendingSignIn;
use super::scope::{self, OFFLINE};
use crate::url_guard::GuardedUrl;

/// The parameters that are set here.
const OURS: [&str; 9] = [
    "response_type",
    "client_id",
    "code_challenge",
    "code_challenge_method",
    "redirect_uri",
    "state",
    "scope",
    "prompt",
    "resource",
];

/// Where to send a user. Secret: whoever has it can end the sign-in in the user's place.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthorizationUrl(String);

impl AuthorizationUrl {
    /// Where the user goes. Parameters in the order of the specification's example.
    pub(super) fn of(endpoint: &GuardedUrl, pending: &PendingSignIn) -> Self {
        let flow = &pending.flow;
        let verifier = PkceCodeVerifier::new(pending.verifier.clone());
        let challenge = PkceCodeChallenge::from_code_verifier_sha256(&verifier);
        let mut url = endpoint.url().clone();
        url.set_fragment(None);
        // Each parameter once (RFC 6749 §3.1), and ours is what counts.
        let kept: Vec<(String, String)> = url
            .query_pairs()
            .filter(|(name, _)| !OURS.contains(&&**name))
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        url.set_query(None);
        {
            let mut query = url.query_pairs_mut();
            query
                .extend_pairs(kept)
                .append_pair("response_type", "code")
                .append_pair("client_id", &flow.client.client_id)
                .append_pair("code_challenge", challenge.as_str())
                .append_pair("code_challenge_method", "S256")
                .append_pair("redirect_uri", &flow.redirect_uri)
                .append_pair("state", &pending.state());
            if let Some(scope) = &flow.scope {
                query.append_pair("scope", scope);
                if scope::contains(scope, OFFLINE) {
                    // OpenID Connect Core §11: without it the scope is ignored.
                    query.append_pair("prompt", "consent");
                }
            }
            if let Some(resource) = &flow.resource {
                query.append_pair("resource", resource);
            }
        }
        Self(url.into())
    }

    /// The URL, from storage.
    pub fn stored(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// The whole URL: for the user's browser, and for nobody else.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The scopes that it asks for.
    pub fn scope(&self) -> Option<String> {
        self.parameter("scope")
    }

    /// The nonce of its `state`, if it has one.
    pub fn nonce(&self) -> Option<String> {
        let state = self.parameter("state")?;
        state.split_once('.').map(|(nonce, _)| nonce.to_owned())
    }

    fn parameter(&self, name: &str) -> Option<String> {
        let url = Url::parse(&self.0).ok()?;
        let found = url.query_pairs().find(|(other, _)| other == name)?;
        Some(found.1.into_owned())
    }
}

impl fmt::Debug for AuthorizationUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthorizationUrl(..)")
    }
}
