//! From a challenge to an authorization URL, or to tokens where no user is needed.

use std::cell::RefCell;
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use serde_json::json;

use super::authorization_url::AuthorizationUrl;
use super::client::{AuthMethod, ClientInformation, register};
use super::discovery::discover_preferring;
use super::dpop::DpopKey;
use super::gate::Gate;
use super::grant::Grant;
use super::provider::{OAuthProvider, PendingSignIn, SignInFlow};
use super::scope::{self, OFFLINE};
use super::stored_provider::same_issuer;
use super::token_endpoint::{Request, TokenEndpoint};
use super::tokens::{TokenOrigin, Tokens};
use super::{Challenge, Discovered, Net, OAuthError, endpoint};
use crate::ports::Crypto;
use crate::url_guard::GuardedUrl;

const AUTHORIZATION: &str = "the authorization endpoint";
pub(super) const TOKEN: &str = "the token endpoint";
/// Length of a nonce, and its letters: 126 random bits, none of them a dot.
const NONCE: usize = 21;

/// What came of asking for permission.
#[derive(Debug)]
pub(crate) enum Asked {
    /// There are tokens; they are kept.
    Granted(Rc<Tokens>),
    /// A user must consent. The sign-in is kept.
    User(AuthorizationUrl),
}

/// Who asks, and with what.
pub(crate) struct Asker<'a> {
    pub(crate) net: Net,
    pub(crate) crypto: &'a dyn Crypto,
    pub(crate) provider: Rc<dyn OAuthProvider>,
    /// The server, as a URL that may be requested.
    pub(crate) server: &'a GuardedUrl,
    /// The server's URL as registered.
    pub(crate) server_url: &'a str,
    pub(crate) server_id: &'a str,
    /// The nonces that the authorization server wants to see (RFC 9449).
    pub(crate) nonce: &'a RefCell<Option<String>>,
    /// Whom to pass before anything is stored, and as of when.
    pub(super) gate: &'a Gate,
    pub(super) epoch: u64,
}

impl Asker<'_> {
    /// Asks for permission. `floor` are scopes that must be among those that are asked for.
    pub(crate) fn ask<'a>(
        &'a self,
        challenge: Option<&'a Challenge>,
        floor: Option<&'a str>,
    ) -> LocalBoxFuture<'a, Result<Asked, OAuthError>> {
        async move {
            let settings = self.provider.settings();
            let preferred = match &settings.issuer {
                Some(issuer) => Some(issuer.clone()),
                None => self.provider.known_issuer().await?,
            };
            let preferred = preferred.as_deref();
            let found = discover_preferring(&self.net, self.server, challenge, preferred).await?;
            let grant = self.provider.grant();
            let scope = requested_scope(&found, challenge, settings.scope.as_deref(), floor);
            match grant {
                Grant::AuthorizationCode => {
                    let url = self.begin(&found, challenge, scope).await?;
                    Ok(Asked::User(url))
                }
                Grant::ClientCredentials => self.as_itself(&found, challenge, scope).await,
                Grant::EnterpriseManaged(enterprise) => {
                    self.vouched(&found, challenge, scope, &enterprise).await
                }
                Grant::WorkloadIdentity(source) => {
                    self.vouched_by_platform(&found, challenge, scope, &source)
                        .await
                }
            }
        }
        .boxed_local()
    }

    /// Stores a sign-in and gives the URL for it.
    async fn begin(
        &self,
        found: &Discovered,
        challenge: Option<&Challenge>,
        scope: Option<String>,
    ) -> Result<AuthorizationUrl, OAuthError> {
        let settings = self.provider.settings();
        let redirect_uri = self.provider.redirect_url().ok_or_else(|| {
            OAuthError::InvalidOption(
                "the server wants its user to sign in: give a callback URL to come back to".into(),
            )
        })?;
        let server = &found.server;
        if found.is_published {
            server.check_pkce(settings.allow_missing_pkce)?;
            server.check_code_flow()?;
        }
        let missing = || OAuthError::Unsupported("the authorization code grant".into());
        let authorize = server
            .authorization_endpoint
            .as_deref()
            .ok_or_else(missing)?;
        let authorize = endpoint(self.server, AUTHORIZATION, authorize)?;
        let token_endpoint = server.token_endpoint.clone().ok_or_else(missing)?;
        endpoint(self.server, TOKEN, &token_endpoint)?;
        let dpop = self.wants_dpop(found, challenge)?;
        // A grant that outlives the visit is asked for where the server knows how to say so.
        let offline = scope.is_some() && is_listed(server.scopes_supported.as_deref(), OFFLINE);
        let scope = if offline {
            scope::union([scope.as_deref().unwrap_or_default(), OFFLINE])
        } else {
            scope
        };
        let client = self.client(found, scope.as_deref(), dpop).await?;
        let methods = server.token_endpoint_auth_methods_supported.as_deref();
        let flow = SignInFlow {
            server_url: self.server_url.to_owned(),
            resource_metadata_url: found.resource_metadata_url.clone(),
            issuer: found.issuer.clone(),
            is_published: found.is_published,
            names_issuer: server.authorization_response_iss_parameter_supported,
            token_endpoint,
            revocation_endpoint: server.revocation_endpoint.clone(),
            redirect_uri: redirect_uri.to_owned(),
            auth_method: AuthMethod::choose(&client, methods),
            client,
            resource: self.resource(found),
            scope,
            dpop,
        };
        let now = self.net.clock.now();
        let verifier = random_text(32)?;
        let pending = PendingSignIn {
            nonce: random_text(16)?.chars().take(NONCE).collect(),
            server_id: self.server_id.to_owned(),
            created_at: now,
            verifier,
            flow,
            discovery: Some(discovery_record(found)),
        };
        let _entered = self.gate.enter(self.epoch).await?;
        self.save_candidate(&pending.flow.client).await?;
        self.provider.save_pending(&pending, now).await?;
        Ok(AuthorizationUrl::of(&authorize, &pending))
    }

    /// Where the host has said who gives permission, nobody else is asked.
    pub(super) fn expect_issuer(&self, found: &Discovered) -> Result<(), OAuthError> {
        match self.provider.settings().issuer {
            Some(expected) if !same_issuer(&expected, &found.issuer) => {
                Err(OAuthError::IssuerMismatch {
                    expected,
                    found: found.issuer.clone(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Keeps the client of a sign-in that begins. Not in the place of one that has tokens: that is
    /// used until the new one has some, too.
    async fn save_candidate(&self, client: &ClientInformation) -> Result<(), OAuthError> {
        if client.ours.configured || self.provider.tokens().await?.is_some() {
            return Ok(());
        }
        let mut client = client.clone();
        client.ours.untried = true;
        self.provider.save_client(&client).await
    }

    /// The client to ask as: given, known, by its document, or registered now, in this order
    /// (2026-07-28, client registration).
    async fn client(
        &self,
        found: &Discovered,
        scope: Option<&str>,
        dpop: bool,
    ) -> Result<ClientInformation, OAuthError> {
        let (provider, server) = (&self.provider, &found.server);
        let now = self.net.clock.now();
        let redirect_url = provider.redirect_url();
        let known = {
            let _entered = self.gate.enter(self.epoch).await?;
            provider.client(&found.issuer).await?
        };
        self.expect_issuer(found)?;
        // One with which a sign-in was begun and none has come to an end may be one that the server
        // has forgotten: only the user's browser was told.
        let untried = known.as_ref().filter(|client| client.ours.untried);
        let untried = untried.map(|client| client.client_id.clone());
        let known =
            known.filter(|client| client.is_usable(redirect_url, now) && !client.ours.untried);
        // The same goes for a document, which the server may not be able to read.
        let can_register = server.registration_endpoint.is_some();
        let document = provider.client_metadata_url().filter(|url| {
            server.client_id_metadata_document_supported
                && !(can_register && untried.as_deref() == Some(*url))
        });
        if let Some(known) = known {
            let is_document = document.is_some_and(|url| url == known.client_id);
            let is_of_a_document = Some(known.client_id.as_str()) == provider.client_metadata_url();
            if known.ours.configured || is_document || !is_of_a_document {
                return Ok(known);
            }
        }
        if let Some(document) = document {
            return Ok(ClientInformation {
                issuer: Some(found.issuer.clone()),
                token_endpoint_auth_method: Some(AuthMethod::None.as_str().to_owned()),
                ..ClientInformation::public(document)
            });
        }
        let metadata = provider.client_metadata();
        let registered = register(
            &self.net,
            self.server,
            server,
            found.is_published,
            &metadata,
            scope,
            dpop,
        )
        .await?;
        Ok(ClientInformation {
            issuer: Some(found.issuer.clone()),
            ..registered
        })
    }

    /// Sends a request for tokens and keeps what it brings.
    pub(super) async fn granted(
        &self,
        flow: &SignInFlow,
        client: Option<&ClientInformation>,
        request: Request<'_>,
    ) -> Result<Asked, OAuthError> {
        let tokens = self.request_tokens(flow, client, request).await?;
        let _entered = self.gate.enter(self.epoch).await?;
        self.provider.save_tokens(&tokens).await?;
        Ok(Asked::Granted(Rc::new(tokens)))
    }

    /// Sends a request for tokens. They come stamped with where they are from.
    pub(super) async fn request_tokens(
        &self,
        flow: &SignInFlow,
        client: Option<&ClientInformation>,
        request: Request<'_>,
    ) -> Result<Tokens, OAuthError> {
        let key = if flow.dpop {
            Some(self.dpop_key().await?)
        } else {
            None
        };
        let endpoint = TokenEndpoint {
            net: &self.net,
            crypto: self.crypto,
            what: TOKEN,
            url: &flow.token_endpoint,
            server: self.server,
            issuer: &flow.issuer,
            client,
            method: flow.auth_method,
            resource: flow.resource.as_deref(),
            dpop: key.as_ref().map(|key| (key, self.nonce)),
        };
        let mut tokens = endpoint.tokens(request).await?;
        if key.is_some() && !tokens.is_bound_to_key() && self.provider.settings().dpop == Some(true)
        {
            return Err(OAuthError::Unsupported(
                "DPoP: it issued a token that is bound to no key".into(),
            ));
        }
        if key.is_none() && tokens.is_bound_to_key() {
            return Err(OAuthError::Unusable {
                what: TOKEN,
                url: self
                    .server
                    .related(&flow.token_endpoint)
                    .map_or_else(|_| "(unreadable)".to_owned(), |url| url.to_string()),
                reason: "the token is bound to a key, and none was shown".into(),
            });
        }
        tokens.issuer = Some(flow.issuer.clone());
        let issued = tokens.origin.take().unwrap_or_default();
        tokens.origin = Some(TokenOrigin {
            server_url: self.server_url.to_owned(),
            token_endpoint: flow.token_endpoint.clone(),
            revocation_endpoint: flow.revocation_endpoint.clone(),
            auth_method: flow.auth_method,
            client_id: client
                .map(|client| client.client_id.clone())
                .unwrap_or_default(),
            resource: flow.resource.clone(),
            requested_scope: flow.scope.clone(),
            resource_metadata_url: flow.resource_metadata_url.clone(),
            ..issued
        });
        Ok(tokens)
    }

    /// The key that tokens are bound to; made when it is needed for the first time.
    pub(super) async fn dpop_key(&self) -> Result<DpopKey, OAuthError> {
        let _entered = self.gate.enter(self.epoch).await?;
        if let Some(jwk) = self.provider.dpop_key().await? {
            return DpopKey::from_jwk(&jwk);
        }
        let key = DpopKey::generate(self.crypto).await?;
        self.provider.save_dpop_key(key.to_jwk()).await?;
        Ok(key)
    }

    pub(super) fn resource(&self, found: &Discovered) -> Option<String> {
        let is_left_out =
            found.resource_metadata.is_none() && self.provider.settings().omit_resource;
        (!is_left_out).then(|| found.resource.clone())
    }

    /// Tokens are bound to a key where the server asks for that, or the host does and the
    /// authorization server can. Not wherever an authorization server can: then the server may
    /// know nothing of it.
    pub(super) fn wants_dpop(
        &self,
        found: &Discovered,
        challenge: Option<&Challenge>,
    ) -> Result<bool, OAuthError> {
        let listed = found.server.dpop_signing_alg_values_supported.as_deref();
        let can = is_listed(listed, "ES256");
        let resource = found.resource_metadata.as_ref();
        let is_asked = challenge.is_some_and(Challenge::wants_dpop)
            || resource.is_some_and(|resource| resource.dpop_bound_access_tokens_required);
        match self.provider.settings().dpop {
            Some(true) if !can => Err(OAuthError::Unsupported("DPoP with ES256".into())),
            Some(wanted) => Ok(wanted),
            None => Ok(is_asked && (can || listed.is_none())),
        }
    }
}

fn is_listed(list: Option<&[String]>, name: &str) -> bool {
    list.is_some_and(|list| list.iter().any(|other| other == name))
}

/// What the challenge names, else all that the resource knows, else what the host wishes
/// (2026-07-28, scope selection), with the floor.
fn requested_scope(
    found: &Discovered,
    challenge: Option<&Challenge>,
    wished: Option<&str>,
    floor: Option<&str>,
) -> Option<String> {
    let named = challenge.and_then(|challenge| challenge.scope.as_deref());
    let known = found
        .resource_metadata
        .as_ref()
        .and_then(|resource| resource.scopes_supported.as_deref())
        .and_then(|scopes| scope::union(scopes.iter().map(String::as_str)));
    let selected = named.or(known.as_deref()).or(wished);
    scope::union(floor.into_iter().chain(selected))
}

/// What the TypeScript package keeps of a discovery.
fn discovery_record(found: &Discovered) -> serde_json::Value {
    let mut record = json!({"authorizationServerUrl": found.issuer});
    if let Some(map) = record.as_object_mut() {
        if let Some(url) = &found.resource_metadata_url {
            map.insert("resourceMetadataUrl".into(), url.clone().into());
        }
        if let Some(resource) = &found.resource_metadata {
            map.insert("resourceMetadata".into(), resource.to_json());
        }
        if found.is_published {
            map.insert("authorizationServerMetadata".into(), found.server.to_json());
        }
    }
    record
}

/// Random bytes as text: letters, digits, `-` and `_`.
fn random_text(bytes: usize) -> Result<String, OAuthError> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).map_err(|error| crate::ports::CryptoError(error.to_string()))?;
    Ok(URL_SAFE_NO_PAD.encode(random))
}
