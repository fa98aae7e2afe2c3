//! Getting permission to use a server: OAuth 2.1 as MCP profiles it (2026-07-28, authorization),
//! with what older revisions had.
//!
//! Nothing here knows of connections; `mcp` hands a challenge in and takes tokens out.
//!
//! ```text
//! challenge ─► resource metadata ─► server metadata ─► client: given? document? registered? ─► authorization URL
//!               (in order)            (in order)                                                   │ stored: PendingSignIn
//!                                                                                                  ▼
//! tokens ◄── exchange of the code ◄── used up ◄── issuer ◄── looked up by its state ◄────── callback request
//!    └─► refreshed ahead of expiry or on 401, once for all who wait
//! ```
//!
//! A host with a client of its own, registered beforehand, for new servers and for those that come
//! back alike:
//!
//! ```
//! use std::rc::Rc;
//! use workers_agents::{ClientInformation, McpClientOptions, StoredOAuthProvider};
//!
//! let options = McpClientOptions::default().create_auth_provider(|server| {
//!     let mut client = ClientInformation::public("my-client");
//!     client.client_secret = Some("from a secret binding".into());
//!     client.issuer = Some("https://login.example.com".into());
//!     Ok(Rc::new(StoredOAuthProvider::new(server).with_client(client)))
//! });
//! # drop(options);
//! ```
//!
//! What is stored, and under which keys: [`StoredOAuthProvider`]. Who may write it when: `gate.rs`.

mod authorization_url;
mod authorizer;
mod callback;
mod challenge;
mod client;
mod discovery;
mod dpop;
mod error;
mod gate;
mod grant;
mod jwt;
mod metadata;
mod net;
mod provider;
mod record;
mod scope;
mod sign_in;
mod stored_provider;
mod token_endpoint;
mod tokens;
mod without_user;

use crate::url_guard::GuardedUrl;

pub use authorization_url::AuthorizationUrl;
pub(crate) use authorizer::{Authorizer, AuthorizerPorts, Refused};
pub use callback::CallbackQuery;
pub(crate) use callback::check_issuer;
pub use challenge::Challenge;
pub use client::{AuthMethod, ClientInformation, ClientMetadata, ClientNotes};
pub use discovery::{Discovered, discover};
pub use dpop::{DpopKey, Proof};
pub use error::OAuthError;
pub use grant::{AssertionSource, Audience, EnterpriseManaged, Grant};
pub use jwt::{Assertion, client_assertion, signing_key};
pub use metadata::{ResourceMetadata, ServerMetadata};
pub use net::Net;
pub use provider::{
    Credentials, OAuthProvider, OAuthSettings, PendingSignIn, SIGN_IN_LIFETIME, SignInFlow, Used,
};
pub(crate) use record::{Member, Record, put, record, take};
pub(crate) use sign_in::Asked;
pub(crate) use stored_provider::key_prefix;
pub use stored_provider::{ProviderContext, StoredOAuthProvider};
pub(crate) use token_endpoint::{DPOP, DPOP_NONCE};
pub use tokens::{TokenOrigin, Tokens};

/// Whether a private key can be read: PKCS#8 in PEM, or a JWK.
///
/// # Errors
/// [`OAuthError::InvalidOption`], which names what is wrong and shows nothing of the key.
pub(crate) fn check_key(key: &str, algorithm: Option<&str>) -> Result<(), OAuthError> {
    signing_key(key, algorithm).map(drop)
}

/// The URL of an endpoint that `server` has led to: one that may be requested, and that is read by
/// nobody on the way.
fn endpoint(server: &GuardedUrl, what: &'static str, url: &str) -> Result<GuardedUrl, OAuthError> {
    let blocked = |reason| OAuthError::Blocked { what, reason };
    let endpoint = server.related(url).map_err(blocked)?;
    if endpoint.is_private() {
        return Ok(endpoint);
    }
    Err(OAuthError::Insecure {
        what,
        url: endpoint.to_string(),
    })
}
