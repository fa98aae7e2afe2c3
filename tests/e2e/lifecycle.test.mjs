// Starting: once for all who come at the same time, and again for those who come after a failure.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { until } from "./support/until.mjs";
import { startWorker } from "./support/worker.mjs";

let worker;
before(async () => (worker = await startWorker({ build: "build/test-worker", objects: { Fixture: "Fixture", Planner: "Planner" } })));
after(() => worker?.dispose());

const at = (name, action) => worker.fetch(`/agents/fixture/${name}/${action}`);
const starts = async (name) => (await (await at(name, "starts")).json()).starts;

test("requests that come at once start the object once, and a start from inside the start is no second one", async () => {
  const answers = await Promise.all(Array.from({ length: 8 }, () => starts("crowd")));
  assert.deepEqual(answers, Array(8).fill(1));
});

test("a start that fails answers 500 without details, and the next request tries again", async () => {
  assert.equal((await at("unlucky", "fail-next-start")).status, 200);
  await worker.evict("Fixture", "unlucky");
  const failed = await at("unlucky", "starts");
  assert.equal(failed.status, 500);
  assert.equal(failed.headers.get("content-type"), "application/problem+json");
  assert.doesNotMatch(await failed.text(), /on purpose/);
  assert.match(worker.output, /on purpose, while starting/);
  assert.equal(await starts("unlucky"), 2);
});

const planner = (name, action, init) => worker.fetch(`/agents/planner/${name}/${action}`, init);
const log = async (name) => (await planner(name, "log")).json();

test("capabilities are asked in order, those that answer everything last, and then the host", async () => {
  assert.deepEqual(await log("order"), [
    "alpha: start by request",
    "omega: start by request",
    "host: start",
    "alpha: request",
    "omega: request",
  ]);
  assert.equal(await (await planner("order", "omega/anything")).text(), "omega");
  assert.equal(
    await (await planner("order", "install-late")).json(),
    "Lifecycle capabilities must be added before startup",
  );
});

test("a plain RPC method starts the object", async () => {
  const answer = await worker.fetch("/rpc/called");
  assert.equal(await answer.text(), "alpha: start by call\nomega: start by call\nhost: start");
});

test("a capability that fails to start fails the event, and the next one tries again", async () => {
  await planner("failing", "fail-next-start");
  await worker.evict("Planner", "failing");
  assert.equal((await planner("failing", "log")).status, 500);
  assert.deepEqual((await log("failing")).slice(0, 4), [
    "alpha: start by request",
    "alpha: start by request",
    "omega: start by request",
    "host: start",
  ]);
});

test("a panic in a startup is answered with 503, and the next event starts the object", async () => {
  await planner("panicking", "panic-next-start");
  await worker.evict("Planner", "panicking");
  assert.equal((await planner("panicking", "log")).status, 503);
  assert.equal((await log("panicking"))[2], "host: start");
});

test("a panic in a listener is answered with 503, and the object comes back", async () => {
  await starts("listening");
  assert.equal((await at("listening", "panic-in-listener")).status, 503);
  assert.equal(await starts("listening"), 1);
});

test("props from outside never reach the object", async () => {
  const answer = await planner("props", "props", { headers: { "x-agents-lifecycle-props": '{"admin":true}' } });
  assert.equal(await answer.json(), null);
});

test("what is being handled is known: its URL, and its trace when that is well formed", async () => {
  const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const url = `${worker.origin}/agents/planner/current/current`;
  const headers = { traceparent: parent, tracestate: "vendor=1" };
  const traced = await (await planner("current", "current", { headers })).json();
  assert.deepEqual(traced, { event: "request", url, parent, state: "vendor=1" });
  const forged = await (await planner("current", "current", { headers: { traceparent: "00-zz" } })).json();
  assert.deepEqual(forged, { event: "request", url, parent: null, state: null });
});

test("events of a WebSocket reach the host over an eviction, and an error of its hook harms nobody", async () => {
  const socket = new WebSocket(new URL("/agents/planner/sockets/socket", worker.origin.replace("http", "ws")));
  const messages = [];
  socket.addEventListener("message", ({ data }) => messages.push(JSON.parse(data)));
  await new Promise((resolve, reject) => {
    socket.addEventListener("open", resolve);
    socket.addEventListener("error", reject);
  });
  socket.send("one");
  await until("an echo", () => messages.length === 1);
  await worker.evict("Planner", "sockets");
  socket.send("fail");
  socket.send("two");
  await until("another echo", () => messages.length === 2);
  assert.deepEqual(messages, [
    { text: "one", event: "web-socket" },
    { text: "two", event: "web-socket" },
  ]);
  assert.ok((await log("sockets")).includes("alpha: start by web-socket"));
  socket.close();
});

test("a destroyed object is told, wiped and forgotten, and a new one takes its place", async () => {
  await planner("gone", "schedule", { method: "POST", body: JSON.stringify({ after: 3_600_000, name: "note" }) });
  await planner("gone", "fail-next-start");
  const answer = await planner("gone", "destroy");
  assert.equal(await answer.text(), "destroyed");
  const order = () => [...worker.output.matchAll(/^disposed (\w+)/gm)].map(([, who]) => who);
  await until("everybody to be told", () => order().length === 3);
  assert.deepEqual(order(), ["host", "omega", "alpha"]);
  await until("a new object", async () => {
    const answer = await planner("gone", "alarm");
    return answer.status === 200 && (await answer.json()) === null;
  });
  assert.deepEqual((await log("gone")).slice(0, 3), ["alpha: start by request", "omega: start by request", "host: start"]);
  const tables = await worker.sql("Planner", "gone", "SELECT name FROM sqlite_master WHERE name LIKE 'cf_agents%'");
  assert.deepEqual(tables, []);
});
