//! The ready-made Worker: a dashboard at `/`, and [`ToolAgent`] with its JSON API. Only with the
//! feature `entrypoint`.

#![expect(
    missing_docs,
    reason = "`durable_object` writes public methods without documentation"
)]

mod api;
mod events;
mod gate;
mod login;
mod methods;
mod page;
mod problem;
mod session;

use std::time::Duration;

use worker::{Context, Env, Method, Request, RequestInit, Response, Result, durable_object, event};

use self::events::RecentEvents;
use self::gate::{Access, Asked, Refusal};
use self::problem::Problem;
use crate::agent::{Agent, AgentOptions, tell_browsers};
use crate::lifecycle::{Hooks, Lifecycle, LifecycleObject};
use crate::mcp::{McpClientOptions, OpenQuestions, ReconnectPolicy, StreamPolicy};
use crate::url_guard::{PatternError, UrlPolicy};
use crate::websockets::{Call, CallResult};

/// A Durable Object that manages MCP servers for whoever may use the Worker.
#[durable_object]
#[derive(Debug)]
pub struct ToolAgent {
    agent: Agent,
    questions: OpenQuestions,
    events: RecentEvents,
    calls: api::RunningCalls,
    /// The origin of callbacks, where it is not that of the request.
    public_origin: Option<String>,
}

crate::install!(ToolAgent);

impl LifecycleObject for ToolAgent {
    fn new(lifecycle: Lifecycle) -> Self {
        let mut options = AgentOptions::default();
        options.mcp = self::options(lifecycle.env());
        options.client_name = Some("workers-agents".into());
        let public_origin = variable(lifecycle.env(), "PUBLIC_ORIGIN");
        let version = env!("WORKERS_AGENTS_BUILD");
        let agent = Agent::with_options(lifecycle, "ToolAgent", version, options);
        let (lifecycle, mcp) = (agent.lifecycle(), agent.mcp());
        let questions = OpenQuestions::new();
        mcp.configure_elicitation_handlers(questions.handlers());
        tell_browsers(agent.web_sockets(), &questions);
        let events = RecentEvents::of(mcp);
        if variable(lifecycle.env(), "LOG_EVENTS").is_some_and(|value| is_on(&value)) {
            let name = lifecycle.name().unwrap_or_default();
            crate::log_events(mcp, "ToolAgent", &name).detach();
        }
        Self {
            agent,
            questions,
            events,
            calls: api::RunningCalls::default(),
            public_origin,
        }
    }

    fn lifecycle(&self) -> &Lifecycle {
        self.agent.lifecycle()
    }
}

impl Hooks for ToolAgent {
    async fn on_call(&self, call: &Call) -> CallResult {
        methods::answer(&self.agent, call).await
    }

    async fn on_request(&self, request: Request) -> Result<Response> {
        let Self {
            agent,
            questions,
            events,
            calls,
            public_origin,
        } = self;
        api::answer(
            api::Api {
                mcp: agent.mcp(),
                questions,
                events,
                calls,
                public_origin: public_origin.as_deref(),
            },
            request,
        )
        .await
    }
}

/// Limits that an operator may set as variables. What is missing or no number is the default.
fn options(env: &Env) -> McpClientOptions {
    let number = |name: &str| {
        variable(env, name)?
            .parse::<u32>()
            .ok()
            .filter(|number| *number > 0)
    };
    let mut options = McpClientOptions::default();
    if let Some(ms) = number("REQUEST_TIMEOUT_MS") {
        options.request_timeout = Duration::from_millis(ms.into());
    }
    if let Some(ms) = number("CONNECT_TIMEOUT_MS") {
        options.connect_timeout = Duration::from_millis(ms.into());
    }
    if let Some(ms) = number("DISCOVERY_TIMEOUT_MS") {
        options.discovery_timeout = Duration::from_millis(ms.into());
    }
    if let Some(ms) = number("MAX_REQUEST_TIME_MS") {
        options.max_request_time = Duration::from_millis(ms.into());
    }
    if let Some(ms) = number("STREAM_LINGER_MS") {
        let linger = Duration::from_millis(ms.into());
        options.streams = StreamPolicy::WhileInUse { linger };
    }
    if let Some(streams) = number("MAX_STREAMS") {
        options.max_streams = usize::try_from(streams).unwrap_or(usize::MAX);
    }
    if let Some(policy) = variable(env, "RECONNECT") {
        match ReconnectPolicy::parse(&policy) {
            Some(policy) => options.reconnect = policy,
            None => worker::console_error!("RECONNECT is none of eager, lazy and never"),
        }
    }
    if let Some(ms) = number("RECONNECT_LATER_MS") {
        options.reconnect_later.base_delay = Duration::from_millis(ms.into());
        options.reconnect_later.max_delay =
            (options.reconnect_later.max_delay).max(options.reconnect_later.base_delay);
    }
    options.url_policy = url_policy(env);
    if let Some(bytes) = number("MAX_RESPONSE_BYTES") {
        options.max_response_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    }
    options
}

type Change = fn(UrlPolicy, &str) -> std::result::Result<UrlPolicy, PatternError>;

/// Hosts that an operator opens or closes. A pattern that cannot be read is named in the log, and
/// nothing else is opened or closed by it.
fn url_policy(env: &Env) -> UrlPolicy {
    let mut policy = UrlPolicy::default();
    if let Some(value) = variable(env, "ALLOW_LOOPBACK") {
        policy = policy.allow_loopback(is_on(&value));
    }
    let lists: [(&str, Change); 2] = [
        ("ALLOWED_HOSTS", UrlPolicy::allow_host),
        ("DENIED_HOSTS", UrlPolicy::deny_host),
    ];
    for (name, change) in lists {
        let list = variable(env, name).unwrap_or_default();
        for pattern in list
            .split(',')
            .map(str::trim)
            .filter(|text| !text.is_empty())
        {
            match change(policy.clone(), pattern) {
                Ok(changed) => policy = changed,
                Err(error) => worker::console_error!("{name}: {error}"),
            }
        }
    }
    policy
}

fn variable(env: &Env, name: &str) -> Option<String> {
    let value = env.var(name).ok()?.to_string();
    Some(value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// Makes panics readable. Only here: a hook set later would hide them from the recovery.
#[event(start)]
fn start() {
    console_error_panic_hook::set_once();
}

#[event(fetch)]
async fn fetch(request: Request, env: Env, _: Context) -> Result<Response> {
    let path = request.path();
    if let Some(response) = page::serve(&request)? {
        return Ok(response);
    }
    if path == "/healthz" {
        return Response::ok("ok");
    }
    if path == login::PATH {
        return login::answer(&access(&env), request).await;
    }
    if !path.starts_with("/agents/") {
        return Problem::new(404, "not-found", "nothing is here; the dashboard is at /")
            .into_response();
    }
    // What authorization servers and the users they send back ask for. The object answers nothing
    // else there.
    if !is_for_anybody(&request, &env)?
        && let Err(refusal) = admit(&request, &env)?
    {
        return explain(&refusal).into_response();
    }
    let request = without_token(request)?;
    match crate::route_agent_request(request, &env).await? {
        Some(response) => Ok(response),
        None => Problem::new(404, "not-found", "the path is /agents/tool-agent/<name>/…")
            .into_response(),
    }
}

/// Whether a request may come from anybody: a user who comes back, with the state that only that user
/// has, or a server that reads the document about the client. The token must be set all the same. It
/// opens no WebSocket, which the object accepts at any path.
fn is_for_anybody(request: &Request, env: &Env) -> Result<bool> {
    if !matches!(request.method(), Method::Get)
        || is_upgrade(request)?
        || !access(env).is_configured()
    {
        return Ok(false);
    }
    Ok(gate::is_for_anybody(&request.url()?))
}

fn access(env: &Env) -> Access {
    Access {
        token: variable(env, "AGENT_TOKEN"),
        allow_insecure_local: variable(env, "ALLOW_INSECURE_LOCAL")
            .is_some_and(|value| is_on(&value)),
        public_origin: variable(env, "PUBLIC_ORIGIN"),
    }
}

fn admit(request: &Request, env: &Env) -> Result<std::result::Result<(), Refusal>> {
    let access = access(env);
    let headers = request.headers();
    Ok(access.admit(&Asked {
        url: &request.url()?,
        changes: !matches!(request.method(), Method::Get | Method::Head),
        is_upgrade: is_upgrade(request)?,
        authorization: headers.get("authorization")?.as_deref(),
        origin: headers.get("origin")?.as_deref(),
        has_session: login::has_session(&access, request)?,
    }))
}

fn is_upgrade(request: &Request) -> Result<bool> {
    let upgrade = request.headers().get("upgrade")?;
    Ok(upgrade.is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket")))
}

/// The request as the object gets it: without the token that opens a WebSocket.
fn without_token(request: Request) -> Result<Request> {
    if !is_upgrade(&request)? {
        return Ok(request);
    }
    let Some(url) = gate::without_token(&request.url()?) else {
        return Ok(request);
    };
    let mut init = RequestInit::new();
    init.with_method(Method::Get)
        .with_headers(request.headers().clone());
    Request::new_with_init(url.as_str(), &init)
}

/// Whether a variable that is set says yes.
fn is_on(value: &str) -> bool {
    !["0", "false", "no", "off"]
        .iter()
        .any(|no| value.eq_ignore_ascii_case(no))
}

fn explain(refusal: &Refusal) -> Problem {
    match refusal {
        Refusal::NotConfigured => Problem::new(
            503,
            "not-configured",
            "this Worker is closed until it has a token: run `npx wrangler secret put AGENT_TOKEN`",
        ),
        Refusal::Unauthorized => Problem::new(
            401,
            "unauthorized",
            "send the header `Authorization: Bearer <AGENT_TOKEN>`, or sign in at /",
        ),
        Refusal::ForeignOrigin => Problem::new(
            403,
            "foreign-origin",
            "a session is for pages of this origin; send the header `Authorization: Bearer <AGENT_TOKEN>`",
        ),
        Refusal::NotLocal => Problem::new(
            403,
            "not-local",
            "ALLOW_INSECURE_LOCAL admits requests to a loopback address that come from no foreign page",
        ),
    }
}
