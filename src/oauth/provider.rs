//! What a host can bring of its own: [`OAuthProvider`].

use std::fmt;
use std::rc::Rc;

use async_trait::async_trait;
use serde_json::Value;

use super::OAuthError;
use super::client::{AuthMethod, ClientInformation, ClientMetadata};
use super::grant::Grant;
use super::record::record;
use super::tokens::Tokens;
use crate::ports::{Http, Timestamp};

/// How long a sign-in may take, in milliseconds: ten minutes.
pub const SIGN_IN_LIFETIME: Timestamp = 600_000;

/// Keeps who we are to the authorization server of one MCP server, and what it has granted.
///
/// State against forgery, PKCE, issuer checks, refreshes and single flight are not its business:
/// they are done with whatever it brings. [`StoredOAuthProvider`](super::StoredOAuthProvider) is the
/// default and has settings for most wishes; implement the trait to keep things elsewhere.
///
/// One provider serves one server of one object.
#[async_trait(?Send)]
pub trait OAuthProvider {
    /// Where the user comes back to. `None` where no user takes part.
    fn redirect_url(&self) -> Option<&str>;

    /// What the client says about itself.
    fn client_metadata(&self) -> ClientMetadata;

    /// Where the document about the client is published, if it is: then it is the client's id
    /// wherever servers take such.
    fn client_metadata_url(&self) -> Option<&str> {
        None
    }

    /// How tokens are got.
    fn grant(&self) -> Grant {
        Grant::AuthorizationCode
    }

    /// Further wishes.
    fn settings(&self) -> OAuthSettings {
        OAuthSettings::default()
    }

    /// What sends the requests to authorization servers, in place of `fetch`: a binding with a
    /// client certificate, for one.
    fn http(&self) -> Option<Rc<dyn Http>> {
        None
    }

    /// The id of the client that is in use, to be found again after a wake.
    fn client_id(&self) -> Option<String>;

    /// The issuer of what there is, preferred where a server names several.
    async fn known_issuer(&self) -> Result<Option<String>, OAuthError> {
        let tokens = self.tokens().await?;
        Ok(tokens.and_then(|tokens| tokens.issuer))
    }

    /// The client that `issuer` knows. One of another issuer counts as absent.
    ///
    /// # Errors
    /// [`OAuthError::ConfiguredClient`] when the host has given a client that belongs to another
    /// issuer; storage errors.
    async fn client(&self, issuer: &str) -> Result<Option<ClientInformation>, OAuthError>;

    /// Keeps a client, which becomes the one in use. Its `issuer` is set.
    async fn save_client(&self, client: &ClientInformation) -> Result<(), OAuthError>;

    /// The tokens of the client in use.
    async fn tokens(&self) -> Result<Option<Tokens>, OAuthError>;

    /// Keeps tokens, in place of earlier ones.
    async fn save_tokens(&self, tokens: &Tokens) -> Result<(), OAuthError>;

    /// Keeps a sign-in that has begun, and sweeps those whose time is over at `now`.
    async fn save_pending(&self, pending: &PendingSignIn, now: Timestamp)
    -> Result<(), OAuthError>;

    /// Looks at a sign-in without using it up.
    async fn pending(&self, nonce: &str) -> Result<Option<PendingSignIn>, OAuthError>;

    /// Uses a sign-in up. Of several who try, one gets it.
    async fn take_pending(
        &self,
        nonce: &str,
        now: Timestamp,
    ) -> Result<Option<PendingSignIn>, OAuthError>;

    /// Notes that a sign-in that was used up has succeeded.
    async fn save_success(&self, nonce: &str, now: Timestamp) -> Result<(), OAuthError>;

    /// What became of a sign-in that was used up lately: then its callback is a repetition.
    async fn used(&self, nonce: &str) -> Result<Option<Used>, OAuthError>;

    /// The key that tokens are bound to, as a JWK, once there is one (RFC 9449).
    async fn dpop_key(&self) -> Result<Option<String>, OAuthError>;

    /// Keeps that key.
    async fn save_dpop_key(&self, jwk: &str) -> Result<(), OAuthError>;

    /// Forgets.
    async fn invalidate(&self, what: Credentials) -> Result<(), OAuthError>;
}

/// What became of a sign-in that was used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Used {
    /// The user was signed in.
    Successfully,
    /// The user was not, or that is unknown.
    InVain,
}

/// What to forget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credentials {
    /// The client in use, unless the host has given it.
    Client,
    /// The tokens of the client in use.
    Tokens,
    /// Sign-ins that have begun.
    Attempts,
    /// Tokens, sign-ins that have begun, keys, and the client unless the host has given it.
    SignIn,
    /// Everything: the server is removed.
    All,
}

/// Wishes about how permission is got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OAuthSettings {
    /// The scopes to ask for where the server names none, separated by blanks.
    pub scope: Option<String>,
    /// The issuer that a configured client belongs to. Without it, the first that the server names.
    pub issuer: Option<String>,
    /// Whether tokens are bound to a key (RFC 9449). Default: where the server asks for it.
    pub dpop: Option<bool>,
    /// Whether to go on where an authorization server does not say that it supports PKCE, which
    /// servers of before 2025-11-25 need. S256 is used all the same. Default: no, as 2025-11-25
    /// demands.
    pub allow_missing_pkce: bool,
    /// Whether to leave `resource` out where the server publishes no resource metadata, for old
    /// servers that refuse parameters they do not know.
    pub omit_resource: bool,
}

/// A sign-in that has begun: all that must be known when the user comes back. Secret.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct PendingSignIn {
    /// What its `state` begins with. 126 random bits.
    pub nonce: String,
    /// The server, as in `state`.
    pub server_id: String,
    /// When it began.
    pub created_at: Timestamp,
    /// The PKCE verifier.
    pub verifier: String,
    /// The rest.
    pub flow: SignInFlow,
    /// What was discovered, in the form of the TypeScript package. For storage only.
    pub discovery: Option<Value>,
}

/// Who was asked, as whom and for what. Secret.
#[derive(Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct SignInFlow {
    /// The server that it is for, to the letter.
    pub server_url: String,
    /// The issuer, to the letter.
    pub issuer: String,
    /// Whether it publishes metadata, so that its name was checked.
    pub is_published: bool,
    /// Whether its callbacks name it (RFC 9207).
    pub names_issuer: bool,
    /// Where the code goes, and nowhere else.
    pub token_endpoint: String,
    /// Who takes tokens back.
    pub revocation_endpoint: Option<String>,
    /// Where the user comes back to.
    pub redirect_uri: String,
    /// The client.
    pub client: ClientInformation,
    /// How it authenticates.
    pub auth_method: AuthMethod,
    /// The `resource` that was asked for.
    pub resource: Option<String>,
    /// The scopes that were asked for.
    pub scope: Option<String>,
    /// Where the resource metadata was found, if it was.
    pub resource_metadata_url: Option<String>,
    /// Whether tokens are to be bound to a key.
    pub dpop: bool,
}

record! { OAuthSettings {
    scope: "scope",
    issuer: "issuer",
    dpop: "dpop",
    allow_missing_pkce: "allowMissingPkce",
    omit_resource: "omitResource",
}}

record! { SignInFlow {
    server_url: "serverUrl",
    issuer: "issuer",
    is_published: "isPublished",
    names_issuer: "namesIssuer",
    token_endpoint: "tokenEndpoint",
    revocation_endpoint: "revocationEndpoint",
    redirect_uri: "redirectUri",
    client: "client",
    auth_method: "authMethod",
    resource: "resource",
    scope: "scope",
    resource_metadata_url: "resourceMetadataUrl",
    dpop: "dpop",
}}

impl PendingSignIn {
    /// Whether its time is over. Exactly ten minutes are still in time.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now.saturating_sub(self.created_at) > SIGN_IN_LIFETIME
    }

    /// The `state` parameter.
    pub fn state(&self) -> String {
        format!("{}.{}", self.nonce, self.server_id)
    }
}

impl fmt::Debug for PendingSignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingSignIn")
            .field("server_id", &self.server_id)
            .field("created_at", &self.created_at)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SignInFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignInFlow")
            .field("issuer", &self.issuer)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}
