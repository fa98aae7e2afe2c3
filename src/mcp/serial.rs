//! One change of a server at a time: registering, renaming and removing it wait for each other.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use futures::lock::{Mutex, OwnedMutexGuard};

type Locks = RefCell<HashMap<String, Arc<Mutex<()>>>>;

/// A lock for each server that somebody changes.
#[derive(Default)]
pub(super) struct Serial(Rc<Locks>);

/// Held while a server is being changed.
pub(super) struct Entered {
    locks: Rc<Locks>,
    id: String,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Serial {
    /// Waits for those before, in the order of asking. Do not ask twice without leaving.
    pub(super) async fn enter(&self, id: &str) -> Entered {
        let lock = self
            .0
            .borrow_mut()
            .entry(id.to_owned())
            .or_default()
            .clone();
        // Made before waiting: one who gives up cleans up as well.
        let mut entered = Entered {
            locks: self.0.clone(),
            id: id.to_owned(),
            guard: None,
        };
        entered.guard = Some(lock.lock_owned().await);
        entered
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        drop(self.guard.take());
        let mut locks = self.locks.borrow_mut();
        // The map's own, and nobody's who waits.
        if locks
            .get(&self.id)
            .is_some_and(|lock| Arc::strong_count(lock) == 1)
        {
            locks.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use futures::executor::block_on;

    #[test]
    fn changes_of_one_server_wait_for_each_other_and_leave_nothing_behind() {
        let serial = Serial::default();
        let first = block_on(serial.enter("a"));
        let other = block_on(serial.enter("b"));
        let mut second = Box::pin(serial.enter("a"));
        let mut gone = Box::pin(serial.enter("a"));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(gone.as_mut().now_or_never().is_none());
        drop(gone);
        drop(first);
        drop((second.now_or_never().unwrap(), other));
        assert!(serial.0.borrow().is_empty());
    }
}
