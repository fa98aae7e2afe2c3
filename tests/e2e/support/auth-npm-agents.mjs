// A Worker on the real npm package `agents`, whose objects have the class and the names of the ready-made Worker:
// what it leaves in a storage folder is there for our Worker to find.
import assert from "node:assert/strict";
import { bundle } from "./auth-bundle.mjs";
import { withStorage } from "./storage.mjs";
import { until } from "./until.mjs";
import { startWorker } from "./worker.mjs";

const ELICITATION = `
  onStart() {
    this.mcp.configureElicitationHandlers({ form: async () => ({ action: "decline" }) });
  }`;

const source = (className, elicits) => `
import { Agent, routeAgentRequest } from "agents";
export class ${className} extends Agent {${elicits ? ELICITATION : ""}
  async onRequest(request) {
    const { pathname } = new URL(request.url);
    const what = pathname.slice(pathname.lastIndexOf("/") + 1);
    if (what === "list") return Response.json(this.getMcpServers());
    const { name, url, options, id, tool, args } = await request.json();
    if (what === "add") return Response.json(await this.addMcpServer(name, url, options));
    if (what === "remove") return Response.json(await this.removeMcpServer(id) ?? null);
    if (what === "call") return Response.json(await this.mcp.callTool({ serverId: id, name: tool, arguments: args }));
    if (what === "tools") {
      await this.mcp.waitForConnections({ timeout: 10_000 });
      return Response.json(this.mcp.listTools().map(({ serverId, name }) => serverId + "/" + name).sort());
    }
    if (what === "dump") {
      const list = [...this.ctx.storage.kv.list()];
      return Response.json(Object.fromEntries(list));
    }
    return new Response("no such route", { status: 404 });
  }
}
export default {
  async fetch(request, env) {
    return (await routeAgentRequest(request, env)) ?? new Response("not found", { status: 404 });
  },
};`;

/** The bundle takes a second: once for all who want it. */
const bundles = new Map();

/**
 * Starts it; options are those of `startWorker`, with `storage` as the folder that our Worker is to open later.
 * With `elicits` servers may ask the user, who declines.
 */
export async function startNpmAgents({ className = "ToolAgent", elicits = false, ...options } = {}) {
  const key = `${className} ${elicits}`;
  if (!bundles.has(key)) bundles.set(key, bundle(source(className, elicits)));
  const script = await bundles.get(key);
  return startWorker({ ...options, script, flags: ["nodejs_compat"], objects: { [className]: className } });
}

/** One object of it, by name. */
export class NpmAgent {
  constructor(worker, name) {
    Object.assign(this, { worker, name, base: `/agents/tool-agent/${name}/` });
  }

  async #ask(what, body = {}) {
    const answer = await this.worker.fetch(this.base + what, { method: "POST", body: JSON.stringify(body) });
    const text = await answer.text();
    assert.equal(answer.status, 200, `${what}: ${answer.status} ${text}\n${this.worker.output}`);
    return JSON.parse(text);
  }

  /** `addMcpServer`: gives `{ id, state, authUrl? }`. */
  add(name, url, options = {}) {
    return this.#ask("add", { name, url, options: { callbackHost: this.worker.origin, ...options } });
  }

  /** `getMcpServers`. */
  list() {
    return this.#ask("list");
  }

  /** `removeMcpServer`. */
  remove(id) {
    return this.#ask("remove", { id });
  }

  /** Waits until a server is ready; gives what is listed of it. */
  ready(id) {
    return until(`${id} to be ready`, async () => {
      const server = (await this.list()).servers[id];
      return server?.state === "ready" && server;
    });
  }

  /** The tools of all servers, as `server/tool`, once everything that comes back has done so. */
  tools() {
    return this.#ask("tools");
  }

  /** One tool of a server. */
  call(id, tool, args = {}) {
    return this.#ask("call", { id, tool, args });
  }

  /** All key-value entries of the object's storage. */
  dump() {
    return this.#ask("dump");
  }
}

/** The rows and key-value entries of an object whose Worker is down: `{ rows, keys, values }`. */
export async function storedByNpmAgents(folder, name, keys = []) {
  const statements = [["SELECT * FROM cf_agents_mcp_servers ORDER BY id"]];
  const { rows, values } = await withStorage(folder, { name, statements, get: keys });
  return { rows: rows[0], values };
}
