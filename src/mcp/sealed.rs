//! What a row holds that is secret, encrypted at rest: headers, which mostly are keys, and the URL of
//! a sign-in that has begun.

use serde_json::{Map, Value};

use super::ServerId;
use super::connection::Common;
use super::server::{HeaderFields, StoredServer};
use crate::oauth::AuthorizationUrl;
use crate::ports::StoreError;
use crate::{Error, Result};

/// What stands before a URL that is encrypted.
const SEALED_URL: &str = "sealed:";

fn url_context(server: &ServerId) -> String {
    format!("auth_url/{server}")
}

/// Headers are for one server at one place.
fn context(server: &StoredServer) -> String {
    format!("headers/{} {}", server.id, server.url)
}

impl Common {
    /// Puts the headers in the place of their encrypted form. Says whether that is the form they
    /// should have.
    ///
    /// # Errors
    /// Storage errors: without the key they cannot be read.
    pub(super) async fn reveal(&self, server: &mut StoredServer) -> Result<bool> {
        let context = context(server);
        let is_plain = self.vault.is_none() || server.header_map()?.is_empty();
        let Some(transport) = &mut server.options.transport else {
            return Ok(is_plain);
        };
        let Some(sealed) = &transport.sealed_headers else {
            return Ok(is_plain);
        };
        let Some(vault) = &self.vault else {
            return Err(StoreError::from(crate::vault::VaultError::NoKey).into());
        };
        let opened = vault.open(&context, &sealed.to_string()).await;
        let opened = opened.map_err(StoreError::from)?;
        let fields: Map<String, Value> = serde_json::from_str(&opened.text)
            .map_err(|_| StoreError("the headers cannot be read".into()))?;
        transport.headers = Some(HeaderFields::Map(fields));
        transport.sealed_headers = None;
        Ok(opened.is_current)
    }

    /// Encrypts the headers, where there is a key to do so. Says whether it did.
    ///
    /// # Errors
    /// Storage errors; [`Error::InvalidOption`] for a header that is none.
    pub(super) async fn conceal(&self, server: &mut StoredServer) -> Result<bool> {
        let Some(vault) = &self.vault else {
            return Ok(false);
        };
        let headers = server.header_map()?;
        if headers.is_empty() {
            return Ok(false);
        }
        let mut fields = Map::new();
        for (name, value) in &headers {
            let value = value
                .to_str()
                .map_err(|_| Error::InvalidOption(format!("header {name} is not visible ASCII")))?;
            fields.insert(name.to_string(), value.into());
        }
        let text = Value::Object(fields).to_string();
        let sealed = vault.seal(&context(server), &text).await;
        let sealed = sealed.map_err(StoreError::from)?;
        let sealed = serde_json::from_str(&sealed)
            .map_err(|_| StoreError("the headers could not be encrypted".into()))?;
        let transport = server.options.transport.get_or_insert_default();
        transport.sealed_headers = Some(sealed);
        transport.headers = None;
        if let Some(init) = &mut transport.request_init {
            init.headers = None;
        }
        Ok(true)
    }

    /// The URL of a sign-in as it is stored.
    ///
    /// # Errors
    /// Storage errors.
    pub(super) async fn conceal_url(
        &self,
        server: &ServerId,
        url: &AuthorizationUrl,
    ) -> Result<String> {
        let Some(vault) = &self.vault else {
            return Ok(url.as_str().to_owned());
        };
        let text = Value::from(url.as_str()).to_string();
        let sealed = vault.seal(&url_context(server), &text).await;
        Ok(format!("{SEALED_URL}{}", sealed.map_err(StoreError::from)?))
    }

    /// Undoes [`conceal_url`](Self::conceal_url). `None` where it cannot be read any more: then there
    /// is nothing to come back to either.
    pub(super) async fn reveal_url(
        &self,
        server: &ServerId,
        stored: &str,
    ) -> Option<AuthorizationUrl> {
        let Some(sealed) = stored.strip_prefix(SEALED_URL) else {
            return Some(AuthorizationUrl::stored(stored));
        };
        let context = url_context(server);
        let opened = self.vault.as_ref()?.open(&context, sealed).await;
        let url: String = serde_json::from_str(&opened.ok()?.text).ok()?;
        Some(AuthorizationUrl::stored(url))
    }
}
