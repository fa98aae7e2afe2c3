// Sessions: a browser trades the token for a cookie, and the cookie is good for pages of the Worker alone.
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { after, before, describe, test } from "node:test";
import { assertProblem, readAnswer } from "./support/api.mjs";
import { startWorker } from "./support/worker.mjs";

const TOKEN = "correct-horse-battery-staple";
const BASE = "/agents/tool-agent/session/";

let worker;
let own;
before(async () => {
  worker = await startWorker({ vars: { AGENT_TOKEN: TOKEN } });
  own = worker.origin;
});
after(() => worker?.dispose());

const json = { "content-type": "application/json" };
const logIn = (token, headers = {}) =>
  worker.fetch("/session", { method: "POST", headers: { ...json, ...headers }, body: JSON.stringify({ token }) });
const ask = async (path, { method = "GET", ...headers } = {}) => readAnswer(await worker.fetch(path, { method, headers }));
const cookieOf = (response) => response.headers.get("set-cookie")?.split(";")[0];

/** What is there to be used by a browser that has signed in. */
const session = async () => ({ cookie: cookieOf(await logIn(TOKEN, { origin: own })) });

/** Opens a WebSocket by hand; gives the status line and the rest of the head. */
async function upgrade(path, headers = {}) {
  const { hostname, port } = new URL(worker.origin);
  const socket = connect(Number(port), hostname);
  await once(socket, "connect");
  const lines = {
    host: `${hostname}:${port}`,
    connection: "Upgrade",
    upgrade: "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    ...headers,
  };
  socket.write(`GET ${path} HTTP/1.1\r\n${Object.entries(lines).map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n`);
  const [chunk] = await once(socket, "data");
  socket.destroy();
  return Number(/^HTTP\/1\.1 (\d+)/.exec(chunk.toString())[1]);
}

describe("signing in", () => {
  test("gives a cookie that scripts cannot read, other sites cannot send, and that ends", async () => {
    const response = await logIn(TOKEN, { origin: own });
    assert.deepEqual([response.status, await response.text()], [204, ""]);
    assert.equal(response.headers.get("cache-control"), "no-store");
    const [pair, ...attributes] = response.headers.get("set-cookie").split("; ");
    assert.deepEqual(attributes.sort(), ["HttpOnly", "Max-Age=43200", "Path=/", "SameSite=Strict"]);
    assert.ok(!pair.includes(TOKEN) && !pair.includes(Buffer.from(TOKEN).toString("base64url")));
  });

  test("over https gives one that is never sent in the clear", async () => {
    await worker.restart({ vars: { AGENT_TOKEN: TOKEN, PUBLIC_ORIGIN: "https://agents.example.com" } });
    own = worker.origin;
    const response = await logIn(TOKEN, { origin: "https://agents.example.com" });
    assert.match(response.headers.get("set-cookie"), /; Secure$/);
    // The public origin is ours as well.
    const headers = { cookie: cookieOf(response), origin: "https://agents.example.com", method: "POST" };
    assertProblem(await ask(`${BASE}tools/call`, headers), 400);
  });

  test("with another token gives none, and says so", async () => {
    for (const token of ["", "x", TOKEN.slice(1), `${TOKEN} `, TOKEN.toUpperCase()]) {
      const response = await logIn(token, { origin: own });
      assert.equal(response.headers.get("set-cookie"), null);
      assertProblem(await readAnswer(response), 401);
    }
  });

  test("is for our own pages", async () => {
    for (const origin of ["https://evil.example", "null", "http://127.0.0.1:1"]) {
      const response = await logIn(TOKEN, { origin });
      assert.equal(response.headers.get("set-cookie"), null);
      assertProblem(await readAnswer(response), 403);
    }
  });

  test("takes nothing that is no token", async () => {
    for (const body of ["", "x", "[]", "{}", '{"token":7}', `{"token":"${"x".repeat(2 << 20)}"}`]) {
      const answer = await readAnswer(await worker.fetch("/session", { method: "POST", headers: json, body }));
      assertProblem(answer, [400, 413, 422]);
    }
    assertProblem(await ask("/session", { method: "PUT" }), 405);
  });

  test("is told from not having signed in", async () => {
    assert.deepEqual((await ask("/session")).body, { needed: true, signedIn: false });
    assert.deepEqual((await ask("/session", await session())).body, { needed: true, signedIn: true });
    const forged = { cookie: "workers-agents-session=9999999999.AAAA" };
    assert.deepEqual((await ask("/session", forged)).body, { needed: true, signedIn: false });
  });
});

describe("a session", () => {
  test("reads from anywhere that the browser sends it from, which no other site is", async () => {
    assert.equal((await ask(`${BASE}servers`, await session())).status, 200);
  });

  test("changes things for our own pages only", async () => {
    const { cookie } = await session();
    for (const origin of ["https://evil.example", "null", "http://localhost:1", undefined]) {
      const headers = { cookie, ...(origin && { origin }) };
      const problem = assertProblem(await ask(`${BASE}servers/none`, { ...headers, method: "DELETE" }), 403);
      assert.equal(problem.kind, "foreign-origin");
    }
    assertProblem(await ask(`${BASE}servers/none`, { cookie, origin: own, method: "DELETE" }), 404);
  });

  test("does not make a wrong token good", async () => {
    const { cookie } = await session();
    assertProblem(await ask(`${BASE}servers`, { cookie, authorization: "Bearer x" }), 401);
  });

  test("opens WebSockets for our own pages only", async () => {
    const { cookie } = await session();
    for (const origin of ["https://evil.example", "null", undefined]) {
      assert.equal(await upgrade(BASE, { cookie, ...(origin && { origin }) }), 403, `${origin}`);
    }
    assert.equal(await upgrade(BASE, { origin: own }), 401);
    // Past the gate, whatever the object makes of it.
    assert.ok(![401, 403].includes(await upgrade(BASE, { cookie, origin: own })));
  });

  test("is over when the user signs out", async () => {
    const { cookie } = await session();
    const foreign = await worker.fetch("/session", { method: "DELETE", headers: { cookie, origin: "https://evil.example" } });
    assert.equal(foreign.status, 403);
    const response = await worker.fetch("/session", { method: "DELETE", headers: { cookie, origin: own } });
    assert.equal(response.status, 204);
    assert.match(response.headers.get("set-cookie"), /^workers-agents-session=; .*Max-Age=0/);
  });

  test("is over when the Worker has another token", async () => {
    const { cookie } = await session();
    await worker.restart({ vars: { AGENT_TOKEN: `${TOKEN}2` } });
    own = worker.origin;
    assertProblem(await ask(`${BASE}servers`, { cookie }), 401);
    await worker.restart({ vars: { AGENT_TOKEN: TOKEN } });
    own = worker.origin;
    assert.equal((await ask(`${BASE}servers`, { cookie })).status, 200);
  });
});

test("what anybody may ask for opens no WebSocket", async () => {
  const state = `${"a".repeat(21)}.server`;
  for (const path of [`${BASE}callback?state=${state}&code=c`, `${BASE}client-metadata.json`]) {
    assert.notEqual((await ask(path)).status, 401, path);
    assert.equal(await upgrade(path), 401, path);
  }
});

describe("a token in the address", () => {
  const secret = `token=${encodeURIComponent(TOKEN)}`;

  test("opens WebSockets from anywhere, and nothing else", async () => {
    const admitted = await upgrade(`${BASE}?${secret}&mcp=servers`, { origin: "https://elsewhere.example" });
    assert.ok(![401, 403].includes(admitted), `${admitted}`);
    assert.equal(await upgrade(`${BASE}?token=x`), 401);
    assert.equal(await upgrade(`${BASE}?token=${TOKEN}x`), 401);
    assertProblem(await ask(`${BASE}servers?${secret}`), 401);
  });
});

test("without a token there is nothing to sign in to", async () => {
  await worker.restart({ vars: {} });
  assertProblem(await ask("/session"), 503);
  assertProblem(await readAnswer(await logIn(TOKEN)), 503);
  await worker.restart({ vars: { ALLOW_INSECURE_LOCAL: "1" } });
  assert.deepEqual((await ask("/session")).body, { needed: false, signedIn: true });
});

test("no token goes to the log", () => {
  assert.ok(!worker.output.includes(TOKEN), worker.output);
});
