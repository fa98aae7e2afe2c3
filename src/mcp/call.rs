//! How one call is made: its limits, its progress, its log messages.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::invocation::current_trace;
use crate::protocol::bounded::{raw_member, small_member};

/// What may be said about a single call. The default says nothing.
///
/// ```
/// use std::time::Duration;
/// use workers_agents::CallOptions;
/// let patient = CallOptions::new()
///     .timeout(Duration::from_secs(10))
///     .on_progress(|progress| println!("{} of {:?}", progress.progress, progress.total));
/// ```
#[derive(Clone, Default)]
pub struct CallOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_time: Option<Duration>,
    pub(crate) on_progress: Option<OnProgress>,
    pub(crate) log_level: Option<LogLevel>,
    pub(crate) meta: Option<Map<String, Value>>,
}

pub(crate) type OnProgress = Rc<dyn Fn(&Progress)>;

impl CallOptions {
    /// Says nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long to wait for the answer, or for the next sign of life: every progress notification
    /// starts the wait anew. Replaces [`McpClientOptions::request_timeout`](super::McpClientOptions::request_timeout).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How long the call may take in all, whatever progress is made and however long the user
    /// thinks. Replaces [`McpClientOptions::max_request_time`](super::McpClientOptions::max_request_time).
    #[must_use]
    pub fn max_time(mut self, time: Duration) -> Self {
        self.max_time = Some(time);
        self
    }

    /// Called for every progress notification of this call.
    #[must_use]
    pub fn on_progress(mut self, listener: impl Fn(&Progress) + 'static) -> Self {
        self.on_progress = Some(Rc::new(listener));
        self
    }

    /// Asks a server of the modern era for log messages of this call (2026-07-28, logging). A
    /// server of the legacy era is asked by [`set_log_level`](super::McpClientManager::set_log_level).
    #[must_use]
    pub fn log_level(mut self, level: LogLevel) -> Self {
        self.log_level = Some(level);
        self
    }

    /// Members of `_meta`. Those of the protocol itself cannot be replaced.
    #[must_use]
    pub fn meta(mut self, meta: Map<String, Value>) -> Self {
        self.meta = Some(meta);
        self
    }
}

impl CallOptions {
    /// The same as part of the trace that is being handled, unless it names one of its own
    /// (SEP-414: `traceparent` and `tracestate` in `_meta`).
    pub(super) fn traced(&self) -> Option<Self> {
        let trace = current_trace()?;
        let mut meta = self.meta.clone().unwrap_or_default();
        if meta.contains_key("traceparent") {
            return None;
        }
        meta.insert("traceparent".into(), trace.parent.into());
        if let Some(state) = trace.state {
            meta.insert("tracestate".into(), state.into());
        }
        Some(self.clone().meta(meta))
    }
}

impl fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallOptions")
            .field("timeout", &self.timeout)
            .field("max_time", &self.max_time)
            .field("log_level", &self.log_level)
            .finish_non_exhaustive()
    }
}

/// A sign that a call is under way (`notifications/progress`).
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct Progress {
    /// How far it is. Supposed to grow; servers do as they like.
    pub progress: f64,
    /// How far it has to go, where known.
    pub total: Option<f64>,
    /// What is being done. Untrusted.
    pub message: Option<String>,
}

/// The longest progress message that is kept, in bytes of JSON.
const MAX_TEXT: usize = 4 << 10;

impl Progress {
    /// Reads the parameters of a progress notification. What is no finite number counts as absent;
    /// without any progress there is nothing to tell.
    pub(crate) fn read(params: &RawValue) -> Option<Self> {
        let number = |name: &str| {
            let number: Option<f64> = small_member(params, name, 64);
            number.filter(|number| number.is_finite())
        };
        Some(Self {
            progress: number("progress")?,
            total: number("total"),
            message: small_member(params, "message", MAX_TEXT),
        })
    }

    /// The token of a progress notification. Ours are all integers.
    pub(crate) fn token(params: &RawValue) -> Option<i64> {
        serde_json::from_str(raw_member(params, "progressToken")?.get()).ok()
    }
}

/// How grave a log message is (RFC 5424 §6.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// For debugging.
    Debug,
    /// For information.
    Info,
    /// Normal and significant.
    Notice,
    /// A warning.
    Warning,
    /// An error.
    Error,
    /// Critical.
    Critical,
    /// Something must be done at once.
    Alert,
    /// The system is unusable.
    Emergency,
}

impl LogLevel {
    /// Every level, the least grave first.
    pub const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    /// The level of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.into()).unwrap()
    }

    #[test]
    fn tl_32_odd_progress_is_read_as_far_as_it_makes_sense() {
        for (text, progress, total) in [
            (r#"{"progress":0.5,"total":2}"#, Some(0.5), Some(2.0)),
            (r#"{"progress":3}"#, Some(3.0), None),
            (r#"{"progress":3,"total":null}"#, Some(3.0), None),
            (r#"{"progress":1e308,"total":"4"}"#, Some(1e308), None),
            (r#"{"progress":"4"}"#, None, None),
            (r#"{"progress":1e999}"#, None, None),
            ("{}", None, None),
            ("[]", None, None),
        ] {
            let read = Progress::read(&raw(text));
            assert_eq!(read.as_ref().map(|read| read.progress), progress, "{text}");
            assert_eq!(read.and_then(|read| read.total), total, "{text}");
        }
        assert_eq!(Progress::token(&raw(r#"{"progressToken":7}"#)), Some(7));
        for text in [r#"{"progressToken":"7"}"#, r#"{"progressToken":7.5}"#, "{}"] {
            assert_eq!(Progress::token(&raw(text)), None, "{text}");
        }
    }

    #[test]
    fn levels_are_those_of_the_wire() {
        for level in LogLevel::ALL {
            assert_eq!(LogLevel::parse(level.as_str()), Some(level));
        }
        assert!(LogLevel::Emergency > LogLevel::Debug && LogLevel::parse("fatal").is_none());
    }
}
