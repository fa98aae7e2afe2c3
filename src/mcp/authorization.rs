//! What a host can ask and do about the permission for a server.

use std::rc::Rc;

use super::connection::Common;
use super::server::StoredServer;
use super::{AuthorizationInfo, McpClientManager};
use crate::oauth::{AuthorizationUrl, Authorizer, Credentials, key_prefix};
use crate::{Error, Result};

impl McpClientManager {
    /// Where to send the user of a server that waits for a sign-in, as long as that can be used.
    /// Asks nobody.
    ///
    /// # Errors
    /// [`Error::DamagedRow`]; storage errors.
    pub async fn auth_url(&self, id: &str) -> Result<Option<AuthorizationUrl>> {
        let now = self.inner.common.ports.clock.now();
        let Some(mut stored) = self.server(id)? else {
            return Ok(None);
        };
        if let Some(url) = &stored.auth_url {
            let revealed = self.inner.common.reveal_url(&stored.id, url).await;
            stored.auth_url = revealed.map(|url| url.as_str().to_owned());
        }
        let Some(auth_url) = stored.auth_url(now) else {
            return Ok(None);
        };
        if stored.knows_until_when() {
            return Ok(Some(auth_url));
        }
        // Stored by the TypeScript package, and perhaps long ago.
        let Some(nonce) = auth_url.nonce() else {
            return Ok(Some(auth_url));
        };
        let Some(authorizer) = self.inner.common.authorizer(&stored)? else {
            return Ok(None);
        };
        let pending = authorizer.provider().pending(&nonce).await?;
        Ok(pending
            .filter(|pending| !pending.is_over(now))
            .map(|_| auth_url))
    }

    /// What is known of the permission for a server. Asks nobody.
    ///
    /// # Errors
    /// [`Error::UnknownServer`]; storage errors.
    pub async fn authorization(&self, id: &str) -> Result<Option<AuthorizationInfo>> {
        let connection = self.connection_of(id)?;
        let Some(authorizer) = connection.authorizer()? else {
            return Ok(None);
        };
        let tokens = authorizer.known().await?;
        Ok(tokens.map(|tokens| AuthorizationInfo {
            issuer: tokens.issuer.clone(),
            client_id: authorizer.provider().client_id(),
            scope: tokens.scope.clone(),
            expires_at: tokens.expires_at(),
        }))
    }

    /// Signs out of a server: tokens are taken back at the authorization server, as far as it can be
    /// told, and forgotten with everything else of the sign-in. A client that the host has given is
    /// kept. The connection is closed, and the server stays.
    ///
    /// # Errors
    /// [`Error::UnknownServer`]; storage errors.
    pub async fn sign_out(&self, id: &str) -> Result<()> {
        let _entered = self.inner.serial.enter(id).await;
        let connection = self.connection_of(id)?;
        let authorizer = connection.authorizer()?;
        self.forget(id);
        let mut client_id = None;
        if let Some(authorizer) = authorizer {
            self.revoke(&authorizer).await;
            authorizer.clear(Credentials::SignIn).await?;
            client_id = authorizer.provider().client_id();
        }
        connection.change_row(|stored| {
            stored.auth_url = None;
            stored.client_id = client_id;
            stored.options.authorization = None;
            stored.forget_card();
        })?;
        // What this user was offered is nobody else's to see.
        self.inner.common.ports.catalogs.delete(id)?;
        self.changed();
        Ok(())
    }

    /// Takes the tokens back in the background. Nobody waits for a server that cannot be told, and
    /// what cannot be read cannot be taken back.
    pub(super) async fn revoke(&self, authorizer: &Rc<Authorizer>) {
        if let Ok(Some(revocation)) = authorizer.revocation().await {
            self.inner.common.ports.spawn.spawn(revocation);
        }
    }

    /// Permission for a server is got in another way from now on.
    pub(super) async fn change_sign_in(&self, stored: &StoredServer) -> Result<()> {
        let common = &*self.inner.common;
        let known = common.authorizers.borrow().get(stored.id.as_str()).cloned();
        match (known, common.provider(stored)?) {
            (Some(known), Some(provider)) => known.change_provider(provider).await?,
            (None, Some(provider)) => provider.invalidate(Credentials::Attempts).await?,
            (known, None) => {
                common.authorizers.borrow_mut().remove(stored.id.as_str());
                if let Some(known) = known {
                    known.clear(Credentials::Attempts).await?;
                }
            }
        }
        Ok(())
    }

    /// Forgets everything that was granted for a server, and its client.
    pub(super) async fn forget_sign_in(&self, id: &str) -> Result<()> {
        let common = &*self.inner.common;
        let connection = self.connection_of(id).ok();
        if let Some(connection) = &connection {
            // What is under way must not begin anything after this.
            connection.close();
        }
        let authorizer = connection.map(|connection| connection.authorizer());
        common.providers.borrow_mut().remove(id);
        common.authorizers.borrow_mut().remove(id);
        // Whoever keeps what was granted may be in trouble. That keeps nobody from removing a server,
        // and is said all the same.
        let retired = match authorizer {
            Some(Ok(Some(authorizer))) => {
                self.revoke(&authorizer).await;
                authorizer.retire().await
            }
            Some(Err(Error::Authorization(error))) => Err(error),
            _ => Ok(()),
        };
        // Also of a row that cannot be read, or whose URL is blocked by now.
        common.forget_keys(id).await?;
        Ok(retired?)
    }
}

impl Common {
    /// Deletes what is kept of sign-ins under an id.
    pub(super) async fn forget_keys(&self, id: &str) -> Result<()> {
        let prefix = key_prefix(&self.namespace, id);
        let keys = self.ports.keys.keys(&prefix).await?;
        if !keys.is_empty() {
            self.ports.keys.delete(&keys).await?;
        }
        Ok(())
    }
}
