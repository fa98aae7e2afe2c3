//! How the platform calls in: the entry points of one Durable Object, and what happens at each.
//!
//! An event starts the object once ([`Lifecycle::start`]), then goes to the capabilities in the
//! order of dispatch, and at last to the host. What is to be done later is a job: the object has one
//! alarm, and the lifecycle shares it among all of them ([`Lifecycle::schedule`] for the host,
//! [`Services::jobs`] for a capability).

mod capability;
mod claims;
mod engine;
mod events;
mod jobs;
mod object;
mod schedule;
mod services;
mod sockets;
mod startup;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use worker::{Env, State, Storage, console_error};

use self::engine::{Engine, OwnedJobs};
use self::schedule::{QUEUE, SCHEDULER};
use self::services::Core;
use self::startup::Startup;
use crate::ports::{JobRow, Jobs};
use crate::runtime::{self, KeyValue, ObjectAlarm, SqlJobStore};
use crate::websockets::{WebSocketOptions, WebSockets};
use crate::{Error, Result};

pub use capability::{Capability, Close, Start, StartCause};
pub use claims::{Claim, Claims, InstallError};
pub use jobs::JobPolicy;
pub use object::{Hooks, LifecycleObject};
pub use schedule::{Plan, Repeats, ScheduledJob};
pub use services::{Services, Status};

pub use crate::invocation::{Event, Invocation, Trace, current};

/// Written before anything is destroyed, so that a wake finds what was left half-way. The TypeScript
/// package uses the same key.
const DESTROY_PENDING: &str = "cf_agents_destroy_pending";
/// When an object comes back that went down while it was being destroyed.
const DESTROY_AGAIN_MS: u64 = 30_000;

/// Owns the entry points of one object: starts it once, then hands each event to the capabilities
/// in the order of dispatch, and at last to the host. Cheap to clone.
#[derive(Clone)]
pub struct Lifecycle {
    inner: Rc<Inner>,
}

struct Inner {
    core: Rc<Core>,
    capabilities: RefCell<Vec<Rc<dyn Capability>>>,
    capabilities_started: Startup<Error>,
    host_started: Startup<Error>,
    /// Set when a startup has begun: from then on nothing is installed.
    is_closed: Cell<bool>,
    /// Why the object cannot start.
    broken: RefCell<Option<Error>>,
    start: RefCell<Option<Start>>,
    accepts_props: Cell<bool>,
    is_destroyed: Cell<bool>,
    sockets: RefCell<Option<WebSockets>>,
}

impl Lifecycle {
    /// Called by [`install!`](crate::install).
    pub fn new(state: State, env: Env) -> Self {
        let engine = Engine::new(
            Rc::new(SqlJobStore::new(&state.storage())),
            Rc::new(ObjectAlarm::new(state.storage())),
            runtime::clock(),
        );
        engine.add_owner(SCHEDULER);
        engine.add_owner(QUEUE);
        let core = Core {
            state: Rc::new(state),
            env,
            engine: Rc::new(engine),
            status: Cell::new(Status::Zero),
        };
        Self {
            inner: Rc::new(Inner {
                core: Rc::new(core),
                capabilities: RefCell::default(),
                capabilities_started: Startup::default(),
                host_started: Startup::default(),
                is_closed: Cell::new(false),
                broken: RefCell::default(),
                start: RefCell::default(),
                accepts_props: Cell::new(false),
                is_destroyed: Cell::new(false),
                sockets: RefCell::default(),
            }),
        }
    }

    /// Adds a capability. Do it while the object is made. The order is the order of dispatch, except
    /// that those which answer everything come last.
    ///
    /// # Errors
    /// [`Error::Install`] when it has no id or one that is taken, when the object has started, and
    /// when it is the second one that answers everything.
    pub fn install(&self, capability: Rc<dyn Capability>) -> Result<()> {
        if self.inner.is_closed.get() {
            return Err(InstallError::TooLate.into());
        }
        let id = capability.id();
        let mut installed = vec![(SCHEDULER, Claims::SELECTIVE), (QUEUE, Claims::SELECTIVE)];
        let ours = installed.len();
        for other in self.capabilities() {
            installed.push((other.id(), other.claims()));
        }
        let place = claims::place(&installed, id, capability.claims())?;
        let mut capabilities = self.inner.capabilities.borrow_mut();
        let place = place.saturating_sub(ours).min(capabilities.len());
        capabilities.insert(place, capability);
        self.inner.core.engine.add_owner(id);
        Ok(())
    }

    /// Adds a capability where nothing can fail, as in the constructor of an object: a refusal is
    /// remembered, and the object does not start.
    pub fn require(&self, capability: Rc<dyn Capability>) {
        if let Err(error) = self.install(capability) {
            self.fail_startup(error);
        }
    }

    /// The object does not start, for this reason. The first reason stays.
    pub fn fail_startup(&self, error: Error) {
        self.inner.broken.borrow_mut().get_or_insert(error);
    }

    /// Accepts every WebSocket that no capability takes, for hibernation, and calls the hooks of the
    /// host for what happens on it. Do it while the object is made; once more changes nothing.
    pub fn accept_web_sockets(&self, options: WebSocketOptions) -> WebSockets {
        let mut sockets = self.inner.sockets.borrow_mut();
        let make = || {
            let store = runtime::state_store(&self.storage());
            WebSockets::new(self.inner.core.state.clone(), store, options)
        };
        sockets.get_or_insert_with(make).clone()
    }

    /// The sockets of the object, if it [accepts](Self::accept_web_sockets) any.
    pub fn web_sockets(&self) -> Option<WebSockets> {
        self.inner.sockets.borrow().clone()
    }

    /// What a capability may use of this object. `id` is the capability's.
    pub fn services(&self, id: &'static str) -> Services {
        Services {
            core: self.inner.core.clone(),
            owner: id,
        }
    }

    /// The Worker's bindings.
    pub fn env(&self) -> &Env {
        &self.inner.core.env
    }

    /// The object's storage.
    pub fn storage(&self) -> Storage {
        self.inner.core.state.storage()
    }

    /// The platform's state of the object: its sockets among other things.
    pub fn state(&self) -> &State {
        &self.inner.core.state
    }

    /// How far the object has come.
    pub fn status(&self) -> Status {
        self.inner.core.status.get()
    }

    /// The jobs of one capability.
    pub fn jobs(&self, owner: &'static str) -> Rc<dyn Jobs> {
        Rc::new(OwnedJobs {
            engine: self.inner.core.engine.clone(),
            owner,
        })
    }

    /// Other limits for jobs.
    pub fn set_job_policy(&self, policy: JobPolicy) {
        self.inner.core.engine.set_policy(policy);
    }

    /// The name by which the object was addressed.
    ///
    /// # Errors
    /// [`Error::Runtime`] for an object that has none: one addressed by a unique or hexadecimal id,
    /// or by a name of more than 1 024 bytes.
    pub fn name(&self) -> Result<String> {
        object_name(&self.inner.core.state)
    }

    /// Takes what routers say in the header `x-agents-lifecycle-props`. By default the header is
    /// removed unread.
    ///
    /// Nobody can tell who has set it: accept it only in an object that is reached by nothing but
    /// routers and handles of this crate, or others that remove it from requests of outside.
    /// [`AgentRouter::props`](crate::AgentRouter::props) sets it.
    pub fn accept_props(&self) {
        self.inner.accepts_props.set(true);
    }

    /// What the object was started with. `None` when there is nothing.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] when it is no value of this type.
    pub fn props<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let start = self.inner.start.borrow();
        let Some(props) = start.as_ref().and_then(|start| start.props.as_ref()) else {
            return Ok(None);
        };
        T::deserialize(props)
            .map(Some)
            .map_err(|error| Error::InvalidOption(format!("the props: {error}")))
    }

    /// What woke the object. `None` before that.
    pub fn start_cause(&self) -> Option<StartCause> {
        self.inner.start.borrow().as_ref().map(|start| start.cause)
    }

    /// Starts the object, unless it is started: the capabilities, then the host. Every entry point
    /// does so by itself; an RPC method of your own calls this first.
    ///
    /// Callers at the same time share one startup. When it fails the next call tries again, and
    /// what had succeeded is not repeated. A call from inside the startup returns at once.
    ///
    /// # Errors
    /// The error of the hook that failed.
    pub async fn start<O: LifecycleObject>(&self, object: &O) -> Result<()> {
        let start = Start {
            cause: StartCause::Call,
            props: None,
        };
        self.ensure_started(object, start).await
    }

    /// As [`start`](Self::start), with props for the hooks. They are ignored when the object has
    /// started, or is about to.
    ///
    /// # Errors
    /// The error of the hook that failed, or [`Error::InvalidOption`] for props that are not JSON.
    pub async fn start_with_props<O: LifecycleObject>(
        &self,
        object: &O,
        props: &impl Serialize,
    ) -> Result<()> {
        let start = Start {
            cause: StartCause::Call,
            props: Some(as_json("the props", props)?),
        };
        self.ensure_started(object, start).await
    }

    async fn ensure_started<O: LifecycleObject>(&self, object: &O, start: Start) -> Result<()> {
        let is_used = start.cause != StartCause::Alarm;
        self.start_if_needed(object, start).await?;
        if is_used && self.inner.core.status.get() == Status::Started {
            for capability in self.capabilities() {
                capability.on_use();
            }
        }
        Ok(())
    }

    async fn start_if_needed<O: LifecycleObject>(&self, object: &O, start: Start) -> Result<()> {
        let Inner {
            core,
            capabilities_started,
            host_started,
            ..
        } = &*self.inner;
        if self.is_destroyed() {
            return Err(Error::Runtime("the object is being destroyed".into()));
        }
        // From within a capability's startup: the host's turn has not come yet.
        if core.status.get() == Status::Started
            || capabilities_started.is_inside()
            || host_started.is_inside()
        {
            return Ok(());
        }
        let outcome = capabilities_started
            .ensure(async || self.start_capabilities(start).await)
            .await;
        match outcome {
            Ok(()) => {
                host_started
                    .ensure(async || {
                        if let Some(sockets) = self.web_sockets() {
                            sockets.state().set_initial(object.initial_state().as_ref());
                        }
                        let outcome = object.on_start().await;
                        self.settle_alarm().await;
                        core.status.set(match &outcome {
                            Ok(()) => Status::Started,
                            Err(_) => Status::Zero,
                        });
                        Ok(outcome?)
                    })
                    .await
            }
            failed @ Err(_) => failed,
        }
    }

    async fn start_capabilities(&self, start: Start) -> Result<()> {
        let core = &self.inner.core;
        core.status.set(Status::Starting);
        self.inner.is_closed.set(true);
        let outcome = async {
            self.finish_destruction().await?;
            if let Some(error) = self.inner.broken.borrow().clone() {
                return Err(error);
            }
            self.inner.start.replace(Some(start.clone()));
            for capability in self.capabilities() {
                capability.on_start(&start).await?;
            }
            Ok(())
        }
        .await;
        if outcome.is_err() {
            self.settle_alarm().await;
            core.status.set(Status::Zero);
        }
        outcome
    }

    /// Whether or not the startup succeeds, what is planned is not forgotten.
    async fn settle_alarm(&self) {
        if let Err(error) = self.inner.core.engine.settle().await {
            console_error!("looking after the alarm: {error}");
        }
    }

    /// Plans work for the host: [`Hooks::on_schedule`] does it. The payload is any JSON; no secrets.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use workers_agents::{Lifecycle, Result, lifecycle::Plan};
    /// # fn plan(lifecycle: &Lifecycle) -> Result<()> {
    /// lifecycle.schedule(Plan::after(Duration::from_secs(60)), "remind", &"tea")?;
    /// lifecycle.schedule(Plan::cron("0 9 * * 1-5").id("report"), "report", &())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a plan that makes no sense, [`Error::Storage`] when the id
    /// belongs to a capability's job.
    pub fn schedule(
        &self,
        plan: Plan,
        name: &str,
        payload: &impl Serialize,
    ) -> Result<ScheduledJob> {
        let engine = &self.inner.core.engine;
        let payload = as_json("the payload", payload)?;
        let mut row = plan.row(name, payload, engine.now())?;
        if row.id.is_empty() {
            if let Some(planned) = self.same_as(&row)? {
                return Ok(planned);
            }
            row.id = random_id()?;
        }
        engine.push(&row)?;
        scheduled(&row)?.ok_or_else(|| Error::Runtime("the schedule cannot be read back".into()))
    }

    /// What is planned, the earliest first.
    ///
    /// # Errors
    /// [`Error::Storage`]. What cannot be read is left out.
    pub fn scheduled(&self) -> Result<Vec<ScheduledJob>> {
        let rows = self.inner.core.engine.list(SCHEDULER)?;
        Ok(rows
            .iter()
            .filter_map(|row| scheduled(row).ok().flatten())
            .collect())
    }

    /// What is planned under this id.
    ///
    /// # Errors
    /// [`Error::Storage`], or [`Error::InvalidOption`] for what cannot be read.
    pub fn scheduled_job(&self, id: &str) -> Result<Option<ScheduledJob>> {
        let row = self.inner.core.engine.owned(SCHEDULER, id)?;
        row.map_or(Ok(None), |row| scheduled(&row))
    }

    /// Takes out of the plan what is under this id, and says whether it was there.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub fn cancel_schedule(&self, id: &str) -> Result<bool> {
        Ok(self.inner.core.engine.cancel(SCHEDULER, id)?)
    }

    /// Destroys the object: tells host and capabilities, deletes everything that it has stored, and
    /// drops it from memory. Whoever addresses it later finds a new object.
    ///
    /// Should it go down meanwhile, the next event finishes what was begun. Calls that the object
    /// has not answered a moment after this returns fail.
    ///
    /// # Errors
    /// Of storage. Errors of the hooks are logged.
    pub async fn destroy<O: LifecycleObject>(&self, object: &O) -> Result<()> {
        let core = &self.inner.core;
        let storage = self.storage();
        KeyValue::of(&storage).put(DESTROY_PENDING, &true.into())?;
        self.inner.is_destroyed.set(true);
        let again = i64::try_from(DESTROY_AGAIN_MS).unwrap_or(i64::MAX);
        storage.set_alarm(again).await?;
        // Jobs that are taken back meanwhile do not move it.
        let _held = core.engine.hold();
        if let Err(error) = object.on_dispose().await {
            console_error!("disposing: {error}");
        }
        self.dispose().await;
        self.wipe().await?;
        // What is not on the disk yet would be lost with the object.
        storage.sync().await?;
        runtime::abort(&core.state, "the object is destroyed");
        Ok(())
    }

    /// An earlier destruction may have been left half-way. Nothing has read the storage yet, so the
    /// object may go on as a new one.
    async fn finish_destruction(&self) -> Result<()> {
        let pending = KeyValue::of(&self.storage()).get(DESTROY_PENDING)?;
        if pending.is_truthy() {
            self.wipe().await?;
        }
        Ok(())
    }

    async fn wipe(&self) -> Result<()> {
        let storage = self.storage();
        storage.delete_alarm().await?;
        storage.delete_all().await?;
        self.inner.core.engine.forget();
        Ok(())
    }

    /// Tells every capability that the object goes away, in reverse order of dispatch. One that
    /// fails stops nobody; its error is logged.
    pub async fn dispose(&self) {
        if let Some(sockets) = self.web_sockets() {
            sockets.close_all();
        }
        for capability in self.capabilities().into_iter().rev() {
            if let Err(error) = capability.dispose().await {
                console_error!("disposing {}: {}", capability.id(), error.describe());
            }
        }
    }

    /// What repeats and is planned already, in the same words.
    fn same_as(&self, row: &JobRow) -> Result<Option<ScheduledJob>> {
        let Some(new) = scheduled(row)? else {
            return Ok(None);
        };
        let repeats = matches!(new.repeats, Repeats::Cron { .. } | Repeats::Interval { .. });
        if !repeats {
            return Ok(None);
        }
        let is_same = |old: &ScheduledJob| {
            (&old.name, &old.payload, &old.repeats) == (&new.name, &new.payload, &new.repeats)
        };
        Ok(self.scheduled()?.into_iter().find(is_same))
    }

    fn engine(&self) -> &Engine {
        &self.inner.core.engine
    }

    fn accepts_props(&self) -> bool {
        self.inner.accepts_props.get()
    }

    fn is_destroyed(&self) -> bool {
        self.inner.is_destroyed.get()
    }

    fn capability(&self, id: &str) -> Option<Rc<dyn Capability>> {
        let capabilities = self.inner.capabilities.borrow();
        capabilities.iter().find(|other| other.id() == id).cloned()
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

fn object_name(state: &State) -> Result<String> {
    if let Some(name) = state.id().name() {
        return Ok(name);
    }
    // Written by older versions of the TypeScript package.
    let stored = KeyValue::of(&state.storage()).get("__ps_name")?;
    stored.as_string().ok_or_else(|| {
        Error::Runtime(
            "this Durable Object has no name: address it by name, in at most 1,024 bytes".into(),
        )
    })
}

fn scheduled(row: &JobRow) -> Result<Option<ScheduledJob>> {
    ScheduledJob::of_job(&engine::job_of(row))
}

fn as_json(what: &str, value: &impl Serialize) -> Result<Value> {
    serde_json::to_value(value).map_err(|error| Error::InvalidOption(format!("{what}: {error}")))
}

/// 16 hexadecimal digits.
fn random_id() -> Result<String> {
    let random = getrandom::u64().map_err(|error| Error::Runtime(error.to_string()))?;
    Ok(format!("{random:016x}"))
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

            // The default panics, and a panic ends every object of the isolate.
            async fn connect(&self, _: ::worker::Socket) -> ::worker::Result<()> {
                ::core::result::Result::Err("TCP connections are not enabled".into())
            }

            async fn websocket_message(
                &self,
                socket: ::worker::WebSocket,
                message: ::worker::WebSocketIncomingMessage,
            ) -> ::worker::Result<()> {
                $crate::LifecycleObject::lifecycle(self)
                    .websocket_message(self, socket, message)
                    .await
            }

            async fn websocket_close(
                &self,
                socket: ::worker::WebSocket,
                code: usize,
                reason: ::std::string::String,
                was_clean: bool,
            ) -> ::worker::Result<()> {
                let close = $crate::lifecycle::Close::new(code, reason, was_clean);
                $crate::LifecycleObject::lifecycle(self)
                    .websocket_close(self, socket, close)
                    .await
            }

            async fn websocket_error(
                &self,
                socket: ::worker::WebSocket,
                error: ::worker::Error,
            ) -> ::worker::Result<()> {
                $crate::LifecycleObject::lifecycle(self)
                    .websocket_error(self, socket, error)
                    .await
            }
        }
    };
}
