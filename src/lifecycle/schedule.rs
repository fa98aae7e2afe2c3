//! Work that the host plans: once, every so often, or by a cron expression. Times are UTC.
//!
//! Rows and payloads are those of the TypeScript package's scheduler, which therefore runs what was
//! planned here, and the other way round.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::jobs::{GENERIC_RETRY, LATEST};
use crate::ports::{Job, JobRow, Timestamp};
use crate::retry::RetryOptions;
use crate::{Error, Result};

/// The owner of what is scheduled.
pub(crate) const SCHEDULER: &str = "scheduler";
/// The owner of what the TypeScript package has queued, which is run like what is scheduled.
pub(crate) const QUEUE: &str = "queue";

/// When something is to be done, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a plan does nothing until it is given to `Lifecycle::schedule`"]
pub struct Plan {
    when: When,
    id: Option<String>,
    retry: RetryOptions,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum When {
    After(Duration),
    At(Timestamp),
    Cron(String),
    Every(Duration),
}

impl Plan {
    /// Once, after this time.
    pub fn after(delay: Duration) -> Self {
        Self::of(When::After(delay))
    }

    /// Once, at this time: milliseconds since the Unix epoch. A time in the past is now.
    pub fn at(time: Timestamp) -> Self {
        Self::of(When::At(time))
    }

    /// Whenever this cron expression says so, in UTC: minute, hour, day, month, day of the week,
    /// with an optional second in front. Needs the feature `cron`, which is on by default.
    pub fn cron(expression: impl Into<String>) -> Self {
        Self::of(When::Cron(expression.into()))
    }

    /// Again and again, with this time in between. The first time is after it, too.
    pub fn every(interval: Duration) -> Self {
        Self::of(When::Every(interval))
    }

    /// With this id, in place of what is planned under it. The default is a random one; what
    /// repeats is then planned only once for the same name, time and payload.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Tried this often when it fails. The default is three times, within a second.
    pub fn retry(mut self, retry: RetryOptions) -> Self {
        self.retry = retry;
        self
    }

    fn of(when: When) -> Self {
        Self {
            when,
            id: None,
            retry: GENERIC_RETRY,
        }
    }

    /// The row of this plan. Without an id of its own the row's is empty.
    pub(crate) fn row(self, name: &str, payload: Value, now: Timestamp) -> Result<JobRow> {
        self.retry.validate()?;
        if name.is_empty() {
            return Err(Error::InvalidOption("a schedule needs a name".into()));
        }
        let (repeats, at) = match self.when {
            When::At(time) => (Repeats::Scheduled, time),
            When::After(delay) => {
                let at = now.saturating_add(millis(delay));
                let delay_in_seconds = delay.as_secs_f64();
                (Repeats::Delayed { delay_in_seconds }, at)
            }
            When::Cron(cron) => {
                let at = next_of_cron(&cron, now)?;
                (Repeats::Cron { cron }, at)
            }
            When::Every(interval) => {
                if interval.is_zero() {
                    let problem = "the interval of a schedule must not be zero";
                    return Err(Error::InvalidOption(problem.into()));
                }
                let interval_seconds = interval.as_secs_f64();
                let at = now.saturating_add(millis(interval));
                (Repeats::Interval { interval_seconds }, at)
            }
        };
        if at > LATEST {
            let problem = "the time of a schedule is too far away";
            return Err(Error::InvalidOption(problem.into()));
        }
        let single_flight = matches!(repeats, Repeats::Interval { .. });
        let stored = Stored {
            payload,
            repeats: Some(repeats),
            owner_path: None,
            owner_path_key: None,
        };
        Ok(JobRow {
            id: self.id.unwrap_or_default(),
            owner: SCHEDULER.to_owned(),
            function: name.to_owned(),
            at,
            payload: Some(json(&stored)?),
            retry: Some(json(&self.retry)?),
            single_flight,
            hung_after: Some(30),
            exclusive: false,
            recovery_loop: false,
            started_at: None,
        })
    }
}

/// Something that is planned, or whose time has come.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ScheduledJob {
    /// What cancels it.
    pub id: String,
    /// What to do, for the host to know. In the TypeScript package it is the name of a method.
    pub name: String,
    /// With what.
    pub payload: Value,
    /// When, at the earliest: milliseconds since the Unix epoch.
    pub at: Timestamp,
    /// Whether it comes again.
    pub repeats: Repeats,
}

/// How often something is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Repeats {
    /// Once, at a time.
    Scheduled,
    /// Once, after a delay.
    #[serde(rename_all = "camelCase")]
    Delayed {
        /// The delay.
        delay_in_seconds: f64,
    },
    /// By a cron expression, in UTC.
    Cron {
        /// The expression.
        cron: String,
    },
    /// Again and again.
    #[serde(rename_all = "camelCase")]
    Interval {
        /// The time in between.
        interval_seconds: f64,
    },
}

impl ScheduledJob {
    /// The payload as a value of this type.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] when it is none.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T> {
        T::deserialize(&self.payload).map_err(|error| {
            Error::InvalidOption(format!("the payload of schedule \"{}\": {error}", self.id))
        })
    }

    /// `None` for a job of an object that lives inside this one, which only the TypeScript package
    /// has.
    pub(crate) fn of_job(job: &Job) -> Result<Option<Self>> {
        let stored: Stored = serde_json::from_str(&job.payload).map_err(|error| {
            Error::InvalidOption(format!("stored schedule \"{}\": {error}", job.id))
        })?;
        if stored.owner_path.is_some() {
            return Ok(None);
        }
        Ok(Some(Self {
            id: job.id.clone(),
            name: job.function.clone(),
            payload: stored.payload,
            at: job.at,
            repeats: stored.repeats.unwrap_or(Repeats::Scheduled),
        }))
    }

    /// When it comes again after it was done, or has failed. Those that were missed are left out.
    pub(crate) fn next(&self, now: Timestamp) -> Result<Option<Timestamp>> {
        match &self.repeats {
            Repeats::Scheduled | Repeats::Delayed { .. } => Ok(None),
            Repeats::Cron { cron } => next_of_cron(cron, now.max(self.at)).map(Some),
            Repeats::Interval { interval_seconds } => {
                let interval = Duration::try_from_secs_f64(*interval_seconds)
                    .map_err(|error| Error::InvalidOption(error.to_string()))?;
                let interval = millis(interval).max(1);
                let missed = now.saturating_sub(self.at) / interval;
                let steps = missed.saturating_add(1);
                Ok(Some(self.at.saturating_add(interval.saturating_mul(steps))))
            }
        }
    }
}

/// The payload of a row, as the TypeScript package writes it.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(default)]
    payload: Value,
    /// What is queued has none.
    #[serde(flatten)]
    repeats: Option<Repeats>,
    owner_path: Option<Value>,
    owner_path_key: Option<Value>,
}

#[cfg(not(feature = "cron"))]
fn next_of_cron(expression: &str, _: Timestamp) -> Result<Timestamp> {
    Err(Error::InvalidOption(format!(
        "the cron expression \"{expression}\" needs the feature \"cron\""
    )))
}

#[cfg(feature = "cron")]
fn next_of_cron(expression: &str, after: Timestamp) -> Result<Timestamp> {
    use std::str::FromStr as _;

    use chrono::{DateTime, Utc};
    use croner::Cron;

    let invalid =
        |why: String| Error::InvalidOption(format!("the cron expression \"{expression}\": {why}"));
    let cron = Cron::from_str(expression).map_err(|error| invalid(error.to_string()))?;
    let after = i64::try_from(after)
        .ok()
        .and_then(DateTime::<Utc>::from_timestamp_millis)
        .ok_or_else(|| invalid("no such time".into()))?;
    let next = cron
        .find_next_occurrence(&after, false)
        .map_err(|error| invalid(error.to_string()))?;
    u64::try_from(next.timestamp_millis()).map_err(|error| invalid(error.to_string()))
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::InvalidOption(error.to_string()))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[cfg(feature = "cron")]
mod tests {
    use serde_json::json;

    use super::*;

    /// 2026-12-01T02:32:32Z
    const NOW: Timestamp = 1_796_092_352_000;

    fn planned(plan: Plan) -> ScheduledJob {
        of_row(&plan.id("x").row("hello", json!({"a": 1}), NOW).unwrap())
    }

    fn of_row(row: &JobRow) -> ScheduledJob {
        let job = Job {
            id: row.id.clone(),
            function: row.function.clone(),
            at: row.at,
            payload: row.payload.clone().unwrap(),
        };
        ScheduledJob::of_job(&job).unwrap().unwrap()
    }

    fn refusal(plan: Plan) -> String {
        plan.row("hello", Value::Null, NOW).unwrap_err().to_string()
    }

    #[test]
    fn once_is_once() {
        for (plan, at) in [
            (Plan::after(Duration::from_hours(1)), NOW + 3_600_000),
            (Plan::at(5), 5),
        ] {
            let job = planned(plan);
            assert_eq!(
                (job.at, job.next(NOW + 10_000_000).unwrap(), &job.payload),
                (at, None, &json!({"a": 1}))
            );
        }
    }

    #[test]
    fn what_repeats_keeps_its_beat_and_leaves_out_what_was_missed() {
        let job = planned(Plan::every(Duration::from_millis(1500)));
        assert_eq!(job.at, NOW + 1500);
        assert_eq!(job.next(NOW + 1500).unwrap(), Some(NOW + 3000));
        assert_eq!(job.next(NOW + 1400).unwrap(), Some(NOW + 3000));
        assert_eq!(job.next(NOW + 4499).unwrap(), Some(NOW + 4500));
        assert_eq!(job.next(NOW + 4500).unwrap(), Some(NOW + 6000));
    }

    #[test]
    fn cron_expressions_are_those_of_everybody() {
        let at = |text: &str| {
            let time = chrono::DateTime::parse_from_rfc3339(text).unwrap();
            u64::try_from(time.timestamp_millis()).unwrap()
        };
        for (expression, next) in [
            ("0 12 * * *", "2026-12-01T12:00:00Z"),
            ("*/5 * * * *", "2026-12-01T02:35:00Z"),
            ("32 2 * * *", "2026-12-02T02:32:00Z"),
            ("0 0 1 1 *", "2027-01-01T00:00:00Z"),
            ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
            ("0 9 * * 1-5", "2026-12-01T09:00:00Z"),
            ("0 9 * * MON", "2026-12-07T09:00:00Z"),
            ("0 0 * * 0", "2026-12-06T00:00:00Z"),
            ("0 0 * * 7", "2026-12-06T00:00:00Z"),
            ("0 0 L * *", "2026-12-31T00:00:00Z"),
            ("*/10 * * * * *", "2026-12-01T02:32:40Z"),
            ("@daily", "2026-12-02T00:00:00Z"),
            ("0 0 13 * 5", "2026-12-04T00:00:00Z"),
        ] {
            let job = planned(Plan::cron(expression));
            assert_eq!(job.at, at(next), "{expression}");
            assert!(job.next(job.at).unwrap().unwrap() > job.at, "{expression}");
        }
        // A clock that is behind does not make it come twice.
        let job = planned(Plan::cron("0 12 * * *"));
        assert_eq!(job.next(NOW).unwrap(), Some(at("2026-12-02T12:00:00Z")));
    }

    #[test]
    fn what_never_comes_or_makes_no_sense_is_refused() {
        for expression in [
            "",
            "no",
            "60 * * * *",
            "* * * *",
            "0 0 31 2 *",
            "* * * * * * * *",
        ] {
            let refused = refusal(Plan::cron(expression));
            assert!(refused.contains("cron expression"), "{refused}");
        }
        assert!(refusal(Plan::every(Duration::ZERO)).contains("interval"));
        assert!(refusal(Plan::at(LATEST + 1)).contains("too far"));
        assert!(refusal(Plan::after(Duration::MAX)).contains("too far"));
        assert!(Plan::at(1).row("", Value::Null, NOW).is_err());
        let never = RetryOptions {
            max_attempts: 0,
            ..GENERIC_RETRY
        };
        assert!(Plan::at(1).retry(never).row("a", Value::Null, NOW).is_err());
    }

    #[test]
    fn rows_are_those_of_the_typescript_package() {
        let plan = Plan::every(Duration::from_mins(10));
        let row = plan.row("hello", json!({"e": 1}), NOW).unwrap();
        let stored: Value = serde_json::from_str(row.payload.as_deref().unwrap()).unwrap();
        assert_eq!(
            stored,
            json!({"payload": {"e": 1}, "type": "interval", "intervalSeconds": 600.0,
                "owner_path": null, "owner_path_key": null})
        );
        assert_eq!(
            row.retry.as_deref(),
            Some(r#"{"maxAttempts":3,"baseDelayMs":100,"maxDelayMs":3000}"#)
        );
        assert_eq!((row.single_flight, row.hung_after), (true, Some(30)));
    }

    #[test]
    fn rows_of_the_typescript_package_are_read() {
        let read = |payload: &str| {
            ScheduledJob::of_job(&Job {
                id: "x".into(),
                function: "hello".into(),
                at: 5,
                payload: payload.into(),
            })
        };
        let cron = r#"{"payload":null,"retry":{"maxAttempts":5},"type":"cron","cron":"0 12 * * *","owner_path":null,"owner_path_key":null}"#;
        assert!(matches!(
            read(cron).unwrap().unwrap().repeats,
            Repeats::Cron { .. }
        ));
        let delayed = r#"{"payload":{"a":1},"type":"delayed","delayInSeconds":3600,"owner_path":null,"owner_path_key":null}"#;
        assert_eq!(
            read(delayed).unwrap().unwrap().payload::<Value>().unwrap(),
            json!({"a": 1})
        );
        let queued = r#"{"payload":{"q":1},"owner_path":null,"owner_path_key":null}"#;
        assert_eq!(read(queued).unwrap().unwrap().repeats, Repeats::Scheduled);
        let inner = r#"{"payload":1,"type":"scheduled","owner_path":"[]","owner_path_key":"x"}"#;
        assert_eq!(read(inner).unwrap(), None);
        assert!(read("no").is_err());
    }
}
