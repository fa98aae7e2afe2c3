// An MCP server of 2025-11-25 in the test's own process that speaks: it keeps streams open, asks the client
// things in the middle of a call, and answers over streamable HTTP (JSON or events) or over HTTP+SSE.
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { until } from "./until.mjs";

const ECHO = { name: "echo", inputSchema: { type: "object" } };
const say = ({ arguments: args }) => ({ content: [{ type: "text", text: JSON.stringify(args ?? {}) }] });

/**
 * - `tools`: what `tools/list` gives
 * - `call`: `(params, talk) => result`, may be async; `talk.ask(method, params, id)` resolves to the client's answer
 * - `capabilities`: what `initialize` declares
 * - `events`: answer calls with a stream
 */
export async function startTalkingServer(options = {}) {
  const server = new TalkingServer(options);
  await server.listen();
  return server;
}

class TalkingServer {
  /** Every request, oldest first: `{ http, path, rpc, message }`. */
  log = [];
  /** Streams for what is said unasked that are open. */
  standing = new Set();
  /** `(request, response) => true` answers a request in the place of this server. */
  intercept = undefined;
  #sessions = new Set();
  /** Streams of HTTP+SSE by session. */
  #channels = new Map();
  #waiting = new Map();
  #http;

  constructor({ tools = [ECHO], call = say, capabilities = { tools: {} }, events = false }) {
    Object.assign(this, { tools, call, capabilities, events });
  }

  async listen() {
    this.#http = createServer((request, response) => this.#serve(request, response));
    this.#http.listen(0, "127.0.0.1");
    this.#http.unref();
    await once(this.#http, "listening");
    this.origin = `http://127.0.0.1:${this.#http.address().port}`;
    /** Streamable HTTP. */
    this.url = `${this.origin}/mcp`;
    /** HTTP+SSE. */
    this.sseUrl = `${this.origin}/sse`;
  }

  async close() {
    const closed = once(this.#http, "close");
    this.#http.close();
    this.#http.closeAllConnections();
    await closed;
  }

  count(name) {
    return this.log.filter((entry) => (entry.rpc ?? entry.http) === name).length;
  }

  /** Says something on every standing stream. */
  notify(method, params = {}) {
    for (const response of this.standing) send(response, { jsonrpc: "2.0", method, params });
  }

  async #serve(request, response) {
    if (this.intercept?.(request, response)) return;
    const { pathname, searchParams } = new URL(request.url, this.origin);
    const body = await text(request).catch(() => "");
    const message = body ? JSON.parse(body) : undefined;
    this.log.push({ http: request.method, path: pathname, rpc: message?.method, message, headers: request.headers });
    if (pathname === "/sse") return request.method === "GET" ? this.#openChannel(response) : refuse(response, 405);
    if (pathname === "/messages") {
      const channel = this.#channels.get(searchParams.get("session"));
      if (!channel) return refuse(response, 404);
      response.writeHead(202).end();
      return this.#handle(message, channel, (answer) => send(channel, answer));
    }
    if (request.method === "DELETE") return response.writeHead(200).end();
    const session = request.headers["mcp-session-id"];
    if (message?.method === "initialize") return this.#initialize(message, response);
    if (message?.method === "server/discover") {
      const error = { code: -32000, message: "Bad Request: no session" };
      return sendJson(response, { jsonrpc: "2.0", id: message.id, error }, {}, 400);
    }
    if (!this.#sessions.has(session)) return refuse(response, 404);
    if (request.method === "GET") return this.#stand(response);
    if (message.id === undefined || message.method === undefined) {
      this.#heard(message);
      return response.writeHead(202).end();
    }
    if (!this.events) return this.#handle(message, undefined, (answer) => sendJson(response, answer));
    open(response);
    return this.#handle(message, response, (answer) => {
      send(response, answer);
      response.end();
    });
  }

  async #handle(message, stream, reply) {
    this.#heard(message);
    const { id, method, params = {} } = message;
    if (id === undefined || method === undefined) return;
    const result = await this.#result(method, params, stream);
    reply({ jsonrpc: "2.0", id, ...(result ? { result } : { error: { code: -32601, message: "Method not found" } }) });
  }

  #result(method, params, stream) {
    if (method === "initialize") return this.#card();
    if (method === "tools/list") return { tools: this.tools };
    if (method === "ping") return {};
    if (method !== "tools/call") return undefined;
    const ask = (method, params, id = randomUUID()) => {
      send(stream, { jsonrpc: "2.0", id, method, params });
      return new Promise((resolve) => this.#waiting.set(id, resolve));
    };
    const notify = (method, params) => send(stream, { jsonrpc: "2.0", method, params });
    const raw = (text) => stream.write(`data: ${text}\n\n`);
    return this.call(params, { ask, notify, raw });
  }

  /** An answer to one of our questions. */
  #heard({ id, method, result, error }) {
    if (method === undefined) this.#waiting.get(id)?.({ result, error });
  }

  #card() {
    return {
      protocolVersion: "2025-11-25",
      capabilities: this.capabilities,
      serverInfo: { name: "talking", version: "1.0.0" },
    };
  }

  #initialize(message, response) {
    const session = randomUUID();
    this.#sessions.add(session);
    sendJson(response, { jsonrpc: "2.0", id: message.id, result: this.#card() }, { "mcp-session-id": session });
  }

  #stand(response) {
    open(response);
    response.write(": here\n\n");
    this.standing.add(response);
    response.once("close", () => this.standing.delete(response));
  }

  #openChannel(response) {
    const session = randomUUID();
    open(response);
    response.write(`event: endpoint\ndata: /messages?session=${session}\n\n`);
    this.#channels.set(session, response);
    this.standing.add(response);
    response.once("close", () => {
      this.#channels.delete(session);
      this.standing.delete(response);
    });
  }
}

const open = (response) => response.writeHead(200, { "content-type": "text/event-stream" });
const send = (response, message) => response.write(`data: ${JSON.stringify(message)}\n\n`);
const refuse = (response, status) => response.writeHead(status).end();

function sendJson(response, body, headers = {}, status = 200) {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}

/**
 * Waits until no stream has stood open for a while. miniflare evicts no object that has one, and one that it was
 * asked to evict while a stream was closing it gives up on after 30 s.
 */
export async function quiet(remote) {
  let since;
  await until("the streams to be let go", () => {
    since = remote.standing.size === 0 ? (since ?? Date.now()) : undefined;
    return since !== undefined && Date.now() - since > 500;
  });
}
