use std::task::Context;
use std::time::Duration;

use futures::executor::{LocalPool, block_on};
use futures::future::LocalBoxFuture;
use futures::task::LocalSpawnExt as _;

use super::super::jobs::tests::row;
use super::*;

/// One object: what is on its disk, the platform's alarm, and the time.
#[derive(Default)]
struct Disk {
    rows: RefCell<BTreeMap<String, JobRow>>,
    strikes: RefCell<BTreeMap<String, u32>>,
    /// Statements that changed something.
    writes: Cell<u32>,
    alarm: Cell<Option<Timestamp>>,
    alarm_writes: Cell<u32>,
    now: Cell<Timestamp>,
}

impl Disk {
    fn write(&self) {
        self.writes.set(self.writes.get() + 1);
    }
}

impl JobStore for Disk {
    fn list(&self) -> Result<Vec<JobRow>, StoreError> {
        let mut rows: Vec<_> = self.rows.borrow().values().cloned().collect();
        rows.sort_by_key(|row| row.at);
        Ok(rows)
    }

    fn get(&self, id: &str) -> Result<Option<JobRow>, StoreError> {
        Ok(self.rows.borrow().get(id).cloned())
    }

    fn put(&self, row: &JobRow) -> Result<(), StoreError> {
        self.write();
        self.rows.borrow_mut().insert(row.id.clone(), row.clone());
        Ok(())
    }

    fn delete(&self, id: &str) -> Result<bool, StoreError> {
        self.write();
        Ok(self.rows.borrow_mut().remove(id).is_some())
    }

    fn set_started(&self, id: &str, at: Option<Timestamp>) -> Result<(), StoreError> {
        self.write();
        if let Some(row) = self.rows.borrow_mut().get_mut(id) {
            row.started_at = at;
        }
        Ok(())
    }

    fn reschedule(&self, id: &str, at: Timestamp) -> Result<(), StoreError> {
        self.write();
        if let Some(row) = self.rows.borrow_mut().get_mut(id) {
            (row.at, row.started_at) = (at, None);
        }
        Ok(())
    }

    fn strikes(&self, id: &str) -> Result<u32, StoreError> {
        Ok(self.strikes.borrow().get(id).copied().unwrap_or_default())
    }

    fn set_strikes(&self, id: &str, strikes: u32) -> Result<(), StoreError> {
        self.strikes.borrow_mut().insert(id.to_owned(), strikes);
        Ok(())
    }
}

struct Platform(Rc<Disk>);

#[async_trait(?Send)]
impl Alarm for Platform {
    fn set(&self, at: Timestamp) {
        self.0.alarm.set(Some(at));
        self.0.alarm_writes.set(self.0.alarm_writes.get() + 1);
    }

    fn clear(&self, at: Timestamp) {
        if self.0.alarm.get() == Some(at) {
            self.0.alarm.set(None);
            self.0.alarm_writes.set(self.0.alarm_writes.get() + 1);
        }
    }

    async fn get(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.0.alarm.get())
    }
}

impl Clock for Platform {
    fn now(&self) -> Timestamp {
        self.0.now.get()
    }

    /// Short ones are over at once, and long ones never.
    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()> {
        if duration < Duration::from_mins(1) {
            let millis = u64::try_from(duration.as_millis()).unwrap();
            self.0.now.set(self.0.now.get() + millis);
            Box::pin(async {})
        } else {
            Box::pin(futures::future::pending())
        }
    }
}

/// Does a job as the test says, and notes which.
type Work = Rc<dyn Fn(&Engine, &Job) -> LocalBoxFuture<'static, Result<JobOutcome>>>;

struct Worker {
    engine: Rc<Engine>,
    work: Work,
    after_failure: JobOutcome,
    at_once: usize,
    done: RefCell<Vec<String>>,
    log: RefCell<Vec<String>>,
}

#[async_trait(?Send)]
impl Dispatch for Worker {
    async fn run(&self, _: &str, job: &Job) -> Result<JobOutcome> {
        self.done.borrow_mut().push(job.id.clone());
        (self.work)(&self.engine, job).await
    }

    async fn failed(&self, _: &str, _: &Job, _: &Error) -> Result<JobOutcome> {
        Ok(self.after_failure)
    }

    fn at_once(&self, _: &str) -> usize {
        self.at_once
    }

    fn report(&self, text: &str) {
        self.log.borrow_mut().push(text.to_owned());
    }
}

struct Object {
    disk: Rc<Disk>,
    worker: Worker,
}

impl Object {
    /// A new instance on the same disk.
    fn wake(disk: &Rc<Disk>, work: Work) -> Self {
        let engine = Rc::new(Engine::new(
            disk.clone(),
            Rc::new(Platform(disk.clone())),
            Rc::new(Platform(disk.clone())),
        ));
        engine.add_owner("mine");
        let worker = Worker {
            engine,
            work,
            after_failure: JobOutcome::Done,
            at_once: 1,
            done: RefCell::default(),
            log: RefCell::default(),
        };
        Self {
            disk: disk.clone(),
            worker,
        }
    }

    fn new(work: Work) -> Self {
        let object = Self::wake(&Rc::new(Disk::default()), work);
        object.disk.now.set(1_000_000);
        block_on(object.engine().settle()).unwrap();
        object
    }

    fn engine(&self) -> &Engine {
        &self.worker.engine
    }

    fn push(&self, id: &str, at: Timestamp) {
        self.engine().push(&row(id, at)).unwrap();
    }

    fn alarm(&self) -> Option<Timestamp> {
        self.disk.alarm.get()
    }

    /// The alarm goes off, at its time or later.
    fn ring(&self) -> Vec<String> {
        block_on(self.ringing());
        self.worker.done.take()
    }

    async fn ringing(&self) {
        let at = self.disk.alarm.take().unwrap();
        self.disk.now.set(self.disk.now.get().max(at));
        self.engine().begin().unwrap();
        self.engine().drive(&self.worker, async {}).await.unwrap();
    }

    /// The alarm goes off, and the object goes down where the first job waits.
    fn ring_and_crash(&self) {
        let ringing = self.ringing();
        let mut context = Context::from_waker(futures::task::noop_waker_ref());
        let mut ringing = Box::pin(ringing);
        assert!(ringing.as_mut().poll(&mut context).is_pending());
    }
}

fn always(outcome: JobOutcome) -> Work {
    Rc::new(move |_, _| Box::pin(async move { Ok(outcome) }))
}

fn done() -> Work {
    always(JobOutcome::Done)
}

fn never() -> Work {
    Rc::new(|_, _| Box::pin(futures::future::pending()))
}

fn failing() -> Work {
    Rc::new(|_, _| Box::pin(async { Err(Error::Closed) }))
}

const NOW: Timestamp = 1_000_000;

#[test]
fn nothing_planned_writes_nothing() {
    let object = Object::new(done());
    assert!(!object.engine().cancel("mine", "x").unwrap());
    assert_eq!(object.engine().list("mine").unwrap(), []);
    assert_eq!(
        (object.disk.writes.get(), object.disk.alarm_writes.get()),
        (0, 0)
    );
}

#[test]
fn the_alarm_follows_the_earliest_job_and_is_written_only_when_it_moves() {
    let object = Object::new(done());
    object.push("b", NOW + 500);
    object.push("c", NOW + 900);
    assert_eq!(
        (object.alarm(), object.disk.alarm_writes.get()),
        (Some(NOW + 500), 1)
    );
    object.push("a", NOW + 100);
    assert_eq!(
        (object.alarm(), object.disk.alarm_writes.get()),
        (Some(NOW + 100), 2)
    );
    object.push("a", NOW + 700);
    assert_eq!(object.alarm(), Some(NOW + 500));
    object.engine().cancel("mine", "b").unwrap();
    assert_eq!(object.alarm(), Some(NOW + 700));
    object.engine().cancel("mine", "c").unwrap();
    assert_eq!(object.disk.alarm_writes.get(), 4);
    object.engine().cancel("mine", "a").unwrap();
    assert_eq!(object.alarm(), None);
}

#[test]
fn due_jobs_run_once_and_the_alarm_goes_on_to_the_next() {
    let object = Object::new(done());
    object.push("later", NOW + 900);
    object.push("b", NOW + 200);
    object.push("a", NOW + 100);
    object.disk.now.set(NOW + 300);
    assert_eq!(object.ring(), ["a", "b"]);
    assert_eq!(object.alarm(), Some(NOW + 900));
    assert_eq!(object.ring(), ["later"]);
    assert_eq!(object.alarm(), None);
    assert!(object.disk.rows.borrow().is_empty());
}

#[test]
fn an_outcome_moves_the_job_or_leaves_it_due() {
    let object = Object::new(always(JobOutcome::Again(NOW + 5000)));
    object.push("a", NOW);
    assert_eq!(object.ring(), ["a"]);
    assert_eq!(object.alarm(), Some(NOW + 5000));

    let object = Object::new(always(JobOutcome::Yield));
    object.push("a", NOW);
    object.push("b", NOW + 1);
    object.disk.now.set(NOW + 2);
    assert_eq!(object.ring(), ["a", "b"]);
    assert_eq!(object.alarm(), Some(NOW));
}

#[test]
fn a_failing_job_is_tried_three_times_then_its_owner_decides() {
    let mut object = Object::new(failing());
    object.push("a", NOW);
    assert_eq!(object.ring(), ["a", "a", "a"]);
    assert!(object.worker.log.take()[0].contains("failed"));
    assert_eq!(object.alarm(), None);
    assert!(object.disk.rows.borrow().is_empty());

    object.worker.after_failure = JobOutcome::Again(NOW + 60_000);
    let twice = r#"{"maxAttempts":2,"baseDelayMs":1,"maxDelayMs":1}"#;
    let patient = JobRow {
        retry: Some(twice.into()),
        ..row("a", NOW)
    };
    object.engine().push(&patient).unwrap();
    assert_eq!(object.ring(), ["a", "a"]);
    assert_eq!(object.alarm(), Some(NOW + 60_000));
}

#[test]
fn what_is_said_while_a_job_runs_wins_over_its_outcome() {
    let push = |at: Timestamp| -> Work {
        Rc::new(move |engine, job| {
            engine.push(&row(&job.id, at)).unwrap();
            Box::pin(async { Ok(JobOutcome::Done) })
        })
    };
    let object = Object::new(push(NOW + 7000));
    object.push("a", NOW);
    assert_eq!(object.ring(), ["a"]);
    assert_eq!(object.alarm(), Some(NOW + 7000));
    assert_eq!(object.disk.get("a").unwrap().unwrap().started_at, None);

    let object = Object::new(Rc::new(|engine, job| {
        engine.cancel("mine", &job.id).unwrap();
        Box::pin(async { Ok(JobOutcome::Again(NOW + 1)) })
    }));
    object.push("a", NOW);
    object.ring();
    assert_eq!((object.alarm(), object.disk.rows.borrow().len()), (None, 0));
}

#[test]
fn a_job_that_cancels_another_one_of_the_same_drive_keeps_it_from_running() {
    let object = Object::new(Rc::new(|engine, _| {
        engine.cancel("mine", "b").unwrap();
        Box::pin(async { Ok(JobOutcome::Done) })
    }));
    object.push("a", NOW);
    object.push("b", NOW + 1);
    object.disk.now.set(NOW + 2);
    assert_eq!(object.ring(), ["a"]);
}

#[test]
fn a_job_belongs_to_its_owner() {
    let object = Object::new(done());
    object.push("a", NOW);
    let theirs = JobRow {
        owner: "theirs".into(),
        ..row("a", NOW)
    };
    assert_eq!(
        object.engine().push(&theirs).unwrap_err().0,
        "Job id \"a\" already belongs to \"mine\"; job ids are scoped to their owner"
    );
    assert!(!object.engine().cancel("theirs", "a").unwrap());
    assert!(object.engine().push(&row("b", LATEST + 1)).is_err());
    assert!(object.engine().push(&row("", 1)).is_err());
}

#[test]
fn an_object_that_goes_down_comes_back_and_gives_up_at_last() {
    let disk = Rc::new(Disk::default());
    disk.now.set(NOW);
    Object::wake(&disk, never()).push("a", NOW);
    for (strike, wait) in [(0, 30_000), (1, 30_000), (2, 60_000)] {
        let object = Object::wake(&disk, never());
        object.ring_and_crash();
        assert_eq!(disk.strikes("a").unwrap(), strike);
        let fallback = disk.alarm.get().unwrap();
        assert_eq!(fallback, disk.now.get() + wait);
    }
    let object = Object::wake(&disk, never());
    assert_eq!(object.ring(), [""; 0]);
    assert!(object.worker.log.take()[0].contains("given up"));
    assert_eq!((disk.alarm.get(), disk.rows.borrow().len()), (None, 0));
    assert_eq!(disk.strikes("a").unwrap(), 0);
}

#[test]
fn what_was_interrupted_runs_alone_after_everybody_else() {
    let disk = Rc::new(Disk::default());
    disk.now.set(NOW);
    let first = Object::wake(&disk, never());
    first.push("a", NOW);
    first.ring_and_crash();
    Object::wake(&disk, never()).push("b", NOW);
    assert_eq!(Object::wake(&disk, done()).ring(), ["b", "a"]);
}

#[test]
fn a_capability_may_have_several_jobs_run_at_once() {
    for (at_once, begun) in [(1, 1), (2, 2), (9, 3)] {
        let mut object = Object::new(never());
        object.worker.at_once = at_once;
        for id in ["a", "b", "c"] {
            object.push(id, NOW);
        }
        object.ring_and_crash();
        assert_eq!(object.worker.done.borrow().len(), begun);
    }
}

#[test]
fn a_run_that_ends_takes_the_strikes_back() {
    let disk = Rc::new(Disk::default());
    disk.now.set(NOW);
    Object::wake(&disk, never()).push("a", NOW);
    Object::wake(&disk, never()).ring_and_crash();
    Object::wake(&disk, never()).ring_and_crash();
    let object = Object::wake(&disk, always(JobOutcome::Again(NOW + 1_000_000)));
    assert_eq!(object.ring(), ["a"]);
    assert_eq!(disk.strikes("a").unwrap(), 0);
    assert_eq!(disk.alarm.get(), Some(NOW + 1_000_000));
}

#[test]
fn a_job_that_hangs_fails_in_the_end() {
    let object = Object::new(never());
    object
        .engine()
        .set_policy(JobPolicy::default().longest_run(Duration::from_secs(1)));
    object.push("a", NOW);
    assert_eq!(object.ring(), ["a", "a", "a"]);
    assert!(object.disk.rows.borrow().is_empty());
}

#[test]
fn jobs_of_others_stay_untouched_and_cause_no_alarm() {
    let object = Object::new(done());
    let theirs = JobRow {
        owner: "theirs".into(),
        ..row("x", NOW)
    };
    object.disk.put(&theirs).unwrap();
    object.push("a", NOW);
    assert_eq!(object.ring(), ["a"]);
    assert_eq!(object.alarm(), None);
    assert_eq!(object.disk.get("x").unwrap(), Some(theirs));
}

#[test]
fn a_wake_sets_the_alarm_only_when_it_is_missing_or_late() {
    for (set_for, writes, then) in [
        (None, 1, NOW + 500),
        (Some(NOW + 900), 1, NOW + 500),
        (Some(NOW + 500), 0, NOW + 500),
        (Some(NOW + 100), 0, NOW + 100),
    ] {
        let disk = Rc::new(Disk::default());
        disk.put(&row("a", NOW + 500)).unwrap();
        disk.alarm.set(set_for);
        let object = Object::wake(&disk, done());
        // What every start says again.
        object.push("a", NOW + 500);
        block_on(object.engine().settle()).unwrap();
        assert_eq!(
            (disk.alarm_writes.get(), disk.alarm.get(), disk.writes.get()),
            (writes, Some(then), 1)
        );
    }
}

#[test]
fn an_alarm_of_the_hosts_own_is_left_alone_when_there_are_no_jobs() {
    let object = Object::new(done());
    object.disk.alarm.set(Some(NOW + 10));
    let disk = object.disk.clone();
    block_on(async {
        disk.alarm.take();
        object.engine().begin().unwrap();
        let own = async { disk.alarm.set(Some(NOW + 20)) };
        object.engine().drive(&object.worker, own).await.unwrap();
    });
    assert_eq!(
        (object.alarm(), object.disk.alarm_writes.get()),
        (Some(NOW + 20), 0)
    );
}

#[test]
fn a_second_alarm_does_not_run_what_is_running() {
    let object = Rc::new(Object::new(never()));
    object.push("a", NOW);
    let mut pool = LocalPool::new();
    let first = object.clone();
    pool.spawner()
        .spawn_local(async move { first.ringing().await })
        .unwrap();
    pool.run_until_stalled();
    assert_eq!(object.worker.done.take(), ["a"]);
    let second = object.clone();
    object.disk.now.set(NOW + 29_000);
    object.disk.alarm.set(Some(NOW + 29_000));
    pool.spawner()
        .spawn_local(async move { second.ringing().await })
        .unwrap();
    pool.run_until_stalled();
    assert_eq!(object.worker.done.take(), [""; 0]);
}

#[test]
fn ten_due_jobs_are_worth_a_warning() {
    let object = Object::new(done());
    for n in 0..10 {
        object.push(&format!("job-{n}"), NOW);
    }
    object.ring();
    assert!(object.worker.log.take()[0].contains("10 jobs of \"mine\""));
}

#[test]
fn ports_hand_out_what_they_take() {
    let object = Object::new(done());
    let jobs = OwnedJobs {
        engine: object.worker.engine.clone(),
        owner: "mine",
    };
    let job = Job {
        id: "a".into(),
        function: "work".into(),
        at: NOW + 1,
        payload: "{}".into(),
    };
    jobs.push(&job).unwrap();
    assert_eq!(jobs.list().unwrap(), [job]);
    assert!(jobs.cancel("a").unwrap());
    assert_eq!(object.alarm(), None);
}
