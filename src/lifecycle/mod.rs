//! How the platform calls in: the entry points of one Durable Object, and what happens at each.

mod capability;
mod object;
mod startup;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use worker::{Env, Request, Response, State, Storage, console_error};

use self::startup::Startup;
use crate::routing;
use crate::{Error, Result};

pub use capability::Capability;
pub use object::{Hooks, LifecycleObject};

/// Owns the entry points of one object: starts it once, then hands each event to the capabilities
/// in the order of their installation, and at last to the host. Cheap to clone.
#[derive(Clone)]
pub struct Lifecycle {
    inner: Rc<Inner>,
}

struct Inner {
    state: State,
    env: Env,
    capabilities: RefCell<Vec<Rc<dyn Capability>>>,
    capabilities_started: Startup<Error>,
    host_started: Startup<Error>,
}

impl Lifecycle {
    /// Called by [`install!`](crate::install).
    pub fn new(state: State, env: Env) -> Self {
        Self {
            inner: Rc::new(Inner {
                state,
                env,
                capabilities: RefCell::default(),
                capabilities_started: Startup::default(),
                host_started: Startup::default(),
            }),
        }
    }

    /// Adds a capability. Do it while the object is made: the order is the order of dispatch.
    pub fn install(&self, capability: Rc<dyn Capability>) {
        self.inner.capabilities.borrow_mut().push(capability);
    }

    /// The Worker's bindings.
    pub fn env(&self) -> &Env {
        &self.inner.env
    }

    /// The object's storage.
    pub fn storage(&self) -> Storage {
        self.inner.state.storage()
    }

    /// The name by which the object was addressed.
    ///
    /// # Errors
    /// [`Error::Runtime`] for an object that has none: one addressed by a unique or hexadecimal id,
    /// or by a name of more than 1 024 bytes.
    pub fn name(&self) -> Result<String> {
        if let Some(name) = self.inner.state.id().name() {
            return Ok(name);
        }
        // Written by older versions of the TypeScript package.
        let stored = crate::runtime::KeyValue::of(&self.storage()).get("__ps_name")?;
        stored.as_string().ok_or_else(|| {
            Error::Runtime(
                "this Durable Object has no name: address it by name, in at most 1,024 bytes"
                    .into(),
            )
        })
    }

    /// Starts the object, unless it is started: the capabilities, then the host. Every entry point
    /// does so by itself; an RPC method of your own calls this first.
    ///
    /// Callers at the same time share one startup. When it fails the next call tries again, and
    /// what had succeeded is not repeated.
    ///
    /// # Errors
    /// The error of the hook that failed.
    pub async fn start<O: LifecycleObject>(&self, object: &O) -> Result<()> {
        let Inner {
            capabilities_started,
            host_started,
            ..
        } = &*self.inner;
        // From within a capability's startup: the host's turn has not come yet.
        if capabilities_started.is_inside() {
            return Ok(());
        }
        capabilities_started
            .ensure(async || {
                for capability in self.capabilities() {
                    capability.on_start().await?;
                }
                Ok(())
            })
            .await?;
        host_started
            .ensure(async || Ok(object.on_start().await?))
            .await
    }

    /// Entry point `fetch`.
    ///
    /// # Errors
    /// None in practice: a failure is logged once and answered with status 500, without details.
    pub async fn fetch<O: LifecycleObject>(
        &self,
        object: &O,
        request: Request,
    ) -> worker::Result<Response> {
        match self.dispatch(object, request).await {
            Ok(response) => Ok(response),
            Err(error) => {
                console_error!("request failed: {error}");
                routing::problem(500, "Internal Server Error", "the Worker's log says more")
            }
        }
    }

    async fn dispatch<O: LifecycleObject>(
        &self,
        object: &O,
        request: Request,
    ) -> worker::Result<Response> {
        let request = routing::without_props(request)?;
        self.start(object).await?;
        let upgrade = request.headers().get("upgrade")?;
        if upgrade.is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket")) {
            return routing::problem(404, "Not Found", "WebSocket upgrades are not enabled");
        }
        for capability in self.capabilities() {
            if let Some(response) = capability.on_request(&request).await? {
                return Ok(response);
            }
        }
        object.on_request(request).await
    }

    /// Entry point `alarm`.
    ///
    /// # Errors
    /// The hook's error; the platform then runs the alarm again.
    pub async fn alarm<O: LifecycleObject>(&self, object: &O) -> worker::Result<Response> {
        self.start(object).await?;
        object.on_alarm().await?;
        Response::empty()
    }

    /// Tells every capability that the object goes away, in reverse order. One that fails stops
    /// nobody; its error is logged.
    pub async fn dispose(&self) {
        for capability in self.capabilities().into_iter().rev() {
            if let Err(error) = capability.dispose().await {
                console_error!("disposing {}: {error}", capability.id());
            }
        }
    }

    fn capabilities(&self) -> Vec<Rc<dyn Capability>> {
        self.inner.capabilities.borrow().clone()
    }
}

impl fmt::Debug for Lifecycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self
            .capabilities()
            .iter()
            .map(|capability| capability.id())
            .collect();
        f.debug_struct("Lifecycle")
            .field("capabilities", &ids)
            .finish_non_exhaustive()
    }
}

/// Forwards the entry points of a Durable Object to its [`Lifecycle`].
///
/// The type is a struct with `#[durable_object]` that implements [`LifecycleObject`] and [`Hooks`].
#[macro_export]
macro_rules! install {
    ($object:ty) => {
        impl ::worker::DurableObject for $object {
            fn new(state: ::worker::State, env: ::worker::Env) -> Self {
                <Self as $crate::LifecycleObject>::new($crate::Lifecycle::new(state, env))
            }

            async fn fetch(
                &self,
                request: ::worker::Request,
            ) -> ::worker::Result<::worker::Response> {
                $crate::LifecycleObject::lifecycle(self)
                    .fetch(self, request)
                    .await
            }

            async fn alarm(&self) -> ::worker::Result<::worker::Response> {
                $crate::LifecycleObject::lifecycle(self).alarm(self).await
            }

            // The defaults of the following panic, and a panic ends every object of the isolate.
            async fn connect(&self, _: ::worker::Socket) -> ::worker::Result<()> {
                ::core::result::Result::Err("TCP connections are not enabled".into())
            }

            async fn websocket_message(
                &self,
                _: ::worker::WebSocket,
                _: ::worker::WebSocketIncomingMessage,
            ) -> ::worker::Result<()> {
                ::core::result::Result::Ok(())
            }

            async fn websocket_close(
                &self,
                _: ::worker::WebSocket,
                _: usize,
                _: ::std::string::String,
                _: bool,
            ) -> ::worker::Result<()> {
                ::core::result::Result::Ok(())
            }

            async fn websocket_error(
                &self,
                _: ::worker::WebSocket,
                _: ::worker::Error,
            ) -> ::worker::Result<()> {
                ::core::result::Result::Ok(())
            }
        }
    };
}
