//! Making transports to one server.

use std::rc::Rc;
use std::time::Duration;

use http::HeaderMap;

use super::McpClientOptions;
use super::planned::random;
use super::server::StoredServer;
use crate::ports::{ObjectAddress, ObjectError, Ports};
use crate::retry::RetryOptions;
use crate::transport::{
    HttpSse, HttpSseLimits, Permission, Rpc, RpcLimits, StreamableHttp, Transport, TransportError,
};
use crate::url_guard::{BlockedUrl, GuardedUrl, UrlPolicy};
use crate::{Error, Result};

/// How long a server that may not speak HTTP+SSE at all has to name its endpoint.
const GUESS_LIMIT: Duration = Duration::from_secs(3);

/// How long an object stays in memory at least when nobody uses it.
const EVICTED_AFTER: Duration = Duration::from_secs(10);
/// How starting an object is retried where the platform says that it may help. The delays are below
/// 100 ms, then below 200 ms.
const START_RETRY: RetryOptions = RetryOptions {
    max_attempts: 3,
    base_delay: Duration::from_millis(50),
    max_delay: Duration::from_millis(800),
};

/// Where a server is.
#[derive(Clone)]
pub(crate) enum Place {
    Url(GuardedUrl),
    /// Behind a binding: it has no URL, and what it names is judged by the policy alone.
    Object(Rc<ObjectAddress>, UrlPolicy),
}

impl Place {
    /// Where a stored server is, judged anew: the row may be older than the policy.
    pub(crate) fn of(server: &StoredServer, ports: &Ports, policy: &UrlPolicy) -> Result<Self> {
        if !server.is_rpc() {
            return Ok(Self::Url(policy.guard(&server.url)?));
        }
        let caller = ports.objects.as_ref().map(|objects| objects.caller());
        let address = server.address(&caller.unwrap_or_default());
        Ok(Self::Object(Rc::new(address), policy.clone()))
    }

    /// Judges the address of a page that the server wants a user to open.
    pub(crate) fn check_page(&self, page: &str) -> Result<(), BlockedUrl> {
        match self {
            Self::Url(url) => url.check_page(page),
            Self::Object(_, policy) => policy.check_page(page),
        }
    }
}

/// Where a server is, and what every request to it carries.
pub(crate) struct Dial {
    ports: Ports,
    place: Place,
    headers: HeaderMap,
    permission: Option<Rc<dyn Permission>>,
    max_response_bytes: usize,
    limits: HttpSseLimits,
}

impl Dial {
    pub(crate) fn new(
        ports: Ports,
        place: Place,
        headers: HeaderMap,
        permission: Option<Rc<dyn Permission>>,
        options: &McpClientOptions,
    ) -> Self {
        let limits = HttpSseLimits {
            endpoint_timeout: options.endpoint_timeout,
            ..HttpSseLimits::new(options.max_response_bytes)
        };
        Self {
            ports,
            place,
            headers,
            permission,
            max_response_bytes: options.max_response_bytes,
            limits,
        }
    }

    /// Where the server is.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Its URL.
    ///
    /// # Errors
    /// [`Error::UnsupportedTransport`] for a server behind a binding.
    fn url(&self) -> Result<&GuardedUrl> {
        match &self.place {
            Place::Url(url) => Ok(url),
            Place::Object(..) => Err(Error::UnsupportedTransport("http".into())),
        }
    }

    /// Streamable HTTP. Sends nothing.
    pub(crate) fn streamable_http(&self) -> Result<Rc<dyn Transport>> {
        let transport = StreamableHttp::new(
            self.ports.http.clone(),
            self.ports.clock.clone(),
            self.url()?.clone(),
            self.headers.clone(),
            self.max_response_bytes,
        );
        Ok(Rc::new(transport.with_permission(self.permission.clone())))
    }

    /// Calls of an object. Starts it, more than once where the platform says that it may help. With
    /// `is_asked` the object must know what may be asked of us: then it is told anew after a silence
    /// in which it may have been evicted.
    pub(crate) async fn rpc(&self, is_asked: bool) -> Result<Rc<dyn Transport>> {
        let Place::Object(address, _) = &self.place else {
            return Err(Error::UnsupportedTransport("rpc".into()));
        };
        let broken = |error: ObjectError| Error::Transport(TransportError::Object(error));
        let objects = self.ports.objects.as_ref();
        let objects = objects.ok_or_else(|| broken(ObjectError::NoEnv))?;
        let mut failed = 0;
        let object = loop {
            match objects.connect(address).await {
                Ok(object) => break object,
                Err(error) => {
                    failed += 1;
                    let may_help = matches!(
                        error,
                        ObjectError::Unreachable {
                            is_retryable: true,
                            ..
                        }
                    );
                    if !may_help || failed >= START_RETRY.max_attempts {
                        return Err(broken(error));
                    }
                    let pause = START_RETRY.delay(failed, random());
                    self.ports.clock.sleep(pause).await;
                }
            }
        };
        Ok(Rc::new(Rpc::new(
            object,
            self.ports.clock.clone(),
            self.ports.spawn.clone(),
            RpcLimits {
                forgets_after: is_asked.then_some(EVICTED_AFTER),
                ..RpcLimits::new(self.max_response_bytes)
            },
        )))
    }

    /// HTTP+SSE. Opens the stream, and waits for the endpoint; a server that is not known to speak
    /// it has less time.
    pub(crate) async fn http_sse(&self, is_known: bool) -> Result<Rc<dyn Transport>> {
        let mut limits = self.limits;
        if !is_known {
            limits.endpoint_timeout = limits.endpoint_timeout.min(GUESS_LIMIT);
        }
        let transport = HttpSse::open(
            self.ports.http.clone(),
            self.ports.clock.clone(),
            self.ports.spawn.clone(),
            self.url()?.clone(),
            self.headers.clone(),
            self.permission.clone(),
            limits,
        );
        Ok(Rc::new(transport.await?))
    }
}
