//! What the lifecycle gives to a capability.

use std::fmt;
use std::rc::Rc;

use worker::{Env, State, Storage};

use super::engine::{Engine, OwnedJobs};
use super::object_name;
use crate::Result;
use crate::ports::Jobs;

/// How far the object has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// It has not started, or its startup has failed.
    Zero,
    /// It is starting.
    Starting,
    /// It has started.
    Started,
}

/// What a capability may use of its object. Cheap to clone.
#[derive(Clone)]
pub struct Services {
    pub(super) core: Rc<Core>,
    pub(super) owner: &'static str,
}

/// What does not hold the capabilities, so that they may hold it.
pub(super) struct Core {
    pub(super) state: Rc<State>,
    pub(super) env: Env,
    pub(super) engine: Rc<Engine>,
    pub(super) status: std::cell::Cell<Status>,
}

impl Services {
    /// The name by which the object was addressed.
    ///
    /// # Errors
    /// As [`Lifecycle::name`](super::Lifecycle::name).
    pub fn name(&self) -> Result<String> {
        object_name(&self.core.state)
    }

    /// The Worker's bindings.
    pub fn env(&self) -> &Env {
        &self.core.env
    }

    /// The object's storage.
    pub fn storage(&self) -> Storage {
        self.core.state.storage()
    }

    /// The platform's state of the object: its sockets among other things.
    pub fn state(&self) -> &State {
        &self.core.state
    }

    /// The jobs of this capability. They come back to its
    /// [`on_job`](super::Capability::on_job).
    pub fn jobs(&self) -> Rc<dyn Jobs> {
        Rc::new(OwnedJobs {
            engine: self.core.engine.clone(),
            owner: self.owner,
        })
    }

    /// How far the object has come.
    pub fn status(&self) -> Status {
        self.core.status.get()
    }

    /// Runs work that outlives the event being handled. Nothing promises that it ends: what must
    /// not be lost is stored first, or is a job.
    pub fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        wasm_bindgen_futures::spawn_local(work);
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Services")
            .field("owner", &self.owner)
            .field("status", &self.core.status.get())
            .finish_non_exhaustive()
    }
}
