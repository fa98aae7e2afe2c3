//! What a host may configure.

use std::time::Duration;

/// Limits and times of a manager.
///
/// A Worker has 128 MB for all objects of an isolate, and answers are held in memory while they are
/// read. The defaults leave room for a few large ones at once, not for many.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct McpClientOptions {
    /// How long one request may take, from sending it to its whole answer. Default 60 s.
    pub request_timeout: Duration,
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
    /// How many servers are connected at once after a wake. A Worker has six connections for all
    /// its requests, so some must stay free. Default 4.
    pub reconnect_concurrency: usize,
}

impl Default for McpClientOptions {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_mins(1),
            connect_timeout: Duration::from_secs(30),
            discovery_timeout: Duration::from_secs(30),
            max_response_bytes: 10 << 20,
            max_list_pages: 64,
            max_list_bytes: 10 << 20,
            max_list_items: 10_000,
            max_servers: 500,
            reconnect_concurrency: 4,
        }
    }
}

impl McpClientOptions {
    /// See [`request_timeout`](Self::request_timeout).
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
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
}
