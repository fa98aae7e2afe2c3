//! What an object runs on: an executor that can be stopped in the middle of anything, a clock, a
//! network that may hold answers back, and storage that is watched.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use async_trait::async_trait;
use futures::channel::oneshot;
use futures::future::{LocalBoxFuture, poll_fn};
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use workers_agents::ports::*;
use workers_agents::{Error, McpClientManager, McpClientOptions};

use super::peers::{Answer, OWNER, Server};
use super::random::Random;
use crate::support::crypto::NativeCrypto;
use crate::support::{MemoryCatalogs, MemoryJobs, MemoryKeys, MemoryTable, MemoryTasks, Seen};

/// What happened, in order.
#[derive(Debug)]
pub enum Entry {
    Begun(usize),
    Ended(usize, Outcome),
    Put(ServerRow),
    Deleted(String, bool),
    Renamed(String, String),
    /// A job is about to run for this server.
    Job(String),
    Sent(Sent),
    /// The lists of this server were read by this peer.
    Listed(usize, u32),
    /// A tool has run for this operation.
    Ran(usize),
}

#[derive(Debug)]
pub enum Outcome {
    Done,
    Existed(bool),
    Text(String),
    Failed(Error),
}

/// A request on its way.
#[derive(Debug, Clone)]
pub struct Sent {
    pub server: usize,
    pub owner: u32,
    pub rpc: String,
}

impl Sent {
    /// Whether it only ends something.
    pub fn is_ending(&self) -> bool {
        matches!(&*self.rpc, "DELETE" | "notifications/cancelled")
    }
}

/// What a broken storage does not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    Nothing,
    DeletingRows,
    DeletingCatalogs,
    CancellingJobs,
    DeletingKeys,
    RenamingCatalogs,
}

/// Everything outside the memory of the object.
pub struct Outside {
    pub broken: Broken,
    pub log: RefCell<Vec<Entry>>,
    pub faults: RefCell<Vec<String>>,
    pub random: RefCell<Random>,
    pub now: Cell<u64>,
    sleepers: RefCell<Vec<(u64, oneshot::Sender<()>)>>,
    pub servers: Vec<Server>,
    held: RefCell<Vec<oneshot::Sender<()>>>,
    /// Open requests by server.
    open: RefCell<BTreeMap<usize, usize>>,
    pub open_requests: Cell<usize>,
    /// How many servers may be connected at once, as long as nobody has asked for any.
    pub limit: Cell<Option<usize>>,
    pub table: Rc<MemoryTable>,
    pub tasks: Rc<MemoryTasks>,
    pub jobs: Rc<MemoryJobs>,
    pub catalogs: Rc<MemoryCatalogs>,
    pub keys: Rc<MemoryKeys>,
}

impl Outside {
    pub fn new(broken: Broken, servers: usize) -> Rc<Self> {
        Rc::new(Self {
            broken,
            log: RefCell::default(),
            faults: RefCell::default(),
            random: RefCell::new(Random::new(0)),
            now: Cell::new(1_000_000),
            sleepers: RefCell::default(),
            servers: (0..servers).map(Server::new).collect(),
            held: RefCell::default(),
            open: RefCell::default(),
            open_requests: Cell::new(0),
            limit: Cell::new(None),
            table: Rc::default(),
            tasks: Rc::default(),
            jobs: Rc::default(),
            catalogs: Rc::default(),
            keys: Rc::default(),
        })
    }

    pub fn note(&self, entry: Entry) {
        self.log.borrow_mut().push(entry);
    }

    pub fn fault(&self, text: String) {
        self.faults.borrow_mut().push(text);
    }

    pub fn timers(&self) -> usize {
        let mut sleepers = self.sleepers.borrow_mut();
        sleepers.retain(|(_, sender)| !sender.is_canceled());
        sleepers.len()
    }

    pub fn next_timer(&self) -> Option<u64> {
        self.timers();
        let sleepers = self.sleepers.borrow();
        sleepers.iter().map(|(at, _)| *at).min()
    }

    pub fn next_job(&self) -> Option<Job> {
        self.jobs.list().unwrap().into_iter().next()
    }

    pub fn ring(&self) {
        let now = self.now.get();
        let due: Vec<_> = self
            .sleepers
            .borrow_mut()
            .extract_if(.., |(at, _)| *at <= now)
            .collect();
        for (_, sender) in due {
            let _ = sender.send(());
        }
    }

    fn alarm_at(&self, at: u64) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.sleepers.borrow_mut().push((at, sender));
        receiver
    }

    /// Lets go of the oldest answers that were held back.
    pub fn release(&self, number: usize) {
        let mut held = self.held.borrow_mut();
        let number = number.min(held.len());
        held.drain(..number).for_each(drop);
    }

    async fn pause(&self) {
        let turns = self.random.borrow_mut().below(3);
        turns_pass(turns).await;
    }
}

async fn turns_pass(mut turns: u64) {
    poll_fn(|context| {
        if turns == 0 {
            return Poll::Ready(());
        }
        turns -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The memory of the object.
pub struct Object {
    pub manager: McpClientManager,
    pub pool: Rc<Pool>,
    /// Whether jobs are being run.
    driving: Rc<Cell<bool>>,
}

impl Object {
    pub fn new(outside: &Rc<Outside>, options: &McpClientOptions) -> Self {
        let pool = Rc::new(Pool::default());
        let watched = || Watched {
            outside: outside.clone(),
            is_dead: pool.is_dead.clone(),
        };
        let ports = Ports {
            http: Rc::new(Wire(outside.clone())),
            clock: Rc::new(Clockwork(outside.clone())),
            spawn: pool.clone(),
            servers: Rc::new(watched()),
            tasks: outside.tasks.clone(),
            jobs: Rc::new(watched()),
            catalogs: Rc::new(watched()),
            keys: Rc::new(watched()),
            crypto: Rc::new(NativeCrypto),
            objects: None,
        };
        Self {
            manager: McpClientManager::on_ports(ports, "gull", "0.4.0", options.clone()),
            pool,
            driving: Rc::default(),
        }
    }

    /// Forgets everything, as an eviction does: nothing runs any more.
    pub fn evict(self, outside: &Outside) {
        self.pool.is_dead.set(true);
        self.pool.tasks.take();
        // Work under way holds on to what holds it. Nothing outside hears of this.
        let _ = self.manager.close_all_connections().now_or_never();
        outside.sleepers.take();
        outside.held.take();
        assert_eq!(
            outside.open_requests.get(),
            0,
            "a request outlives its object"
        );
    }

    pub fn is_driving(&self) -> bool {
        self.driving.get()
    }

    /// Runs the jobs that are due, one after the other.
    pub fn drive(&self, outside: &Rc<Outside>) {
        if self.driving.replace(true) {
            return;
        }
        let (outside, manager) = (outside.clone(), self.manager.clone());
        let driving = self.driving.clone();
        self.pool.spawn(Box::pin(async move {
            while let Some(job) = outside.next_job().filter(|job| job.at <= outside.now.get()) {
                let payload: Value = serde_json::from_str(&job.payload).unwrap();
                let id = payload["serverId"].as_str().unwrap().to_owned();
                outside.note(Entry::Job(id));
                let outcome = manager.run_job(&job).await;
                if !matches!(outcome, Ok(JobOutcome::Done)) {
                    outside.fault(format!("a job ended with {outcome:?}"));
                }
                // A plan that was made meanwhile wins.
                outside.jobs.jobs.borrow_mut().retain(|other| *other != job);
            }
            driving.set(false);
        }));
    }
}

/// Runs tasks in the order in which they are woken.
#[derive(Default)]
pub struct Pool {
    tasks: RefCell<Vec<Option<Task>>>,
    ready: Ready,
    is_dead: Rc<Cell<bool>>,
}

struct Task {
    work: LocalBoxFuture<'static, ()>,
    waker: Arc<Woken>,
}

type Ready = Arc<Mutex<VecDeque<usize>>>;

struct Woken {
    index: usize,
    is_queued: AtomicBool,
    ready: Ready,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            self.ready.lock().unwrap().push_back(self.index);
        }
    }
}

impl Spawn for Pool {
    fn spawn(&self, work: LocalBoxFuture<'static, ()>) {
        if self.is_dead.get() {
            return;
        }
        let mut tasks = self.tasks.borrow_mut();
        let waker = Arc::new(Woken {
            index: tasks.len(),
            is_queued: AtomicBool::new(false),
            ready: self.ready.clone(),
        });
        waker.clone().wake();
        tasks.push(Some(Task { work, waker }));
    }
}

impl Pool {
    /// Polls one task. Says whether there was one.
    pub fn poll(&self) -> bool {
        let Some(index) = self.ready.lock().unwrap().pop_front() else {
            return false;
        };
        let task = self.tasks.borrow_mut()[index].take();
        if let Some(mut task) = task {
            task.waker.is_queued.store(false, Ordering::Relaxed);
            let waker = Waker::from(task.waker.clone());
            let is_over = task.work.poll_unpin(&mut Context::from_waker(&waker));
            if is_over.is_pending() {
                self.tasks.borrow_mut()[index] = Some(task);
            }
        }
        true
    }
}

struct Clockwork(Rc<Outside>);

impl Clock for Clockwork {
    fn now(&self) -> Timestamp {
        self.0.now.get()
    }

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()> {
        let pause = u64::try_from(duration.as_millis()).unwrap();
        let alarm = self.0.alarm_at(self.0.now.get() + pause);
        alarm.map(drop).boxed_local()
    }
}

struct Wire(Rc<Outside>);

/// Counts a request from its sending to its end.
struct Open {
    outside: Rc<Outside>,
    server: Option<usize>,
}

impl Open {
    fn new(outside: &Rc<Outside>, sent: &Sent) -> Self {
        outside.open_requests.set(outside.open_requests.get() + 1);
        let server = (!sent.is_ending() && sent.rpc != "GET").then_some(sent.server);
        if let Some(server) = server {
            *outside.open.borrow_mut().entry(server).or_default() += 1;
        }
        let servers = outside.open.borrow().len();
        if outside.limit.get().is_some_and(|limit| servers > limit) {
            outside.fault(format!("{servers} servers are connected at once"));
        }
        Self {
            outside: outside.clone(),
            server,
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let open = &self.outside.open_requests;
        open.set(open.get() - 1);
        let Some(server) = self.server else { return };
        let mut open = self.outside.open.borrow_mut();
        let count = open.get_mut(&server).unwrap();
        *count -= 1;
        if *count == 0 {
            open.remove(&server);
        }
    }
}

#[async_trait(?Send)]
impl Http for Wire {
    async fn send(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
        let outside = &self.0;
        let seen = Seen {
            method: request.method.to_string(),
            url: request.url.as_str().to_owned(),
            headers: request.headers.clone(),
            body: request.body.map_or(Value::Null, |body| {
                serde_json::from_str(body).unwrap_or_default()
            }),
            text: request.body.unwrap_or_default().to_owned(),
        };
        let server = outside.servers.iter().find(|server| server.url == seen.url);
        let Some(server) = server else {
            outside.fault(format!("a request to {}", seen.url));
            return Err(HttpError("no such server".into()));
        };
        let owner = seen.header(OWNER).and_then(|owner| owner.parse().ok());
        let sent = Sent {
            server: server.index,
            owner: owner.unwrap_or(u32::MAX),
            rpc: seen.rpc(),
        };
        outside.note(Entry::Sent(sent.clone()));
        let open = Open::new(outside, &sent);
        outside.pause().await;
        let answer = server.answer(outside, &seen, &sent);
        outside.pause().await;
        let (wait, status, headers, body) = match answer {
            Answer::Now(status, headers, body) => (None, status, headers, body),
            Answer::After(pause, status, headers, body) => {
                let alarm = outside.alarm_at(outside.now.get() + pause);
                (Some(alarm), status, headers, body)
            }
            Answer::Held(status, headers, body) => {
                let (sender, gate) = oneshot::channel();
                outside.held.borrow_mut().push(sender);
                (Some(gate), status, headers, body)
            }
            Answer::Refused => return Err(HttpError("refused".into())),
            Answer::Silence => futures::future::pending().await,
        };
        if let Some(wait) = wait {
            let _ = wait.await;
        }
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_static(name);
            map.insert(name, HeaderValue::from_str(&value).unwrap());
        }
        let body = stream::iter([Ok(body.into_bytes())]).map(move |chunk| {
            let _open = &open;
            chunk
        });
        Ok(HttpResponse {
            status,
            headers: map,
            body: body.boxed_local(),
        })
    }
}

/// Storage that notes what changes, and that may be broken.
struct Watched {
    outside: Rc<Outside>,
    /// Whether the object is gone, and nothing it does counts.
    is_dead: Rc<Cell<bool>>,
}

impl Watched {
    fn live(&self) -> Result<&Outside, StoreError> {
        if self.is_dead.get() {
            return Err(StoreError("the object is gone".into()));
        }
        Ok(&self.outside)
    }
}

impl ServerStore for Watched {
    fn list(&self) -> Result<Vec<Result<ServerRow, DamagedRow>>, StoreError> {
        let outside = self.live()?;
        outside.table.list()
    }

    fn get(&self, id: &str) -> Result<Option<Result<ServerRow, DamagedRow>>, StoreError> {
        let outside = self.live()?;
        ServerStore::get(&*outside.table, id)
    }

    fn put(&self, row: &ServerRow) -> Result<(), StoreError> {
        let outside = self.live()?;
        outside.note(Entry::Put(row.clone()));
        outside.table.put(row)
    }

    fn set_options(&self, id: &str, options: &str) -> Result<(), StoreError> {
        let outside = self.live()?;
        outside.table.set_options(id, options)
    }

    fn delete(&self, id: &str) -> Result<bool, StoreError> {
        let outside = self.live()?;
        let existed = if outside.broken == Broken::DeletingRows {
            outside.table.rows.borrow().iter().any(|row| row.id == id)
        } else {
            ServerStore::delete(&*outside.table, id)?
        };
        outside.note(Entry::Deleted(id.to_owned(), existed));
        Ok(existed)
    }

    fn rename(&self, from: &str, to: &str) -> Result<bool, StoreError> {
        let outside = self.live()?;
        let existed = ServerStore::rename(&*outside.table, from, to)?;
        if existed {
            outside.note(Entry::Renamed(from.to_owned(), to.to_owned()));
        }
        Ok(existed)
    }
}

impl CatalogStore for Watched {
    fn heads(&self) -> Result<Vec<CatalogHead>, StoreError> {
        let outside = self.live()?;
        outside.catalogs.heads()
    }

    fn get(&self, server_id: &str) -> Result<Option<CatalogRow>, StoreError> {
        let outside = self.live()?;
        CatalogStore::get(&*outside.catalogs, server_id)
    }

    fn put(&self, row: &CatalogRow) -> Result<(), StoreError> {
        let outside = self.live()?;
        outside.catalogs.put(row)
    }

    fn delete(&self, server_id: &str) -> Result<(), StoreError> {
        let outside = self.live()?;
        if outside.broken == Broken::DeletingCatalogs {
            return Ok(());
        }
        CatalogStore::delete(&*outside.catalogs, server_id)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let outside = self.live()?;
        if outside.broken == Broken::RenamingCatalogs {
            return Ok(());
        }
        CatalogStore::rename(&*outside.catalogs, from, to)
    }
}

impl Jobs for Watched {
    fn push(&self, job: &Job) -> Result<(), StoreError> {
        let outside = self.live()?;
        outside.jobs.push(job)
    }

    fn cancel(&self, id: &str) -> Result<bool, StoreError> {
        let outside = self.live()?;
        if outside.broken == Broken::CancellingJobs {
            return Ok(false);
        }
        outside.jobs.cancel(id)
    }

    fn list(&self) -> Result<Vec<Job>, StoreError> {
        let outside = self.live()?;
        outside.jobs.list()
    }
}

#[async_trait(?Send)]
impl KeyValueStore for Watched {
    async fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        let outside = self.live()?;
        turns_pass(1).await;
        let outcome = KeyValueStore::get(&*outside.keys, key).await;
        turns_pass(1).await;
        outcome
    }

    async fn put(&self, key: &str, json: &str) -> Result<(), StoreError> {
        let outside = self.live()?;
        turns_pass(1).await;
        let outcome = KeyValueStore::put(&*outside.keys, key, json).await;
        turns_pass(1).await;
        outcome
    }

    async fn delete(&self, keys: &[String]) -> Result<(), StoreError> {
        let outside = self.live()?;
        turns_pass(1).await;
        if outside.broken == Broken::DeletingKeys {
            return Ok(());
        }
        let outcome = KeyValueStore::delete(&*outside.keys, keys).await;
        turns_pass(1).await;
        outcome
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let outside = self.live()?;
        turns_pass(1).await;
        outside.keys.keys(prefix).await
    }
}
