// The npm scripts that run one part of the tests: `node agents-build/task.mjs NAME [ARGUMENTS…]`.
import { readdirSync } from "node:fs";
import path from "node:path";
import { build, everyWorker } from "./build.mjs";
import { Problem, main, root, supervise } from "./process.mjs";
import { installServers } from "./servers.mjs";
import { setup } from "./setup.mjs";

const E2E = "tests/e2e";

// A test that hangs fails after two minutes.
const NODE_TEST = ["--test", "--test-reporter=spec", "--test-timeout=120000", "--test-concurrency=2"];

// The command line of each part. Those that need Workers run with the Node that wrangler needs.
const TASKS = {
  native: ({ args }) => ["cargo", "test", "--workspace", ...args],
  "native-entrypoint": ({ args }) => ["cargo", "test", "--package", "workers-agents", "--features", "entrypoint", ...args],
  oracle: ({ args }) => ["cargo", "test", "--manifest-path", "tests/oracle/Cargo.toml", "--target-dir", "target/oracle", ...args],
  e2e: ({ node, args }) => [node, ...NODE_TEST, ...(args.length > 0 ? args : e2eFiles())],
  conformance: ({ node, args }) => [node, "tests/conformance/run.mjs", ...args],
  "conformance-host": ({ node, args }) => [node, "tests/conformance/host.mjs", ...args],
};

const e2eFiles = () =>
  readdirSync(path.join(root, E2E))
    .filter((name) => name.endsWith(".test.mjs"))
    .map((name) => path.join(E2E, name));

// Runs a part whose Workers have been built, and returns its exit status.
export async function task(name, args, { node }) {
  if (name === "e2e") await installServers();
  const [command, ...rest] = TASKS[name]({ node, args });
  return supervise(command, rest, { whenStopped: name === "conformance-host" ? 0 : undefined });
}

// The ready-made Worker has tests of its own, which the workspace as a whole leaves out with its feature.
export async function native(args) {
  return (await task("native", args, {})) || task("native-entrypoint", args, {});
}

await main(import.meta.url, async ([name, ...args]) => {
  if (!(name in TASKS)) throw new Problem(`there is no task ${name}`, `name one of ${Object.keys(TASKS).join(", ")}`);
  if (name === "native") return native(args);
  if (name === "oracle") return task(name, args, {});
  const tools = await setup();
  await build(everyWorker, tools);
  return task(name, args, tools);
});
