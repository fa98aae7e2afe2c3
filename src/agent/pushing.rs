//! Telling browsers what changes about the servers.

use std::cell::{Cell, RefCell};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;
use std::time::Duration;

use crate::mcp::McpClientManager;
use crate::websockets::{Connection, WebSockets, frames};

/// What is sent to all browsers in a second, in bytes, before frames are spaced out.
const BYTES_PER_SECOND: usize = 20 << 20;
/// The shortest pause between two frames, so that what happens together is told together.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause between two frames.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Sends the servers to every browser that takes frames, when they change.
pub(super) struct Pusher {
    mcp: McpClientManager,
    sockets: WebSockets,
    is_running: Cell<bool>,
    is_due: Cell<bool>,
    /// What was sent last: in full, and without the lists.
    last: RefCell<[u64; 2]>,
}

impl Pusher {
    /// Who drops what this returns ends it.
    pub(super) fn start(mcp: &McpClientManager, sockets: &WebSockets) -> Rc<Self> {
        let pusher = Rc::new(Self {
            mcp: mcp.clone(),
            sockets: sockets.clone(),
            is_running: Cell::new(false),
            is_due: Cell::new(false),
            last: RefCell::default(),
        });
        // Manager and sockets do not own the pusher, which owns them.
        let weak = Rc::downgrade(&pusher);
        sockets.greet(move |connection| {
            let (pusher, connection) = (weak.upgrade(), connection.clone());
            Box::pin(async move {
                let Some(pusher) = pusher else { return };
                let max = pusher.sockets.options().max_frame_bytes;
                if let Some(frame) = frame(&pusher.mcp, is_compact(&connection), max).await {
                    connection.send(&frame);
                }
            })
        });
        let weak = Rc::downgrade(&pusher);
        mcp.on_server_state_changed(move || {
            if let Some(pusher) = weak.upgrade() {
                pusher.changed();
            }
        })
        .detach();
        pusher
    }

    fn changed(self: &Rc<Self>) {
        self.is_due.set(true);
        if self.is_running.get() || !self.sockets.has_listeners() {
            return;
        }
        self.is_running.set(true);
        let this = self.clone();
        wasm_bindgen_futures::spawn_local(async move {
            while this.is_due.replace(false) {
                let bytes = this.push(false).await + this.push(true).await;
                if bytes > 0 {
                    crate::runtime::clock().sleep(pause_after(bytes)).await;
                }
            }
            this.is_running.set(false);
        });
    }

    /// Sends one kind of frame to whom it is for, unless it says nothing new. Says how much that was.
    async fn push(&self, compact: bool) -> usize {
        let is_meant = |connection: &Connection| {
            connection.is_sent_protocol_messages() && is_compact(connection) == compact
        };
        let count = self.sockets.count_where(is_meant);
        if count == 0 {
            return 0;
        }
        let max = self.sockets.options().max_frame_bytes;
        let Some(frame) = frame(&self.mcp, compact, max).await else {
            return 0;
        };
        let mut hasher = DefaultHasher::new();
        frame.hash(&mut hasher);
        let hash = hasher.finish();
        let is_new = match &mut *self.last.borrow_mut() {
            [_, last] if compact => std::mem::replace(last, hash) != hash,
            [last, _] => std::mem::replace(last, hash) != hash,
        };
        if !is_new {
            return 0;
        }
        self.sockets.send_where(&frame, is_meant);
        frame.len().saturating_mul(count)
    }
}

fn is_compact(connection: &Connection) -> bool {
    connection.flags().is_compact
}

async fn frame(mcp: &McpClientManager, compact: bool, max: usize) -> Option<String> {
    let snapshot = if compact {
        mcp.servers_snapshot().await
    } else {
        mcp.snapshot().await
    };
    match snapshot.and_then(|snapshot| snapshot.to_json(max)) {
        Ok(json) => Some(frames::mcp_servers(&json)),
        Err(error) => {
            worker::console_error!("the servers cannot be shown: {}", error.describe());
            None
        }
    }
}

fn pause_after(bytes: usize) -> Duration {
    let ms = bytes.saturating_mul(1000) / BYTES_PER_SECOND;
    Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
        .clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_spaced_out_by_how_much_they_are() {
        assert_eq!(pause_after(10_000), SHORTEST_PAUSE);
        assert_eq!(
            pause_after(BYTES_PER_SECOND / 10),
            Duration::from_millis(100)
        );
        assert_eq!(pause_after(usize::MAX), LONGEST_PAUSE);
    }
}
