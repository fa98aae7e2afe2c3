//! Trying again later: a server that stays down is planned to be tried by a job, and meanwhile
//! nothing keeps the object in memory.

use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use super::connection::Connection;
use super::event::McpEvent;
use super::server::StoredServer;
use super::state::Event;
use super::{ConnectionState, McpClientManager, ReconnectPolicy};
use crate::ports::{Job, JobOutcome, Timestamp};
use crate::{Error, Result};

/// What the job does.
const RECONNECT: &str = "reconnect";
/// The shortest pause before an attempt that wakes the object.
const SHORTEST: Duration = Duration::from_secs(5);
/// The longest that a server may put us off.
const LONGEST: Duration = Duration::from_hours(24);

/// The next attempt to connect a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) server_id: String,
    /// How often it was put off.
    pub(super) attempts: u32,
    /// When the server wants to be asked again at the earliest, if it said so.
    pub(super) not_before: Timestamp,
}

impl Plan {
    fn read(job: &Job) -> Option<Self> {
        let payload: Value = serde_json::from_str(&job.payload).ok()?;
        let number = |name: &str| payload.get(name).and_then(Value::as_u64);
        Some(Self {
            server_id: payload.get("serverId")?.as_str()?.to_owned(),
            attempts: u32::try_from(number("attempts")?).ok()?,
            not_before: number("notBefore").unwrap_or(0),
        })
    }

    fn job(&self, at: Timestamp) -> Job {
        let payload = json!({
            "serverId": self.server_id,
            "attempts": self.attempts,
            "notBefore": self.not_before,
        });
        Job {
            id: job_id(&self.server_id),
            function: RECONNECT.into(),
            at,
            payload: payload.to_string(),
        }
    }
}

fn job_id(server_id: &str) -> String {
    format!("mcp:{RECONNECT}:{server_id}")
}

impl McpClientManager {
    /// Runs a job of the manager. The capability calls it.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn run_job(&self, job: &Job) -> Result<JobOutcome> {
        self.remember()?;
        let plan = Plan::read(job).filter(|_| job.function == RECONNECT);
        // What cannot be read, or is about a server that is gone, is done with.
        let connection = plan.as_ref().and_then(|plan| self.live(&plan.server_id));
        let (Some(plan), Some(connection)) = (plan, connection) else {
            return Ok(JobOutcome::Done);
        };
        let is_wanted = self.policy_of(&connection.server()) == ReconnectPolicy::Eager;
        let is_ready = connection.state() == ConnectionState::Ready;
        if !is_wanted || is_ready || connection.server().awaits_sign_in() {
            connection.plan.set(None);
            connection.give_up();
            return Ok(JobOutcome::Done);
        }
        connection.plan.set(Some(plan.attempts));
        match self.attempt(&connection, &self.inner.permits).await {
            Err(error) if error.is_transient() => {
                // A plan that is made here takes the place of the one that has run.
                self.put_off(&connection, &error, Some(plan.attempts));
            }
            Ok(()) | Err(_) => connection.plan.set(None),
        }
        Ok(JobOutcome::Done)
    }

    /// What is planned.
    pub(super) fn plans(&self) -> Result<Vec<Plan>> {
        let jobs = self.inner.common.ports.jobs.list()?;
        Ok(jobs.iter().filter_map(Plan::read).collect())
    }

    /// Plans the next attempt, unless there have been enough. `before` is the plan when the attempt
    /// began: where two have waited for one attempt, it counts once.
    pub(super) fn put_off(&self, connection: &Rc<Connection>, error: &Error, before: Option<u32>) {
        let common = &self.inner.common;
        // Removed, closed or renamed meanwhile, or planned already.
        if !self.is_live(connection) || connection.plan.get() != before {
            return;
        }
        let attempts = connection.plan.get().unwrap_or(0).saturating_add(1);
        let is_eager = self.policy_of(&connection.server()) == ReconnectPolicy::Eager;
        if !is_eager || attempts > common.options.reconnect_later.max_attempts {
            self.unplan(connection);
            connection.give_up();
            return;
        }
        let now = common.ports.clock.now();
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let asked = error.retry_after().map(|asked| asked.min(LONGEST));
        let pause = common.options.reconnect_later.delay(attempts, random());
        let pause = pause.max(SHORTEST).max(asked.unwrap_or_default());
        let plan = Plan {
            server_id: connection.id().to_string(),
            attempts,
            not_before: asked.map_or(0, |asked| now.saturating_add(ms(asked))),
        };
        let at = now.saturating_add(ms(pause));
        // What cannot be planned is tried again after the next wake.
        if common.ports.jobs.push(&plan.job(at)).is_ok() {
            connection.plan.set(Some(attempts));
            connection.apply(connection.attempt(), Event::Postponed);
            connection.tell(|server_id| McpEvent::Postponed {
                server_id,
                at,
                attempts,
            });
        }
    }

    /// The plan for a server is one for the server of another id.
    pub(super) fn rename_plan(&self, from: &str, to: &str) -> Result<()> {
        let jobs = &self.inner.common.ports.jobs;
        let id = job_id(from);
        let planned = jobs.list()?.into_iter().find(|job| job.id == id);
        if let Some((job, mut plan)) = planned.and_then(|job| Some((job.at, Plan::read(&job)?))) {
            to.clone_into(&mut plan.server_id);
            jobs.push(&plan.job(job))?;
        }
        jobs.cancel(&id)?;
        Ok(())
    }

    /// There is nothing to try again.
    pub(super) fn unplan(&self, connection: &Connection) {
        if connection.plan.take().is_some() {
            self.cancel_plan(connection.id().as_str());
        }
    }

    /// Takes back the plan for a server that may not be in memory.
    pub(super) fn cancel_plan(&self, server_id: &str) {
        // One that stays finds nothing to do.
        let _ = self.inner.common.ports.jobs.cancel(&job_id(server_id));
    }

    /// Whether a failed connection is worth another attempt when it is used.
    pub(super) fn may_try_again(&self, connection: &Connection, server: &StoredServer) -> bool {
        let error = connection.error();
        let is_transient = error.is_some_and(|error| error.is_transient());
        is_transient && self.policy_of(server) != ReconnectPolicy::Never
    }
}

pub(super) fn random() -> u64 {
    getrandom::u64().unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_storage_and_nonsense_is_none() {
        let plan = Plan {
            server_id: "a:b".into(),
            attempts: 3,
            not_before: 17,
        };
        let job = plan.job(1_000);
        assert_eq!((job.at, &*job.id), (1_000, "mcp:reconnect:a:b"));
        assert_eq!(Plan::read(&job), Some(plan));
        for payload in ["", "{}", "[]", r#"{"serverId":1,"attempts":1}"#, "null"] {
            let payload = payload.to_owned();
            assert_eq!(
                Plan::read(&Job {
                    payload,
                    ..job.clone()
                }),
                None
            );
        }
    }
}
