//! Values that are encrypted in the store and in the clear for whoever uses it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use async_trait::async_trait;
use futures::executor::block_on;
use serde_json::Value;
use workers_agents::ports::{KeyValueStore, StoreError};
use workers_agents::vault::{KeyRing, SealedStore, Vault, VaultError, is_sealed};

use super::crypto::NativeCrypto;

const TOKENS: &str = r#"{"access_token":"hunter2","token_type":"Bearer"}"#;
const KEY: &str = "/gull/pier/c1/token";

/// A key of 32 equal bytes, in hex.
fn key(byte: u8) -> String {
    format!("{byte:02x}").repeat(32)
}

fn vault(keys: &[u8]) -> Vault {
    let keys: Vec<_> = keys.iter().copied().map(key).collect();
    Vault::new(
        Rc::new(NativeCrypto),
        KeyRing::parse(&keys.join(",")).unwrap(),
    )
}

fn sealed(vault: &Vault) -> Value {
    serde_json::from_str(&block_on(vault.seal(KEY, TOKENS)).unwrap()).unwrap()
}

#[test]
fn what_is_sealed_is_not_to_be_read_and_opens_again() {
    let vault = vault(&[1]);
    for text in ["", "\"verifier\"", TOKENS, "{\"name\":\"Möwe 🐦\"}"] {
        let sealed = block_on(vault.seal(KEY, text)).unwrap();
        assert!(is_sealed(&sealed));
        assert!(!sealed.contains("hunter2"));
        let opened = block_on(vault.open(KEY, &sealed)).unwrap();
        assert_eq!(opened.text, text);
        assert!(opened.is_current);
        assert!(!format!("{opened:?} {vault:?}").contains("hunter2"));
    }
}

#[test]
fn the_same_text_is_never_sealed_alike() {
    let vault = vault(&[1]);
    let (one, other) = (sealed(&vault), sealed(&vault));
    assert_eq!(one["kid"], other["kid"]);
    assert_ne!(one["iv"], other["iv"]);
    assert_ne!(one["data"], other["data"]);
}

#[test]
fn a_value_opens_in_its_place_only() {
    let vault = vault(&[1]);
    let sealed = sealed(&vault).to_string();
    let moved = block_on(vault.open("/gull/reef/c1/token", &sealed));
    assert_eq!(moved, Err(VaultError::Tampered));
}

#[test]
fn a_value_that_was_changed_does_not_open() {
    let vault = vault(&[1]);
    let original = sealed(&vault);
    for member in ["iv", "data"] {
        let text = original[member].as_str().unwrap();
        for at in 0..text.len() {
            let other = if &text[at..=at] == "A" { "B" } else { "A" };
            let mut changed = original.clone();
            changed[member] = [&text[..at], other, &text[at + 1..]].concat().into();
            let opened = block_on(vault.open(KEY, &changed.to_string()));
            assert_eq!(opened, Err(VaultError::Tampered), "{member} at {at}");
        }
        for text in ["", "A", "AAAA", "no base64!"] {
            let mut changed = original.clone();
            changed[member] = text.into();
            let opened = block_on(vault.open(KEY, &changed.to_string()));
            assert_eq!(opened, Err(VaultError::Tampered), "{member}: {text}");
        }
    }
}

#[test]
fn another_key_opens_nothing_and_the_missing_one_is_named() {
    let sealed = sealed(&vault(&[1]));
    let error = block_on(vault(&[2, 3]).open(KEY, &sealed.to_string())).unwrap_err();
    let kid = sealed["kid"].as_str().unwrap().to_owned();
    assert!(error.to_string().contains(&kid));
    assert_eq!(error, VaultError::UnknownKey { kid });

    // With the id of a key that is there, it is the key that decides.
    let mut renamed = sealed;
    renamed["kid"] = super::vault::sealed(&vault(&[2]))["kid"].clone();
    let opened = block_on(vault(&[2]).open(KEY, &renamed.to_string()));
    assert_eq!(opened, Err(VaultError::Tampered));
}

#[test]
fn keys_are_changed_by_putting_a_new_one_in_front() {
    let old = sealed(&vault(&[1])).to_string();
    let both = vault(&[2, 1]);
    let opened = block_on(both.open(KEY, &old)).unwrap();
    assert_eq!(opened.text, TOKENS);
    assert!(!opened.is_current);

    let new = block_on(both.seal(KEY, &opened.text)).unwrap();
    let opened = block_on(vault(&[2]).open(KEY, &new)).unwrap();
    assert!(opened.is_current);
}

#[test]
fn what_was_stored_in_the_clear_is_passed_through() {
    let vault = vault(&[1]);
    for text in [TOKENS, "\"verifier\"", "null", "[]"] {
        let opened = block_on(vault.open(KEY, text)).unwrap();
        assert_eq!(opened.text, text);
        assert!(!opened.is_current);
    }
}

#[test]
fn a_form_of_a_later_version_is_refused() {
    let vault = vault(&[1]);
    let mut later = sealed(&vault);
    later["sealed"] = 2.into();
    let opened = block_on(vault.open(KEY, &later.to_string()));
    assert_eq!(opened, Err(VaultError::UnknownForm));
}

#[derive(Default)]
struct Memory(RefCell<BTreeMap<String, String>>);

#[async_trait(?Send)]
impl KeyValueStore for Memory {
    async fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        Ok(self.0.borrow().get(key).cloned())
    }

    async fn put(&self, key: &str, json: &str) -> Result<(), StoreError> {
        self.0.borrow_mut().insert(key.into(), json.into());
        Ok(())
    }

    async fn delete(&self, keys: &[String]) -> Result<(), StoreError> {
        self.0.borrow_mut().retain(|key, _| !keys.contains(key));
        Ok(())
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let values = self.0.borrow();
        let keys = values.keys().filter(|key| key.starts_with(prefix));
        Ok(keys.cloned().collect())
    }
}

fn store(keys: &[u8]) -> (Rc<Memory>, SealedStore) {
    let memory = Rc::new(Memory::default());
    let vault = Rc::new(vault(keys));
    (memory.clone(), SealedStore::new(memory, Some(vault)))
}

#[test]
fn a_store_seals_secrets_and_leaves_the_rest_readable() {
    let (memory, store) = store(&[1]);
    let discovery = "/gull/pier/oauth_discovery";
    block_on(store.put(KEY, TOKENS)).unwrap();
    block_on(store.put(discovery, "{}")).unwrap();
    let stored = |key| block_on(memory.get(key)).unwrap().unwrap();
    assert!(is_sealed(&stored(KEY)));
    assert_eq!(stored(discovery), "{}");

    assert_eq!(block_on(store.get(KEY)).unwrap().unwrap(), TOKENS);
    assert_eq!(block_on(store.get(discovery)).unwrap().unwrap(), "{}");
    assert_eq!(block_on(store.get("/gull/none")).unwrap(), None);
    assert_eq!(block_on(store.keys("/gull/pier/c1/")).unwrap(), [KEY]);
    block_on(store.delete(&[KEY.to_owned()])).unwrap();
    assert_eq!(block_on(store.get(KEY)).unwrap(), None);
}

#[test]
fn what_was_stored_in_the_clear_is_sealed_when_it_is_written_again() {
    let (memory, store) = store(&[1]);
    block_on(memory.put(KEY, TOKENS)).unwrap();
    let read = block_on(store.get(KEY)).unwrap().unwrap();
    assert_eq!(read, TOKENS);
    block_on(store.put(KEY, &read)).unwrap();
    assert!(is_sealed(&block_on(memory.get(KEY)).unwrap().unwrap()));
}

#[test]
fn a_store_without_keys_hands_out_nothing_that_is_sealed() {
    let (memory, store) = store(&[1]);
    block_on(store.put(KEY, TOKENS)).unwrap();
    let open = SealedStore::new(memory, None);
    let error = block_on(open.get(KEY)).unwrap_err().to_string();
    assert!(error.contains("AGENT_ENCRYPTION_KEY is not set"), "{error}");

    // It can be written over, by a sign-in anew.
    block_on(open.put(KEY, TOKENS)).unwrap();
    assert_eq!(block_on(open.get(KEY)).unwrap().unwrap(), TOKENS);
}

#[test]
fn a_store_says_which_key_is_missing_and_never_names_the_place() {
    let (memory, store) = store(&[1]);
    let place = "/gull/pier/state/hunter2";
    block_on(store.put(place, "{}")).unwrap();
    let other = SealedStore::new(memory, Some(Rc::new(vault(&[2]))));
    let error = block_on(other.get(place)).unwrap_err().to_string();
    assert!(error.contains("which is not one of AGENT_ENCRYPTION_KEY"));
    assert!(!error.contains("hunter2"), "{error}");
}
