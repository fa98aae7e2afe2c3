//! Timers over `setTimeout`, and the time over `Date`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::LocalBoxFuture;
use wasm_bindgen::prelude::*;
use worker::Date;

use crate::ports::{Clock, Timestamp};

/// The longest delay that `setTimeout` can hold: a signed 32-bit number of milliseconds.
const LONGEST: Timestamp = i32::MAX as Timestamp;

/// The timers of one object. All of them share one of the platform, since every request has a
/// timer, and hardly any goes off.
pub(super) struct Timers(Rc<Sleepers>);

/// When a sleeper wakes, and a number that tells it apart.
type Key = (Timestamp, u64);

struct Sleepers {
    waiting: RefCell<BTreeMap<Key, Waker>>,
    next: Cell<u64>,
    /// The platform's timer, and when it goes off: no later than anybody wakes. There is none when
    /// nobody sleeps: an object with a pending timer does not hibernate.
    timer: RefCell<Option<(Timestamp, JsValue)>>,
    ring: Closure<dyn FnMut()>,
}

impl Timers {
    pub(super) fn new() -> Self {
        Self(Rc::new_cyclic(|this: &Weak<Sleepers>| {
            let this = this.clone();
            Sleepers {
                waiting: RefCell::default(),
                next: Cell::new(0),
                timer: RefCell::default(),
                ring: Closure::new(move || {
                    if let Some(this) = this.upgrade() {
                        this.ring();
                    }
                }),
            }
        }))
    }
}

impl Clock for Timers {
    fn now(&self) -> Timestamp {
        Date::now().as_millis()
    }

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()> {
        let duration = Timestamp::try_from(duration.as_millis()).unwrap_or(Timestamp::MAX);
        let number = self.0.next.replace(self.0.next.get() + 1);
        let key = (self.now().saturating_add(duration), number);
        self.0
            .waiting
            .borrow_mut()
            .insert(key, Waker::noop().clone());
        self.0.set_timer();
        Box::pin(Sleep {
            key,
            sleepers: self.0.clone(),
        })
    }
}

impl Sleepers {
    /// Wakes whose time has come.
    fn ring(&self) {
        self.timer.take();
        let now = Date::now().as_millis();
        let late = self.waiting.borrow_mut().split_off(&(now + 1, 0));
        for waker in self.waiting.replace(late).into_values() {
            waker.wake();
        }
        self.set_timer();
    }

    /// Sets the timer, unless it goes off early enough.
    fn set_timer(&self) {
        let Some(&(wanted, _)) = self.waiting.borrow().keys().next() else {
            return;
        };
        let is_early = |(at, _): &(Timestamp, JsValue)| *at <= wanted;
        if self.timer.borrow().as_ref().is_some_and(is_early) {
            return;
        }
        self.clear_timer();
        let delay = wanted.saturating_sub(Date::now().as_millis()).min(LONGEST);
        let delay = i32::try_from(delay).unwrap_or(i32::MAX);
        if let Ok(timer) = set_timeout(&self.ring, delay) {
            self.timer.replace(Some((wanted, timer)));
        }
    }

    fn clear_timer(&self) {
        if let Some((_, timer)) = self.timer.take() {
            // The object may be freed long after its eviction, when the platform has no use for this.
            let _ = clear_timeout(&timer);
        }
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        self.clear_timer();
    }
}

struct Sleep {
    key: Key,
    sleepers: Rc<Sleepers>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.sleepers.waiting.borrow_mut().get_mut(&self.key) {
            Some(waker) => {
                waker.clone_from(context.waker());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let mut waiting = self.sleepers.waiting.borrow_mut();
        let waker = waiting.remove(&self.key);
        let is_last = waiting.is_empty();
        drop(waiting);
        drop(waker);
        if is_last {
            self.sleepers.clear_timer();
        }
    }
}

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(catch, js_name = setTimeout)]
    fn set_timeout(ring: &Closure<dyn FnMut()>, delay: i32) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(catch, js_name = clearTimeout)]
    fn clear_timeout(timer: &JsValue) -> Result<(), JsValue>;
}
