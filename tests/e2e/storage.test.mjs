// Rows that this version did not write, or that were damaged: the object starts, says so, and keeps them.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Agent, assertProblem } from "./support/api.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { seedServers, storedServers } from "./support/storage.mjs";
import { until } from "./support/until.mjs";
import { startToolAgent, temporaryFolder } from "./support/worker.mjs";

const KNOWN_SESSION = "11111111-2222-3333-4444-555555555555";

let remote;
before(async () => (remote = await startScriptedServer({ sessions: [KNOWN_SESSION] })));
after(() => remote?.close());

/** Starts the Worker on a folder where the object `seeded` already has these rows. */
async function startSeeded(t, rows) {
  const storage = await temporaryFolder();
  await seedServers(storage, "seeded", rows);
  const worker = await startToolAgent({ REQUEST_TIMEOUT_MS: "2000" }, { storage });
  t.after(() => worker.dispose());
  remote.takeLog();
  return { worker, agent: new Agent(worker, "seeded") };
}

describe("a damaged row", () => {
  const damaged = [
    { id: "half", server_url: "http://127.0.0.1:1/mcp", server_options: '{"transport":{"type":"auto"' },
    { id: "list", server_url: "http://127.0.0.1:1/mcp", server_options: "[1,2]" },
    { id: "kind", server_url: "http://127.0.0.1:1/mcp", server_options: '{"transport":{"type":17}}' },
    { id: "url", server_url: "not a url", server_options: '{"transport":{"type":"auto"}}' },
  ];

  test("is reported with its id and a reason, and the others work", async (t) => {
    const { agent } = await startSeeded(t, [...damaged, { id: "good", server_url: remote.url }]);
    await agent.call("good", "echo", {});
    const listing = await agent.get("servers");
    assert.deepEqual(
      listing.servers.map((server) => server.id),
      ["good"],
    );
    assert.deepEqual(listing.damaged.map((row) => row.id).sort(), ["half", "kind", "list", "url"]);
    for (const { id, reason } of listing.damaged) assert.ok(reason?.length > 3, `${id}: ${reason}`);
  });

  test("whose id is no text is reported, and passes for no server", async (t) => {
    const { worker, agent } = await startSeeded(t, [{ id: "good", server_url: remote.url }]);
    await agent.get("servers");
    await worker.sql(
      "ToolAgent",
      "seeded",
      "INSERT INTO cf_agents_mcp_servers (id, name, server_url, callback_url) VALUES (X'00ff', 'B', ?, '')",
      remote.url,
    );
    await worker.evict("ToolAgent", "seeded");
    const listing = await agent.get("servers");
    assert.deepEqual(
      listing.servers.map((server) => server.id),
      ["good"],
    );
    assert.deepEqual(listing.damaged, [{ id: "(unreadable)", reason: "id: not text" }]);
  });

  test("is kept byte for byte, whatever happens to the others", async (t) => {
    const { worker, agent } = await startSeeded(t, [...damaged, { id: "good", server_url: remote.url }]);
    const before = await storedServers(worker, "seeded");
    await agent.call("good", "echo", {});
    await agent.post("servers/good/reconnect");
    await agent.add({ id: "new", name: "New", url: remote.url });
    await agent.remove("good");
    await worker.restart();
    await agent.get("servers");
    const after = await storedServers(worker, "seeded");
    for (const { id } of damaged) assert.deepEqual(after[id], before[id]);
    assert.ok(after.new && !after.good);
  });

  test("is not overwritten by a registration, and can be removed", async (t) => {
    const { worker, agent } = await startSeeded(t, damaged);
    assertProblem(await agent.tryAdd({ id: "half", name: "Half", url: remote.url }), 409);
    assert.equal((await storedServers(worker, "seeded")).half.server_options, damaged[0].server_options);
    await agent.remove("half");
    assert.deepEqual((await agent.get("servers")).damaged.map((row) => row.id).sort(), ["kind", "list", "url"]);
    await agent.add({ id: "half", name: "Half", url: remote.url });
  });

  test("with an address that is not allowed is not connected to", async (t) => {
    const rows = ["http://10.0.0.1/mcp", "http://169.254.169.254/mcp", "file:///etc/passwd"];
    const { agent } = await startSeeded(
      t,
      rows.map((server_url, n) => ({ id: `bad-${n}`, server_url })),
    );
    // Lists wait for servers that are coming back; these do not come.
    await agent.get("tools");
    const { servers, damaged } = await agent.get("servers");
    const reasons = [
      ...servers.map(({ id, error }) => [id, error]),
      ...damaged.map(({ id, reason }) => [id, reason]),
    ];
    assert.deepEqual(reasons.map(([id]) => id).sort(), ["bad-0", "bad-1", "bad-2"]);
    for (const [id, reason] of reasons) assert.ok(reason, id);
  });
});

describe("a row with options that this version does not know", () => {
  const options = {
    transport: {
      type: "streamable-http",
      headers: { "x-api-key": "k-123" },
      futureTransport: { a: [1, 2, { b: null }] },
    },
    retry: { maxAttempts: 2, futureRetry: true },
    client: { capabilities: { elicitation: { form: {} } }, listMaxPages: 7, futureClient: "x" },
    futureOption: [1, "two", { three: 3 }],
  };
  const row = { id: "future", server_options: JSON.stringify(options) };

  /** The stored options without what a session adds. */
  async function optionsNow(worker) {
    const { server_options } = (await storedServers(worker, "seeded")).future;
    const { discoverResult, initializeResult, capabilities, verdict, ...rest } = JSON.parse(server_options);
    const { sessionId, protocolVersion, ...transport } = rest.transport;
    return { ...rest, transport };
  }

  test("works, and keeps them through every change that we make", async (t) => {
    const { worker, agent } = await startSeeded(t, [{ ...row, server_url: remote.url }]);
    await agent.call("future", "echo", {});
    assert.ok(remote.log.every((entry) => entry.headers["x-api-key"] === "k-123"));
    assert.deepEqual(await optionsNow(worker), options);
    await agent.post("servers/future/reconnect");
    assert.deepEqual(await optionsNow(worker), options);
    await agent.post("servers/future/close");
    assert.deepEqual(await optionsNow(worker), options);
    await worker.restart();
    await agent.call("future", "echo", {});
    assert.deepEqual(await optionsNow(worker), options);
  });
});

describe("rows as the TypeScript package writes them", () => {
  const transport = { type: "auto" };
  const session = { ...transport, protocolVersion: "2025-11-25" };
  const stored = (transport) => JSON.stringify({ transport });
  const callback_url = "http://localhost:8787/agents/tool-agent/seeded/callback";
  const rows = () => [
    { id: "plain", name: "Plain", server_url: remote.url, server_options: null },
    {
      id: "fresh",
      name: "Fresh server",
      server_url: remote.url,
      callback_url,
      server_options: JSON.stringify({ client: {}, transport, retry: { maxAttempts: 3, baseDelayMs: 500 } }),
    },
    {
      id: "session",
      server_url: remote.url,
      server_options: stored({ ...session, sessionId: KNOWN_SESSION, reconnectionOptions: { maxRetries: 2 } }),
    },
    {
      id: "stale",
      server_url: remote.url,
      server_options: stored({ ...session, sessionId: "gone" }),
    },
    {
      id: "no-version",
      server_url: remote.url,
      server_options: stored({ ...transport, sessionId: KNOWN_SESSION }),
    },
  ];

  test("connect, whatever session they hold", async (t) => {
    const { agent } = await startSeeded(t, rows());
    for (const { id } of rows()) await agent.call(id, "echo", { id });
    const { servers, damaged } = await agent.get("servers");
    assert.deepEqual(damaged, []);
    assert.deepEqual(
      servers.map((server) => server.id).sort(),
      rows()
        .map((row) => row.id)
        .sort(),
    );
    for (const { id, state } of servers) assert.equal(state, "ready", id);
    assert.equal(servers.find((server) => server.id === "fresh").name, "Fresh server");
  });

  test("keep what belongs to OAuth", async (t) => {
    const { worker, agent } = await startSeeded(t, rows());
    await agent.call("fresh", "echo", {});
    await agent.post("servers/fresh/reconnect");
    const { fresh } = await storedServers(worker, "seeded");
    assert.equal(fresh.callback_url, callback_url);
    assert.equal(fresh.client_id, null);
    assert.equal(fresh.auth_url, null);
  });

  test("with a pending authorization wait for the user and send nothing", async (t) => {
    const auth_url = "https://auth.example.com/authorize?client_id=abc";
    const pending = { id: "login", server_url: remote.url, callback_url, client_id: "abc", auth_url };
    const { worker, agent } = await startSeeded(t, [pending, { id: "plain", server_url: remote.url }]);
    await agent.call("plain", "echo", {});
    assert.equal((await agent.server("login")).state, "authenticating");
    assert.equal(remote.count("initialize"), 1);
    const { login } = await storedServers(worker, "seeded");
    assert.deepEqual([login.auth_url, login.client_id], [auth_url, "abc"]);
  });

  test("of servers behind a Durable Object binding are kept and disturb nobody", async (t) => {
    const server_options = '{"bindingName":"Counter","props":{"n":1}}';
    const row = { id: "rpc", name: "counter", server_url: "rpc:counter", server_options };
    const { worker, agent } = await startSeeded(t, [row, { id: "plain", server_url: remote.url }]);
    await agent.call("plain", "echo", {});
    const { state, url, transport, error } = await until("it to have failed", async () => {
      const entry = await agent.server("rpc");
      return entry.state === "failed" && entry;
    });
    assert.deepEqual([state, url, transport], ["failed", row.server_url, "rpc"]);
    assert.match(JSON.stringify(error), /binding .*Counter.* not found in env/);
    const { rpc } = await storedServers(worker, "seeded");
    const { bindingName, props } = JSON.parse(rpc.server_options);
    assert.deepEqual([rpc.server_url, bindingName, props], [row.server_url, "Counter", { n: 1 }]);
  });
});

test("a column that a later version added keeps its content", async (t) => {
  const { worker, agent } = await startSeeded(t, [{ id: "plain", server_url: remote.url }]);
  await worker.sql("ToolAgent", "seeded", "ALTER TABLE cf_agents_mcp_servers ADD COLUMN future TEXT");
  await worker.sql("ToolAgent", "seeded", "UPDATE cf_agents_mcp_servers SET future = 'kept'");
  await worker.restart();
  await agent.call("plain", "echo", {});
  await agent.post("servers/plain/reconnect");
  assert.equal((await storedServers(worker, "seeded")).plain.future, "kept");
});
