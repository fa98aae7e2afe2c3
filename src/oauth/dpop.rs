//! Proofs that a token is used by whom it was given to (`DPoP`, RFC 9449).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use url::Position;

use super::OAuthError;
use super::jwt::{compact, member, part, unique};
use crate::ports::{Crypto, PrivateKey, SigningAlgorithm, SigningKey, Timestamp};
use crate::url_guard::GuardedUrl;

/// The key that tokens are bound to. It is as secret as they are, and without it they are lost.
#[derive(Clone)]
pub struct DpopKey {
    jwk: String,
    signing: SigningKey,
    public: PublicJwk,
}

/// A public key, with its members in the order of RFC 7638 §3.2.
#[derive(Clone, Serialize)]
struct PublicJwk {
    crv: &'static str,
    kty: &'static str,
    x: String,
    y: String,
}

/// The request that a proof is for.
#[derive(Clone, Copy)]
pub struct Proof<'a> {
    /// Its method.
    pub method: &'a str,
    /// Where it goes.
    pub url: &'a GuardedUrl,
    /// The time now.
    pub now: Timestamp,
    /// What the server wants to see in the proof, if it said so (RFC 9449 §8, §9).
    pub nonce: Option<&'a str>,
    /// The token that goes along. Requests to authorization servers have none.
    pub access_token: Option<&'a str>,
}

#[derive(Serialize)]
struct ProofHeader<'a> {
    typ: &'static str,
    alg: &'static str,
    jwk: &'a PublicJwk,
}

#[derive(Serialize)]
struct ProofClaims<'a> {
    jti: String,
    htm: &'a str,
    htu: &'a str,
    iat: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ath: Option<String>,
}

impl DpopKey {
    /// A new key.
    pub async fn generate(crypto: &dyn Crypto) -> Result<Self, OAuthError> {
        Self::from_jwk(&crypto.generate_key().await?)
    }

    /// Reads a private key that [`to_jwk`](Self::to_jwk) has written: a JWK for ES256.
    pub fn from_jwk(text: &str) -> Result<Self, OAuthError> {
        let public = public_jwk(text).ok_or_else(|| {
            OAuthError::InvalidOption("the DPoP key is not a private JWK of the curve P-256".into())
        })?;
        Ok(Self {
            signing: SigningKey {
                algorithm: SigningAlgorithm::Es256,
                key: PrivateKey::Jwk(text.to_owned()),
            },
            jwk: text.to_owned(),
            public,
        })
    }

    /// The private key as the text of a JWK. Secret.
    pub fn to_jwk(&self) -> &str {
        &self.jwk
    }

    /// The thumbprint of the public key (RFC 7638): `jkt` in tokens and in authorization requests.
    pub fn thumbprint(&self) -> String {
        let PublicJwk { crv, kty, x, y } = &self.public;
        hash(&format!(
            r#"{{"crv":"{crv}","kty":"{kty}","x":"{x}","y":"{y}"}}"#
        ))
    }

    /// Makes a proof for one request (RFC 9449 §4.2). It is good for one attempt only: servers
    /// refuse to see it twice.
    pub async fn proof(
        &self,
        crypto: &dyn Crypto,
        request: Proof<'_>,
    ) -> Result<String, OAuthError> {
        let header = ProofHeader {
            typ: "dpop+jwt",
            alg: "ES256",
            jwk: &self.public,
        };
        let claims = ProofClaims {
            jti: unique()?,
            htm: request.method,
            htu: &request.url.url()[..Position::AfterPath],
            iat: request.now / 1000,
            nonce: request.nonce,
            ath: request.access_token.map(hash),
        };
        let (header, claims) = (part(&header)?, part(&claims)?);
        compact(crypto, &self.signing, header, claims).await
    }
}

/// The public members of a private key.
fn public_jwk(text: &str) -> Option<PublicJwk> {
    let jwk = serde_json::from_str::<Value>(text).ok()?;
    let is_of_curve = (member(&jwk, "kty"), member(&jwk, "crv")) == (Some("EC"), Some("P-256"));
    let number = |name| member(&jwk, name).filter(|text| is_number(text));
    let (x, y, _) = (number("x")?, number("y")?, number("d")?);
    is_of_curve.then(|| PublicJwk {
        crv: "P-256",
        kty: "EC",
        x: x.to_owned(),
        y: y.to_owned(),
    })
}

/// A number of P-256: 32 bytes, base64url.
fn is_number(text: &str) -> bool {
    URL_SAFE_NO_PAD
        .decode(text)
        .is_ok_and(|bytes| bytes.len() == 32)
}

fn hash(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(text))
}

impl fmt::Debug for DpopKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DpopKey").finish_non_exhaustive()
    }
}

/// Without the token.
impl fmt::Debug for Proof<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proof")
            .field("method", &self.method)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The public key of RFC 9449, figure 2.
    const X: &str = "l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs";
    const Y: &str = "9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA";
    const D: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE";

    fn jwk() -> String {
        format!(r#"{{"kty":"EC","y":"{Y}","d":"{D}","crv":"P-256","x":"{X}","ext":true}}"#)
    }

    #[test]
    fn the_thumbprint_is_that_of_the_public_members_in_order() {
        let key = DpopKey::from_jwk(&jwk()).unwrap();
        // RFC 9449 §6.1 has this key and its thumbprint.
        let expected = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I";
        assert_eq!(key.thumbprint(), expected);
        assert_eq!(key.to_jwk(), jwk());
    }

    #[test]
    fn a_key_of_another_kind_is_refused_and_not_shown() {
        for text in [
            String::new(),
            "{}".to_owned(),
            jwk().replace("\"EC\"", "\"RSA\""),
            jwk().replace("P-256", "P-384"),
            jwk().replace("\"d\"", "\"e\""),
            jwk().replace(X, "AAAA"),
            jwk().replace(Y, "not base64!"),
        ] {
            let error = DpopKey::from_jwk(&text).unwrap_err();
            assert!(matches!(error, OAuthError::InvalidOption(_)));
            assert!(!error.to_string().contains(D));
        }
        let key = DpopKey::from_jwk(&jwk()).unwrap();
        assert_eq!(format!("{key:?}"), "DpopKey { .. }");
    }
}
