// MCP servers that are objects of the real npm class `McpAgent`, in a Worker beside the one under test.
import { bundle } from "./auth-bundle.mjs";

const NAME = "mcp-servers";

const source = `
import { DurableObject } from "cloudflare:workers";
import { McpAgent } from "agents/mcp";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { CfWorkerJsonSchemaValidator } from "@modelcontextprotocol/sdk/validation/cfworker";
import { CreateMessageResultSchema } from "@modelcontextprotocol/sdk/types.js";
import { z } from "zod";

const text = (value) => ({ content: [{ type: "text", text: typeof value === "string" ? value : JSON.stringify(value) }] });
const requestedSchema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };

export class Counter extends McpAgent {
  server = new McpServer(
    { name: "counter", version: "1.0.0" },
    { instructions: "Counts.", jsonSchemaValidator: new CfWorkerJsonSchemaValidator() },
  );
  instance = crypto.randomUUID();

  async init() {
    const tool = (name, inputSchema, work) => this.server.registerTool(name, { inputSchema }, work);
    const ask = async (message, extra) =>
      (await this.elicitInput({ message, requestedSchema }, { relatedRequestId: extra.requestId })).content.name;
    tool("increment", { by: z.number() }, async ({ by }) => {
      const count = ((await this.ctx.storage.get("count")) ?? 0) + by;
      await this.ctx.storage.put("count", count);
      return { ...text(String(count)), structuredContent: { count, half: count / 2, big: 2 ** 53 } };
    });
    tool("self", {}, async () => text({ name: this.name, props: this.props ?? null, instance: this.instance }));
    tool("knows", {}, async () => text(this.server.server.getClientVersion() ?? "nobody"));
    tool("ask", { message: z.string() }, async ({ message }, extra) => text("hello " + (await ask(message, extra))));
    tool("ask_twice", {}, async (_, extra) => text([await ask("first", extra), await ask("second", extra)]));
    // Through the SDK, which the class knows nothing of.
    const sample = async (extra) => {
      const message = { role: "user", content: { type: "text", text: "hello" } };
      const request = { method: "sampling/createMessage", params: { messages: [message], maxTokens: 10 } };
      return (await extra.sendRequest(request, CreateMessageResultSchema)).content.text;
    };
    tool("sample", {}, async (_, extra) => text([await sample(extra), await sample(extra)]));
    tool("ask_by_sdk", { message: z.string() }, async ({ message }, extra) => {
      const related = { relatedRequestId: extra.requestId };
      const { content } = await this.server.server.elicitInput({ message, requestedSchema }, related);
      return text("hello " + content.name);
    });
    tool("grow", { name: z.string() }, async ({ name }, extra) => {
      tool(name, {}, async () => text(name));
      await extra.sendNotification({ method: "notifications/tools/list_changed" });
      return text("grown");
    });
    tool("progress", {}, async (_, extra) => {
      for (const progress of [1, 2, 3]) {
        const params = { progressToken: extra._meta.progressToken, progress };
        await extra.sendNotification({ method: "notifications/progress", params });
      }
      return text("done");
    });
    tool("fail", {}, async () => { throw new Error("on purpose, in a tool"); });
    tool("large", { letters: z.number() }, async ({ letters }) => text("é".repeat(letters)));
    tool("wait", {}, async (_, extra) => {
      await new Promise((resolve) => extra.signal.addEventListener("abort", resolve));
      await this.ctx.storage.put("aborted", true);
      return text("too late");
    });
    tool("was_aborted", {}, async () => text(String((await this.ctx.storage.get("aborted")) === true)));
    tool("break", {}, async () => { this.ctx.abort("broken on purpose"); });
  }
}

export class Failing extends McpAgent {
  server = new McpServer({ name: "failing", version: "1.0.0" });
  async init() {
    throw new Error("on purpose, while starting");
  }
}

// Serves no MCP.
export class Plain extends DurableObject {}

// Serves it by hand, and oddly.
export class Odd extends DurableObject {
  __unsafe_ensureInitialized() {}
  handleMcpMessage({ id, method, params }) {
    const say = (result) => ({ jsonrpc: "2.0", id, result });
    if (method === "initialize") {
      return say({ protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "odd", version: "1" } });
    }
    if (method === "tools/list") {
      const names = ["bigint", "function", "text", "throw", "throw_text", "nothing"];
      return [say({ tools: names.map((name) => ({ name, inputSchema: { type: "object" } })) })];
    }
    if (method !== "tools/call") return id === undefined ? undefined : { jsonrpc: "2.0", id, error: { code: -32601, message: "no" } };
    if (params.name === "bigint") return say({ content: [], n: 1n });
    if (params.name === "function") return () => 1;
    if (params.name === "text") return "no message";
    if (params.name === "throw") throw new Error("x".repeat(2_000) + "\\n");
    if (params.name === "throw_text") throw "just a text";
    return undefined;
  }
}
export default { fetch: () => new Response("not here", { status: 404 }) };`;

const caller = `
import { Agent, routeAgentRequest } from "agents";
export class RpcCaller extends Agent {
  onStart() {
    this.mcp.configureElicitationHandlers({
      form: async ({ params }) => ({ action: "accept", content: { name: params.message } }),
    });
  }
  async onRequest(request) {
    const { pathname } = new URL(request.url);
    const what = pathname.slice(pathname.lastIndexOf("/") + 1);
    const { id, name, binding, props, tool, args } = await request.json();
    try {
      if (what === "add") return Response.json(await this.addMcpServer(name, this.env[binding], { id, props }));
      if (what === "call") return Response.json(await this.mcp.callTool({ serverId: id, name: tool, arguments: args }));
      if (what === "list") return Response.json(this.getMcpServers());
    } catch (error) {
      return Response.json({ error: String(error) });
    }
    return new Response("no such route", { status: 404 });
  }
}
export default {
  async fetch(request, env) {
    return (await routeAgentRequest(request, env)) ?? new Response("not found", { status: 404 });
  },
};`;

let bundles;

/** The bundles take a few seconds: once for all who want them. */
export function rpcBundles() {
  bundles ??= Promise.all([bundle(source), bundle(caller)]);
  return bundles;
}

/** What `startWorker` takes as `beside`. */
export async function rpcServers() {
  const [script] = await rpcBundles();
  return { name: NAME, script, objects: { Counter: "Counter", Failing: "Failing", Plain: "Plain", Odd: "Odd" } };
}

export const SERVERS = NAME;
const elsewhere = (className) => ({ className, scriptName: NAME });

/** The bindings of a Worker that calls them. */
export const callerObjects = {
  RpcCaller: "RpcCaller",
  COUNTER: elsewhere("Counter"),
  FAILING: elsewhere("Failing"),
  PLAIN: elsewhere("Plain"),
  ODD: elsewhere("Odd"),
};

/** The same server in Rust, in a Worker of its own, and the bindings of a Worker that calls that. */
export const rustServers = { name: "rust-servers", build: "build/test-worker", objects: { RUST: "RustCounter" } };
export const rustCallerObjects = {
  RpcCaller: "RpcCaller",
  RUST: { className: "RustCounter", scriptName: rustServers.name },
};
