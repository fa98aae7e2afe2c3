//! What must hold for every input of what reads other people's bytes.
//!
//! A target is a function of bytes that panics when a property does not hold. `tests/corpus.rs` runs each on its
//! corpus, as part of the native tests; `main.rs` gives them to libFuzzer, which searches for input that breaks one.

mod challenge;
mod cuts;
mod exchange;
mod form;
mod gate;
mod header;
mod jsonrpc;
mod mirror;
mod path;
mod result;
mod schema;
mod sign_in;
mod skill;
pub mod sse;
mod url;

/// One target.
pub type Target = fn(&[u8]);

/// Every target, by the name of the folder in `corpus/`.
pub const TARGETS: &[(&str, Target)] = &[
    ("challenge", challenge::check),
    ("exchange", exchange::check),
    ("form", form::check),
    ("gate", gate::check),
    ("header", header::check),
    ("jsonrpc", jsonrpc::check),
    ("mirror", mirror::check),
    ("path", path::check),
    ("result", result::check),
    ("schema", schema::check),
    ("sign-in", sign_in::check),
    ("skill", skill::check),
    ("sse", sse::check),
    ("url", url::check),
];

/// The input as lines of text, for targets that read several texts; those that are missing are empty.
fn lines<const N: usize>(input: &[u8]) -> Option<[&str; N]> {
    let mut lines = str::from_utf8(input).ok()?.split('\n');
    Some(std::array::from_fn(|_| lines.next().unwrap_or_default()))
}

/// What `work` returns, and the most bytes that it held at once.
fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let mut result = None;
    let allocated = allocation_counter::measure(|| result = Some(work()));
    let result = result.expect("the work is done");
    (result, usize::try_from(allocated.bytes_max).expect("fits"))
}
