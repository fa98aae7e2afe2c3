//! What the core asks of the platform. Each port has one adapter in `runtime` and one in the tests.

use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::LocalBoxFuture;
use futures::stream::LocalBoxStream;
use http::{HeaderMap, Method};

use crate::url_guard::GuardedUrl;

/// A request that has passed the URL guard.
pub struct HttpRequest<'a> {
    /// The method.
    pub method: Method,
    /// Where to. No other type is turned into a request.
    pub url: GuardedUrl,
    /// All headers; names are lower case.
    pub headers: HeaderMap,
    /// The body, when there is one.
    pub body: Option<&'a str>,
    /// The longest body of a response that the sender reads in one piece, in bytes.
    pub max_response_bytes: usize,
}

/// A response whose body has not been read.
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// All headers; names are lower case.
    pub headers: HeaderMap,
    /// The body as it arrives, content encoding already undone.
    pub body: Body,
}

/// Body chunks in order. Dropping the stream aborts the exchange.
pub type Body = LocalBoxStream<'static, Result<Vec<u8>, HttpError>>;

/// The exchange broke below HTTP: refused, reset, DNS, TLS. The text comes from the platform.
#[derive(Debug, Clone, thiserror::Error)]
#[error("network: {0}")]
pub struct HttpError(pub String);

/// Sends one request.
///
/// The adapter never follows a redirect, never retries, and aborts the exchange when the returned
/// future or the body is dropped.
#[async_trait(?Send)]
pub trait Http {
    /// Resolves when status and headers have arrived.
    async fn send(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError>;
}

/// Milliseconds since the Unix epoch.
pub type Timestamp = u64;

/// The time, and timers.
pub trait Clock {
    /// The time now. On Workers it stands still while nothing is awaited.
    fn now(&self) -> Timestamp;

    /// Resolves after `duration`; dropping the future releases the timer.
    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()>;
}

/// Runs work that outlives the call that started it. Nothing promises that the work ends: the
/// object may be evicted at any moment, so what must not be lost is stored first.
pub trait Spawn {
    /// Starts `task`.
    fn spawn(&self, task: LocalBoxFuture<'static, ()>);
}

/// One row of the table of servers, column by column.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerRow {
    /// Primary key.
    pub id: String,
    /// Display name.
    pub name: String,
    /// The URL as registered, or `rpc:<name>`.
    pub server_url: String,
    /// The OAuth callback, `""` where there is none.
    pub callback_url: String,
    /// The OAuth client id.
    pub client_id: Option<String>,
    /// A pending authorization URL. Secret: it holds the OAuth state.
    pub auth_url: Option<String>,
    /// JSON. Secret: it holds headers and session ids.
    pub server_options: Option<String>,
}

/// A row that is in the table but cannot be used. It is never rewritten.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DamagedRow {
    /// The row's primary key.
    pub id: String,
    /// Which column, and why. Holds no value of the row.
    pub reason: String,
}

/// The storage refused; the text comes from the platform.
#[derive(Debug, Clone, thiserror::Error)]
#[error("storage: {0}")]
pub struct StoreError(pub String);

/// The table of servers. Every call is one statement and takes effect at once.
pub trait ServerStore {
    /// Every row, oldest first. A row that cannot be read is reported in its place.
    fn list(&self) -> Result<Vec<Result<ServerRow, DamagedRow>>, StoreError>;
    /// One row.
    fn get(&self, id: &str) -> Result<Option<Result<ServerRow, DamagedRow>>, StoreError>;
    /// Inserts the row, or replaces the one with the same id.
    fn put(&self, row: &ServerRow) -> Result<(), StoreError>;
    /// Replaces the column `server_options` of one row. An unknown id changes nothing.
    fn set_options(&self, id: &str, options: &str) -> Result<(), StoreError>;
    /// Deletes one row and says whether it existed.
    fn delete(&self, id: &str) -> Result<bool, StoreError>;
    /// Gives a row another id. Says whether there was one to rename; an id that is taken is an error.
    fn rename(&self, from: &str, to: &str) -> Result<bool, StoreError>;
}

/// A task that a server works on, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRow {
    /// The server.
    pub server_id: String,
    /// The task's id there. Both together are the primary key.
    pub task_id: String,
    /// The tool that was called.
    pub tool: String,
    /// When.
    pub started_at: Timestamp,
    /// When the server may have forgotten it.
    pub expires_at: Option<Timestamp>,
}

/// The table of tasks. Every call is one statement and takes effect at once.
pub trait TaskStore {
    /// Every row, oldest first.
    fn list(&self) -> Result<Vec<TaskRow>, StoreError>;
    /// Inserts the row, or replaces the one with the same key.
    fn put(&self, row: &TaskRow) -> Result<(), StoreError>;
    /// Deletes one row, if it is there.
    fn delete(&self, server_id: &str, task_id: &str) -> Result<(), StoreError>;
    /// Deletes every row of a server.
    fn delete_of_server(&self, server_id: &str) -> Result<(), StoreError>;
    /// Gives every row of a server to another id.
    fn rename_server(&self, from: &str, to: &str) -> Result<(), StoreError>;
}

/// What is known of a stored catalogue without reading its items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogHead {
    /// The server, the primary key.
    pub server_id: String,
    /// The URL of the server when its catalogue was loaded: one of another server is worth nothing.
    pub server_url: String,
    /// How the server was reached and as whom, as far as that can be told without secrets.
    pub fingerprint: String,
    /// When it was loaded.
    pub loaded_at: Timestamp,
    /// How many tools, prompts, resources and resource templates there are.
    pub counts: [usize; 4],
}

/// A stored catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogRow {
    /// What it is the catalogue of.
    pub head: CatalogHead,
    /// JSON: what each item is called and how long its text is, and which tools cannot be used.
    pub index: String,
    /// The items as the server sent them, one after the other. As bytes: a text would be converted
    /// twice on its way into Wasm, letter by letter.
    pub items: Vec<u8>,
}

/// The table of catalogues. Every call is one statement and takes effect at once. A row that cannot
/// be read, or is of another version, counts as absent: servers can be asked again.
pub trait CatalogStore {
    /// What there is, without the items.
    fn heads(&self) -> Result<Vec<CatalogHead>, StoreError>;
    /// One row.
    fn get(&self, server_id: &str) -> Result<Option<CatalogRow>, StoreError>;
    /// Inserts the row, or replaces the one of the same server.
    fn put(&self, row: &CatalogRow) -> Result<(), StoreError>;
    /// Deletes one row, if it is there.
    fn delete(&self, server_id: &str) -> Result<(), StoreError>;
    /// Gives a row to another server id.
    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError>;
}

/// Work to do at a later time. It is kept in storage, and the object is woken for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Tells it apart among all jobs of the object.
    pub id: String,
    /// What to do, for its owner to know.
    pub function: String,
    /// When, at the earliest.
    pub at: Timestamp,
    /// With what: one JSON value. No secrets.
    pub payload: String,
}

/// What becomes of a job that has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobOutcome {
    /// It is done with.
    Done,
    /// It runs again at this time.
    Again(Timestamp),
    /// It has more to do, and lets others go first.
    Yield,
}

/// The jobs of one owner. Every call takes effect at once.
pub trait Jobs {
    /// Plans a job, in place of the one with the same id.
    fn push(&self, job: &Job) -> Result<(), StoreError>;
    /// Takes a job out of the plan and says whether it was there.
    fn cancel(&self, id: &str) -> Result<bool, StoreError>;
    /// What is planned, the earliest first.
    fn list(&self) -> Result<Vec<Job>, StoreError>;
}

/// One row of the table of jobs, which the TypeScript package reads and writes too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    /// Primary key.
    pub id: String,
    /// The capability that it belongs to.
    pub owner: String,
    /// What to do, for the owner to know.
    pub function: String,
    /// When, at the earliest.
    pub at: Timestamp,
    /// JSON.
    pub payload: Option<String>,
    /// JSON: a retry policy.
    pub retry: Option<String>,
    /// Whether it must not run beside itself.
    pub single_flight: bool,
    /// After how many seconds a run counts as hung.
    pub hung_after: Option<u64>,
    /// Whether everything else waits until it is done.
    pub exclusive: bool,
    /// Whether it is given up when it keeps using up the memory.
    pub recovery_loop: bool,
    /// When the run began that has not ended. It may have ended with its instance.
    pub started_at: Option<Timestamp>,
}

/// The table of jobs. Every call takes effect at once. Without a table there are no jobs, and only
/// `put` makes it.
pub trait JobStore {
    /// Every row, the earliest first.
    fn list(&self) -> Result<Vec<JobRow>, StoreError>;
    /// One row.
    fn get(&self, id: &str) -> Result<Option<JobRow>, StoreError>;
    /// Inserts the row, or replaces the one with the same id.
    fn put(&self, row: &JobRow) -> Result<(), StoreError>;
    /// Deletes one row and says whether it existed.
    fn delete(&self, id: &str) -> Result<bool, StoreError>;
    /// Notes that a run begins, or that it has ended. An unknown id changes nothing.
    fn set_started(&self, id: &str, at: Option<Timestamp>) -> Result<(), StoreError>;
    /// Ends the run and moves the row to another time. An unknown id changes nothing.
    fn reschedule(&self, id: &str, at: Timestamp) -> Result<(), StoreError>;
    /// How many runs in a row took the instance down.
    fn strikes(&self, id: &str) -> Result<u32, StoreError>;
    /// Stores that number. Writes nothing when it stays as it is.
    fn set_strikes(&self, id: &str, strikes: u32) -> Result<(), StoreError>;
}

/// The one alarm of an object.
#[async_trait(?Send)]
pub trait Alarm {
    /// Sets it, in place of an earlier one. Takes effect at once.
    fn set(&self, at: Timestamp);
    /// Clears it, if it is still the one that was set for `at`.
    fn clear(&self, at: Timestamp);
    /// When it goes off. None while its handler runs, unless it was set again.
    async fn get(&self) -> Result<Option<Timestamp>, StoreError>;
}

/// The state that an object shares with its browsers: one JSON value.
pub trait StateStore {
    /// The state. `None` until one has been stored.
    fn get(&self) -> Result<Option<String>, StoreError>;
    /// Stores a state, in place of an earlier one.
    fn put(&self, json: &str) -> Result<(), StoreError>;
}

/// Values under text keys, both as text; a value is one JSON value.
///
/// The default is the object's own key-value storage. What is kept here are sign-ins: client
/// registrations, tokens, and what must outlive the time a user is away.
#[async_trait(?Send)]
pub trait KeyValueStore {
    /// The value under `key`.
    async fn get(&self, key: &str) -> Result<Option<String>, StoreError>;
    /// Stores a value, in place of an earlier one.
    async fn put(&self, key: &str, json: &str) -> Result<(), StoreError>;
    /// Deletes keys; those that are not there are no error. Any number: the adapter knows how many
    /// its store takes at once.
    async fn delete(&self, keys: &[String]) -> Result<(), StoreError>;
    /// The keys that begin with `prefix`, in order.
    async fn keys(&self, prefix: &str) -> Result<Vec<String>, StoreError>;
}

/// Cryptography that the platform does. Hashes and random bytes need no port.
#[async_trait(?Send)]
pub trait Crypto {
    /// Signs `message`. For ES256 the signature has the form of a JWS: R and S, 32 bytes each.
    async fn sign(&self, key: &SigningKey, message: &[u8]) -> Result<Vec<u8>, CryptoError>;
    /// A new private key for ES256, as the text of a JWK (RFC 7517).
    async fn generate_key(&self) -> Result<String, CryptoError>;
    /// Encrypts by AES-256-GCM; the tag of 16 bytes follows the text. `nonce` is never used twice
    /// with one key; `context` is authenticated and not encrypted.
    async fn seal(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        context: &[u8],
        plain: &[u8],
    ) -> Result<Vec<u8>, CryptoError>;
    /// Undoes [`seal`](Self::seal).
    async fn open(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        context: &[u8],
        sealed: &[u8],
    ) -> Result<Vec<u8>, CryptoError>;
}

/// A private key and what it signs with.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey {
    /// The algorithm.
    pub algorithm: SigningAlgorithm,
    /// The key.
    pub key: PrivateKey,
}

/// The algorithms of signatures (RFC 7518 §3.1). Symmetric ones are left out on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SigningAlgorithm {
    /// ECDSA over P-256 with SHA-256.
    Es256,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
}

/// A private key. Secret.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrivateKey {
    /// The text of a JWK.
    Jwk(String),
    /// PKCS#8, DER.
    Pkcs8(Vec<u8>),
}

/// The platform could not do it: a key of the wrong kind, or a text that was tampered with. Holds
/// nothing of key or text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cryptography: {0}")]
pub struct CryptoError(pub String);

/// An object of this account that serves MCP over its binding, without HTTP.
#[derive(Clone, PartialEq, Eq)]
pub struct ObjectAddress {
    /// The name of the binding of its namespace.
    pub binding: String,
    /// The object's name.
    pub name: String,
    /// What it is started with: one JSON value. Secret: it may say who the user is.
    pub props: Option<String>,
}

/// The objects that the Worker has bindings of.
#[async_trait(?Send)]
pub trait Objects {
    /// What tells the calling object apart from every other one, of whatever class.
    fn caller(&self) -> String;

    /// Starts an object, unless it is started. One attempt.
    async fn connect(&self, to: &ObjectAddress) -> Result<Rc<dyn RemoteObject>, ObjectError>;
}

/// An object that serves MCP.
#[async_trait(?Send)]
pub trait RemoteObject {
    /// Hands it one message, and gives back the JSON text of what it returns: a message, or an
    /// array of them. `None` is nothing. A text longer than `max_bytes` is refused unread.
    ///
    /// Dropping the future stops waiting. The object is not told, and both stay in memory until it
    /// has returned: an `McpAgent` gives up by itself after a minute.
    async fn call(&self, message: &str, max_bytes: usize) -> Result<Option<String>, ObjectError>;
}

/// Why an object behind a binding did not do as it was asked. The texts come from it or from the
/// platform; they are cut, and not to be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The Worker has no such binding, or it is not one of a namespace of objects.
    #[error("binding \"{0}\" not found in env")]
    NoBinding(String),
    /// Nothing is known of the Worker's bindings.
    #[error("no env was provided")]
    NoEnv,
    /// It could not be reached, or went down meanwhile.
    #[error("the object could not be reached: {text}")]
    Unreachable {
        /// What the platform says.
        text: String,
        /// Whether the platform says that the same call may succeed at once.
        is_retryable: bool,
    },
    /// It has more to do than it can.
    #[error("the object is overloaded: {0}")]
    Overloaded(String),
    /// It is none that serves MCP.
    #[error("the object does not serve MCP: {0}")]
    NoServer(String),
    /// It threw.
    #[error("the object failed: {0}")]
    Threw(String),
    /// What it returned is no JSON.
    #[error("the object returned what is no JSON: {0}")]
    NotJson(String),
    /// What it returned is larger than allowed.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
}

/// Everything the core needs, bundled.
#[derive(Clone)]
pub struct Ports {
    /// Outbound HTTP.
    pub http: Rc<dyn Http>,
    /// The time, and timers.
    pub clock: Rc<dyn Clock>,
    /// Background work.
    pub spawn: Rc<dyn Spawn>,
    /// The table of servers.
    pub servers: Rc<dyn ServerStore>,
    /// The table of tasks.
    pub tasks: Rc<dyn TaskStore>,
    /// The table of catalogues.
    pub catalogs: Rc<dyn CatalogStore>,
    /// Work to do later.
    pub jobs: Rc<dyn Jobs>,
    /// Where sign-ins are kept.
    pub keys: Rc<dyn KeyValueStore>,
    /// Cryptography.
    pub crypto: Rc<dyn Crypto>,
    /// The objects behind bindings. Without it, servers that are such objects cannot be connected.
    pub objects: Option<Rc<dyn Objects>>,
}

/// Props may say who the user is.
impl std::fmt::Debug for ObjectAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectAddress")
            .field("binding", &self.binding)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey")
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Jwk(_) => "Jwk(..)",
            Self::Pkcs8(_) => "Pkcs8(..)",
        })
    }
}

impl std::fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpResponse")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ports").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ServerRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerRow")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Headers and bodies can hold anything, so neither is shown.
impl std::fmt::Debug for HttpRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpRequest")
            .field("method", &self.method)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}
