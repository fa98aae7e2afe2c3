//! Adding a server by what it is called and where it is: the same one twice is one server.

use std::fmt;

use futures::FutureExt as _;
use serde::Serialize;
use url::Url;

use super::{
    Connected, ConnectionState, McpClientManager, ReconnectPolicy, RegisterServer, ServerId,
    StoredServer,
};
use crate::oauth::{AuthorizationUrl, ClientInformation, OAuthSettings};
use crate::protocol::Revision;
use crate::retry::RetryOptions;
use crate::transport::TransportKind;
use crate::{Error, Result};

/// Length and alphabet of ids that nobody chose.
const AUTO_ID: usize = 8;
const ALPHABET: &[u8; 64] = b"useandom-26T198340PX75pxJACKVERYMINDBUSHWOLF_GQZbfghjklqvwyzrict";

/// A server to add to an agent.
///
/// ```
/// use workers_agents::AddMcpServer;
/// let github = AddMcpServer::new("GitHub", "https://mcp.example.com/mcp")
///     .id("github")
///     .header("x-team", "42");
/// let counter = AddMcpServer::rpc("Counter", "COUNTER").props(&serde_json::json!({"user": "ada"}));
/// let docs = AddMcpServer::from(("Docs", "https://docs.example.com/mcp"));
/// ```
///
/// A server is known by its name and its URL: adding it again means the one that is there. What is
/// said again then replaces what was said before, and what is not said stays.
pub struct AddMcpServer {
    pub(crate) name: String,
    pub(crate) address: Address,
    pub(crate) id: Option<String>,
    pub(crate) callback_host: Option<String>,
    pub(crate) callback_path: Option<String>,
    pub(crate) agents_prefix: Option<String>,
    changes: Vec<Box<dyn FnOnce(RegisterServer) -> RegisterServer>>,
    /// Once a header is said, all others are forgotten.
    says_headers: bool,
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// At a URL.
    Url(String),
    /// Behind a binding.
    Binding(String),
}

/// What came of adding a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a server that waits for its user is no use yet"]
pub enum AddedServer {
    /// It is connected, and its lists are known.
    Ready {
        /// Its id.
        id: ServerId,
    },
    /// The user must sign in first.
    Authenticating {
        /// Its id.
        id: ServerId,
        /// Where to send the user. Show it to the user alone.
        auth_url: AuthorizationUrl,
    },
}

impl AddedServer {
    /// Its id.
    pub fn id(&self) -> &ServerId {
        match self {
            Self::Ready { id } | Self::Authenticating { id, .. } => id,
        }
    }
}

impl AddMcpServer {
    /// A server at a URL.
    pub fn new(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self::at(name.into(), Address::Url(url.into()))
    }

    /// A server that is a Durable Object behind a binding of the Worker: see
    /// [`RegisterServer::rpc`].
    pub fn rpc(name: impl Into<String>, binding: impl Into<String>) -> Self {
        Self::at(name.into(), Address::Binding(binding.into()))
    }

    fn at(name: String, address: Address) -> Self {
        Self {
            name,
            address,
            id: None,
            callback_host: None,
            callback_path: None,
            agents_prefix: None,
            changes: Vec::new(),
            says_headers: false,
        }
    }

    /// The id to have: it is made one by [`ServerId::normalize`]. A server that is there under
    /// another id gets this one. Default: a random one.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Where users come back to after a sign-in: scheme and host, such as `https://example.com`.
    /// Default: those of the request, or of the WebSocket, that is being handled.
    #[must_use]
    pub fn callback_host(mut self, host: impl Into<String>) -> Self {
        self.callback_host = Some(host.into());
        self
    }

    /// The path of the callback, in place of `agents/<class>/<name>/callback`. Route it to the
    /// object.
    #[must_use]
    pub fn callback_path(mut self, path: impl Into<String>) -> Self {
        self.callback_path = Some(path.into());
        self
    }

    /// What the default callback path begins with. Default: `agents`.
    #[must_use]
    pub fn agents_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.agents_prefix = Some(prefix.into());
        self
    }

    /// A header for every request to the server. Those that were said before are forgotten.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if !self.says_headers {
            self = self.change(RegisterServer::without_headers);
            self.says_headers = true;
        }
        let (name, value) = (name.into(), value.into());
        self.change(move |server| server.header(name, value))
    }

    /// Forgets the headers that were said before.
    #[must_use]
    pub fn without_headers(mut self) -> Self {
        self.says_headers = true;
        self.change(RegisterServer::without_headers)
    }

    /// Which transport to use. Default: [`TransportKind::Auto`].
    #[must_use]
    pub fn transport(self, kind: TransportKind) -> Self {
        self.change(move |server| server.transport(kind))
    }

    /// How connecting is retried after a wake. Not used for this time.
    #[must_use]
    pub fn retry(self, retry: RetryOptions) -> Self {
        self.change(move |server| server.retry(retry))
    }

    /// When the server is connected again after a wake.
    #[must_use]
    pub fn reconnect(self, policy: ReconnectPolicy) -> Self {
        self.change(move |server| server.reconnect(policy))
    }

    /// The protocol revisions to offer.
    #[must_use]
    pub fn protocol_versions(self, revisions: impl IntoIterator<Item = Revision>) -> Self {
        let revisions: Vec<Revision> = revisions.into_iter().collect();
        self.change(move |server| server.protocol_versions(revisions))
    }

    /// The client to sign in as, registered beforehand.
    #[must_use]
    pub fn oauth_client(self, client: ClientInformation) -> Self {
        self.change(move |server| server.client(client))
    }

    /// Wishes about how permission is got.
    #[must_use]
    pub fn oauth_settings(self, settings: OAuthSettings) -> Self {
        self.change(move |server| server.oauth_settings(settings))
    }

    /// What the object behind a binding is started with: see [`RegisterServer::props`].
    #[must_use]
    pub fn props(self, props: &impl Serialize) -> Self {
        // Once, so that what is no JSON is refused where all else is.
        let props = serde_json::to_value(props).map_err(|error| error.to_string());
        self.change(move |server| match props {
            Ok(props) => server.props(&props),
            Err(error) => server.props(&Unserializable(error)),
        })
    }

    /// An instance of the object behind a binding for this object alone: see
    /// [`RegisterServer::isolated`].
    #[must_use]
    pub fn isolated(self) -> Self {
        self.change(RegisterServer::isolated)
    }

    /// Anything else that can be said of a server.
    #[must_use]
    pub fn change(
        mut self,
        change: impl FnOnce(RegisterServer) -> RegisterServer + 'static,
    ) -> Self {
        self.changes.push(Box::new(change));
        self
    }

    fn is(&self, stored: &StoredServer) -> bool {
        stored.name == self.name
            && match &self.address {
                Address::Url(url) => href(&stored.url) == href(url),
                Address::Binding(binding) => stored.binding() == Some(binding),
            }
    }
}

impl<N: Into<String>, U: Into<String>> From<(N, U)> for AddMcpServer {
    fn from((name, url): (N, U)) -> Self {
        Self::new(name, url)
    }
}

/// What could not be serialised, to fail again where that is told.
struct Unserializable(String);

impl Serialize for Unserializable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom(&self.0))
    }
}

/// A URL as it is compared: in the form of the WHATWG standard.
fn href(url: &str) -> String {
    Url::parse(url).map_or_else(|_| url.to_owned(), String::from)
}

/// Where users come back to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Callback {
    pub(crate) url: String,
    /// Somebody said so: it takes the place of the one that was said before.
    pub(crate) is_said: bool,
}

impl McpClientManager {
    /// Registers a server unless it is there, and brings it as far as it gets now: connected and
    /// listed, or waiting for its user. One that was down, or half connected, is connected again.
    ///
    /// [`Agent::add_mcp_server`](crate::Agent::add_mcp_server) finds out the callback URL by itself.
    ///
    /// # Errors
    /// As [`register_server`](Self::register_server), [`connect_to_server`](Self::connect_to_server)
    /// and [`discover_if_connected`](Self::discover_if_connected); after an error of the last two the
    /// server stays registered. [`Error::ServerIdInUse`] when another server has the id.
    pub async fn add_server(
        &self,
        server: AddMcpServer,
        callback_url: Option<String>,
    ) -> Result<AddedServer> {
        let callback = callback_url.map(|url| Callback { url, is_said: true });
        self.add(server, callback).boxed_local().await
    }

    pub(crate) async fn add(
        &self,
        server: AddMcpServer,
        callback: Option<Callback>,
    ) -> Result<AddedServer> {
        let id = self.settle_registration(server, callback).await?;
        let outcome = self.bring_up(id.clone()).await;
        outcome.map_err(|error| {
            let has_callback = self.connection_of(id.as_str()).is_ok_and(|connection| {
                let server = connection.server();
                server.is_rpc() || server.callback_url().is_some()
            });
            if has_callback || !error.is_unauthorized() {
                return error;
            }
            let error = Box::new(error);
            Error::NoCallback { id, error }
        })
    }

    /// Registers what is new or said anew. Two who add the same server at once get one.
    pub(crate) async fn settle_registration(
        &self,
        mut server: AddMcpServer,
        callback: Option<Callback>,
    ) -> Result<ServerId> {
        // No id is empty, so this keeps others from adding, and nobody from anything else.
        let _entered = self.inner.serial.enter("").await;
        let id = self.choose_id(&server).await?;
        let known = self.server(id.as_str())?;
        let before = known.as_ref().and_then(StoredServer::callback_url);
        let callback = callback.filter(|callback| match before {
            None => true,
            Some(before) => callback.is_said && before != callback.url,
        });
        let callback = callback.filter(|_| matches!(server.address, Address::Url(_)));
        let changes = std::mem::take(&mut server.changes);
        if known.is_some() && changes.is_empty() && callback.is_none() {
            return Ok(id);
        }
        let mut registration = match (&known, server.address) {
            (Some(_), _) => self.registration(id.as_str()).await?,
            (None, Address::Url(url)) => RegisterServer::new(server.name, url),
            (None, Address::Binding(binding)) => RegisterServer::rpc(server.name, binding),
        };
        for change in changes {
            registration = change(registration);
        }
        if let Some(callback) = callback {
            registration = registration.callback_url(callback.url);
        }
        self.register_server(id.as_str(), registration).await
    }

    async fn choose_id(&self, server: &AddMcpServer) -> Result<ServerId> {
        let servers = self.list_servers()?;
        let same = servers.iter().find(|stored| server.is(stored));
        let Some(wanted) = &server.id else {
            return same.map_or_else(random_id, |stored| Ok(stored.id.clone()));
        };
        let id = ServerId::normalize(wanted);
        if let Some(holder) = servers.iter().find(|stored| stored.id == id) {
            return if server.is(holder) {
                Ok(id)
            } else {
                Err(Error::ServerIdInUse {
                    id,
                    name: holder.name.clone(),
                })
            };
        }
        match same {
            Some(stored) => self.rename_server(stored.id.as_str(), id.as_str()).await,
            None => Ok(id),
        }
    }

    async fn bring_up(&self, id: ServerId) -> Result<AddedServer> {
        let live = self.connection(id.as_str());
        let state = live.map(|live| live.state);
        match state {
            Some(ConnectionState::Ready) => return Ok(AddedServer::Ready { id }),
            // The sign-in may be under way.
            Some(ConnectionState::Authenticating) => {
                if let Some(auth_url) = self.auth_url(id.as_str()).await? {
                    return Ok(AddedServer::Authenticating { id, auth_url });
                }
            }
            _ => {}
        }
        let is_open = state.is_some_and(ConnectionState::is_open);
        if !is_open
            && let Connected::Authenticating { auth_url } =
                self.connect_to_server(id.as_str()).await?
        {
            return Ok(AddedServer::Authenticating { id, auth_url });
        }
        match self.discover_if_connected(id.as_str(), None).await {
            Ok(_) => Ok(AddedServer::Ready { id }),
            Err(Error::SignInRequired { auth_url, .. }) => {
                Ok(AddedServer::Authenticating { id, auth_url })
            }
            Err(error) => Err(error),
        }
    }
}

fn random_id() -> Result<ServerId> {
    let mut bytes = [0; AUTO_ID];
    getrandom::fill(&mut bytes).map_err(|error| Error::Runtime(error.to_string()))?;
    let symbol = |byte: u8| ALPHABET.get(usize::from(byte % 64)).copied();
    let id: String = bytes
        .into_iter()
        .filter_map(symbol)
        .map(char::from)
        .collect();
    Ok(ServerId::verbatim(id))
}

/// Headers and props are secrets.
impl fmt::Debug for AddMcpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddMcpServer")
            .field("name", &self.name)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
