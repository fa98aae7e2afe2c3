//! The batteries of an agent, wired together.

mod callback_url;
mod elicitation;
mod pushing;

use std::fmt;
use std::rc::Rc;

use futures::FutureExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use worker::Env;

use self::callback_url::Situation;
use crate::lifecycle::{self, Lifecycle, Plan};
use crate::mcp::{AddMcpServer, AddedServer, McpClientManager, McpClientOptions, McpServersState};
use crate::routing::kebab_case;
use crate::websockets::{Connection, Identity, WebSocketOptions, WebSockets};
use crate::{Error, Result};

#[cfg(feature = "entrypoint")]
pub(crate) use elicitation::tell_browsers;

/// What an agent has: a lifecycle, in it an MCP client manager and the sockets of browsers, and a
/// state that it shares with them. Cheap to clone.
///
/// [`agent!`](crate::agent) gives a Durable Object one, in the field `agent`.
#[derive(Clone)]
pub struct Agent {
    lifecycle: Lifecycle,
    mcp: McpClientManager,
    sockets: WebSockets,
    about: Rc<About>,
}

struct About {
    /// In kebab case.
    class: String,
    sends_identity: bool,
    /// Tells browsers what changes, for as long as the agent is there.
    _pusher: Rc<pushing::Pusher>,
}

/// What may be chosen for an agent.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AgentOptions {
    /// Limits and times of the MCP client.
    pub mcp: McpClientOptions,
    /// The name by which the agent introduces itself to MCP servers. Default: its class in kebab case.
    pub client_name: Option<String>,
    /// Limits of the sockets.
    pub web_sockets: WebSocketOptions,
    /// Whether browsers are told the class and the name of the object. Default: they are. Where not,
    /// adding a server needs a [callback path](AddMcpServer::callback_path), since the default one
    /// holds the name.
    pub sends_identity_on_connect: bool,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            mcp: McpClientOptions::default(),
            client_name: None,
            web_sockets: WebSocketOptions::default(),
            sends_identity_on_connect: true,
        }
    }
}

impl Agent {
    /// An agent of a class, such as `MyAgent`. It introduces itself to MCP servers by that in kebab
    /// case, and by `version`.
    pub fn new(lifecycle: Lifecycle, class: &str, version: &str) -> Self {
        Self::with_options(lifecycle, class, version, AgentOptions::default())
    }

    /// As [`new`](Self::new), with choices of one's own.
    pub fn with_options(
        lifecycle: Lifecycle,
        class: &str,
        version: &str,
        options: AgentOptions,
    ) -> Self {
        let class = kebab_case(class);
        let mut mcp = options.mcp;
        if mcp.oauth_namespace.is_none() {
            mcp.oauth_namespace = lifecycle.name().ok();
        }
        let client_name = options.client_name.as_deref().unwrap_or(&class);
        let mcp = McpClientManager::with_options(&lifecycle, client_name, version, mcp);
        let sockets = lifecycle.accept_web_sockets(options.web_sockets);
        if options.sends_identity_on_connect
            && let Ok(name) = lifecycle.name()
        {
            let class = class.clone();
            sockets.introduce(Some(Identity { name, class }));
        }
        let about = About {
            class,
            sends_identity: options.sends_identity_on_connect,
            _pusher: pushing::Pusher::start(&mcp, &sockets),
        };
        Self {
            lifecycle,
            mcp,
            sockets,
            about: Rc::new(about),
        }
    }

    /// The lifecycle of the object.
    pub fn lifecycle(&self) -> &Lifecycle {
        &self.lifecycle
    }

    /// The Worker's bindings.
    pub fn env(&self) -> &Env {
        self.lifecycle.env()
    }

    /// The name of the object.
    ///
    /// # Errors
    /// As [`Lifecycle::name`].
    pub fn name(&self) -> Result<String> {
        self.lifecycle.name()
    }

    /// The MCP servers of the object.
    pub fn mcp(&self) -> &McpClientManager {
        &self.mcp
    }

    // ---- MCP servers

    /// Adds a server, unless it is there, and connects to it. Its tools are known afterwards, or its
    /// user must sign in first.
    ///
    /// ```no_run
    /// # use workers_agents::{AddedServer, Agent, Result};
    /// # async fn example(agent: &Agent) -> Result<()> {
    /// match agent.add_mcp_server(("GitHub", "https://mcp.example.com/mcp")).await? {
    ///     AddedServer::Ready { id } => println!("{id} is ready"),
    ///     AddedServer::Authenticating { auth_url, .. } => println!("go to {}", auth_url.as_str()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Users come back to `/agents/<class>/<name>/callback` at the host of the request, or of the
    /// WebSocket, that is being handled. Where there is none, as in an alarm, say it
    /// ([`AddMcpServer::callback_host`]), or the server cannot ask its user to sign in.
    ///
    /// # Errors
    /// As [`McpClientManager::add_server`]; [`Error::InvalidOption`] when a callback path is missing.
    pub async fn add_mcp_server(&self, server: impl Into<AddMcpServer>) -> Result<AddedServer> {
        self.add(server.into()).boxed_local().await
    }

    async fn add(&self, server: AddMcpServer) -> Result<AddedServer> {
        let name = self.lifecycle.name()?;
        let current = lifecycle::current().and_then(|current| current.url);
        let situation = Situation {
            class: &self.about.class,
            name: &name,
            current: current.as_ref(),
            sends_identity: self.about.sends_identity,
        };
        let callback = callback_url::callback_of(&server, &situation)?;
        self.mcp.add(server, callback).await
    }

    /// Forgets a server. Says whether it was there.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn remove_mcp_server(&self, id: &str) -> Result<bool> {
        self.mcp.remove_server(id).await
    }

    /// The servers, and what they offer, as browsers see them.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn mcp_servers(&self) -> Result<McpServersState> {
        self.mcp.snapshot().await
    }

    // ---- state

    /// The state that is shared with browsers. `None` when there is none.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] when it is no value of this type; storage errors.
    pub fn state<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        self.sockets.state().get()
    }

    /// Replaces the state, and tells every browser. Any JSON of up to 1 MiB; no secrets.
    ///
    /// # Errors
    /// [`Error::ReadonlyConnection`] while something from a connection that may only read is being
    /// handled; [`Error::InvalidOption`] when it is no JSON, or too large; storage errors.
    pub fn set_state(&self, state: &impl Serialize) -> Result<()> {
        if lifecycle::current().is_some_and(|current| current.is_readonly) {
            return Err(Error::ReadonlyConnection);
        }
        let text = serde_json::to_string(state)
            .map_err(|error| Error::InvalidOption(format!("the state: {error}")))?;
        self.sockets.state().parse(&text)?;
        self.sockets.set_state(&text, None)
    }

    // ---- browsers

    /// The sockets of browsers.
    pub fn web_sockets(&self) -> &WebSockets {
        &self.sockets
    }

    /// The open connections.
    pub fn connections(&self) -> Vec<Connection> {
        self.sockets.connections()
    }

    /// Sends a text to every connection, except those with these ids.
    pub fn broadcast(&self, text: &str, without: &[&str]) {
        self.sockets.broadcast(text, without);
    }

    // ---- later

    /// Plans work: [`Hooks::on_schedule`](crate::Hooks::on_schedule) does it. As
    /// [`Lifecycle::schedule`].
    ///
    /// # Errors
    /// As [`Lifecycle::schedule`].
    pub fn schedule(
        &self,
        plan: Plan,
        name: &str,
        payload: &impl Serialize,
    ) -> Result<crate::ScheduledJob> {
        self.lifecycle.schedule(plan, name, payload)
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("class", &self.about.class)
            .finish_non_exhaustive()
    }
}

/// Declares a Durable Object that is an agent: `agent! { pub struct MyAgent; }`.
///
/// The struct has a field `agent` of type [`Agent`]. Further fields may be declared; they start
/// from [`Default`]: `agent! { pub struct MyAgent { asked: Cell<u32> } }`. After `with`, a function
/// may follow that chooses its options: `agent! { pub struct MyAgent; with options }`, where `options`
/// is a `fn(&worker::Env) -> AgentOptions`. Implement [`Hooks`](crate::Hooks) for it. The crate that
/// uses the macro depends on `worker` and `wasm-bindgen`, whose names the platform's own macro
/// writes.
#[macro_export]
macro_rules! agent {
    ($(#[$attribute:meta])* $visibility:vis struct $name:ident; $(with $options:expr)?) => {
        $crate::agent! { $(#[$attribute])* $visibility struct $name {} $(with $options)? }
    };
    ($(#[$attribute:meta])* $visibility:vis struct $name:ident {
        $($field:ident : $type:ty),* $(,)?
    }) => {
        $crate::agent! {
            $(#[$attribute])* $visibility struct $name { $($field : $type),* }
            with |_: &::worker::Env| $crate::AgentOptions::default()
        }
    };
    ($(#[$attribute:meta])* $visibility:vis struct $name:ident {
        $($field:ident : $type:ty),* $(,)?
    } with $options:expr) => {
        #[::worker::durable_object]
        $(#[$attribute])*
        $visibility struct $name {
            agent: $crate::Agent,
            $($field: $type,)*
        }

        impl $crate::LifecycleObject for $name {
            fn new(lifecycle: $crate::Lifecycle) -> Self {
                let class = ::core::stringify!($name);
                let version = ::core::env!("CARGO_PKG_VERSION");
                let options = ($options)(lifecycle.env());
                Self {
                    agent: $crate::Agent::with_options(lifecycle, class, version, options),
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
