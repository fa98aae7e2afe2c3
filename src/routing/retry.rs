//! When a request to an object is sent once more.

use std::time::Duration;

use crate::retry::{InvalidRetry, RetryOptions};
use crate::{Error, Result};

/// How often a request is sent to an object that cannot be reached, and how long to wait in between:
/// capped exponential backoff with full jitter.
///
/// Sent again is only what fails with an error that is marked as retryable, as the platform marks lost
/// connections, and not as overloaded. The object may have done a part by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutingRetry(RetryOptions);

impl RoutingRetry {
    /// Three attempts, with bounds of 100 ms, doubled each time, up to 800 ms.
    pub fn new() -> Self {
        Self(RetryOptions {
            max_attempts: 3,
            base_delay: Duration::from_millis(100),
            max_delay: Duration::from_millis(800),
        })
    }

    /// How often it is tried in all, the first time included: 1 to 100.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.0.max_attempts = attempts;
        self
    }

    /// The bound of the first delay.
    #[must_use]
    pub fn base_delay(mut self, delay: Duration) -> Self {
        self.0.base_delay = delay;
        self
    }

    /// What the bound of a delay never exceeds.
    #[must_use]
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.0.max_delay = delay;
        self
    }

    /// # Errors
    /// [`Error::InvalidOption`]; the texts name the members as the TypeScript package does.
    pub(super) fn validate(&self) -> Result<()> {
        let reason = match self.0.validate() {
            Ok(()) => return Ok(()),
            Err(InvalidRetry::BaseOverMax) => "baseDelayMs must be <= maxDelayMs".to_owned(),
            Err(error) => error.to_string().replace("retry.", ""),
        };
        Err(Error::InvalidOption(format!("routingRetry.{reason}")))
    }

    /// Whether there may be a second attempt.
    pub(super) fn may_repeat(&self) -> bool {
        self.0.max_attempts > 1
    }

    /// How long to wait after attempt number `failed`, counted from 1, before the next one. `None`
    /// when there is none. `random` is 64 random bits.
    pub(super) fn next(&self, failed: u32, failure: Failure, random: u64) -> Option<Duration> {
        let is_passing = failure.is_retryable && !failure.is_overloaded;
        let is_allowed = is_passing && failed < self.0.max_attempts;
        is_allowed.then(|| self.0.delay(failed.saturating_sub(1), random))
    }
}

impl Default for RoutingRetry {
    fn default() -> Self {
        Self::new()
    }
}

/// What the platform says about an error: the properties `retryable` and `overloaded`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Failure {
    /// The next time may go better.
    pub(super) is_retryable: bool,
    /// More requests make it worse.
    pub(super) is_overloaded: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSING: Failure = Failure {
        is_retryable: true,
        is_overloaded: false,
    };

    #[test]
    fn only_what_is_retryable_and_not_overloaded_is_sent_again() {
        let retry = RoutingRetry::new();
        for (is_retryable, is_overloaded, is_sent) in [
            (true, false, true),
            (true, true, false),
            (false, false, false),
            (false, true, false),
        ] {
            let failure = Failure {
                is_retryable,
                is_overloaded,
            };
            assert_eq!(retry.next(1, failure, 0).is_some(), is_sent, "{failure:?}");
        }
    }

    #[test]
    fn there_are_three_attempts() {
        let retry = RoutingRetry::new();
        assert!(retry.next(1, PASSING, 0).is_some());
        assert!(retry.next(2, PASSING, 0).is_some());
        assert_eq!(retry.next(3, PASSING, 0), None);
        let once = retry.max_attempts(1);
        assert_eq!(once.next(1, PASSING, 0), None);
        assert!(retry.may_repeat() && !once.may_repeat());
    }

    #[test]
    fn delays_are_spread_below_a_bound_that_doubles_up_to_the_cap() {
        let retry = RoutingRetry::new().max_attempts(100);
        for (failed, bound) in [(1, 100), (2, 200), (3, 400), (4, 800), (5, 800), (99, 800)] {
            let next = |random| retry.next(failed, PASSING, random).unwrap().as_millis();
            assert_eq!(next(0), 0);
            assert_eq!(next(u64::MAX / 2 + 1), bound / 2);
            assert_eq!(next(u64::MAX), bound - 1);
        }
    }

    #[test]
    fn policies_that_make_no_sense_are_refused() {
        let zero = Duration::ZERO;
        let retry = RoutingRetry::new();
        for (retry, text) in [
            (
                retry.max_attempts(0),
                "routingRetry.maxAttempts must be >= 1",
            ),
            (
                retry.max_attempts(101),
                "routingRetry.maxAttempts must be <= 100",
            ),
            (
                retry.base_delay(zero),
                "routingRetry.baseDelayMs must be > 0",
            ),
            (retry.max_delay(zero), "routingRetry.maxDelayMs must be > 0"),
            (
                retry.base_delay(Duration::from_secs(1)),
                "routingRetry.baseDelayMs must be <= maxDelayMs",
            ),
        ] {
            assert_eq!(retry.validate().unwrap_err().to_string(), text);
        }
        retry.validate().unwrap();
    }
}
