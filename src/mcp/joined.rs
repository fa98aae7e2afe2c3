//! Work that everybody who asks for it shares, and that runs to its end even if nobody waits.

use std::future::Future;

use futures::FutureExt as _;
use futures::future::{AbortHandle, Abortable, LocalBoxFuture, Shared};

use crate::ports::Spawn;
use crate::{Error, Result};

/// The outcome, for any number of callers.
pub(crate) type Joined = Shared<LocalBoxFuture<'static, Result<()>>>;

/// Work under way. Dropping this does not end it; [`abort`](Self::abort) does.
pub(crate) struct Running {
    work: Joined,
    abort: AbortHandle,
}

impl Running {
    /// Begins `work` in the background.
    pub(crate) fn start(
        spawn: &dyn Spawn,
        work: impl Future<Output = Result<()>> + 'static,
    ) -> Self {
        let (abort, registration) = AbortHandle::new_pair();
        let work =
            Abortable::new(work, registration).map(|outcome| outcome.unwrap_or(Err(Error::Closed)));
        let work = work.boxed_local().shared();
        spawn.spawn(work.clone().map(drop).boxed_local());
        Self { work, abort }
    }

    /// Waits for the outcome.
    pub(crate) fn join(&self) -> Joined {
        self.work.clone()
    }

    /// Ends the work where it stands. Whoever waits for it gets [`Error::Closed`].
    pub(crate) fn abort(&self) {
        self.abort.abort();
    }
}
