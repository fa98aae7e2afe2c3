// Cases from public bug reports about MCP clients: large catalogues and results, output schemas after a restart.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { assertProblem, freshAgent } from "./support/api.mjs";
import { quiet, startTalkingServer } from "./support/talking-server.mjs";
import { startToolAgent } from "./support/worker.mjs";

let worker;
before(async () => (worker = await startToolAgent({ REQUEST_TIMEOUT_MS: "20000" })));
after(() => worker?.dispose());

async function startRemote(t, options) {
  const remote = await startTalkingServer(options);
  t.after(() => remote.close());
  return remote;
}

test("TL-27 schemas reach the user as they were", async (t) => {
  const inputSchema = {
    type: "object",
    "x-foo": { b: 1, a: 2 },
    description: "line one\nline two",
    properties: {
      z: { type: ["string", "null"], default: null },
      y: { type: "object", properties: { k: { enum: ["b", "a"], default: "b" } } },
      x: { anyOf: [{ type: "integer", minimum: 0 }, { type: "null" }] },
      a: { type: "number", default: 1.5 },
    },
    required: ["z"],
  };
  const remote = await startRemote(t, { tools: [{ name: "odd", inputSchema, outputSchema: inputSchema }] });
  const agent = freshAgent(worker);
  await agent.add({ id: "odd", name: "Odd", url: remote.url });
  for (const wake of [false, true]) {
    if (wake) await worker.evict("ToolAgent", agent.name);
    const { tools } = await agent.get("tools");
    assert.equal(JSON.stringify(tools[0].inputSchema), JSON.stringify(inputSchema));
    assert.equal(JSON.stringify(tools[0].outputSchema), JSON.stringify(inputSchema));
  }
});

test("TL-25 output is checked the same before and right after a restart", async (t) => {
  let content;
  const outputSchema = {
    type: "object",
    properties: { a: { type: "integer" } },
    required: ["a"],
    additionalProperties: false,
  };
  const tools = [{ name: "count", inputSchema: { type: "object" }, outputSchema }];
  const remote = await startRemote(t, { tools, call: () => ({ content: [], structuredContent: content }) });
  const own = await startToolAgent({ STREAM_LINGER_MS: "200" });
  t.after(() => own.dispose());
  const agent = freshAgent(own);
  await agent.add({ id: "count", name: "Count", url: remote.url });
  const check = async () => {
    for (const wrong of [{ a: "1" }, { a: 1, b: 2 }, undefined]) {
      content = wrong;
      assertProblem(await agent.tryCall("count", "count", {}), 502, /output schema/);
    }
    content = { a: 1 };
    assert.deepEqual((await agent.call("count", "count", {})).structuredContent, { a: 1 });
  };
  await check();
  await quiet(remote);
  await own.evict("ToolAgent", agent.name);
  await check();
  await own.restart();
  await check();
});

test("TL-28 a catalogue of 5 MB is complete, before and after a restart", async (t) => {
  const property = (number) => [`p${number}`, { type: "string", description: "x".repeat(180) }];
  const properties = Object.fromEntries(Array.from({ length: 36 }, (_, number) => property(number)));
  const tools = Array.from({ length: 600 }, (_, number) => ({
    name: `tool-${number}`,
    inputSchema: { type: "object", properties },
  }));
  const remote = await startRemote(t, { tools });
  const own = await startToolAgent({ STREAM_LINGER_MS: "200" });
  t.after(() => own.dispose());
  const agent = freshAgent(own);
  const server = await agent.add({ id: "large", name: "Large", url: remote.url });
  assert.deepEqual([server.counts.tools, server.problems], [600, []]);
  const check = async () => {
    const listed = await agent.get("tools");
    assert.ok(JSON.stringify(listed).length > 4_500_000);
    assert.deepEqual(
      listed.tools.map(({ name }) => name),
      tools.map(({ name }) => name),
    );
    assert.deepEqual(listed.tools[599].inputSchema, tools[599].inputSchema);
    await agent.call("large", "tool-599", {});
  };
  await check();
  await quiet(remote);
  await own.evict("ToolAgent", agent.name);
  await check();
  await own.restart();
  await check();
});

describe("TL-29 an image result", () => {
  for (const events of [false, true]) {
    for (const megabytes of [1, 5, 20]) {
      const fits = megabytes < 10;
      test(`of ${megabytes} MB as ${events ? "an event" : "JSON"} is ${fits ? "delivered" : "refused alone"}`, async (t) => {
        const data = "A".repeat(megabytes << 20);
        const call = ({ name }) =>
          name === "small"
            ? { content: [{ type: "text", text: "small" }] }
            : { content: [{ type: "image", data, mimeType: "image/png" }] };
        const tools = ["large", "small"].map((name) => ({ name, inputSchema: { type: "object" } }));
        const remote = await startRemote(t, { tools, call, events, capabilities: { tools: { listChanged: true } } });
        const agent = freshAgent(worker);
        await agent.add({ id: "pics", name: "Pics", url: remote.url });
        const [large, ...small] = await Promise.all([
          agent.tryCall("pics", "large", {}),
          agent.call("pics", "small", {}),
          agent.call("pics", "small", {}),
        ]);
        for (const result of small) assert.equal(result.content[0].text, "small");
        if (fits) {
          assert.equal(large.status, 200);
          assert.equal(large.body.content[0].data.length, data.length);
        } else {
          assertProblem(large, 502, /large|limit|exceed|more than/i);
        }
        assert.equal((await agent.call("pics", "small", {})).content[0].text, "small");
        assert.equal((await agent.server("pics")).state, "ready");
        assert.equal(remote.count("initialize"), 1, "the session lives on");
      });
    }
  }
});
