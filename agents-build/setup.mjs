// Installs what is missing. Quick, and silent, when nothing is.
import { installDebianRust } from "./debian.mjs";
import { installPackages, modernNode } from "./packages.mjs";
import { Problem, main, read, say } from "./process.mjs";
import { installServers } from "./servers.mjs";
import { TARGET, isRecent, minimumRust, onPath, wasmToolchain } from "./toolchain.mjs";

// Returns the programs that everything else runs with. The servers under test are not among them: only the
// end-to-end tests need those.
export async function setup() {
  requireRust();
  await installPackages();
  return { node: modernNode(), wasm: wasmToolchain() ?? (await installTarget()) };
}

function requireRust() {
  if (read("cargo", ["--version"]) === undefined) {
    throw new Problem("Rust is not installed", "install it from https://rustup.rs, then try again");
  }
  if (!isRecent(onPath.rustc)) {
    throw new Problem(`Rust ${minimumRust().slice(1).join(".")} or newer is needed`, "run `rustup update stable`");
  }
}

async function installTarget() {
  if (read("rustup", ["--version"]) !== undefined) {
    say(`adding the Rust target ${TARGET} with rustup: it compiles the Worker`);
    // Where rustup can reach nothing it may try for long, so it gets five minutes.
    const added = read("rustup", ["target", "add", TARGET], { timeout: 300_000 }) !== undefined;
    if (added && wasmToolchain()) return wasmToolchain();
    say("rustup could not add it");
  }
  if (read("apt-get", ["--version"]) !== undefined) await installDebianRust();
  const toolchain = wasmToolchain();
  if (toolchain) return toolchain;
  throw new Problem(
    `no Rust here compiles to ${TARGET}`,
    `run \`rustup target add ${TARGET}\` and read what it says, then try again`,
  );
}

await main(import.meta.url, async () => {
  await setup();
  if (!(await installServers())) return 1;
  console.log("set up");
});
