// Cases from public bug reports, over real sockets and through the JSON API: sessions, and what is kept of them.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Agent, assertProblem, freshAgent } from "./support/api.mjs";
import { answersStatus } from "./support/faults.mjs";
import { handshake, sendError, sendJson, startScriptedServer } from "./support/scripted-server.mjs";
import { speaksHttpSse } from "./support/sse-server.mjs";
import { seedServers, storedServers } from "./support/storage.mjs";
import { until } from "./support/until.mjs";
import { startToolAgent, temporaryFolder } from "./support/worker.mjs";

const retry = { maxAttempts: 1 };

let worker;
before(async () => (worker = await startToolAgent({ REQUEST_TIMEOUT_MS: "5000", STREAM_LINGER_MS: "500" })));
after(() => worker?.dispose());

async function startRemote(t) {
  const remote = await startScriptedServer();
  t.after(() => remote.close());
  return remote;
}

const server = (url) => ({ id: "m", name: "M", url, retry });
const text = (result) => result.content[0].text;
const posts = (remote) => remote.log.filter((entry) => entry.http === "POST");
const steps = (remote) => posts(remote).map((entry) => [entry.rpc, entry.session]);
const evict = (agent) => worker.evict("ToolAgent", agent.name);

/** The one session that a server has begun last. */
const lastSession = (remote) => remote.log.findLast((entry) => entry.rpc === "notifications/initialized").session;

/** Answers requests of sessions that are lost in another way than with 404. */
function says(remote, refuse) {
  remote.lost = new Set();
  remote.intercept = (entry, response) => remote.lost.has(entry.session) && refuse(entry, response);
}

test("SE-01 a lost session is replaced, and the call repeated once", async (t) => {
  const remote = await startRemote(t);
  const agent = freshAgent(worker);
  await agent.add(server(remote.url));
  const old = lastSession(remote);
  remote.takeLog();
  remote.forgetSessions();
  assert.equal(text(await agent.call("m", "echo", { n: 1 })), '{"n":1}');
  const fresh = lastSession(remote);
  assert.notEqual(fresh, old);
  assert.deepEqual(steps(remote), [
    ["tools/call", old],
    ["initialize", undefined],
    ["notifications/initialized", fresh],
    ["tools/call", fresh],
  ]);
});

const ENDS = { "the object was evicted": evict, "workerd was killed": () => worker.restart() };

for (const [end, leave] of Object.entries(ENDS)) {
  test(`SE-02 a stored session that is stale is replaced after ${end}`, async (t) => {
    const remote = await startRemote(t);
    const agent = freshAgent(worker);
    await agent.add(server(remote.url));
    const old = lastSession(remote);
    remote.forgetSessions();
    remote.takeLog();

    await leave(agent);
    // Known at once, and asked for again meanwhile.
    const known = await agent.get("tools");
    assert.equal(known.tools.length, 1);
    assert.deepEqual(known.stale, ["m"]);
    const asked = await agent.get("tools?wait=10000");
    assert.deepEqual([asked.tools.length, asked.stale], [1, undefined]);
    const entry = await agent.server("m");
    assert.equal(entry.state, "ready");
    const fresh = lastSession(remote);
    assert.equal(remote.count("initialize"), 1);
    const done = posts(remote).filter((entry) => entry.rpc === "tools/list" && entry.status === 200);
    assert.equal(done.length, 1, "listed once");
    const options = (await storedServers(worker, agent.name)).m.server_options;
    assert.ok(options.includes(fresh) && !options.includes(old), options);

    remote.takeLog();
    await leave(agent);
    await agent.call("m", "echo", {});
    assert.ok(remote.log.length > 0 && remote.log.every((entry) => entry.session === fresh));
  });
}

describe("SE-05", () => {
  test("a session that is lost with 400 is replaced, as often as the server restarts", async (t) => {
    const remote = await startRemote(t);
    says(remote, answersStatus(400, "Bad Request: No valid session ID provided"));
    const agent = freshAgent(worker);
    await agent.add(server(remote.url));
    for (const n of [1, 2, 3]) {
      remote.lost.add(lastSession(remote));
      assert.equal(text(await agent.call("m", "echo", { n })), `{"n":${n}}`);
      assert.equal(remote.count("initialize"), n + 1);
    }
  });

  test("a request that is bad keeps its message and costs one new session at most", async (t) => {
    const remote = await startRemote(t);
    const agent = freshAgent(worker);
    await agent.add(server(remote.url));
    remote.intercept = ({ message }, response) => {
      if (message?.params?.arguments?.n !== 0) return false;
      sendError(response, 400, message, -32602, "bad argument: city");
      return true;
    };
    for (const n of [1, 2, 3]) {
      assert.equal(assertProblem(await agent.tryCall("m", "echo", { n: 0 }), 502).message, "bad argument: city");
      await agent.call("m", "echo", { n });
    }
    assert.ok(remote.count("initialize") <= 2, remote.requests.join(", "));
  });
});

describe("SE-07", () => {
  test("a session that is lost with 401 is replaced, and the server is ready", async (t) => {
    const remote = await startRemote(t);
    says(remote, answersStatus(401));
    const agent = freshAgent(worker);
    const transport = { headers: { authorization: "Bearer good" } };
    await agent.add({ ...server(remote.url), transport });
    remote.lost.add(lastSession(remote));
    assert.equal(text(await agent.call("m", "echo", { n: 1 })), '{"n":1}');
    remote.lost.add(lastSession(remote));
    await evict(agent);
    assert.equal(text(await agent.call("m", "echo", { n: 2 })), '{"n":2}');
    assert.equal((await agent.server("m")).state, "ready");
    assert.equal(remote.count("initialize"), 3);
  });

  test("a server that keeps saying 401 is not asked for ever", async (t) => {
    const remote = await startRemote(t);
    const agent = freshAgent(worker);
    await agent.add(server(remote.url));
    remote.intercept = answersStatus(401);
    remote.takeLog();
    assert.notEqual((await agent.tryCall("m", "echo", {})).status, 200);
    assert.ok(remote.count("initialize") <= 1 && posts(remote).length <= 3, remote.requests.join(", "));

    remote.takeLog();
    await evict(agent);
    await agent.get("tools?wait=10000");
    assert.match((await agent.server("m")).state, /failed|authenticating/);
    // Each of the lists may have met the refusal.
    assert.ok(remote.count("initialize") <= 1 && posts(remote).length <= 8, remote.requests.join(", "));
  });
});

describe("SE-09", () => {
  const VERSION = "2025-06-18";

  /** Demands the agreed version on everything after the handshake. */
  function isStrict(remote, session) {
    remote.intercept = ({ http, rpc, headers, message }, response) => {
      if (rpc === "server/discover") return answersStatus(400)(undefined, response);
      if (rpc === "initialize") {
        const result = handshake(VERSION);
        sendJson(response, 200, { jsonrpc: "2.0", id: message.id, result }, { "mcp-session-id": session });
        return true;
      }
      const isOpening = http === "GET" && !headers["mcp-session-id"];
      const version = isOpening ? VERSION : headers["mcp-protocol-version"];
      if (version !== VERSION) return answersStatus(400, "version")(undefined, response);
      if (message?.id === undefined) return answersStatus(http === "POST" ? 202 : 405)(undefined, response);
      const answer = { tools: [{ name: "echo", inputSchema: {} }], content: [] };
      sendJson(response, 200, { jsonrpc: "2.0", id: message.id, result: answer });
      return true;
    };
  }

  test("a session that is taken up again speaks the version it was agreed on", async (t) => {
    const remote = await startRemote(t);
    isStrict(remote, "s1");
    const agent = freshAgent(worker);
    await agent.add(server(remote.url));
    remote.takeLog();
    await evict(agent);
    await agent.call("m", "echo", {});
    assert.equal(remote.count("initialize"), 0, "not taken up");
    assert.ok(remote.log.every((entry) => entry.headers["mcp-protocol-version"] === VERSION && entry.session === "s1"));
  });

  test("a stored session without a version is not taken up", async (t) => {
    const remote = await startRemote(t);
    isStrict(remote, "s2");
    const storage = await temporaryFolder();
    const options = JSON.stringify({ transport: { type: "auto", sessionId: "s1" } });
    await seedServers(storage, "seeded", [{ id: "m", server_url: remote.url, server_options: options }]);
    const own = await startToolAgent({}, { storage });
    t.after(() => own.dispose());
    const agent = new Agent(own, "seeded");
    await agent.call("m", "echo", {});
    assert.equal(remote.count("initialize"), 1);
    assert.ok(remote.log.every((entry) => entry.session !== "s1"));
    assert.equal((await agent.server("m")).state, "ready");
  });
});

describe("SE-12 a server of SSE that was rebooted", () => {
  test("is connected to again at the next call", async (t) => {
    const remote = await startRemote(t);
    const state = speaksHttpSse(remote);
    const agent = freshAgent(worker);
    await agent.add(server(`${remote.origin}/sse`));
    for (const n of [1, 2]) {
      await remote.close();
      state.forget();
      await remote.listen(remote.port);
      remote.takeLog();
      assert.equal(text(await agent.call("m", "echo", { n })), `{"n":${n}}`);
      assert.equal(state.opened, n + 1);
      assert.equal(remote.count("initialize"), 1);
      assert.equal((await agent.server("m")).state, "ready");
    }
  });

  test("whose stream hangs while the endpoint says 404 is connected to again", async (t) => {
    const remote = await startRemote(t);
    const state = speaksHttpSse(remote);
    const agent = freshAgent(worker);
    await agent.add(server(`${remote.origin}/sse`));
    state.forget();
    remote.takeLog();
    assert.equal(text(await agent.call("m", "echo", { n: 1 })), '{"n":1}');
    assert.equal(remote.count("initialize"), 1);
    const done = remote.log.filter((entry) => entry.rpc === "tools/call" && entry.status === 202);
    assert.equal(done.length, 1);
  });

  test("that is down is an error, and works when it is back", async (t) => {
    const remote = await startRemote(t);
    const state = speaksHttpSse(remote);
    const agent = freshAgent(worker);
    await agent.add(server(`${remote.origin}/sse`));
    await remote.close();
    state.forget();
    assertProblem(await agent.tryCall("m", "echo", {}), [502, 504]);
    await remote.listen(remote.port);
    assert.equal(text(await agent.call("m", "echo", { n: 2 })), '{"n":2}');
  });
});

describe("SE-13", () => {
  function issues(remote, id) {
    remote.intercept = ({ rpc, message, http }, response) => {
      if (rpc === "server/discover" || http !== "POST") return answersStatus(405)(undefined, response);
      const result = rpc === "initialize" ? handshake("2025-11-25") : { tools: [], content: [] };
      const headers = { "mcp-session-id": rpc === "initialize" ? id : "other" };
      if (message.id === undefined) response.writeHead(202, headers).end();
      else sendJson(response, 200, { jsonrpc: "2.0", id: message.id, result }, headers);
      return true;
    };
  }

  test("an empty session id is no session", async (t) => {
    const remote = await startRemote(t);
    issues(remote, "");
    const agent = freshAgent(worker);
    await agent.add(server(remote.url));
    await agent.call("m", "echo", {});
    assert.ok(remote.log.every((entry) => entry.session === undefined));
  });

  test("a session id with a blank is an error and is not sent", async (t) => {
    const remote = await startRemote(t);
    issues(remote, "a b");
    const problem = assertProblem(await freshAgent(worker).tryAdd(server(remote.url)), 502, /session id/);
    assert.equal(problem.state, "failed");
    assert.ok(remote.log.every((entry) => entry.session === undefined));
  });

  test("ids on later answers are ignored", async (t) => {
    const remote = await startRemote(t);
    issues(remote, "right");
    const agent = freshAgent(worker);
    await agent.add(server(remote.url));
    await agent.call("m", "echo", {});
    await evict(agent);
    await agent.call("m", "echo", {});
    await agent.remove("m");
    await until("the end of the session", () => remote.log.some((entry) => entry.http === "DELETE"));
    assert.ok(remote.log.every((entry) => [undefined, "right"].includes(entry.session)));
    assert.equal(remote.count("initialize"), 1);
  });
});
