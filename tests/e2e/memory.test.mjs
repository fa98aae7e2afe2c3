// All objects of an isolate share one Wasm memory, and it never shrinks.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startWorker } from "./support/worker.mjs";

const MIB = 1 << 20;

let worker;
before(async () => (worker = await startWorker({ build: "build/test-worker", objects: { Fixture: "Fixture" } })));
after(() => worker?.dispose());

test("an evicted object gives its memory back when it wakes, however often", async () => {
  const grow = async () => (await (await worker.fetch("/agents/fixture/sleeper/grow")).json()).wasm;
  const first = await grow();
  let last;
  for (let wake = 0; wake < 30; wake++) {
    await worker.evict("Fixture", "sleeper");
    last = await grow();
  }
  assert.ok(first > MIB, `${first} bytes`);
  assert.ok(last - first < 10 * MIB, `grew by ${Math.round((last - first) / MIB)} MiB over 30 wakes of 2 MiB each`);
});
