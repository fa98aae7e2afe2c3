//! The ports over the Workers platform. The only place that talks to `fetch`, to timers and to SQL.

mod catalogs;
mod clock;
mod crypto;
mod fetch;
mod jobs;
mod log;
mod rpc;
mod state;
mod storage;
mod tasks;

use std::rc::Rc;

use futures::future::LocalBoxFuture;
use worker::{Env, State, Storage};

use crate::Error;
use crate::ports::{Clock, Jobs, Ports, Spawn, StateStore};

pub use fetch::binding_http;
pub(crate) use jobs::{ObjectAlarm, SqlJobStore, abort};
pub use log::log_events;
pub(crate) use storage::KeyValue;

/// The ports of one Durable Object.
pub(crate) fn ports(state: &State, env: &Env, jobs: Rc<dyn Jobs>) -> Ports {
    let storage = &state.storage();
    Ports {
        http: Rc::new(fetch::Fetcher::platform()),
        clock: Rc::new(clock::Timers::new()),
        spawn: Rc::new(Tasks),
        servers: Rc::new(storage::SqlServerStore::new(storage)),
        tasks: Rc::new(tasks::SqlTaskStore::new(storage)),
        catalogs: Rc::new(catalogs::SqlCatalogStore::new(storage)),
        jobs,
        keys: Rc::new(KeyValue::of(storage)),
        crypto: Rc::new(crypto::WebCrypto),
        objects: Some(Rc::new(rpc::Bindings::new(env, state.id().to_string()))),
    }
}

/// The time and timers of one Durable Object.
pub(crate) fn clock() -> Rc<dyn Clock> {
    Rc::new(clock::Timers::new())
}

/// Where one Durable Object keeps the state that it shares.
pub(crate) fn state_store(storage: &Storage) -> Rc<dyn StateStore> {
    Rc::new(state::SqlStateStore::new(storage))
}

/// Background work of one Durable Object.
pub(crate) fn spawn() -> Rc<dyn Spawn> {
    Rc::new(Tasks)
}

struct Tasks;

impl Spawn for Tasks {
    fn spawn(&self, task: LocalBoxFuture<'static, ()>) {
        wasm_bindgen_futures::spawn_local(task);
    }
}

impl From<Error> for worker::Error {
    fn from(error: Error) -> Self {
        Self::RustError(error.describe())
    }
}

impl From<worker::Error> for Error {
    fn from(error: worker::Error) -> Self {
        Self::Runtime(error.to_string())
    }
}
