//! A bound on how much happens at once.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use futures::channel::oneshot;

/// A number of permits, handed out in the order of asking.
pub(crate) struct Permits {
    free: Cell<usize>,
    waiting: RefCell<VecDeque<oneshot::Sender<Permit>>>,
}

/// Given back when dropped.
pub(crate) struct Permit(Rc<Permits>);

impl Permits {
    pub(crate) fn new(number: usize) -> Rc<Self> {
        Rc::new(Self {
            free: Cell::new(number),
            waiting: RefCell::default(),
        })
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(self: &Rc<Self>) -> Permit {
        loop {
            if let Some(free) = self.free.get().checked_sub(1) {
                self.free.set(free);
                return Permit(self.clone());
            }
            let (sender, receiver) = oneshot::channel();
            self.waiting.borrow_mut().push_back(sender);
            if let Ok(permit) = receiver.await {
                return permit;
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let permits = &self.0;
        permits.free.set(permits.free.get() + 1);
        // Handed on to the first who still waits; one who has gone gives it back by dropping it.
        let next = permits.waiting.borrow_mut().pop_front();
        if let Some(next) = next
            && let Some(free) = permits.free.get().checked_sub(1)
        {
            permits.free.set(free);
            drop(next.send(Self(permits.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use futures::executor::block_on;

    #[test]
    fn permits_are_bounded_and_handed_on_in_order() {
        let permits = Permits::new(2);
        let (first, second) = (block_on(permits.acquire()), block_on(permits.acquire()));
        let mut third = Box::pin(permits.acquire());
        let mut fourth = Box::pin(permits.acquire());
        assert!(third.as_mut().now_or_never().is_none());
        assert!(fourth.as_mut().now_or_never().is_none());
        drop(first);
        let third = third.now_or_never().unwrap();
        assert!(fourth.as_mut().now_or_never().is_none());
        drop((second, third));
        assert!(fourth.now_or_never().is_some());
    }

    #[test]
    fn a_permit_for_one_who_has_gone_goes_to_the_next() {
        let permits = Permits::new(1);
        let held = block_on(permits.acquire());
        let mut gone = Box::pin(permits.acquire());
        let mut waits = Box::pin(permits.acquire());
        assert!(gone.as_mut().now_or_never().is_none());
        assert!(waits.as_mut().now_or_never().is_none());
        drop(gone);
        drop(held);
        drop(waits.now_or_never().unwrap());
        assert_eq!(permits.free.get(), 1);
    }
}
