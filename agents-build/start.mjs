// `npm start`: sets up, builds, and serves the Worker on loopback until it is ended. Storage stays in
// .wrangler/state. `--port N` asks for a port; other arguments go to `wrangler dev`.
import { createServer } from "node:net";
import { build, everyWorker } from "./build.mjs";
import { Problem, main, supervise } from "./process.mjs";
import { setup } from "./setup.mjs";

const HOST = "127.0.0.1";
const USUAL_PORT = 8787;

await main(import.meta.url, async (args) => {
  const { port: asked, rest } = options(args);
  const tools = await setup();
  await build(everyWorker.slice(0, 1), tools);

  const port = asked === undefined ? ((await tryPort(USUAL_PORT)) ?? (await tryPort(0))) : await tryPort(asked);
  if (port === undefined) throw new Problem(`port ${asked} is taken`, "name another one, or none");
  const wrangler = [
    "node_modules/wrangler/bin/wrangler.js",
    "dev",
    ...["--ip", HOST, "--port", port, "--inspector-port", await tryPort(0)],
    ...(rest.some((arg) => arg.startsWith("--persist-to")) ? [] : ["--persist-to", ".wrangler/state"]),
    "--show-interactive-dev-session=false",
    // Opens the API to requests from this machine. A deployed Worker has no such variable, and stays closed.
    ...["--var", "ALLOW_INSECURE_LOCAL:1"],
    ...rest,
  ];
  return supervise(tools.node, wrangler.map(String), { whenStopped: 0 }, (child) =>
    announce(`http://${HOST}:${port}`, child),
  );
});

function options(args) {
  const rest = [...args];
  const at = rest.findIndex((arg) => arg === "--port" || arg.startsWith("--port="));
  if (at === -1) return { rest };
  const [option] = rest.splice(at, 1);
  const value = option.includes("=") ? option.split("=")[1] : rest.splice(at, 1)[0];
  const port = Number(value);
  if (!Number.isInteger(port) || port < 0 || port > 65535)
    throw new Problem(`--port ${value} is no port`);
  return { port, rest };
}

async function announce(url, child) {
  while (child.exitCode === null && child.signalCode === null) {
    const healthy = await fetch(`${url}/healthz`).then(
      (response) => response.ok,
      () => false,
    );
    if (healthy) {
      console.log(`▸ ready: ${url} (Ctrl-C ends it)`);
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
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
