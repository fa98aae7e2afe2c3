//! The default provider: keeps everything in a [`KeyValueStore`], under the keys of the TypeScript
//! package, so that either can go on where the other stopped.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use async_trait::async_trait;
use futures::future::LocalBoxFuture;
use serde_json::Value;

use super::client::{AuthMethod, ClientInformation, ClientMetadata};
use super::grant::Grant;
use super::provider::{
    Credentials, OAuthProvider, OAuthSettings, PendingSignIn, SIGN_IN_LIFETIME, SignInFlow, Used,
};
use super::record::{Member as _, Record, put, take};
use super::tokens::{OURS, Tokens};
use super::{OAuthError, ServerMetadata};
use crate::ports::{Http, KeyValueStore, Timestamp};

/// Keys, behind the prefix of the server or of one of its clients.
const CLIENT: &str = "client_info/";
const DISCOVERY: &str = "oauth_discovery";
const DPOP_KEY: &str = "dpop_key";
/// Who a client that the host keeps belongs to.
const BOUND: &str = "issuer";
/// What stands for the client where there is none.
const NO_CLIENT: &str = "none";
/// How many sign-ins of a server may be under way.
const MAX_PENDING: usize = 16;
/// How long a used sign-in is remembered, in milliseconds: a day.
const USED_LIFETIME: Timestamp = 86_400_000;

/// For which server of which object a provider is made.
#[derive(Clone)]
#[non_exhaustive]
pub struct ProviderContext {
    /// The store of the object.
    pub keys: Rc<dyn KeyValueStore>,
    /// The first part of all keys: the object's name, or that of its manager.
    pub namespace: String,
    /// The server.
    pub server_id: String,
    /// Its URL, as registered.
    pub server_url: String,
    /// Where the user comes back to, if that is known.
    pub callback_url: Option<String>,
    /// The id of the client in use, as stored with the server.
    pub client_id: Option<String>,
    /// What users read when they are asked for consent.
    pub client_name: String,
    /// Where the document about the client is published, if it is.
    pub client_metadata_url: Option<String>,
    /// Wishes that are stored with the server.
    pub settings: OAuthSettings,
    /// How tokens are got, as stored with the server.
    pub grant: Grant,
}

/// The default [`OAuthProvider`].
pub struct StoredOAuthProvider {
    cx: ProviderContext,
    client_id: RefCell<Option<String>>,
    /// A client that the host gave, which is not stored.
    fixed: Option<ClientInformation>,
    http: Option<Rc<dyn Http>>,
}

impl StoredOAuthProvider {
    /// A provider that keeps everything in the context's store.
    pub fn new(cx: ProviderContext) -> Self {
        Self {
            client_id: RefCell::new(cx.client_id.clone()),
            cx,
            fixed: None,
            http: None,
        }
    }

    /// Keeps everything elsewhere.
    #[must_use]
    pub fn with_store(mut self, keys: Rc<dyn KeyValueStore>) -> Self {
        self.cx.keys = keys;
        self
    }

    /// Uses a client that was registered beforehand, whatever is stored. It is not stored itself:
    /// whoever gives it, a binding for one, keeps it.
    #[must_use]
    pub fn with_client(mut self, mut client: ClientInformation) -> Self {
        client.ours.configured = true;
        self.client_id.replace(Some(client.client_id.clone()));
        self.fixed = Some(client);
        self
    }

    /// Gets tokens in another way than from a user.
    #[must_use]
    pub fn with_grant(mut self, grant: Grant) -> Self {
        self.cx.grant = grant;
        self
    }

    /// Uses the document at this URL as the client's id.
    #[must_use]
    pub fn with_client_metadata_url(mut self, url: impl Into<String>) -> Self {
        self.cx.client_metadata_url = Some(url.into());
        self
    }

    /// Changes what was stored with the server.
    #[must_use]
    pub fn with_settings(mut self, settings: OAuthSettings) -> Self {
        self.cx.settings = settings;
        self
    }

    /// Sends requests to authorization servers through this.
    #[must_use]
    pub fn with_http(mut self, http: Rc<dyn Http>) -> Self {
        self.http = Some(http);
        self
    }

    fn prefix(&self) -> String {
        key_prefix(&self.cx.namespace, &self.cx.server_id)
    }

    fn of_server(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix())
    }

    fn of_client(&self, client_id: &str, rest: &str) -> String {
        format!("{}{client_id}/{rest}", self.prefix())
    }

    /// Where the tokens of a client are. Grants without a client have a place, too.
    fn token_key(&self, client_id: Option<&str>) -> String {
        let client_id = client_id.filter(|id| !id.is_empty());
        self.of_client(client_id.unwrap_or(NO_CLIENT), "token")
    }

    /// A record. What is none is as good as lost, and no reason to stop for ever.
    ///
    /// Boxed, so that not everybody who reads holds a copy of all that it takes.
    fn read<'a>(&'a self, key: &'a str) -> LocalBoxFuture<'a, Result<Option<Record>, OAuthError>> {
        Box::pin(async move {
            let text = self.cx.keys.get(key).await?;
            Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
        })
    }

    fn write<'a>(
        &'a self,
        key: &'a str,
        record: Record,
    ) -> LocalBoxFuture<'a, Result<(), OAuthError>> {
        Box::pin(async move {
            let text = Value::Object(record).to_string();
            Ok(self.cx.keys.put(key, &text).await?)
        })
    }

    fn delete(&self, keys: Vec<String>) -> LocalBoxFuture<'_, Result<(), OAuthError>> {
        Box::pin(async move {
            if keys.is_empty() {
                return Ok(());
            }
            Ok(self.cx.keys.delete(&keys).await?)
        })
    }

    /// The client in use.
    async fn stored_client(&self) -> Result<Option<ClientInformation>, OAuthError> {
        if let Some(fixed) = &self.fixed {
            let mut fixed = fixed.clone();
            if fixed.issuer.is_none() {
                // Only who it belongs to is stored.
                let bound = self.read(&self.of_server(BOUND)).await?;
                let bound = bound.filter(|bound| {
                    bound
                        .get("clientId")
                        .is_some_and(|id| *id == *fixed.client_id)
                });
                fixed.issuer =
                    bound.and_then(|mut bound| take::<Option<String>>(&mut bound, "issuer"));
            }
            return Ok(Some(fixed));
        }
        let Some(client_id) = self.client_id() else {
            return Ok(None);
        };
        let record = self.read(&self.of_client(&client_id, CLIENT)).await?;
        Ok(record.and_then(ClientInformation::from_record))
    }

    /// The client that the host gave, if it is this one.
    fn fixed_as(&self, client: &ClientInformation) -> Option<&ClientInformation> {
        let fixed = self.fixed.as_ref();
        fixed.filter(|fixed| fixed.client_id == client.client_id)
    }

    /// Stores a client that the host has given; it becomes the one in use. Says whether it is another
    /// one than before.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn save_configured(&self, client: &ClientInformation) -> Result<bool, OAuthError> {
        let mut client = client.clone();
        client.ours.configured = true;
        let before = self.stored_client().await?;
        if let Some(before) = &before
            && before.client_id == client.client_id
        {
            // Said again, it keeps the issuer that it has been bound to.
            client.issuer = client.issuer.or_else(|| before.issuer.clone());
        }
        if before.as_ref() == Some(&client) {
            return Ok(false);
        }
        self.save_client(&client).await?;
        Ok(true)
    }

    /// Deletes what was registered and granted before this client, and is used no more. What the
    /// host has given is not thrown away. One that is untried itself takes the place of such only.
    async fn prune(&self, successor: &ClientInformation) -> Result<(), OAuthError> {
        let ours = self.of_client(&successor.client_id, "");
        let is_untried = successor.ours.untried;
        let mut old = Vec::new();
        for key in self.cx.keys.keys(&self.prefix()).await? {
            if key.starts_with(&ours) {
                continue;
            }
            let is_client = key.ends_with(&format!("/{CLIENT}"));
            if is_client {
                // What cannot be read for want of a key may be the host's.
                let Ok(record) = self.read(&key).await else {
                    continue;
                };
                let client = record.and_then(ClientInformation::from_record);
                let is_kept = |client: ClientInformation| {
                    client.ours.configured || (is_untried && !client.ours.untried)
                };
                if client.is_some_and(is_kept) {
                    continue;
                }
            }
            if is_client || (!is_untried && key.ends_with("/token")) {
                old.push(key);
            }
        }
        self.delete(old).await
    }

    /// Deletes sign-ins whose time is over, and the oldest of too many.
    async fn sweep(&self, now: Timestamp) -> Result<(), OAuthError> {
        let prefix = self.prefix();
        let mut over = Vec::new();
        let mut live = Vec::new();
        let mut verifiers = Vec::new();
        for key in self.cx.keys.keys(&prefix).await? {
            let rest = key.strip_prefix(&prefix).unwrap_or_default();
            let is_state = is_of_attempt(rest, "state/");
            let (since, lifetime) = if is_of_attempt(rest, "used/") {
                ("usedAt", USED_LIFETIME)
            } else if is_state || rest.contains("/code_verifier") {
                ("createdAt", SIGN_IN_LIFETIME)
            } else {
                continue;
            };
            // What cannot be read for want of a key may be readable later.
            let Ok(record) = self.read(&key).await else {
                continue;
            };
            let since = record.and_then(|record| record.get(since)?.as_u64());
            match since {
                Some(since) if now.saturating_sub(since) > lifetime => over.push(key),
                Some(since) if is_state => live.push((since, key)),
                Some(_) if rest.contains("/code_verifier/") => verifiers.push(key),
                Some(_) => {}
                // A verifier that is plain text is of an old version of the TypeScript package.
                None if rest.ends_with("/code_verifier") => {}
                None => over.push(key),
            }
        }
        live.sort_unstable();
        let surplus = live.len().saturating_sub(MAX_PENDING - 1);
        for (_, key) in live.into_iter().take(surplus) {
            let nonce = key.rsplit('/').next().unwrap_or_default();
            let is_of_it = |key: &String| key.ends_with(&format!("/code_verifier/{nonce}"));
            over.extend(verifiers.extract_if(.., |key| is_of_it(key)));
            over.push(key);
        }
        self.delete(over).await
    }

    /// Keys of sign-ins that have begun.
    async fn attempts(&self) -> Result<Vec<String>, OAuthError> {
        let prefix = self.prefix();
        let mut keys = self.cx.keys.keys(&prefix).await?;
        keys.retain(|key| {
            let rest = key.strip_prefix(&prefix).unwrap_or_default();
            is_of_attempt(rest, "state/") || rest.contains("/code_verifier") || rest == DISCOVERY
        });
        Ok(keys)
    }

    /// The rest of a sign-in that the TypeScript package has begun.
    async fn foreign_flow(&self) -> Result<Option<SignInFlow>, OAuthError> {
        let key = self.of_server(DISCOVERY);
        let Some(mut discovery) = self.read(&key).await? else {
            return Ok(None);
        };
        let (Some(client), Some(redirect_uri)) =
            (self.stored_client().await?, self.cx.callback_url.clone())
        else {
            return Ok(None);
        };
        let published = discovery
            .get("authorizationServerMetadata")
            .and_then(ServerMetadata::read);
        let server =
            take::<Option<String>>(&mut discovery, "authorizationServerUrl").unwrap_or_default();
        let token_endpoint = match &published {
            Some(published) => published.token_endpoint.clone(),
            None => url::Url::parse(&server)
                .and_then(|url| url.join("/token"))
                .map(String::from)
                .ok(),
        };
        let Some(token_endpoint) = token_endpoint else {
            return Ok(None);
        };
        let methods = published
            .as_ref()
            .and_then(|server| server.token_endpoint_auth_methods_supported.as_deref());
        let resource = discovery
            .get("resourceMetadata")
            .and_then(|document| Some(document.get("resource")?.as_str()?.to_owned()));
        Ok(Some(SignInFlow {
            auth_method: AuthMethod::choose(&client, methods),
            client,
            is_published: published.is_some(),
            names_issuer: published
                .as_ref()
                .is_some_and(|server| server.authorization_response_iss_parameter_supported),
            revocation_endpoint: published
                .as_ref()
                .and_then(|server| server.revocation_endpoint.clone()),
            issuer: published.map_or(server, |server| server.issuer),
            token_endpoint,
            redirect_uri,
            resource,
            scope: None,
            server_url: self.cx.server_url.clone(),
            resource_metadata_url: None,
            dpop: false,
        }))
    }
}

#[async_trait(?Send)]
impl OAuthProvider for StoredOAuthProvider {
    fn redirect_url(&self) -> Option<&str> {
        self.cx.callback_url.as_deref()
    }

    fn client_metadata(&self) -> ClientMetadata {
        let redirect_url = self.cx.callback_url.clone().unwrap_or_default();
        ClientMetadata::new(&self.cx.client_name, redirect_url)
    }

    fn client_metadata_url(&self) -> Option<&str> {
        self.cx.client_metadata_url.as_deref()
    }

    fn grant(&self) -> Grant {
        self.cx.grant.clone()
    }

    fn settings(&self) -> OAuthSettings {
        self.cx.settings.clone()
    }

    fn http(&self) -> Option<Rc<dyn Http>> {
        self.http.clone()
    }

    fn client_id(&self) -> Option<String> {
        self.client_id.borrow().clone()
    }

    async fn known_issuer(&self) -> Result<Option<String>, OAuthError> {
        let client = self.stored_client().await?;
        Ok(client.and_then(|client| client.issuer))
    }

    async fn client(&self, issuer: &str) -> Result<Option<ClientInformation>, OAuthError> {
        let Some(mut client) = self.stored_client().await? else {
            return Ok(None);
        };
        let wanted = self.cx.settings.issuer.as_ref().or(client.issuer.as_ref());
        match wanted {
            Some(bound) if same_issuer(bound, issuer) => {}
            Some(bound) if client.ours.configured => {
                return Err(OAuthError::ConfiguredClient {
                    client_id: client.client_id,
                    reason: format!("it belongs to {bound}, and the server names {issuer}"),
                });
            }
            Some(_) => return Ok(None),
            None => {}
        }
        if client.issuer.as_deref() != Some(issuer) {
            client.issuer = Some(issuer.to_owned());
            self.save_client(&client).await?;
        }
        Ok(Some(client))
    }

    async fn save_client(&self, client: &ClientInformation) -> Result<(), OAuthError> {
        if self.fixed_as(client).is_some() {
            let mut bound = Record::new();
            bound.insert("clientId".into(), client.client_id.clone().into());
            bound.insert("issuer".into(), client.issuer.clone().into());
            return self.write(&self.of_server(BOUND), bound).await;
        }
        if self.fixed.is_some() {
            // What was begun with another client before the host gave this one.
            return Ok(());
        }
        let key = self.of_client(&client.client_id, CLIENT);
        self.write(&key, client.to_record()).await?;
        self.client_id.replace(Some(client.client_id.clone()));
        self.prune(client).await
    }

    async fn tokens(&self) -> Result<Option<Tokens>, OAuthError> {
        let key = self.token_key(self.client_id().as_deref());
        let tokens = self.read(&key).await?.and_then(Tokens::from_record);
        // Those of another server that was registered under this id must not be sent to this one.
        let is_ours = |tokens: &Tokens| {
            let origin = tokens.origin.as_ref();
            origin.is_none_or(|origin| origin.server_url == self.cx.server_url)
        };
        let expected = self.cx.settings.issuer.as_deref();
        let is_expected = |tokens: &Tokens| match (expected, &tokens.issuer) {
            (Some(expected), Some(issuer)) => same_issuer(expected, issuer),
            _ => true,
        };
        Ok(tokens.filter(is_ours).filter(is_expected))
    }

    async fn save_tokens(&self, tokens: &Tokens) -> Result<(), OAuthError> {
        let client_id = match &tokens.origin {
            Some(origin) => Some(origin.client_id.clone()),
            None => self.client_id(),
        };
        let key = self.token_key(client_id.as_deref());
        self.write(&key, tokens.to_record()).await?;
        // The next 401 reads the metadata anew: so an authorization server that has moved is seen.
        self.delete(vec![self.of_server(DISCOVERY)]).await
    }

    async fn save_pending(
        &self,
        pending: &PendingSignIn,
        now: Timestamp,
    ) -> Result<(), OAuthError> {
        self.sweep(now).await?;
        if let Some(Value::Object(discovery)) = &pending.discovery {
            let key = self.of_server(DISCOVERY);
            self.write(&key, discovery.clone()).await?;
        }
        let client_id = &pending.flow.client.client_id;
        let mut record = Record::new();
        record.insert("verifier".into(), pending.verifier.clone().into());
        record.insert("createdAt".into(), pending.created_at.into());
        let key = self.of_client(client_id, &format!("code_verifier/{}", pending.nonce));
        self.write(&key, record).await?;
        let mut flow = pending.flow.clone();
        if self.fixed_as(&flow.client).is_some() {
            // Whoever gives the client keeps its secrets.
            flow.client.client_secret = None;
            flow.client.ours.private_key = None;
        }
        let mut record = Record::new();
        record.insert("nonce".into(), pending.nonce.clone().into());
        record.insert("serverId".into(), pending.server_id.clone().into());
        record.insert("createdAt".into(), pending.created_at.into());
        put(&mut record, OURS, &flow);
        let key = self.of_server(&format!("state/{}", pending.nonce));
        self.write(&key, record).await
    }

    async fn pending(&self, nonce: &str) -> Result<Option<PendingSignIn>, OAuthError> {
        let key = self.of_server(&format!("state/{nonce}"));
        let Some(mut record) = self.read(&key).await? else {
            return Ok(None);
        };
        let flow = match record.remove(OURS) {
            Some(flow) => Some(SignInFlow::read(Some(flow))),
            None => self.foreign_flow().await?,
        };
        let Some(mut flow) = flow else {
            return Ok(None);
        };
        if let Some(fixed) = self.fixed_as(&flow.client) {
            flow.client.client_secret.clone_from(&fixed.client_secret);
            flow.client
                .ours
                .private_key
                .clone_from(&fixed.ours.private_key);
        }
        // Of the client of the sign-in, which need not be the one in use.
        let client_id = &flow.client.client_id;
        let key = self.of_client(client_id, &format!("code_verifier/{nonce}"));
        let verifier = self.read(&key).await?;
        let Some(verifier) =
            verifier.and_then(|mut record| take::<Option<String>>(&mut record, "verifier"))
        else {
            return Ok(None);
        };
        let created_at = record.get("createdAt").and_then(Value::as_u64);
        Ok(Some(PendingSignIn {
            nonce: nonce.to_owned(),
            server_id: take::<Option<String>>(&mut record, "serverId").unwrap_or_default(),
            created_at: created_at.unwrap_or_default(),
            verifier,
            flow,
            discovery: None,
        }))
    }

    async fn take_pending(
        &self,
        nonce: &str,
        now: Timestamp,
    ) -> Result<Option<PendingSignIn>, OAuthError> {
        let Some(pending) = self.pending(nonce).await? else {
            return Ok(None);
        };
        let used = self.of_server(&format!("used/{nonce}"));
        let mut record = Record::new();
        record.insert("usedAt".into(), now.into());
        self.write(&used, record).await?;
        let client_id = &pending.flow.client.client_id;
        self.delete(vec![
            self.of_server(&format!("state/{nonce}")),
            self.of_client(client_id, &format!("code_verifier/{nonce}")),
        ])
        .await?;
        Ok(Some(pending))
    }

    async fn save_success(&self, nonce: &str, now: Timestamp) -> Result<(), OAuthError> {
        let mut record = Record::new();
        record.insert("usedAt".into(), now.into());
        record.insert("succeeded".into(), true.into());
        let key = self.of_server(&format!("used/{nonce}"));
        self.write(&key, record).await
    }

    async fn used(&self, nonce: &str) -> Result<Option<Used>, OAuthError> {
        let key = self.of_server(&format!("used/{nonce}"));
        let record = self.read(&key).await?;
        Ok(record.map(|mut record| {
            if take(&mut record, "succeeded") {
                Used::Successfully
            } else {
                Used::InVain
            }
        }))
    }

    async fn dpop_key(&self) -> Result<Option<String>, OAuthError> {
        Ok(self.cx.keys.get(&self.of_server(DPOP_KEY)).await?)
    }

    async fn save_dpop_key(&self, jwk: &str) -> Result<(), OAuthError> {
        Ok(self.cx.keys.put(&self.of_server(DPOP_KEY), jwk).await?)
    }

    async fn invalidate(&self, what: Credentials) -> Result<(), OAuthError> {
        let client_id = self.client_id();
        // One that cannot be read now may have been given.
        let is_configured = match self.stored_client().await {
            Ok(client) => client.is_some_and(|client| client.ours.configured),
            Err(_) => true,
        };
        let info = client_id.as_ref().map(|id| self.of_client(id, CLIENT));
        let keys = match what {
            Credentials::Tokens => vec![self.token_key(client_id.as_deref())],
            Credentials::Client if is_configured => return Ok(()),
            Credentials::Client => info.into_iter().collect(),
            Credentials::Attempts => self.attempts().await?,
            Credentials::SignIn => {
                let kept = info.filter(|_| is_configured);
                let mut keys = self.cx.keys.keys(&self.prefix()).await?;
                keys.retain(|key| Some(key) != kept.as_ref() && *key != self.of_server(BOUND));
                keys
            }
            Credentials::All => self.cx.keys.keys(&self.prefix()).await?,
        };
        self.delete(keys).await?;
        let forgets_client = match what {
            Credentials::Tokens | Credentials::Attempts => false,
            Credentials::Client => true,
            Credentials::SignIn | Credentials::All => !is_configured,
        };
        if forgets_client && self.fixed.is_none() {
            self.client_id.take();
        }
        Ok(())
    }
}

/// What all keys of a server begin with. Ids that the TypeScript package would not make are written
/// so that none is the beginning of another.
pub(crate) fn key_prefix(namespace: &str, server_id: &str) -> String {
    if server_id.contains(['/', '%']) {
        let server_id = server_id.replace('%', "%25").replace('/', "%2F");
        return format!("/{namespace}/{server_id}/");
    }
    format!("/{namespace}/{server_id}/")
}

/// Whether a key is that of a nonce, and not of a client with an odd id.
fn is_of_attempt(rest: &str, folder: &str) -> bool {
    let nonce = rest.strip_prefix(folder);
    nonce.is_some_and(|nonce| !nonce.contains('/') && nonce != "token")
}

/// A lone slash at the end is how the TypeScript package writes an origin.
pub(super) fn same_issuer(one: &str, other: &str) -> bool {
    one == other || one.strip_suffix('/') == Some(other) || other.strip_suffix('/') == Some(one)
}

impl fmt::Debug for StoredOAuthProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredOAuthProvider")
            .field("server_id", &self.cx.server_id)
            .field("client_id", &self.client_id.borrow())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ProviderContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderContext")
            .field("namespace", &self.namespace)
            .field("server_id", &self.server_id)
            .finish_non_exhaustive()
    }
}
