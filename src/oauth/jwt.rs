//! Signed tokens of our own: client assertions (RFC 7523), and the keys they are signed with.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::Serialize;
use serde_json::Value;

use super::OAuthError;
use crate::ports::{Crypto, CryptoError, PrivateKey, SigningAlgorithm, SigningKey, Timestamp};

/// How long an assertion is good for, in seconds. It is used at once; a clock that is behind may
/// take it to be from the future.
const LIFETIME: u64 = 120;
/// The longest key that is read, in bytes. An RSA key of 16384 bits has less in either form.
const MAX_KEY: usize = 32 << 10;

/// What a client assertion says.
#[derive(Debug, Clone, Copy)]
pub struct Assertion<'a> {
    /// Who signs in: issuer and subject.
    pub client_id: &'a str,
    /// For whom: the issuer of the authorization server.
    pub audience: &'a str,
    /// Which of the client's keys this is. A JWK says so itself.
    pub key_id: Option<&'a str>,
    /// The time now.
    pub now: Timestamp,
}

#[derive(Serialize)]
struct AssertionHeader<'a> {
    alg: &'static str,
    typ: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kid: Option<&'a str>,
}

#[derive(Serialize)]
struct AssertionClaims<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: &'a str,
    jti: String,
    iat: u64,
    exp: u64,
}

/// Makes an assertion that the caller is this client (RFC 7523 §2.2, §3). Every call makes another
/// one, because servers take each only once.
pub async fn client_assertion(
    crypto: &dyn Crypto,
    key: &SigningKey,
    claims: Assertion<'_>,
) -> Result<String, OAuthError> {
    let iat = claims.now / 1000;
    let jwk = match &key.key {
        PrivateKey::Jwk(text) => serde_json::from_str::<Value>(text).ok(),
        PrivateKey::Pkcs8(_) => None,
    };
    let own = jwk.as_ref().and_then(|jwk| member(jwk, "kid"));
    let header = AssertionHeader {
        alg: name(key.algorithm),
        typ: "JWT",
        kid: claims.key_id.or(own),
    };
    let claims = AssertionClaims {
        iss: claims.client_id,
        sub: claims.client_id,
        aud: claims.audience,
        jti: unique()?,
        iat,
        exp: iat + LIFETIME,
    };
    compact(crypto, key, part(&header)?, part(&claims)?).await
}

/// Signs two [parts](part), as a JWS in the compact serialisation (RFC 7515 §7.1).
pub(super) async fn compact(
    crypto: &dyn Crypto,
    key: &SigningKey,
    header: String,
    claims: String,
) -> Result<String, OAuthError> {
    let mut token = header;
    token.push('.');
    token.push_str(&claims);
    let signature = crypto.sign(key, token.as_bytes()).await?;
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut token);
    Ok(token)
}

/// Header or claims as they stand in a token.
pub(super) fn part(value: &impl Serialize) -> Result<String, CryptoError> {
    let json = serde_json::to_vec(value);
    let json = json.map_err(|_| CryptoError("could not write a token".into()))?;
    Ok(URL_SAFE_NO_PAD.encode(json))
}

/// An id that nothing else has.
pub(super) fn unique() -> Result<String, CryptoError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| CryptoError("no random bytes".into()))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Reads a private key: PEM with PKCS#8 in it, or a JWK.
///
/// `algorithm` is needed by neither, and must fit the key when given.
///
/// # Errors
/// [`OAuthError::InvalidOption`] says what is wrong, and shows nothing of the key.
pub fn signing_key(pem_or_jwk: &str, algorithm: Option<&str>) -> Result<SigningKey, OAuthError> {
    let text = pem_or_jwk.trim();
    let wanted = algorithm.map(parse_algorithm).transpose()?;
    if text.len() > MAX_KEY {
        return Err(unusable(&format!("it is longer than {MAX_KEY} bytes")));
    }
    let key = if text.starts_with('{') {
        from_jwk(text)?
    } else {
        from_pem(text)?
    };
    match wanted {
        Some(wanted) if wanted != key.algorithm => Err(unusable(&format!(
            "it is a key for {}, not for {}",
            name(key.algorithm),
            name(wanted)
        ))),
        _ => Ok(key),
    }
}

fn name(algorithm: SigningAlgorithm) -> &'static str {
    match algorithm {
        SigningAlgorithm::Es256 => "ES256",
        SigningAlgorithm::Rs256 => "RS256",
    }
}

fn parse_algorithm(name: &str) -> Result<SigningAlgorithm, OAuthError> {
    match name {
        "ES256" => Ok(SigningAlgorithm::Es256),
        "RS256" => Ok(SigningAlgorithm::Rs256),
        _ => Err(OAuthError::InvalidOption(
            "the signing algorithm is not ES256 or RS256".into(),
        )),
    }
}

fn unusable(reason: &str) -> OAuthError {
    OAuthError::InvalidOption(format!("the private key cannot be used: {reason}"))
}

/// A member of a JWK.
pub(super) fn member<'a>(jwk: &'a Value, name: &str) -> Option<&'a str> {
    jwk.get(name)?.as_str()
}

fn from_jwk(text: &str) -> Result<SigningKey, OAuthError> {
    let jwk = serde_json::from_str::<Value>(text);
    // The parser's own message can quote the key.
    let jwk = jwk.map_err(|_| unusable("it is neither PEM nor a JWK"))?;
    let algorithm = match (member(&jwk, "kty"), member(&jwk, "crv")) {
        (Some("EC"), Some("P-256")) => SigningAlgorithm::Es256,
        (Some("EC"), _) => return Err(unusable("its curve is not P-256")),
        (Some("RSA"), _) => SigningAlgorithm::Rs256,
        _ => return Err(unusable("its type is neither EC nor RSA")),
    };
    if member(&jwk, "d").is_none() {
        return Err(unusable("it is a public key"));
    }
    if member(&jwk, "alg").is_some_and(|alg| alg != name(algorithm)) {
        let fitting = name(algorithm);
        return Err(unusable(&format!("its \"alg\" is not {fitting}")));
    }
    Ok(SigningKey {
        algorithm,
        key: PrivateKey::Jwk(text.to_owned()),
    })
}

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

fn from_pem(text: &str) -> Result<SigningKey, OAuthError> {
    // Settings of one line have their line breaks spelt out.
    let text = text.replace("\\r", "").replace("\\n", "\n");
    let (label, rest) = text
        .split_once(BEGIN)
        .and_then(|(_, rest)| rest.split_once(DASHES))
        .ok_or_else(|| unusable("it is neither PEM nor a JWK"))?;
    match label {
        "PRIVATE KEY" => {}
        "ENCRYPTED PRIVATE KEY" => return Err(unusable("it has a passphrase")),
        "EC PRIVATE KEY" | "RSA PRIVATE KEY" => {
            return Err(unusable(
                "its PEM is not PKCS#8; `openssl pkcs8 -topk8 -nocrypt` turns it into that",
            ));
        }
        _ => return Err(unusable("its PEM holds no private key")),
    }
    let body = rest.split_once(END).map(|(body, _)| body);
    let body = body.ok_or_else(|| unusable("the end of its PEM is missing"))?;
    let body: String = body.split_ascii_whitespace().collect();
    let der = STANDARD.decode(body);
    let der = der.map_err(|_| unusable("its PEM is not base64"))?;
    let algorithm = algorithm_of(&der)
        .ok_or_else(|| unusable("it is neither of the curve P-256 nor of RSA"))?;
    Ok(SigningKey {
        algorithm,
        key: PrivateKey::Pkcs8(der),
    })
}

/// The algorithm identifier of PKCS#8 (RFC 5208 §5), which comes first. Only its few forms are told
/// apart here; the platform reads the key itself.
fn algorithm_of(der: &[u8]) -> Option<SigningAlgorithm> {
    let (&tag, rest) = der.split_first()?;
    // The length: one byte, or as many as its low bits say.
    let (&length, rest) = rest.split_first()?;
    let more = usize::from(length.saturating_sub(0x80));
    let rest = rest.get(more..)?;
    // Version 0 or 1, the latter with the public key in it (RFC 5958 §2).
    let rest = rest
        .strip_prefix(&[2, 1, 0])
        .or_else(|| rest.strip_prefix(&[2, 1, 1]))?;
    if tag != 0x30 {
        None
    } else if rest.starts_with(P256) {
        Some(SigningAlgorithm::Es256)
    } else if rest.starts_with(RSA) {
        Some(SigningAlgorithm::Rs256)
    } else {
        None
    }
}

/// `id-ecPublicKey` with the curve `secp256r1` (RFC 5480 §2.1.1).
const P256: &[u8] = &[
    0x30, 0x13, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1,
    7,
];
/// `rsaEncryption` (RFC 8017, appendix A.1).
const RSA: &[u8] = &[
    0x30, 0x0d, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(label: &str, der: &[u8]) -> String {
        let body = STANDARD.encode(der);
        format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
    }

    /// The beginning of a key, and nothing of a key.
    fn der(length: &[u8], algorithm: &[u8]) -> Vec<u8> {
        [&[0x30], length, &[2, 1, 0], algorithm, &[4, 1, 9]].concat()
    }

    fn reason(text: &str, algorithm: Option<&str>) -> String {
        match signing_key(text, algorithm) {
            Err(OAuthError::InvalidOption(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pem_says_itself_which_algorithm_its_key_is_for() {
        for (length, algorithm, expected) in [
            (&[27][..], P256, SigningAlgorithm::Es256),
            (&[0x81, 27], P256, SigningAlgorithm::Es256),
            (&[0x82, 0, 21], RSA, SigningAlgorithm::Rs256),
        ] {
            let der = der(length, algorithm);
            let text = pem("PRIVATE KEY", &der);
            for text in [
                text.replace('\n', "\r\n"),
                text.trim_end().replace('\n', "\\n"),
                format!("Bag Attributes\n  name: pier\n{text}"),
                text,
            ] {
                let key = signing_key(&text, None).unwrap();
                assert_eq!(key.algorithm, expected);
                assert_eq!(key.key, PrivateKey::Pkcs8(der.clone()));
                assert_eq!(signing_key(&text, Some(name(expected))).unwrap(), key);
            }
        }
    }

    #[test]
    fn a_jwk_says_itself_which_algorithm_its_key_is_for() {
        for (text, expected) in [
            (
                r#"{"kty":"EC","crv":"P-256","d":"AA"}"#,
                SigningAlgorithm::Es256,
            ),
            (
                r#"{"kty":"RSA","alg":"RS256","d":"AA"}"#,
                SigningAlgorithm::Rs256,
            ),
        ] {
            let key = signing_key(&format!(" {text}\n"), None).unwrap();
            assert_eq!(key.algorithm, expected);
            assert_eq!(key.key, PrivateKey::Jwk(text.into()));
        }
    }

    #[test]
    fn what_is_wrong_with_a_key_is_said_without_showing_it() {
        let p256 = der(&[27], P256);
        let good = pem("PRIVATE KEY", &p256);
        let ed25519 = [0x30, 5, 6, 3, 0x2b, 0x65, 0x70];
        for (text, algorithm, expected) in [
            ("", None, "neither PEM nor a JWK"),
            ("hunter2", None, "neither PEM nor a JWK"),
            ("{\"kty\":", None, "neither PEM nor a JWK"),
            (&pem("EC PRIVATE KEY", &p256), None, "not PKCS#8"),
            (&pem("RSA PRIVATE KEY", &p256), None, "not PKCS#8"),
            (&pem("ENCRYPTED PRIVATE KEY", &p256), None, "passphrase"),
            (&pem("PUBLIC KEY", &p256), None, "no private key"),
            (&good.replace("-----END", ""), None, "end of its PEM"),
            (&good.replace("MBs", "M*s"), None, "not base64"),
            (&pem("PRIVATE KEY", &[]), None, "neither of the curve"),
            (
                &pem("PRIVATE KEY", &der(&[20], &ed25519)),
                None,
                "neither of the curve",
            ),
            (&good, Some("RS256"), "for ES256, not for RS256"),
            (&good, Some("HS256"), "not ES256 or RS256"),
            (r#"{"kty":"oct","k":"AA"}"#, None, "neither EC nor RSA"),
            (r#"{"kty":"EC","crv":"P-384","d":"A"}"#, None, "not P-256"),
            (r#"{"kty":"RSA","n":"AA"}"#, None, "public key"),
            (r#"{"kty":"RSA","d":"AA","alg":"PS256"}"#, None, "not RS256"),
            (&"A".repeat(MAX_KEY + 1), None, "longer than"),
        ] {
            let reason = reason(text, algorithm);
            assert!(reason.contains(expected), "{reason}");
            assert!(!reason.contains("hunter2"));
        }
    }
}
