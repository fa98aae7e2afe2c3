//! A registered server: what a host says about it, and how it is stored.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::handshake::Hint;
use super::offers::Offers;
use super::session::{Agreement, Wire};
use super::sign_in::SignInRecord;
use super::{ReconnectPolicy, ServerId};
use crate::oauth::{AuthorizationUrl, Grant, Member, OAuthSettings, record};
use crate::ports::{DamagedRow, ServerRow, ServerStore, Timestamp};
use crate::protocol::jsonrpc::without_content;
use crate::protocol::model::ServerCard;
use crate::protocol::{Era, Revision};
use crate::retry::RetryOptions;
use crate::transport::TransportKind;
use crate::{Error, Result};

/// Where the TypeScript package keeps the options of its protocol client, and the revisions in it.
const CLIENT: &str = "client";
const VERSIONS: &str = "supportedProtocolVersions";
/// The most headers of a server.
const MAX_HEADER_COUNT: usize = 100;

/// A server as it is stored. Secrets stay inside.
#[derive(Clone)]
pub struct StoredServer {
    /// Its id.
    pub id: ServerId,
    /// Its display name.
    pub name: String,
    /// Its URL, as registered. May carry a key in its query: show it to its owner only.
    pub url: String,
    pub(super) callback_url: String,
    pub(super) client_id: Option<String>,
    pub(super) auth_url: Option<String>,
    pub(super) options: ServerOptions,
}

impl StoredServer {
    pub(super) fn blank(id: ServerId) -> Self {
        Self {
            id,
            name: String::new(),
            url: String::new(),
            callback_url: String::new(),
            client_id: None,
            auth_url: None,
            options: ServerOptions::default(),
        }
    }

    /// Which transport the server is registered with.
    pub fn transport(&self) -> TransportKind {
        // Rows of servers behind a binding name no transport.
        if self.is_rpc() {
            return TransportKind::Rpc;
        }
        let transport = self.options.transport.as_ref();
        transport
            .and_then(|transport| transport.kind.clone())
            .unwrap_or_default()
    }

    /// How connecting is retried after a wake.
    pub fn retry(&self) -> RetryOptions {
        self.stored_retry().unwrap_or(RetryOptions::CONNECT)
    }

    /// The retry policy that the host chose, if it chose one.
    pub(super) fn stored_retry(&self) -> Option<RetryOptions> {
        self.options.retry_options().ok().flatten()
    }

    /// Whether both mean the same server, reached in the same way as the same user.
    pub(crate) fn same_peer(&self, other: &Self) -> bool {
        self.url == other.url
            && self.transport() == other.transport()
            && self.revisions() == other.revisions()
            && self.behind() == other.behind()
            && self
                .header_map()
                .is_ok_and(|headers| other.header_map().is_ok_and(|others| others == headers))
    }

    /// Where the user comes back to, if that is known.
    pub fn callback_url(&self) -> Option<&str> {
        Some(&*self.callback_url).filter(|url| !url.is_empty())
    }

    /// Where to send the user, while the server waits for that and the URL can still be used.
    pub fn auth_url(&self, now: Timestamp) -> Option<AuthorizationUrl> {
        let record = self.options.authorization.as_ref();
        let until = record.and_then(|record| record.until);
        let url = self.auth_url.clone()?;
        // Older versions of the TypeScript package stored whatever they were given.
        let is_web = ["https://", "http://"]
            .iter()
            .any(|scheme| url.starts_with(scheme));
        (is_web && until.is_none_or(|until| now <= until)).then(|| AuthorizationUrl::stored(url))
    }

    /// Whether it is stored until when that is.
    pub(super) fn knows_until_when(&self) -> bool {
        let record = self.options.authorization.as_ref();
        record.is_some_and(|record| record.until.is_some())
    }

    /// Whether the server waits for its user to sign in.
    pub(crate) fn awaits_sign_in(&self) -> bool {
        self.auth_url.is_some()
    }

    /// The headers for every request.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] naming the header, never its value.
    pub(crate) fn header_map(&self) -> Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        let Some(transport) = &self.options.transport else {
            return Ok(headers);
        };
        let init = transport
            .request_init
            .as_ref()
            .and_then(|init| init.headers.as_ref());
        for fields in [init, transport.headers.as_ref()].into_iter().flatten() {
            for (name, value) in fields.pairs() {
                let refuse =
                    || Error::InvalidOption(format!("header {name:?} is not a valid HTTP header"));
                let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refuse())?;
                // Visible ASCII only: what else the type takes, `fetch` does not.
                let value = value
                    .as_str()
                    .and_then(|value| HeaderValue::from_str(value).ok());
                let mut value = value
                    .filter(|value| value.to_str().is_ok())
                    .ok_or_else(refuse)?;
                value.set_sensitive(true);
                // Beyond its capacity the map panics.
                if headers.len() >= MAX_HEADER_COUNT {
                    return Err(Error::InvalidOption(format!(
                        "there are more than {MAX_HEADER_COUNT} headers"
                    )));
                }
                headers.insert(parsed, value);
            }
        }
        Ok(headers)
    }

    /// Tells apart, within one object, how the server is reached and as whom: with other headers it
    /// may offer something else. Headers do not count where they are encrypted: then nobody else can
    /// have written them.
    pub(super) fn peer_fingerprint(&self, with_headers: bool) -> String {
        let mut hash = Sha256::new();
        hash.update(self.url.as_bytes());
        hash.update(self.transport().as_str().as_bytes());
        if with_headers {
            for (name, value) in &self.header_map().unwrap_or_default() {
                hash.update(name.as_str().as_bytes());
                hash.update(value.as_bytes());
            }
        }
        if self.is_rpc() {
            // With other props it may offer something else.
            let (binding, isolated, props) = self.behind();
            hash.update(binding.unwrap_or_default().as_bytes());
            hash.update([u8::from(isolated)]);
            hash.update(props.map(Value::to_string).unwrap_or_default().as_bytes());
        }
        URL_SAFE_NO_PAD.encode(hash.finalize())
    }

    /// Whether permission for both is got in the same way.
    pub(super) fn same_sign_in(&self, other: &Self) -> bool {
        self.callback_url == other.callback_url
            && self.client_id == other.client_id
            && self.options.oauth == other.options.oauth
    }

    /// Takes over headers in the form that another copy has them.
    pub(super) fn take_headers_of(&mut self, other: Self) {
        let Some(other) = other.options.transport else {
            return;
        };
        let ours = self.options.transport.get_or_insert_default();
        ours.headers = other.headers;
        ours.request_init = other.request_init;
        ours.sealed_headers = other.sealed_headers;
    }

    /// The revisions to offer the server: those that the host chose, or all.
    pub fn revisions(&self) -> Vec<Revision> {
        let known = self.chosen_revisions();
        // A choice of which nothing is known here comes from another version.
        if known.is_empty() {
            Revision::ALL.to_vec()
        } else {
            known
        }
    }

    /// The revisions that the host chose, if it chose any.
    pub(super) fn chosen_revisions(&self) -> Vec<Revision> {
        let client = self.options.rest.get(CLIENT);
        let chosen = client.and_then(|client| client.get(VERSIONS)?.as_array());
        let names = chosen.into_iter().flatten().filter_map(Value::as_str);
        names.filter_map(Revision::parse).collect()
    }

    /// Chooses the revisions to offer; none means all.
    pub(super) fn set_revisions(&mut self, revisions: &[Revision]) {
        let rest = &mut self.options.rest;
        if revisions.is_empty() && !rest.contains_key(CLIENT) {
            return;
        }
        let client = rest.entry(CLIENT).or_insert_with(|| Map::new().into());
        if let Some(client) = client.as_object_mut() {
            client.remove(VERSIONS);
            if !revisions.is_empty() {
                let names = revisions.iter().map(|revision| revision.as_str());
                client.insert(VERSIONS.into(), names.collect());
            }
        }
    }

    /// The client capabilities that were declared to the server when it was last connected.
    pub(crate) fn offers(&self) -> Offers {
        let stamp = self.options.capabilities.as_ref();
        stamp.map(Offers::read).unwrap_or_default()
    }

    /// What is believed about the server, as long as it is not too old.
    pub(crate) fn hint(&self, now: Timestamp) -> Hint {
        match &self.options.verdict {
            Some(verdict) if verdict.until > now && verdict.transport == "sse" => Hint::HttpSse,
            Some(verdict) if verdict.until > now && verdict.era == "legacy" => Hint::Legacy,
            _ => Hint::Nothing,
        }
    }

    /// The agreement of the last connection, if it can be taken up again.
    ///
    /// A legacy session needs its id and revision; what the server said in its handshake is kept
    /// beside it, so that a wake repeats neither the handshake nor the probe. Where it is not, the
    /// server is taken to have every list, and says so if it has not.
    ///
    /// A server behind a binding keeps no session: it may have been evicted itself.
    pub(crate) fn agreement(&self) -> Option<Agreement> {
        if self.is_rpc() {
            return None;
        }
        let transport = self.options.transport.as_ref()?;
        let revision = Revision::parse(transport.protocol_version.as_deref()?)?;
        let (card, id) = match revision.era() {
            Era::Legacy => {
                let id = transport.session_id.clone()?;
                let card = self.options.initialize_result.as_ref();
                // The TypeScript package stores nothing of it.
                let card = card.map_or_else(|| Ok(ServerCard::assumed()), ServerCard::deserialize);
                (card.ok()?, Some(id))
            }
            Era::Modern => {
                let card = self.options.discover_result.as_ref()?;
                (ServerCard::deserialize(card).ok()?, None)
            }
        };
        Some(Agreement {
            revision,
            wire: Wire::StreamableHttp,
            id,
            card,
            offers: self.offers(),
        })
    }

    /// Stores an agreement, or forgets it; what the server said about itself stays known. Says
    /// whether anything changed.
    pub(crate) fn set_agreement(&mut self, agreed: Option<&Agreement>) -> bool {
        let before = self.options.clone();
        let spoken = agreed;
        if !self.is_rpc() {
            let transport = self.options.transport.get_or_insert_default();
            // A session of HTTP+SSE lives as long as its stream, and a legacy server without a
            // session id keeps nothing that could be taken up again.
            let agreed =
                agreed.filter(|agreed| agreed.id.is_some() || agreed.revision.era() == Era::Modern);
            transport.session_id = agreed.and_then(|agreed| agreed.id.clone());
            transport.protocol_version = agreed.map(|agreed| agreed.revision.as_str().to_owned());
        }
        if let Some(spoken) = spoken {
            let revision = spoken.revision.as_str();
            let card = serde_json::to_value(&spoken.card).ok();
            let (modern, legacy) = match spoken.revision.era() {
                Era::Modern => (card, None),
                Era::Legacy => (None, card),
            };
            // Both name the version, as the server's own results do.
            self.options.discover_result =
                modern.map(|card| with(card, "supportedVersions", vec![revision].into()));
            self.options.initialize_result =
                legacy.map(|card| with(card, "protocolVersion", revision.into()));
        }
        before != self.options
    }

    /// Forgets everything that came of connecting: the server is another one.
    pub(super) fn forget_peer(&mut self) {
        self.forget_card();
        self.options.verdict = None;
    }

    /// Forgets the session, and what the server said about itself within it.
    pub(super) fn forget_card(&mut self) {
        self.set_agreement(None);
        self.options.discover_result = None;
        self.options.initialize_result = None;
    }

    /// What the server said about itself when it was last connected.
    pub(crate) fn card(&self) -> Option<ServerCard> {
        let options = &self.options;
        let card = options.discover_result.as_ref();
        ServerCard::deserialize(card.or(options.initialize_result.as_ref())?).ok()
    }

    /// The revision that was spoken then.
    pub(crate) fn revision(&self) -> Option<Revision> {
        let options = &self.options;
        let transport = options.transport.as_ref();
        let version = transport.and_then(|transport| transport.protocol_version.as_deref());
        let version = version.or_else(|| {
            let modern = options.discover_result.as_ref();
            let modern = modern.and_then(|card| card.get("supportedVersions")?.get(0));
            let legacy = options.initialize_result.as_ref();
            modern
                .or_else(|| legacy?.get("protocolVersion"))
                .and_then(Value::as_str)
        });
        Revision::parse(version?)
    }

    /// Whether and when the server is connected again after a wake, if the host chose that.
    pub fn reconnect_policy(&self) -> Option<ReconnectPolicy> {
        self.options.reconnect
    }

    /// Stores what was declared to the server. Says whether anything changed.
    pub(crate) fn set_offers(&mut self, offers: Offers) -> bool {
        let stamp = offers.stamp();
        let changed = stamp != self.options.capabilities;
        self.options.capabilities = stamp;
        changed
    }

    /// Stores what an agreement says about the server's era and transport, for `lifetime`
    /// milliseconds. One that says the same is renewed in the second half of its life only, so that
    /// not every wake writes. Says whether anything changed.
    pub(crate) fn set_verdict(
        &mut self,
        agreed: &Agreement,
        now: Timestamp,
        lifetime: u64,
    ) -> bool {
        let verdict = (agreed.revision.era() == Era::Legacy).then(|| StoredVerdict {
            era: "legacy".into(),
            transport: match agreed.wire {
                Wire::StreamableHttp => "streamable-http".into(),
                Wire::HttpSse => "sse".into(),
                Wire::Rpc => "rpc".into(),
            },
            until: now.saturating_add(lifetime),
        });
        let is_fresh = match (&self.options.verdict, &verdict) {
            (Some(old), Some(new)) => {
                old.transport == new.transport && old.until > now.saturating_add(lifetime / 2)
            }
            (None, None) => true,
            _ => false,
        };
        if !is_fresh {
            self.options.verdict = verdict;
        }
        !is_fresh
    }

    /// Reads a row.
    ///
    /// # Errors
    /// Names the column and the reason, no value.
    pub(crate) fn decode(row: ServerRow) -> Result<Self, DamagedRow> {
        let ServerRow {
            id,
            name,
            server_url,
            callback_url,
            client_id,
            auth_url,
            server_options,
        } = row;
        let options = match server_options.as_deref().map(str::trim) {
            None | Some("") => ServerOptions::default(),
            Some(text) => serde_json::from_str(text).map_err(|error| DamagedRow {
                id: id.clone(),
                reason: format!("server_options: {}", without_content(&error)),
            })?,
        };
        let id = ServerId::verbatim(id);
        let auth_url = auth_url.filter(|url| !url.is_empty());
        let stored = Self {
            id,
            name,
            url: server_url,
            callback_url,
            client_id,
            auth_url,
            options,
        };
        let damaged = |reason: String| DamagedRow {
            id: stored.id.to_string(),
            reason,
        };
        if !stored.is_rpc() && url::Url::parse(&stored.url).is_err() {
            return Err(damaged("server_url: not a URL".into()));
        }
        stored
            .header_map()
            .map_err(|error| damaged(format!("server_options: {error}")))?;
        stored.options.retry_options().map_err(|error| {
            damaged(format!(
                "server_options: retry: {}",
                without_content(&error)
            ))
        })?;
        Ok(stored)
    }

    /// The row of this server.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] when the options cannot be written as JSON, which takes a broken value.
    pub(crate) fn encode(&self) -> Result<ServerRow> {
        Ok(ServerRow {
            id: self.id.to_string(),
            name: self.name.clone(),
            server_url: self.url.clone(),
            callback_url: self.callback_url.clone(),
            client_id: self.client_id.clone(),
            auth_url: self.auth_url.clone(),
            server_options: Some(self.encode_options()?),
        })
    }

    fn encode_options(&self) -> Result<String> {
        serde_json::to_string(&self.options)
            .map_err(|error| Error::InvalidOption(error.to_string()))
    }
}

fn with(mut card: Value, name: &str, value: Value) -> Value {
    if let Some(card) = card.as_object_mut() {
        card.insert(name.into(), value);
    }
    card
}

/// Changes a row, and writes it only if `change` says that it did.
///
/// # Errors
/// Storage errors. A row that is gone or damaged is left alone.
pub(crate) fn change(
    store: &dyn ServerStore,
    id: &ServerId,
    change: impl FnOnce(&mut StoredServer) -> bool,
) -> Result<()> {
    let Some(Ok(row)) = store.get(id.as_str())? else {
        return Ok(());
    };
    let Ok(mut stored) = StoredServer::decode(row) else {
        return Ok(());
    };
    if change(&mut stored) {
        store.set_options(id.as_str(), &stored.encode_options()?)?;
    }
    Ok(())
}

impl fmt::Debug for StoredServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredServer")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The JSON of the column `server_options`. Members that this version does not know are kept.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ServerOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) transport: Option<TransportOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) discover_result: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) initialize_result: Option<Value>,
    /// The client capabilities declared last: the stamp of the TypeScript package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) capabilities: Option<Value>,
    /// Ours: what is known about the server's era and transport.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "lenient")]
    pub(super) verdict: Option<StoredVerdict>,
    /// Ours: under which id a sign-in was begun that is not over yet.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "lenient")]
    pub(super) former_id: Option<FormerId>,
    /// Ours: when it is connected again after a wake.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "lenient")]
    pub(super) reconnect: Option<ReconnectPolicy>,
    /// Ours: how permission is got.
    #[serde(skip_serializing_if = "Option::is_none", with = "member")]
    pub(super) oauth: Option<StoredOAuth>,
    /// Ours: what is remembered of sign-ins.
    #[serde(skip_serializing_if = "Option::is_none", with = "member")]
    pub(super) authorization: Option<SignInRecord>,
    /// For a server behind a binding: the name of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) binding_name: Option<Value>,
    /// For such a server: what it is started with. Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) props: Option<Value>,
    /// Ours, for such a server: whether its object is this one's alone.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "lenient")]
    pub(super) isolated: Option<bool>,
    /// As it was written: [`RetryOptions`] would fill in defaults and drop what it does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry: Option<Value>,
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

impl ServerOptions {
    fn retry_options(&self) -> serde_json::Result<Option<RetryOptions>> {
        self.retry.clone().map(serde_json::from_value).transpose()
    }
}

/// How permission for a server is got.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct StoredOAuth {
    pub(super) settings: OAuthSettings,
    pub(super) client_metadata_url: Option<String>,
    pub(super) grant: StoredGrant,
}

record! { StoredOAuth {
    settings: "settings",
    client_metadata_url: "clientMetadataUrl",
    grant: "grant",
}}

/// The grants that need nothing of the host beyond what is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum StoredGrant {
    #[default]
    AuthorizationCode,
    ClientCredentials,
}

/// The name on the wire of the one that is not the default.
const CLIENT_CREDENTIALS: &str = "client_credentials";

impl Member for StoredGrant {
    fn read(value: Option<Value>) -> Self {
        if value.is_some_and(|value| value == CLIENT_CREDENTIALS) {
            return Self::ClientCredentials;
        }
        Self::AuthorizationCode
    }

    fn write(&self) -> Option<Value> {
        (*self == Self::ClientCredentials).then(|| CLIENT_CREDENTIALS.into())
    }
}

/// A record as a member of what `serde` reads and writes.
mod member {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use serde_json::Value;

    use crate::oauth::Member;

    #[expect(clippy::ref_option, reason = "serde calls it so")]
    pub(super) fn serialize<M: Member, S: Serializer>(
        member: &Option<M>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let value = member.as_ref().and_then(Member::write);
        value.unwrap_or_default().serialize(serializer)
    }

    pub(super) fn deserialize<'de, M: Member, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<M>, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Ok(value.is_object().then(|| M::read(Some(value))))
    }
}

impl From<StoredGrant> for Grant {
    fn from(grant: StoredGrant) -> Self {
        match grant {
            StoredGrant::AuthorizationCode => Self::AuthorizationCode,
            StoredGrant::ClientCredentials => Self::ClientCredentials,
        }
    }
}

/// The id that a server had before it was renamed.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct FormerId {
    pub(super) id: String,
    pub(super) until: Timestamp,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredVerdict {
    era: String,
    transport: String,
    until: Timestamp,
}

/// What cannot be read counts as absent: it can be found out again.
fn lenient<'de, T, D>(deserializer: D) -> std::result::Result<Option<T>, D::Error>
where
    T: serde::de::DeserializeOwned,
    D: serde::Deserializer<'de>,
{
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}

#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TransportOptions {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<TransportKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) headers: Option<HeaderFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_init: Option<RequestInit>,
    /// Ours: the headers, encrypted, in place of the two above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sealed_headers: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) protocol_version: Option<String>,
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

/// The part of a stored fetch initialiser that has a meaning here.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RequestInit {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) headers: Option<HeaderFields>,
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

/// Headers as JavaScript writes them: an object, or a list of pairs.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum HeaderFields {
    Map(Map<String, Value>),
    Pairs(Vec<(String, Value)>),
}

impl HeaderFields {
    fn pairs(&self) -> Vec<(&str, &Value)> {
        match self {
            Self::Map(map) => map
                .iter()
                .map(|(name, value)| (name.as_str(), value))
                .collect(),
            Self::Pairs(pairs) => pairs
                .iter()
                .map(|(name, value)| (name.as_str(), value))
                .collect(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn row(options: Option<&str>) -> ServerRow {
        ServerRow {
            id: "s".into(),
            name: "S".into(),
            server_url: "https://example.com/mcp".into(),
            callback_url: "https://app/callback".into(),
            client_id: Some("client".into()),
            auth_url: None,
            server_options: options.map(str::to_owned),
        }
    }

    pub(crate) fn agreement(revision: Revision, id: Option<&str>) -> Agreement {
        let card = ServerCard {
            instructions: Some("hi".into()),
            ..ServerCard::default()
        };
        Agreement {
            revision,
            wire: Wire::StreamableHttp,
            id: id.map(str::to_owned),
            card,
            offers: Offers::default(),
        }
    }

    #[test]
    fn a_row_of_another_version_keeps_what_we_do_not_know() {
        let text = r#"{"client":{"capabilities":{"elicitation":{"form":{}}}},"transport":{"type":"sse","headers":{"x-a":"1"},"reconnectionOptions":{"maxRetries":2}},"later":[1,2.5,null],"retry":{"maxAttempts":2,"later":true},"capabilities":{"elicitation":{"url":{}}}}"#;
        let mut stored = StoredServer::decode(row(Some(text))).unwrap();
        assert_eq!(stored.transport(), TransportKind::Sse);
        stored.set_agreement(Some(&agreement(Revision::V2025_11_25, Some("abc"))));
        let written = stored.encode().unwrap();
        let options: Value = serde_json::from_str(&written.server_options.unwrap()).unwrap();
        let before: Value = serde_json::from_str(text).unwrap();
        for member in ["client", "later", "capabilities", "retry"] {
            assert_eq!(options[member], before[member]);
        }
        assert_eq!(
            options["transport"]["reconnectionOptions"],
            before["transport"]["reconnectionOptions"]
        );
        assert_eq!(options["transport"]["sessionId"], "abc");
        assert_eq!(written.callback_url, "https://app/callback");
        assert_eq!(written.client_id.as_deref(), Some("client"));
    }

    #[test]
    fn damage_is_named_without_quoting_values() {
        for (options, part) in [
            ("{", "server_options"),
            ("[]", "server_options"),
            (r#"{"transport":"secret"}"#, "server_options"),
            (r#"{"retry":"secret"}"#, "retry"),
            (r#"{"retry":{"maxAttempts":"secret"}}"#, "retry"),
            (r#"{"transport":{"headers":{"x-key":5}}}"#, "x-key"),
            (r#"{"transport":{"headers":{"x-key":"sécret"}}}"#, "x-key"),
            (r#"{"transport":{"headers":{"x-key":"secret\n"}}}"#, "x-key"),
        ] {
            let damaged = StoredServer::decode(row(Some(options))).unwrap_err();
            assert_eq!(damaged.id, "s");
            assert!(
                damaged.reason.contains(part) && !damaged.reason.contains("secret"),
                "{}",
                damaged.reason
            );
        }
        let url = ServerRow {
            server_url: "not a url".into(),
            ..row(None)
        };
        assert!(
            StoredServer::decode(url)
                .unwrap_err()
                .reason
                .starts_with("server_url")
        );
        assert!(
            StoredServer::decode(ServerRow {
                server_url: "rpc:counter".into(),
                ..row(None)
            })
            .is_ok()
        );
    }

    #[test]
    fn missing_options_are_empty_options() {
        for options in [None, Some(""), Some("{}"), Some("  {}  ")] {
            let stored = StoredServer::decode(row(options)).unwrap();
            assert_eq!(stored.transport(), TransportKind::Auto);
            assert!(stored.agreement().is_none());
        }
    }

    #[test]
    fn headers_come_from_both_places_a_row_can_have_them() {
        let text = r#"{"transport":{"requestInit":{"headers":[["x-a","1"],["x-b","2"]],"redirect":"follow"},"headers":{"X-B":"3"}}}"#;
        let headers = StoredServer::decode(row(Some(text)))
            .unwrap()
            .header_map()
            .unwrap();
        assert_eq!(headers["x-a"], "1");
        assert_eq!(headers["x-b"], "3");
    }

    #[test]
    fn an_agreement_survives_storage_and_a_useless_one_is_not_kept() {
        let mut stored = StoredServer::decode(row(None)).unwrap();
        for kept in [
            agreement(Revision::V2025_06_18, Some("abc")),
            agreement(Revision::V2026_07_28, None),
        ] {
            assert!(stored.set_agreement(Some(&kept)));
            assert!(!stored.set_agreement(Some(&kept)), "written twice");
            let again = StoredServer::decode(stored.encode().unwrap())
                .unwrap()
                .agreement()
                .unwrap();
            assert_eq!(
                (again.revision, &again.id, &again.card.instructions),
                (kept.revision, &kept.id, &kept.card.instructions)
            );
        }
        stored.set_agreement(Some(&agreement(Revision::V2025_06_18, None)));
        assert!(stored.agreement().is_none());
        // A session id without its revision, or a modern revision without its advertisement.
        for text in [
            r#"{"transport":{"sessionId":"abc"}}"#,
            r#"{"transport":{"sessionId":"a","protocolVersion":"2026-07-28"}}"#,
        ] {
            assert!(
                StoredServer::decode(row(Some(text)))
                    .unwrap()
                    .agreement()
                    .is_none()
            );
        }
    }

    #[test]
    fn a_verdict_is_believed_until_it_is_old_and_written_once() {
        let mut stored = StoredServer::decode(row(None)).unwrap();
        let legacy = agreement(Revision::V2025_06_18, None);
        assert_eq!(stored.hint(0), Hint::Nothing);
        assert!(stored.set_verdict(&legacy, 1_000, 100));
        assert!(!stored.set_verdict(&legacy, 1_040, 100), "written twice");
        let mut again = StoredServer::decode(stored.encode().unwrap()).unwrap();
        assert_eq!(again.hint(1_099), Hint::Legacy);
        assert_eq!(again.hint(1_100), Hint::Nothing);
        assert!(again.set_verdict(&legacy, 1_060, 100), "not renewed");
        let sse = Agreement {
            wire: Wire::HttpSse,
            ..legacy
        };
        assert!(again.set_verdict(&sse, 1_060, 100));
        assert_eq!(again.hint(1_061), Hint::HttpSse);
        let modern = agreement(Revision::V2026_07_28, None);
        assert!(again.set_verdict(&modern, 1_060, 100));
        assert_eq!(again.hint(1_061), Hint::Nothing);
        let odd = StoredServer::decode(row(Some(r#"{"verdict":{"era":1}}"#))).unwrap();
        assert_eq!(odd.hint(0), Hint::Nothing);
    }

    #[test]
    fn chosen_revisions_stand_beside_what_others_stored() {
        let text = r#"{"client":{"listMaxPages":3,"supportedProtocolVersions":["2025-06-18","2099-01-01"]}}"#;
        let mut stored = StoredServer::decode(row(Some(text))).unwrap();
        assert_eq!(stored.revisions(), [Revision::V2025_06_18]);
        stored.set_revisions(&[Revision::V2025_11_25]);
        assert_eq!(stored.revisions(), [Revision::V2025_11_25]);
        assert_eq!(stored.options.rest["client"]["listMaxPages"], 3);
        stored.set_revisions(&[]);
        assert_eq!(stored.revisions(), Revision::ALL);
        let odd = StoredServer::decode(row(Some(r#"{"client":"odd"}"#))).unwrap();
        assert_eq!(odd.revisions(), Revision::ALL);
    }

    #[test]
    fn what_was_declared_survives_storage() {
        let offers = Offers {
            form: true,
            url: true,
            ..Offers::default()
        };
        let mut stored = StoredServer::decode(row(None)).unwrap();
        assert!(stored.set_offers(offers) && !stored.set_offers(offers));
        let again = StoredServer::decode(stored.encode().unwrap()).unwrap();
        assert_eq!(again.offers(), offers);
        assert!(stored.set_offers(Offers::default()));
        assert!(stored.options.capabilities.is_none());
    }
}
