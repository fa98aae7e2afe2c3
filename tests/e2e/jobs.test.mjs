// Work that is done later: one alarm for all of it, over evictions and lost instances.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { until } from "./support/until.mjs";
import { startWorker } from "./support/worker.mjs";

const HOUR = 3_600_000;

let worker;
before(async () => (worker = await startWorker({ build: "build/test-worker", objects: { Planner: "Planner", Fixture: "Fixture" } })));
after(() => worker?.dispose());

const at = (name, action, body) =>
  worker.fetch(`/agents/planner/${name}/${action}`, body === undefined ? {} : { method: "POST", body: JSON.stringify(body) });

async function ask(name, action, body) {
  const answer = await at(name, action, body);
  assert.equal(answer.status, 200, `${action}: ${answer.status} ${await answer.clone().text()}`);
  return answer.json();
}

const jobs = async (name) => worker.sql("Planner", name, "SELECT * FROM cf_agents_jobs ORDER BY id");
const done = (name) => ask(name, "done");

/** Waits until the object has done this, in this order. */
const untilDone = (name, wanted) =>
  until(`${name} to have done ${wanted}`, async () => JSON.stringify(await done(name)) === JSON.stringify(wanted));

/** Waits without touching the object: a request would wake it as well. */
const untilStored = (name, query, check) =>
  until(`${name}: ${query}`, async () => check(await worker.sql("Planner", name, query)));

test("an object that is only woken has no alarm, no table and no rows", async () => {
  assert.equal(await ask("idle", "alarm"), null);
  const tables = await worker.sql("Planner", "idle", "SELECT name FROM sqlite_master");
  assert.deepEqual(tables.filter(({ name }) => !/^_cf_|^__miniflare/.test(name)), []);
});

test("schedules run at their time, in order, and leave nothing behind", async () => {
  await ask("order", "schedule", { after: 3_000, name: "second", payload: 2 });
  await ask("order", "schedule", { after: 2_000, name: "first", payload: { n: 1 } });
  await ask("order", "schedule", { at: 5, name: "at once" });
  await untilDone("order", ["at once null", 'first {"n":1}', "second 2"]);
  assert.deepEqual(await jobs("order"), []);
  await until("the alarm to be off", async () => (await ask("order", "alarm")) === null);
});

test("a schedule is listed, moved by its id, and cancelled, and the alarm follows", async () => {
  const late = await ask("moved", "schedule", { id: "x", after: 2 * HOUR, name: "note" });
  assert.equal(await ask("moved", "alarm"), late.at);
  const early = await ask("moved", "schedule", { id: "x", after: HOUR, name: "note" });
  assert.equal(await ask("moved", "alarm"), early.at);
  assert.deepEqual(await ask("moved", "scheduled"), [early]);
  assert.equal(await ask("moved", "cancel", { id: "x" }), true);
  assert.equal(await ask("moved", "cancel", { id: "x" }), false);
  assert.deepEqual(await ask("moved", "scheduled"), []);
  await until("the alarm to be off", async () => (await ask("moved", "alarm")) === null);
});

test("what repeats is planned once however often it is said, and goes on", async () => {
  const first = await ask("cron", "schedule", { cron: "0 12 * * *", name: "note", payload: 1 });
  const again = await ask("cron", "schedule", { cron: "0 12 * * *", name: "note", payload: 1 });
  assert.deepEqual(again, first);
  assert.equal(new Date(first.at).toISOString().slice(11), "12:00:00.000Z");
  assert.ok(first.at > Date.now() && first.at <= Date.now() + 24 * HOUR);
  const bad = await at("cron", "schedule", { cron: "61 * * * *", name: "note" });
  assert.equal(bad.status, 400);

  await ask("every", "schedule", { every: 60, name: "tick" });
  await until("three ticks", async () => (await done("every")).length >= 3);
  const [{ id }] = await ask("every", "scheduled");
  await ask("every", "cancel", { id });

  await ask("seconds", "schedule", { cron: "* * * * * *", name: "tick" });
  await until("a second tick", async () => (await done("seconds")).length >= 2);
});

test("a job that fails is tried three times, then its capability decides, and the object goes on", async () => {
  await ask("fails", "push", { id: "bad", name: "fail" });
  await untilDone("fails", ["fail null", "fail null", "fail null", "gave up bad"]);
  assert.deepEqual(await jobs("fails"), []);
  await ask("fails", "schedule", { every: HOUR, name: "fail", id: "again" });
  await worker.sql("Planner", "fails", "UPDATE cf_agents_jobs SET time = 1 WHERE id = 'again'");
  await ask("fails", "push", { id: "good", name: "note" });
  await until("the bad one to have failed", async () => (await done("fails")).length === 8);
  await until("the bad one to wait", async () => (await jobs("fails"))[0]?.time > Date.now());
});

test("a job id belongs to who has pushed it", async () => {
  await ask("owners", "push", { id: "x", name: "note", after: HOUR });
  const refused = await at("owners", "schedule", { id: "x", after: HOUR, name: "note" });
  assert.equal(refused.status, 400);
  assert.match(await refused.text(), /Job id "x" already belongs to "alpha"/);
});

test("an evicted object is woken by its alarm", async () => {
  await ask("evicted", "schedule", { after: 300, name: "note" });
  await worker.evict("Planner", "evicted");
  await untilStored("evicted", "SELECT id FROM cf_agents_jobs", (rows) => rows.length === 0);
  assert.deepEqual(await done("evicted"), ["note null"]);
  const log = await ask("evicted", "log");
  assert.deepEqual(log.slice(0, 4), ["alpha: start by alarm", "omega: start by alarm", "host: start", "host: alarm"]);
});

test("jobs survive the end of the process, and an alarm that was lost is set again", async () => {
  await ask("restarted", "schedule", { after: HOUR, name: "far" });
  await ask("restarted", "schedule", { after: 100, name: "note" });
  await worker.restart();
  await untilDone("restarted", ["note null"]);
  const { at: time } = (await ask("restarted", "scheduled"))[0];
  await until("the alarm of the other one", async () => (await ask("restarted", "alarm")) === time);
});

test("a job that panics is run again, given up in the end, and takes nobody else's work along", async () => {
  await ask("bystander", "schedule", { after: 1000, name: "note" });
  // Both are due by the time the first one has run, and both are planned before.
  const at = Date.now() + 3_000;
  await ask("panics", "schedule", { at, name: "panic", id: "bad" });
  await ask("panics", "schedule", { at: at + 1, name: "note", id: "good" });
  await untilStored("panics", "SELECT id FROM cf_agents_jobs", (rows) => rows.length === 0);
  assert.deepEqual(await done("panics"), ["panic null", "note null", "panic null", "panic null"]);
  assert.match(worker.output, /job "bad" of "scheduler" is given up/);
  await untilDone("bystander", ["note null"]);
  await until("the alarm to be off", async () => (await ask("panics", "alarm")) === null);
});

test("an alarm of the host's own is left alone, and its hook runs", async () => {
  const set = await at("own", "set-alarm", 50);
  assert.equal(set.status, 200);
  await until("the alarm", async () => (await ask("own", "log")).includes("host: alarm"));
  const tables = await worker.sql("Planner", "own", "SELECT name FROM sqlite_master WHERE name LIKE 'cf_agents%'");
  assert.deepEqual(tables, []);
});
