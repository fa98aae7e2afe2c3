//! Cargo: from the crate to an unprocessed Wasm module.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use crate::args::Args;

const TARGET: &str = "wasm32-unknown-unknown";

/// Moving a value takes one `memory.copy` instead of a row of loads and stores: most of what async
/// code consists of is moves of values with many words.
const FEW_MOVES: &str = "-Cllvm-args=-max-store-memcpy=1";

/// Compiles the crate and returns the path of its module.
pub(crate) fn wasm(args: &Args) -> Result<PathBuf> {
    // Cargo names itself in `CARGO`; the set-up scripts name the one that has the Wasm target there.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        // `--crate-type cdylib`: with the `rlib` beside it, Cargo would leave out link-time optimisation.
        .args([
            "rustc",
            "--lib",
            "--crate-type",
            "cdylib",
            "--profile",
            &args.profile,
            "--target",
            TARGET,
        ])
        .args([
            "--package",
            &args.package,
            "--message-format",
            "json-render-diagnostics",
        ])
        // Cargo leaves the hash out of the file name of a local `cdylib`, so building the library with
        // other features, or as a dependency, would overwrite it and cause a rebuild every time.
        .env("__CARGO_DEFAULT_LIB_METADATA", "agents-build")
        .env("WASM_BINDGEN_USE_JS_SYS", "1")
        .stdout(Stdio::piped());
    if let Some(features) = &args.features {
        command.args(["--features", features]);
    }
    command.args(["--", FEW_MOVES]);
    let output = command
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .context("starting cargo")?;
    ensure!(
        output.status.success(),
        "cargo could not build {}",
        args.package
    );
    module(&String::from_utf8_lossy(&output.stdout)).with_context(|| {
        format!(
            "{} has no cdylib: add crate-type = [\"cdylib\"] to its [lib]",
            args.package
        )
    })
}

/// The module among the artifacts that Cargo reports. The package itself comes last.
fn module(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| {
            message
                .get("reason")
                .is_some_and(|reason| reason == "compiler-artifact")
        })
        .flat_map(|message| {
            message
                .get("filenames")
                .and_then(|files| files.as_array().cloned())
                .unwrap_or_default()
        })
        .filter_map(|file| file.as_str().map(PathBuf::from))
        .rfind(|file| {
            file.extension()
                .is_some_and(|extension| extension == "wasm")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_module_of_the_last_package() {
        let messages = r#"
{"reason":"compiler-artifact","filenames":["/t/libdep.rlib","/t/dep.wasm"]}
{"reason":"build-script-executed","filenames":["/t/no.wasm"]}
not json
{"reason":"compiler-artifact","filenames":["/t/worker.wasm"]}
{"reason":"build-finished","success":true}"#;
        assert_eq!(module(messages), Some(PathBuf::from("/t/worker.wasm")));
        assert_eq!(module(""), None);
    }
}
