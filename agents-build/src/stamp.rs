//! Whether the work has been done already: a hash of all that the result is made of.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::Path,
};

use anyhow::{Context, Result};

use crate::args::Args;

const FILE: &str = ".stamp";

pub(crate) struct Stamp(String);

impl Stamp {
    /// Covers the compiled module, this program (with its wasm-bindgen and entry), and the npm tools.
    pub(crate) fn of(args: &Args, wasm: &Path) -> Result<Self> {
        let mut hasher = DefaultHasher::new();
        args.optimise.hash(&mut hasher);
        fs::read(wasm)
            .with_context(|| format!("reading {}", wasm.display()))?
            .hash(&mut hasher);
        // By its time: hashing 70 MB would take longer than all the rest.
        fs::metadata(std::env::current_exe()?)?
            .modified()?
            .hash(&mut hasher);
        for tool in ["esbuild", "binaryen"] {
            fs::read(Path::new("node_modules").join(tool).join("package.json"))
                .ok()
                .hash(&mut hasher);
        }
        Ok(Self(format!("{:016x}", hasher.finish())))
    }

    /// Whether `out` holds the results of exactly this.
    pub(crate) fn matches(&self, out: &Path) -> bool {
        let complete = ["worker.mjs", "index_bg.wasm"]
            .iter()
            .all(|name| out.join(name).exists());
        complete && fs::read_to_string(out.join(FILE)).is_ok_and(|stored| stored == self.0)
    }

    pub(crate) fn write(&self, out: &Path) -> Result<()> {
        Ok(fs::write(out.join(FILE), &self.0)?)
    }
}
