// The referee's driver against a host of paper: it must follow, give up, and close, whatever happens.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { promisify } from "node:util";
import { parseList, select } from "../conformance/lanes.mjs";
import { judge } from "../conformance/referee.mjs";
import { inRoot } from "./support/paths.mjs";

const DRIVER = inRoot("tests/conformance/driver.mjs");

/** A host and an authorization server in one; `runs` says how often the user is needed before it finishes. */
async function startPaperHost(t, { authorizations = 0, callbackStatus = 200, fails = false } = {}) {
  const log = [];
  let left = authorizations;
  const server = createServer(async (request, response) => {
    const url = new URL(request.url, `http://${request.headers.host}`);
    const [, , , id, action] = url.pathname.split("/");
    const body = await text(request);
    log.push({ id, action: action ?? "approve", query: url.search, body: body ? JSON.parse(body) : undefined });
    const send = (status, json) =>
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(json));
    if (url.pathname === "/authorize")
      return response.writeHead(302, { location: url.searchParams.get("redirect") }).end();
    if (action === "callback") return send(callbackStatus, { detail: "the state is unknown" });
    if (action === "close") return response.writeHead(204).end();
    if (fails) return send(502, { detail: "the server\nis down" });
    if (left-- <= 0) return send(200, { outcome: "finished" });
    const redirect = `${url.origin}/agents/conformance-host/${id}/callback?code=c&state=s`;
    send(200, { outcome: "authorize", url: `${url.origin}/authorize?redirect=${encodeURIComponent(redirect)}` });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return {
    origin: `http://127.0.0.1:${server.address().port}`,
    log,
    actions: () => log.map((entry) => entry.action),
  };
}

async function drive(host, env = {}) {
  const run = promisify(execFile)(process.execPath, [DRIVER, "http://localhost:9/mcp"], {
    env: { ...process.env, WORKER_ORIGIN: host.origin, MCP_CONFORMANCE_SCENARIO: "tools_call", ...env },
  });
  return run.then(
    ({ stderr }) => ({ code: 0, stderr }),
    ({ code, stderr }) => ({ code, stderr }),
  );
}

test("the driver hands the job to a fresh object and closes it", async (t) => {
  const host = await startPaperHost(t);
  const env = { MCP_CONFORMANCE_PROTOCOL_VERSION: "2025-11-25", MCP_CONFORMANCE_CONTEXT: '{"client_id":"abc"}' };
  assert.deepEqual(await drive(host, env), { code: 0, stderr: "" });
  assert.deepEqual(host.actions(), ["run", "close"]);
  assert.deepEqual(host.log[0].body, {
    scenario: "tools_call",
    serverUrl: "http://localhost:9/mcp",
    protocolVersion: "2025-11-25",
    context: { client_id: "abc" },
  });
  await drive(host);
  assert.notEqual(host.log[0].id, host.log[2].id);
});

test("the driver follows four authorizations, and gives up on a client that never has enough", async (t) => {
  const four = await startPaperHost(t, { authorizations: 4 });
  assert.equal((await drive(four)).code, 0);
  assert.equal(four.actions().filter((action) => action === "callback").length, 4);
  assert.equal(four.log.find((entry) => entry.action === "callback").query, "?code=c&state=s");

  const greedy = await startPaperHost(t, { authorizations: Infinity });
  const { code, stderr } = await drive(greedy);
  assert.equal(code, 1);
  assert.match(stderr, /still not authorized/);
  assert.equal(greedy.actions().at(-1), "close");
});

test("the driver fails with one line when the host fails or rejects the callback, and still closes", async (t) => {
  const failing = await startPaperHost(t, { fails: true });
  assert.deepEqual(await drive(failing), { code: 1, stderr: "run: the server is down\n" });
  assert.equal(failing.actions().at(-1), "close");

  const rejecting = await startPaperHost(t, { authorizations: 1, callbackStatus: 400 });
  assert.deepEqual(await drive(rejecting), { code: 1, stderr: "callback: the state is unknown\n" });
  assert.equal(rejecting.actions().at(-1), "close");
});

test("lanes and scenario names select runs", () => {
  const scenarios = parseList(
    "Client scenarios:\n  - initialize [2025-06-18,2025-11-25]\n  - auth/dpop [extension]\n",
  );
  const named = (...args) =>
    select(scenarios, args).map((run) => `${run.scenario}@${run.revision}${run.force ? "!" : ""}`);
  assert.deepEqual(named("2025-06-18"), ["initialize@2025-06-18"]);
  assert.deepEqual(named("initialize"), ["initialize@2025-06-18", "initialize@2025-11-25"]);
  assert.deepEqual(named("initialize@2025-11-25", "initialize@2025-11-25"), ["initialize@2025-11-25"]);
  assert.deepEqual(named("extensions"), ["auth/dpop@2025-11-25!", "auth/dpop@2026-07-28!"]);
  const everything = ["initialize@2025-06-18", "initialize@2025-11-25"];
  assert.deepEqual(named(), [...everything, "auth/dpop@2025-11-25!", "auth/dpop@2026-07-28!"]);
  assert.throws(() => named("nothing"), /nothing/);
});

test("a run is judged strictly", () => {
  const check = (status) => ({ id: "c", status, description: "d" });
  const judged = (code, ...statuses) => judge(code, { checks: statuses.map(check), stderr: "" }, "").length === 0;
  assert.ok(judged(0, "SUCCESS", "INFO", "SKIPPED"));
  assert.ok(!judged(0, "SUCCESS", "WARNING"));
  assert.ok(!judged(0, "SUCCESS", "FAILURE"));
  assert.ok(!judged(0, "INFO"));
  assert.ok(!judged(0));
  assert.ok(!judged(1, "SUCCESS"));
  assert.ok(!judged(null, "SUCCESS"));
});
