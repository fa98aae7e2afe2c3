// Which Rust compiles to Wasm. The one on the path, unless it lacks the target and Debian's has it.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { spawnSync } from "node:child_process";
import { environment, read, root } from "./process.mjs";

export const TARGET = "wasm32-unknown-unknown";

export const onPath = { name: "the Rust on the path", cargo: "cargo", rustc: process.env.RUSTC ?? "rustc" };
export const debian = { name: "Debian's Rust", cargo: "/usr/bin/cargo", rustc: "/usr/bin/rustc" };

export const wasmToolchain = () => [onPath, debian].find(compilesWasm);

export const isDebian = (toolchain) => toolchain === debian;

// Compiles and links a real module: nothing less shows that compiler, standard library and linker are there
// and belong together.
function compilesWasm({ rustc }) {
  if (!isRecent(rustc)) return false;
  const folder = mkdtempSync(path.join(tmpdir(), "wasm-probe-"));
  try {
    const { status } = spawnSync(
      rustc,
      ["--target", TARGET, "--crate-type", "cdylib", "--crate-name", "probe", "--out-dir", folder, "-"],
      {
        cwd: root,
        input: '#[unsafe(no_mangle)] pub extern "C" fn probe() -> usize { std::env::args().count() }',
        stdio: ["pipe", "ignore", "ignore"],
      },
    );
    return status === 0;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

// At least the `rust-version` of Cargo.toml.
export function isRecent(rustc) {
  const version = read(rustc, ["--version"])?.match(/rustc (\d+)\.(\d+)/);
  return version !== undefined && version !== null && isAtLeast(version, minimumRust());
}

export const minimumRust = () =>
  readFileSync(path.join(root, "Cargo.toml"), "utf8").match(/^rust-version = "(\d+)\.(\d+)/m);

export const isAtLeast = ([, major, minor], [, wantedMajor, wantedMinor]) =>
  +major > +wantedMajor || (+major === +wantedMajor && +minor >= +wantedMinor);

// The environment in which `cargo` means this toolchain. Its files stay out of the way of the native builds.
export function wasmEnvironment(toolchain) {
  const env = environment({
    CARGO: toolchain.cargo,
    CARGO_TARGET_DIR: path.join(process.env.CARGO_TARGET_DIR ?? "target", "wasm"),
  });
  if (isDebian(toolchain)) {
    // Cargo finds its subcommands, and clippy its driver, on the path.
    env.PATH = [path.join(root, "node_modules/.bin"), "/usr/bin", process.env.PATH].join(path.delimiter);
    env.RUSTC = toolchain.rustc;
    delete env.RUSTUP_TOOLCHAIN;
  }
  return env;
}
