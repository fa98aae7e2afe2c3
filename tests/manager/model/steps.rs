//! What may happen to an object, drawn at random.

use super::peers::{Era, Scope, Trouble};
use super::random::Random;

/// The ids of servers.
pub const IDS: [&str; 4] = ["ant", "bee", "cat", "dog"];
/// How many servers there are to register: more than ids.
pub const SERVERS: usize = 7;

/// What changes when a server is registered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    Same,
    Name,
    Url,
    UrlAndHeader,
    Header,
    Transport,
    Policy,
    Retry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Register(usize, Again),
    Connect(usize),
    Discover(usize),
    Call(usize),
    Wait(Option<u64>),
    Close(usize),
    CloseAll,
    Remove(usize),
    Rename(usize, usize),
    Evict,
    Alarm,
    Pass(u64),
    Break(usize, Trouble, Scope, u32),
    Mend(usize),
    Change(usize),
    Become(usize, Era),
    Forget(usize),
    Release(usize),
}

/// How far work goes on before the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Polls(u64),
    Settle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub action: Action,
    pub then: Then,
    /// Decides whatever is left open, so that a step means the same without the ones before.
    pub salt: u64,
}

#[derive(Debug, Clone)]
pub struct Scenario {
    pub seed: u64,
    pub steps: Vec<Step>,
}

impl Scenario {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let ids = 1 + random.index(IDS.len());
        let mut steps = Vec::new();
        // Servers to begin with.
        for id in 0..ids {
            if random.percent(80) {
                steps.push(step(&mut random, Action::Register(id, Again::Same)));
            }
            if random.percent(60) {
                steps.push(step(&mut random, Action::Connect(id)));
            }
            if random.percent(60) {
                steps.push(step(&mut random, Action::Discover(id)));
            }
        }
        for _ in 0..20 + random.below(41) {
            let action = action(&mut random, ids);
            steps.push(step(&mut random, action));
        }
        Self { seed, steps }
    }
}

fn step(random: &mut Random, action: Action) -> Step {
    let then = if random.percent(55) {
        Then::Settle
    } else {
        Then::Polls(random.below(25))
    };
    Step {
        action,
        then,
        salt: random.next(),
    }
}

fn action(random: &mut Random, ids: usize) -> Action {
    let id = random.index(ids);
    let server = random.index(SERVERS);
    match random.below(100) {
        0..=12 => {
            let again = random.pick(&[
                Again::Same,
                Again::Name,
                Again::Url,
                Again::UrlAndHeader,
                Again::Header,
                Again::Transport,
                Again::Policy,
                Again::Retry,
            ]);
            Action::Register(id, again)
        }
        13..=22 => Action::Connect(id),
        23..=32 => Action::Discover(id),
        33..=42 => Action::Call(id),
        43..=47 => {
            let limit = random.pick(&[None, Some(0), Some(10), Some(3_000), Some(60_000)]);
            Action::Wait(limit)
        }
        48..=50 => Action::Close(id),
        51 => Action::CloseAll,
        52..=54 => Action::Remove(id),
        55..=58 => Action::Rename(id, random.index(IDS.len())),
        59..=65 => Action::Evict,
        66..=68 => Action::Alarm,
        69..=76 => {
            let pause = random.pick(&[1, 60, 1_000, 5_000, 11_000, 40_000, 120_000]);
            Action::Pass(pause)
        }
        77..=86 => {
            let trouble = random.pick(&[
                Trouble::Status(503),
                Trouble::Status(503),
                Trouble::Status(500),
                Trouble::Status(429),
                Trouble::Status(400),
                Trouble::Status(401),
                Trouble::Status(403),
                Trouble::Status(404),
                Trouble::Busy(2),
                Trouble::Busy(90),
                Trouble::Busy(600),
                Trouble::Refused,
                Trouble::Refused,
                Trouble::Lost,
                Trouble::Silence,
                Trouble::Slow(200),
                Trouble::Slow(20_000),
                Trouble::Held,
                Trouble::Held,
                Trouble::Garbage,
            ]);
            let scope = random.pick(&[
                Scope::All,
                Scope::All,
                Scope::Handshake,
                Scope::Lists,
                Scope::Calls,
            ]);
            Action::Break(server, trouble, scope, random.pick(&[1, 2, 4, 1_000]))
        }
        87..=89 => Action::Mend(server),
        90..=93 => Action::Change(server),
        94..=95 => {
            let era = random.pick(&[Era::Modern, Era::Legacy, Era::Sessionless]);
            Action::Become(server, era)
        }
        96..=97 => Action::Forget(server),
        _ => Action::Release(1 + random.index(3)),
    }
}
