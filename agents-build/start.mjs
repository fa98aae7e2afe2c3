// `npm start`: sets up, builds, and serves the Worker on loopback until it is ended. Storage stays in
// .wrangler/state. `--port N` asks for a port, `--example NAME` for an example; other arguments go to
// `wrangler dev`.
import { createServer } from "node:net";
import { build, everyWorker } from "./build.mjs";
import { Problem, main, supervise } from "./process.mjs";
import { setup } from "./setup.mjs";

const HOST = "127.0.0.1";
const USUAL_PORT = 8787;

await main(import.meta.url, async (args) => {
  const [port, others] = option(args, "--port");
  const [example, rest] = option(others, "--example");
  const asked = portOf(port);
  const tools = await setup();
  await build(example === undefined ? everyWorker.slice(0, 1) : [`example-${example}`], tools);
  const isKept = rest.some((arg) => arg.startsWith("--persist-to"));
  const state = isKept ? [] : ["--persist-to", `.wrangler/${example ?? "state"}`];
  const worker =
    example === undefined
      ? // Opens the API to requests from this machine. A deployed Worker has no such variable, and stays closed.
        ["--var", "ALLOW_INSECURE_LOCAL:1"]
      : ["--config", `examples/${example}/wrangler.toml`];

  // Somebody else may take the port between our look and wrangler's.
  const ports = asked === undefined ? [USUAL_PORT, 0, 0] : [asked];
  for (const wanted of ports) {
    const port = await tryPort(wanted);
    if (port === undefined) continue;
    const { status, wasReady } = await serve(port, [...state, ...worker, ...rest], tools);
    if (wasReady || status === 0) return status;
  }
  throw asked === undefined
    ? new Problem("wrangler did not start", "read what it says above")
    : new Problem(`port ${asked} is taken, or wrangler did not start`, "name another one, or none");
});

async function serve(port, rest, tools) {
  const wrangler = [
    "node_modules/wrangler/bin/wrangler.js",
    "dev",
    ...["--ip", HOST, "--port", port, "--inspector-port", await tryPort(0)],
    "--show-interactive-dev-session=false",
    ...rest,
  ];
  let wasReady = false;
  const options = { whenStopped: 0, stdio: ["ignore", "pipe", "inherit"] };
  const status = await supervise(tools.node, wrangler.map(String), options, async (child) => {
    wasReady = await announce(`http://${HOST}:${port}`, child);
  });
  return { status, wasReady };
}

// The value of an option, and the arguments without it.
function option(args, name) {
  const rest = [...args];
  const at = rest.findIndex((arg) => arg === name || arg.startsWith(`${name}=`));
  if (at === -1) return [undefined, rest];
  const [text] = rest.splice(at, 1);
  const value = text.includes("=") ? text.slice(name.length + 1) : rest.splice(at, 1)[0];
  if (!value) throw new Problem(`${name} has no value`);
  return [value, rest];
}

function portOf(value) {
  if (value === undefined) return undefined;
  const port = Number(value);
  if (!Number.isInteger(port) || port < 0 || port > 65535) throw new Problem(`--port ${value} is no port`);
  return port;
}

// Says so when wrangler does, and when the Worker then answers. Only wrangler knows whose port it is.
async function announce(url, child) {
  child.stdout.pipe(process.stdout);
  const isServing = await new Promise((resolve) => {
    let output = "";
    child.stdout.on("data", (chunk) => {
      output = (output + chunk).slice(-1000);
      if (output.includes("Ready on")) resolve(true);
    });
    child.once("exit", () => resolve(false));
  });
  if (!isServing) return false;
  await fetch(`${url}/healthz`).catch(() => {});
  console.log(`▸ ready: ${url} (Ctrl-C ends it)`);
  return true;
}

// Listens for a moment: on the port, or on any. Gives the number, or undefined where the port is taken.
function tryPort(port) {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(undefined));
    server.listen(port, HOST, () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}
