//! Loading lists anew when a server says that they have changed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use super::ConnectionState;
use super::catalog::ListKind;
use super::connection::Connection;
use super::event::McpEvent;
use super::joined::Running;
use crate::Result;
use crate::ports::Timestamp;

/// The longest pause between two loads.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// How often loading is tried again after a failure that may pass.
const MOST_FAILURES: u32 = 3;
/// A server that was quiet for this long after a load may be loaded again at once.
const QUIET: Duration = Duration::from_mins(1);

/// Which lists of a server are due, and when.
#[derive(Default)]
pub(super) struct Refresh {
    due: RefCell<BTreeSet<ListKind>>,
    running: RefCell<Option<Running>>,
    pause: Cell<Option<Duration>>,
    last: Cell<Timestamp>,
}

impl Refresh {
    pub(super) fn stop(&self) {
        self.due.take();
        if let Some(running) = self.running.take() {
            running.abort();
        }
    }

    /// How long to wait before the next load.
    ///
    /// The first notice after a quiet time waits for others to join it. Where loading a list makes
    /// the server say that it changed, every further pause is twice as long.
    fn next_pause(&self, now: Timestamp, first: Duration) -> Duration {
        let quiet = Duration::from_millis(now.saturating_sub(self.last.get()));
        let pause = match self.pause.get() {
            Some(pause) if quiet < QUIET => (pause * 2).min(LONGEST_PAUSE.max(first)),
            _ => first,
        };
        self.pause.set(Some(pause));
        pause
    }
}

impl Connection {
    /// Loads lists anew, soon, together with others that become due meanwhile.
    pub(super) fn refresh_soon(self: &Rc<Self>, kinds: &[ListKind]) {
        self.refresh.due.borrow_mut().extend(kinds);
        if self.refresh.running.borrow().is_some() {
            return;
        }
        let this = self.clone();
        let running = Running::start(&*self.common.ports.spawn, async move {
            let outcome = this.refresh_due().await;
            this.refresh.running.take();
            outcome
        });
        self.refresh.running.replace(Some(running));
    }

    async fn refresh_due(self: &Rc<Self>) -> Result<()> {
        let clock = self.common.ports.clock.clone();
        let first = self.common.options.list_changed_debounce;
        let mut failures = 0;
        while !self.refresh.due.borrow().is_empty() {
            let pause = self.refresh.next_pause(clock.now(), first);
            clock.sleep(pause).await;
            // One that is under way may have asked before the change.
            if self.state() == ConnectionState::Discovering {
                continue;
            }
            let kinds: Vec<ListKind> = self.refresh.due.take().into_iter().collect();
            let client = self.open_client()?;
            if client.is_over_idle() {
                // Nobody looks. The next stream opens after a silence, and lists are loaded then.
                client.listening.missed();
                return Ok(());
            }
            let limit = self.common.options.discovery_timeout;
            let outcome = self.load(&client, limit, &kinds, true).await;
            self.refresh.last.set(clock.now());
            match outcome {
                // The lists are what they were.
                Err(error) => {
                    self.failed(&error);
                    if error.is_transient() && failures < MOST_FAILURES {
                        failures += 1;
                        self.refresh.due.borrow_mut().extend(kinds);
                    }
                }
                Ok(catalog) => {
                    let changed = self.take_over(catalog, &kinds);
                    if !changed.is_empty() {
                        (self.common.changed)();
                    }
                    for kind in changed {
                        let server_id = self.id().clone();
                        (self.common.event)(&McpEvent::ListChanged { server_id, kind });
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tl_12_pauses_grow_while_a_server_keeps_talking_and_shrink_when_it_is_quiet() {
        let refresh = Refresh::default();
        let first = Duration::from_millis(300);
        let (mut now, mut loads) = (1_000_000, 0);
        let end = now + 60_000;
        while now < end {
            let pause = refresh.next_pause(now, first);
            now += u64::try_from(pause.as_millis()).unwrap();
            refresh.last.set(now);
            loads += 1;
        }
        assert!(loads < 12, "{loads} loads in a minute");
        assert!(refresh.next_pause(now, first) <= LONGEST_PAUSE);
        refresh.last.set(now);
        assert_eq!(refresh.next_pause(now + 61_000, first), first);
    }
}
