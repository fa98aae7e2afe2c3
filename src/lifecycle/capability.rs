//! Parts of an object that take events before the host does.

use async_trait::async_trait;
use serde_json::Value;
use worker::{Request, Response, WebSocket, WebSocketIncomingMessage};

use super::claims::Claims;
use crate::ports::{Job, JobOutcome};
use crate::{Error, Result};

/// A part that is installed in a [`Lifecycle`](super::Lifecycle). Every hook has a default.
///
/// An error of one hook stops nobody else, except where it says so. A capability that needs the
/// object's storage or jobs takes [`Services`](super::Services) when it is made; it must not hold
/// the [`Lifecycle`](super::Lifecycle), which holds it.
#[async_trait(?Send)]
pub trait Capability {
    /// What it is called in logs and errors, and in the table of jobs. Unique within an object.
    fn id(&self) -> &'static str;

    /// What it answers: only what it recognises, or everything.
    fn claims(&self) -> Claims {
        Claims::SELECTIVE
    }

    /// The object wakes. An error aborts the startup.
    async fn on_start(&self, start: &Start) -> Result<()> {
        let _ = start;
        Ok(())
    }

    /// Somebody uses the object: a request, a WebSocket or a method of its own, not its alarm. Called
    /// for each event before anything else, once the object has started.
    fn on_use(&self) {}

    /// A request. `None` leaves it to the next capability, and at last to the host.
    async fn on_request(&self, request: &Request) -> Result<Option<Response>> {
        let _ = request;
        Ok(None)
    }

    /// A request that opens a WebSocket. Who answers it owns the socket for life. `None` leaves it
    /// to the next capability, and at last to the host.
    async fn on_upgrade(&self, request: &Request) -> Result<Option<Response>> {
        let _ = request;
        Ok(None)
    }

    /// A message of a WebSocket that was accepted for hibernation. `true` keeps it from everybody
    /// else.
    async fn on_message(
        &self,
        socket: &WebSocket,
        message: &WebSocketIncomingMessage,
    ) -> Result<bool> {
        let _ = (socket, message);
        Ok(false)
    }

    /// The end of a WebSocket that was accepted for hibernation. `true` keeps it from everybody
    /// else.
    async fn on_close(&self, socket: &WebSocket, close: &Close) -> Result<bool> {
        let _ = (socket, close);
        Ok(false)
    }

    /// An error of a WebSocket that was accepted for hibernation. `true` keeps it from everybody
    /// else.
    async fn on_error(&self, socket: &WebSocket, error: &worker::Error) -> Result<bool> {
        let _ = (socket, error);
        Ok(false)
    }

    /// The object's alarm has gone off, for whatever reason. Due jobs have been run.
    async fn on_alarm(&self) -> Result<()> {
        Ok(())
    }

    /// How many of its jobs run at a time. Default: one, in the order of their times. Whatever this
    /// says, jobs of other owners run beside them.
    fn jobs_at_once(&self) -> usize {
        1
    }

    /// One of its jobs is due. An error is retried, then goes to
    /// [`on_job_error`](Self::on_job_error).
    ///
    /// May run more than once for one job, since the object can go down at any moment.
    async fn on_job(&self, job: &Job) -> Result<JobOutcome> {
        let _ = job;
        Ok(JobOutcome::Done)
    }

    /// One of its jobs has failed for good; says what becomes of it. Default: it is dropped. The
    /// error is in the log already.
    async fn on_job_error(&self, job: &Job, error: &Error) -> Result<JobOutcome> {
        let _ = (job, error);
        Ok(JobOutcome::Done)
    }

    /// The object is being destroyed. Called in reverse order of installation. Not called when the
    /// object is evicted.
    async fn dispose(&self) -> Result<()> {
        Ok(())
    }
}

/// How the object wakes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Start {
    /// By what.
    pub cause: StartCause,
    /// What it was given by whoever addressed it.
    pub props: Option<Value>,
}

/// What wakes an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum StartCause {
    /// A request.
    Request,
    /// An event of a hibernated WebSocket.
    WebSocket,
    /// Its alarm.
    Alarm,
    /// [`Lifecycle::start`](super::Lifecycle::start), as in an RPC method.
    Call,
}

/// How a WebSocket was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Close {
    /// The code (RFC 6455 §7.4).
    pub code: u16,
    /// The reason that the peer gave.
    pub reason: String,
    /// Whether there was a closing handshake.
    pub was_clean: bool,
}

impl Close {
    /// As the platform says it.
    pub fn new(code: usize, reason: String, was_clean: bool) -> Self {
        Self {
            code: u16::try_from(code).unwrap_or(1006),
            reason,
            was_clean,
        }
    }
}
