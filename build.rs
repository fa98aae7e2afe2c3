//! With the feature `entrypoint`: stamps the build for the handshake with MCP servers, and packs the
//! dashboard's files, so that the Worker sends them as they are. Otherwise there is nothing to do.

use std::error::Error;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

const PAGE: &str = "src/entrypoint/page";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_ENTRYPOINT").is_none() {
        return Ok(());
    }
    stamp()?;
    pack()
}

/// `<version>` or `<version>+<commit>`, as the environment variable `WORKERS_AGENTS_BUILD`.
fn stamp() -> Result<(), Box<dyn Error>> {
    let version = env::var("CARGO_PKG_VERSION")?;
    // `logs/HEAD` grows with every commit and checkout; a source package has neither.
    let log = Path::new(".git/logs/HEAD");
    if log.exists() {
        println!("cargo:rerun-if-changed={}", log.display());
    }
    let commit = Path::new(".git").exists().then(commit).flatten();
    let stamp = commit.map_or_else(|| version.clone(), |commit| format!("{version}+{commit}"));
    println!("cargo:rustc-env=WORKERS_AGENTS_BUILD={stamp}");
    Ok(())
}

fn commit() -> Option<String> {
    let output = Command::new("git")
        .args(["rev-parse", "--short=10", "HEAD"])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Compresses each file and writes the table `ASSETS` that `page.rs` includes.
fn pack() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PAGE}");
    let out = env::var("OUT_DIR")?;
    let mut table = String::from("&[\n");
    for (file, path, kind) in [
        ("index.html", "/", "text/html; charset=utf-8"),
        ("page.css", "/page.css", "text/css; charset=utf-8"),
        ("page.js", "/page.js", "text/javascript; charset=utf-8"),
    ] {
        let bytes = fs::read(Path::new(PAGE).join(file))?;
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let etag = format!("\\\"{:016x}\\\"", hasher.finish());
        let packed = Path::new(&out).join(format!("{file}.gz"));
        let mut encoder =
            flate2::GzBuilder::new().write(fs::File::create(&packed)?, flate2::Compression::best());
        encoder.write_all(&bytes)?;
        encoder.finish()?;
        let packed = packed
            .to_str()
            .ok_or("the build folder's name is not UTF-8")?;
        writeln!(
            table,
            "Asset {{ path: {path:?}, kind: {kind:?}, etag: \"{etag}\", gzip: include_bytes!({packed:?}) }},"
        )?;
    }
    table += "]";
    fs::write(Path::new(&out).join("assets.rs"), table)?;
    Ok(())
}
