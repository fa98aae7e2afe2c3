//! How the manager is installed in a lifecycle. Stands above the platform line.

use std::rc::Rc;

use async_trait::async_trait;

use super::{McpClientManager, McpClientOptions};
use crate::Result;
use crate::lifecycle::{Capability, Lifecycle};

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
        options: McpClientOptions,
    ) -> Self {
        let storage = lifecycle.storage();
        let manager = Self::on_ports(crate::runtime::ports(&storage), name, version, options);
        lifecycle.install(Rc::new(Mcp {
            manager: manager.clone(),
        }));
        manager
    }
}

struct Mcp {
    manager: McpClientManager,
}

#[async_trait(?Send)]
impl Capability for Mcp {
    fn id(&self) -> &'static str {
        "mcp"
    }

    async fn on_start(&self) -> Result<()> {
        self.manager.restore()
    }

    async fn dispose(&self) -> Result<()> {
        self.manager.close_all_connections().await
    }
}
