// The Worker's JSON API as a test uses it where the user has to sign in.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";
import { Agent, assertProblem, readAnswer } from "./api.mjs";
import { startProtected } from "./auth-server.mjs";
import { until } from "./until.mjs";
import { startToolAgent } from "./worker.mjs";

/** A port that was free just now. */
export async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

/** The ready-made Worker on a port that it keeps over restarts: callbacks go there. */
export const startSigningAgent = async (vars = {}, options = {}) =>
  startToolAgent({ REQUEST_TIMEOUT_MS: "10000", ...vars }, { port: await freePort(), ...options });

/** The ways an object can go, each leaving nothing but its storage. */
export const ENDS = {
  "workerd was killed": (agent) => agent.worker.restart(),
  "the object alone was evicted": (agent) => agent.worker.evict("ToolAgent", agent.name),
};

export class SigningAgent extends Agent {
  /** Registers a server for which the user must sign in; gives the whole answer, with `authUrl`. */
  async begin(server) {
    const answer = await this.tryAdd(server);
    const shown = `${answer.status} ${JSON.stringify(answer.body)}`;
    assert.equal(answer.status, 201, shown);
    assert.equal(answer.body.state, "authenticating", shown);
    assert.ok(URL.canParse(answer.body.authUrl), shown);
    return answer.body;
  }

  /** Asks again; gives the answer, with `authUrl` where the user must sign in. */
  reconnect(id) {
    return this.post(`servers/${id}/reconnect`);
  }

  signOut(id) {
    return this.post(`servers/${id}/sign-out`);
  }

  /** What the browser does when the authorization server sends it back: no token of ours goes along. */
  async callback(url) {
    const { pathname, search } = new URL(url);
    return readAnswer(await this.worker.fetch(pathname + search));
  }

  /** A callback that succeeds. */
  async arrive(url) {
    const answer = await this.callback(url);
    assert.equal(answer.status, 302, `${answer.status} ${answer.body}`);
    assert.equal(new URL(answer.headers.get("location"), this.worker.origin).href, `${this.worker.origin}/`);
  }

  /** A callback that fails: a page for people, on which there is nothing to be stolen. Gives its text. */
  async arriveInVain(url) {
    const answer = await this.callback(url);
    assert.equal(answer.status, 400, `${answer.status} ${answer.body}`);
    assert.equal(answer.type, "text/html");
    const { searchParams } = new URL(url);
    for (const name of ["code", "state"]) {
      const value = searchParams.get(name);
      assert.ok(!value || !answer.body.includes(value), `the page shows the ${name}`);
    }
    return answer.body;
  }

  /** Waits until a server is ready; gives its entry. */
  ready(id) {
    return until(`${id} to be ready`, async () => {
      const server = await this.server(id);
      return server?.state === "ready" && server;
    });
  }

  /** From the authorization URL to a server that is ready. `who` says who signs in, and what is granted. */
  async finish(id, authUrl, as, who) {
    await this.arrive(await as.approve(authUrl, who));
    return this.ready(id);
  }

  /** Registers a server and signs in to it; gives its entry. */
  async signIn(server, as, who) {
    const { id, authUrl } = await this.begin(server);
    return this.finish(id, authUrl, as, who);
  }

  /** The text that a tool gives. */
  async say(id, tool, args = {}) {
    return (await this.call(id, tool, args)).content[0].text;
  }

  /** A call for which the user must sign in first, or again; gives the authorization URL. */
  async callInVain(id, tool, args = {}) {
    return assertSignInRequired(await this.tryCall(id, tool, args), id);
  }
}

export const signingAgent = (worker, name = `agent-${randomUUID()}`, options) =>
  new SigningAgent(worker, name, options);

/**
 * What one test plays with: servers that are closed with it, and an object of its own. `notes` registers the server.
 * `options` are those of the servers, `{ as, mcp }`.
 */
export async function startScene(t, worker, options) {
  const { as, mcp, close } = await startProtected(options);
  t.after(close);
  return { as, mcp, notes: { id: "notes", name: "Notes", url: mcp.url }, agent: signingAgent(worker) };
}

/** The problem that says where to sign in; gives the authorization URL. */
export function assertSignInRequired(answer, id) {
  const { kind, serverId, authUrl, state } = assertProblem(answer, 409);
  assert.deepEqual({ kind, serverId, state }, { kind: "sign-in-required", serverId: id, state: "authenticating" });
  assert.ok(URL.canParse(authUrl), `no URL: ${authUrl}`);
  return authUrl;
}

/** A server that wants authorization and cannot get it: the problem, and the state `failed`. Gives the text. */
export async function assertNoAuthorization(agent, server, detail = /./) {
  const answer = await agent.tryAdd(server);
  const problem = assertProblem(answer, 502, detail);
  assert.equal(problem.kind, "authorization", JSON.stringify(problem));
  const entry = await agent.server(server.id);
  assert.deepEqual([entry?.state, entry?.authUrl], ["failed", null], JSON.stringify(entry));
  return problem.detail;
}

/** The parameters of an authorization URL. */
export const query = (url) => Object.fromEntries(new URL(url).searchParams);

/** `expiresAt` of an entry in milliseconds, whatever way it is written. */
export function expiry({ auth }) {
  const { expiresAt } = auth;
  if (typeof expiresAt === "string") return Date.parse(expiresAt);
  return expiresAt > 1e11 ? expiresAt : expiresAt * 1000;
}
