//! Calls whose outcome is streamed, and how they are given up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use futures::channel::oneshot;

/// How many there may be at a time.
const MAX: usize = 64;

/// The calls under way in this object.
#[derive(Debug, Clone, Default)]
pub(in crate::entrypoint) struct RunningCalls {
    by_id: Rc<RefCell<BTreeMap<String, oneshot::Sender<()>>>>,
}

/// One of them. It is over when this is dropped.
#[derive(Debug)]
pub(super) struct RunningCall {
    calls: RunningCalls,
    /// Names it in [`RunningCalls::cancel`].
    pub(super) id: String,
    /// Gives up the call when it resolves to `Ok`.
    pub(super) cancelled: oneshot::Receiver<()>,
}

impl RunningCalls {
    /// A new one, unless there are too many.
    pub(super) fn begin(&self) -> Option<RunningCall> {
        let mut by_id = self.by_id.borrow_mut();
        if by_id.len() >= MAX {
            return None;
        }
        let (cancel, cancelled) = oneshot::channel();
        // Random, so that what is meant for a call before an eviction meets none after it.
        let id = format!("{:016x}", getrandom::u64().ok()?);
        by_id.insert(id.clone(), cancel);
        Some(RunningCall {
            calls: self.clone(),
            id,
            cancelled,
        })
    }

    /// Gives up a call. False when it is over, or there never was one.
    pub(super) fn cancel(&self, id: &str) -> bool {
        let call = self.by_id.borrow_mut().remove(id);
        call.is_some_and(|call| call.send(()).is_ok())
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.calls.by_id.borrow_mut().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_given_up_once_and_only_while_it_runs() {
        let calls = RunningCalls::default();
        let mut one = calls.begin().unwrap();
        let two = calls.begin().unwrap();
        assert_ne!(one.id, two.id);
        assert_eq!(one.cancelled.try_recv(), Ok(None));
        assert!(calls.cancel(&one.id));
        assert_eq!(one.cancelled.try_recv(), Ok(Some(())));
        assert!(!calls.cancel(&one.id));
        let over = two.id.clone();
        drop(two);
        assert!(!calls.cancel(&over) && !calls.cancel(""));
    }

    #[test]
    fn there_is_an_end_to_how_many_run_and_room_when_one_is_over() {
        let calls = RunningCalls::default();
        let mut running: Vec<_> = (0..MAX).map(|_| calls.begin().unwrap()).collect();
        assert!(calls.begin().is_none());
        running.pop();
        assert!(calls.begin().is_some());
    }
}
