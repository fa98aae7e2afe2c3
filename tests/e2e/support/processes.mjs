// Child processes that are never left behind: each leads its own group, and the group is killed.
import { spawn } from "node:child_process";
import { inSupport } from "./paths.mjs";

const running = new Set();
process.on("exit", () => running.forEach(endGroup));
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.once(signal, () => {
    running.forEach(endGroup);
    process.kill(process.pid, signal);
  });
}

/** Starts a process as the leader of a group that ends with us at the latest. */
export function spawnGroup(command, args, options) {
  const child = spawn(command, args, { ...options, detached: true });
  running.add(child);
  return child;
}

/** Ends the process and whatever it started. */
export function endGroup(child) {
  running.delete(child);
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    // Already gone.
  }
}

// Long enough to put things away.
const GOODBYE_MS = 3_000;

/** Starts `node ...args` as a program that ends with us. */
export const startNode = (args, options) =>
  startProgram(process.execPath, ["--import", inSupport("exit-with-parent.mjs"), ...args], options);

/**
 * Starts a program and resolves once its output matches `ready`. Gives `{ match, output, stop, kill }`:
 * `stop` lets the process put things away, `kill` does not; both end its whole group.
 * The program is to end when its standard input closes, which stays open as long as we live.
 */
export function startProgram(command, args, { ready, env = {}, deadlineMs = 30_000 }) {
  const child = spawnGroup(command, args, {
    stdio: ["pipe", "pipe", "pipe"],
    env: { ...process.env, ...env },
  });
  let output = "";
  const closed = new Promise((resolve) => child.once("close", resolve));
  const kill = async () => {
    endGroup(child);
    // Nothing else may be left that keeps this process waiting for the end of that one.
    const waiting = setInterval(() => {}, 1_000);
    await closed;
    clearInterval(waiting);
  };
  const stop = async () => {
    child.ref();
    child.kill("SIGTERM");
    const timer = setTimeout(kill, GOODBYE_MS);
    await closed;
    clearTimeout(timer);
    await kill();
  };
  return new Promise((resolve, reject) => {
    const fail = (why) => {
      clearTimeout(timer);
      kill();
      reject(new Error(`${command} ${args.join(" ")}: ${why}\n${output}`));
    };
    const timer = setTimeout(() => fail(`not ready after ${deadlineMs} ms`), deadlineMs);
    const read = (chunk) => {
      output += chunk;
      const match = ready.exec(output);
      if (!match) return;
      clearTimeout(timer);
      // From now on nobody waits for it: a test that failed half-way must not be kept alive by it.
      for (const handle of [child, child.stdin, child.stdout, child.stderr]) handle.unref();
      resolve({ match, output: () => output, stop, kill });
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    child.once("error", (error) => fail(error.message));
    closed.then(() => fail("ended before it was ready"));
  });
}
