//! The entry points of an object: what happens at each event.

use async_trait::async_trait;
use serde_json::Value;
use worker::{Request, Response, WebSocket, WebSocketIncomingMessage, console_error};

use super::engine::Dispatch;
use super::schedule::{QUEUE, SCHEDULER};
use super::{Close, Lifecycle, LifecycleObject, ScheduledJob, Start, StartCause, sockets};
use crate::invocation::{Event, Invocation, Trace};
use crate::ports::{Job, JobOutcome};
use crate::routing::{self, props};
use crate::{Error, Result};

/// How long a job stays that cannot be done here.
const LATER_MS: u64 = 24 * 60 * 60 * 1000;

impl Lifecycle {
    /// Entry point `fetch`.
    ///
    /// # Errors
    /// None in practice: a failure is logged once and answered with status 500, without details.
    pub async fn fetch<O: LifecycleObject>(
        &self,
        object: &O,
        request: Request,
    ) -> worker::Result<Response> {
        let invocation = Invocation::new(Event::Request)
            .at(request.url().ok())
            .within(trace_of(&request));
        match invocation.scope(self.dispatch(object, request)).await {
            Ok(response) => Ok(response),
            Err(_) if self.is_destroyed() => {
                routing::problem(503, "Service Unavailable", "the object is being destroyed")
            }
            Err(error) => {
                console_error!("request failed: {error}");
                routing::problem(500, "Internal Server Error", "the Worker's log says more")
            }
        }
    }

    async fn dispatch<O: LifecycleObject>(
        &self,
        object: &O,
        request: Request,
    ) -> worker::Result<Response> {
        let (request, internal) = routing::take_internal(request)?;
        let mut start = Start {
            cause: if internal.is_start {
                StartCause::Call
            } else {
                StartCause::Request
            },
            props: None,
        };
        if let Some(header) = internal.props.filter(|_| self.accepts_props()) {
            let Some(given) = props::decode(&header) else {
                return routing::problem(400, "Bad Request", "the props are not JSON");
            };
            start.props = Some(given);
        }
        self.ensure_started(object, start).await?;
        if internal.is_start {
            return routing::started();
        }
        let upgrade = request.headers().get("upgrade")?;
        if upgrade.is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket")) {
            for capability in self.capabilities() {
                if let Some(response) = capability.on_upgrade(&request).await? {
                    return Ok(response);
                }
            }
            return match self.web_sockets() {
                Some(sockets) => sockets::upgrade(&sockets, object, &request).await,
                None => object.on_upgrade(request).await,
            };
        }
        for capability in self.capabilities() {
            if let Some(response) = capability.on_request(&request).await? {
                return Ok(response);
            }
        }
        object.on_request(request).await
    }

    /// Entry point `alarm`: due jobs, then [`Hooks::on_alarm`](super::Hooks::on_alarm), then the
    /// alarm is set to when it is needed next.
    ///
    /// # Errors
    /// Of the startup, of storage, or of the host's hook; the platform then runs the alarm again.
    pub async fn alarm<O: LifecycleObject>(&self, object: &O) -> worker::Result<Response> {
        let work = async {
            // First of all, so that the object comes back even if its startup takes it down.
            self.engine().begin().map_err(Error::from)?;
            let start = Start {
                cause: StartCause::Alarm,
                props: None,
            };
            self.ensure_started(object, start).await?;
            let own = async {
                for capability in self.capabilities() {
                    if let Err(error) = capability.on_alarm().await {
                        let id = capability.id();
                        console_error!("alarm of {id}: {}", error.describe());
                    }
                }
                object.on_alarm().await
            };
            let host = Host {
                lifecycle: self,
                object,
            };
            let outcome = self.engine().drive(&host, own).await;
            outcome.map_err(Error::from)?
        };
        Invocation::new(Event::Alarm).scope(work).await?;
        Response::empty()
    }

    /// Entry point `websocket_message`.
    ///
    /// # Errors
    /// None: a failure is logged.
    pub async fn websocket_message<O: LifecycleObject>(
        &self,
        object: &O,
        socket: WebSocket,
        message: WebSocketIncomingMessage,
    ) -> worker::Result<()> {
        let invocation = of_socket(&socket);
        let work = async {
            self.start_for_socket(object).await?;
            for capability in self.capabilities() {
                if capability.on_message(&socket, &message).await? {
                    return Ok(());
                }
            }
            let mut message = Some(message);
            if let Some(sockets) = self.web_sockets()
                && sockets::message(&sockets, object, &socket, &mut message).await?
            {
                return Ok(());
            }
            match message {
                Some(message) => object.on_socket_message(socket, message).await,
                None => Ok(()),
            }
        };
        log("a WebSocket's message", invocation.scope(work).await);
        Ok(())
    }

    /// Entry point `websocket_close`.
    ///
    /// # Errors
    /// None: a failure is logged.
    pub async fn websocket_close<O: LifecycleObject>(
        &self,
        object: &O,
        socket: WebSocket,
        close: Close,
    ) -> worker::Result<()> {
        let invocation = of_socket(&socket);
        let work = async {
            self.start_for_socket(object).await?;
            for capability in self.capabilities() {
                if capability.on_close(&socket, &close).await? {
                    return Ok(());
                }
            }
            if let Some(sockets) = self.web_sockets()
                && sockets::close(&sockets, object, &socket, &close).await?
            {
                return Ok(());
            }
            object.on_socket_close(socket, close).await
        };
        log("the end of a WebSocket", invocation.scope(work).await);
        Ok(())
    }

    /// Entry point `websocket_error`.
    ///
    /// # Errors
    /// None: a failure is logged.
    pub async fn websocket_error<O: LifecycleObject>(
        &self,
        object: &O,
        socket: WebSocket,
        error: worker::Error,
    ) -> worker::Result<()> {
        let invocation = of_socket(&socket);
        let work = async {
            self.start_for_socket(object).await?;
            for capability in self.capabilities() {
                if capability.on_error(&socket, &error).await? {
                    return Ok(());
                }
            }
            if let Some(sockets) = self.web_sockets()
                && sockets::error(&sockets, object, &socket, &error).await?
            {
                return Ok(());
            }
            object.on_socket_error(socket, error).await
        };
        log("an error of a WebSocket", invocation.scope(work).await);
        Ok(())
    }

    async fn start_for_socket<O: LifecycleObject>(&self, object: &O) -> Result<()> {
        let start = Start {
            cause: StartCause::WebSocket,
            props: None,
        };
        self.ensure_started(object, start).await
    }
}

/// Where the jobs of an object are done.
struct Host<'a, O> {
    lifecycle: &'a Lifecycle,
    object: &'a O,
}

#[async_trait(?Send)]
impl<O: LifecycleObject> Dispatch for Host<'_, O> {
    async fn run(&self, owner: &str, job: &Job) -> Result<JobOutcome> {
        if let Some(capability) = self.lifecycle.capability(owner) {
            return capability.on_job(job).await;
        }
        if ![SCHEDULER, QUEUE].contains(&owner) {
            return Err(Error::Runtime(format!(
                "no capability \"{owner}\" is installed"
            )));
        }
        let Some(scheduled) = ScheduledJob::of_job(job)? else {
            let later = self.lifecycle.engine().now().saturating_add(LATER_MS);
            return Ok(JobOutcome::Again(later));
        };
        self.object.on_schedule(&scheduled).await?;
        self.after(&scheduled)
    }

    async fn failed(&self, owner: &str, job: &Job, error: &Error) -> Result<JobOutcome> {
        if let Some(capability) = self.lifecycle.capability(owner) {
            return capability.on_job_error(job, error).await;
        }
        match ScheduledJob::of_job(job)? {
            Some(scheduled) => self.after(&scheduled),
            None => Ok(JobOutcome::Done),
        }
    }

    fn at_once(&self, owner: &str) -> usize {
        let capability = self.lifecycle.capability(owner);
        capability.map_or(1, |capability| capability.jobs_at_once())
    }

    fn report(&self, text: &str) {
        console_error!("{text}");
    }
}

impl<O> Host<'_, O> {
    fn after(&self, scheduled: &ScheduledJob) -> Result<JobOutcome> {
        let next = scheduled.next(self.lifecycle.engine().now())?;
        Ok(next.map_or(JobOutcome::Done, JobOutcome::Again))
    }
}

fn trace_of(request: &Request) -> Option<Trace> {
    let header = |name| request.headers().get(name).ok().flatten();
    Trace::parse(&header("traceparent")?, header("tracestate").as_deref())
}

/// The URL by which a WebSocket was opened is in its attachment, where the connection layers of
/// this system put it.
fn of_socket(socket: &WebSocket) -> Invocation {
    let attachment = socket.deserialize_attachment::<Value>().ok().flatten();
    let url = attachment
        .as_ref()
        .and_then(|attachment| attachment.pointer("/__pk/uri")?.as_str()?.parse().ok());
    let is_readonly = attachment
        .as_ref()
        .and_then(|attachment| attachment.pointer("/__agents/isReadonly")?.as_bool());
    Invocation::new(Event::WebSocket)
        .at(url)
        .readonly(is_readonly.unwrap_or_default())
}

fn log(what: &str, outcome: worker::Result<()>) {
    if let Err(error) = outcome {
        console_error!("{what}: {error}");
    }
}
