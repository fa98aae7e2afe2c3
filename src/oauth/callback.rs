//! The user comes back.

use std::fmt;
use std::time::Duration;

use url::Url;

use super::OAuthError;
use super::client::ClientInformation;
use super::error::one_line;
use super::provider::{Credentials, PendingSignIn};
use super::sign_in::Asker;
use super::token_endpoint::Request;
use super::tokens::Tokens;

/// The pause before the one repetition of an exchange that a gateway has turned away.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest parameter that is read, in bytes.
const MAX_PARAMETER: usize = 8 << 10;

/// What a callback's URL says. Secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CallbackQuery {
    /// The first part of `state`.
    pub nonce: String,
    /// The second part.
    pub server_id: String,
    /// The code to exchange.
    pub code: Option<String>,
    /// Why there is none.
    pub error: Option<String>,
    /// What the authorization server says beyond that.
    pub error_description: Option<String>,
    /// Who it says it is.
    pub issuer: Option<String>,
    /// Whether a parameter that may come once came more often.
    pub is_ambiguous: bool,
}

impl CallbackQuery {
    /// Reads the query of a URL. `None` where there is no `state` of the form
    /// `<nonce>.<server id>`.
    pub fn read(url: &Url) -> Option<Self> {
        let mut query = Self::default();
        let mut state = None;
        for (name, value) in url.query_pairs() {
            let slot = match &*name {
                "state" => &mut state,
                "code" => &mut query.code,
                "error" => &mut query.error,
                "error_description" => &mut query.error_description,
                "iss" => &mut query.issuer,
                _ => continue,
            };
            // What is empty says nothing.
            if value.is_empty() && name != "state" {
                continue;
            }
            if slot.is_some() || value.len() > MAX_PARAMETER {
                query.is_ambiguous = true;
                continue;
            }
            *slot = Some(value.into_owned());
        }
        let state = state?;
        // A nonce has no dot; an id may have.
        let (nonce, server_id) = state.split_once('.')?;
        if nonce.is_empty() || server_id.is_empty() {
            return None;
        }
        Some(Self {
            nonce: nonce.to_owned(),
            server_id: server_id.to_owned(),
            ..query
        })
    }

    /// What the callback itself says is wrong, in a form that can be shown.
    fn refusal(&self) -> Option<OAuthError> {
        Some(OAuthError::Refused {
            code: one_line(self.error.as_deref()?),
            description: self.error_description.as_deref().map(one_line),
        })
    }
}

impl fmt::Debug for CallbackQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackQuery")
            .field("server_id", &self.server_id)
            .field("has_code", &self.code.is_some())
            .finish_non_exhaustive()
    }
}

/// Checks that the callback comes from who was asked, before anything in it counts (RFC 9207 §2.4;
/// 2026-07-28, authorization: the table). Texts are compared, not URLs.
pub(crate) fn check_issuer(
    pending: &PendingSignIn,
    query: &CallbackQuery,
) -> Result<(), OAuthError> {
    let flow = &pending.flow;
    if query.is_ambiguous {
        return Err(OAuthError::SignInOver(
            "the answer of the authorization server cannot be read: start again",
        ));
    }
    match &query.issuer {
        Some(found) if *found != flow.issuer => Err(OAuthError::IssuerMismatch {
            expected: flow.issuer.clone(),
            found: one_line(found),
        }),
        None if flow.names_issuer => Err(OAuthError::IssuerMismatch {
            expected: flow.issuer.clone(),
            found: "(nobody)".into(),
        }),
        _ => Ok(()),
    }
}

impl Asker<'_> {
    /// Exchanges the code of a sign-in that has been used up. Nothing is kept yet.
    pub(super) async fn exchange(
        &self,
        pending: &PendingSignIn,
        query: &CallbackQuery,
    ) -> Result<(ClientInformation, Tokens), OAuthError> {
        check_issuer(pending, query)?;
        let flow = &pending.flow;
        if let Some(refusal) = query.refusal() {
            let is_verified = query.issuer.is_some() || flow.is_published;
            return Err(if is_verified {
                refusal
            } else {
                // Who knows whose words these are.
                OAuthError::SignInOver("the sign-in failed, and who says so could not be verified")
            });
        }
        let code = query.code.as_deref().ok_or(OAuthError::SignInOver(
            "the answer of the authorization server has neither a code nor an error",
        ))?;
        let request = Request::Code {
            code,
            verifier: &pending.verifier,
            redirect_uri: &flow.redirect_uri,
        };
        let client = Some(&flow.client);
        let mut outcome = self.request_tokens(flow, client, request).await;
        // A gateway has not used the code up. After anything else that is unknown, and codes that
        // come twice cost more than a sign-in.
        if let Err(OAuthError::Status {
            status: 429 | 502..=504,
            ..
        }) = &outcome
        {
            self.net.clock.sleep(PAUSE).await;
            outcome = self.request_tokens(flow, client, request).await;
        }
        let tokens = match outcome {
            Ok(tokens) => tokens,
            Err(error) => return Err(self.exchange_failed(pending, error).await?),
        };
        let mut client = flow.client.clone();
        client.ours.untried = false;
        Ok((client, tokens))
    }

    /// A server that has forgotten the client says so in one of several ways. The next sign-in
    /// registers anew; a client that the host has given stays, and the host is told.
    async fn exchange_failed(
        &self,
        pending: &PendingSignIn,
        error: OAuthError,
    ) -> Result<OAuthError, OAuthError> {
        let OAuthError::Refused { code, description } = &error else {
            return Ok(error);
        };
        let is_about_client = matches!(code.as_str(), "invalid_client" | "unauthorized_client");
        let client = &pending.flow.client;
        if client.ours.configured {
            if !is_about_client {
                return Ok(error);
            }
            return Ok(OAuthError::ConfiguredClient {
                client_id: client.client_id.clone(),
                reason: description.clone().unwrap_or_else(|| code.clone()),
            });
        }
        let _entered = self.gate.enter(self.epoch).await?;
        let is_in_use = self.provider.client_id().as_deref() == Some(&*client.client_id);
        // One that has brought tokens is known.
        let is_untried = self.provider.tokens().await?.is_none();
        if is_in_use && is_untried && (is_about_client || code == "invalid_grant") {
            self.provider.invalidate(Credentials::Client).await?;
        }
        Ok(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oauth::provider::SignInFlow;

    fn read(query: &str) -> Option<CallbackQuery> {
        CallbackQuery::read(&Url::parse(&format!("https://a.example/cb?{query}")).unwrap())
    }

    #[test]
    fn a_callback_is_known_by_its_state() {
        let query = read("state=n-1.my.server&code=c&iss=https%3A%2F%2Fas&x=1").unwrap();
        assert_eq!((&*query.nonce, &*query.server_id), ("n-1", "my.server"));
        assert_eq!(query.issuer.as_deref(), Some("https://as"));
        for none in ["", "code=c", "state=", "state=n", "state=.s", "state=n."] {
            assert_eq!(read(none), None, "{none}");
        }
        assert!(read("state=n.s&iss=a&iss=b").unwrap().is_ambiguous);
        assert!(!format!("{query:?}").contains("n-1"));
    }

    #[test]
    fn ot_23_who_answers_is_compared_to_the_letter() {
        let pending = |names_issuer| PendingSignIn {
            nonce: "n".into(),
            server_id: "s".into(),
            created_at: 0,
            verifier: "v".into(),
            flow: SignInFlow {
                issuer: "https://as.example".into(),
                is_published: true,
                names_issuer,
                ..SignInFlow::default()
            },
            discovery: None,
        };
        for (advertised, issuer, accepted) in [
            (true, Some("https://as.example"), true),
            (true, Some("https://evil.example"), false),
            (true, None, false),
            (false, None, true),
            (false, Some("https://evil.example"), false),
            (false, Some("https://as.example"), true),
            (true, Some("https://as.example/"), false),
            (true, Some("https://AS.example"), false),
            (true, Some("https://as.example:443"), false),
        ] {
            let query = CallbackQuery {
                issuer: issuer.map(str::to_owned),
                ..CallbackQuery::default()
            };
            let outcome = check_issuer(&pending(advertised), &query);
            assert_eq!(outcome.is_ok(), accepted, "{advertised} {issuer:?}");
        }
    }

    #[test]
    fn exactly_ten_minutes_are_in_time() {
        let pending = PendingSignIn {
            nonce: "n".into(),
            server_id: "s".into(),
            created_at: 1_000,
            verifier: "v".into(),
            flow: SignInFlow::default(),
            discovery: None,
        };
        assert!(!pending.is_over(601_000) && pending.is_over(601_001));
    }
}
