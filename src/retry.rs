//! How often something is tried, and how long to wait in between.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A retry policy: capped exponential backoff with full jitter.
///
/// Stored and sent as `{maxAttempts?, baseDelayMs?, maxDelayMs?}`; what is missing is taken from
/// [`RetryOptions::CONNECT`], and fractions are dropped. Reading accepts every number, so that one
/// bad value does not make a whole stored row unreadable: call [`validate`](Self::validate) on what
/// comes from a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Wire<f64>", into = "Wire<u64>")]
pub struct RetryOptions {
    /// How often it is tried in all, the first time included.
    pub max_attempts: u32,
    /// Half of the bound of the first delay; the bound doubles with every attempt.
    pub base_delay: Duration,
    /// What the bound of a delay never exceeds.
    pub max_delay: Duration,
}

impl RetryOptions {
    /// Connecting to a server in the background and after its authorization.
    pub const CONNECT: Self = Self {
        max_attempts: 3,
        base_delay: Duration::from_millis(500),
        max_delay: Duration::from_secs(5),
    };

    /// The most attempts a policy may ask for.
    pub const MOST_ATTEMPTS: u32 = 100;

    /// Refuses a policy that would never try or never wait.
    pub fn validate(&self) -> Result<(), InvalidRetry> {
        if self.max_attempts < 1 {
            return Err(InvalidRetry::NoAttempts);
        }
        if self.max_attempts > Self::MOST_ATTEMPTS {
            return Err(InvalidRetry::TooManyAttempts);
        }
        if self.base_delay.is_zero() {
            return Err(InvalidRetry::NoBaseDelay);
        }
        if self.max_delay.is_zero() {
            return Err(InvalidRetry::NoMaxDelay);
        }
        if self.base_delay > self.max_delay {
            return Err(InvalidRetry::BaseOverMax);
        }
        Ok(())
    }

    /// How long to wait after attempt number `failed`, counted from 1.
    ///
    /// Whole milliseconds, evenly spread from zero up to but not including
    /// `min(base_delay · 2^failed, max_delay)`. `random` is 64 random bits.
    pub fn delay(&self, failed: u32, random: u64) -> Duration {
        let factor = 1_u128.checked_shl(failed).unwrap_or(u128::MAX);
        let bound = self
            .base_delay
            .as_millis()
            .saturating_mul(factor)
            .min(self.max_delay.as_millis());
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        // The product's high half scales 64 random bits to 0..bound.
        let millis = (u128::from(random) * u128::from(bound)) >> 64;
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self::CONNECT
    }
}

/// Why a retry policy is refused. The texts name the members as they are on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRetry {
    /// More than [`RetryOptions::MOST_ATTEMPTS`].
    #[error("retry.maxAttempts must be <= 100")]
    TooManyAttempts,
    /// It would never try.
    #[error("retry.maxAttempts must be >= 1")]
    NoAttempts,
    /// It would not wait at all.
    #[error("retry.baseDelayMs must be > 0")]
    NoBaseDelay,
    /// It would not wait at all.
    #[error("retry.maxDelayMs must be > 0")]
    NoMaxDelay,
    /// The cap is below what it caps.
    #[error("retry.baseDelayMs must be <= retry.maxDelayMs")]
    BaseOverMax,
}

/// The JSON form. JavaScript writes any number, so it is read as `f64`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<N> {
    max_attempts: Option<N>,
    base_delay_ms: Option<N>,
    max_delay_ms: Option<N>,
}

impl From<Wire<f64>> for RetryOptions {
    fn from(wire: Wire<f64>) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "dropping the fraction and saturating are wanted"
        )]
        let whole = |number: f64| number as u64;
        let millis = |number| Duration::from_millis(whole(number));
        Self {
            max_attempts: wire
                .max_attempts
                .map_or(Self::CONNECT.max_attempts, |number| {
                    u32::try_from(whole(number)).unwrap_or(u32::MAX)
                }),
            base_delay: wire.base_delay_ms.map_or(Self::CONNECT.base_delay, millis),
            max_delay: wire.max_delay_ms.map_or(Self::CONNECT.max_delay, millis),
        }
    }
}

impl From<RetryOptions> for Wire<u64> {
    fn from(options: RetryOptions) -> Self {
        let millis = |delay: Duration| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        Self {
            max_attempts: Some(u64::from(options.max_attempts)),
            base_delay_ms: Some(millis(options.base_delay)),
            max_delay_ms: Some(millis(options.max_delay)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn options(max_attempts: u32, base: u64, max: u64) -> RetryOptions {
        RetryOptions {
            max_attempts,
            base_delay: Duration::from_millis(base),
            max_delay: Duration::from_millis(max),
        }
    }

    fn read(json: Value) -> RetryOptions {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn missing_members_are_those_of_connecting() {
        assert_eq!(read(json!({})), options(3, 500, 5000));
        assert_eq!(read(json!({"maxAttempts": 7})), options(7, 500, 5000));
        assert_eq!(read(json!({"baseDelayMs": 1})), options(3, 1, 5000));
        assert_eq!(read(json!({"maxDelayMs": 900})), options(3, 500, 900));
        assert_eq!(
            read(json!({"maxAttempts": null, "other": true})),
            RetryOptions::default()
        );
    }

    #[test]
    fn any_number_can_be_read() {
        assert_eq!(
            read(json!({"maxAttempts": 2.9, "baseDelayMs": 10.7, "maxDelayMs": 20.2})),
            options(2, 10, 20)
        );
        assert_eq!(
            read(json!({"maxAttempts": -1, "baseDelayMs": -0.5, "maxDelayMs": 1e300})),
            options(0, 0, u64::MAX)
        );
        assert!(serde_json::from_value::<RetryOptions>(json!({"maxAttempts": "3"})).is_err());
    }

    #[test]
    fn it_is_written_as_it_is_read() {
        let json = json!({"maxAttempts": 4, "baseDelayMs": 20, "maxDelayMs": 30});
        assert_eq!(serde_json::to_value(options(4, 20, 30)).unwrap(), json);
        assert_eq!(read(json), options(4, 20, 30));
    }

    #[test]
    fn validation_names_the_member() {
        for (options, text) in [
            (options(0, 500, 5000), "retry.maxAttempts must be >= 1"),
            (options(3, 0, 5000), "retry.baseDelayMs must be > 0"),
            (options(3, 500, 0), "retry.maxDelayMs must be > 0"),
            (
                options(3, 501, 500),
                "retry.baseDelayMs must be <= retry.maxDelayMs",
            ),
        ] {
            assert_eq!(options.validate().unwrap_err().to_string(), text);
        }
        assert_eq!(options(1, 500, 500).validate(), Ok(()));
        assert_eq!(RetryOptions::CONNECT.validate(), Ok(()));
    }

    #[test]
    fn delays_lie_below_a_doubling_bound() {
        for (failed, bound) in [
            (0, 500),
            (1, 1000),
            (2, 2000),
            (3, 4000),
            (4, 5000),
            (9, 5000),
        ] {
            let delay = |random| RetryOptions::CONNECT.delay(failed, random);
            assert_eq!(delay(0), Duration::ZERO);
            assert_eq!(delay(1 << 63), Duration::from_millis(bound / 2));
            assert_eq!(delay(u64::MAX), Duration::from_millis(bound - 1));
        }
    }

    #[test]
    fn extreme_policies_do_not_overflow() {
        let endless = RetryOptions {
            max_attempts: u32::MAX,
            base_delay: Duration::MAX,
            max_delay: Duration::MAX,
        };
        assert_eq!(
            endless.delay(u32::MAX, u64::MAX),
            Duration::from_millis(u64::MAX - 1)
        );
        assert_eq!(options(1, 0, 0).delay(1, u64::MAX), Duration::ZERO);
        assert_eq!(
            options(1, 1, 100).delay(u32::MAX, u64::MAX),
            Duration::from_millis(99)
        );
    }
}
