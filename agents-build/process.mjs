// Running other programs: wait for them, read them, or look after them until they end.
import { spawn, spawnSync } from "node:child_process";
import path from "node:path";
import { fileURLToPath } from "node:url";

export const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

// A failure that is no bug of the scripts: what went wrong, and what to do about it.
export class Problem extends Error {
  constructor(what, todo) {
    super(what);
    this.todo = todo;
  }
}

export const say = (line) => console.log(`▸ ${line}`);

// The environment of every program that we start. Node 22 and the npm tools come first on its path.
export const environment = (more = {}) => ({
  ...process.env,
  PATH: [path.join(root, "node_modules/.bin"), process.env.PATH].join(path.delimiter),
  // wrangler would look up a host on the internet at every start.
  WRANGLER_SEND_METRICS: "false",
  CLOUDFLARE_CF_FETCH_ENABLED: "false",
  ...more,
});

// The output of a short command, or undefined when it fails or does not exist.
export function read(command, args, options = {}) {
  const { status, stdout } = spawnSync(command, args, {
    cwd: root,
    encoding: "utf8",
    maxBuffer: 64 << 20,
    stdio: ["ignore", "pipe", "ignore"],
    ...options,
  });
  return status === 0 ? stdout.trim() : undefined;
}

// Runs a command to its end, its output going where ours goes; a `quiet` one is heard only when it fails.
export async function run(command, args, { todo, quiet, ...options } = {}) {
  const output = [];
  const status = await supervise(
    command,
    args,
    quiet ? { stdio: ["ignore", "pipe", "pipe"], ...options } : options,
    (child) => {
      for (const stream of [child.stdout, child.stderr]) stream?.on("data", (chunk) => output.push(chunk));
    },
  );
  if (status === 0) return;
  process.stderr.write(Buffer.concat(output));
  throw new Problem(`\`${[path.basename(command), ...args].join(" ")}\` ended with status ${status}`, todo);
}

// Ends a process group when we are gone, even if we had no chance to: a killed process closes its pipes.
function guardGroup(leader) {
  const wait = `process.stdin.on("close", () => process.kill(-${leader}, "SIGKILL")).resume()`;
  const guard = spawn(process.execPath, ["-e", wait], { stdio: ["pipe", "ignore", "ignore"], detached: true });
  guard.unref();
  guard.stdin.unref();
  return guard;
}

// Starts a program as the leader of a process group and resolves to its exit status. The whole group ends with
// the program; when we are told to end, so do both, and we say `whenStopped`. `started` gets the child.
export function supervise(command, args, { whenStopped = 130, ...options } = {}, started = () => {}) {
  const child = spawn(command, args, {
    cwd: root,
    env: environment(),
    stdio: ["ignore", "inherit", "inherit"],
    ...options,
    detached: true,
  });
  const end = (signal) => {
    try {
      process.kill(-child.pid, signal);
    } catch {
      // The group is gone already.
    }
  };
  let stopped = false;
  const stop = () => {
    if (stopped) return;
    stopped = true;
    end("SIGTERM");
    setTimeout(() => end("SIGKILL"), 5000).unref();
  };
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"];
  for (const signal of signals) process.on(signal, stop);
  // Whoever started us may be killed without a word to us.
  const parent = process.ppid;
  const watch = setInterval(() => process.ppid === parent || stop(), 1000);

  return new Promise((resolve, reject) => {
    child.once("error", (error) => reject(new Problem(`${command} does not start: ${error.message}`)));
    let guard;
    child.once("spawn", () => {
      guard = guardGroup(child.pid);
      started(child);
    });
    child.once("close", (status) => {
      end("SIGKILL");
      guard?.kill();
      if (stopped) process.exit(whenStopped);
      resolve(status ?? 1);
    });
  }).finally(() => {
    clearInterval(watch);
    for (const signal of signals) process.off(signal, stop);
  });
}

// Runs a script's main function, if the script is what Node was started with.
export async function main(url, work) {
  if (process.argv[1] !== fileURLToPath(url)) return;
  try {
    process.exitCode = (await work(process.argv.slice(2))) ?? 0;
  } catch (error) {
    report(error);
    process.exitCode = 1;
  }
}

export function report(error) {
  if (!(error instanceof Problem)) {
    console.error(error);
    return;
  }
  console.error(`✘ ${error.message}`);
  if (error.todo) console.error(`  To do: ${error.todo}`);
}
