//! What is being handled right now: known to everything that is called on the way, without being
//! handed down.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};

use url::Url;

thread_local! {
    static CURRENT: RefCell<Option<Invocation>> = const { RefCell::new(None) };
}

/// One event that the platform delivered, while it is being handled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invocation {
    /// What kind of event.
    pub event: Event,
    /// Where the request was sent to, or the one that opened the WebSocket, where it is known.
    pub url: Option<Url>,
    /// The trace that the request belongs to, if it says so.
    pub trace: Option<Trace>,
    /// Whether it comes from a WebSocket that may only read.
    pub is_readonly: bool,
}

/// The kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// An HTTP request, also one that opens a WebSocket.
    Request,
    /// A message, the end or an error of a WebSocket.
    WebSocket,
    /// The object's alarm.
    Alarm,
}

/// A place in a distributed trace (W3C Trace Context).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trace {
    /// The header `traceparent`, which is well formed.
    pub parent: String,
    /// The header `tracestate`.
    pub state: Option<String>,
}

/// The longest `tracestate` that is passed on; 512 bytes is what everybody must accept.
const LONGEST_STATE: usize = 512;

impl Invocation {
    /// An event without a URL or a trace.
    pub fn new(event: Event) -> Self {
        Self {
            event,
            url: None,
            trace: None,
            is_readonly: false,
        }
    }

    /// The same, from somebody who may only read.
    #[must_use]
    pub fn readonly(mut self, is_readonly: bool) -> Self {
        self.is_readonly = is_readonly;
        self
    }

    /// The same, about this URL.
    #[must_use]
    pub fn at(mut self, url: Option<Url>) -> Self {
        self.url = url;
        self
    }

    /// The same, as part of this trace.
    #[must_use]
    pub fn within(mut self, trace: Option<Trace>) -> Self {
        self.trace = trace;
        self
    }

    /// Runs `work` as a part of this invocation: [`current`] gives it while `work` is being polled,
    /// and at no other time.
    pub async fn scope<F: Future>(self, work: F) -> F::Output {
        let invocation = Some(self);
        Scope {
            invocation,
            work: Box::pin(work),
        }
        .await
    }
}

impl Trace {
    /// The trace that the two headers name. A `traceparent` that is not well formed makes the
    /// request one without a trace (W3C Trace Context §3.2.2).
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Self> {
        let parent = parent.trim();
        let mut parts = parent.split('-');
        let hexadecimal = |text: &str, length: usize| {
            text.len() == length
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        };
        let is_zero = |text: &str| text.bytes().all(|byte| byte == b'0');
        let version = parts.next().filter(|version| hexadecimal(version, 2))?;
        let trace = parts.next()?;
        let span = parts.next()?;
        let flags = parts.next()?;
        let is_known = version == "00";
        if version == "ff"
            || !hexadecimal(trace, 32)
            || is_zero(trace)
            || !hexadecimal(span, 16)
            || is_zero(span)
            || !hexadecimal(flags, 2)
            || (is_known && parts.next().is_some())
        {
            return None;
        }
        let is_plain = |state: &&str| {
            !state.is_empty()
                && state.len() <= LONGEST_STATE
                && state.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        };
        // Later versions may have more members, which we do not know.
        Some(Self {
            parent: if is_known {
                parent.to_owned()
            } else {
                format!("00-{trace}-{span}-{flags}")
            },
            state: state.map(str::trim).filter(is_plain).map(str::to_owned),
        })
    }
}

/// The invocation being handled. None in work that outlives its event, such as background tasks.
pub fn current() -> Option<Invocation> {
    CURRENT.with_borrow(Clone::clone)
}

/// The trace that the invocation being handled belongs to.
pub(crate) fn current_trace() -> Option<Trace> {
    CURRENT.with_borrow(|current| current.as_ref()?.trace.clone())
}

struct Scope<F: Future> {
    /// While the work is polled, what was current before it.
    invocation: Option<Invocation>,
    work: Pin<Box<F>>,
}

impl<F: Future> Future for Scope<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        CURRENT.with_borrow_mut(|current| std::mem::swap(current, &mut this.invocation));
        let outcome = this.work.as_mut().poll(context);
        CURRENT.with_borrow_mut(|current| std::mem::swap(current, &mut this.invocation));
        outcome
    }
}

#[cfg(test)]
mod tests {
    use futures::channel::oneshot;
    use futures::executor::{LocalPool, block_on};
    use futures::task::LocalSpawnExt as _;

    use super::*;

    fn at(url: &str) -> Invocation {
        Invocation::new(Event::Request).at(Url::parse(url).ok())
    }

    fn here() -> Option<String> {
        current()?.url.map(String::from)
    }

    #[test]
    fn interleaved_invocations_never_see_each_other() {
        let mut pool = LocalPool::new();
        let mut gates = Vec::new();
        let mut seen = Vec::new();
        for name in ["https://a.example/", "https://b.example/"] {
            let (open, gate) = oneshot::channel::<()>();
            let (tell, told) = oneshot::channel();
            gates.push(open);
            seen.push((name, told));
            let work = async move {
                let before = here();
                let _ = gate.await;
                let _ = tell.send((before, here()));
            };
            pool.spawner().spawn_local(at(name).scope(work)).unwrap();
        }
        pool.run_until_stalled();
        assert_eq!(current(), None);
        // The first one ends last.
        while let Some(open) = gates.pop() {
            open.send(()).unwrap();
            pool.run_until_stalled();
            assert_eq!(current(), None);
        }
        for (name, told) in seen {
            let name = Some(name.to_owned());
            assert_eq!(block_on(told), Ok((name.clone(), name)));
        }
    }

    #[test]
    fn an_invocation_within_another_hides_it_for_a_while() {
        block_on(at("https://outer.example/").scope(async {
            at("https://inner.example/")
                .scope(async { assert_eq!(here().unwrap(), "https://inner.example/") })
                .await;
            assert_eq!(here().unwrap(), "https://outer.example/");
        }));
    }

    #[test]
    fn background_work_has_none() {
        let mut pool = LocalPool::new();
        let spawner = pool.spawner();
        pool.run_until(at("https://a.example/").scope(async move {
            spawner
                .spawn_local(async { assert_eq!(current(), None) })
                .unwrap();
        }));
        pool.run_until_stalled();
    }

    #[test]
    fn a_trace_is_taken_over_only_when_it_is_well_formed() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let trace = Trace::parse(good, Some("vendor=1")).unwrap();
        assert_eq!(
            (trace.parent.as_str(), trace.state.as_deref()),
            (good, Some("vendor=1"))
        );
        let later = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more";
        assert_eq!(Trace::parse(later, None).unwrap().parent, good);
        for bad in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        ] {
            assert_eq!(Trace::parse(bad, None), None, "{bad}");
        }
        let long = "x".repeat(513);
        assert_eq!(Trace::parse(good, Some(&long)).unwrap().state, None);
        assert_eq!(Trace::parse(good, Some("a\nb")).unwrap().state, None);
    }
}
