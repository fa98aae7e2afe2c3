//! What a host may configure.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::oauth::{OAuthError, OAuthProvider, ProviderContext};
use crate::retry::RetryOptions;
use crate::url_guard::UrlPolicy;
use crate::vault::KeyRing;

/// Limits and times of a manager.
///
/// A Worker has 128 MB for all objects of an isolate, and answers are held in memory while they are
/// read. The defaults leave room for a few large ones at once, not for many.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct McpClientOptions {
    /// How long one request may take, from sending it to its whole answer. Default 60 s.
    pub request_timeout: Duration,
    /// How long one request may take in all: with progress, with questions to the user, with further
    /// rounds. Default 10 min.
    pub max_request_time: Duration,
    /// How long a server of the HTTP+SSE transport may take to name its endpoint. Default 10 s.
    pub endpoint_timeout: Duration,
    /// Which servers may speak unasked, and for how long. Default: while they are in use, and for
    /// 10 s longer.
    pub streams: StreamPolicy,
    /// The most streams that are open at once to hear servers unasked, over all servers of the
    /// object. A Worker has six connections; each stream holds one. Default 2.
    pub max_streams: usize,
    /// How long a list is waited for to settle before it is loaded again after a server said that
    /// it changed. Grows while a server keeps saying so. Default 300 ms.
    pub list_changed_debounce: Duration,
    /// For how long it is believed that a server is of the legacy era, or speaks HTTP+SSE, before it
    /// is asked again. Default 24 h.
    pub verdict_lifetime: Duration,
    /// How long opening a connection may take, all its requests together. Default 30 s.
    pub connect_timeout: Duration,
    /// How long loading one list of a server's catalogue may take. Default 30 s.
    pub discovery_timeout: Duration,
    /// The largest answer, and the largest single event of a stream, in bytes. Default 10 MiB.
    pub max_response_bytes: usize,
    /// The most pages of one list. Default 64.
    pub max_list_pages: u32,
    /// The largest list over all its pages, in bytes. Default 10 MiB.
    pub max_list_bytes: usize,
    /// The most items of one list over all its pages. Default 10 000.
    pub max_list_items: usize,
    /// The most servers that can be registered. Default 500.
    pub max_servers: usize,
    /// Makes the providers of OAuth, for new servers and for those that come back alike. Default:
    /// [`StoredOAuthProvider`](crate::oauth::StoredOAuthProvider).
    pub create_auth_provider: Option<CreateAuthProvider>,
    /// What the keys of sign-ins begin with. Default: the name of the manager. An agent takes the
    /// name of its object, as the TypeScript package does.
    pub oauth_namespace: Option<String>,
    /// The keys that sign-ins and headers are encrypted with at rest. Default: the secret
    /// `AGENT_ENCRYPTION_KEY`, where the Worker has it; else nothing is encrypted.
    pub encryption: Option<KeyRing>,
    /// Where the document about the client is published. Default: beside the callback, where that
    /// is `https` and routed to the object.
    pub client_metadata_url: Option<String>,
    /// Which servers are connected again when the object wakes. Default [`ReconnectPolicy::Eager`].
    pub reconnect: ReconnectPolicy,
    /// How often, and after which pauses, a server that is still down after the attempts of its
    /// own policy is tried again. The object sleeps meanwhile, and is woken by its alarm. Default:
    /// 40 attempts, pauses of up to 1 min at first, doubled each time, up to 1 h.
    pub reconnect_later: RetryOptions,
    /// The largest catalogue that is stored for the next wake, in bytes of JSON. A larger one is
    /// loaded anew after each wake. Default and most: 1.5 MB, since a row holds 2 MB.
    pub max_stored_catalog_bytes: usize,
    /// How many servers are connected at once after a wake. A Worker has six connections for all
    /// its requests, so some must stay free. Default 4.
    pub reconnect_concurrency: usize,
    /// Which URLs may be requested, and shown to users. Default: public ones and loopback.
    pub url_policy: UrlPolicy,
}

/// When streams are open on which servers speak unasked: that a list or a resource has changed, or
/// to ask the user something.
///
/// A stream holds one of the Worker's connections and keeps the object in memory, which is billed.
/// A server of HTTP+SSE cannot be used without one; `Never` then means: only during requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamPolicy {
    /// Only while a call may lead to a question to the user.
    Never,
    /// While a server with something to say is in use, and for `linger` after. What changes later is
    /// noticed when the server is used again.
    WhileInUse {
        /// How long after the last use.
        linger: Duration,
    },
    /// From the first use until the object is evicted by force. The object never sleeps.
    Always,
}

impl Default for StreamPolicy {
    fn default() -> Self {
        Self::WhileInUse {
            linger: Duration::from_secs(10),
        }
    }
}

impl Default for McpClientOptions {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_mins(1),
            max_request_time: Duration::from_mins(10),
            endpoint_timeout: Duration::from_secs(10),
            streams: StreamPolicy::default(),
            max_streams: 2,
            list_changed_debounce: Duration::from_millis(300),
            verdict_lifetime: Duration::from_hours(24),
            connect_timeout: Duration::from_secs(30),
            discovery_timeout: Duration::from_secs(30),
            max_response_bytes: 10 << 20,
            max_list_pages: 64,
            max_list_bytes: 10 << 20,
            max_list_items: 10_000,
            max_servers: 500,
            create_auth_provider: None,
            oauth_namespace: None,
            encryption: None,
            client_metadata_url: None,
            reconnect: ReconnectPolicy::default(),
            reconnect_later: RetryOptions {
                max_attempts: 40,
                base_delay: Duration::from_secs(30),
                max_delay: Duration::from_hours(1),
            },
            max_stored_catalog_bytes: MAX_STORED_CATALOG,
            reconnect_concurrency: 4,
            url_policy: UrlPolicy::default(),
        }
    }
}

/// The most that is stored of one catalogue, in bytes.
pub(super) const MAX_STORED_CATALOG: usize = 1_500_000;

/// When a stored server is connected again after a wake.
///
/// Its lists are known at once in any case: they come from storage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ReconnectPolicy {
    /// In the background, as soon as the object is used for anything, and its lists are loaded
    /// anew. One that is down is tried again later, by an alarm.
    #[default]
    Eager,
    /// When it is first used; then its lists are loaded anew. A server whose lists are not known is
    /// connected as if `Eager`. Nothing is tried again by an alarm.
    Lazy,
    /// Only by [`connect_to_server`](super::McpClientManager::connect_to_server).
    Never,
}

impl ReconnectPolicy {
    /// The policy of this name: `eager`, `lazy` or `never`.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "eager" => Some(Self::Eager),
            "lazy" => Some(Self::Lazy),
            "never" => Some(Self::Never),
            _ => None,
        }
    }
}

type Create = dyn Fn(ProviderContext) -> Result<Rc<dyn OAuthProvider>, OAuthError>;

/// Makes the provider of OAuth for one server.
#[derive(Clone)]
pub struct CreateAuthProvider(pub(super) Rc<Create>);

impl fmt::Debug for CreateAuthProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CreateAuthProvider(..)")
    }
}

impl McpClientOptions {
    /// See [`create_auth_provider`](Self::create_auth_provider).
    #[must_use]
    pub fn create_auth_provider(
        mut self,
        create: impl Fn(ProviderContext) -> Result<Rc<dyn OAuthProvider>, OAuthError> + 'static,
    ) -> Self {
        self.create_auth_provider = Some(CreateAuthProvider(Rc::new(create)));
        self
    }

    /// See [`oauth_namespace`](Self::oauth_namespace).
    #[must_use]
    pub fn oauth_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.oauth_namespace = Some(namespace.into());
        self
    }

    /// See [`encryption`](Self::encryption).
    #[must_use]
    pub fn encryption(mut self, keys: KeyRing) -> Self {
        self.encryption = Some(keys);
        self
    }

    /// See [`client_metadata_url`](Self::client_metadata_url).
    #[must_use]
    pub fn client_metadata_url(mut self, url: impl Into<String>) -> Self {
        self.client_metadata_url = Some(url.into());
        self
    }

    /// See [`request_timeout`](Self::request_timeout).
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// See [`max_request_time`](Self::max_request_time).
    #[must_use]
    pub fn max_request_time(mut self, time: Duration) -> Self {
        self.max_request_time = time;
        self
    }

    /// See [`streams`](Self::streams).
    #[must_use]
    pub fn streams(mut self, policy: StreamPolicy) -> Self {
        self.streams = policy;
        self
    }

    /// See [`max_streams`](Self::max_streams).
    #[must_use]
    pub fn max_streams(mut self, streams: usize) -> Self {
        self.max_streams = streams;
        self
    }

    /// See [`discovery_timeout`](Self::discovery_timeout).
    #[must_use]
    pub fn discovery_timeout(mut self, timeout: Duration) -> Self {
        self.discovery_timeout = timeout;
        self
    }

    /// See [`max_response_bytes`](Self::max_response_bytes).
    #[must_use]
    pub fn max_response_bytes(mut self, bytes: usize) -> Self {
        self.max_response_bytes = bytes;
        self
    }

    /// See [`reconnect`](Self::reconnect).
    #[must_use]
    pub fn reconnect(mut self, policy: ReconnectPolicy) -> Self {
        self.reconnect = policy;
        self
    }

    /// See [`reconnect_later`](Self::reconnect_later).
    #[must_use]
    pub fn reconnect_later(mut self, retry: RetryOptions) -> Self {
        self.reconnect_later = retry;
        self
    }

    /// See [`url_policy`](Self::url_policy).
    #[must_use]
    pub fn url_policy(mut self, policy: UrlPolicy) -> Self {
        self.url_policy = policy;
        self
    }
}
