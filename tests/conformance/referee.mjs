// One run of the official referee, judged strictly. It is a command line tool that knows how to hang, so it runs in a
// process group of its own and has a deadline of ours.
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { root } from "../e2e/support/paths.mjs";
import { endGroup, spawnGroup } from "../e2e/support/processes.mjs";

// The referee ends the driver after the first, and we end the referee after the second.
const DRIVER_TIMEOUT_MS = 30_000;
const DEADLINE_MS = 45_000;

// The command goes through a shell and is split at spaces: a relative path has none.
const DRIVER = "node tests/conformance/driver.mjs";

/** Runs the referee's command line tool; gives `{ code, output }`, with `code` null after the deadline. */
export function referee(args, env = {}) {
  const cli = fileURLToPath(import.meta.resolve("@modelcontextprotocol/conformance/dist/index.js"));
  const PATH = `${path.dirname(process.execPath)}${path.delimiter}${process.env.PATH}`;
  const child = spawnGroup(process.execPath, [cli, ...args], {
    cwd: root,
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, PATH, ...env },
  });
  let output = "";
  child.stdout.on("data", (chunk) => (output += chunk));
  child.stderr.on("data", (chunk) => (output += chunk));
  return new Promise((resolve, reject) => {
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      endGroup(child);
    }, DEADLINE_MS);
    const finish = (settle, value) => {
      clearTimeout(timer);
      // The tool is gone; whatever it started goes too.
      endGroup(child);
      settle(value);
    };
    child.once("error", (error) => finish(reject, error));
    child.once("close", (code) => finish(resolve, { code: late ? null : code, output }));
  });
}

/** Plays one scenario; gives the reasons why it failed, none when it passed. */
export async function play({ scenario, revision, force }, workerOrigin) {
  const results = await mkdtemp(path.join(tmpdir(), "conformance-"));
  try {
    const args = ["client", "--command", DRIVER, "--scenario", scenario, "--spec-version", revision];
    args.push("--timeout", `${DRIVER_TIMEOUT_MS}`, "-o", results);
    if (force) args.push("--force");
    const { code, output } = await referee(args, { WORKER_ORIGIN: workerOrigin });
    return judge(code, await readResults(results), output);
  } finally {
    await rm(results, { recursive: true, force: true });
  }
}

/** The folder holds one dated folder with `checks.json` and what the driver said. */
async function readResults(folder) {
  const files = await readdir(folder, { recursive: true });
  const read = async (name, otherwise) => {
    const file = files.find((candidate) => path.basename(candidate) === name);
    return file ? readFile(path.join(folder, file), "utf8") : otherwise;
  };
  return { checks: JSON.parse(await read("checks.json", "[]")), stderr: await read("stderr.txt", "") };
}

/** Stricter than the tool: a warning fails, and so does a run in which nothing was seen to succeed. */
export function judge(code, { checks, stderr }, output) {
  const bad = checks.filter((check) => check.status === "FAILURE" || check.status === "WARNING");
  const reasons = bad.map(
    ({ status, id, errorMessage, description }) => `${status} ${id}: ${errorMessage ?? description}`,
  );
  if (!checks.some((check) => check.status === "SUCCESS")) reasons.push("no check succeeded");
  if (code === null) reasons.push(`not over after ${DEADLINE_MS} ms`);
  else if (code !== 0 && reasons.length === 0) reasons.push(`the referee exited with ${code}`);
  if (reasons.length > 0) reasons.push(...(stderr.trim() || output.trim()).split("\n").slice(-8));
  return reasons;
}
