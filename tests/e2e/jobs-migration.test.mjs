// Jobs over a migration: what the npm package `agents` has planned is done here, and the other way round.
import assert from "node:assert/strict";
import { test } from "node:test";
import { bundle } from "./support/auth-bundle.mjs";
import { withStorage } from "./support/storage.mjs";
import { until } from "./support/until.mjs";
import { startWorker, temporaryFolder } from "./support/worker.mjs";

const HOUR = 3600;
const objects = { Planner: "Planner" };

const npm = `
import { Agent, routeAgentRequest } from "agents";
export class Planner extends Agent {
  async hello(payload) {
    const done = this.ctx.storage.kv.get("done-by-npm") ?? [];
    this.ctx.storage.kv.put("done-by-npm", [...done, payload]);
  }
  async onRequest(request) {
    const what = new URL(request.url).pathname.split("/").pop();
    if (what === "plan") {
      await this.schedule(${HOUR}, "hello", { a: 1 });
      await this.schedule("0 12 * * *", "hello", "noon");
      await this.scheduleEvery(${HOUR}, "hello", { e: 1 });
    }
    const list = await this.listSchedules?.() ?? this.getSchedules();
    return Response.json({ list, alarm: await this.ctx.storage.getAlarm(), done: this.ctx.storage.kv.get("done-by-npm") ?? [] });
  }
}
export default { async fetch(r, env) { return (await routeAgentRequest(r, env)) ?? new Response("not found", { status: 404 }); } };`;

const startNpm = async (storage) => startWorker({ script: await bundle(npm), flags: ["nodejs_compat"], objects, storage });
const startOurs = (storage) => startWorker({ build: "build/test-worker", objects, storage });
const rows = "SELECT * FROM cf_agents_jobs ORDER BY payload";

/** One answer, while a Worker runs on this storage. */
async function during(start, storage, work) {
  const worker = await start(storage);
  const ask = async (action, body) => {
    const init = body && { method: "POST", body: JSON.stringify(body) };
    const answer = await worker.fetch(`/agents/planner/x/${action}`, init);
    const text = await answer.text();
    assert.equal(answer.status, 200, `${action}: ${answer.status} ${text}\n${worker.output}`);
    return JSON.parse(text);
  };
  try {
    return await work(ask, worker);
  } finally {
    await worker.dispose();
  }
}

test("what the npm package has planned is done by ours, and ours by the npm package", async () => {
  const storage = await temporaryFolder();
  await during(startNpm, storage, (ask) => ask("plan"));
  const { rows: planned } = await withStorage(storage, {
    className: "Planner",
    name: "x",
    statements: [
      ["UPDATE cf_agents_jobs SET time = 1 WHERE payload LIKE '%delayed%' OR payload LIKE '%interval%'"],
      ["INSERT INTO cf_agents_jobs (id, capability, fn, time) VALUES ('theirs', 'tasks', 'run', 1)"],
      [rows],
    ],
  });
  assert.equal(planned[2].length, 4);

  const left = await during(startOurs, storage, async (ask, worker) => {
    const list = await ask("scheduled");
    assert.deepEqual(new Set(list.map(({ name }) => name)), new Set(["hello"]));
    await until("two jobs to be done", async () => (await ask("done")).length === 2);
    assert.deepEqual((await ask("done")).sort(), ['hello {"a":1}', 'hello {"e":1}']);
    await ask("schedule", { id: "ours", after: 5_000, name: "hello", payload: "from ours" });
    await ask("schedule", { id: "ours-cron", cron: "* * * * * *", name: "hello", payload: "every second" });
    return worker.sql("Planner", "x", rows);
  });
  const theirs = left.find(({ id }) => id === "theirs");
  assert.equal(theirs.time, 1, "a job of a capability that is not here stays as it is");
  const noon = left.find(({ payload }) => payload?.includes("noon"));
  assert.deepEqual(noon, planned[2].find(({ payload }) => payload?.includes("noon")), "nor is one that is not due");

  await during(startNpm, storage, (ask) =>
    until("the npm package to have done ours", async () => {
      const { done } = await ask("list");
      return done.includes("from ours") && done.includes("every second");
    }),
  );
});

test("a destruction that was left half-way is finished by the next event", async () => {
  const storage = await temporaryFolder();
  const statements = [["CREATE TABLE mine (x)"], ["INSERT INTO mine VALUES (1)"]];
  const put = { cf_agents_destroy_pending: true, other: 1 };
  await withStorage(storage, { className: "Planner", name: "x", statements, put });
  await during(startOurs, storage, async (ask, worker) => {
    assert.deepEqual(await ask("done"), []);
    assert.deepEqual(await worker.sql("Planner", "x", "SELECT name FROM sqlite_master WHERE name = 'mine'"), []);
  });
  const { values } = await withStorage(storage, { className: "Planner", name: "x", get: Object.keys(put) });
  assert.deepEqual(values, {});
});
