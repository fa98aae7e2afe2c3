//! With the feature `entrypoint`: stamps the build for the handshake with MCP servers, bundles the
//! dashboard with esbuild, and packs its files, so that the Worker sends them as they are. Otherwise
//! there is nothing to do.
//!
//! esbuild and the dashboard's library are npm packages. Where they are not installed, the crate compiles
//! all the same, with a page that says so. `npm run build` wants them, by `WORKERS_AGENTS_PAGE=required`.

use std::error::Error;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

const PAGE: &str = "src/entrypoint/page";
const ESBUILD: &str = "node_modules/.bin/esbuild";
/// What the bundle is made of and with, besides our own files.
const PACKAGES: [&str; 2] = [
    "node_modules/preact/package.json",
    "node_modules/esbuild/package.json",
];

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

/// Bundles and compresses, and writes the table `ASSETS` that `page.rs` includes.
fn pack() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PAGE}");
    let out = env::var("OUT_DIR")?;
    let out = Path::new(&out);
    let is_bundled = bundle(out)?;
    let mut table = String::from("&[\n");
    for (file, path, kind) in [
        ("index.html", "/", "text/html; charset=utf-8"),
        ("page.css", "/page.css", "text/css; charset=utf-8"),
        ("page.js", "/page.js", "text/javascript; charset=utf-8"),
    ] {
        let bytes = match file {
            "index.html" => fs::read(Path::new(PAGE).join(file))?,
            _ if is_bundled => fs::read(out.join(file))?,
            "page.js" => fs::read(Path::new(PAGE).join("unbuilt.js"))?,
            _ => fs::read(Path::new(PAGE).join(file))?,
        };
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let etag = format!("\\\"{:016x}\\\"", hasher.finish());
        let packed = out.join(format!("{file}.gz"));
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
    fs::write(out.join("assets.rs"), table)?;
    Ok(())
}

/// Makes `page.js` and `page.css` in `out`. False where the npm packages are missing, and may be.
fn bundle(out: &Path) -> Result<bool, Box<dyn Error>> {
    println!("cargo:rerun-if-env-changed=WORKERS_AGENTS_PAGE");
    let is_required = env::var_os("WORKERS_AGENTS_PAGE").is_some_and(|value| value == "required");
    if !Path::new(ESBUILD).exists() || !PACKAGES.iter().all(|name| Path::new(name).exists()) {
        if is_required {
            return Err("the dashboard needs the npm packages: run `npm run setup`".into());
        }
        println!(
            "cargo:warning=without its npm packages the Worker has no dashboard: `npm run build` makes it"
        );
        return Ok(false);
    }
    for name in PACKAGES {
        println!("cargo:rerun-if-changed={name}");
    }
    let status = Command::new(ESBUILD)
        .args(["main.jsx", "page.css"].map(|file| format!("{PAGE}/{file}")))
        .args(["--bundle", "--minify", "--format=esm", "--target=es2022"])
        .args(["--jsx=automatic", "--jsx-import-source=preact"])
        .args(["--charset=utf8", "--legal-comments=none"])
        .args(["--entry-names=page", "--log-level=warning"])
        .arg(format!("--outdir={}", out.display()))
        .status()?;
    if status.success() {
        return Ok(true);
    }
    Err(format!("esbuild ended with {status}").into())
}
