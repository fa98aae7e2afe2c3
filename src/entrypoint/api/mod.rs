//! The JSON API of [`ToolAgent`](super::ToolAgent), below `/agents/tool-agent/<name>/`.

mod calls;
mod more;
mod sign_in;
mod stream;
mod tool_call;

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use percent_encoding::percent_decode_str;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use url::Url;
use worker::{Method, Request, Response, ResponseBuilder};

pub(super) use self::calls::RunningCalls;
use self::more::More;
use self::sign_in::AddOAuth;
use super::events::RecentEvents;
use super::problem::Problem;
use crate::Error;
use crate::mcp::{
    AuthorizationInfo, CatalogFreshness, Connected, ConnectionState, LastError, ListProblem,
    LogLevel, McpClientManager, OpenQuestions, ReconnectPolicy, RegisterServer, ServerFilter,
    ServerId, ServerItem, StoredServer,
};
use crate::oauth::AuthorizationUrl;
use crate::protocol::Revision;
use crate::retry::RetryOptions;
use crate::transport::TransportKind;

/// The largest request body.
const MAX_BODY: usize = 1 << 20;
/// How long a list waits for servers whose lists are not known yet, unless `wait` says otherwise.
const DEFAULT_WAIT: Duration = Duration::from_secs(10);
/// The longest wait that may be asked for.
const MAX_WAIT: Duration = Duration::from_mins(1);
/// Length and alphabet of ids that nobody chose.
const AUTO_ID: usize = 8;
const ALPHABET: &[u8; 64] = b"useandom-26T198340PX75pxJACKVERYMINDBUSHWOLF_GQZbfghjklqvwyzrict";

pub(super) type Answer = Result<Response, Problem>;

/// What the API is for.
#[derive(Clone, Copy)]
pub(super) struct Api<'a> {
    pub(super) mcp: &'a McpClientManager,
    pub(super) questions: &'a OpenQuestions,
    pub(super) events: &'a RecentEvents,
    pub(super) calls: &'a RunningCalls,
    /// The origin of callbacks, where it is not that of the request.
    pub(super) public_origin: Option<&'a str>,
}

/// Answers one request.
pub(super) async fn answer(api: Api<'_>, request: Request) -> worker::Result<Response> {
    let outcome = match route(&request) {
        Ok(route) => route.run(api, request).await,
        Err(problem) => Err(problem),
    };
    match outcome {
        Ok(response) => Ok(response),
        Err(problem) => problem.into_response(),
    }
}

enum Route {
    Callback,
    Servers,
    AddServer,
    Server(String),
    RemoveServer(String),
    Reconnect(String),
    Close(String),
    SignOut(String),
    Rename(String),
    Tools,
    Prompts,
    Resources,
    ResourceTemplates,
    CallTool,
    GetPrompt,
    ReadResource,
    More(More),
}

fn route(request: &Request) -> Result<Route, Problem> {
    let path = request.path();
    // `/agents/<class>/<name>/` has been matched by the router; what follows is ours.
    let rest: Vec<&str> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .skip(3)
        .collect();
    let id = |text: &str| percent_decode_str(text).decode_utf8().map(String::from);
    let bad_id = |_| Problem::new(400, "invalid-path", "the server id is not UTF-8");
    // The platform leaves the body of an answer to HEAD out.
    let method = match request.method() {
        Method::Head => Method::Get,
        method => method,
    };
    let route = match (&method, rest.as_slice()) {
        // Not for HEAD: it uses the sign-in up.
        (Method::Get, ["callback"]) if request.method() == Method::Get => Route::Callback,
        (Method::Get, ["servers"]) => Route::Servers,
        (Method::Post, ["servers"]) => Route::AddServer,
        (Method::Get, ["servers", server]) => Route::Server(id(server).map_err(bad_id)?),
        (Method::Delete, ["servers", server]) => Route::RemoveServer(id(server).map_err(bad_id)?),
        (Method::Post, ["servers", server, "reconnect"]) => {
            Route::Reconnect(id(server).map_err(bad_id)?)
        }
        (Method::Post, ["servers", server, "close"]) => Route::Close(id(server).map_err(bad_id)?),
        (Method::Post, ["servers", server, "sign-out"]) => {
            Route::SignOut(id(server).map_err(bad_id)?)
        }
        (Method::Post, ["servers", server, "rename"]) => Route::Rename(id(server).map_err(bad_id)?),
        (Method::Get, ["tools"]) => Route::Tools,
        (Method::Get, ["prompts"]) => Route::Prompts,
        (Method::Get, ["resources"]) => Route::Resources,
        (Method::Get, ["resource-templates"]) => Route::ResourceTemplates,
        (Method::Post, ["tools", "call"]) => Route::CallTool,
        (Method::Post, ["prompts", "get"]) => Route::GetPrompt,
        (Method::Post, ["resources", "read"]) => Route::ReadResource,
        (method, rest) => match More::route(method, rest) {
            Some(more) => Route::More(more),
            None => return Err(misdirected(rest)),
        },
    };
    Ok(route)
}

/// What is wrong with a request that is for no route: its method, or its path.
fn misdirected(rest: &[&str]) -> Problem {
    let allow = match rest {
        ["servers"] => "GET, HEAD, POST",
        ["servers", _] => "GET, HEAD, DELETE",
        ["callback"] => "GET",
        ["tools" | "prompts" | "resources" | "resource-templates"] => "GET, HEAD",
        ["servers", _, "reconnect" | "close" | "rename" | "sign-out"]
        | ["tools", "call"]
        | ["prompts", "get"]
        | ["resources", "read"] => "POST",
        rest => match More::allow(rest) {
            Some(allow) => allow,
            None => {
                return Problem::new(404, "not-found", "no such resource; the README lists them");
            }
        },
    };
    Problem::method_not_allowed(allow)
}

impl Route {
    async fn run(self, api: Api<'_>, request: Request) -> Answer {
        let mcp = api.mcp;
        match self {
            Self::More(more) => more.run(api, request).await,
            // The manager has answered those at the address that was registered. Others come through a
            // proxy with another one, or are none.
            Self::Callback => {
                let answer = mcp.handle_callback(&request.url()?).await;
                Ok(crate::mcp::as_platform_response(answer)?)
            }
            Self::Servers => servers(mcp).await,
            Self::AddServer => {
                let callback_url = sign_in::callback_url(&request, api.public_origin)?;
                let is_public = api.public_origin.is_some();
                add_server(mcp, read(request).await?, callback_url, is_public).await
            }
            Self::Server(id) => send(200, &entry(mcp, &stored(mcp, &id)?).await),
            Self::RemoveServer(id) if mcp.remove_server(&id).await? => {
                Ok(ResponseBuilder::new().with_status(204).empty())
            }
            Self::RemoveServer(id) => Err(Error::UnknownServer(id).into()),
            Self::Reconnect(id) => {
                let connected = mcp.connect_to_server(&id).await;
                match connected.map_err(|error| failed(mcp, &id, error))? {
                    Connected::Connected => ready(mcp, &id, 200).await,
                    Connected::Authenticating { auth_url } => {
                        parked(mcp, &id, &auth_url, 200).await
                    }
                }
            }
            Self::Rename(from) => rename(mcp, &from, read(request).await?).await,
            Self::SignOut(id) => {
                mcp.sign_out(&id).await?;
                let server = entry(mcp, &stored(mcp, &id)?).await;
                let state = server.state;
                send(200, &json!({"id": id, "state": state, "server": server}))
            }
            Self::Close(id) => {
                stored(mcp, &id)?;
                if mcp.connection(&id).is_some() {
                    mcp.close_connection(&id).await?;
                }
                send(
                    200,
                    &json!({"id": id, "state": ConnectionState::NotConnected}),
                )
            }
            Self::Tools => {
                let filter = selection(mcp, &request).await?;
                send(200, &server_list(mcp, "tools", &mcp.list_tools(&filter))?)
            }
            Self::Prompts => {
                let filter = selection(mcp, &request).await?;
                send(
                    200,
                    &server_list(mcp, "prompts", &mcp.list_prompts(&filter))?,
                )
            }
            Self::Resources => {
                let filter = selection(mcp, &request).await?;
                send(
                    200,
                    &server_list(mcp, "resources", &mcp.list_resources(&filter))?,
                )
            }
            Self::ResourceTemplates => {
                let filter = selection(mcp, &request).await?;
                send(
                    200,
                    &server_list(
                        mcp,
                        "resourceTemplates",
                        &mcp.list_resource_templates(&filter),
                    )?,
                )
            }
            Self::CallTool => tool_call::answer(api, request).await,
            Self::GetPrompt => {
                let Call {
                    server_id,
                    name,
                    arguments,
                } = read(request).await?;
                send(
                    200,
                    &mcp.get_prompt(&server_id, &name, object(arguments)?)
                        .await?,
                )
            }
            Self::ReadResource => {
                let Read { server_id, uri } = read(request).await?;
                send(200, &mcp.read_resource(&server_id, &uri).await?)
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AddServer {
    name: String,
    url: String,
    id: Option<String>,
    transport: Option<AddTransport>,
    retry: Option<RetryOptions>,
    reconnect: Option<ReconnectPolicy>,
    oauth: Option<AddOAuth>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AddTransport {
    #[serde(default, rename = "type")]
    kind: TransportKind,
    #[serde(default)]
    headers: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rename {
    id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Call {
    server_id: String,
    name: String,
    arguments: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Read {
    server_id: String,
    uri: String,
}

/// One entry of the list of servers. Holds no header and no session.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    id: ServerId,
    name: String,
    url: String,
    transport: TransportKind,
    state: ConnectionState,
    error: Option<String>,
    last_error: Option<LastFailure>,
    /// The transport in use.
    wire: Option<TransportKind>,
    /// Whether a stream is open for what the server says unasked.
    listening: bool,
    protocol_version: Option<&'static str>,
    capabilities: Option<Value>,
    instructions: Option<String>,
    server_info: Option<Value>,
    problems: Vec<String>,
    counts: crate::mcp::CatalogCounts,
    /// Where the lists are known from, and since when.
    freshness: CatalogFreshness,
    listed_at: Option<u64>,
    /// Where to send the user, while the server waits for a sign-in.
    auth_url: Option<String>,
    auth: Option<AuthorizationInfo>,
}

/// The last failure of a server, which stays to be seen after the server has recovered.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LastFailure {
    message: String,
    code: &'static str,
    http_status: Option<u16>,
    at: u64,
    attempts: u32,
}

impl From<&LastError> for LastFailure {
    fn from(last: &LastError) -> Self {
        Self {
            message: last.error.describe(),
            code: last.error.code(),
            http_status: last.error.http_status(),
            at: last.at,
            attempts: last.attempts,
        }
    }
}

fn level_of(name: &str) -> Result<LogLevel, Problem> {
    LogLevel::parse(name).ok_or_else(|| Problem::new(422, "invalid-option", "no such log level"))
}

async fn servers(mcp: &McpClientManager) -> Answer {
    let mut entries = Vec::new();
    for stored in mcp.list_servers()? {
        entries.push(entry(mcp, &stored).await);
    }
    send(
        200,
        &json!({"servers": entries, "damaged": mcp.damaged_servers()?}),
    )
}

async fn add_server(
    mcp: &McpClientManager,
    body: AddServer,
    callback_url: String,
    is_public: bool,
) -> Answer {
    let id = choose_id(mcp, &body)?;
    let known = mcp.server(id.as_str())?;
    // Where users come back to is wherever the Worker is now, once its operator has said that.
    let moved = is_public
        && known
            .as_ref()
            .is_some_and(|known| known.callback_url() != Some(callback_url.as_str()));
    let says_more = body.transport.is_some()
        || body.retry.is_some()
        || body.reconnect.is_some()
        || body.oauth.is_some()
        || moved;
    // What is said of a server that is there replaces what was said before; saying nothing does not.
    if says_more || known.is_none() {
        let AddServer {
            name,
            url,
            transport,
            retry,
            reconnect,
            oauth,
            ..
        } = body;
        let mut server = match &known {
            Some(known) => mcp.registration(known.id.as_str()).await?,
            None => RegisterServer::new(name, url),
        };
        if let Some(transport) = transport {
            server = server.transport(transport.kind).without_headers();
            for (name, value) in transport.headers {
                server = server.header(name, value);
            }
        }
        if let Some(retry) = retry {
            server = server.retry(retry);
        }
        if let Some(policy) = reconnect {
            server = server.reconnect(policy);
        }
        if moved || known.is_none_or(|known| known.callback_url().is_none()) {
            server = server.callback_url(callback_url);
        }
        if let Some(oauth) = oauth {
            server = oauth.add_to(server)?;
        }
        mcp.register_server(id.as_str(), server).await?;
    }
    let id = id.as_str();
    let is_open = mcp
        .connection(id)
        .is_some_and(|connection| connection.state.is_open());
    if is_open {
        return ready(mcp, id, 201).await;
    }
    // One that waits for its user already goes on waiting: the sign-in may be under way.
    let waits = mcp
        .connection(id)
        .is_some_and(|connection| connection.state == ConnectionState::Authenticating);
    if waits && let Some(auth_url) = mcp.auth_url(id).await? {
        return parked(mcp, id, &auth_url, 201).await;
    }
    let connected = mcp.connect_to_server(id).await;
    match connected.map_err(|error| failed(mcp, id, error))? {
        Connected::Connected => ready(mcp, id, 201).await,
        Connected::Authenticating { auth_url } => parked(mcp, id, &auth_url, 201).await,
    }
}

async fn rename(mcp: &McpClientManager, from: &str, Rename { id }: Rename) -> Answer {
    let id = ServerId::normalize(&id);
    let id = mcp.rename_server(from, id.as_str()).await?;
    let server = entry(mcp, &stored(mcp, id.as_str())?).await;
    let state = server.state;
    send(200, &json!({"id": id, "state": state, "server": server}))
}

/// Adding the same server again means the one that is there; an id that is taken means an error.
fn choose_id(mcp: &McpClientManager, body: &AddServer) -> Result<ServerId, Problem> {
    let address = |url: &str| Url::parse(url).map_or_else(|_| url.to_owned(), String::from);
    let is_same = |stored: &StoredServer| {
        stored.name == body.name && address(&stored.url) == address(&body.url)
    };
    let servers = mcp.list_servers()?;
    let Some(requested) = &body.id else {
        let known = servers.iter().find(|stored| is_same(stored));
        return known.map_or_else(random_id, |stored| Ok(stored.id.clone()));
    };
    let id = ServerId::normalize(requested);
    match servers.iter().find(|stored| stored.id == id) {
        Some(stored) if !is_same(stored) => Err(Error::ServerIdInUse {
            id,
            name: stored.name.clone(),
        }
        .into()),
        _ => Ok(id),
    }
}

fn random_id() -> Result<ServerId, Problem> {
    let mut bytes = [0; AUTO_ID];
    getrandom::fill(&mut bytes).map_err(|error| Error::Runtime(error.to_string()))?;
    let symbols = bytes.iter().filter_map(|byte| {
        ALPHABET
            .get(usize::from(byte % 64))
            .copied()
            .map(char::from)
    });
    Ok(ServerId::verbatim(symbols.collect::<String>()))
}

/// Reports a server that waits for its user.
async fn parked(
    mcp: &McpClientManager,
    id: &str,
    auth_url: &AuthorizationUrl,
    status: u16,
) -> Answer {
    let server = entry(mcp, &stored(mcp, id)?).await;
    let auth_url = auth_url.as_str();
    send(
        status,
        &json!({"id": id, "state": server.state, "authUrl": auth_url, "server": server}),
    )
}

/// Loads the catalogue of an open connection and reports the server.
async fn ready(mcp: &McpClientManager, id: &str, status: u16) -> Answer {
    match mcp.discover_if_connected(id, None).await {
        Ok(_) => {}
        Err(Error::SignInRequired { auth_url, .. }) => {
            return parked(mcp, id, &auth_url, status).await;
        }
        Err(error) => return Err(failed(mcp, id, error)),
    }
    let server = entry(mcp, &stored(mcp, id)?).await;
    send(
        status,
        &json!({"id": id, "state": server.state, "server": server}),
    )
}

/// A failure of a server that stays stored: says which, and how it stands.
fn failed(mcp: &McpClientManager, id: &str, error: Error) -> Problem {
    let state = mcp
        .connection(id)
        .map_or(ConnectionState::NotConnected, |connection| connection.state);
    Problem::from(error)
        .with("id", id)
        .with("state", state.as_str())
}

fn explain(problem: &ListProblem) -> String {
    format!("{}: {}", problem.method, problem.error.describe())
}

fn stored(mcp: &McpClientManager, id: &str) -> Result<StoredServer, Problem> {
    Ok(mcp
        .server(id)?
        .ok_or_else(|| Error::UnknownServer(id.to_owned()))?)
}

async fn entry(mcp: &McpClientManager, stored: &StoredServer) -> Entry {
    let id = stored.id.as_str();
    // What cannot be read now is not known.
    let auth = mcp.authorization(id).await.ok().flatten();
    let auth_url = mcp.auth_url(id).await.ok().flatten();
    let live = mcp.connection(stored.id.as_str());
    let card = live.as_ref().and_then(|live| live.card.as_ref());
    Entry {
        id: stored.id.clone(),
        name: stored.name.clone(),
        url: stored.url.clone(),
        transport: stored.transport(),
        state: live
            .as_ref()
            .map_or(ConnectionState::NotConnected, |live| live.state),
        error: live
            .as_ref()
            .and_then(|live| live.error.as_ref())
            .map(Error::describe),
        last_error: live
            .as_ref()
            .and_then(|live| live.last_error.as_ref())
            .map(LastFailure::from),
        wire: live.as_ref().and_then(|live| live.transport.clone()),
        listening: live.as_ref().is_some_and(|live| live.listening),
        protocol_version: live
            .as_ref()
            .and_then(|live| live.revision)
            .map(Revision::as_str),
        capabilities: card.map(|card| json!(card.capabilities)),
        instructions: card.and_then(|card| card.instructions.clone()),
        server_info: card.and_then(|card| card.server_info.clone()),
        problems: live
            .as_ref()
            .map(|live| live.problems.iter().map(explain).collect())
            .unwrap_or_default(),
        freshness: live.as_ref().map(|live| live.freshness).unwrap_or_default(),
        listed_at: live.as_ref().and_then(|live| live.loaded_at),
        counts: live.map(|live| live.counts).unwrap_or_default(),
        auth_url: auth_url.map(|url| url.as_str().to_owned()),
        auth,
    }
}

/// Reads `server`, `name`, `state` and `wait` of a list request, and waits.
async fn selection(mcp: &McpClientManager, request: &Request) -> Result<ServerFilter, Problem> {
    let mut filter = ServerFilter::all();
    let mut wait = None;
    for (key, value) in request.url()?.query_pairs() {
        let bad = |what: &str| Problem::new(400, "invalid-query", format!("{what}: {value:?}"));
        filter = match &*key {
            "server" => filter.server_id(value),
            "name" => filter.server_name(value),
            "state" => {
                filter.state(ConnectionState::parse(&value).ok_or_else(|| bad("no such state"))?)
            }
            "wait" => {
                let ms = value.parse();
                let ms = ms.map_err(|_| bad("wait is not a number of milliseconds"))?;
                wait = Some(Duration::from_millis(ms));
                filter
            }
            _ => {
                return Err(Problem::new(
                    400,
                    "invalid-query",
                    format!("no such parameter: {key:?}"),
                ));
            }
        };
    }
    match wait {
        Some(wait) => mcp.wait_for_connections(Some(wait.min(MAX_WAIT))).await,
        // What is stored answers at once.
        None => mcp.wait_for_lists(DEFAULT_WAIT).await,
    }
    Ok(filter)
}

/// Arguments are an object or absent.
fn object(arguments: Option<Box<RawValue>>) -> Result<Option<Box<RawValue>>, Problem> {
    match &arguments {
        Some(value) if !value.get().starts_with('{') => Err(Problem::new(
            422,
            "invalid-option",
            "arguments is not an object",
        )),
        _ => Ok(arguments),
    }
}

pub(super) async fn read<T: DeserializeOwned>(mut request: Request) -> Result<T, Problem> {
    let mut body = Vec::new();
    let mut stream = request
        .stream()
        .map_err(|_| Problem::new(400, "invalid-body", "the request has no body"))?;
    while let Some(chunk) = stream.next().await {
        body.extend(chunk.map_err(|_| Problem::new(400, "invalid-body", "the body broke off"))?);
        if body.len() > MAX_BODY {
            return Err(Problem::new(
                413,
                "body-too-large",
                format!("the body is larger than {MAX_BODY} bytes"),
            ));
        }
    }
    let is_object = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    if !is_object && serde_json::from_slice::<IgnoredAny>(&body).is_ok() {
        return Err(Problem::new(
            422,
            "invalid-body",
            "the body is not an object",
        ));
    }
    serde_json::from_slice(&body).map_err(|error| {
        let status = if error.is_data() { 422 } else { 400 };
        Problem::new(status, "invalid-body", error.to_string())
    })
}

/// A list, and the servers whose part of it is from before the object slept.
fn server_list<T: Serialize>(
    mcp: &McpClientManager,
    name: &str,
    items: &[ServerItem<T>],
) -> Result<Box<RawValue>, Problem> {
    let broken = |error: serde_json::Error| Error::Runtime(error.to_string());
    let ids: BTreeSet<&ServerId> = items.iter().map(|item| &item.server_id).collect();
    let mut stale = mcp.stale_servers();
    stale.retain(|id| ids.contains(id));
    let stale = if stale.is_empty() {
        String::new()
    } else {
        format!(
            ",\"stale\":{}",
            serde_json::to_string(&stale).map_err(broken)?
        )
    };
    let items = serde_json::to_string(items).map_err(broken)?;
    let list = RawValue::from_string(format!("{{\"{name}\":{items}{stale}}}"));
    Ok(list.map_err(broken)?)
}

fn json_list<T: Serialize>(name: &str, items: &[T]) -> Result<Box<RawValue>, Problem> {
    let items = serde_json::to_string(items).map_err(|error| Error::Runtime(error.to_string()))?;
    let list = RawValue::from_string(format!("{{\"{name}\":{items}}}"));
    list.map_err(|error| Error::Runtime(error.to_string()).into())
}

pub(super) fn send(status: u16, body: &impl Serialize) -> Answer {
    let text = serde_json::to_string(body).map_err(|error| Error::Runtime(error.to_string()))?;
    let response = ResponseBuilder::new()
        .with_status(status)
        .with_header("content-type", "application/json")?
        .with_header("cache-control", "no-store")?;
    Ok(response.fixed(text.into_bytes()))
}
