//! The ports of the tests: HTTP served from memory, a clock moved by hand, a table in memory.

pub mod auth_server;
pub mod auth_world;
pub mod case_server;
pub mod crypto;
pub mod mcp_server;
pub mod objects;
pub mod streams;
pub mod talker;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use futures::channel::{mpsc, oneshot};
use futures::executor::{LocalPool, LocalSpawner};
use futures::future::LocalBoxFuture;
use futures::task::LocalSpawnExt as _;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use workers_agents::ports::*;
use workers_agents::{
    ConnectionState, Error, McpClientManager, McpClientOptions, RegisterServer, ServerFilter,
};

use self::crypto::NativeCrypto;
use self::mcp_server::LegacyServer;
use self::streams::Fed;

pub const URL: &str = "https://pier.example/mcp";

/// One request as the peer saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    pub url: String,
    pub headers: HeaderMap,
    pub body: Value,
    /// The body to the letter.
    pub text: String,
}

impl Seen {
    /// The JSON-RPC method, or the HTTP method where there is no body.
    pub fn rpc(&self) -> String {
        self.body["method"]
            .as_str()
            .map_or_else(|| self.method.clone(), str::to_owned)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// What a peer answers.
pub enum Reply {
    Json(u16, Value),
    /// Status, headers, body chunks.
    Raw(u16, Vec<(&'static str, String)>, Vec<Vec<u8>>),
    /// An event stream that the test feeds.
    Fed(Fed),
    /// Nothing, ever.
    Silence,
    Refused,
    /// An event stream that the test writes, and can see the end of.
    Live(mpsc::UnboundedReceiver<Vec<u8>>),
    /// Answers when the test says so.
    Later(oneshot::Receiver<()>, Box<Self>),
}

impl Reply {
    pub fn events(text: &str) -> Self {
        Self::typed(200, "text/event-stream", text)
    }

    /// A body of any type.
    pub fn typed(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::Raw(
            status,
            vec![("content-type", content_type.to_owned())],
            vec![body.into()],
        )
    }

    pub fn status(status: u16) -> Self {
        Self::Raw(status, vec![], vec![])
    }

    /// With a header, in place of what it held.
    pub fn with(self, name: &'static str, value: &str) -> Self {
        match self {
            Self::Raw(status, mut headers, chunks) => {
                headers.retain(|(other, _)| *other != name);
                headers.push((name, value.to_owned()));
                Self::Raw(status, headers, chunks)
            }
            other => other,
        }
    }
}

type Peer = Rc<dyn Fn(&Seen) -> Reply>;

/// Peers by origin and path. Requests to anything else are refused.
#[derive(Default)]
pub struct Network {
    peers: RefCell<BTreeMap<String, Peer>>,
    pub seen: RefCell<Vec<Seen>>,
    pub open: Cell<usize>,
    pub most_open: Cell<usize>,
}

impl Network {
    pub fn serve(&self, url: &str, peer: impl Fn(&Seen) -> Reply + 'static) {
        self.peers
            .borrow_mut()
            .insert(url.to_owned(), Rc::new(peer));
    }

    /// The peer that is served at a URL, to put another in front of it.
    pub fn peer(&self, url: &str) -> Rc<dyn Fn(&Seen) -> Reply> {
        self.peers.borrow()[url].clone()
    }

    pub fn methods(&self) -> Vec<String> {
        self.seen.borrow().iter().map(Seen::rpc).collect()
    }

    pub fn forget(&self) {
        self.seen.borrow_mut().clear();
    }
}

pub struct MemoryHttp(pub Rc<Network>);

/// Counts an exchange from its request to its drop.
struct Open(Rc<Network>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
    }
}

#[async_trait(?Send)]
impl Http for MemoryHttp {
    async fn send(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
        let network = &self.0;
        network.open.set(network.open.get() + 1);
        network
            .most_open
            .set(network.most_open.get().max(network.open.get()));
        let _open = Open(network.clone());
        let seen = Seen {
            method: request.method.to_string(),
            url: request.url.as_str().to_owned(),
            headers: request.headers.clone(),
            body: request.body.map_or(Value::Null, |body| {
                // Forms are no JSON.
                serde_json::from_str(body).unwrap_or_else(|_| Value::from(body))
            }),
            text: request.body.unwrap_or_default().to_owned(),
        };
        network.seen.borrow_mut().push(seen.clone());
        let peer = network.peers.borrow().get(request.url.as_str()).cloned();
        let mut reply = peer.map_or(Reply::Refused, |peer| peer(&seen));
        if let Reply::Later(gate, inner) = reply {
            let _ = gate.await;
            reply = *inner;
        }
        let (status, headers, chunks) = match reply {
            Reply::Fed(fed) => {
                let mut headers = HeaderMap::new();
                headers.insert(
                    "content-type",
                    HeaderValue::from_static("text/event-stream"),
                );
                return Ok(HttpResponse {
                    status: 200,
                    headers,
                    body: fed.into_body(),
                });
            }
            Reply::Json(status, body) => (
                status,
                vec![("content-type", "application/json".to_owned())],
                vec![body.to_string().into_bytes()],
            ),
            Reply::Raw(status, headers, chunks) => (status, headers, chunks),
            Reply::Live(chunks) => {
                let mut headers = HeaderMap::new();
                let events = HeaderValue::from_static("text/event-stream");
                headers.insert("content-type", events);
                return Ok(HttpResponse {
                    status: 200,
                    headers,
                    body: chunks.map(Ok).boxed_local(),
                });
            }
            Reply::Silence | Reply::Later(..) => futures::future::pending().await,
            Reply::Refused => return Err(HttpError("connection refused".into())),
        };
        let headers = headers
            .into_iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_str(&value).unwrap(),
                )
            })
            .collect();
        let body = stream::iter(chunks.into_iter().map(Ok)).boxed_local();
        Ok(HttpResponse {
            status,
            headers,
            body,
        })
    }
}

/// Time moves only when the test moves it.
#[derive(Default)]
pub struct ManualClock {
    now: Cell<Duration>,
    sleepers: RefCell<Vec<(Duration, oneshot::Sender<()>)>>,
}

impl ManualClock {
    /// How many timers somebody waits for.
    pub fn timers(&self) -> usize {
        let mut sleepers = self.sleepers.borrow_mut();
        sleepers.retain(|(_, sender)| !sender.is_canceled());
        sleepers.len()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        u64::try_from(self.now.get().as_millis()).unwrap()
    }

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()> {
        let (sender, receiver) = oneshot::channel();
        self.sleepers
            .borrow_mut()
            .push((self.now.get() + duration, sender));
        receiver.map(|_| ()).boxed_local()
    }
}

impl ManualClock {
    /// Whether nobody waits for time to pass.
    pub fn is_quiet(&self) -> bool {
        let sleepers = self.sleepers.borrow();
        sleepers.iter().all(|(_, sender)| sender.is_canceled())
    }
}

pub struct PoolSpawn(pub LocalSpawner);

impl Spawn for PoolSpawn {
    fn spawn(&self, task: LocalBoxFuture<'static, ()>) {
        self.0.spawn_local(task).unwrap();
    }
}

#[derive(Default)]
pub struct MemoryTable {
    pub rows: RefCell<Vec<ServerRow>>,
    pub writes: Cell<usize>,
}

impl ServerStore for MemoryTable {
    fn list(&self) -> Result<Vec<Result<ServerRow, DamagedRow>>, StoreError> {
        Ok(self.rows.borrow().iter().cloned().map(Ok).collect())
    }

    fn get(&self, id: &str) -> Result<Option<Result<ServerRow, DamagedRow>>, StoreError> {
        Ok(self
            .rows
            .borrow()
            .iter()
            .find(|row| row.id == id)
            .cloned()
            .map(Ok))
    }

    fn put(&self, row: &ServerRow) -> Result<(), StoreError> {
        self.writes.set(self.writes.get() + 1);
        let mut rows = self.rows.borrow_mut();
        match rows.iter_mut().find(|other| other.id == row.id) {
            Some(other) => *other = row.clone(),
            None => rows.push(row.clone()),
        }
        Ok(())
    }

    fn set_options(&self, id: &str, options: &str) -> Result<(), StoreError> {
        self.writes.set(self.writes.get() + 1);
        if let Some(row) = self.rows.borrow_mut().iter_mut().find(|row| row.id == id) {
            row.server_options = Some(options.to_owned());
        }
        Ok(())
    }

    fn delete(&self, id: &str) -> Result<bool, StoreError> {
        let before = self.rows.borrow().len();
        self.rows.borrow_mut().retain(|row| row.id != id);
        Ok(self.rows.borrow().len() < before)
    }

    fn rename(&self, from: &str, to: &str) -> Result<bool, StoreError> {
        let mut rows = self.rows.borrow_mut();
        if rows.iter().any(|row| row.id == to) {
            return Err(StoreError("UNIQUE constraint failed".into()));
        }
        let row = rows.iter_mut().find(|row| row.id == from);
        Ok(row.map(|row| row.id = to.into()).is_some())
    }
}

#[derive(Default)]
pub struct MemoryTasks {
    pub rows: RefCell<Vec<TaskRow>>,
}

impl TaskStore for MemoryTasks {
    fn list(&self) -> Result<Vec<TaskRow>, StoreError> {
        Ok(self.rows.borrow().clone())
    }

    fn put(&self, row: &TaskRow) -> Result<(), StoreError> {
        self.rows.borrow_mut().push(row.clone());
        Ok(())
    }

    fn delete(&self, server_id: &str, task_id: &str) -> Result<(), StoreError> {
        let mut rows = self.rows.borrow_mut();
        rows.retain(|row| row.server_id != server_id || row.task_id != task_id);
        Ok(())
    }

    fn delete_of_server(&self, server_id: &str) -> Result<(), StoreError> {
        self.rows
            .borrow_mut()
            .retain(|row| row.server_id != server_id);
        Ok(())
    }

    fn rename_server(&self, from: &str, to: &str) -> Result<(), StoreError> {
        for row in &mut *self.rows.borrow_mut() {
            if row.server_id == from {
                row.server_id = to.into();
            }
        }
        Ok(())
    }
}

#[derive(Default)]
pub struct MemoryCatalogs {
    pub rows: RefCell<BTreeMap<String, CatalogRow>>,
    pub writes: Cell<usize>,
    /// How often items were read.
    pub reads: Cell<usize>,
}

impl CatalogStore for MemoryCatalogs {
    fn heads(&self) -> Result<Vec<CatalogHead>, StoreError> {
        let rows = self.rows.borrow();
        Ok(rows.values().map(|row| row.head.clone()).collect())
    }

    fn get(&self, server_id: &str) -> Result<Option<CatalogRow>, StoreError> {
        self.reads.set(self.reads.get() + 1);
        Ok(self.rows.borrow().get(server_id).cloned())
    }

    fn put(&self, row: &CatalogRow) -> Result<(), StoreError> {
        self.writes.set(self.writes.get() + 1);
        let id = row.head.server_id.clone();
        self.rows.borrow_mut().insert(id, row.clone());
        Ok(())
    }

    fn delete(&self, server_id: &str) -> Result<(), StoreError> {
        self.rows.borrow_mut().remove(server_id);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let mut rows = self.rows.borrow_mut();
        if let Some(mut row) = rows.remove(from) {
            row.head.server_id = to.into();
            rows.insert(to.into(), row);
        }
        Ok(())
    }
}

/// The jobs of the manager.
#[derive(Default)]
pub struct MemoryJobs {
    pub jobs: RefCell<Vec<Job>>,
    pub writes: Cell<usize>,
}

impl Jobs for MemoryJobs {
    fn push(&self, job: &Job) -> Result<(), StoreError> {
        self.cancel(&job.id)?;
        self.writes.set(self.writes.get() + 1);
        self.jobs.borrow_mut().push(job.clone());
        Ok(())
    }

    fn cancel(&self, id: &str) -> Result<bool, StoreError> {
        let mut jobs = self.jobs.borrow_mut();
        let before = jobs.len();
        jobs.retain(|job| job.id != id);
        Ok(jobs.len() < before)
    }

    fn list(&self) -> Result<Vec<Job>, StoreError> {
        let mut jobs = self.jobs.borrow().clone();
        jobs.sort_by_key(|job| job.at);
        Ok(jobs)
    }
}

/// Values in memory.
#[derive(Default)]
pub struct MemoryKeys {
    pub values: RefCell<BTreeMap<String, String>>,
    pub reads: Cell<usize>,
}

#[async_trait(?Send)]
impl KeyValueStore for MemoryKeys {
    async fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.reads.set(self.reads.get() + 1);
        Ok(self.values.borrow().get(key).cloned())
    }

    async fn put(&self, key: &str, json: &str) -> Result<(), StoreError> {
        self.values.borrow_mut().insert(key.into(), json.into());
        Ok(())
    }

    async fn delete(&self, keys: &[String]) -> Result<(), StoreError> {
        let mut values = self.values.borrow_mut();
        values.retain(|key, _| !keys.contains(key));
        Ok(())
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let values = self.values.borrow();
        let keys = values.keys().filter(|key| key.starts_with(prefix));
        Ok(keys.cloned().collect())
    }
}

/// One object: its memory is the manager, everything else outlives it.
pub struct World {
    pub pool: LocalPool,
    pub network: Rc<Network>,
    pub clock: Rc<ManualClock>,
    pub table: Rc<MemoryTable>,
    pub tasks: Rc<MemoryTasks>,
    pub jobs: Rc<MemoryJobs>,
    pub catalogs: Rc<MemoryCatalogs>,
    pub keys: Rc<MemoryKeys>,
    /// The objects behind bindings.
    pub objects: Option<Rc<dyn Objects>>,
    pub options: McpClientOptions,
}

impl World {
    pub fn new() -> Self {
        Self {
            pool: LocalPool::new(),
            network: Rc::default(),
            clock: Rc::default(),
            table: Rc::default(),
            tasks: Rc::default(),
            jobs: Rc::default(),
            catalogs: Rc::default(),
            keys: Rc::default(),
            objects: None,
            options: McpClientOptions::default(),
        }
    }

    /// A manager with an empty memory.
    pub fn manager(&self) -> McpClientManager {
        let ports = Ports {
            http: Rc::new(MemoryHttp(self.network.clone())),
            clock: self.clock.clone(),
            spawn: Rc::new(PoolSpawn(self.pool.spawner())),
            servers: self.table.clone(),
            tasks: self.tasks.clone(),
            jobs: self.jobs.clone(),
            catalogs: self.catalogs.clone(),
            keys: self.keys.clone(),
            crypto: Rc::new(NativeCrypto),
            objects: self.objects.clone(),
        };
        McpClientManager::on_ports(ports, "gull", "0.4.0", self.options.clone())
    }

    /// The object is evicted: whatever was under way is gone. Then it wakes.
    pub fn wake(&mut self) -> McpClientManager {
        self.pool = LocalPool::new();
        self.clock.sleepers.borrow_mut().clear();
        let manager = self.manager();
        manager.restore().unwrap();
        manager
    }

    /// The object is evicted, and after a pause its alarm wakes it. Nobody else has come.
    pub fn wake_quietly(&mut self, pause: Duration) -> McpClientManager {
        self.clock.now.set(self.clock.now.get() + pause);
        self.pool = LocalPool::new();
        self.clock.sleepers.borrow_mut().clear();
        self.manager()
    }

    /// The object is evicted, and its alarm wakes it once the next job is due. Runs what is due then,
    /// as the lifecycle does.
    pub fn wake_by_alarm(&mut self) -> McpClientManager {
        let next = self.jobs.list().unwrap().first().map(|job| job.at);
        let next = next.expect("an alarm is set");
        let pause = Duration::from_millis(next.saturating_sub(self.clock.now()));
        let manager = self.wake_quietly(pause);
        self.run_due_jobs(&manager);
        manager
    }

    fn run_due_jobs(&mut self, manager: &McpClientManager) {
        let now = self.clock.now();
        let due = self.jobs.list().unwrap();
        for job in due.into_iter().filter(|job| job.at <= now) {
            let running = manager.clone();
            let it = job.clone();
            let run = self.start(async move { running.run_job(&it).await });
            self.settle();
            let outcome = run.outcome().expect("the job ends").unwrap();
            assert_eq!(outcome, JobOutcome::Done);
            // A plan that was made meanwhile wins.
            self.jobs.jobs.borrow_mut().retain(|other| *other != job);
        }
    }

    /// Runs everything that can run without time passing.
    pub fn settle(&mut self) {
        self.pool.run_until_stalled();
    }

    /// Runs `work` to its end, without time passing.
    pub fn run<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = Box::pin(work);
        for _ in 0..100 {
            self.settle();
            if let Some(outcome) = work.as_mut().now_or_never() {
                return outcome;
            }
        }
        panic!("the work waits for time to pass, or for ever");
    }

    /// Starts `work` without waiting for it.
    pub fn start<T: 'static>(&mut self, work: impl Future<Output = T> + 'static) -> Started<T> {
        let slot = Rc::new(RefCell::new(None));
        let filled = slot.clone();
        self.pool
            .spawner()
            .spawn_local(async move { drop(filled.replace(Some(work.await))) })
            .unwrap();
        self.settle();
        Started(slot)
    }

    /// Moves time and lets what was due happen.
    pub fn advance(&mut self, duration: Duration) {
        let now = self.clock.now.get() + duration;
        self.clock.now.set(now);
        let due: Vec<_> = self
            .clock
            .sleepers
            .borrow_mut()
            .extract_if(.., |(at, _)| *at <= now)
            .collect();
        for (_, sender) in due {
            let _ = sender.send(());
        }
        self.settle();
    }
}

impl World {
    /// Lets time pass in steps, so that what begins meanwhile also comes due.
    pub fn pass(&mut self, duration: Duration, step: Duration) {
        let end = self.clock.now.get() + duration;
        while self.clock.now.get() < end {
            self.advance(step);
        }
    }
}

pub struct Started<T>(Rc<RefCell<Option<T>>>);

impl<T> Started<T> {
    /// The outcome, if it is there.
    pub fn outcome(&self) -> Option<T> {
        self.0.borrow_mut().take()
    }
}

pub fn world_with_legacy() -> (World, Rc<LegacyServer>) {
    let world = World::new();
    let server = LegacyServer::new();
    let peer = server.clone();
    world.network.serve(URL, move |seen| peer.answer(seen));
    (world, server)
}

pub fn world_with(peer: impl Fn(&Seen) -> Reply + 'static) -> World {
    let world = World::new();
    world.network.serve(URL, peer);
    world
}

pub fn register(world: &mut World, mcp: &McpClientManager, id: &str, url: &str) {
    world
        .run(mcp.register_server(id, RegisterServer::new(id, url)))
        .unwrap();
}

/// Registers, connects and discovers.
pub fn add(world: &mut World, mcp: &McpClientManager) -> Result<ConnectionState, Error> {
    register(world, mcp, "pier", URL);
    world.run(async {
        mcp.connect_to_server("pier").await?;
        mcp.discover_if_connected("pier", None).await
    })
}

pub fn state(mcp: &McpClientManager) -> ConnectionState {
    mcp.connection("pier")
        .map_or(ConnectionState::NotConnected, |connection| connection.state)
}

pub fn names(mcp: &McpClientManager) -> Vec<String> {
    mcp.list_tools(&ServerFilter::all())
        .iter()
        .map(|tool| tool.item.name().to_owned())
        .collect()
}
