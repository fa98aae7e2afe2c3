// A page with the `useAgent` hook of the npm package, for a real browser. It shows what the hook tells it, and leaves
// the hook's result in `window.agent`.
import { once } from "node:events";
import { createServer } from "node:http";
import { build } from "esbuild";
import { root } from "./paths.mjs";

const APP = `
import { createElement as h, StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";
import { useAgent } from "agents/react";

const told = (window.told = { updates: [], refusals: [], identities: [], servers: [], closes: [] });

function App({ options }) {
  const [mcp, setMcp] = useState();
  const agent = useAgent({
    ...options,
    minReconnectionDelay: 20,
    maxReconnectionDelay: 100,
    onStateUpdate: (state, source) => told.updates.push([source, state]),
    onStateUpdateError: (error) => told.refusals.push(error),
    onIdentity: (...identity) => told.identities.push(identity),
    onMcpUpdate: (servers) => (told.servers.push(servers), setMcp(servers)),
    onClose: ({ code }) => told.closes.push(code),
  });
  window.agent = agent;
  const servers = Object.values(mcp?.servers ?? {}).map(({ name, state }) => name + " is " + state);
  return h("main", null,
    h("h1", null, agent.identified ? agent.agent + " " + agent.name : "nobody"),
    h("output", null, JSON.stringify(agent.state)),
    h("ul", null, servers.map((text) => h("li", { key: text }, text))),
    h("p", null, (mcp?.tools ?? []).map(({ name }) => name).join(" ")),
    h("button", { onClick: () => agent.setState({ count: agent.state.count + 1 }) }, "Count"),
  );
}
const app = h(App, { options: window.options });
createRoot(document.body).render(window.options.strict ? h(StrictMode, null, app) : app);
`;

/** The bundle takes a second: once for all who want it. */
let script;

async function bundled() {
  const { outputFiles } = await build({
    stdin: { contents: APP, resolveDir: root, loader: "js" },
    bundle: true,
    write: false,
    format: "iife",
    target: "es2022",
    conditions: ["browser"],
    define: { "process.env.NODE_ENV": '"development"' },
    logLevel: "error",
  });
  return outputFiles[0].text;
}

/** Serves pages with the hook to a browser context, on an origin of their own. Gives `{ open, close }`. */
export async function startReactPages(context) {
  script ??= bundled();
  const source = await script;
  const server = createServer(({ url }, response) => {
    const { pathname, searchParams } = new URL(url, "http://page");
    const isScript = pathname === "/app.js";
    response.writeHead(200, { "content-type": isScript ? "text/javascript" : "text/html; charset=utf-8" });
    response.end(isScript ? source : html(searchParams.get("options") ?? "{}"));
  });
  server.listen(0, "127.0.0.1").unref();
  await once(server, "listening");
  const origin = `http://127.0.0.1:${server.address().port}`;
  return {
    /** Opens a page; `options` are the hook's. */
    async open(worker, options) {
      const page = await context.newPage();
      page.setDefaultTimeout(20_000);
      page.problems = [];
      page.on("pageerror", (error) => page.problems.push(error.message));
      const chosen = { agent: "ClientAgent", host: new URL(worker.origin).host, ...options };
      await page.goto(`${origin}/?options=${encodeURIComponent(JSON.stringify(chosen))}`);
      return page;
    },
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

const html = (options) =>
  `<!doctype html><title>hook</title><link rel="icon" href="data:,"><body><script>window.options = ${options}</script><script src="app.js"></script>`;
