// What an object still knows, and what it asks its servers, after it was gone.
import assert from "node:assert/strict";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { Agent, freshAgent } from "./support/api.mjs";
import { neverAnswers, only } from "./support/faults.mjs";
import { inSupport } from "./support/paths.mjs";
import { startNode } from "./support/processes.mjs";
import { startEverythingServer, startModernServer } from "./support/real-servers.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { storedServers, withStorage } from "./support/storage.mjs";
import { until } from "./support/until.mjs";
import { startToolAgent, temporaryFolder } from "./support/worker.mjs";

const LISTS = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"];

let worker;
before(async () => (worker = await startToolAgent({ REQUEST_TIMEOUT_MS: "5000" })));
after(() => worker?.dispose());

/** An object of its own for each test, and a server that is closed with it. */
async function setUp(t) {
  const remote = await startScriptedServer();
  t.after(() => remote.close());
  return { remote, agent: freshAgent(worker) };
}

/** What the server may be asked when an object comes back: one handshake at most, each list once. */
function assertFrugalWake(requests) {
  for (const method of ["server/discover", "initialize", "notifications/initialized", ...LISTS]) {
    const times = requests.filter((request) => request === method).length;
    assert.ok(times <= 1, `${method} came ${times} times: ${requests.join(", ")}`);
  }
}

/** The ways an object can go, each leaving nothing but its storage. */
const ENDS = {
  "workerd was killed": () => worker.restart(),
  "the object alone was evicted": (agent) => worker.evict("ToolAgent", agent.name),
};

for (const [end, leave] of Object.entries(ENDS)) {
  describe(`after ${end}`, () => {
    test("servers are back and a call works at once, with one handshake at most", async (t) => {
      const { agent, remote } = await setUp(t);
      await agent.add({ id: "notes", name: "Notes", url: remote.url });
      remote.takeLog();

      await leave(agent);

      assert.deepEqual((await agent.call("notes", "echo", { again: true })).content[0].text, '{"again":true}');
      const server = await agent.server("notes");
      assert.equal(server.state, "ready");
      assert.equal(server.name, "Notes");
      assert.deepEqual(server.counts, { tools: 1, prompts: 1, resources: 1, resourceTemplates: 1 });
      assert.equal(remote.count("tools/call"), 1);
      assertFrugalWake(remote.requests);
    });

    test("many first requests at a time share that one handshake", async (t) => {
      const { agent, remote } = await setUp(t);
      await agent.add({ id: "notes", name: "Notes", url: remote.url });
      remote.takeLog();

      await leave(agent);

      const answers = await Promise.all([
        ...[1, 2, 3, 4].map((n) => agent.call("notes", "echo", { n })),
        ...["tools", "prompts", "resources", "resource-templates"].map((list) => agent.get(list)),
      ]);
      assert.deepEqual(
        answers.slice(0, 4).map((answer) => answer.content[0].text),
        [1, 2, 3, 4].map((n) => `{"n":${n}}`),
      );
      assert.equal(answers[4].tools.length, 1);
      assertFrugalWake(remote.requests);
    });

    test("a session that the server no longer knows is replaced", async (t) => {
      const { agent, remote } = await setUp(t);
      await agent.add({ id: "notes", name: "Notes", url: remote.url });
      remote.forgetSessions();
      remote.takeLog();

      await leave(agent);

      await agent.call("notes", "echo", {});
      assert.equal(remote.count("initialize"), 1);
      const done = remote.log.filter((entry) => entry.rpc === "tools/call" && entry.status === 200);
      assert.equal(done.length, 1, "the call itself is carried out once");
    });

    test("headers given at registration are sent again", async (t) => {
      const { agent, remote } = await setUp(t);
      const transport = { headers: { "x-api-key": "k-123" } };
      await agent.add({ id: "notes", name: "Notes", url: remote.url, transport });
      assert.ok(remote.takeLog().every((entry) => entry.headers["x-api-key"] === "k-123"));

      await leave(agent);

      await agent.call("notes", "echo", {});
      assert.ok(remote.log.length > 0 && remote.log.every((entry) => entry.headers["x-api-key"] === "k-123"));
    });

    test("a server that is down leaves the others alone, and comes back with reconnect", async (t) => {
      const { agent, remote } = await setUp(t);
      const other = await startScriptedServer();
      t.after(() => other.close());
      const retry = { maxAttempts: 1 };
      await agent.add({ id: "down", name: "Down", url: remote.url, retry });
      await agent.add({ id: "up", name: "Up", url: other.url });
      await remote.close();

      await leave(agent);

      await agent.call("up", "echo", {});
      await until("the failure to be known", async () => (await agent.server("down")).state === "reconnecting");
      assert.ok((await agent.server("down")).error);
      assert.ok([409, 502].includes((await agent.tryCall("down", "echo", {})).status));

      await remote.listen(remote.port);
      const back = await agent.post("servers/down/reconnect");
      assert.equal(back.state, "ready");
      await agent.call("down", "echo", {});
    });

    test("removed servers stay removed, and are not asked anything", async (t) => {
      const { agent, remote } = await setUp(t);
      await agent.add({ id: "notes", name: "Notes", url: remote.url });
      await agent.remove("notes");
      remote.takeLog();

      await leave(agent);

      assert.deepEqual((await agent.get("servers")).servers, []);
      assert.deepEqual(remote.requests, []);
    });
  });
}

test("real servers of both eras are back after workerd was killed", async (t) => {
  const old = await startEverythingServer();
  t.after(old.stop);
  const modern = await startModernServer();
  t.after(modern.stop);
  const agent = freshAgent(worker);
  await agent.add({ id: "old", name: "Old", url: old.url });
  await agent.add({ id: "new", name: "New", url: modern.url });

  await worker.restart();

  assert.match((await agent.call("old", "echo", { message: "hi" })).content[0].text, /hi/);
  assert.deepEqual((await agent.call("new", "add", { a: 1, b: 2 })).structuredContent, { sum: 3 });
  const { servers } = await agent.get("servers");
  const revisions = Object.fromEntries(servers.map((server) => [server.id, server.protocolVersion]));
  assert.deepEqual(revisions, { old: "2025-11-25", new: "2026-07-28" });
});

test("a server whose registration was cut short by a kill is stored, and connects afterwards", async (t) => {
  const { agent, remote } = await setUp(t);
  remote.intercept = only("initialize", neverAnswers);
  const cut = agent.tryAdd({ id: "notes", name: "Notes", url: remote.url }).catch(() => "cut");
  await until("the handshake", () => remote.count("initialize") > 0);

  await worker.restart();
  assert.equal(await cut, "cut");

  remote.intercept = undefined;
  await agent.call("notes", "echo", {});
});

test("a kill of the whole process group at once loses nothing that was answered", async (t) => {
  const { remote } = await setUp(t);
  const folder = await temporaryFolder();
  const storage = path.join(folder, "storage");
  // What a killed process cannot put away lies in the folder as well.
  const host = await startNode([inSupport("worker-process.mjs"), storage], {
    ready: /ready at (\S+)/,
    env: { TMPDIR: folder },
  });
  t.after(host.kill);
  const doomed = { fetch: (pathname, init) => fetch(host.match[1] + pathname, init) };
  await new Agent(doomed, "survivor").add({ id: "notes", name: "Notes", url: remote.url });
  await host.kill();

  const next = await startToolAgent({}, { storage });
  t.after(() => next.dispose());
  await new Agent(next, "survivor").call("notes", "echo", {});
});

test("the table and the schema version are those of the TypeScript package", async (t) => {
  const { agent, remote } = await setUp(t);
  await agent.add({ id: "notes", name: "Notes", url: remote.url, retry: { maxAttempts: 2 } });
  const row = (await storedServers(worker, agent.name)).notes;
  assert.deepEqual(Object.keys(row), [
    "id",
    "name",
    "server_url",
    "callback_url",
    "client_id",
    "auth_url",
    "server_options",
  ]);
  assert.equal(row.server_url, remote.url);
  assert.equal(row.callback_url, `${worker.origin}${agent.base}callback`);
  assert.equal(row.auth_url, null);
  assert.equal(JSON.parse(row.server_options).retry.maxAttempts, 2);

  const storage = await temporaryFolder();
  const own = await startToolAgent({}, { storage });
  try {
    await new Agent(own, "a").add({ id: "notes", name: "Notes", url: remote.url });
  } finally {
    await own.dispose();
  }
  const key = "cf_agents:mcp_schema_version";
  const { values } = await withStorage(storage, { name: "a", get: [key] });
  assert.equal(values[key], 1);
});
