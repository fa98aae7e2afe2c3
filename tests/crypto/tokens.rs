//! Client assertions and proofs of possession, verified as a server does.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use futures::executor::block_on;
use p256::ecdsa::signature::Verifier as _;
use p256::ecdsa::{Signature, SigningKey, VerifyingKey};
use p256::pkcs8::EncodePrivateKey as _;
use p256::{PublicKey, Sec1Point};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use workers_agents::oauth::{Assertion, DpopKey, OAuthError, Proof, client_assertion, signing_key};
use workers_agents::ports::Crypto as _;
use workers_agents::url_guard::GuardedUrl;

use super::crypto::NativeCrypto;

const NOW: u64 = 1_800_000_000_999;
const ISSUER: &str = "https://id.example/harbour";

fn decoded(part: &str) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

/// Header and claims of a token that this key has signed.
fn verified(token: &str, key: &VerifyingKey) -> (Value, Value) {
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let signature = Signature::from_slice(&signature).unwrap();
    key.verify(signed.as_bytes(), &signature).unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    (decoded(header), decoded(claims))
}

fn public(jwk: &Value) -> VerifyingKey {
    let number = |name: &str| {
        let bytes = URL_SAFE_NO_PAD.decode(jwk[name].as_str().unwrap()).unwrap();
        <[u8; 32]>::try_from(bytes).unwrap()
    };
    let point = Sec1Point::from_affine_coordinates(&number("x").into(), &number("y").into(), false);
    PublicKey::try_from(point).unwrap().into()
}

fn without(mut claims: Value, name: &str) -> (Value, Value) {
    let taken = claims.as_object_mut().unwrap().remove(name).unwrap();
    (claims, taken)
}

fn assertion(key_id: Option<&'static str>) -> Assertion<'static> {
    Assertion {
        client_id: "gull",
        audience: ISSUER,
        key_id,
        now: NOW,
    }
}

#[test]
fn an_assertion_names_client_and_server_and_is_good_for_two_minutes() {
    let secret = SigningKey::from_slice(&[7; 32]).unwrap();
    let der = secret.to_pkcs8_der().unwrap();
    let pem = STANDARD.encode(der.as_bytes());
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{pem}\n-----END PRIVATE KEY-----\n");
    let key = signing_key(&pem, Some("ES256")).unwrap();

    let token = block_on(client_assertion(&NativeCrypto, &key, assertion(None))).unwrap();
    let (header, claims) = verified(&token, secret.verifying_key());
    assert_eq!(header, json!({ "alg": "ES256", "typ": "JWT" }));
    let (claims, id) = without(claims, "jti");
    let expected = json!({
        "iss": "gull", "sub": "gull", "aud": ISSUER, "iat": 1_800_000_000, "exp": 1_800_000_120,
    });
    assert_eq!(claims, expected);

    let again = block_on(client_assertion(&NativeCrypto, &key, assertion(None))).unwrap();
    let (_, claims) = verified(&again, secret.verifying_key());
    assert_ne!(claims["jti"], id);
}

#[test]
fn an_assertion_says_which_key_it_is_signed_with() {
    let jwk = block_on(NativeCrypto.generate_key()).unwrap();
    let mut jwk: Value = serde_json::from_str(&jwk).unwrap();
    jwk["kid"] = json!("own");
    let key = signing_key(&jwk.to_string(), None).unwrap();
    for (given, expected) in [(None, "own"), (Some("given"), "given")] {
        let token = block_on(client_assertion(&NativeCrypto, &key, assertion(given))).unwrap();
        let (header, _) = verified(&token, &public(&jwk));
        assert_eq!(header["kid"], expected);
    }
}

#[test]
fn a_key_that_the_platform_cannot_read_fails_without_being_shown() {
    let key = signing_key(r#"{"kty":"EC","crv":"P-256","d":"hunter2"}"#, None).unwrap();
    let error = block_on(client_assertion(&NativeCrypto, &key, assertion(None))).unwrap_err();
    assert!(matches!(error, OAuthError::Crypto(_)));
    assert!(!format!("{error} {error:?} {key:?}").contains("hunter2"));
}

/// A proof, its header and its claims.
fn proof(key: &DpopKey, request: Proof<'_>) -> (Value, Value) {
    let token = block_on(key.proof(&NativeCrypto, request)).unwrap();
    let jwk = serde_json::from_str(key.to_jwk()).unwrap();
    verified(&token, &public(&jwk))
}

#[test]
fn a_proof_is_for_one_request() {
    let key = block_on(DpopKey::generate(&NativeCrypto)).unwrap();
    let url = GuardedUrl::parse("HTTPS://Id.example:443/a%2Fb/tok%65n?code=secret#part").unwrap();
    let request = Proof {
        method: "POST",
        url: &url,
        now: NOW,
        nonce: None,
        access_token: None,
    };
    let (header, claims) = proof(&key, request);

    let (header, jwk) = without(header, "jwk");
    assert_eq!(header, json!({ "typ": "dpop+jwt", "alg": "ES256" }));
    // The public key and nothing else: a server refuses a private one (RFC 9449 §4.3).
    let private: Value = serde_json::from_str(key.to_jwk()).unwrap();
    let (expected, _) = without(private, "d");
    assert_eq!(jwk, expected);

    let (claims, id) = without(claims, "jti");
    let expected = json!({
        "htm": "POST", "htu": "https://id.example/a%2Fb/tok%65n", "iat": 1_800_000_000,
    });
    assert_eq!(claims, expected);
    assert_ne!(proof(&key, request).1["jti"], id);
}

#[test]
fn a_proof_holds_nonce_and_the_hash_of_the_token_where_there_are_any() {
    let key = block_on(DpopKey::generate(&NativeCrypto)).unwrap();
    let url = GuardedUrl::parse("http://127.0.0.1:8080/mcp").unwrap();
    let request = Proof {
        method: "GET",
        url: &url,
        now: NOW,
        nonce: Some("n\"1"),
        access_token: Some("hunter2"),
    };
    let (_, claims) = proof(&key, request);
    assert_eq!(claims["htu"], "http://127.0.0.1:8080/mcp");
    assert_eq!(claims["nonce"], "n\"1");
    let hash = URL_SAFE_NO_PAD.encode(Sha256::digest("hunter2"));
    assert_eq!(claims["ath"], hash);
    assert!(!format!("{request:?}").contains("hunter2"));
}

#[test]
fn a_key_survives_being_stored() {
    let key = block_on(DpopKey::generate(&NativeCrypto)).unwrap();
    let again = DpopKey::from_jwk(key.to_jwk()).unwrap();
    assert_eq!(again.thumbprint(), key.thumbprint());
    let other = block_on(DpopKey::generate(&NativeCrypto)).unwrap();
    assert_ne!(other.thumbprint(), key.thumbprint());
}
