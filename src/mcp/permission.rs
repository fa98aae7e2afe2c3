//! The tokens of a server, shown with every request to it.

use std::rc::Rc;

use async_trait::async_trait;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method};

use crate::oauth::{Authorizer, Challenge, DPOP, DPOP_NONCE, OAuthError, Refused};
use crate::transport::{Permission, PermissionError, Ticket, Verdict};
use crate::url_guard::GuardedUrl;

pub(super) struct Tokens(pub(super) Rc<Authorizer>);

#[async_trait(?Send)]
impl Permission for Tokens {
    async fn apply(
        &self,
        method: &Method,
        url: &GuardedUrl,
        headers: &mut HeaderMap,
    ) -> Result<Ticket, PermissionError> {
        let Some(tokens) = self.0.current().await.map_err(refused)? else {
            return Ok(Ticket::default());
        };
        let token = &*tokens.access_token;
        let is_bound = tokens.is_bound_to_key();
        let scheme = if is_bound { "DPoP" } else { "Bearer" };
        let mut value = HeaderValue::from_str(&format!("{scheme} {token}")).map_err(|_| {
            PermissionError::new("the access token fits into no header".into(), false, None)
        })?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
        headers.remove(DPOP);
        if is_bound {
            let proof = self.0.proof(method, url, token).await.map_err(refused)?;
            if let Ok(proof) = HeaderValue::from_str(&proof) {
                headers.insert(DPOP, proof);
            }
        }
        Ok(Ticket(Some(token.into())))
    }

    fn heard(&self, ticket: &Ticket, status: u16, headers: &HeaderMap) {
        // A redirect has not looked at it.
        if status != 401 && !(300..400).contains(&status) {
            self.0.accepted(ticket.0.as_deref());
        }
        let nonce = headers
            .get(DPOP_NONCE)
            .and_then(|value| value.to_str().ok());
        if let Some(nonce) = nonce {
            self.0.note_nonce(nonce);
        }
    }

    async fn refused(
        &self,
        ticket: &Ticket,
        headers: &HeaderMap,
        may_renew: bool,
    ) -> Result<Verdict, PermissionError> {
        let challenge = challenge_of(headers);
        let wants_nonce = challenge.as_ref().is_some_and(Challenge::is_use_dpop_nonce);
        if wants_nonce && ticket.0.is_some() && headers.contains_key(DPOP_NONCE) {
            return Ok(Verdict::Reformed);
        }
        if !may_renew {
            return Ok(Verdict::Final);
        }
        let outcome = self.0.refused(ticket.0.as_deref(), challenge.as_ref());
        Ok(match outcome.await.map_err(refused)? {
            Refused::Again => Verdict::Again,
            Refused::Final => Verdict::Final,
        })
    }
}

fn challenge_of(headers: &HeaderMap) -> Option<Challenge> {
    let values: Vec<&str> = headers
        .get_all(WWW_AUTHENTICATE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    Challenge::parse(&values.join(", "))
}

#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
fn refused(error: OAuthError) -> PermissionError {
    PermissionError::new(error.to_string(), error.is_transient(), error.retry_after())
}
