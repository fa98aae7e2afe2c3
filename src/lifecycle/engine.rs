//! Runs jobs: one alarm for all of them, set only when it has to change.
//!
//! Before anything is run the alarm is set to a little later. Should the object go down meanwhile,
//! for whatever reason, it is woken again and finds in the table what it was doing.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::future::{Either, join_all, select};
use futures::stream;

use super::jobs::{self, JobPolicy, LATEST, Present};
use crate::ports::{Alarm, Clock, Job, JobOutcome, JobRow, JobStore, Jobs, StoreError, Timestamp};
use crate::{Error, Result};

/// Where jobs are done.
#[async_trait(?Send)]
pub(crate) trait Dispatch {
    /// Does a job.
    async fn run(&self, owner: &str, job: &Job) -> Result<JobOutcome>;
    /// A job has failed for good; decides what becomes of it.
    async fn failed(&self, owner: &str, job: &Job, error: &Error) -> Result<JobOutcome>;
    /// How many jobs of this owner run at a time.
    fn at_once(&self, owner: &str) -> usize;
    /// For the log.
    fn report(&self, text: &str);
}

pub(crate) struct Engine {
    store: Rc<dyn JobStore>,
    alarm: Rc<dyn Alarm>,
    clock: Rc<dyn Clock>,
    policy: Cell<JobPolicy>,
    owners: RefCell<BTreeSet<&'static str>>,
    armed: Cell<Armed>,
    /// How many drives are under way. While there is one, it alone touches the alarm.
    driving: Cell<u32>,
    /// What runs in this instance, since when.
    running: RefCell<BTreeMap<String, Timestamp>>,
    /// Which of those were pushed or cancelled meanwhile.
    touched: RefCell<BTreeSet<String>>,
}

/// What is known of the alarm.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Armed {
    /// Nothing: it may have been set before the object was in memory.
    Unknown,
    /// What we have set it to.
    Known(Option<Timestamp>),
}

impl Engine {
    /// While this is held, the alarm stays where it is.
    pub(crate) fn hold(&self) -> Drive<'_> {
        Drive::new(&self.driving)
    }

    pub(crate) fn new(store: Rc<dyn JobStore>, alarm: Rc<dyn Alarm>, clock: Rc<dyn Clock>) -> Self {
        Self {
            store,
            alarm,
            clock,
            policy: Cell::default(),
            owners: RefCell::default(),
            armed: Cell::new(Armed::Unknown),
            driving: Cell::new(0),
            running: RefCell::default(),
            touched: RefCell::default(),
        }
    }

    pub(crate) fn set_policy(&self, policy: JobPolicy) {
        self.policy.set(policy);
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// From now on the jobs of this owner are run.
    pub(crate) fn add_owner(&self, owner: &'static str) {
        self.owners.borrow_mut().insert(owner);
    }

    /// The storage has been wiped.
    pub(crate) fn forget(&self) {
        self.armed.set(Armed::Known(None));
    }

    /// Plans a job, in place of the one with the same id.
    pub(crate) fn push(&self, row: &JobRow) -> Result<(), StoreError> {
        check(row)?;
        let replaced = self.store.get(&row.id)?;
        if let Some(other) = replaced.as_ref().filter(|other| other.owner != row.owner) {
            return Err(StoreError(format!(
                "Job id \"{}\" already belongs to \"{}\"; job ids are scoped to their owner",
                row.id, other.owner
            )));
        }
        self.touch(&row.id);
        // A start pushes what the start before it has pushed: that writes nothing, and `settle`
        // looks after the alarm.
        if replaced.as_ref() == Some(row) {
            return match self.armed.get() {
                Armed::Unknown => Ok(()),
                Armed::Known(_) => self.rearm(None),
            };
        }
        self.store.put(row)?;
        let was_next = |known| replaced.as_ref().is_some_and(|old| Some(old.at) == known);
        match self.armed.get() {
            Armed::Known(Some(next)) if next <= row.at && !was_next(Some(next)) => Ok(()),
            Armed::Known(_) | Armed::Unknown => self.rearm(replaced.map(|old| old.at)),
        }
    }

    /// Takes a job of this owner out of the plan and says whether it was there.
    pub(crate) fn cancel(&self, owner: &str, id: &str) -> Result<bool, StoreError> {
        let Some(row) = self.owned(owner, id)? else {
            return Ok(false);
        };
        self.touch(id);
        self.store.delete(id)?;
        self.store.set_strikes(id, 0)?;
        if self.armed.get() == Armed::Unknown || self.armed.get() == Armed::Known(Some(row.at)) {
            self.rearm(Some(row.at))?;
        }
        Ok(true)
    }

    /// One job of this owner.
    pub(crate) fn owned(&self, owner: &str, id: &str) -> Result<Option<JobRow>, StoreError> {
        Ok(self.store.get(id)?.filter(|row| row.owner == owner))
    }

    /// The jobs of this owner, the earliest first.
    pub(crate) fn list(&self, owner: &str) -> Result<Vec<JobRow>, StoreError> {
        let mut rows = self.store.list()?;
        rows.retain(|row| row.owner == owner);
        Ok(rows)
    }

    /// The object has started: makes sure that the alarm goes off in time. Writes nothing when it
    /// does.
    pub(crate) async fn settle(&self) -> Result<(), StoreError> {
        if self.armed.get() != Armed::Unknown {
            return Ok(());
        }
        let Some(wanted) = self.next_alarm()? else {
            return Ok(());
        };
        let set_for = self.alarm.get().await?;
        // Somebody was quicker, and knew what is wanted.
        if self.armed.get() != Armed::Unknown {
            return Ok(());
        }
        match set_for {
            Some(earlier) if earlier <= wanted => self.armed.set(Armed::Known(set_for)),
            Some(_) | None => self.set(wanted),
        }
        Ok(())
    }

    /// The alarm has gone off. Sets the next one before anything can go wrong.
    pub(crate) fn begin(&self) -> Result<(), StoreError> {
        self.armed.set(Armed::Known(None));
        let Some(wanted) = self.next_alarm()? else {
            return Ok(());
        };
        let now = self.clock.now();
        if wanted <= now {
            self.set(jobs::fallback(self.policy.get(), wanted, now));
        } else {
            self.set(wanted);
        }
        Ok(())
    }

    /// Runs what is due, each at most once: of every owner in order, and owners beside each other.
    /// `work` comes last: the host's own handler of the alarm. Then the alarm is set to when it is
    /// needed next.
    pub(crate) async fn drive<F: Future>(
        &self,
        dispatch: &dyn Dispatch,
        work: F,
    ) -> Result<F::Output, StoreError> {
        let drive = self.hold();
        let rows = self.store.list()?;
        self.report_strangers(&rows, dispatch);
        let due = self.present(|present| present.due(&rows, self.clock.now()));
        drop(rows);
        if let Some(due_since) = due.iter().map(|row| row.at).min() {
            let fallback = jobs::fallback(self.policy.get(), due_since, self.clock.now());
            let is_early = |armed| matches!(armed, Armed::Known(Some(at)) if at <= fallback);
            if !is_early(self.armed.get()) {
                self.set(fallback);
            }
        }
        for (owner, count) in jobs::crowds(&due) {
            dispatch.report(&format!("{count} jobs of \"{owner}\" are due at once"));
        }
        let (interrupted, fresh): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|row| self.is_interrupted(row));
        self.run_beside_each_other(fresh, dispatch).await?;
        // What may take the instance down runs alone, so that nobody else is held to have done it.
        for row in interrupted {
            self.run(&row.id, dispatch).await?;
        }
        let outcome = work.await;
        drop(drive);
        self.finish().await?;
        Ok(outcome)
    }

    async fn run_beside_each_other(
        &self,
        rows: Vec<JobRow>,
        dispatch: &dyn Dispatch,
    ) -> Result<(), StoreError> {
        let mut owners = BTreeMap::<String, Vec<String>>::new();
        for row in rows {
            owners.entry(row.owner).or_default().push(row.id);
        }
        let of_one = |(owner, ids): (String, Vec<String>)| async move {
            stream::iter(ids)
                .map(|id| async move { self.run(&id, dispatch).await })
                .buffer_unordered(dispatch.at_once(&owner).max(1))
                .collect::<Vec<_>>()
                .await
        };
        // To the end of all, whatever comes of each.
        let outcomes = join_all(owners.into_iter().map(of_one)).await;
        outcomes.into_iter().flatten().collect()
    }

    async fn run(&self, id: &str, dispatch: &dyn Dispatch) -> Result<(), StoreError> {
        // Another job may have moved it, or taken it out of the plan.
        let Some(row) = self.store.get(id)? else {
            return Ok(());
        };
        let now = self.clock.now();
        if row.at > now || !self.owners.borrow().contains(row.owner.as_str()) {
            return Ok(());
        }
        let job = job_of(&row);
        if self.is_interrupted(&row) {
            let strikes = self.store.strikes(id)?.saturating_add(1);
            if strikes >= self.policy.get().most_strikes {
                return self.give_up(&row, &job, strikes, dispatch).await;
            }
            self.store.set_strikes(id, strikes)?;
            dispatch.report(&format!(
                "job \"{id}\" of \"{}\" was interrupted, and runs again",
                row.owner
            ));
        }
        self.store.set_started(id, Some(now))?;
        self.running.borrow_mut().insert(id.to_owned(), now);
        self.touched.borrow_mut().remove(id);
        let outcome = self.try_and_retry(&row, &job, dispatch).await;
        self.running.borrow_mut().remove(id);
        self.store.set_strikes(id, 0)?;
        // What was said meanwhile is newer than what the run makes of it.
        if self.touched.borrow_mut().remove(id) {
            return self.store.set_started(id, None);
        }
        match outcome {
            JobOutcome::Done => self.store.delete(id).map(drop),
            JobOutcome::Again(at) => self.store.reschedule(id, at.min(LATEST)),
            JobOutcome::Yield => self.store.set_started(id, None),
        }
    }

    async fn try_and_retry(&self, row: &JobRow, job: &Job, dispatch: &dyn Dispatch) -> JobOutcome {
        let retry = jobs::retry_of(row);
        let mut failed = 0;
        loop {
            let error = match self.try_once(row, job, dispatch).await {
                Ok(outcome) => return outcome,
                Err(error) => error,
            };
            failed += 1;
            let is_over = failed >= retry.max_attempts || self.touched.borrow().contains(&row.id);
            if !is_over {
                let random = getrandom::u64().unwrap_or(u64::MAX / 2);
                self.clock.sleep(retry.delay(failed, random)).await;
                continue;
            }
            dispatch.report(&format!(
                "job \"{}\" of \"{}\" failed: {}",
                row.id,
                row.owner,
                error.describe()
            ));
            return decide(&row.owner, job, &error, dispatch).await;
        }
    }

    async fn try_once(
        &self,
        row: &JobRow,
        job: &Job,
        dispatch: &dyn Dispatch,
    ) -> Result<JobOutcome> {
        let limit = self.policy.get().longest_run;
        let work = dispatch.run(&row.owner, job);
        match select(work, self.clock.sleep(limit)).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(((), _)) => Err(Error::Timeout {
                what: format!("job \"{}\"", row.id),
                after: limit,
            }),
        }
    }

    /// A job that keeps taking the instance down, and every object of the isolate with it. It is
    /// out of the plan before its owner hears of it.
    async fn give_up(
        &self,
        row: &JobRow,
        job: &Job,
        strikes: u32,
        dispatch: &dyn Dispatch,
    ) -> Result<(), StoreError> {
        let (id, owner) = (&row.id, &row.owner);
        self.store.delete(id)?;
        self.store.set_strikes(id, 0)?;
        let error = Error::Runtime(format!(
            "job \"{id}\" of \"{owner}\" is given up: {strikes} runs in a row did not come to their end"
        ));
        dispatch.report(&error.describe());
        match decide(owner, job, &error, dispatch).await {
            JobOutcome::Done | JobOutcome::Yield => Ok(()),
            JobOutcome::Again(at) => {
                let at = at.min(LATEST);
                let again = JobRow {
                    at,
                    started_at: None,
                    ..row.clone()
                };
                self.store.put(&again)
            }
        }
    }

    /// Everything due has been run: sets the alarm to when it is needed next, or clears ours.
    async fn finish(&self) -> Result<(), StoreError> {
        let Armed::Known(ours) = self.armed.get() else {
            return Ok(());
        };
        let set_for = self.alarm.get().await?;
        if self.driving.get() > 0 || self.armed.get() != Armed::Known(ours) {
            return Ok(());
        }
        match (self.next_alarm()?, set_for) {
            // The host has set its own, and it comes first.
            (Some(wanted), Some(theirs)) if set_for != ours && theirs <= wanted => {
                self.armed.set(Armed::Known(set_for));
            }
            (Some(wanted), _) if set_for != Some(wanted) => self.set(wanted),
            (Some(wanted), _) => self.armed.set(Armed::Known(Some(wanted))),
            (None, Some(theirs)) if set_for != ours => {
                let _ = theirs;
                self.armed.set(Armed::Known(None));
            }
            (None, _) => self.disarm(),
        }
        Ok(())
    }

    /// Something was planned or taken out. `was` is when it would have run before.
    fn rearm(&self, was: Option<Timestamp>) -> Result<(), StoreError> {
        // A drive does it at its end.
        if self.driving.get() > 0 {
            return Ok(());
        }
        match (self.next_alarm()?, self.armed.get()) {
            (Some(wanted), Armed::Known(Some(set_for))) if wanted == set_for => {}
            (Some(wanted), _) => self.set(wanted),
            (None, Armed::Known(_)) => self.disarm(),
            (None, Armed::Unknown) => {
                if let Some(was) = was {
                    self.alarm.clear(was);
                }
            }
        }
        Ok(())
    }

    fn set(&self, at: Timestamp) {
        self.armed.set(Armed::Known(Some(at)));
        self.alarm.set(at);
    }

    fn disarm(&self) {
        if let Armed::Known(Some(ours)) = self.armed.replace(Armed::Known(None)) {
            self.alarm.clear(ours);
        }
    }

    /// Whether a run of it has begun in an instance that is gone.
    fn is_interrupted(&self, row: &JobRow) -> bool {
        row.started_at.is_some() && !self.running.borrow().contains_key(&row.id)
    }

    fn touch(&self, id: &str) {
        if self.running.borrow().contains_key(id) {
            self.touched.borrow_mut().insert(id.to_owned());
        }
    }

    fn next_alarm(&self) -> Result<Option<Timestamp>, StoreError> {
        let rows = self.store.list()?;
        Ok(self.present(|present| present.next_alarm(&rows)))
    }

    fn present<T>(&self, decide: impl FnOnce(&Present<'_>) -> T) -> T {
        let (owners, running) = (self.owners.borrow(), self.running.borrow());
        decide(&Present {
            owns: &|owner| owners.contains(owner),
            running: &running,
        })
    }

    fn report_strangers(&self, rows: &[JobRow], dispatch: &dyn Dispatch) {
        let now = self.clock.now();
        let owners = self.owners.borrow();
        let strangers: BTreeSet<&str> = rows
            .iter()
            .filter(|row| row.at <= now && !owners.contains(row.owner.as_str()))
            .map(|row| row.owner.as_str())
            .collect();
        for owner in strangers {
            dispatch.report(&format!(
                "jobs of \"{owner}\" are due and stay, since no such capability is installed"
            ));
        }
    }
}

/// The jobs of one capability.
pub(crate) struct OwnedJobs {
    pub(crate) engine: Rc<Engine>,
    pub(crate) owner: &'static str,
}

impl Jobs for OwnedJobs {
    fn push(&self, job: &Job) -> Result<(), StoreError> {
        self.engine.push(&JobRow {
            id: job.id.clone(),
            owner: self.owner.to_owned(),
            function: job.function.clone(),
            at: job.at,
            payload: Some(job.payload.clone()),
            retry: None,
            single_flight: false,
            hung_after: None,
            exclusive: false,
            recovery_loop: false,
            started_at: None,
        })
    }

    fn cancel(&self, id: &str) -> Result<bool, StoreError> {
        self.engine.cancel(self.owner, id)
    }

    fn list(&self) -> Result<Vec<Job>, StoreError> {
        let rows = self.engine.list(self.owner)?;
        Ok(rows.iter().map(job_of).collect())
    }
}

/// A number that goes up while a drive is under way.
pub(crate) struct Drive<'a>(&'a Cell<u32>);

impl<'a> Drive<'a> {
    fn new(count: &'a Cell<u32>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Drive<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

async fn decide(owner: &str, job: &Job, error: &Error, dispatch: &dyn Dispatch) -> JobOutcome {
    match dispatch.failed(owner, job, error).await {
        Ok(outcome) => outcome,
        Err(error) => {
            let id = &job.id;
            dispatch.report(&format!("failure of job \"{id}\": {}", error.describe()));
            JobOutcome::Done
        }
    }
}

fn check(row: &JobRow) -> Result<(), StoreError> {
    if row.at > LATEST {
        return Err(StoreError(format!("Invalid job time: {}", row.at)));
    }
    if row.function.is_empty() {
        return Err(StoreError("Jobs require a non-empty fn".into()));
    }
    if row.id.is_empty() {
        return Err(StoreError("Jobs require a non-empty id".into()));
    }
    Ok(())
}

pub(super) fn job_of(row: &JobRow) -> Job {
    Job {
        id: row.id.clone(),
        function: row.function.clone(),
        at: row.at,
        payload: row.payload.clone().unwrap_or_else(|| "null".to_owned()),
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
