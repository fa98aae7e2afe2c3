// Starting: once for all who come at the same time, and again for those who come after a failure.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startWorker } from "./support/worker.mjs";

let worker;
before(async () => (worker = await startWorker({ build: "build/test-worker", objects: { Fixture: "Fixture" } })));
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
