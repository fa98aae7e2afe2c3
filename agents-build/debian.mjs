// Rust with the Wasm target from Debian's packages, for a machine where rustup can reach nothing. Debian has
// the compiler and the sources of the standard library, but no compiled one for this target.
import { copyFileSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, symlinkSync } from "node:fs";
import path from "node:path";
import { Problem, read, run, say } from "./process.mjs";
import { TARGET, debian, isAtLeast, isRecent, minimumRust } from "./toolchain.mjs";

const PACKAGES = ["rustc-web", "cargo-web", "rust-web-src", "rust-web-clippy"];

export async function installDebianRust() {
  requireRoot();
  if (!installed() || !isRecent(debian.rustc)) {
    await run("apt-get", ["update"], { quiet: true, todo: "check that Debian's archive can be reached" });
    requireRecentPackage();
    say(`installing Debian's ${PACKAGES.join(", ")}: rustup cannot be reached, and these can compile to Wasm`);
    await apt(PACKAGES);
  }
  const sysroot = read(debian.rustc, ["--print", "sysroot"]);
  await installLinker(sysroot);
  await installStandardLibrary(sysroot);
}

const installed = () =>
  read("dpkg-query", ["--show", "--showformat=${db:Status-Status} ", ...PACKAGES])
    ?.split(" ")
    .every((status) => status === "installed") ?? false;

function requireRoot() {
  if (process.getuid() === 0) return;
  throw new Problem(
    `the Rust target ${TARGET} is missing, rustup cannot be reached, and installing Debian's packages needs root`,
    "run `sudo npm run setup`, or `rustup target add wasm32-unknown-unknown` where rustup can be reached",
  );
}

function requireRecentPackage() {
  const version = read("apt-cache", ["show", "--no-all-versions", "rustc-web"])?.match(/^Version: (\d+)\.(\d+)/m);
  if (version && isAtLeast(version, minimumRust())) return;
  throw new Problem(
    `Debian's archive has ${version ? `only Rust ${version[1]}.${version[2]}` : "no package rustc-web"}`,
    `give rustup a way to its server and run \`rustup target add ${TARGET}\``,
  );
}

// Never at the price of a package that somebody has chosen: these conflict with Debian's rustup, for one.
export const apt = (names) =>
  run("apt-get", ["install", "--yes", "--no-install-recommends", "--no-remove", ...names], {
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
    quiet: true,
    todo: "read what apt-get says above; `dpkg --configure -a` repairs an interrupted installation",
  });

// rustc links Wasm with `rust-lld`, which Debian does not ship: it is LLVM's lld of the same version.
async function installLinker(sysroot) {
  const about = read(debian.rustc, ["--version", "--verbose"]);
  const [, host] = about.match(/^host: (.+)$/m);
  const [, major] = about.match(/^LLVM version: (\d+)/m);
  const folder = path.join(sysroot, "lib/rustlib", host, "bin");
  const link = path.join(folder, "rust-lld");
  const lld = `/usr/bin/lld-${major}`;
  if (!existsSync(lld)) {
    say(`installing Debian's lld-${major}: the linker that goes with this rustc`);
    await apt([`lld-${major}`]);
  }
  if (existsSync(link)) return;
  mkdirSync(folder, { recursive: true });
  rmSync(link, { force: true });
  symlinkSync(lld, link);
}

async function installStandardLibrary(sysroot) {
  const library = path.join(sysroot, "lib/rustlib/src/rust/library");
  if (!existsSync(library)) throw new Problem(`the sources of Rust's standard library are not in ${library}`);
  say("compiling Rust's standard library for Wasm, once, from Debian's sources: about a minute");
  const target = path.join(sysroot, "lib/rustlib", TARGET);
  // Beside its destination, so that what an interruption leaves is found, and the last step is a rename.
  const partial = `${target}.partial`;
  const build = path.join(partial, "build");
  rmSync(partial, { recursive: true, force: true });
  try {
    await run(debian.cargo, ["build", "--locked", "--release", "--target", TARGET, "--package", "sysroot"], {
      cwd: library,
      quiet: true,
      env: {
        PATH: "/usr/bin:/bin",
        HOME: process.env.HOME,
        ...(process.env.CARGO_HOME && { CARGO_HOME: process.env.CARGO_HOME }),
        CARGO_TARGET_DIR: build,
        RUSTC: debian.rustc,
        // The standard library uses unstable features, and its callers must not have to enable them.
        RUSTC_BOOTSTRAP: "1",
        RUSTFLAGS: "-Zforce-unstable-if-unmarked -Cembed-bitcode=yes",
      },
      todo: "check that the Cargo registry can be reached, then try again",
    });
    const lib = path.join(partial, "lib");
    mkdirSync(lib);
    const built = path.join(build, TARGET, "release/deps");
    for (const file of readdirSync(built).filter((name) => name.endsWith(".rlib"))) {
      copyFileSync(path.join(built, file), path.join(lib, file));
    }
    rmSync(build, { recursive: true });
    // The old one, if any, belongs to a compiler that is gone.
    rmSync(target, { recursive: true, force: true });
    renameSync(partial, target);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
}
