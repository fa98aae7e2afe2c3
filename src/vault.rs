//! Encryption at rest: AES-256-GCM for the values that hold secrets, with keys that can be changed.
//!
//! A sealed value is a JSON object of its own, so it lives in the same store as values in the clear.
//! Those are read as they are and sealed when they are written again.

use std::fmt;
use std::rc::Rc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::ports::{Crypto, CryptoError, KeyValueStore, StoreError};

/// The form of sealed values that is written.
const VERSION: u64 = 1;
/// The length of a key, in bytes.
const KEY: usize = 32;
/// The length of a nonce, in bytes.
const NONCE: usize = 12;

/// Why a value cannot be sealed or opened. Holds nothing of keys and values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VaultError {
    /// The setting is unusable.
    #[error("AGENT_ENCRYPTION_KEY: {0}")]
    Setting(String),
    /// The value was sealed with a key that is not there any more.
    #[error(
        "a stored value is encrypted with the key {kid}, which is not one of AGENT_ENCRYPTION_KEY"
    )]
    UnknownKey {
        /// The id of that key.
        kid: String,
    },
    /// The value is sealed, and there are no keys at all.
    #[error("a stored value is encrypted, and AGENT_ENCRYPTION_KEY is not set")]
    NoKey,
    /// The value was changed, or moved here from elsewhere.
    #[error("a stored value cannot be decrypted: it was changed, or belongs elsewhere")]
    Tampered,
    /// The value was sealed by another version of this crate.
    #[error("a stored value is encrypted in a form that this version does not know")]
    UnknownForm,
    /// The platform refused.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

impl From<VaultError> for StoreError {
    fn from(error: VaultError) -> Self {
        Self(error.to_string())
    }
}

/// The keys of a [`Vault`].
#[derive(Clone)]
pub struct KeyRing {
    current: Key,
    older: Vec<Key>,
}

#[derive(Clone)]
struct Key {
    id: String,
    bytes: [u8; KEY],
}

impl KeyRing {
    /// Parses keys that are separated by commas; each is 32 bytes in base64, of either alphabet and
    /// with or without padding, or in hex. The first one encrypts, all of them decrypt: a new key is
    /// put in front, and the old one is taken out when nothing is sealed with it any more.
    pub fn parse(text: &str) -> Result<Self, VaultError> {
        let keys = text.split(',').enumerate().map(|(index, key)| {
            Key::parse(key.trim()).ok_or_else(|| {
                let number = index + 1;
                VaultError::Setting(format!("key {number} is not 32 bytes in base64 or hex"))
            })
        });
        let mut keys = keys.collect::<Result<Vec<_>, _>>()?.into_iter();
        let current = keys
            .next()
            .ok_or_else(|| VaultError::Setting("no key".into()))?;
        Ok(Self {
            current,
            older: keys.collect(),
        })
    }

    /// The keys of this id: one, unless somebody made two whose hashes begin alike.
    fn of_id(&self, id: &str) -> impl Iterator<Item = &Key> {
        let all = std::iter::once(&self.current).chain(&self.older);
        all.filter(move |key| key.id == id)
    }
}

impl Key {
    fn parse(text: &str) -> Option<Self> {
        let bytes = if text.len() == 2 * KEY {
            hex(text)?
        } else {
            let text = text.replace('+', "-").replace('/', "_");
            LENIENT.decode(text).ok()?
        };
        let hash = Sha256::digest(&bytes);
        Some(Self {
            id: format!("{:08x}", u32::from_be_bytes(*hash.first_chunk()?)),
            bytes: bytes.try_into().ok()?,
        })
    }
}

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.chars().map(|digit| digit.to_digit(16));
    let digits = digits.collect::<Option<Vec<_>>>()?;
    let bytes = digits.chunks_exact(2).map(|pair| match pair {
        [high, low] => u8::try_from(high << 4 | low).ok(),
        _ => None,
    });
    bytes.collect()
}

/// Seals and opens values.
pub struct Vault {
    crypto: Rc<dyn Crypto>,
    ring: KeyRing,
}

/// A value in the clear.
#[derive(Clone, PartialEq, Eq)]
pub struct Opened {
    /// The value, JSON.
    pub text: String,
    /// Whether it was sealed with the key that encrypts now. What was not is to be written again.
    pub is_current: bool,
}

/// A sealed value as it is stored. A document of somebody else that has these members among others
/// is none.
struct Sealed {
    /// `sealed`: the version of this form.
    version: u64,
    /// The id of the key: the first 8 digits of its SHA-256 in hex.
    kid: String,
    /// The nonce, base64url.
    iv: String,
    /// Text and tag, base64url.
    data: String,
}

impl Vault {
    /// A vault with these keys.
    pub fn new(crypto: Rc<dyn Crypto>, ring: KeyRing) -> Self {
        Self { crypto, ring }
    }

    /// Seals a text. It opens under the same `context` only, so it cannot be moved elsewhere.
    pub fn seal<'a>(
        &'a self,
        context: &'a str,
        text: &'a str,
    ) -> LocalBoxFuture<'a, Result<String, VaultError>> {
        async move {
            let Key { id, bytes } = &self.ring.current;
            let mut nonce = [0; NONCE];
            getrandom::fill(&mut nonce).map_err(|_| CryptoError("no random bytes".into()))?;
            let data = self
                .crypto
                .seal(bytes, &nonce, context.as_bytes(), text.as_bytes())
                .await?;
            let (iv, data) = (URL_SAFE_NO_PAD.encode(nonce), URL_SAFE_NO_PAD.encode(data));
            Ok(json!({ "sealed": VERSION, "kid": id, "iv": iv, "data": data }).to_string())
        }
        .boxed_local()
    }

    /// Opens what [`seal`](Self::seal) has made. Any other JSON is passed through.
    pub fn open<'a>(
        &'a self,
        context: &'a str,
        json: &'a str,
    ) -> LocalBoxFuture<'a, Result<Opened, VaultError>> {
        async move {
            let Some(sealed) = Sealed::parse(json) else {
                return Ok(Opened {
                    text: json.to_owned(),
                    is_current: false,
                });
            };
            if sealed.version != VERSION {
                return Err(VaultError::UnknownForm);
            }
            let (nonce, data) = sealed.bytes().ok_or(VaultError::Tampered)?;
            let mut failure = VaultError::UnknownKey {
                kid: sealed.kid.clone(),
            };
            for key in self.ring.of_id(&sealed.kid) {
                let context = context.as_bytes();
                let opened = self.crypto.open(&key.bytes, &nonce, context, &data).await;
                if let Ok(text) = opened {
                    let text = String::from_utf8(text).map_err(|_| VaultError::Tampered)?;
                    let is_current = key.bytes == self.ring.current.bytes;
                    return Ok(Opened { text, is_current });
                }
                failure = VaultError::Tampered;
            }
            Err(failure)
        }
        .boxed_local()
    }
}

impl Sealed {
    fn parse(json: &str) -> Option<Self> {
        let is_id = |id: &str| id.len() == 8 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
        let value = serde_json::from_str::<Value>(json).ok()?;
        let members = value.as_object().filter(|members| members.len() == 4)?;
        let text = |name| Some(members.get(name)?.as_str()?.to_owned());
        Some(Self {
            version: members.get("sealed")?.as_u64()?,
            // It is shown in messages.
            kid: text("kid").filter(|kid| is_id(kid))?,
            iv: text("iv")?,
            data: text("data")?,
        })
    }

    fn bytes(&self) -> Option<([u8; NONCE], Vec<u8>)> {
        let nonce = URL_SAFE_NO_PAD.decode(&self.iv).ok()?;
        let data = URL_SAFE_NO_PAD.decode(&self.data).ok()?;
        Some((nonce.try_into().ok()?, data))
    }
}

/// Whether this is a sealed value, of whatever version.
pub fn is_sealed(json: &str) -> bool {
    Sealed::parse(json).is_some()
}

/// A store whose secret values are sealed under their keys.
///
/// Without a vault it stores everything in the clear, and does not hand out what is sealed.
pub struct SealedStore {
    inner: Rc<dyn KeyValueStore>,
    vault: Option<Rc<Vault>>,
}

impl SealedStore {
    /// A layer on `inner`.
    pub fn new(inner: Rc<dyn KeyValueStore>, vault: Option<Rc<Vault>>) -> Self {
        Self { inner, vault }
    }
}

impl SealedStore {
    /// Encrypts a value with the current key, so that the old one can be taken away some day. What
    /// has been written meanwhile stays; if it cannot be stored now, it will be another time.
    async fn rotate(&self, vault: &Vault, key: &str, old: &str, text: &str) {
        if let Ok(sealed) = vault.seal(key, text).await
            && let Ok(Some(now)) = self.inner.get(key).await
            && now == old
        {
            let _ = self.inner.put(key, &sealed).await;
        }
    }
}

#[async_trait(?Send)]
impl KeyValueStore for SealedStore {
    async fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        let Some(json) = self.inner.get(key).await? else {
            return Ok(None);
        };
        match &self.vault {
            Some(vault) => {
                let Opened { text, is_current } = vault.open(key, &json).await?;
                if !is_current && is_sealed(&json) {
                    self.rotate(vault, key, &json, &text).await;
                }
                Ok(Some(text))
            }
            None if is_sealed(&json) => Err(VaultError::NoKey.into()),
            None => Ok(Some(json)),
        }
    }

    async fn put(&self, key: &str, json: &str) -> Result<(), StoreError> {
        match &self.vault {
            Some(vault) if is_secret(key) => {
                let sealed = vault.seal(key, json).await?;
                self.inner.put(key, &sealed).await
            }
            _ => self.inner.put(key, json).await,
        }
    }

    async fn delete(&self, keys: &[String]) -> Result<(), StoreError> {
        self.inner.delete(keys).await
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.inner.keys(prefix).await
    }
}

/// Whether the value under this key holds a secret: tokens, a client's secret, or what proves that
/// a sign-in is ours. What servers publish about themselves is none.
fn is_secret(key: &str) -> bool {
    key.ends_with("/token")
        || key.ends_with("/client_info/")
        || key.ends_with("/dpop_key")
        || key.contains("/code_verifier")
        || key.contains("/state/")
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = std::iter::once(&self.current).chain(&self.older);
        let ids: Vec<_> = ids.map(|key| &key.id).collect();
        f.debug_tuple("KeyRing").field(&ids).finish()
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Vault").field(&self.ring).finish()
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("is_current", &self.is_current)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SealedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedStore")
            .field("vault", &self.vault)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0xfb in every byte: `+` and `/` in base64, and the same in every spelling.
    const BYTES: [u8; KEY] = [0xfb; KEY];

    fn ids(text: &str) -> Vec<String> {
        let ring = KeyRing::parse(text).unwrap();
        let older = ring.older.into_iter().map(|key| key.id);
        std::iter::once(ring.current.id).chain(older).collect()
    }

    #[test]
    fn a_key_has_the_same_id_in_every_spelling() {
        let hex = "fb".repeat(KEY);
        let url = URL_SAFE_NO_PAD.encode(BYTES);
        let standard = base64::engine::general_purpose::STANDARD.encode(BYTES);
        let unpadded = standard.trim_end_matches('=').to_owned();
        // The beginning of their SHA-256.
        let id = "456a0498".to_owned();
        assert!(standard.contains('+') && standard.ends_with('='));
        let spellings = [hex.to_uppercase(), hex, url, standard, unpadded].join(" ,\n");
        assert_eq!(ids(&spellings), vec![id; 5]);
    }

    #[test]
    fn an_unusable_key_is_named_by_its_number_and_not_shown() {
        let good = "00".repeat(KEY);
        let short = "ab".repeat(KEY - 1);
        let long = URL_SAFE_NO_PAD.encode([1; KEY + 1]);
        let odd = format!("{}é", "0".repeat(2 * KEY - 2));
        for bad in ["", "hunter2", &short, &long, &odd] {
            let error = KeyRing::parse(&format!("{good},{bad}")).unwrap_err();
            let text = error.to_string();
            assert_eq!(
                text,
                "AGENT_ENCRYPTION_KEY: key 2 is not 32 bytes in base64 or hex"
            );
        }
        assert!(KeyRing::parse("").is_err());
    }

    #[test]
    fn keys_are_not_shown() {
        let text = "fb".repeat(KEY);
        let shown = format!("{:?}", KeyRing::parse(&text).unwrap());
        assert_eq!(shown, format!("KeyRing({:?})", ids(&text)));
    }

    #[test]
    fn secrets_are_sealed_and_documents_of_servers_are_not() {
        for key in [
            "/gull/pier/c1/token",
            "/gull/pier/c1/client_info/",
            "/gull/pier/c1/code_verifier",
            "/gull/pier/c1/code_verifier/n1",
            "/gull/pier/c1/code_verifier_challenge/abc",
            "/gull/pier/state/n1",
            "/gull/pier/c1/dpop_key",
        ] {
            assert!(is_secret(key), "{key}");
        }
        for key in ["/gull/pier/oauth_discovery", "cf_agents:mcp_schema_version"] {
            assert!(!is_secret(key), "{key}");
        }
    }

    #[test]
    fn only_what_has_exactly_the_sealed_members_is_sealed() {
        let sealed = r#"{"data":"AA","iv":"AA","kid":"0123abcd","sealed":1}"#;
        assert!(is_sealed(sealed));
        assert!(is_sealed(&sealed.replace(":1}", ":2}")));
        for plain in [
            "\"verifier\"".to_owned(),
            "{}".to_owned(),
            "no json".to_owned(),
            // What an authorization server adds to its tokens does not turn them into something else.
            sealed.replace(":1}", ":1,\"access_token\":\"t\"}"),
            sealed.replace("0123abcd", "../../..."),
            sealed.replace(":1}", ":true}"),
        ] {
            assert!(!is_sealed(&plain), "{plain}");
        }
    }
}
