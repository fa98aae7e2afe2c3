// One Wasm instance serves all objects of an isolate. When it is lost, everyone gets an answer and comes back.
import assert from "node:assert/strict";
import { once } from "node:events";
import { request } from "node:http";
import { after, before, test } from "node:test";
import { timed } from "./support/until.mjs";
import { startWorker } from "./support/worker.mjs";

const PROMPT_MS = 1_000;

let worker;
before(async () => (worker = await startWorker({ build: "build/test-worker", objects: { Fixture: "Fixture", Stillborn: "Stillborn" } })));
after(() => worker?.dispose());

const at = (name, action) => worker.fetch(`/agents/fixture/${name}/${action}`);
const count = async (name) => (await at(name, "count")).json();

/** Starts a call that never answers by itself; resolves when it is under way. */
async function startHanging(name) {
  const call = request(new URL(`/agents/fixture/${name}/hang-then`, worker.origin), { agent: false });
  const answer = new Promise((resolve, reject) => {
    call.once("response", (response) => resolve(response.resume()));
    call.once("error", reject);
  });
  const sent = once(call, "finish");
  const connected = once(call, "socket").then(([socket]) => once(socket, "connect"));
  call.end();
  await Promise.all([sent, connected]);
  // Its object has answered a later request, so it has the earlier one.
  await count(name);
  return { answer };
}

for (const [what, action] of [
  ["a Rust panic", "panic"],
  ["an uncaught JavaScript exception", "throw"],
]) {
  test(`${what} is answered with 503 at once, to the one who caused it and to whoever was waiting`, async () => {
    const [culprit, bystander] = [`${action}-culprit`, `${action}-bystander`];
    await count(culprit);
    await count(culprit);
    await count(bystander);
    const hanging = await startHanging(bystander);

    const { value: answers, ms } = await timed(() => Promise.all([at(culprit, action), hanging.answer]));
    assert.ok(ms < PROMPT_MS, `took ${ms} ms`);
    assert.equal(answers[0].status, 503);
    assert.equal(answers[1].statusCode, 503);
    assert.doesNotMatch(await answers[0].text(), /panicked|\.rs:|at .*wasm/, "nothing of the inside shows");

    assert.deepEqual(await count(culprit), { memory: 1, stored: 3 });
    assert.deepEqual(await count(bystander), { memory: 1, stored: 3 });
  });
}

test("an object whose constructor panics answers 503 every time, and disturbs the others for a moment only", async () => {
  await count("born");
  for (let n = 0; n < 2; n++) {
    const { value: answer, ms } = await timed(() => worker.fetch("/agents/stillborn/x/any"));
    assert.ok(ms < PROMPT_MS, `took ${ms} ms`);
    assert.equal(answer.status, 503);
    assert.equal((await count("born")).memory, 1);
  }
});

test("a panic within a transaction takes it back, and does not hold up the next call", async () => {
  await count("transaction");
  const { value: answers, ms } = await timed(async () => [
    (await at("transaction", "panic-in-transaction")).status,
    await count("transaction"),
  ]);
  assert.ok(ms < PROMPT_MS, `took ${ms} ms`);
  assert.deepEqual(answers, [503, { memory: 1, stored: 2 }]);
});

test("panics in a row, and requests during them, all get an answer", async () => {
  const { stored } = await count("row");
  const calls = [];
  for (let n = 0; n < 5; n++) calls.push(at("row-culprit", "panic"), at("row", "count"));
  const { value: answers, ms } = await timed(() => Promise.all(calls));
  assert.ok(ms < PROMPT_MS * 3, `took ${ms} ms`);
  for (const answer of answers) assert.ok([200, 503].includes(answer.status), `${answer.status}`);
  const counted = answers.filter((answer, n) => n % 2 === 1 && answer.status === 200).length;
  const now = await count("row");
  assert.ok(now.stored >= stored + counted + 1, JSON.stringify({ stored, counted, now }));
});

test("what a panic said is in the log", async () => {
  await at("logged", "panic");
  assert.match(worker.output, /panicked at/);
});
