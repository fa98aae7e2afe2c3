// Cases from public bug reports about what an object must not lose, and must not do twice, when it goes and comes back.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { assertProblem, freshAgent } from "./support/api.mjs";
import { ENDS, freePort, query, signingAgent } from "./support/auth-agent.mjs";
import { startProtected } from "./support/auth-server.mjs";
import { answersStatus, neverAnswers, only } from "./support/faults.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { storedServers } from "./support/storage.mjs";
import { timed, until } from "./support/until.mjs";
import { startToolAgent } from "./support/worker.mjs";

/** What must never be in the log. */
const UNHANDLED = /unhandled|uncaught|panicked|unreachable|different request/i;
/** Down, and perhaps to be tried again some other time. */
const isDown = ({ state }) => ["failed", "reconnecting"].includes(state);

/** Waits until so many attempts have failed, in between which it is down as well; gives the entry. */
const untilGivenUp = (agent, attempts) =>
  until("the last attempt", async () => {
    const entry = await agent.server("notes");
    return isDown(entry) && entry.lastError?.attempts >= attempts && entry;
  });

let worker;
before(async () => {
  const vars = { REQUEST_TIMEOUT_MS: "10000", CONNECT_TIMEOUT_MS: "4000", DISCOVERY_TIMEOUT_MS: "4000" };
  // It keeps its address, which callbacks go to, over restarts.
  worker = await startToolAgent(vars, { port: await freePort() });
});
after(() => worker?.dispose());

async function setUp(t) {
  const remote = await startScriptedServer();
  t.after(() => remote.close());
  return { remote, agent: freshAgent(worker), server: { id: "notes", name: "Notes", url: remote.url } };
}

/** An answer that is held back: `fault` for the server, `held` once it is asked for, `release` to let it go. */
function held(remote, rpc) {
  let release;
  let arrive;
  const gate = new Promise((resolve) => (release = resolve));
  const arrived = new Promise((resolve) => (arrive = resolve));
  let first = true;
  const fault = async (entry, response) => {
    if (entry.rpc !== rpc || !first) return false;
    first = false;
    arrive();
    const end = await gate;
    if (end) return end(entry, response);
    remote.answer(entry, response);
    return true;
  };
  return { fault, arrived, release };
}

const resets = (_, response) => {
  response.destroy();
  return true;
};

for (const [late, end] of Object.entries({ succeeds: undefined, fails: answersStatus(503), "is cut off": resets })) {
  for (const rpc of ["initialize", "tools/list"]) {
    test(`HB-11 an attempt for a server that was removed ${late} late, at ${rpc}, and changes nothing`, async (t) => {
      const { remote, agent, server } = await setUp(t);
      const slow = held(remote, rpc);
      remote.intercept = slow.fault;
      const first = agent.tryAdd(server);
      await slow.arrived;
      await agent.remove("notes");
      assertProblem(await first, 409);
      const entry = await agent.add(server);
      assert.equal(entry.state, "ready");

      slow.release(end);
      await until("the late answer to be given", () => remote.log.every(({ status, gone }) => status || gone));
      for (let call = 0; call < 5; call++) await agent.call("notes", "echo", { call });
      const { servers } = await agent.get("servers");
      assert.deepEqual(servers.map(({ id, state, error }) => [id, state, error]), [["notes", "ready", null]]);
      assert.deepEqual(Object.keys(await storedServers(worker, agent.name)), ["notes"]);
      assert.doesNotMatch(worker.output, UNHANDLED);
    });
  }
}

test("HB-11 one that was removed while it came back after a wake stays removed", async (t) => {
  const { remote, agent, server } = await setUp(t);
  await agent.add(server);
  await worker.evict("ToolAgent", agent.name);
  const slow = held(remote, "tools/list");
  remote.intercept = slow.fault;
  await agent.get("servers");
  await slow.arrived;
  await agent.remove("notes");
  slow.release();
  await until("the late answer to be given", () => remote.log.every(({ status, gone }) => status || gone));
  assert.deepEqual(await agent.get("servers"), { servers: [], damaged: [] });
  assert.deepEqual(await storedServers(worker, agent.name), {});
  assert.doesNotMatch(worker.output, UNHANDLED);
});

// An eviction waits for what is under way, so that here workerd is killed.
for (const rpc of ["initialize", "tools/list"]) {
  test(`HB-12 what was under way at ${rpc} when workerd was killed is tried again`, async (t) => {
    const { remote, agent, server } = await setUp(t);
    remote.intercept = only(rpc, neverAnswers);
    const cut = agent.tryAdd({ ...server, retry: { maxAttempts: 1 } }).catch(() => "cut");
    await until("the request", () => remote.count(rpc) === 1);
    await worker.restart();
    assert.equal(await cut, "cut");

    // As bad as before: it is tried again, and given up in the end.
    await agent.get("servers");
    await until("another attempt", () => remote.count(rpc) === 2);
    const isSettled = ({ state }) => !["connecting", "discovering"].includes(state);
    await until("its end", async () => isSettled(await agent.server("notes")), 12_000);

    remote.intercept = undefined;
    await worker.evict("ToolAgent", agent.name);
    await agent.get("servers");
    await until("the server to be ready", async () => (await agent.server("notes")).state === "ready");
    await agent.call("notes", "echo", {});
  });
}

for (const [end, leave] of Object.entries(ENDS)) {
  test(`HB-14 all that was said at registration counts after ${end}, three times, and another sign-in`, async (t) => {
    const { as, mcp, close } = await startProtected();
    t.after(close);
    const agent = signingAgent(worker);
    const [clientId, clientSecret] = ["configured", "secret-of-the-configured-client"];
    const tokenEndpointAuthMethod = "client_secret_post";
    const oauth = { clientId, clientSecret, tokenEndpointAuthMethod };
    as.addClient({
      client_id: clientId,
      client_secret: clientSecret,
      token_endpoint_auth_method: tokenEndpointAuthMethod,
    });
    const retry = { maxAttempts: 2, baseDelayMs: 60, maxDelayMs: 200 };
    const transport = { type: "streamable-http", headers: { "x-tenant": "harbour" } };
    const server = { id: "notes", name: "Notes", url: mcp.url, transport, retry, oauth };
    await agent.signIn(server, as, { user: "ada" });
    const before = (await storedServers(worker, agent.name)).notes;
    const check = async (when) => {
      assert.equal(await agent.say("notes", "whoami"), "ada", when);
      const foreign = mcp.log.filter(({ path, headers }) => path === "/mcp" && headers["x-tenant"] !== "harbour");
      assert.deepEqual(foreign, [], when);
      assert.equal(as.count("register"), 0, when);
      assert.ok(as.requests("token").every(({ form }) => form.get("client_id") === clientId), when);
      const row = (await storedServers(worker, agent.name)).notes;
      for (const column of ["name", "server_url", "callback_url", "client_id"]) assert.equal(row[column], before[column], when);
      const [now, then] = [row, before].map(({ server_options }) => JSON.parse(server_options));
      assert.deepEqual([now.retry, now.oauth], [then.retry, then.oauth], when);
      assert.deepEqual(now.transport.headers ?? now.transport.requestInit, then.transport.headers ?? then.transport.requestInit, when);
      assert.equal(now.transport.type, "streamable-http", when);
    };
    await check("at first");
    for (let wake = 1; wake <= 3; wake++) {
      await leave(agent);
      await check(`wake ${wake}`);
    }
    as.revokeEverything();
    const authUrl = await agent.callInVain("notes", "whoami");
    assert.equal(query(authUrl).client_id, clientId);
    await leave(agent);
    await agent.finish("notes", authUrl, as, { user: "ada" });
    await check("signed in again");

    // Down for a wake: so many attempts, none of them over HTTP+SSE.
    mcp.log.length = 0;
    mcp.intercept = answersStatus(503);
    await leave(agent);
    await agent.get("servers");
    await untilGivenUp(agent, 2);
    assert.deepEqual(mcp.log.map(({ http }) => http), ["POST", "POST"]);
    mcp.intercept = undefined;
    await leave(agent);
    await check("up again");
  });

  test(`HB-15 a server is tried as often as its policy says, with pauses, after ${end}`, async (t) => {
    const { remote, agent, server } = await setUp(t);
    await agent.add({ ...server, retry: { maxAttempts: 3, baseDelayMs: 200, maxDelayMs: 800 } });
    // The first request of an attempt; the lists that are asked for beside it go the same way.
    const attempts = [];
    const fails = (times) => (entry, response) => {
      if (entry.http !== "POST") return false;
      if (["server/discover", "initialize"].includes(entry.rpc)) attempts.push(performance.now());
      return attempts.length <= times && answersStatus(503)(entry, response);
    };
    // Nothing is left to be taken up.
    const forget = async () => {
      await agent.post("servers/notes/close");
      attempts.length = 0;
    };
    const areApart = () => attempts.slice(1).every((at, index) => at - attempts[index] >= 45);

    await forget();
    remote.intercept = fails(2);
    await leave(agent);
    const { value: tools, ms } = await timed(() => agent.get("tools?wait=10000"));
    assert.equal(tools.tools.length, 1);
    assert.ok(ms < 5_000, `${ms} ms`);
    await until("the server to be ready", async () => (await agent.server("notes")).state === "ready");
    assert.ok(attempts.length >= 3, `${attempts.length} attempts`);
    assert.ok(areApart(), attempts.join(", "));

    await forget();
    remote.intercept = fails(Infinity);
    await leave(agent);
    await agent.get("servers");
    const entry = await untilGivenUp(agent, 3);
    assert.ok(entry.error, JSON.stringify(entry));
    assert.equal(attempts.length, 3, "no fewer and no more");
    assert.ok(areApart(), attempts.join(", "));
  });
}

test("HB-20 a call that workerd's end cuts off is answered, and not made again", async (t) => {
  const { remote, agent, server } = await setUp(t);
  await agent.add(server);
  const streams = [];
  remote.intercept = only("tools/call", ({ message }, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const progress = { jsonrpc: "2.0", method: "notifications/progress", params: { progressToken: 0, progress: 1 } };
    response.write(`id: e1\ndata: ${JSON.stringify(progress)}\n\n`);
    streams.push({ message, response });
    return true;
  });
  const { tools } = await agent.get("tools");
  assert.equal(tools.length, 1);
  const call = agent.tryCall("notes", "echo", { n: 1 }).then(
    (answer) => answer,
    (error) => ({ status: 0, error }),
  );
  await until("the call", () => streams.length === 1);
  await worker.restart();
  const { value: answer, ms } = await timed(() => call);
  assert.ok(ms < 5_000, `the caller waits for ${ms} ms`);
  assert.ok(answer.status === 0 || answer.status >= 400, JSON.stringify(answer.body));

  remote.intercept = undefined;
  const isReady = async () => (await agent.server("notes")).state === "ready";
  await until("the server to be ready", isReady);
  await until("the stream to be gone", () => streams[0].response.destroyed || streams[0].response.closed);
  assert.equal(remote.count("tools/call"), 1);
  const resumed = remote.log.filter(({ headers }) => headers["last-event-id"]);
  assert.deepEqual(resumed, []);
  assert.equal((await agent.call("notes", "echo", { n: 2 })).content[0].text, '{"n":2}');
  assert.equal(remote.count("tools/call"), 2);
  assert.doesNotMatch(worker.output, UNHANDLED);
});
