//! Who may write what is stored of one server's sign-ins.
//!
//! Between looking at what is stored and writing it there may be a pause, in which somebody else
//! signs in, or out, or removes the server. So one at a time enters, and who has begun before such a
//! turn is not let in any more.

use std::cell::Cell;

use futures::lock::{Mutex, MutexGuard};

use super::OAuthError;

#[derive(Default)]
pub(crate) struct Gate {
    lock: Mutex<()>,
    epoch: Cell<u64>,
    is_closed: Cell<bool>,
}

impl Gate {
    /// The present epoch: for [`enter`](Self::enter) later.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.get()
    }

    /// Whatever has begun so far is not let in any more.
    pub(super) fn advance(&self) {
        self.epoch.set(self.epoch.get() + 1);
    }

    /// Nobody is let in any more, except to clean up.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
        self.advance();
    }

    /// Waits for those before. Do not ask twice without leaving.
    pub(super) async fn enter(&self, epoch: u64) -> Result<MutexGuard<'_, ()>, OAuthError> {
        let entered = self.lock.lock().await;
        if self.is_closed.get() {
            return Err(OAuthError::SignInOver("the server was removed meanwhile"));
        }
        if self.epoch.get() != epoch {
            return Err(OAuthError::SignInOver(
                "the sign-in was changed meanwhile: start again",
            ));
        }
        Ok(entered)
    }

    /// For those who read, or clean up.
    pub(super) async fn enter_anyway(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().await
    }
}
