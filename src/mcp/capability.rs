//! How the manager is installed in a lifecycle. Stands above the platform line.

use std::rc::Rc;

use async_trait::async_trait;
use futures::FutureExt as _;
use worker::{Headers, Method, Request, Response, ResponseBuilder};

use super::{McpClientManager, McpClientOptions};
use crate::lifecycle::{Capability, Lifecycle, Start};
use crate::ports::{Job, JobOutcome};
use crate::vault::KeyRing;
use crate::{Error, Result};

/// What the manager is called among the capabilities of an object.
const CAPABILITY: &str = "mcp";

/// The secret that holds the keys.
const ENCRYPTION_KEY: &str = "AGENT_ENCRYPTION_KEY";

impl McpClientManager {
    /// A manager for the object of this lifecycle. `name` and `version` are sent to servers.
    ///
    /// Its servers come back in the background whenever the object starts.
    pub fn new(lifecycle: &Lifecycle, name: &str, version: &str) -> Self {
        Self::with_options(lifecycle, name, version, McpClientOptions::default())
    }

    /// As [`new`](Self::new), with limits and times of one's own.
    pub fn with_options(
        lifecycle: &Lifecycle,
        name: &str,
        version: &str,
        mut options: McpClientOptions,
    ) -> Self {
        let mut broken = None;
        if options.encryption.is_none()
            && let Ok(keys) = lifecycle.env().secret(ENCRYPTION_KEY)
        {
            // Without a key that can be read nothing is stored, rather than stored in the clear.
            match KeyRing::parse(&keys.to_string()) {
                Ok(ring) => options.encryption = Some(ring),
                Err(error) => broken = Some(Error::InvalidOption(error.to_string())),
            }
        }
        let manager = Self::on_ports(
            crate::runtime::ports(
                lifecycle.state(),
                lifecycle.env(),
                lifecycle.jobs(CAPABILITY),
            ),
            name,
            version,
            options,
        );
        lifecycle.require(Rc::new(Mcp {
            manager: manager.clone(),
            broken,
        }));
        manager
    }
}

/// The answer to a callback, as the platform sends it.
pub(crate) fn as_platform_response(answer: http::Response<String>) -> worker::Result<Response> {
    let (parts, body) = answer.into_parts();
    let headers = Headers::new();
    for (name, value) in &parts.headers {
        if let Ok(value) = value.to_str() {
            headers.append(name.as_str(), value)?;
        }
    }
    let response = ResponseBuilder::new()
        .with_status(parts.status.as_u16())
        .with_headers(headers);
    Ok(response.fixed(body.into_bytes()))
}

struct Mcp {
    manager: McpClientManager,
    /// Why the object cannot start.
    broken: Option<Error>,
}

#[async_trait(?Send)]
impl Capability for Mcp {
    fn id(&self) -> &'static str {
        CAPABILITY
    }

    async fn on_start(&self, _: &Start) -> Result<()> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        // What comes back by itself does so when somebody comes: an alarm is for the jobs that are due.
        self.manager.remember()
    }

    fn on_use(&self) {
        self.manager.begin_to_come_back();
    }

    /// A user who comes back from an authorization server, and a server that reads the document about
    /// the client.
    async fn on_request(&self, request: &Request) -> Result<Option<Response>> {
        if !matches!(request.method(), Method::Get) {
            return Ok(None);
        }
        let url = request.url()?;
        if self.manager.is_callback_request(&url) {
            // Boxed: hardly any request is one, and what it takes is not compiled for the others.
            let answer = self.manager.handle_callback(&url).boxed_local().await;
            return Ok(Some(as_platform_response(answer)?));
        }
        let Some(document) = self.manager.client_metadata_document(&url)? else {
            return Ok(None);
        };
        let response = ResponseBuilder::new()
            .with_header("content-type", "application/json")?
            .with_header("cache-control", "public, max-age=300")?;
        Ok(Some(response.fixed(document.to_string().into_bytes())))
    }

    /// As many as connect at once by default.
    fn jobs_at_once(&self) -> usize {
        4
    }

    async fn on_job(&self, job: &Job) -> Result<JobOutcome> {
        self.manager.run_job(job).await
    }

    async fn dispose(&self) -> Result<()> {
        self.manager.close_all_connections().await
    }
}
