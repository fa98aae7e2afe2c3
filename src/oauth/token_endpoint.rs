//! Requests to token endpoints. Built by the crate `oauth2` where it knows the grant; sent, and read
//! with more patience for what real servers answer, here.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use oauth2::basic::{
    BasicRevocationErrorResponse, BasicTokenIntrospectionResponse, BasicTokenType,
};
use oauth2::{
    AccessToken, AuthType, AuthorizationCode, Client, ClientId, ClientSecret, EndpointNotSet,
    EndpointSet, PkceCodeVerifier, RedirectUrl, RefreshToken, Scope, StandardRevocableToken,
    TokenUrl,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::OAuthError;
use super::client::{AuthMethod, ClientInformation};
use super::dpop::{DpopKey, Proof};
use super::error::one_line;
use super::jwt::{Assertion, client_assertion, signing_key};
use super::net::{Ask, Net, Reply};
use super::tokens::{Tokens, issued, read_answer};
use crate::ports::Crypto;
use crate::url_guard::GuardedUrl;

/// Shorter ones are parts of words.
const MIN_MASKED: usize = 6;
const TIMEOUT: Duration = Duration::from_secs(15);
/// The proof of possession of a request (RFC 9449 §4.1).
pub(crate) const DPOP: HeaderName = HeaderName::from_static("dpop");
/// What a server wants the next proof to contain (RFC 9449 §8).
pub(crate) const DPOP_NONCE: HeaderName = HeaderName::from_static("dpop-nonce");

const JWT_BEARER_CLIENT: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

type TokenClient = Client<
    Unread,
    Unread,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointSet,
>;

/// What `oauth2` reads of an answer: there is none, because that is done here.
#[derive(Debug, Clone)]
enum Unread {}

impl<'de> Deserialize<'de> for Unread {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("not read here"))
    }
}

impl Serialize for Unread {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        match *self {}
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl oauth2::ErrorResponse for Unread {}

impl oauth2::TokenResponse for Unread {
    type TokenType = BasicTokenType;

    fn access_token(&self) -> &AccessToken {
        match *self {}
    }

    fn token_type(&self) -> &BasicTokenType {
        match *self {}
    }

    fn expires_in(&self) -> Option<Duration> {
        match *self {}
    }

    fn refresh_token(&self) -> Option<&RefreshToken> {
        match *self {}
    }

    fn scopes(&self) -> Option<&Vec<Scope>> {
        match *self {}
    }
}

/// A token endpoint, and who asks there.
pub(super) struct TokenEndpoint<'a> {
    pub(super) net: &'a Net,
    pub(super) crypto: &'a dyn Crypto,
    /// What it is called in messages.
    pub(super) what: &'static str,
    /// The endpoint, to the letter.
    pub(super) url: &'a str,
    /// The server that named it.
    pub(super) server: &'a GuardedUrl,
    /// The audience of assertions.
    pub(super) issuer: &'a str,
    pub(super) client: Option<&'a ClientInformation>,
    pub(super) method: AuthMethod,
    /// Sent where it is given (RFC 8707).
    pub(super) resource: Option<&'a str>,
    /// The key that tokens are to be bound to, and the nonce that the server wants to see.
    pub(super) dpop: Option<(&'a DpopKey, &'a RefCell<Option<String>>)>,
}

/// What is asked for.
#[derive(Clone, Copy)]
pub(super) enum Request<'a> {
    Code {
        code: &'a str,
        verifier: &'a str,
        redirect_uri: &'a str,
    },
    Refresh(&'a str),
    ClientCredentials {
        scope: Option<&'a str>,
    },
    /// Any other grant, with all its parameters.
    Other(&'a [(&'static str, String)]),
}

/// The answer that `oauth2` gets to any request: it only builds them.
#[derive(Debug, thiserror::Error)]
#[error("not sent")]
struct NotSent;

impl TokenEndpoint<'_> {
    /// Asks for tokens. A demand for a nonce is met once.
    pub(super) async fn tokens(&self, request: Request<'_>) -> Result<Tokens, OAuthError> {
        let answer = self.answer(request).await?;
        issued(&answer, self.net.clock.now()).map_err(|reason| self.unusable(reason))
    }

    /// As [`tokens`](Self::tokens), with the answer as it came.
    pub(super) async fn answer(
        &self,
        request: Request<'_>,
    ) -> Result<Map<String, Value>, OAuthError> {
        let demanded = Cell::new(false);
        let outcome = self.attempt(request, &demanded).await;
        if outcome.is_err() && demanded.get() {
            return self.attempt(request, &Cell::new(false)).await;
        }
        outcome
    }

    fn attempt<'a>(
        &'a self,
        request: Request<'a>,
        demanded: &'a Cell<bool>,
    ) -> LocalBoxFuture<'a, Result<Map<String, Value>, OAuthError>> {
        async move {
            let url = super::endpoint(self.server, self.what, self.url)?;
            let assertion = self.assertion().await?;
            let resource = self.resource.map(|resource| ("resource", resource));
            let extra: Vec<(&'static str, &str)> = assertion
                .iter()
                .flat_map(|assertion| {
                    [
                        ("client_assertion_type", JWT_BEARER_CLIENT),
                        ("client_assertion", assertion.as_str()),
                    ]
                })
                .chain(resource)
                .collect();
            let secrets = self.secrets(request);
            let built = Cell::new(None);
            let keep = |request: oauth2::HttpRequest| {
                built.set(Some(request));
                Err::<oauth2::HttpResponse, _>(NotSent)
            };
            let broken = |_| self.unusable("it is not a URL".into());
            let client = self.oauth2_client()?;
            // It builds the request, and does not get the answer.
            match request {
                Request::Code {
                    code,
                    verifier,
                    redirect_uri,
                } => {
                    let redirect = RedirectUrl::new(redirect_uri.to_owned()).map_err(broken)?;
                    let mut request = client
                        .exchange_code(AuthorizationCode::new(code.to_owned()))
                        .set_pkce_verifier(PkceCodeVerifier::new(verifier.to_owned()))
                        .set_redirect_uri(Cow::Owned(redirect));
                    for (name, value) in extra {
                        request = request.add_extra_param(name, value.to_owned());
                    }
                    let _ = request.request(&keep);
                }
                Request::Refresh(token) => {
                    let token = RefreshToken::new(token.to_owned());
                    let mut request = client.exchange_refresh_token(&token);
                    for (name, value) in extra {
                        request = request.add_extra_param(name, value.to_owned());
                    }
                    let _ = request.request(&keep);
                }
                Request::ClientCredentials { scope } => {
                    let words = scope.into_iter().flat_map(str::split_ascii_whitespace);
                    let mut request = client
                        .exchange_client_credentials()
                        .add_scopes(words.map(|word| Scope::new(word.to_owned())));
                    for (name, value) in extra {
                        request = request.add_extra_param(name, value.to_owned());
                    }
                    let _ = request.request(&keep);
                }
                Request::Other(parameters) => {
                    let parameters = parameters.iter();
                    let parameters = parameters.map(|(name, value)| (*name, value.as_str()));
                    let parameters: Vec<_> = parameters.chain(extra).collect();
                    built.set(Some(self.form(&parameters)?));
                }
            }
            let request = built
                .take()
                .ok_or_else(|| self.unusable("the request could not be built".into()))?;
            self.send(&url, request, &secrets, demanded).await
        }
        .boxed_local()
    }

    /// A fresh one for each attempt: servers take each once.
    fn assertion(&self) -> LocalBoxFuture<'_, Result<Option<String>, OAuthError>> {
        async move {
            let client = self
                .client
                .filter(|_| self.method == AuthMethod::PrivateKeyJwt);
            let Some((client, key)) = client.and_then(|client| {
                let key = client.ours.private_key.as_deref()?;
                Some((client, key))
            }) else {
                return Ok(None);
            };
            let key = signing_key(key, client.ours.signing_algorithm.as_deref())?;
            let claims = Assertion {
                client_id: &client.client_id,
                audience: self.issuer,
                now: self.net.clock.now(),
                key_id: None,
            };
            client_assertion(self.crypto, &key, claims).await.map(Some)
        }
        .boxed_local()
    }

    fn oauth2_client(&self) -> Result<TokenClient, OAuthError> {
        let id = self.client.map(|client| client.client_id.clone());
        let auth_type = match self.method {
            AuthMethod::SecretBasic => AuthType::BasicAuth,
            AuthMethod::None | AuthMethod::SecretPost | AuthMethod::PrivateKeyJwt => {
                AuthType::RequestBody
            }
        };
        let url = TokenUrl::new(self.url.to_owned())
            .map_err(|_| self.unusable("it is not a URL".into()))?;
        let client = Client::new(ClientId::new(id.unwrap_or_default()))
            .set_token_uri(url)
            .set_auth_type(auth_type);
        Ok(match self.secret() {
            Some(secret) => client.set_client_secret(ClientSecret::new(secret.to_owned())),
            None => client,
        })
    }

    fn secret(&self) -> Option<&str> {
        let uses_secret = matches!(
            self.method,
            AuthMethod::SecretBasic | AuthMethod::SecretPost
        );
        self.client
            .filter(|_| uses_secret)?
            .client_secret
            .as_deref()
    }

    /// A request of a grant that `oauth2` does not know. Authentication is added as it adds it.
    fn form(&self, parameters: &[(&'static str, &str)]) -> Result<oauth2::HttpRequest, OAuthError> {
        use base64::Engine as _;
        use base64::engine::general_purpose::STANDARD;
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(parameters);
        let mut request = http::Request::builder().method(Method::POST).uri(self.url);
        let encode =
            |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        match (self.client, self.secret()) {
            (Some(client), Some(secret)) if self.method == AuthMethod::SecretBasic => {
                let pair = format!("{}:{}", encode(&client.client_id), encode(secret));
                let value = format!("Basic {}", STANDARD.encode(pair));
                request = request.header(http::header::AUTHORIZATION, value);
            }
            (Some(client), secret) => {
                form.append_pair("client_id", &client.client_id);
                if let Some(secret) = secret {
                    form.append_pair("client_secret", secret);
                }
            }
            (None, _) => {}
        }
        request
            .header(http::header::ACCEPT, "application/json")
            .header(
                http::header::CONTENT_TYPE,
                "application/x-www-form-urlencoded",
            )
            .body(form.finish().into_bytes())
            .map_err(|_| self.unusable("the request could not be built".into()))
    }

    /// Sends a request, and reads the answer as far as it is no error.
    async fn send(
        &self,
        url: &GuardedUrl,
        request: oauth2::HttpRequest,
        secrets: &[&str],
        demanded: &Cell<bool>,
    ) -> Result<Map<String, Value>, OAuthError> {
        let (parts, body) = request.into_parts();
        let mut headers: HeaderMap = parts.headers;
        for (_, value) in &mut headers {
            value.set_sensitive(true);
        }
        if let Some((key, nonce)) = self.dpop {
            let nonce = nonce.borrow().clone();
            let proof = Proof {
                method: "POST",
                url,
                now: self.net.clock.now(),
                nonce: nonce.as_deref(),
                access_token: None,
            };
            let proof = key.proof(self.crypto, proof).await?;
            if let Ok(proof) = HeaderValue::from_str(&proof) {
                headers.insert(DPOP, proof);
            }
        }
        let body = String::from_utf8(body)
            .map_err(|_| self.unusable("the request could not be built".into()))?;
        let reply = self
            .net
            .ask(Ask {
                what: self.what,
                method: Method::POST,
                url,
                headers,
                body: Some(&body),
                timeout: TIMEOUT,
            })
            .await?;
        if let (Some((_, nonce)), Some(value)) = (self.dpop, reply.headers.get(DPOP_NONCE)) {
            nonce.replace(value.to_str().ok().map(str::to_owned));
        }
        self.read(&reply, secrets).inspect_err(|error| {
            let code = match error {
                OAuthError::Refused { code, .. } => code.as_str(),
                _ => "",
            };
            demanded.set(code == "use_dpop_nonce" && self.dpop.is_some());
        })
    }

    /// What of a request must not come back in a text.
    fn secrets<'s>(&'s self, request: Request<'s>) -> Vec<&'s str> {
        let mut secrets: Vec<&str> = self.secret().into_iter().collect();
        match request {
            Request::Code { code, verifier, .. } => secrets.extend([code, verifier]),
            Request::Refresh(token) => secrets.push(token),
            Request::ClientCredentials { .. } => {}
            Request::Other(parameters) => {
                let is_secret =
                    |name: &str| matches!(name, "assertion" | "subject_token" | "token");
                let values = parameters.iter().filter(|(name, _)| is_secret(name));
                secrets.extend(values.map(|(_, value)| value.as_str()));
            }
        }
        secrets.retain(|secret| secret.len() >= MIN_MASKED);
        secrets
    }

    fn read(&self, reply: &Reply, secrets: &[&str]) -> Result<Map<String, Value>, OAuthError> {
        let answer = read_answer(&reply.media_type(), &reply.body);
        let member = |answer: &Map<String, Value>, name: &str| {
            let value = answer.get(name).and_then(Value::as_str)?;
            let masked = secrets.iter().fold(value.to_owned(), |text, secret| {
                text.replace(secret, "[secret]")
            });
            Some(one_line(&masked))
        };
        // Some answer errors with 200.
        let refusal = answer.as_ref().ok().and_then(|answer| {
            let is_refusal = !reply.is_success() || !answer.contains_key("access_token");
            Some(OAuthError::Refused {
                code: member(answer, "error").filter(|_| is_refusal)?,
                description: member(answer, "error_description"),
            })
        });
        match (refusal, answer) {
            // Behind a gateway in trouble there is nobody who could refuse.
            (Some(refusal), _) if reply.status < 500 || refusal.is_transient() => Err(refusal),
            (None, Ok(answer)) if reply.is_success() => Ok(answer),
            (None, Err(reason)) if reply.is_success() => Err(self.unusable(reason)),
            _ => Err(OAuthError::Status {
                what: self.what,
                url: self.shown(),
                status: reply.status,
                retry_after: reply.retry_after(),
            }),
        }
    }

    fn unusable(&self, reason: String) -> OAuthError {
        OAuthError::Unusable {
            what: self.what,
            url: self.shown(),
            reason,
        }
    }

    fn shown(&self) -> String {
        match self.server.related(self.url) {
            Ok(url) => url.to_string(),
            Err(_) => "(unreadable)".to_owned(),
        }
    }

    /// Takes a token back (RFC 7009). `endpoint` is the revocation endpoint.
    pub(super) fn revoke<'a>(
        &'a self,
        token: &'a str,
        hint: &'static str,
    ) -> LocalBoxFuture<'a, Result<(), OAuthError>> {
        async move {
            let url = super::endpoint(self.server, self.what, self.url)?;
            let assertion = self.assertion().await?;
            let mut parameters = vec![("token", token), ("token_type_hint", hint)];
            if let Some(assertion) = &assertion {
                parameters.push(("client_assertion_type", JWT_BEARER_CLIENT));
                parameters.push(("client_assertion", assertion));
            }
            // The crate refuses revocation without https, which servers under development do without.
            let request = self.form(&parameters)?;
            self.send_revocation(&url, request).await
        }
        .boxed_local()
    }

    async fn send_revocation(
        &self,
        url: &GuardedUrl,
        request: oauth2::HttpRequest,
    ) -> Result<(), OAuthError> {
        let (parts, body) = request.into_parts();
        let body = String::from_utf8_lossy(&body).into_owned();
        let reply = self
            .net
            .ask(Ask {
                what: self.what,
                method: Method::POST,
                url,
                headers: parts.headers,
                body: Some(&body),
                timeout: TIMEOUT,
            })
            .await?;
        if reply.is_success() {
            return Ok(());
        }
        self.read(&reply, &[]).map(drop)
    }
}

impl fmt::Debug for TokenEndpoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenEndpoint").finish_non_exhaustive()
    }
}
