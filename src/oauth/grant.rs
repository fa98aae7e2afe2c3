//! How tokens are got: from a user, or without one.

use std::fmt;
use std::rc::Rc;

use futures::future::LocalBoxFuture;

use super::OAuthError;
use super::client::ClientInformation;

/// How tokens are got.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Grant {
    /// A user consents, in a browser.
    #[default]
    AuthorizationCode,
    /// The client is somebody by itself
    /// (extension `io.modelcontextprotocol/oauth-client-credentials`).
    ClientCredentials,
    /// An identity provider vouches for a user who is signed in there
    /// (extension `io.modelcontextprotocol/enterprise-managed-authorization`).
    EnterpriseManaged(Rc<EnterpriseManaged>),
    /// The platform vouches for the workload (SEP-1933). No client is needed.
    WorkloadIdentity(AssertionSource),
}

/// Where an enterprise's users sign in, and as whom.
#[derive(Clone)]
pub struct EnterpriseManaged {
    /// The identity provider's token endpoint.
    pub token_endpoint: String,
    /// The client there, which is another one than at the server's authorization server.
    pub client: ClientInformation,
    /// Gives the user's ID token, asked for anew each time.
    pub id_token: AssertionSource,
}

/// For whom an assertion is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audience {
    /// The authorization server.
    pub issuer: String,
    /// Its token endpoint.
    pub token_endpoint: String,
    /// The resource that the token will be for.
    pub resource: String,
}

type Source = dyn Fn(Audience) -> LocalBoxFuture<'static, Result<String, OAuthError>>;

/// Gives an assertion for an audience: from a file, a metadata service, a binding. Called anew for
/// each token, because assertions are short-lived.
#[derive(Clone)]
pub struct AssertionSource(Rc<Source>);

impl AssertionSource {
    /// A source.
    pub fn new<F>(source: impl Fn(Audience) -> F + 'static) -> Self
    where
        F: Future<Output = Result<String, OAuthError>> + 'static,
    {
        Self(Rc::new(move |audience| Box::pin(source(audience))))
    }

    /// The same assertion each time.
    pub fn fixed(assertion: impl Into<String>) -> Self {
        let assertion = assertion.into();
        Self::new(move |_| futures::future::ready(Ok(assertion.clone())))
    }

    pub(super) async fn get(&self, audience: Audience) -> Result<String, OAuthError> {
        (self.0)(audience).await
    }
}

impl Grant {
    /// Whether a user takes part.
    pub fn needs_user(&self) -> bool {
        matches!(self, Self::AuthorizationCode)
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AuthorizationCode => "AuthorizationCode",
            Self::ClientCredentials => "ClientCredentials",
            Self::EnterpriseManaged(_) => "EnterpriseManaged(..)",
            Self::WorkloadIdentity(_) => "WorkloadIdentity(..)",
        })
    }
}

impl fmt::Debug for EnterpriseManaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnterpriseManaged")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for AssertionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AssertionSource(..)")
    }
}
