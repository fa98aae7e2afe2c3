//! Starting once: the first event starts the object, later ones wait and share the outcome.
//!
//! Not `blockConcurrencyWhile`: that takes a `'static` future and cannot run hooks on `&self`.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::channel::oneshot;

/// A latch. An outcome of `Err` leaves it open, so that the next caller tries again.
#[derive(Debug)]
pub(crate) struct Startup<E> {
    phase: RefCell<Phase<E>>,
    /// Set while the startup's own future is being polled.
    inside: Cell<bool>,
}

#[derive(Debug)]
enum Phase<E> {
    Idle,
    Running(Vec<oneshot::Sender<Result<(), E>>>),
    Done,
}

impl<E> Default for Startup<E> {
    fn default() -> Self {
        Self {
            phase: RefCell::new(Phase::Idle),
            inside: Cell::new(false),
        }
    }
}

impl<E: Clone> Startup<E> {
    /// Whether the caller is part of the startup that is running.
    pub(crate) fn is_inside(&self) -> bool {
        self.inside.get()
    }

    /// Runs `work` unless that has been done, or waits for whoever is running it. A call from
    /// inside `work` returns at once.
    ///
    /// # Errors
    /// The outcome of the run that was made or joined.
    pub(crate) async fn ensure(&self, work: impl AsyncFnOnce() -> Result<(), E>) -> Result<(), E> {
        if self.is_inside() {
            return Ok(());
        }
        loop {
            let joined = match &mut *self.phase.borrow_mut() {
                Phase::Done => return Ok(()),
                Phase::Running(waiting) => {
                    let (sender, receiver) = oneshot::channel();
                    waiting.push(sender);
                    Some(receiver)
                }
                idle @ Phase::Idle => {
                    *idle = Phase::Running(Vec::new());
                    None
                }
            };
            match joined {
                None => break,
                Some(receiver) => {
                    // Cancelled: the run was dropped half-way, so it is this caller's turn.
                    if let Ok(outcome) = receiver.await {
                        return outcome;
                    }
                }
            }
        }
        let reset = ResetOnDrop(self);
        let outcome = Inside {
            flag: &self.inside,
            work: Box::pin(work()),
        }
        .await;
        let next = if outcome.is_ok() {
            Phase::Done
        } else {
            Phase::Idle
        };
        let finished = self.phase.replace(next);
        std::mem::forget(reset);
        if let Phase::Running(waiting) = finished {
            for sender in waiting {
                // Whoever stopped waiting does not want to know.
                let _ = sender.send(outcome.clone());
            }
        }
        outcome
    }
}

/// A startup that is dropped half-way has not happened.
struct ResetOnDrop<'a, E>(&'a Startup<E>);

impl<E> Drop for ResetOnDrop<'_, E> {
    fn drop(&mut self) {
        self.0.phase.replace(Phase::Idle);
    }
}

struct Inside<'a, F: Future> {
    flag: &'a Cell<bool>,
    work: Pin<Box<F>>,
}

impl<F: Future> Future for Inside<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let before = self.flag.replace(true);
        let outcome = self.work.as_mut().poll(context);
        self.flag.set(before);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::{LocalPool, block_on};
    use futures::task::LocalSpawnExt as _;
    use std::rc::Rc;

    #[test]
    fn it_runs_once_and_everybody_shares_the_outcome() {
        let startup = Rc::new(Startup::<String>::default());
        let (open, gate) = oneshot::channel::<()>();
        let runs = Rc::new(Cell::new(0));
        let done = Rc::new(Cell::new(0));
        let mut pool = LocalPool::new();
        let mut gate = Some(gate);
        for _ in 0..3 {
            let (startup, runs, done, gate) =
                (startup.clone(), runs.clone(), done.clone(), gate.take());
            let task = async move {
                let outcome = startup.ensure(async || {
                    runs.set(runs.get() + 1);
                    gate.unwrap().await.unwrap();
                    Ok(())
                });
                outcome.await.unwrap();
                done.set(done.get() + 1);
            };
            pool.spawner().spawn_local(task).unwrap();
        }
        pool.run_until_stalled();
        assert_eq!((runs.get(), done.get()), (1, 0));
        open.send(()).unwrap();
        pool.run_until_stalled();
        assert_eq!((runs.get(), done.get()), (1, 3));
    }

    #[test]
    fn a_failure_is_shared_and_the_next_call_tries_again() {
        let startup = Startup::<String>::default();
        let failed = block_on(startup.ensure(async || Err("no".to_owned())));
        assert_eq!(failed, Err("no".to_owned()));
        assert_eq!(block_on(startup.ensure(async || Ok(()))), Ok(()));
        assert_eq!(
            block_on(startup.ensure(async || Err("never run".to_owned()))),
            Ok(())
        );
    }

    #[test]
    fn a_call_from_inside_does_not_wait_for_itself() {
        let startup = Startup::<String>::default();
        let outcome = block_on(
            startup.ensure(async || startup.ensure(async || Err("inner".to_owned())).await),
        );
        assert_eq!(outcome, Ok(()));
    }

    #[test]
    fn a_startup_dropped_half_way_is_taken_over_by_one_who_waits() {
        let startup = Rc::new(Startup::<String>::default());
        let mut first = Box::pin(startup.ensure(async || futures::future::pending().await));
        let mut context = Context::from_waker(futures::task::noop_waker_ref());
        assert!(first.as_mut().poll(&mut context).is_pending());
        let mut second = Box::pin(startup.ensure(async || Ok(())));
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert_eq!(second.as_mut().poll(&mut context), Poll::Ready(Ok(())));
    }
}
