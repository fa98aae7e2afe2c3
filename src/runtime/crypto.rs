//! Cryptography over `crypto.subtle`.

use async_trait::async_trait;
use js_sys::{Error, Uint8Array};
use wasm_bindgen::prelude::*;

use crate::ports::{Crypto, CryptoError, PrivateKey, SigningAlgorithm, SigningKey};

pub(super) struct WebCrypto;

#[async_trait(?Send)]
impl Crypto for WebCrypto {
    async fn sign(&self, key: &SigningKey, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        let algorithm = match key.algorithm {
            SigningAlgorithm::Es256 => "ES256",
            SigningAlgorithm::Rs256 => "RS256",
        };
        let key = match &key.key {
            PrivateKey::Jwk(text) => JsValue::from_str(text),
            PrivateKey::Pkcs8(der) => copied(der).into(),
        };
        let signature = sign(algorithm, key, copied(message)).await;
        done("sign", signature)
    }

    async fn generate_key(&self) -> Result<String, CryptoError> {
        let made = generate_key().await;
        let made = made.map_err(|error| thrown("make a key", &error))?;
        made.as_string()
            .ok_or_else(|| CryptoError("could not make a key".into()))
    }

    async fn seal(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        context: &[u8],
        plain: &[u8],
    ) -> Result<Vec<u8>, CryptoError> {
        let sealed = seal(copied(key), copied(nonce), copied(context), copied(plain)).await;
        done("encrypt", sealed)
    }

    async fn open(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        context: &[u8],
        sealed: &[u8],
    ) -> Result<Vec<u8>, CryptoError> {
        let plain = open(copied(key), copied(nonce), copied(context), copied(sealed)).await;
        done("decrypt", plain)
    }
}

/// A copy that lives in JavaScript. A view of the module's memory could move while it is in use.
fn copied(bytes: &[u8]) -> Uint8Array {
    Uint8Array::from(bytes)
}

/// What the `ArrayBuffer` holds that came out.
fn done(what: &str, outcome: Result<JsValue, JsValue>) -> Result<Vec<u8>, CryptoError> {
    let buffer = outcome.map_err(|error| thrown(what, &error))?;
    Ok(Uint8Array::new(&buffer).to_vec())
}

/// The kind of failure alone: messages can quote the key.
fn thrown(what: &str, error: &JsValue) -> CryptoError {
    let kind = error
        .dyn_ref::<Error>()
        .map_or_else(String::new, |error| format!(" ({})", error.name()));
    CryptoError(format!("could not {what}{kind}"))
}

#[wasm_bindgen(module = "/src/runtime/webcrypto.js")]
extern "C" {
    #[wasm_bindgen(catch)]
    async fn sign(algorithm: &str, key: JsValue, message: Uint8Array) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(catch, js_name = generateKey)]
    async fn generate_key() -> Result<JsValue, JsValue>;
    #[wasm_bindgen(catch)]
    async fn seal(
        key: Uint8Array,
        iv: Uint8Array,
        context: Uint8Array,
        plain: Uint8Array,
    ) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(catch)]
    async fn open(
        key: Uint8Array,
        iv: Uint8Array,
        context: Uint8Array,
        sealed: Uint8Array,
    ) -> Result<JsValue, JsValue>;
}
