//! Telling listeners that something changed, once for all that changes at a stroke.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use crate::events::Listeners;
use crate::ports::Spawn;

/// How often other work has its turn before listeners are told. A connection that has been opened
/// goes on to load its lists, and a caller goes on to the next step, within so many.
const TURNS: u32 = 4;

pub(super) struct Notifier {
    listeners: Rc<Listeners<()>>,
    spawn: Rc<dyn Spawn>,
    is_due: Rc<Cell<bool>>,
}

impl Notifier {
    pub(super) fn new(listeners: Rc<Listeners<()>>, spawn: Rc<dyn Spawn>) -> Self {
        Self {
            listeners,
            spawn,
            is_due: Rc::default(),
        }
    }

    /// Listeners are told soon. Nothing happens where there are none.
    pub(super) fn notify(&self) {
        if self.listeners.is_empty() || self.is_due.replace(true) {
            return;
        }
        let (listeners, is_due) = (self.listeners.clone(), self.is_due.clone());
        self.spawn.spawn(Box::pin(async move {
            let mut turns = TURNS;
            poll_fn(|context| {
                if turns == 0 {
                    return Poll::Ready(());
                }
                turns -= 1;
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            is_due.set(false);
            listeners.call(&());
        }));
    }
}
