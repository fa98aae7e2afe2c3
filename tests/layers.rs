//! The layers of the crate, checked on its sources: who may name the platform, and who may use whom.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed assertion by other means"
)]

use std::fs;
use std::path::{Path, PathBuf};

/// Names of the platform. They may stand in the shell only.
const PLATFORM: [&str; 5] = [
    "worker",
    "js_sys",
    "web_sys",
    "wasm_bindgen",
    "wasm_bindgen_futures",
];

/// Files and folders above the platform line.
const SHELL: [&str; 21] = [
    "ai/platform.rs",
    "agent/mod.rs",
    "agent/elicitation.rs",
    "agent/pushing.rs",
    "served.rs",
    "entrypoint/methods.rs",
    "entrypoint/mod.rs",
    "entrypoint/api/",
    "entrypoint/login.rs",
    "entrypoint/page.rs",
    "entrypoint/problem.rs",
    "mcp/capability.rs",
    "routing/handle.rs",
    "routing/internal.rs",
    "routing/mod.rs",
    "routing/router.rs",
    "routing/target.rs",
    "runtime/",
    "websockets/call.rs",
    "websockets/connection.rs",
    "websockets/mod.rs",
];
const SHELL_OF_LIFECYCLE: [&str; 6] = [
    "lifecycle/mod.rs",
    "lifecycle/object.rs",
    "lifecycle/capability.rs",
    "lifecycle/events.rs",
    "lifecycle/services.rs",
    "lifecycle/sockets.rs",
];

/// What each module may use of the crate, itself left out. `error` is the sum of all errors, so
/// everybody may use it and it may name the errors of everybody.
const EDGES: [(&str, &[&str]); 20] = [
    ("url_guard", &[]),
    ("retry", &[]),
    ("events", &[]),
    ("invocation", &[]),
    ("ports", &["url_guard"]),
    ("vault", &["ports"]),
    ("protocol", &[]),
    ("transport", &["ports", "protocol", "url_guard"]),
    ("oauth", &["ports", "protocol", "url_guard"]),
    ("serving", &["ports", "protocol"]),
    ("served", &["lifecycle", "runtime", "serving"]),
    (
        "error",
        &[
            "lifecycle",
            "mcp",
            "oauth",
            "ports",
            "protocol",
            "retry",
            "transport",
            "url_guard",
            "websockets",
        ],
    ),
    (
        "mcp",
        &[
            "events",
            "invocation",
            "oauth",
            "ports",
            "protocol",
            "retry",
            "transport",
            "url_guard",
            "vault",
        ],
    ),
    ("runtime", &["events", "mcp", "ports"]),
    ("ai", &["mcp", "ports", "protocol", "url_guard"]),
    ("routing", &["retry"]),
    ("websockets", &["events", "ports", "protocol"]),
    (
        "lifecycle",
        &[
            "invocation",
            "ports",
            "retry",
            "routing",
            "runtime",
            "websockets",
        ],
    ),
    (
        "agent",
        &[
            "lifecycle",
            "mcp",
            "routing",
            "runtime",
            "vault",
            "websockets",
        ],
    ),
    (
        "entrypoint",
        &[
            "agent",
            "invocation",
            "lifecycle",
            "mcp",
            "oauth",
            "protocol",
            "retry",
            "routing",
            "transport",
            "url_guard",
            "vault",
            "websockets",
        ],
    ),
];

/// The one file that installs the manager in a lifecycle stands above its module.
const INSTALLER: &str = "mcp/capability.rs";

/// So does the one that gives agents models and tools.
const MODELS: &str = "ai/platform.rs";

fn sources() -> Vec<(String, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    walk(&root, &mut found);
    found
        .into_iter()
        .map(|path| {
            let name = path
                .strip_prefix(&root)
                .unwrap()
                .to_str()
                .unwrap()
                .replace('\\', "/");
            (name, code(&fs::read_to_string(&path).unwrap()))
        })
        .collect()
}

/// The text without comments, and without string literals on the way.
fn code(text: &str) -> String {
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Paths such as `worker::Fetch`, whatever stands before them.
fn names(code: &str, krate: &str) -> bool {
    let path = format!("{krate}::");
    code.match_indices(&path).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|character| character.is_alphanumeric() || character == '_')
    }) || code.contains(&format!("use {krate};"))
}

#[test]
fn the_platform_is_named_in_the_shell_only() {
    let shell = |name: &str| {
        SHELL
            .iter()
            .chain(&SHELL_OF_LIFECYCLE)
            .any(|allowed| name.starts_with(allowed))
    };
    let mut checked = 0;
    for (name, code) in sources().into_iter().filter(|(name, _)| !shell(name)) {
        for krate in PLATFORM {
            assert!(!names(&code, krate), "{name} names {krate}");
        }
        checked += 1;
    }
    assert!(checked > 20, "only {checked} files were found");
}

#[test]
fn the_check_finds_what_it_looks_for() {
    assert!(names("use worker::Fetch;", "worker"));
    assert!(names("let x = ::worker::Env;", "worker"));
    assert!(!names("co_worker::x", "worker"));
    assert!(!names("worker_sys::x", "worker"));
    assert_eq!(code("a // worker::x"), "a ");
}

#[test]
fn modules_use_lower_rows_only() {
    for (name, code) in sources() {
        let module = name.split(['/', '.']).next().unwrap();
        if module == "lib" || name == INSTALLER || name == MODELS {
            continue;
        }
        let (_, allowed) = EDGES
            .iter()
            .find(|(known, _)| *known == module)
            .unwrap_or_else(|| panic!("{module} is not in the table of modules"));
        for (known, _) in EDGES {
            let is_used = code.contains(&format!("crate::{known}::"));
            let is_allowed = known == module || known == "error" || allowed.contains(&known);
            assert!(!is_used || is_allowed, "{name} uses {known}");
        }
    }
}
