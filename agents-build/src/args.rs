//! The command line.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

const USAGE: &str =
    "usage: agents-build --package NAME [--features a,b] [--profile NAME] [--no-opt] --out DIR";

/// What to build and where to put it.
#[derive(Debug)]
pub(crate) struct Args {
    /// Crate of the workspace whose `cdylib` becomes the Worker.
    pub(crate) package: String,
    /// Cargo features, comma-separated.
    pub(crate) features: Option<String>,
    /// How Cargo compiles it.
    pub(crate) profile: String,
    /// Folder for `worker.mjs` and `index_bg.wasm`.
    pub(crate) out: PathBuf,
    /// Whether to run `wasm-opt`. Workers that only tests use do without.
    pub(crate) optimise: bool,
}

impl Args {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let (mut package, mut features, mut out, mut optimise) = (None, None, None, true);
        let mut profile = "release".to_owned();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .with_context(|| format!("{word} needs a value\n{USAGE}"))
            };
            match word.as_str() {
                "--package" | "-p" => package = Some(value()?),
                "--features" => features = Some(value()?),
                "--profile" => profile = value()?,
                "--out" => out = Some(PathBuf::from(value()?)),
                "--no-opt" => optimise = false,
                _ => bail!("unknown option {word}\n{USAGE}"),
            }
        }
        Ok(Self {
            package: package.context(USAGE)?,
            features,
            profile,
            out: out.context(USAGE)?,
            optimise,
        })
    }
}
