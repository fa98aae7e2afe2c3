//! What the manager says about connections and what servers offer.

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::catalog::{Catalog, ListProblem};
use super::{ConnectionState, ServerId};
use crate::Error;
use crate::oauth::AuthorizationUrl;
use crate::ports::Timestamp;
use crate::protocol::Revision;
use crate::protocol::model::ServerCard;
use crate::transport::TransportKind;

/// What [`McpClientManager::connection`](super::McpClientManager::connection) says about a live connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// Its state.
    pub state: ConnectionState,
    /// Why connecting, or the last discovery, failed. Holds no secret, but text from the server.
    pub error: Option<Error>,
    /// The last failure of any kind, kept after the server has recovered.
    pub last_error: Option<LastError>,
    /// The transport in use, once agreed on: `streamable-http` or `sse`.
    pub transport: Option<TransportKind>,
    /// Whether a stream is open on which the server can speak unasked.
    pub listening: bool,
    /// The revision spoken, once agreed on.
    pub revision: Option<Revision>,
    /// What the server said about itself, once agreed on.
    pub card: Option<ServerCard>,
    /// Lists that could not be loaded, each with the reason.
    pub problems: Vec<ListProblem>,
    /// How many tools, prompts, resources and resource templates are known.
    pub counts: CatalogCounts,
    /// Where they are known from.
    pub freshness: CatalogFreshness,
    /// When they were loaded, or stored if that was before the last wake, in milliseconds since the
    /// Unix epoch.
    pub loaded_at: Option<Timestamp>,
}

/// Where the lists of a server are known from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CatalogFreshness {
    /// They are not known.
    #[default]
    Unknown,
    /// From storage: they are what they were before the object slept. The server may have changed
    /// them since.
    Stored,
    /// From the server, since the object woke.
    Fresh,
}

/// What came of connecting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connected {
    /// The connection is open.
    Connected,
    /// The user must sign in first.
    Authenticating {
        /// Where to send the user. Show it to the user alone.
        auth_url: AuthorizationUrl,
    },
}

/// What is known of the permission for a server. Holds no secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AuthorizationInfo {
    /// Who gave it.
    pub issuer: Option<String>,
    /// The client it was given to.
    pub client_id: Option<String>,
    /// The scopes, separated by blanks.
    pub scope: Option<String>,
    /// When the access token ends, in milliseconds since the Unix epoch, where that is known.
    pub expires_at: Option<Timestamp>,
}

/// A failure of a server: while connecting, listing or calling.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LastError {
    /// What failed, and why.
    pub error: Error,
    /// When, in milliseconds since the Unix epoch.
    pub at: Timestamp,
    /// How many failures there were in a row, this one included.
    pub attempts: u32,
}

/// Sizes of a catalogue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogCounts {
    /// Tools.
    pub tools: usize,
    /// Prompts.
    pub prompts: usize,
    /// Resources.
    pub resources: usize,
    /// Resource templates.
    pub resource_templates: usize,
}

impl From<[usize; 4]> for CatalogCounts {
    fn from([tools, prompts, resources, resource_templates]: [usize; 4]) -> Self {
        Self {
            tools,
            prompts,
            resources,
            resource_templates,
        }
    }
}

/// An item of an aggregated list. Serialises as the server sent it, plus `serverId`.
#[derive(Debug, Clone)]
pub struct ServerItem<T> {
    /// The server that offers it.
    pub server_id: ServerId,
    /// The item.
    pub item: T,
}

impl From<&Catalog> for CatalogCounts {
    fn from(catalog: &Catalog) -> Self {
        Self {
            tools: catalog.tools.len(),
            prompts: catalog.prompts.len(),
            resources: catalog.resources.len(),
            resource_templates: catalog.templates.len(),
        }
    }
}

impl<T: Serialize> Serialize for ServerItem<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::Error as _;
        let item = serde_json::to_string(&self.item).map_err(S::Error::custom)?;
        let id = serde_json::to_string(&self.server_id).map_err(S::Error::custom)?;
        // Last, so that it wins over a member of the same name in the server's text.
        let open = item
            .trim_end()
            .strip_suffix('}')
            .ok_or_else(|| S::Error::custom("not an object"))?;
        let comma = if open.trim_end().ends_with('{') {
            ""
        } else {
            ","
        };
        RawValue::from_string(format!("{open}{comma}\"serverId\":{id}}}"))
            .map_err(S::Error::custom)?
            .serialize(serializer)
    }
}
