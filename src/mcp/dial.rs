//! Making transports to one server.

use std::rc::Rc;
use std::time::Duration;

use http::HeaderMap;

use super::McpClientOptions;
use crate::Result;
use crate::ports::Ports;
use crate::transport::{HttpSse, HttpSseLimits, Permission, StreamableHttp, Transport};
use crate::url_guard::GuardedUrl;

/// How long a server that may not speak HTTP+SSE at all has to name its endpoint.
const GUESS_LIMIT: Duration = Duration::from_secs(3);

/// Where a server is, and what every request to it carries.
pub(crate) struct Dial {
    ports: Ports,
    url: GuardedUrl,
    headers: HeaderMap,
    permission: Option<Rc<dyn Permission>>,
    max_response_bytes: usize,
    limits: HttpSseLimits,
}

impl Dial {
    pub(crate) fn new(
        ports: Ports,
        url: GuardedUrl,
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
            url,
            headers,
            permission,
            max_response_bytes: options.max_response_bytes,
            limits,
        }
    }

    /// Where the server is.
    pub(crate) fn url(&self) -> &GuardedUrl {
        &self.url
    }

    /// Streamable HTTP. Sends nothing.
    pub(crate) fn streamable_http(&self) -> Rc<dyn Transport> {
        let transport = StreamableHttp::new(
            self.ports.http.clone(),
            self.ports.clock.clone(),
            self.url.clone(),
            self.headers.clone(),
            self.max_response_bytes,
        );
        Rc::new(transport.with_permission(self.permission.clone()))
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
            self.url.clone(),
            self.headers.clone(),
            self.permission.clone(),
            limits,
        );
        Ok(Rc::new(transport.await?))
    }
}
