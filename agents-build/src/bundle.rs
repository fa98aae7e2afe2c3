//! esbuild, wasm-opt, and putting the results in place.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use flate2::{Compression, write::GzEncoder};

/// Exactly what rustc emits and workerd runs; `--all-features` would let the optimiser use more than that.
const WASM_FEATURES: [&str; 7] = [
    "--enable-mutable-globals",
    "--enable-sign-ext",
    "--enable-nontrapping-float-to-int",
    "--enable-bulk-memory",
    "--enable-multivalue",
    "--enable-reference-types",
    "--enable-exception-handling",
];

/// Name of the module with its symbols, for reading stack traces. Nothing imports it, so it is not deployed.
const WITH_SYMBOLS: &str = "index_bg.debug.wasm";

/// Bundles entry, glue and snippets into `worker.mjs`. A small one keeps its names, which stack
/// traces show.
pub(crate) fn script(work: &Path, small: bool) -> Result<()> {
    let mut esbuild = Command::new(tool("esbuild")?);
    esbuild
        .current_dir(work)
        .args([
            "entry.mjs",
            "--bundle",
            "--format=esm",
            "--target=es2022",
            "--outfile=worker.mjs",
        ])
        .args([
            "--external:cloudflare:*",
            "--external:./index_bg.wasm",
            "--log-level=warning",
            // The glue names a snippet once for each of its functions.
            "--log-override:duplicate-object-key=silent",
        ]);
    if small {
        esbuild.args(["--minify-whitespace", "--minify-syntax"]);
    }
    run(esbuild, "esbuild")
}

/// Keeps the module with its symbols, then makes the small one.
pub(crate) fn optimise(work: &Path, optimise: bool) -> Result<()> {
    if !optimise {
        return Ok(());
    }
    fs::rename(work.join("index_bg.wasm"), work.join(WITH_SYMBOLS))?;
    let mut wasm_opt = Command::new(tool("wasm-opt")?);
    wasm_opt
        .current_dir(work)
        .args([WITH_SYMBOLS, "-O", "--strip-debug", "--strip-producers"])
        .args(WASM_FEATURES)
        .args(["-o", "index_bg.wasm"]);
    run(wasm_opt, "wasm-opt")
}

/// Moves the results to the output folder and tells their sizes: the compressed one, which counts where Workers are
/// deployed, only of a `small` one, since this program takes seconds to find it out.
pub(crate) fn publish(work: &Path, out: &Path, small: bool) -> Result<String> {
    let module = fs::read(work.join("index_bg.wasm"))?;
    for name in ["index_bg.wasm", WITH_SYMBOLS, "worker.mjs"] {
        if work.join(name).exists() {
            fs::rename(work.join(name), out.join(name))?;
        }
    }
    fs::remove_dir_all(work)?;
    if !small {
        return Ok(format!("{} bytes of Wasm", module.len()));
    }

    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(&module)?;
    Ok(format!(
        "{} bytes of Wasm, {} gzipped",
        module.len(),
        gzip.finish()?.len()
    ))
}

/// A program of the npm packages, looked for from the current folder upwards.
fn tool(name: &str) -> Result<PathBuf> {
    let here = std::env::current_dir()?;
    here.ancestors()
        .map(|folder| folder.join("node_modules/.bin").join(name))
        .find(|path| path.exists())
        .with_context(|| format!("{name} is not installed: run `npm run setup`"))
}

fn run(mut command: Command, name: &str) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("starting {name}"))?;
    ensure!(status.success(), "{name} ended with {status}");
    Ok(())
}
