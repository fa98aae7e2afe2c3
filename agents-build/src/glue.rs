//! wasm-bindgen: the JavaScript that stands between workerd and the module.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context, Result, ensure};
use wasm_bindgen_cli_support::Bindgen;

/// What the glue exports that a Worker has to export too.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Exports {
    /// Durable Object classes.
    pub(crate) classes: BTreeSet<String>,
    /// Event handlers of the Worker itself: `fetch`, `scheduled`, …
    pub(crate) events: BTreeSet<String>,
}

/// Handlers that `#[worker::event]` can export.
const EVENTS: [&str; 4] = ["fetch", "scheduled", "queue", "email"];

/// Changes to the glue: what it says, what we need, and why. A build stops when one does not apply any more.
const CHANGES: [(&str, &str); 5] = [
    // esbuild and workerd do not know source-phase imports; an ordinary one gives the module as well.
    ("import source ", "import "),
    // The one place where the glue finds out that an instance is lost, whatever the reason. Tell the entry.
    (
        "function __wbg_call_abort_hook() {",
        "function __wbg_call_abort_hook() {\n    globalThis.__worker_init_state.criticalError = true;",
    ),
    // By itself the glue would start a new instance in the middle of the next call, which may come from a
    // callback of the old one and hold pointers into its memory. Only the entry starts instances.
    ("__wbg_reinit_scheduled = true;", ""),
    // Letter by letter is quick for short texts. Rows and bodies are long, and mostly ASCII.
    (
        "let offset = 0;",
        "let offset = len > 64 && cachedTextEncoder.encodeInto(arg, mem.subarray(ptr, ptr + len)).read === len ? len : 0;",
    ),
    // Every turn of a Rust task goes through this, and the runtime's own function takes several times as long.
    ("queueMicrotask(arg0);", "Promise.resolve().then(arg0);"),
];

/// Writes `index.js`, `index_bg.wasm` and `snippets/` into `folder`.
pub(crate) fn generate(wasm: &Path, folder: &Path) -> Result<Exports> {
    let mut bindgen = Bindgen::new();
    bindgen
        .input_path(wasm)
        .out_name("index")
        .typescript(false)
        .reset_state_function(true)
        .force_enable_abort_handler(true);
    bindgen.module(true)?;
    bindgen.generate(folder).context("wasm-bindgen")?;

    let path = folder.join("index.js");
    let mut glue = fs::read_to_string(&path)?;
    for (from, to) in CHANGES {
        ensure!(
            glue.matches(from).count() == 1,
            "the glue of this wasm-bindgen has another form: expected {from:?} once"
        );
        glue = glue.replace(from, to);
    }
    let exports = exports(&glue);
    ensure!(
        exports != Exports::default(),
        "nothing to export: no #[event(fetch)] and no #[durable_object] (is a feature missing?)"
    );
    fs::write(&path, glue)?;
    Ok(exports)
}

/// Finds the exports by the shape that the macros of `worker` give them: a Durable Object is a class with a
/// two-argument constructor and a one-argument `fetch`.
fn exports(glue: &str) -> Exports {
    let mut found = Exports::default();
    for event in EVENTS {
        if glue.contains(&format!("\nexport function {event}(")) {
            found.events.insert(event.to_owned());
        }
    }
    for part in glue.split("\nexport class ").skip(1) {
        let class = part.split("\n}").next().unwrap_or_default();
        let name = class.split_whitespace().next().unwrap_or_default();
        if arity(class, "constructor") == Some(2) && arity(class, "fetch") == Some(1) {
            found.classes.insert(name.to_owned());
        }
    }
    found
}

/// How many parameters a method of the class has.
fn arity(class: &str, method: &str) -> Option<usize> {
    let (_, rest) = class.split_once(&format!("\n    {method}("))?;
    let parameters = rest.split(')').next()?;
    Some(
        parameters
            .split(',')
            .filter(|parameter| !parameter.trim().is_empty())
            .count(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_durable_objects_and_events_only() {
        let glue = "import x from 'x';

export class Agent {
    free() {
    }
    fetch(req) {
        if (x) {
        }
    }
    constructor(state, env) {
    }
}

export class Client {
    fetch(url, options) {
    }
    constructor(state, env) {
    }
}

export class Plain {
    constructor(state, env) {
    }
}
export function fetch(req, env, ctx) {
}
export function fetcher() {
}
";
        let found = exports(glue);
        assert_eq!(found.classes, BTreeSet::from(["Agent".to_owned()]));
        assert_eq!(found.events, BTreeSet::from(["fetch".to_owned()]));
    }
}
