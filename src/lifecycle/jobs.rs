//! The rules of jobs: what is due, and when to wake next. Rows and the time come in, decisions go
//! out.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ports::{JobRow, Timestamp};
use crate::retry::RetryOptions;

/// How jobs are tried that say nothing of it themselves.
pub(crate) const GENERIC_RETRY: RetryOptions = RetryOptions {
    max_attempts: 3,
    base_delay: Duration::from_millis(100),
    max_delay: Duration::from_secs(3),
};

/// From so many due jobs of one owner on, something plans faster than it works.
pub(crate) const MANY: usize = 10;

/// The latest time that JavaScript knows.
pub(crate) const LATEST: Timestamp = 8_640_000_000_000_000;

/// The limits of running jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobPolicy {
    /// When the object is woken again to finish what it was doing, should it go down meanwhile. It
    /// takes longer when that goes on, up to ten times as long.
    pub fallback: Duration,
    /// How long one try of a job may take. Then it is dropped, as if it had failed.
    pub longest_run: Duration,
    /// After how many runs in a row that ended with the whole instance a job is given up.
    pub most_strikes: u32,
}

impl Default for JobPolicy {
    fn default() -> Self {
        Self {
            fallback: Duration::from_secs(30),
            // The platform ends an alarm after 15 minutes.
            longest_run: Duration::from_mins(10),
            most_strikes: 3,
        }
    }
}

impl JobPolicy {
    /// The same, with another time until the object is woken again after it went down.
    #[must_use]
    pub fn fallback(mut self, fallback: Duration) -> Self {
        self.fallback = fallback;
        self
    }

    /// The same, with another limit of one try.
    #[must_use]
    pub fn longest_run(mut self, longest_run: Duration) -> Self {
        self.longest_run = longest_run;
        self
    }

    /// The same, with another number of runs that may take the instance down.
    #[must_use]
    pub fn most_strikes(mut self, most_strikes: u32) -> Self {
        self.most_strikes = most_strikes;
        self
    }
}

/// Who is there to run jobs, and what is running in this instance since when.
pub(crate) struct Present<'a> {
    pub(crate) owns: &'a dyn Fn(&str) -> bool,
    pub(crate) running: &'a BTreeMap<String, Timestamp>,
}

impl Present<'_> {
    /// The jobs that count. One whose owner is not here stays as it is, for whoever knows it: the
    /// same storage is opened by the TypeScript package, which has other capabilities.
    fn runnable<'r>(&self, rows: &'r [JobRow]) -> Vec<&'r JobRow> {
        let mine: Vec<_> = rows.iter().filter(|row| (self.owns)(&row.owner)).collect();
        let exclusive: Vec<_> = mine.iter().copied().filter(|row| row.exclusive).collect();
        if exclusive.is_empty() {
            mine
        } else {
            exclusive
        }
    }

    /// From when on it may run.
    fn free_at(&self, row: &JobRow) -> Timestamp {
        let hung_at = self
            .running
            .get(&row.id)
            .map(|since| since.saturating_add(hung_after(row)));
        row.at.max(hung_at.unwrap_or_default())
    }

    /// When the object has to wake next. None when nothing is planned.
    pub(crate) fn next_alarm(&self, rows: &[JobRow]) -> Option<Timestamp> {
        self.runnable(rows)
            .into_iter()
            .map(|row| self.free_at(row))
            .min()
    }

    /// What is to be run now, in this order.
    pub(crate) fn due(&self, rows: &[JobRow], now: Timestamp) -> Vec<JobRow> {
        let mut due: Vec<_> = self
            .runnable(rows)
            .into_iter()
            .filter(|row| self.free_at(row) <= now)
            .cloned()
            .collect();
        due.sort_by_key(|row| row.at);
        due
    }
}

/// When the object is woken again should it go down now. What has been due for long has most likely
/// taken it down before, or its startup has: then it is left in peace for longer, up to a limit.
pub(crate) fn fallback(policy: JobPolicy, due_since: Timestamp, now: Timestamp) -> Timestamp {
    const LONGEST: u64 = 10;
    let usual = u64::try_from(policy.fallback.as_millis()).unwrap_or(u64::MAX);
    let late = now.saturating_sub(due_since);
    let wait = late.min(usual.saturating_mul(LONGEST)).max(usual);
    now.saturating_add(wait).min(LATEST)
}

/// Owners that have so many jobs due that it is worth a warning.
pub(crate) fn crowds(due: &[JobRow]) -> Vec<(&str, usize)> {
    let mut counts = BTreeMap::<&str, usize>::new();
    for row in due {
        *counts.entry(&row.owner).or_default() += 1;
    }
    counts
        .into_iter()
        .filter(|(_, count)| *count >= MANY)
        .collect()
}

/// How a job is retried.
pub(crate) fn retry_of(row: &JobRow) -> RetryOptions {
    let stored = row
        .retry
        .as_deref()
        .and_then(|json| serde_json::from_str::<RetryOptions>(json).ok());
    stored
        .filter(|retry| retry.validate().is_ok())
        .unwrap_or(GENERIC_RETRY)
}

fn hung_after(row: &JobRow) -> u64 {
    const DEFAULT: u64 = 30;
    row.hung_after.unwrap_or(DEFAULT).saturating_mul(1000)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn row(id: &str, at: Timestamp) -> JobRow {
        JobRow {
            id: id.into(),
            owner: "mine".into(),
            function: "work".into(),
            at,
            payload: None,
            retry: None,
            single_flight: false,
            hung_after: None,
            exclusive: false,
            recovery_loop: false,
            started_at: None,
        }
    }

    fn decide(
        rows: &[JobRow],
        running: &[(&str, Timestamp)],
        now: Timestamp,
    ) -> (Option<Timestamp>, Vec<String>) {
        let running = running
            .iter()
            .map(|(id, since)| ((*id).to_owned(), *since))
            .collect();
        let present = Present {
            owns: &|owner| owner == "mine",
            running: &running,
        };
        let due = present.due(rows, now);
        (
            present.next_alarm(rows),
            due.into_iter().map(|row| row.id).collect(),
        )
    }

    #[test]
    fn the_earliest_job_sets_the_alarm_and_due_ones_run_in_order() {
        assert_eq!(decide(&[], &[], 100), (None, vec![]));
        let rows = [row("c", 101), row("b", 100), row("a", 50)];
        assert_eq!(
            decide(&rows, &[], 100),
            (Some(50), vec!["a".into(), "b".into()])
        );
    }

    #[test]
    fn jobs_of_others_do_not_count() {
        let other = JobRow {
            owner: "theirs".into(),
            exclusive: true,
            ..row("x", 1)
        };
        assert_eq!(
            decide(std::slice::from_ref(&other), &[], 100),
            (None, vec![])
        );
        assert_eq!(
            decide(&[other, row("a", 50)], &[], 100),
            (Some(50), vec!["a".into()])
        );
    }

    #[test]
    fn an_exclusive_job_holds_back_everything_else() {
        let exclusive = JobRow {
            exclusive: true,
            ..row("x", 200)
        };
        let rows = [row("a", 50), exclusive];
        assert_eq!(decide(&rows, &[], 100), (Some(200), vec![]));
        assert_eq!(decide(&rows, &[], 200), (Some(200), vec!["x".into()]));
    }

    #[test]
    fn what_runs_is_looked_at_again_when_it_counts_as_hung() {
        let rows = [row("a", 50)];
        assert_eq!(
            decide(&rows, &[("a", 1000)], 30_999),
            (Some(31_000), vec![])
        );
        assert_eq!(
            decide(&rows, &[("a", 1000)], 31_000),
            (Some(31_000), vec!["a".into()])
        );
        let patient = [JobRow {
            hung_after: Some(60),
            ..row("a", 50)
        }];
        assert_eq!(decide(&patient, &[("a", 1000)], 31_000).0, Some(61_000));
    }

    #[test]
    fn a_run_of_an_instance_that_is_gone_holds_nothing_back() {
        let rows = [JobRow {
            started_at: Some(90),
            single_flight: true,
            ..row("a", 50)
        }];
        assert_eq!(decide(&rows, &[], 100), (Some(50), vec!["a".into()]));
    }

    #[test]
    fn an_object_that_keeps_going_down_is_woken_less_and_less_often() {
        let policy = JobPolicy::default();
        for (late, wait) in [
            (0, 30_000),
            (30_000, 30_000),
            (90_000, 90_000),
            (u64::MAX, 300_000),
        ] {
            let now = 1 << 40;
            let due_since = u64::saturating_sub(now, late);
            assert_eq!(fallback(policy, due_since, now), now + wait);
        }
    }

    #[test]
    fn ten_due_jobs_of_one_owner_are_a_crowd() {
        let due: Vec<_> = (0..9).map(|n| row(&n.to_string(), n)).collect();
        assert_eq!(crowds(&due), []);
        let due: Vec<_> = (0..10).map(|n| row(&n.to_string(), n)).collect();
        assert_eq!(crowds(&due), [("mine", 10)]);
    }

    #[test]
    fn a_retry_policy_that_cannot_be_used_is_the_usual_one() {
        assert_eq!(retry_of(&row("a", 0)), GENERIC_RETRY);
        for json in ["no", "{\"maxAttempts\":0}", "{\"baseDelayMs\":1e9}"] {
            let row = JobRow {
                retry: Some(json.into()),
                ..row("a", 0)
            };
            assert_eq!(retry_of(&row), GENERIC_RETRY, "{json}");
        }
        let own = r#"{"maxAttempts":5,"baseDelayMs":1,"maxDelayMs":2}"#;
        let row = JobRow {
            retry: Some(own.into()),
            ..row("a", 0)
        };
        assert_eq!(retry_of(&row).max_attempts, 5);
    }
}
