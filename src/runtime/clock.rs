//! Timers over `setTimeout`, and the time over `Date`.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use worker::{Date, Delay};

use crate::ports::{Clock, Timestamp};

/// The longest delay that `setTimeout` can hold: a signed 32-bit number of milliseconds.
const LONGEST: Duration = Duration::from_millis(i32::MAX as u64);

pub(super) struct Timers;

impl Clock for Timers {
    fn now(&self) -> Timestamp {
        Date::now().as_millis()
    }

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()> {
        // `Delay` wakes only who polled it first; shared, it wakes whoever polled it last.
        Box::pin(Delay::from(duration.min(LONGEST)).shared())
    }
}
