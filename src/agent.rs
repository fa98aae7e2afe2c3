//! The batteries of an agent, wired together.

use crate::lifecycle::Lifecycle;
use crate::mcp::{McpClientManager, McpClientOptions};

/// What an agent has: a lifecycle, and in it an MCP client manager. Cheap to clone.
///
/// [`agent!`](crate::agent) gives a Durable Object one, in the field `agent`.
#[derive(Clone, Debug)]
pub struct Agent {
    lifecycle: Lifecycle,
    mcp: McpClientManager,
}

impl Agent {
    /// An agent that introduces itself to MCP servers by `name` and `version`.
    pub fn new(lifecycle: Lifecycle, name: &str, version: &str) -> Self {
        Self::with_options(lifecycle, name, version, McpClientOptions::default())
    }

    /// As [`new`](Self::new), with limits and times of one's own.
    pub fn with_options(
        lifecycle: Lifecycle,
        name: &str,
        version: &str,
        mut options: McpClientOptions,
    ) -> Self {
        if options.oauth_namespace.is_none() {
            options.oauth_namespace = lifecycle.name().ok();
        }
        let mcp = McpClientManager::with_options(&lifecycle, name, version, options);
        Self { lifecycle, mcp }
    }

    /// The lifecycle of the object.
    pub fn lifecycle(&self) -> &Lifecycle {
        &self.lifecycle
    }

    /// The MCP servers of the object.
    pub fn mcp(&self) -> &McpClientManager {
        &self.mcp
    }
}

/// Declares a Durable Object that is an agent: `agent! { pub struct MyAgent; }`.
///
/// The struct has a field `agent` of type [`Agent`]. Further fields may be declared; they start
/// from [`Default`]: `agent! { pub struct MyAgent { asked: Cell<u32> } }`. Implement
/// [`Hooks`](crate::Hooks) for it. The crate that uses the macro depends on `worker` and
/// `wasm-bindgen`, whose names the platform's own macro writes.
#[macro_export]
macro_rules! agent {
    ($(#[$attribute:meta])* $visibility:vis struct $name:ident;) => {
        $crate::agent! { $(#[$attribute])* $visibility struct $name {} }
    };
    ($(#[$attribute:meta])* $visibility:vis struct $name:ident { $($field:ident : $type:ty),* $(,)? }) => {
        #[::worker::durable_object]
        $(#[$attribute])*
        $visibility struct $name {
            agent: $crate::Agent,
            $($field: $type,)*
        }

        impl $crate::LifecycleObject for $name {
            fn new(lifecycle: $crate::Lifecycle) -> Self {
                let name = ::core::stringify!($name);
                let version = ::core::env!("CARGO_PKG_VERSION");
                Self {
                    agent: $crate::Agent::new(lifecycle, &$crate::kebab_case(name), version),
                    $($field: ::core::default::Default::default(),)*
                }
            }

            fn lifecycle(&self) -> &$crate::Lifecycle {
                self.agent.lifecycle()
            }
        }

        $crate::install!($name);
    };
}
