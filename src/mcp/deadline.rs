//! The time limit of a request: a wait that signs of life start anew, below a ceiling.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use futures::future::{Either, select};

use crate::ports::{Clock, Timestamp};
use crate::{Error, Result};

/// The shortest sleep, so that rounding never makes a busy loop.
const SHORTEST: Duration = Duration::from_millis(1);

/// What keeps a request alive.
pub(crate) struct Life {
    last_sign: Cell<Timestamp>,
    /// Grows with every question that is put to the user, for all requests of a client.
    questions: Rc<Questions>,
}

/// Questions to the user that are open. While there are any, requests wait: nobody can tell which
/// of them a question on another stream belongs to.
#[derive(Default)]
pub(crate) struct Questions {
    open: Cell<usize>,
    last_closed: Cell<Timestamp>,
}

/// One open question.
pub(crate) struct OpenQuestion {
    questions: Rc<Questions>,
    clock: Rc<dyn Clock>,
}

impl Questions {
    pub(crate) fn open(self: &Rc<Self>, clock: &Rc<dyn Clock>) -> OpenQuestion {
        self.open.set(self.open.get() + 1);
        OpenQuestion {
            questions: self.clone(),
            clock: clock.clone(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.open.get()
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        self.questions.open.set(self.questions.open.get() - 1);
        self.questions.last_closed.set(self.clock.now());
    }
}

impl Life {
    pub(crate) fn new(clock: &dyn Clock, questions: Rc<Questions>) -> Self {
        Self {
            last_sign: Cell::new(clock.now()),
            questions,
        }
    }

    /// The server has shown that it is at work.
    pub(crate) fn sign(&self, now: Timestamp) {
        self.last_sign.set(now);
    }

    /// Runs `work` until `limit` has passed without a sign of life, and until `ceiling` at most.
    pub(crate) async fn keep<T>(
        &self,
        clock: &dyn Clock,
        limit: Duration,
        ceiling: Duration,
        what: &str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let begun = clock.now();
        let mut work = std::pin::pin!(work);
        let mut nap = limit.min(ceiling);
        loop {
            match select(work.as_mut(), clock.sleep(nap.max(SHORTEST))).await {
                Either::Left((outcome, _)) => return outcome,
                Either::Right(_) => {}
            }
            let now = clock.now();
            let left = ceiling.saturating_sub(since(begun, now));
            let quiet = since(
                self.last_sign.get().max(self.questions.last_closed.get()),
                now,
            );
            let is_asking = self.questions.open.get() > 0;
            let over = if left.is_zero() {
                Some(ceiling)
            } else {
                (!is_asking && quiet >= limit).then_some(limit)
            };
            if let Some(after) = over {
                return Err(Error::Timeout {
                    what: what.to_owned(),
                    after,
                });
            }
            nap = if is_asking {
                limit
            } else {
                limit.saturating_sub(quiet)
            };
            nap = nap.min(left);
        }
    }
}

pub(super) fn since(then: Timestamp, now: Timestamp) -> Duration {
    Duration::from_millis(now.saturating_sub(then))
}
