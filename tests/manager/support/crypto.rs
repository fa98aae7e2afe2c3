//! Cryptography without a platform.

use aes_gcm::aead::{Aead as _, Payload};
use aes_gcm::{Aes256Gcm, KeyInit as _};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{self, Signature};
use p256::pkcs8::DecodePrivateKey as _;
use serde_json::{Value, json};
use workers_agents::ports::{Crypto, CryptoError, PrivateKey, SigningAlgorithm, SigningKey};

/// Signs by ES256 only.
pub struct NativeCrypto;

#[async_trait(?Send)]
impl Crypto for NativeCrypto {
    async fn sign(&self, key: &SigningKey, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        if key.algorithm != SigningAlgorithm::Es256 {
            return Err(CryptoError("the tests sign by ES256 only".into()));
        }
        let key = match &key.key {
            PrivateKey::Jwk(text) => from_jwk(text),
            PrivateKey::Pkcs8(der) => ecdsa::SigningKey::from_pkcs8_der(der).ok(),
            _ => None,
        };
        let key = key.ok_or_else(|| refused("sign"))?;
        let signature: Signature = key.sign(message);
        Ok(signature.to_bytes().to_vec())
    }

    async fn generate_key(&self) -> Result<String, CryptoError> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).unwrap();
        let key = ecdsa::SigningKey::from_slice(&secret).map_err(|_| refused("make a key"))?;
        let public = key.verifying_key().to_sec1_point(false);
        let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        Ok(json!({
            "kty": "EC",
            "crv": "P-256",
            "x": number(public.x().unwrap()),
            "y": number(public.y().unwrap()),
            "d": number(&secret),
        })
        .to_string())
    }

    async fn seal(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        context: &[u8],
        plain: &[u8],
    ) -> Result<Vec<u8>, CryptoError> {
        let (msg, aad) = (plain, context);
        let sealed = Aes256Gcm::new(key.into()).encrypt(nonce.into(), Payload { msg, aad });
        sealed.map_err(|_| refused("encrypt"))
    }

    async fn open(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        context: &[u8],
        sealed: &[u8],
    ) -> Result<Vec<u8>, CryptoError> {
        let (msg, aad) = (sealed, context);
        let plain = Aes256Gcm::new(key.into()).decrypt(nonce.into(), Payload { msg, aad });
        plain.map_err(|_| refused("decrypt"))
    }
}

fn from_jwk(text: &str) -> Option<ecdsa::SigningKey> {
    let jwk: Value = serde_json::from_str(text).ok()?;
    let secret = URL_SAFE_NO_PAD.decode(jwk["d"].as_str()?).ok()?;
    ecdsa::SigningKey::from_slice(&secret).ok()
}

fn refused(what: &str) -> CryptoError {
    CryptoError(format!("could not {what}"))
}
