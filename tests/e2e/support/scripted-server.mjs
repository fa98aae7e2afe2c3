// An MCP server in the test's own process: it follows the rules of 2025-11-25, writes down every request,
// and misbehaves on demand.
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";

const PROTOCOL_VERSION = "2025-11-25";

const CATALOGUE = {
  "tools/list": { tools: [{ name: "echo", description: "Says it again", inputSchema: { type: "object" } }] },
  "prompts/list": { prompts: [{ name: "greet", arguments: [{ name: "who", required: true }] }] },
  "resources/list": { resources: [{ name: "note", uri: "note://1" }] },
  "resources/templates/list": { resourceTemplates: [{ name: "notes", uriTemplate: "note://{id}" }] },
};

const ANSWERS = {
  "tools/call": ({ arguments: args }) => ({ content: [{ type: "text", text: JSON.stringify(args ?? {}) }] }),
  "prompts/get": ({ arguments: args }) => ({
    messages: [{ role: "user", content: { type: "text", text: `Hello ${args?.who}` } }],
  }),
  "resources/read": ({ uri }) => ({ contents: [{ uri, text: `text of ${uri}` }] }),
};

/** Starts a server; `port` puts it where an earlier one was. */
export async function startScriptedServer({ port = 0, ...options } = {}) {
  const server = new ScriptedServer(options);
  await server.listen(port);
  return server;
}

class ScriptedServer {
  /** Every request, oldest first: `{ http, path, rpc, session, headers, message, status, gone }`. */
  log = [];
  /** Set it to take requests over: `(entry, response) => true` when it has answered, or means never to. */
  intercept = undefined;
  #sessions = new Set();
  #answers;
  #http;

  constructor({ answers = {}, sessions = [] } = {}) {
    this.#answers = { ...ANSWERS, ...answers };
    for (const id of sessions) this.#sessions.add(id);
  }

  async listen(port = 0) {
    this.#http = createServer((request, response) => this.#serve(request, response));
    this.#http.listen(port, "127.0.0.1");
    // A test that failed half-way must not be kept alive by its server.
    this.#http.unref();
    await once(this.#http, "listening");
    this.port = this.#http.address().port;
    this.origin = `http://127.0.0.1:${this.port}`;
    this.url = `${this.origin}/mcp`;
  }

  /** Cuts every connection and stops listening; `listen(server.port)` brings it back. */
  async close() {
    if (!this.#http.listening) return;
    const closed = once(this.#http, "close");
    this.#http.close();
    this.#http.closeAllConnections();
    await closed;
  }

  forgetSessions() {
    this.#sessions.clear();
  }

  /** Names of what was asked, oldest first: the JSON-RPC method, or the HTTP method where there is none. */
  get requests() {
    return this.log.map((entry) => entry.rpc ?? entry.http);
  }

  count(rpc) {
    return this.log.filter((entry) => entry.rpc === rpc).length;
  }

  /** Starts a new page of the log; gives the old one. */
  takeLog() {
    return this.log.splice(0);
  }

  async #serve(request, response) {
    const entry = { http: request.method, path: request.url, headers: request.headers, gone: false };
    response.once("finish", () => (entry.status = response.statusCode));
    response.once("close", () => (entry.gone = !response.writableFinished));
    const body = await text(request).catch(() => "");
    entry.message = body ? JSON.parse(body) : undefined;
    entry.rpc = entry.message?.method;
    entry.session = request.headers["mcp-session-id"];
    this.log.push(entry);
    if (await this.intercept?.(entry, response)) return;
    this.answer(entry, response);
  }

  /** The regular answer. */
  answer({ http, rpc, message, session }, response) {
    if (http === "DELETE") {
      return response.writeHead(this.#sessions.delete(session) ? 200 : 404).end();
    }
    if (http !== "POST") return response.writeHead(405, { allow: "POST, DELETE" }).end();
    if (rpc === "initialize") return this.#initialize(message, response);
    if (!session) return sendError(response, 400, message, -32000, "Bad Request: no session");
    if (!this.#sessions.has(session)) return sendError(response, 404, message, -32001, "Session not found");
    if (message.id === undefined) return response.writeHead(202).end();
    const result = CATALOGUE[rpc] ?? this.#answers[rpc]?.(message.params ?? {});
    if (!result) return sendError(response, 200, message, -32601, "Method not found");
    sendJson(response, 200, { jsonrpc: "2.0", id: message.id, result });
  }

  #initialize(message, response) {
    const session = randomUUID();
    this.#sessions.add(session);
    const result = {
      protocolVersion: PROTOCOL_VERSION,
      capabilities: { tools: {}, prompts: {}, resources: {} },
      serverInfo: { name: "scripted", version: "1.0.0" },
      instructions: "Echo everything.",
    };
    sendJson(response, 200, { jsonrpc: "2.0", id: message.id, result }, { "mcp-session-id": session });
  }
}

/** The result of `initialize`. */
export const handshake = (protocolVersion) => ({
  protocolVersion,
  capabilities: { tools: {} },
  serverInfo: { name: "scripted", version: "1.0.0" },
});

export function sendJson(response, status, body, headers = {}) {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}

export function sendError(response, status, message, code, text, data) {
  sendJson(response, status, { jsonrpc: "2.0", id: message?.id ?? null, error: { code, message: text, data } });
}
