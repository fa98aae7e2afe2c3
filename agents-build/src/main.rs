//! `agents-build`: from a crate of this workspace to a Worker that `wrangler` can deploy.
//!
//! ```text
//! cargo (wasm32, release) → wasm-bindgen glue → our entry → esbuild → worker.mjs
//!                                            └→ wasm-opt → index_bg.wasm
//! ```
//!
//! The steps are one file each; [`main`] is their order.

mod args;
mod bundle;
mod compile;
mod entry;
mod glue;
mod stamp;

use std::{fs, process::ExitCode, time::Instant};

use anyhow::{Context, Result};

use crate::{args::Args, stamp::Stamp};

#[expect(clippy::print_stdout, reason = "the result of a command line tool")]
fn main() -> ExitCode {
    match Args::parse(std::env::args().skip(1)).and_then(|args| run(&args)) {
        Ok(line) => {
            println!("agents-build: {line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("agents-build failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the Worker and says in one line what came out.
fn run(args: &Args) -> Result<String> {
    let started = Instant::now();
    let wasm = compile::wasm(args)?;
    let stamp = Stamp::of(args, &wasm)?;
    let name = format!("{} in {}", args.package, args.out.display());
    if stamp.matches(&args.out) {
        return Ok(format!("{name} is up to date"));
    }

    // Everything is made in a folder of its own and moved at the end, so that a failure half way
    // leaves the last good Worker in place.
    let work = args.out.join(".work");
    if work.exists() {
        fs::remove_dir_all(&work).context("removing an interrupted build")?;
    }
    fs::create_dir_all(&work).with_context(|| format!("creating {}", work.display()))?;
    let exports = glue::generate(&wasm, &work)?;
    entry::write(&work, &exports)?;
    bundle::script(&work, args.optimise)?;
    bundle::optimise(&work, args.optimise)?;
    let sizes = bundle::publish(&work, &args.out, args.optimise)?;
    stamp.write(&args.out)?;
    Ok(format!(
        "{name}: {sizes}, {:.1} s",
        started.elapsed().as_secs_f32()
    ))
}
