//! Random sequences of operations, evictions and faults, against a model of the manager.
//!
//! `MODEL_SEED` runs one sequence, `MODEL_SEQUENCES` so many from there on.

mod judge;
mod object;
mod peers;
mod random;
mod steps;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use serde_json::json;
use workers_agents::events::Subscription;
use workers_agents::ports::{ServerRow, Spawn as _, TaskRow, TaskStore as _};
use workers_agents::{
    McpClientManager, McpClientOptions, ReconnectPolicy, RetryOptions, ServerFilter,
};

use self::judge::{Judge, Operation, Spec, Waking, Wish};
use self::object::{Broken, Entry, Object, Outcome, Outside};
use self::random::Random;
use self::steps::{Action, Again, IDS, SERVERS, Scenario, Step, Then};

const SEQUENCES: u64 = 2_000;

type Verdict = Result<(), String>;

/// One object, what is outside of it, and what is expected of both.
struct Play {
    outside: Rc<Outside>,
    options: McpClientOptions,
    object: Option<Object>,
    judge: Judge,
    heard: Rc<Heard>,
    subscription: Option<Subscription>,
    owners: u32,
    restored: bool,
}

/// What the listener has seen last, and when.
#[derive(Default)]
struct Heard {
    seen: RefCell<Vec<String>>,
    at: Cell<u64>,
    polls: Cell<u64>,
    is_early: Cell<bool>,
}

impl Play {
    fn new(seed: u64, broken: Broken) -> Self {
        let mut random = Random::new(!seed);
        let outside = Outside::new(broken, SERVERS);
        let mut options = McpClientOptions::default();
        options.reconnect = random.pick(&[
            ReconnectPolicy::Eager,
            ReconnectPolicy::Eager,
            ReconnectPolicy::Lazy,
            ReconnectPolicy::Never,
        ]);
        options.reconnect_concurrency = 1 + random.index(4);
        options.reconnect_later = RetryOptions::CONNECT;
        options.reconnect_later.max_attempts = random.pick(&[1, 3, 12]);
        for server in &outside.servers {
            server.era.set(random.pick(&[
                peers::Era::Modern,
                peers::Era::Legacy,
                peers::Era::Sessionless,
            ]));
        }
        let mut play = Self {
            judge: Judge::new(options.reconnect),
            outside,
            options,
            object: None,
            heard: Rc::default(),
            subscription: None,
            owners: 0,
            restored: false,
        };
        play.begin(Waking::Used);
        play
    }

    fn mcp(&self) -> McpClientManager {
        self.object.as_ref().unwrap().manager.clone()
    }

    fn begin(&mut self, waking: Waking) {
        let object = Object::new(&self.outside, &self.options);
        let mcp = object.manager.clone();
        self.object = Some(object);
        self.outside
            .limit
            .set(Some(self.options.reconnect_concurrency));
        self.judge.woken(waking, &self.outside);
        self.restored = false;
        self.heard = Rc::default();
        match waking {
            Waking::Used => self.restore(),
            Waking::ByAlarm => self.object.as_ref().unwrap().drive(&self.outside),
        }
        let heard = self.heard.clone();
        let (watched, outside) = (mcp.clone(), self.outside.clone());
        self.subscription = Some(mcp.on_server_state_changed(move || {
            let polls = heard.polls.get();
            if heard.at.get() == polls {
                heard.is_early.set(true);
            }
            heard.at.set(polls);
            heard.seen.replace(visible(&watched, &outside));
        }));
        if waking == Waking::ByAlarm {
            // The job remembers the servers.
            self.poll();
        }
        self.heard.seen.replace(visible(&mcp, &self.outside));
    }

    fn restore(&mut self) {
        if !self.restored {
            self.restored = true;
            self.judge.come_back();
            self.mcp().restore().unwrap();
        }
    }

    fn evict(&mut self) {
        self.subscription = None;
        let object = self.object.take().unwrap();
        object.evict(&self.outside);
    }

    fn wake(&mut self) -> Verdict {
        self.judge.follow(&self.outside)?;
        self.evict();
        self.judge.follow(&self.outside)?;
        self.begin(Waking::Used);
        Ok(())
    }

    fn wake_by_alarm(&mut self) -> Verdict {
        let Some(job) = self.outside.next_job() else {
            return Ok(());
        };
        self.judge.follow(&self.outside)?;
        self.evict();
        self.judge.follow(&self.outside)?;
        self.outside.now.set(self.outside.now.get().max(job.at));
        self.begin(Waking::ByAlarm);
        Ok(())
    }

    fn ask(&mut self, id: &str, wish: Wish) {
        let number = self.judge.operations.len();
        let operation = Operation::new(wish.clone(), id.to_owned(), self.outside.now.get());
        if matches!(wish, Wish::Connect | Wish::Discover | Wish::Call) {
            self.outside.limit.set(None);
        }
        self.judge.operations.push(operation);
        let (mcp, outside, id) = (self.mcp(), self.outside.clone(), id.to_owned());
        let work = async move {
            outside.note(Entry::Begun(number));
            let outcome = fulfil(&mcp, &outside, number, &id, wish).await;
            let outcome = outcome.unwrap_or_else(Outcome::Failed);
            outside.note(Entry::Ended(number, outcome));
        };
        self.object.as_ref().unwrap().pool.spawn(Box::pin(work));
    }

    fn step(&mut self, step: &Step) -> Verdict {
        *self.outside.random.borrow_mut() = Random::new(step.salt);
        let mut random = Random::new(!step.salt);
        let id = |id: usize| IDS[id];
        if !self.restored && random.percent(70) && !matches!(step.action, Action::Alarm) {
            // Whatever comes in starts the object first.
            self.restore();
        }
        match step.action {
            Action::Register(at, again) => {
                if let Some(spec) = self.spec(id(at), again, &mut random) {
                    self.ask(id(at), Wish::Register(spec));
                }
            }
            Action::Connect(at) => self.ask(id(at), Wish::Connect),
            Action::Discover(at) => self.ask(id(at), Wish::Discover),
            Action::Call(at) => self.ask(id(at), Wish::Call),
            Action::Wait(limit) => self.ask("", Wish::Wait(limit)),
            Action::Close(at) => self.ask(id(at), Wish::Close),
            Action::CloseAll => self.ask("", Wish::CloseAll),
            Action::Remove(at) => self.ask(id(at), Wish::Remove),
            Action::Rename(from, to) if from != to => {
                self.ask(id(from), Wish::Rename(id(to).to_owned()));
            }
            Action::Rename(..) => {}
            Action::Evict => self.wake()?,
            Action::Alarm => self.wake_by_alarm()?,
            Action::Pass(pause) => self.pass(pause)?,
            Action::Break(at, trouble, scope, times) => {
                let server = &self.outside.servers[at];
                server.trouble.set(Some((trouble, scope, times)));
            }
            Action::Mend(at) => self.outside.servers[at].trouble.set(None),
            Action::Change(at) => {
                let version = &self.outside.servers[at].version;
                version.set(version.get() + 1);
            }
            Action::Become(at, era) => self.outside.servers[at].become_of(era),
            Action::Forget(at) => self.outside.servers[at].forget(),
            Action::Release(number) => self.outside.release(number),
        }
        match step.then {
            Then::Polls(number) => {
                for _ in 0..number {
                    self.poll();
                }
            }
            Then::Settle => self.settle()?,
        }
        self.check()?;
        self.endow();
        Ok(())
    }

    fn spec(&mut self, id: &str, again: Again, random: &mut Random) -> Option<Spec> {
        // What is being renamed takes its server with it.
        let is_moving = self.judge.is_being_renamed(id);
        let before = self.judge.spec(id).filter(|_| !is_moving).cloned();
        let taken = self.judge.taken_servers(id);
        let is_new = before.is_none();
        let mut spec = before.unwrap_or_else(|| Spec {
            name: id.to_owned(),
            server: SERVERS,
            owner: 0,
            is_auto: random.percent(70),
            policy: None,
            attempts: 1 + u32::try_from(random.below(3)).unwrap(),
        });
        if is_new || matches!(again, Again::Url | Again::UrlAndHeader) {
            let free: Vec<usize> = (0..SERVERS)
                .filter(|server| !taken.contains(server) && *server != spec.server)
                .collect();
            if free.is_empty() {
                return None;
            }
            spec.server = random.pick(&free);
        }
        if is_new || matches!(again, Again::Header | Again::Url | Again::UrlAndHeader) {
            self.owners += 1;
            spec.owner = self.owners;
        }
        match again {
            Again::Name => spec.name = format!("{id}-{}", random.below(3)),
            Again::Transport => spec.is_auto = !spec.is_auto,
            Again::Policy => {
                spec.policy = random.pick(&[
                    None,
                    Some(ReconnectPolicy::Eager),
                    Some(ReconnectPolicy::Lazy),
                    Some(ReconnectPolicy::Never),
                ]);
            }
            Again::Retry => spec.attempts = 1 + u32::try_from(random.below(3)).unwrap(),
            Again::Same | Again::Url | Again::UrlAndHeader | Again::Header => {}
        }
        Some(spec)
    }

    /// Gives servers what a sign-in and a task leave behind.
    fn endow(&self) {
        for id in self.judge.ids() {
            if self.judge.is_being_changed(&id) {
                continue;
            }
            let spec = self.judge.spec(&id).unwrap();
            let peer = format!("{:?}", spec.peer());
            let mut keys = self.outside.keys.values.borrow_mut();
            for name in ["client", "token"] {
                keys.entry(format!("/gull/{id}/{name}"))
                    .or_insert_with(|| spec.server.to_string());
            }
            let tasks = &self.outside.tasks;
            if !tasks.rows.borrow().iter().any(|row| row.task_id == peer) {
                let row = TaskRow {
                    server_id: id,
                    task_id: peer,
                    tool: "t".into(),
                    started_at: 0,
                    expires_at: None,
                };
                tasks.put(&row).unwrap();
            }
        }
    }

    fn poll(&self) -> bool {
        self.heard.polls.set(self.heard.polls.get() + 1);
        self.object.as_ref().unwrap().pool.poll()
    }

    /// Runs everything that can run without time passing.
    fn settle(&mut self) -> Verdict {
        if !(0..20_000).any(|_| !self.poll()) {
            return Err("work goes on and on".into());
        }
        self.judge.follow(&self.outside)?;
        let mcp = self.mcp();
        let (seen, now) = (
            self.heard.seen.borrow().clone(),
            visible(&mcp, &self.outside),
        );
        if seen != now {
            return Err(format!(
                "the listener knows {seen:#?}, and there is {now:#?}"
            ));
        }
        if self.is_at_rest() {
            self.judge.check_rest(&mcp, &self.outside)?;
        }
        Ok(())
    }

    fn is_at_rest(&self) -> bool {
        let is_driving = self.object.as_ref().unwrap().is_driving();
        let is_waiting = self.outside.timers() > 0 || self.outside.open_requests.get() > 0;
        !is_driving && !is_waiting
    }

    fn check(&mut self) -> Verdict {
        self.judge.follow(&self.outside)?;
        if self.heard.is_early.get() {
            return Err("the listener was called twice at a stroke".into());
        }
        self.judge.check(&self.mcp(), &self.outside)
    }

    /// Lets time pass, and jobs run when they are due.
    fn pass(&mut self, pause: u64) -> Verdict {
        let end = self.outside.now.get() + pause;
        self.settle()?;
        for _ in 0..5_000 {
            let object = self.object.as_ref().unwrap();
            let job = self.outside.next_job().filter(|_| !object.is_driving());
            let next = [job.map(|job| job.at), self.outside.next_timer()];
            let next = next.into_iter().flatten().min();
            let now = self.outside.now.get();
            let Some(next) = next.map(|next| next.max(now)).filter(|next| *next <= end) else {
                self.outside.now.set(end);
                return Ok(());
            };
            self.outside.now.set(next);
            self.outside.ring();
            if self.outside.next_job().is_some_and(|job| job.at <= next) {
                self.object.as_ref().unwrap().drive(&self.outside);
            }
            self.settle()?;
            self.check()?;
        }
        Err("there is something to do again and again".into())
    }

    /// Servers recover, and so does everything else.
    fn end(&mut self, seed: u64) -> Verdict {
        *self.outside.random.borrow_mut() = Random::new(seed);
        if seed.is_multiple_of(2) {
            self.pass(3_600_000)?;
            self.expect_rest("under trouble")?;
        }
        for server in &self.outside.servers {
            server.trouble.set(None);
        }
        self.outside.release(usize::MAX);
        self.pass(3_600_000)?;
        self.expect_rest("after trouble")?;
        self.endow();

        self.wake()?;
        self.ask("", Wish::Wait(None));
        self.settle()?;
        self.check()?;
        self.judge.check_recovered(&self.mcp(), &self.outside)?;
        self.expect_rest("after a wake")?;

        let before = self.writes();
        self.wake()?;
        self.ask("", Wish::Wait(None));
        self.settle()?;
        self.check()?;
        self.judge.check_recovered(&self.mcp(), &self.outside)?;
        if self.writes() != before {
            return Err("a wake where nothing changed has written".into());
        }
        for id in self.judge.ids() {
            if self.judge.policy(&id) == ReconnectPolicy::Never {
                self.ask(&id, Wish::Connect);
                self.settle()?;
            }
            self.ask(&id, Wish::Call);
        }
        self.settle()?;
        self.check()?;
        let calls = self.judge.ids().len();
        if self.judge.successes(calls) != calls {
            return Err("a call to a server that is well has failed".into());
        }
        for id in self.judge.ids() {
            self.ask(&id, Wish::Remove);
        }
        self.pass(60_000)?;
        self.check()?;
        self.expect_rest("after removing")?;
        let outside = &self.outside;
        let left = [
            outside.table.rows.borrow().len(),
            outside.catalogs.rows.borrow().len(),
            outside.jobs.jobs.borrow().len(),
            outside.tasks.rows.borrow().len(),
            self.judge.orphan_keys(outside),
        ];
        if left != [0; 5] {
            return Err(format!("left behind: {left:?}"));
        }
        Ok(())
    }

    fn expect_rest(&self, when: &str) -> Verdict {
        if self.is_at_rest() {
            return Ok(());
        }
        let (timers, open) = (self.outside.timers(), self.outside.open_requests.get());
        Err(format!("{timers} timers and {open} requests {when}"))
    }

    fn writes(&self) -> [usize; 3] {
        let outside = &self.outside;
        [
            outside.table.writes.get(),
            outside.catalogs.writes.get(),
            outside.jobs.writes.get(),
        ]
    }
}

async fn fulfil(
    mcp: &McpClientManager,
    outside: &Rc<Outside>,
    number: usize,
    id: &str,
    wish: Wish,
) -> workers_agents::Result<Outcome> {
    let done = Ok(Outcome::Done);
    match wish {
        Wish::Register(spec) => {
            let server = spec.registration(outside);
            mcp.register_server(id, server).await.map(drop)?;
        }
        Wish::Connect => mcp.connect_to_server(id).await.map(drop)?,
        Wish::Discover => mcp.discover_if_connected(id, None).await.map(drop)?,
        Wish::Call => {
            let arguments = json!({"operation": number});
            let result = mcp.call_tool(id, "any", arguments).await?;
            return Ok(Outcome::Text(result.text()));
        }
        Wish::Wait(limit) => {
            let limit = limit.map(std::time::Duration::from_millis);
            mcp.wait_for_connections(limit).await;
        }
        Wish::Close => mcp.close_connection(id).await?,
        Wish::CloseAll => mcp.close_all_connections().await?,
        Wish::Remove => return mcp.remove_server(id).await.map(Outcome::Existed),
        Wish::Rename(to) => mcp.rename_server(id, to).await.map(drop)?,
    }
    done
}

/// What a user may see.
fn visible(mcp: &McpClientManager, outside: &Outside) -> Vec<String> {
    let tools = mcp.list_tools(&ServerFilter::all());
    let show = |row: &ServerRow| {
        let info = mcp.connection(&row.id);
        let state = info.as_ref().map(|info| info.state);
        let error = info.and_then(|info| info.error).map(|error| error.code());
        let tools = tools
            .iter()
            .filter(|tool| tool.server_id.as_str() == row.id);
        let tools: Vec<&str> = tools.map(|tool| tool.item.name()).collect();
        let (id, name, url) = (&row.id, &row.name, &row.server_url);
        format!("{id} {name} {url} {state:?} {error:?} {tools:?}")
    };
    outside.table.rows.borrow().iter().map(show).collect()
}

fn play(scenario: &Scenario, broken: Broken) -> Verdict {
    let work = || {
        let mut play = Play::new(scenario.seed, broken);
        for step in &scenario.steps {
            if std::env::var("MODEL_TRACE").is_ok() {
                eprintln!("{step:?}");
            }
            play.step(step)
                .map_err(|error| format!("{error}\nin {step:?}"))?;
        }
        play.end(scenario.seed)
            .map_err(|error| format!("{error}\nat the end"))
    };
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err("it panicked".into()))
}

/// Leaves out steps for as long as it still fails.
fn shrink(mut scenario: Scenario, broken: Broken) -> Scenario {
    let mut size = scenario.steps.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        let mut has_shrunk = false;
        while at < scenario.steps.len() {
            let mut smaller = scenario.clone();
            smaller
                .steps
                .drain(at..(at + size).min(scenario.steps.len()));
            if play(&smaller, broken).is_err() {
                scenario = smaller;
                has_shrunk = true;
            } else {
                at += size;
            }
        }
        if !has_shrunk {
            size /= 2;
        }
    }
    scenario
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn whatever_happens_the_manager_is_as_its_model() {
    let first = number("MODEL_SEED");
    let sequences =
        number("MODEL_SEQUENCES").unwrap_or_else(|| if first.is_some() { 1 } else { SEQUENCES });
    let first = first.unwrap_or(0);
    let mut kinds = BTreeSet::new();
    for seed in first..first + sequences {
        let scenario = Scenario::new(seed);
        let Err(error) = play(&scenario, Broken::Nothing) else {
            continue;
        };
        if number("MODEL_SURVEY").is_some() {
            let kind: String = error
                .split([':', '{', '['])
                .next()
                .unwrap()
                .chars()
                .take(60)
                .collect();
            if kinds.insert(kind) {
                eprintln!("MODEL_SEED={seed}: {error}\n");
            }
            continue;
        }
        let scenario = shrink(scenario, Broken::Nothing);
        eprintln!("the shrunk sequence:");
        let error = play(&scenario, Broken::Nothing).err().unwrap_or(error);
        let steps: Vec<String> = scenario
            .steps
            .iter()
            .map(|step| format!("{step:?}"))
            .collect();
        panic!("MODEL_SEED={seed}: {error}\n{}", steps.join("\n"));
    }
}

#[test]
fn a_storage_that_forgets_to_do_something_is_found_out() {
    for broken in [
        Broken::DeletingRows,
        Broken::DeletingCatalogs,
        Broken::CancellingJobs,
        Broken::DeletingKeys,
        Broken::RenamingCatalogs,
    ] {
        let is_found = (0..200).any(|seed| play(&Scenario::new(seed), broken).is_err());
        assert!(is_found, "{broken:?}");
    }
}

#[test]
fn a_failure_shrinks_to_the_steps_that_it_takes() {
    let broken = Broken::DeletingCatalogs;
    let mut scenarios = (0..200).map(Scenario::new);
    let scenario = scenarios
        .find(|scenario| play(scenario, broken).is_err())
        .unwrap();
    let before = scenario.steps.len();
    let after = shrink(scenario, broken).steps.len();
    assert!(after < before && after <= 6, "{after} of {before}");
}
