// `npm run bench`: measures our Worker beside the floor and the peer of the benchmark in BENCH_DIR, by default the
// folder ../shared/bench. Arguments go to its run.mjs: `npm run bench -- --quick --only call,large`.
//
// The benchmark installs, builds and writes within itself, so it works on a copy, in target/bench/.
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { build } from "../../agents-build/build.mjs";
import { Problem, environment, main, root, run, say, supervise } from "../../agents-build/process.mjs";
import { setup } from "../../agents-build/setup.mjs";

const SOURCE = path.resolve(root, process.env.BENCH_DIR ?? "../shared/bench");
const COPY = path.join(root, "target/bench");
const WORKER = path.join(COPY, "workers-agents");

await main(import.meta.url, async (args) => {
  if (!existsSync(path.join(SOURCE, "run.mjs"))) {
    throw new Problem(`there is no benchmark in ${SOURCE}`, "set BENCH_DIR to the folder of the benchmark");
  }
  const tools = await setup();
  cpSync(SOURCE, COPY, { recursive: true, filter: (file) => path.basename(file) !== "node_modules" });
  if (!process.env.BENCH_TOOLS) await install(COPY);
  await install(path.join(COPY, "peer-ts"));

  await build(["bench-worker"], tools);
  describe(path.join(root, "build/bench-worker"));

  const target = ["--target", `workers-agents=${WORKER}`];
  return supervise(tools.node, ["--disable-warning=ExperimentalWarning", "run.mjs", ...target, ...args], { cwd: COPY });
});

// What the lock file of a folder names, unless that is there.
async function install(folder) {
  const wanted = readFileSync(path.join(folder, "package-lock.json"), "utf8");
  const stamp = path.join(folder, "node_modules/.installed");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === wanted) return;
  say(`installing the npm packages of ${path.relative(root, folder)}`);
  // None of them needs its install script: the binaries are in packages of their own.
  await run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], {
    cwd: folder,
    env: environment(),
    quiet: true,
    todo: "check that the npm registry can be reached, then try again",
  });
  writeFileSync(stamp, wanted);
}

// The built Worker as the benchmark takes it: its modules and nothing else, and how to host them.
function describe(built) {
  rmSync(WORKER, { recursive: true, force: true });
  mkdirSync(WORKER);
  for (const name of ["worker.mjs", "index_bg.wasm"]) cpSync(path.join(built, name), path.join(WORKER, name));
  const deployed = readFileSync(path.join(root, "wrangler.toml"), "utf8");
  const [, compatibilityDate] = deployed.match(/^compatibility_date = "(.+)"$/m);
  const target = { entry: "worker.mjs", compatibilityDate, compatibilityFlags: [], className: "Bench", binding: "BENCH" };
  writeFileSync(path.join(WORKER, "bench.json"), JSON.stringify(target));
}
