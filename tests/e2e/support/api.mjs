// The Worker's JSON API as a test reads it.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";

export class Agent {
  /** `base` is `/agents/tool-agent/<name>/`; the name is used as it is, percent signs included. */
  constructor(worker, name, { token } = {}) {
    this.worker = worker;
    this.name = name;
    this.base = `/agents/tool-agent/${name}/`;
    this.headers = token ? { authorization: `Bearer ${token}` } : {};
  }

  /** One request; gives `{ status, headers, type, body }` with the body parsed when it is JSON. */
  async request(method, path, json) {
    const headers = json === undefined ? this.headers : { ...this.headers, "content-type": "application/json" };
    const body = json === undefined ? undefined : JSON.stringify(json);
    return readAnswer(await this.worker.fetch(this.base + path, { method, headers, body }));
  }

  async #expect(status, method, path, json) {
    const answer = await this.request(method, path, json);
    assert.equal(answer.status, status, `${method} ${path}: ${JSON.stringify(answer.body)}`);
    return answer.body;
  }

  get(path) {
    return this.#expect(200, "GET", path);
  }

  post(path, json = {}) {
    return this.#expect(200, "POST", path, json);
  }

  /** Registers a server that is expected to come up; gives its entry. */
  async add(server) {
    const body = await this.#expect(201, "POST", "servers", server);
    assert.equal(body.state, "ready");
    assert.equal(body.server.id, body.id);
    return body.server;
  }

  /** Registers a server whatever comes of it. */
  tryAdd(server) {
    return this.request("POST", "servers", server);
  }

  remove(id) {
    return this.#expect(204, "DELETE", `servers/${id}`);
  }

  call(serverId, name, args) {
    return this.post("tools/call", { serverId, name, arguments: args });
  }

  tryCall(serverId, name, args) {
    return this.request("POST", "tools/call", { serverId, name, arguments: args });
  }

  /** The entry of one server in the listing. */
  async server(id) {
    const { servers } = await this.get("servers");
    return servers.find((server) => server.id === id);
  }
}

/** An object that no other test knows. */
export const freshAgent = (worker, options) => new Agent(worker, `agent-${randomUUID()}`, options);

export async function readAnswer(response) {
  const type = (response.headers.get("content-type") ?? "").split(";")[0];
  const text = await response.text();
  return {
    status: response.status,
    headers: response.headers,
    type,
    body: type.endsWith("json") ? JSON.parse(text) : text,
  };
}

/** Asserts a well-formed problem (RFC 9457) with this status, whose text matches `detail`. Gives the body. */
export function assertProblem(answer, status, detail = /./) {
  const shown = `${answer.status} ${answer.type} ${JSON.stringify(answer.body)}`;
  const statuses = Array.isArray(status) ? status : [status];
  assert.ok(statuses.includes(answer.status), `expected ${statuses}: ${shown}`);
  assert.equal(answer.type, "application/problem+json", shown);
  assert.equal(answer.body.status, answer.status, shown);
  assert.equal(typeof answer.body.title, "string", shown);
  assert.equal(typeof answer.body.type, "string", shown);
  assert.match(`${answer.body.detail}`, detail, shown);
  return answer.body;
}
