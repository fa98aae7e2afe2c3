// `npm start` as a newcomer meets it: serves, remembers when it is started again, and leaves nothing behind.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Agent } from "./support/api.mjs";
import { inRoot } from "./support/paths.mjs";
import { startNode } from "./support/processes.mjs";
import { startEverythingServer } from "./support/real-servers.mjs";
import { until } from "./support/until.mjs";
import { temporaryFolder } from "./support/worker.mjs";

const READY = /ready: (http:\/\/127\.0\.0\.1:\d+)/;

const start = async (storage) => {
  const process = await startNode([inRoot("agents-build/start.mjs"), "--port", "0", "--persist-to", storage], {
    ready: READY,
    deadlineMs: 90_000,
  });
  const origin = process.match[1];
  return { ...process, fetch: (path, init) => fetch(new URL(path, origin), init), origin };
};

test("a server added under `npm start` is there after it was ended and started again", async (t) => {
  const storage = await temporaryFolder();
  const remote = await startEverythingServer();
  t.after(() => remote.stop());

  const first = await start(storage);
  t.after(() => first.kill());
  assert.match(await (await first.fetch("/")).text(), /<title>workers-agents<\/title>/);
  await new Agent(first, "demo").add({ id: "everything", name: "Everything", url: remote.url });
  await first.stop();
  await assert.rejects(first.fetch("/healthz"), "something still serves");

  const second = await start(storage);
  t.after(() => second.kill());
  const agent = new Agent(second, "demo");
  const { tools } = await agent.get("tools");
  assert.ok(tools.some(({ name }) => name === "echo"));
  const result = await agent.call("everything", "echo", { message: "again" });
  assert.deepEqual(result.content, [{ type: "text", text: "Echo: again" }]);
  // Killed, it has no chance to put anything away.
  await second.kill();
  const isGone = () => second.fetch("/healthz").then(() => false, () => true);
  await until("everything that it started is gone", isGone);
});
