// What an object does by itself: it answers from storage, comes back by policy, and is woken for servers that were down.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { freshAgent } from "./support/api.mjs";
import { answersStatus } from "./support/faults.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { until } from "./support/until.mjs";
import { startToolAgent } from "./support/worker.mjs";

let worker;
before(async () => (worker = await startToolAgent({ RECONNECT_LATER_MS: "1", LOG_EVENTS: "1" })));
after(() => worker?.dispose());

const evict = (agent, of = worker) => of.evict("ToolAgent", agent.name);
const rows = async (agent, table, of = worker) => {
  const there = await of.sql("ToolAgent", agent.name, "SELECT 1 FROM sqlite_master WHERE name = ?", table);
  return there.length === 0 ? [] : of.sql("ToolAgent", agent.name, `SELECT * FROM ${table}`);
};

async function remoteFor(t, options) {
  const remote = await startScriptedServer(options);
  t.after(() => remote.close());
  return remote;
}

test("an object with lazy servers answers after a wake without asking anybody or writing anything", async (t) => {
  const lazy = await startToolAgent({ RECONNECT: "lazy" });
  t.after(() => lazy.dispose());
  const remote = await remoteFor(t);
  const agent = freshAgent(lazy);
  const ids = Array.from({ length: 20 }, (_, number) => `s${number}`);
  await Promise.all(ids.map((id) => agent.add({ id, name: id, url: `${remote.origin}/${id}` })));
  const before = await rows(agent, "cf_agents_mcp_servers", lazy);
  remote.takeLog();

  await evict(agent, lazy);
  const { tools, stale } = await agent.get("tools");
  assert.equal(tools.length, 20);
  assert.deepEqual(new Set(stale), new Set(ids));
  const { servers } = await agent.get("servers");
  assert.ok(servers.every(({ state, freshness, counts }) => state === "ready" && freshness === "stored" && counts.tools));
  assert.deepEqual(remote.takeLog(), []);
  assert.deepEqual(await rows(agent, "cf_agents_mcp_servers", lazy), before);
  assert.equal((await rows(agent, "cf_agents_jobs", lazy)).length, 0);

  await agent.call("s3", "echo", {});
  await until("the list to be fresh", async () => (await agent.server("s3")).freshness === "fresh");
  assert.ok(remote.log.every(({ path }) => path === "/s3"), "nobody else was asked");
});

test("a policy of a server's own wins", async (t) => {
  const remote = await remoteFor(t);
  const agent = freshAgent(worker);
  await agent.add({ id: "never", name: "never", url: remote.url, reconnect: "never" });
  remote.takeLog();
  await evict(agent);
  assert.equal((await agent.get("tools")).tools.length, 1);
  assert.equal((await agent.server("never")).state, "not-connected");
  assert.equal((await agent.tryCall("never", "echo", {})).status, 409);
  assert.deepEqual(remote.takeLog(), []);
  assert.equal((await agent.post("servers/never/reconnect")).state, "ready");
  await agent.call("never", "echo", {});
});

test("what changed while the object slept is there soon after it wakes", async (t) => {
  const remote = await remoteFor(t);
  const agent = freshAgent(worker);
  await agent.add({ id: "notes", name: "Notes", url: remote.url });
  remote.intercept = ({ rpc, message }, response) => {
    if (rpc !== "tools/list") return false;
    const tools = ["echo", "new"].map((name) => ({ name, inputSchema: { type: "object" } }));
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ jsonrpc: "2.0", id: message.id, result: { tools } }));
    return true;
  };
  await evict(agent);
  assert.deepEqual((await agent.get("tools")).tools.map(({ name }) => name), ["echo"]);
  await until("the change", async () => (await agent.get("tools")).tools.length === 2);
});

test("a server that was down is connected by an alarm, though nobody comes, and nothing is left of it", async (t) => {
  const remote = await remoteFor(t);
  const agent = freshAgent(worker);
  const retry = { maxAttempts: 1 };
  await agent.add({ id: "down", name: "Down", url: remote.url, retry });
  remote.intercept = answersStatus(503);
  await evict(agent);
  assert.equal((await agent.get("tools")).tools.length, 1, "what it offered is known");
  await until("the attempt to be put off", async () => (await agent.server("down")).state === "reconnecting");
  const [job] = await rows(agent, "cf_agents_jobs");
  assert.equal(job.capability, "mcp");

  await evict(agent);
  remote.takeLog();
  remote.intercept = undefined;
  await until("the alarm", () => remote.count("tools/list") > 0, 30_000);
  await until("the job to be done with", async () => (await rows(agent, "cf_agents_jobs")).length === 0);
  assert.equal((await agent.server("down")).state, "ready");
});

test("a server that says no for good is not asked again", async (t) => {
  const remote = await remoteFor(t);
  const agent = freshAgent(worker);
  await agent.add({ id: "no", name: "No", url: remote.url });
  remote.intercept = answersStatus(403);
  await evict(agent);
  await agent.get("tools?wait=10000");
  assert.equal((await agent.server("no")).state, "failed");
  assert.equal((await rows(agent, "cf_agents_jobs")).length, 0);
});

test("a server has another id after it was renamed, and after the next wake", async (t) => {
  const remote = await remoteFor(t);
  const agent = freshAgent(worker);
  const transport = { headers: { "x-key": "s3cret" } };
  await agent.add({ id: "old", name: "Old", url: remote.url, transport });
  remote.takeLog();
  assert.equal((await agent.post("servers/old/rename", { id: "New Name!" })).id, "new-name");
  await agent.call("new-name", "echo", {});
  assert.equal((await agent.tryCall("old", "echo", {})).status, 404);
  await evict(agent);
  await agent.call("new-name", "echo", {});
  assert.equal(remote.count("initialize"), 0, "the session goes with it");
  assert.ok(remote.log.every(({ headers }) => headers["x-key"] === "s3cret"));
  assert.equal((await agent.request("POST", "servers/nobody/rename", { id: "x" })).status, 404);
});

test("what happens to servers is in the log, as JSON and without secrets", async (t) => {
  const remote = await remoteFor(t);
  const agent = freshAgent(worker);
  const transport = { headers: { authorization: "Bearer s3cret-token" } };
  await agent.add({ id: "told", name: "Told", url: `${remote.url}?key=s3cret-key`, transport });
  const events = () =>
    worker.output
      .split("\n")
      .filter((line) => line.includes(agent.name))
      .map((line) => JSON.parse(line.slice(line.indexOf("{"))));
  await until("the events", () => events().length >= 3);
  const [connecting, connected, listed] = events();
  assert.equal(connecting.type, "mcp:client:preconnect");
  assert.deepEqual([connected.type, connected.payload.state], ["mcp:client:connect", "connected"]);
  assert.deepEqual([listed.type, listed.payload.counts.tools], ["mcp:client:discover", 1]);
  assert.equal(listed.agent, "ToolAgent");
  assert.ok(!worker.output.includes("s3cret"));
});
