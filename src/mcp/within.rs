//! A time limit on work.

use std::future::Future;
use std::time::Duration;

use futures::future::{Either, select};

use crate::ports::Clock;
use crate::{Error, Result};

/// Runs `work` for at most `limit`, then drops it.
pub(crate) async fn within<T>(
    clock: &dyn Clock,
    limit: Duration,
    what: &str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    match select(std::pin::pin!(work), clock.sleep(limit)).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right(((), _)) => Err(Error::Timeout {
            what: what.to_owned(),
            after: limit,
        }),
    }
}
