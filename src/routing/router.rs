//! The router: from a request to the object that answers it.

use std::fmt;
use std::rc::Rc;

use futures::future::LocalBoxFuture;
use serde::Serialize;
use worker::{Env, Method, ObjectNamespace, Request, Response, Result, console_error};

use super::cors::{Cors, CorsHeaders, vary};
use super::handle::AgentHandle;
use super::internal::with_props;
use super::name::{NameError, check, check_length, decode_segment};
use super::path::AgentPath;
use super::place::{Jurisdiction, LocationHint};
use super::retry::RoutingRetry;
use super::target::{Target, binding_of, failure, namespace, within};
use super::{problem, props};

const PREFIX: &str = "agents";

/// Sends requests for `/agents/<class>/<name>/…` to the object of that name.
///
/// ```no_run
/// use workers_agents::routing::{AgentRouter, Cors, Verdict};
/// # use worker::{Env, Request, Response, Result};
/// # async fn fetch(request: Request, env: Env) -> Result<Option<Response>> {
/// AgentRouter::new()
///     .prefix("api/agents")
///     .cors(Cors::origins(["https://app.example"])?)
///     .on_before_request(async |request, _route| {
///         if request.headers().has("authorization")? {
///             return Ok(Verdict::Continue(request));
///         }
///         Ok(Verdict::Answer(Response::error("sign in first", 401)?))
///     })
///     .route(request, &env)
///     .await
/// # }
/// ```
#[derive(Clone)]
pub struct AgentRouter {
    prefix: String,
    takes_raw_names: bool,
    jurisdiction: Option<Jurisdiction>,
    hint: Option<LocationHint>,
    /// As it stands in the header.
    props: Option<String>,
    cors: Option<Cors>,
    retry: Option<RoutingRetry>,
    before_request: Option<Hook>,
    before_connect: Option<Hook>,
}

type Hook = Rc<dyn Fn(Request, AgentRoute) -> LocalBoxFuture<'static, Result<Verdict>>>;

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentRoute {
    /// The name of the Durable Object binding.
    pub binding: String,
    /// The name of the instance, decoded.
    pub name: String,
}

/// Why no object can be at a path.
enum NoRoute {
    Class,
    Name(NameError),
}

/// What a hook says about a request.
#[derive(Debug)]
pub enum Verdict {
    /// The object gets this request: the one that the hook was given, or another.
    Continue(Request),
    /// This is the answer; the object gets nothing.
    Answer(Response),
}

impl AgentRouter {
    /// Paths begin with `/agents`, nothing is allowed to other origins, and a request that the platform
    /// has not delivered is sent up to three times.
    pub fn new() -> Self {
        Self {
            prefix: PREFIX.to_owned(),
            takes_raw_names: false,
            jurisdiction: None,
            hint: None,
            props: None,
            cors: None,
            retry: Some(RoutingRetry::new()),
            before_request: None,
            before_connect: None,
        }
    }

    /// What paths begin with, in place of `agents`. Several segments (`api/v1/agents`) or none.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Takes names as they stand in URLs, without percent-decoding: `a%20b` is the name `a%20b`.
    ///
    /// For objects that the TypeScript package has made under such names; it decodes nothing.
    #[must_use]
    pub fn raw_names(mut self) -> Self {
        self.takes_raw_names = true;
        self
    }

    /// Where objects live and keep their data.
    #[must_use]
    pub fn jurisdiction(mut self, jurisdiction: Jurisdiction) -> Self {
        self.jurisdiction = Some(jurisdiction);
        self
    }

    /// Where new objects should be made.
    #[must_use]
    pub fn location_hint(mut self, hint: LocationHint) -> Self {
        self.hint = Some(hint);
        self
    }

    /// What objects are started with: [`Lifecycle::props`](crate::Lifecycle::props) of one that calls
    /// [`accept_props`](crate::Lifecycle::accept_props). Any JSON of up to 48 KiB.
    ///
    /// One that runs already keeps what it has. Routers remove such headers from requests of others,
    /// so what an object gets is from here, as long as every request to it passes a router or an
    /// [`AgentHandle`].
    ///
    /// # Errors
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for what is no JSON, or too long.
    pub fn props(mut self, props: &impl Serialize) -> crate::Result<Self> {
        self.props = Some(props::encode(props)?);
        Ok(self)
    }

    /// What pages of other origins may do. Preflight requests for a route are answered then, and the
    /// object does not see them.
    #[must_use]
    pub fn cors(mut self, cors: Cors) -> Self {
        self.cors = Some(cors);
        self
    }

    /// How often a request is sent that the platform has not delivered.
    ///
    /// A body is sent again when `Content-Length` says that it has at most 1 MiB; a request with any
    /// other body is sent once.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for a policy that makes no sense.
    pub fn retry(mut self, retry: RoutingRetry) -> crate::Result<Self> {
        retry.validate()?;
        self.retry = Some(retry);
        Ok(self)
    }

    /// Every request is sent once.
    #[must_use]
    pub fn no_retry(mut self) -> Self {
        self.retry = None;
        self
    }

    /// Looks at each request that opens no WebSocket, before its object gets it. An error is logged
    /// and answered with status 500.
    #[must_use]
    pub fn on_before_request<F>(mut self, hook: F) -> Self
    where
        F: AsyncFn(Request, AgentRoute) -> Result<Verdict> + 'static,
    {
        self.before_request = Some(boxed(hook));
        self
    }

    /// Looks at each request that opens a WebSocket, before its object gets it. An error is logged
    /// and answered with status 500.
    #[must_use]
    pub fn on_before_connect<F>(mut self, hook: F) -> Self
    where
        F: AsyncFn(Request, AgentRoute) -> Result<Verdict> + 'static,
    {
        self.before_connect = Some(boxed(hook));
        self
    }

    /// Sends a request to its object and gives the answer. `None` when the path is no agent path, and
    /// for `OPTIONS` where no object can be.
    ///
    /// A class that is no binding is answered with status 404 (the TypeScript package says 400), a name
    /// that is none with 400. An object that throws or cannot be reached is logged and answered with
    /// status 500, or 503 when it is worth another try.
    ///
    /// # Errors
    /// When the platform refuses a request or an answer as it stands.
    pub async fn route(&self, request: Request, env: &Env) -> Result<Option<Response>> {
        let path = request.path();
        let Some(path) = AgentPath::parse(&path, &self.prefix) else {
            return Ok(None);
        };
        let asks = matches!(request.method(), Method::Options);
        let cors = match &self.cors {
            Some(cors) => {
                let header = |name| request.headers().get(name);
                let origin = header("origin")?;
                let asked = header("access-control-request-headers")?;
                Some(cors.answer(origin.as_deref(), asked.as_deref().filter(|_| asks)))
            }
            None => None,
        };
        let response = match self.find(path, env) {
            Ok(_) if asks && cors.is_some() => Response::empty()?,
            Ok(route) => self.forward(request, env, route).await?,
            Err(_) if asks => return Ok(None),
            Err(NoRoute::Class) => problem(404, "Not Found", "no such agent class")?,
            Err(NoRoute::Name(error)) => problem(400, "Bad Request", &error.to_string())?,
        };
        with_cors(response, cors).map(Some)
    }

    fn find(&self, path: AgentPath<'_>, env: &Env) -> std::result::Result<AgentRoute, NoRoute> {
        let binding = binding_of(env, path.class).ok_or(NoRoute::Class)?;
        let name = if self.takes_raw_names {
            check(path.name).map(|()| path.name.into())
        } else {
            decode_segment(path.name)
        };
        let name = name.map_err(NoRoute::Name)?.into_owned();
        Ok(AgentRoute { binding, name })
    }

    async fn forward(&self, request: Request, env: &Env, route: AgentRoute) -> Result<Response> {
        let mut request = with_props(request, None)?;
        let upgrade = request.headers().get("upgrade")?;
        let connects = upgrade.is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"));
        let hook = if connects {
            &self.before_connect
        } else {
            &self.before_request
        };
        if let Some(hook) = hook {
            request = match hook(request, route.clone()).await {
                Ok(Verdict::Continue(request)) => request,
                Ok(Verdict::Answer(response)) => return Ok(response),
                Err(error) => {
                    console_error!("a hook of the router: {error}");
                    return problem(500, "Internal Server Error", "the Worker's log says more");
                }
            };
        }
        let outcome = async {
            let namespace = namespace(env, &route.binding)
                .ok_or_else(|| worker::Error::BindingError(route.binding.clone()))?;
            let request = with_props(request, self.props.as_deref())?;
            let target = self.target(&namespace, &route.name)?;
            target.fetch(request, self.retry.as_ref()).await
        };
        match outcome.await {
            Ok(response) => Ok(response),
            Err(error) => {
                console_error!("the object of {} that was asked: {error}", route.binding);
                unreachable_object(&error)
            }
        }
    }

    /// The object of a binding by its name, started: for code that addresses objects itself. Of this
    /// router's options it takes jurisdiction, location hint, props and retries.
    ///
    /// # Errors
    /// When there is no such binding, when the name is none, and when the object does not start.
    pub async fn agent_by_name(&self, env: &Env, binding: &str, name: &str) -> Result<AgentHandle> {
        let Some(namespace) = namespace(env, binding) else {
            return Err(worker::Error::BindingError(binding.to_owned()));
        };
        self.agent_of(&namespace, name).await
    }

    /// As [`agent_by_name`](Self::agent_by_name), of a namespace.
    ///
    /// # Errors
    /// When the name is none, and when the object does not start.
    pub async fn agent_of(&self, namespace: &ObjectNamespace, name: &str) -> Result<AgentHandle> {
        if let Err(error) = check_length(name) {
            return Err(error.to_string().into());
        }
        let agent = AgentHandle {
            target: self.target(namespace, name)?,
            props: self.props.clone(),
            retry: self.retry,
        };
        agent.start().await?;
        Ok(agent)
    }

    fn target(&self, namespace: &ObjectNamespace, name: &str) -> Result<Target> {
        let namespace = match self.jurisdiction {
            Some(jurisdiction) => within(namespace, jurisdiction)?,
            None => namespace.clone(),
        };
        Ok(Target {
            namespace,
            name: name.to_owned(),
            hint: self.hint,
        })
    }
}

impl Default for AgentRouter {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for AgentRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the props, which may be secret.
        f.debug_struct("AgentRouter")
            .field("prefix", &self.prefix)
            .field("takes_raw_names", &self.takes_raw_names)
            .field("jurisdiction", &self.jurisdiction)
            .field("hint", &self.hint)
            .field("cors", &self.cors)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

fn boxed<F>(hook: F) -> Hook
where
    F: AsyncFn(Request, AgentRoute) -> Result<Verdict> + 'static,
{
    let hook = Rc::new(hook);
    Rc::new(move |request, route| {
        let hook = hook.clone();
        Box::pin(async move { hook(request, route).await })
    })
}

/// The answer in place of an object that has given none.
fn unreachable_object(error: &worker::Error) -> Result<Response> {
    let failure = failure(error);
    if failure.is_retryable || failure.is_overloaded {
        let mut response = problem(
            503,
            "Service Unavailable",
            "the object cannot be reached now",
        )?;
        response.headers_mut().set("retry-after", "1")?;
        return Ok(response);
    }
    problem(500, "Internal Server Error", "the Worker's log says more")
}

/// The answer with what pages of other origins have to know. Not for a WebSocket, whose answer the
/// platform needs as it is.
fn with_cors(response: Response, cors: Option<CorsHeaders>) -> Result<Response> {
    let Some(cors) = cors.filter(|_| response.status_code() != 101) else {
        return Ok(response);
    };
    // A copy: those of an answer from elsewhere cannot be changed.
    let headers = response.headers().clone();
    for name in cors.removed {
        headers.delete(name)?;
    }
    for (name, value) in cors.set {
        headers.set(&name, &value)?;
    }
    if !cors.vary.is_empty() {
        let value = vary(headers.get("vary")?.as_deref(), &cors.vary);
        headers.set("vary", &value)?;
    }
    Ok(response.with_headers(headers))
}
