//! How many streams an object keeps open to its servers at once.
//!
//! A Worker has six connections. Streams that wait for servers to say something must leave most of
//! them to requests.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures::channel::oneshot;

/// The places for standing streams of one object.
pub(crate) struct Slots {
    max: usize,
    /// Counts takings and uses, so that the least recently used one can be told.
    tick: Cell<u64>,
    taken: RefCell<Vec<Taken>>,
    waiting: RefCell<Vec<oneshot::Sender<()>>>,
}

/// Who holds a place, and how to take it away.
pub(crate) struct Holder {
    /// Whether the stream is needed right now.
    pub(crate) is_busy: Box<dyn Fn() -> bool>,
    /// Lets the stream go.
    pub(crate) let_go: Box<dyn Fn()>,
}

struct Taken {
    number: u64,
    last_use: u64,
    holder: Rc<Holder>,
}

/// A place. Given back when dropped.
pub(crate) struct Slot {
    slots: Rc<Slots>,
    number: u64,
}

impl Slots {
    pub(crate) fn new(max: usize) -> Rc<Self> {
        Rc::new(Self {
            max: max.max(1),
            tick: Cell::new(0),
            taken: RefCell::default(),
            waiting: RefCell::default(),
        })
    }

    /// A place, if one is free.
    pub(crate) fn try_take(self: &Rc<Self>, holder: Holder) -> Result<Slot, Holder> {
        if self.taken.borrow().len() >= self.max {
            return Err(holder);
        }
        Ok(self.push(holder))
    }

    fn push(self: &Rc<Self>, holder: Holder) -> Slot {
        let number = self.tick();
        self.taken.borrow_mut().push(Taken {
            number,
            last_use: number,
            holder: Rc::new(holder),
        });
        Slot {
            slots: self.clone(),
            number,
        }
    }

    /// A place above the number that there are: waiting would cost more than one connection too many.
    pub(crate) fn take_anyway(self: &Rc<Self>, holder: Holder) -> Slot {
        self.push(holder)
    }

    /// A place: a free one, or else that of the stream that has been idle longest, or else the first
    /// that becomes free.
    pub(crate) async fn take(self: &Rc<Self>, mut holder: Holder) -> Slot {
        loop {
            match self.try_take(holder) {
                Ok(slot) => return slot,
                Err(back) => holder = back,
            }
            if self.evict() {
                continue;
            }
            let _ = self.wait().await;
        }
    }

    fn wait(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|waiting| !waiting.is_canceled());
        waiting.push(sender);
        receiver
    }

    /// Somebody is no longer busy: those who wait look again.
    pub(crate) fn look_again(&self) {
        drop(self.waiting.take());
    }

    fn evict(&self) -> bool {
        let candidates: Vec<(u64, u64, Rc<Holder>)> = self
            .taken
            .borrow()
            .iter()
            .map(|taken| (taken.last_use, taken.number, taken.holder.clone()))
            .collect();
        let idle = candidates
            .into_iter()
            .filter(|(_, _, holder)| !(holder.is_busy)());
        let Some((_, number, holder)) = idle.min_by_key(|(last_use, ..)| *last_use) else {
            return false;
        };
        self.release(number);
        (holder.let_go)();
        true
    }

    fn release(&self, number: u64) {
        let at = self
            .taken
            .borrow()
            .iter()
            .position(|taken| taken.number == number);
        let taken = at.map(|at| self.taken.borrow_mut().remove(at));
        // Dropped after the borrow: whoever held the place may come back here.
        drop(taken);
    }

    fn tick(&self) -> u64 {
        self.tick.set(self.tick.get() + 1);
        self.tick.get()
    }

    #[cfg(test)]
    fn held(&self) -> usize {
        self.taken.borrow().len()
    }
}

impl Slot {
    /// The stream has been of use.
    pub(crate) fn touch(&self) {
        let now = self.slots.tick();
        if let Some(taken) = self
            .slots
            .taken
            .borrow_mut()
            .iter_mut()
            .find(|taken| taken.number == self.number)
        {
            taken.last_use = now;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.release(self.number);
        self.slots.look_again();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use futures::executor::block_on;

    fn holder(busy: &Rc<Cell<bool>>, gone: &Rc<Cell<u32>>) -> Holder {
        let (busy, gone) = (busy.clone(), gone.clone());
        Holder {
            is_busy: Box::new(move || busy.get()),
            let_go: Box::new(move || gone.set(gone.get() + 1)),
        }
    }

    #[test]
    fn the_stream_that_is_idle_longest_makes_way() {
        let slots = Slots::new(2);
        let idle = Rc::new(Cell::new(false));
        let (gone1, gone2) = (Rc::default(), Rc::default());
        let first = slots.try_take(holder(&idle, &gone1)).ok().unwrap();
        let _second = slots.try_take(holder(&idle, &gone2)).ok().unwrap();
        assert!(slots.try_take(holder(&idle, &gone1)).is_err());
        first.touch();
        let _third = block_on(slots.take(holder(&idle, &gone1)));
        assert_eq!((gone1.get(), gone2.get()), (0, 1));
        assert_eq!(slots.held(), 2);
    }

    #[test]
    fn busy_streams_are_waited_for() {
        let slots = Slots::new(1);
        let (busy, gone) = (Rc::new(Cell::new(true)), Rc::default());
        let first = slots.try_take(holder(&busy, &gone)).ok().unwrap();
        let mut second = Box::pin(slots.take(holder(&busy, &gone)));
        assert!(second.as_mut().now_or_never().is_none());
        busy.set(false);
        slots.look_again();
        let second = second.now_or_never().unwrap();
        assert_eq!(gone.get(), 1);
        // Already taken away: giving it back changes nothing.
        drop(first);
        assert_eq!(slots.held(), 1);
        drop(second);
        assert_eq!(slots.held(), 0);
    }
}
