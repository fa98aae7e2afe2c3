//! Getting tokens without a user: as the client itself, or vouched for by somebody.

use super::client::AuthMethod;
use super::grant::{AssertionSource, Audience, EnterpriseManaged};
use super::provider::SignInFlow;
use super::sign_in::{Asked, Asker};
use super::token_endpoint::{Request, TokenEndpoint};
use super::{Challenge, Discovered, OAuthError, endpoint};

const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";

impl Asker<'_> {
    pub(super) async fn as_itself(
        &self,
        found: &Discovered,
        challenge: Option<&Challenge>,
        scope: Option<String>,
    ) -> Result<Asked, OAuthError> {
        let flow = self.flow_of_given_client(found, challenge, scope).await?;
        let request = Request::ClientCredentials {
            scope: flow.scope.as_deref(),
        };
        self.granted(&flow, Some(&flow.client), request).await
    }

    pub(super) async fn vouched(
        &self,
        found: &Discovered,
        challenge: Option<&Challenge>,
        scope: Option<String>,
        enterprise: &EnterpriseManaged,
    ) -> Result<Asked, OAuthError> {
        let flow = self.flow_of_given_client(found, challenge, scope).await?;
        let for_whom = audience(found)?;
        let resource = for_whom.resource.clone();
        let id_token = enterprise.id_token.get(for_whom).await?;
        let mut parameters = vec![
            ("grant_type", TOKEN_EXCHANGE.to_owned()),
            ("requested_token_type", ID_JAG.to_owned()),
            ("audience", found.issuer.clone()),
            ("resource", resource),
            ("subject_token", id_token),
            ("subject_token_type", ID_TOKEN.to_owned()),
        ];
        if let Some(scope) = &flow.scope {
            parameters.push(("scope", scope.clone()));
        }
        let what = "the identity provider";
        let at = endpoint(self.server, what, &enterprise.token_endpoint)?;
        let provider = TokenEndpoint {
            net: &self.net,
            crypto: self.crypto,
            what,
            url: &enterprise.token_endpoint,
            server: &at,
            issuer: &enterprise.token_endpoint,
            client: Some(&enterprise.client),
            method: AuthMethod::choose(&enterprise.client, None),
            resource: None,
            dpop: None,
        };
        let answer = provider.answer(Request::Other(&parameters)).await?;
        let jag = answer.get("access_token").and_then(|token| token.as_str());
        let jag = jag.ok_or_else(|| OAuthError::Unusable {
            what,
            url: at.to_string(),
            reason: "the answer has no access_token".into(),
        })?;
        let parameters = assertion_grant(jag.to_owned(), flow.scope.as_deref());
        let request = Request::Other(&parameters);
        self.granted(&flow, Some(&flow.client), request).await
    }

    pub(super) async fn vouched_by_platform(
        &self,
        found: &Discovered,
        challenge: Option<&Challenge>,
        scope: Option<String>,
        source: &AssertionSource,
    ) -> Result<Asked, OAuthError> {
        self.expect_issuer(found)?;
        let assertion = source.get(audience(found)?).await?;
        let parameters = assertion_grant(assertion, scope.as_deref());
        let flow = self.flow_without_client(found, challenge, scope)?;
        let request = Request::Other(&parameters);
        self.granted(&flow, None, request).await
    }

    /// For grants that need a client which the host has given.
    async fn flow_of_given_client(
        &self,
        found: &Discovered,
        challenge: Option<&Challenge>,
        scope: Option<String>,
    ) -> Result<SignInFlow, OAuthError> {
        let client = {
            // It may be bound to its issuer only now, which is stored.
            let _entered = self.gate.enter(self.epoch).await?;
            self.provider.client(&found.issuer).await?
        };
        let client = client.ok_or(OAuthError::NoClient)?;
        let flow = self.flow_without_client(found, challenge, scope)?;
        let methods = found
            .server
            .token_endpoint_auth_methods_supported
            .as_deref();
        Ok(SignInFlow {
            auth_method: AuthMethod::choose(&client, methods),
            client,
            ..flow
        })
    }

    fn flow_without_client(
        &self,
        found: &Discovered,
        challenge: Option<&Challenge>,
        scope: Option<String>,
    ) -> Result<SignInFlow, OAuthError> {
        let server = &found.server;
        let token_endpoint = server.token_endpoint.clone();
        Ok(SignInFlow {
            server_url: self.server_url.to_owned(),
            resource_metadata_url: found.resource_metadata_url.clone(),
            issuer: found.issuer.clone(),
            is_published: found.is_published,
            token_endpoint: token_endpoint
                .ok_or_else(|| OAuthError::Unsupported("a token endpoint".into()))?,
            revocation_endpoint: server.revocation_endpoint.clone(),
            resource: self.resource(found),
            scope,
            dpop: self.wants_dpop(found, challenge)?,
            ..SignInFlow::default()
        })
    }
}

fn audience(found: &Discovered) -> Result<Audience, OAuthError> {
    let token_endpoint = found.server.token_endpoint.clone();
    Ok(Audience {
        issuer: found.issuer.clone(),
        token_endpoint: token_endpoint
            .ok_or_else(|| OAuthError::Unsupported("a token endpoint".into()))?,
        resource: found.resource.clone(),
    })
}

fn assertion_grant(assertion: String, scope: Option<&str>) -> Vec<(&'static str, String)> {
    let mut parameters = vec![
        ("grant_type", JWT_BEARER.to_owned()),
        ("assertion", assertion),
    ];
    if let Some(scope) = scope {
        parameters.push(("scope", scope.to_owned()));
    }
    parameters
}
