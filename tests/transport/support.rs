//! The ports of the tests: HTTP served from memory, bodies fed by hand, a clock moved by hand.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use futures::channel::{mpsc, oneshot};
use futures::executor::{LocalPool, LocalSpawner};
use futures::future::{LocalBoxFuture, RemoteHandle};
use futures::task::LocalSpawnExt as _;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use workers_agents::ports::*;
use workers_agents::protocol::{Message, RequestId};
use workers_agents::transport::*;
use workers_agents::url_guard::GuardedUrl;

pub const URL: &str = "https://pier.example/mcp";
/// The limit of one answer in these tests.
pub const MAX_BYTES: usize = 4_000;

/// One request as the peer saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    pub url: String,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// What a peer answers.
pub enum Reply {
    Response(u16, Vec<(&'static str, String)>, Body),
    /// The connection is refused.
    Refused,
    /// Nothing, ever.
    Silence,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Self::Response(status, vec![], stream::empty().boxed_local())
    }

    pub fn typed(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let body = stream::iter([Ok(body.into())]).boxed_local();
        Self::Response(
            status,
            vec![("content-type", content_type.to_owned())],
            body,
        )
    }

    pub fn json(value: Value) -> Self {
        Self::typed(200, "application/json", value.to_string())
    }

    /// An event stream that ends after `text`.
    pub fn events(text: &str) -> Self {
        Self::typed(200, "text/event-stream", text)
    }

    /// An event stream that breaks after `text`.
    pub fn breaking(text: &str) -> Self {
        let broken = Err(HttpError("reset".into()));
        let body = stream::iter([Ok(text.as_bytes().to_vec()), broken]).boxed_local();
        Self::streaming(body)
    }

    pub fn streaming(body: Body) -> Self {
        let headers = vec![(
            "content-type",
            "Text/Event-Stream; charset=utf-8".to_owned(),
        )];
        Self::Response(200, headers, body)
    }

    pub fn with(self, name: &'static str, value: &str) -> Self {
        match self {
            Self::Response(status, mut headers, body) => {
                headers.push((name, value.to_owned()));
                Self::Response(status, headers, body)
            }
            other => other,
        }
    }
}

/// The server's end of a body.
#[derive(Clone)]
pub struct Feed(mpsc::UnboundedSender<Result<Vec<u8>, HttpError>>);

impl Feed {
    pub fn new() -> (Self, Body) {
        let (sender, receiver) = mpsc::unbounded();
        (Self(sender), receiver.boxed_local())
    }

    pub fn push(&self, text: &str) {
        let _ = self.0.unbounded_send(Ok(text.as_bytes().to_vec()));
    }

    pub fn message(&self, message: Value) {
        self.push(&format!("data: {message}\n\n"));
    }

    pub fn break_off(&self) {
        let _ = self.0.unbounded_send(Err(HttpError("reset".into())));
    }

    pub fn end(&self) {
        self.0.close_channel();
    }

    /// Whether the client has given up the exchange.
    pub fn is_dropped(&self) -> bool {
        self.0.is_closed()
    }
}

type Peer = Box<dyn Fn(&Seen) -> Reply>;

struct MemoryHttp {
    peer: Peer,
    seen: Rc<RefCell<Vec<Seen>>>,
}

#[async_trait(?Send)]
impl Http for MemoryHttp {
    async fn send(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
        let body = request.body;
        let seen = Seen {
            method: request.method.to_string(),
            url: request.url.as_str().to_owned(),
            headers: request.headers.clone(),
            body: body.map_or(Value::Null, |body| serde_json::from_str(body).unwrap()),
        };
        self.seen.borrow_mut().push(seen.clone());
        let (status, headers, body) = match (self.peer)(&seen) {
            Reply::Response(status, headers, body) => (status, headers, body),
            Reply::Refused => return Err(HttpError("connection refused".into())),
            Reply::Silence => futures::future::pending().await,
        };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            map.append(HeaderName::from_static(name), value);
        }
        Ok(HttpResponse {
            status,
            headers: map,
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

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        u64::try_from(self.now.get().as_millis()).unwrap()
    }

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()> {
        let (sender, receiver) = oneshot::channel();
        let at = self.now.get() + duration;
        self.sleepers.borrow_mut().push((at, sender));
        receiver.map(|_| ()).boxed_local()
    }
}

struct PoolSpawn(LocalSpawner);

impl Spawn for PoolSpawn {
    fn spawn(&self, task: LocalBoxFuture<'static, ()>) {
        self.0.spawn_local(task).unwrap();
    }
}

pub struct World {
    pub pool: LocalPool,
    pub clock: Rc<ManualClock>,
    pub seen: Rc<RefCell<Vec<Seen>>>,
    http: Rc<MemoryHttp>,
}

impl World {
    pub fn new(peer: impl Fn(&Seen) -> Reply + 'static) -> Self {
        let seen = Rc::<RefCell<Vec<Seen>>>::default();
        let http = Rc::new(MemoryHttp {
            peer: Box::new(peer),
            seen: seen.clone(),
        });
        Self {
            pool: LocalPool::new(),
            clock: Rc::default(),
            seen,
            http,
        }
    }

    pub fn streamable(&self) -> StreamableHttp {
        let url = GuardedUrl::parse(URL).unwrap();
        let headers = header("authorization", "Bearer t");
        StreamableHttp::new(
            self.http.clone(),
            self.clock.clone(),
            url,
            headers,
            MAX_BYTES,
        )
    }

    pub fn open_sse(
        &self,
        url: &str,
    ) -> impl Future<Output = Result<HttpSse, TransportError>> + use<> {
        HttpSse::open(
            self.http.clone(),
            self.clock.clone(),
            Rc::new(PoolSpawn(self.pool.spawner())),
            GuardedUrl::parse(url).unwrap(),
            header("authorization", "Bearer t"),
            None,
            HttpSseLimits::new(MAX_BYTES),
        )
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
        let (work, task) = async move { drop(filled.replace(Some(work.await))) }.remote_handle();
        self.pool.spawner().spawn_local(work).unwrap();
        self.settle();
        Started { slot, _task: task }
    }

    /// Sends request 1 and collects what comes back.
    pub fn ask(&mut self, transport: StreamableHttp) -> Started<Vec<Item>> {
        self.start(async move {
            let answer = transport.send(&request(1)).await;
            match answer {
                Ok(answer) => answer.messages.map(item).collect().await,
                Err(error) => vec![Err(error)],
            }
        })
    }

    /// Moves time and lets what was due happen.
    pub fn advance(&mut self, milliseconds: u64) {
        let now = self.clock.now.get() + Duration::from_millis(milliseconds);
        self.clock.now.set(now);
        let mut sleepers = self.clock.sleepers.borrow_mut();
        let due: Vec<_> = sleepers.extract_if(.., |(at, _)| *at <= now).collect();
        drop(sleepers);
        for (_, sender) in due {
            let _ = sender.send(());
        }
        self.settle();
    }

    /// How long until the next live timer fires.
    pub fn next_timer(&self) -> Option<u64> {
        let sleepers = self.clock.sleepers.borrow();
        let live = sleepers.iter().filter(|(_, sender)| !sender.is_canceled());
        let at = live.map(|(at, _)| *at).min()?;
        let left = at.saturating_sub(self.clock.now.get());
        Some(u64::try_from(left.as_millis()).unwrap())
    }

    pub fn methods(&self) -> Vec<String> {
        self.seen
            .borrow()
            .iter()
            .map(|seen| seen.method.clone())
            .collect()
    }

    pub fn last(&self) -> Seen {
        self.seen.borrow().last().unwrap().clone()
    }
}

/// Work under way; dropping it gives the work up.
pub struct Started<T> {
    slot: Rc<RefCell<Option<T>>>,
    _task: RemoteHandle<()>,
}

impl<T> Started<T> {
    /// The outcome, if it is there.
    pub fn outcome(&self) -> Option<T> {
        self.slot.borrow_mut().take()
    }
}

/// A message by its method, or by the id it answers.
pub type Item = Result<String, TransportError>;

pub fn item(message: Result<Message, TransportError>) -> Item {
    Ok(match message? {
        Message::Request { method, .. } | Message::Notification { method, .. } => method,
        Message::Response {
            id: Some(RequestId::Number(id)),
            ..
        } => id.to_string(),
        other => format!("{other:?}"),
    })
}

/// The messages; every one but the last must be there.
pub fn texts(items: Vec<Item>) -> Vec<String> {
    items.into_iter().map(Result::unwrap).collect()
}

pub fn header(name: &'static str, value: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(name, HeaderValue::from_str(value).unwrap());
    headers
}

/// A legacy request within a session.
pub fn request(id: i64) -> Outgoing {
    let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call"});
    let mut headers = header("mcp-session-id", "s-1");
    headers.extend(header("mcp-protocol-version", "2025-11-25"));
    Outgoing {
        body: body.to_string(),
        headers,
        id: Some(RequestId::Number(id)),
        resumable: true,
    }
}

pub fn notification() -> Outgoing {
    let body = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    Outgoing {
        body: body.to_string(),
        headers: HeaderMap::new(),
        id: None,
        resumable: false,
    }
}

pub fn response(id: i64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {}})
}

pub fn told(method: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": method})
}

pub fn status_of(error: &TransportError) -> Option<u16> {
    match error {
        TransportError::Status(failure) | TransportError::NotResumed(failure) => {
            Some(failure.status)
        }
        _ => None,
    }
}
