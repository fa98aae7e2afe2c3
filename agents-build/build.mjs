// Builds Workers: `node agents-build/build.mjs [NAME…]`. Without a name, the one that wrangler.toml deploys.
import { existsSync, readdirSync } from "node:fs";
import path from "node:path";
import { environment, main, Problem, root, run, say } from "./process.mjs";
import { setup } from "./setup.mjs";
import { wasmEnvironment } from "./toolchain.mjs";

// The first one is shipped, and the last one stands for it when it is measured: the others do without wasm-opt.
const WORKERS = {
  "workers-agents": { folder: ".", options: ["--features", "entrypoint", "--out", "build"] },
  "test-worker": { folder: "tests/fixture", options: ["--no-opt", "--out", "build/test-worker"] },
  "bench-worker": { folder: "tests/bench", options: ["--out", "build/bench-worker"], byNameOnly: true },
};

// Each example as one deploys it, and as the tests run it: compiled quickly.
for (const name of examples()) {
  const folder = `examples/${name}`;
  const quickly = ["--profile", "quick", "--no-opt", "--out", `build/quick/${name}`];
  WORKERS[`example-${name}`] = { folder, options: ["--out", `build/example-${name}`], byNameOnly: true };
  WORKERS[`quick-${name}`] = { folder, package: `example-${name}`, options: quickly };
}

function examples() {
  const entries = readdirSync(path.join(root, "examples"), { withFileTypes: true });
  return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
}

// Those that are deployed or tested.
export const everyWorker = Object.keys(WORKERS).filter((name) => !WORKERS[name].byNameOnly);

export async function build(names, { wasm }) {
  const tool = await buildTool();
  for (const name of names) {
    const worker = WORKERS[name];
    if (!worker) throw new Problem(`there is no Worker ${name}`, `name one of ${Object.keys(WORKERS).join(", ")}`);
    if (!existsSync(path.join(root, worker.folder, "Cargo.toml"))) continue;
    await run(tool, ["--package", worker.package ?? name, ...worker.options], {
      // Without its npm packages the ready-made Worker would have no dashboard.
      env: { ...wasmEnvironment(wasm), WORKERS_AGENTS_PAGE: "required" },
      todo: "read the error above; `npm run test:native` checks the code without Wasm",
    });
  }
}

async function buildTool() {
  const tool = path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target", "debug/agents-build");
  if (!existsSync(tool)) say("compiling the build tool (once, about half a minute)");
  await run("cargo", ["build", "--quiet", "--package", "agents-build"], {
    env: environment(),
    todo: "read what cargo says above",
  });
  return tool;
}

await main(import.meta.url, async (names) => build(names.length > 0 ? names : everyWorker.slice(0, 1), await setup()));
