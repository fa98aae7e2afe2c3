// The first code that a newcomer reads is the code that is built and run here.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { Response } from "miniflare";
import { readAnswer } from "./support/api.mjs";
import { inRoot } from "./support/paths.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { startWorker } from "./support/worker.mjs";

const source = () => readFile(inRoot("examples/smallest/src/lib.rs"), "utf8");

test("the README's smallest agent is the one that is built, byte for byte, in less than 25 lines", async () => {
  const readme = await readFile(inRoot("README.md"), "utf8");
  const blocks = [...readme.matchAll(/^```rust[^\n]*\n(.*?)^```$/gms)].map((match) => match[1]);
  const agent = await source();
  assert.ok(blocks.includes(agent), `none of the ${blocks.length} Rust blocks is examples/smallest/src/lib.rs`);
  const lines = agent.trimEnd().split("\n").length;
  assert.ok(lines < 25, `${lines} lines`);
});

test("the smallest agent lists the tools of its server, and still does after an eviction", async (t) => {
  const remote = await startScriptedServer();
  t.after(() => remote.close());
  const [url] = /https:\/\/[^"]+/.exec(await source());
  const outbound = async (request) => {
    assert.equal(request.url, url);
    const { method, headers } = request;
    const answer = await fetch(remote.url, {
      method,
      headers: [...headers],
      body: (await request.text()) || undefined,
    });
    return new Response(await answer.text(), { status: answer.status, headers: [...answer.headers] });
  };
  const worker = await startWorker({ build: "build/quick/smallest", objects: { MyAgent: "MyAgent" }, outbound });
  t.after(() => worker.dispose());

  const tools = async (name) => readAnswer(await worker.fetch(`/agents/my-agent/${name}/`));
  const first = await tools("mine");
  assert.equal(first.status, 200, `${first.body}`);
  assert.deepEqual(
    first.body.map((tool) => tool.name),
    ["echo"],
  );
  await worker.evict("MyAgent", "mine");
  assert.deepEqual(await tools("mine").then((again) => again.body), first.body);

  assert.equal((await worker.fetch("/somewhere-else")).status, 404);
  const ours = await worker.fetch("/agents/tool-agent/mine/servers");
  assert.ok(ours.status >= 400, "a dependant exports nothing of ours");
});
