//! Listeners that a host registers.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};

type Listener<E> = Rc<dyn Fn(&E)>;
type List<E> = RefCell<Vec<(u64, Listener<E>)>>;

/// A list of listeners. A listener may register or drop listeners while it runs.
pub struct Listeners<E> {
    list: Rc<List<E>>,
    next: Cell<u64>,
}

impl<E> Default for Listeners<E> {
    fn default() -> Self {
        Self {
            list: Rc::default(),
            next: Cell::new(0),
        }
    }
}

impl<E: 'static> Listeners<E> {
    /// Adds a listener, called until the subscription is dropped.
    pub fn add(&self, listener: impl Fn(&E) + 'static) -> Subscription {
        let key = self.next.get();
        self.next.set(key + 1);
        self.list.borrow_mut().push((key, Rc::new(listener)));
        let list: Weak<List<E>> = Rc::downgrade(&self.list);
        Subscription {
            end: Some(Box::new(move || {
                let Some(list) = list.upgrade() else { return };
                let at = list.borrow().iter().position(|(other, _)| *other == key);
                // Dropped after the borrow: a listener may own another subscription of this list.
                let listener = at.map(|at| list.borrow_mut().remove(at));
                drop(listener);
            })),
        }
    }

    /// Whether nobody listens.
    pub fn is_empty(&self) -> bool {
        self.list.borrow().is_empty()
    }

    /// Calls every listener in the order of registration.
    pub fn call(&self, event: &E) {
        // Copied first: a listener may come back here.
        let listeners: Vec<Listener<E>> = self
            .list
            .borrow()
            .iter()
            .map(|(_, listener)| listener.clone())
            .collect();
        for listener in listeners {
            listener(event);
        }
    }
}

/// Ends when dropped.
#[must_use = "dropping a subscription ends it; `detach` keeps it for the life of the object"]
pub struct Subscription {
    end: Option<Box<dyn FnOnce()>>,
}

impl Subscription {
    /// Keeps the listener for as long as what it listens to exists.
    pub fn detach(mut self) {
        self.end = None;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end();
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

impl<E> fmt::Debug for Listeners<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listeners")
            .field("count", &self.list.borrow().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_lasts_until_it_is_dropped_or_for_ever_when_detached() {
        let listeners = Listeners::<u32>::default();
        let sum = Rc::new(Cell::new(0));
        let add = |sum: &Rc<Cell<u32>>| {
            let sum = sum.clone();
            move |n: &u32| sum.set(sum.get() + n)
        };
        let first = listeners.add(add(&sum));
        listeners.add(add(&sum)).detach();
        listeners.call(&1);
        assert_eq!(sum.get(), 2);
        drop(first);
        listeners.call(&10);
        assert_eq!(sum.get(), 12);
    }

    #[test]
    fn a_listener_may_own_a_subscription_of_the_same_list() {
        let listeners = Listeners::<()>::default();
        let inner = listeners.add(|()| ());
        let outer = listeners.add(move |()| {
            let _ = &inner;
        });
        drop(outer);
        assert!(listeners.list.borrow().is_empty());
    }

    #[test]
    fn a_listener_may_add_and_drop_listeners() {
        let listeners = Rc::new(Listeners::<()>::default());
        let own = Rc::new(RefCell::new(None));
        let again = listeners.clone();
        let slot = own.clone();
        let subscription = listeners.add(move |()| {
            again.add(|()| ()).detach();
            slot.borrow_mut().take();
        });
        *own.borrow_mut() = Some(subscription);
        listeners.call(&());
        listeners.call(&());
        assert!(own.borrow().is_none());
    }
}
