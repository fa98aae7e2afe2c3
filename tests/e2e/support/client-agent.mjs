// The agent that the tests with the clients of the npm package talk to: `ClientAgent`, once in Rust (tests/fixture), and
// once on the package itself. What holds for the one must hold for the other.
import { bundle } from "./auth-bundle.mjs";
import { startWorker } from "./worker.mjs";

const CLASS = "ClientAgent";

const PEER = `
import { Agent, callable, getCurrentAgent, routeAgentRequest } from "agents";

export class ClientAgent extends Agent {
  initialState = { count: 0 };
  #gates = new Map();
  #questions = new Map();

  onStart() {
    this.mcp.configureElicitationHandlers({ form: (request, serverId) => this.#ask(request, serverId) });
  }
  #ask(request, serverId) {
    const id = crypto.randomUUID();
    return new Promise((resolve) => {
      this.#questions.set(id, resolve);
      this.broadcast(JSON.stringify({ type: "mcp-elicitation", id, serverId, params: request.params }));
    });
  }
  #gate(key) {
    if (!this.#gates.has(key)) this.#gates.set(key, Promise.withResolvers());
    return this.#gates.get(key);
  }

  shouldConnectionBeReadonly(connection, { request }) {
    return new URL(request.url).searchParams.get("readonly") === "1";
  }
  shouldSendProtocolMessages(connection, { request }) {
    return new URL(request.url).searchParams.get("protocol") !== "0";
  }
  getConnectionTags(connection, { request }) {
    return new URL(request.url).searchParams.getAll("tag");
  }
  validateStateChange(state) {
    if (state?.count < 0) throw new Error("count is negative");
  }
  onMessage(connection, message) {
    if (typeof message === "string" && message.startsWith("close ")) {
      const [, code, ...reason] = message.split(" ");
      return connection.close(Number(code), reason.join(" "));
    }
    connection.send(message);
  }

  async onRequest(request) {
    const { pathname, searchParams } = new URL(request.url);
    const what = pathname.slice(pathname.lastIndexOf("/") + 1);
    if (what === "connections") {
      const tag = searchParams.get("tag") ?? undefined;
      return Response.json([...this.getConnections(tag)].map(({ id }) => id).sort());
    }
    if (what === "broadcast") {
      const { text, without } = await request.json();
      this.broadcast(text, without);
      return Response.json({});
    }
    if (what === "count") {
      this.setState({ count: (await request.json()).count });
      return Response.json({});
    }
    if (what === "release") {
      this.#gate(searchParams.get("gate")).resolve();
      return Response.json({});
    }
    if (what === "call") {
      const { id, tool, args } = await request.json();
      return Response.json(await this.mcp.callTool({ serverId: id, name: tool, arguments: args }));
    }
    const body = request.method === "POST" ? await request.text() : null;
    return Response.json({ name: this.name, method: request.method, path: pathname, body });
  }

  @callable()
  add(a, b) {
    return a + b;
  }
  @callable()
  fail(text) {
    throw new Error(text);
  }
  @callable({ streaming: true })
  async countTo(stream, n) {
    for (let i = 1; i <= n; i++) stream.send(i);
    stream.end({ total: n });
  }
  @callable({ streaming: true })
  async countAndFail(stream, n) {
    for (let i = 1; i <= n; i++) stream.send(i);
    throw new Error("lost count");
  }
  @callable()
  async wait(gate) {
    await this.#gate(gate).promise;
    return gate;
  }
  @callable()
  text(bytes) {
    return "x".repeat(bytes);
  }
  @callable()
  nothing() {}
  @callable()
  remember(value) {
    getCurrentAgent().connection.setState(value);
  }
  @callable()
  recall() {
    return getCurrentAgent().connection.state;
  }
  @callable()
  setCount(count) {
    this.setState({ count });
  }
  @callable()
  connect(url, name) {
    return this.addMcpServer(name, url);
  }
  @callable()
  remove(id) {
    return this.removeMcpServer(id);
  }
  @callable()
  respondToElicitation(id, result) {
    this.#questions.get(id)?.(result);
    return this.#questions.delete(id);
  }
}
export default {
  async fetch(request, env) {
    return (await routeAgentRequest(request, env)) ?? new Response("Not found", { status: 404 });
  },
};`;

/** The bundle takes a second: once for all who want it. */
let peer;

/** The agent on the npm package. Options are those of `startWorker`. */
export async function startPeerAgent(options = {}) {
  peer ??= bundle(PEER);
  return startWorker({ ...options, script: await peer, flags: ["nodejs_compat"], objects: { [CLASS]: CLASS } });
}

/** The agent in Rust. */
export const startOurAgent = ({ vars, ...options } = {}) =>
  startWorker({
    ...options,
    build: "build/test-worker",
    objects: { [CLASS]: CLASS, SmallAgent: "SmallAgent" },
    vars: { ALLOW_INSECURE_LOCAL: "1", ...vars },
  });

const ALL = { ours: startOurAgent, "the npm package": startPeerAgent };

/**
 * Which agents the tests are to run with: ours, or, named by CLIENT_AGENT, `peer` (the npm package) or `both`.
 * Gives `[name, start]` each.
 */
export const AGENTS = Object.entries(ALL).filter(([name]) => {
  const wanted = process.env.CLIENT_AGENT ?? "ours";
  return wanted === "both" || (wanted === "peer") === (name !== "ours");
});
