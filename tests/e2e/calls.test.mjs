// Calls of tools whose outcome is streamed: what is told on the way, and how they are given up.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { assertProblem, freshAgent, readAnswer } from "./support/api.mjs";
import { startEverythingServer } from "./support/real-servers.mjs";
import { startTalkingServer } from "./support/talking-server.mjs";
import { until } from "./support/until.mjs";
import { startToolAgent } from "./support/worker.mjs";

const TOOLS = ["steps", "endless", "fails", "echo"].map((name) => ({ name, inputSchema: { type: "object" } }));

/** A tool that tells its steps, one that never ends, and one that fails. */
async function call({ name, arguments: args, _meta }, { notify }) {
  const step = (progress, more) => notify("notifications/progress", { progressToken: _meta.progressToken, progress, ...more });
  if (name === "steps") {
    step(1, { total: 2, message: "first\nstep" });
    step(2, { total: 2 });
  }
  if (name === "endless") {
    step(1);
    await new Promise(() => {});
  }
  if (name === "fails") return undefined;
  return { content: [{ type: "text", text: JSON.stringify(args ?? {}) }] };
}

let worker;
let remote;
before(async () => {
  worker = await startToolAgent({ REQUEST_TIMEOUT_MS: "60000" }, { direct: true });
  remote = await startTalkingServer({ tools: TOOLS, call, events: true });
});
after(() => Promise.all([worker?.dispose(), remote?.close()]));

async function agentWith(url = remote.url) {
  const agent = freshAgent(worker);
  await agent.add({ id: "talking", name: "Talking", url });
  return agent;
}

/** Begins a call; gives the response. */
function begin(agent, name, { args, origin = worker.origin, signal } = {}) {
  return fetch(new URL(`${agent.base}tools/call`, origin), {
    method: "POST",
    headers: { accept: "text/event-stream", "content-type": "application/json", connection: "close" },
    body: JSON.stringify({ serverId: "talking", name, arguments: args }),
    signal,
  });
}

/** The events of a stream, as they come. */
async function* events(response) {
  let rest = "";
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    const blocks = (rest + chunk).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const match = /^event: (\w+)\ndata: (.*)$/.exec(block);
      if (match) yield { event: match[1], data: JSON.parse(match[2]) };
      else assert.equal(block, ":");
    }
  }
}

async function all(response) {
  assert.equal(response.status, 200);
  assert.match(response.headers.get("content-type"), /^text\/event-stream/);
  const list = [];
  for await (const one of events(response)) list.push(one);
  return list;
}

/** Waits until the server was told that a call is given up. */
const cancelled = () => until("the server to be told", () => remote.count("notifications/cancelled") > 0);

test("a streamed call tells its progress and then its result", async () => {
  const agent = await agentWith();
  const [first, ...rest] = await all(await begin(agent, "steps", { args: { a: "line\n\nbreaks" } }));
  assert.equal(first.event, "call");
  assert.match(first.data.id, /^[0-9a-f]{16}$/);
  assert.deepEqual(rest, [
    { event: "progress", data: { progress: 1, total: 2, message: "first\nstep" } },
    { event: "progress", data: { progress: 2, total: 2 } },
    { event: "result", data: { content: [{ type: "text", text: '{"a":"line\\n\\nbreaks"}' }] } },
  ]);
});

test("a streamed call that fails ends with the problem", async () => {
  const agent = await agentWith();
  const last = (await all(await begin(agent, "fails"))).at(-1);
  assert.equal(last.event, "problem");
  assert.deepEqual([last.data.status, last.data.kind, last.data.code], [502, "rpc", -32601]);
  const unknown = (await all(await begin(freshAgent(worker), "fails"))).at(-1);
  assert.deepEqual([unknown.event, unknown.data.status, unknown.data.kind], ["problem", 404, "unknown-server"]);
});

test("what is no call is refused before there is a stream", async () => {
  const agent = freshAgent(worker);
  const headers = { accept: "text/event-stream", "content-type": "application/json" };
  for (const body of ["{", "{}", '{"serverId":"x","name":"y","arguments":[]}', '{"serverId":"x","name":"y","logLevel":"loud"}']) {
    const answer = await worker.fetch(`${agent.base}tools/call`, { method: "POST", headers, body });
    assertProblem(await readAnswer(answer), [400, 422]);
  }
});

test("a call that is given up ends, and its server is told", async () => {
  const agent = await agentWith();
  remote.log.length = 0;
  const stream = events(await begin(agent, "endless"));
  const { data } = (await stream.next()).value;
  assert.equal((await stream.next()).value.event, "progress");
  assert.equal((await agent.request("DELETE", `calls/${data.id}`)).status, 204);
  const last = (await stream.next()).value;
  assert.deepEqual([last.event, last.data.status, last.data.kind], ["problem", 409, "cancelled"]);
  assert.equal((await stream.next()).done, true);
  await cancelled();
  const asked = remote.log.find((entry) => entry.rpc === "tools/call");
  const told = remote.log.find((entry) => entry.rpc === "notifications/cancelled");
  assert.equal(told.message.params.requestId, asked.message.id);
  assertProblem(await agent.request("DELETE", `calls/${data.id}`), 404);
  assertProblem(await agent.request("GET", `calls/${data.id}`), 405);
});

test("when the client hangs up, the call is given up and its server is told", async () => {
  const agent = await agentWith();
  remote.log.length = 0;
  const controller = new AbortController();
  const response = await begin(agent, "endless", { origin: worker.directOrigin, signal: controller.signal });
  const stream = events(response);
  assert.equal((await stream.next()).value.event, "call");
  assert.equal((await stream.next()).value.event, "progress");
  assert.equal(remote.count("notifications/cancelled"), 0);
  controller.abort();
  await cancelled();
});

test("a call that nobody gives up outlasts the pauses of its server", async () => {
  const slow = await startEverythingServer();
  try {
    const agent = await agentWith(slow.url);
    const args = { duration: 5, steps: 2 };
    const list = await all(await begin(agent, "trigger-long-running-operation", { args, origin: worker.directOrigin }));
    assert.deepEqual(
      list.map(({ event, data }) => data.progress ?? event),
      ["call", 1, 2, "result"],
    );
    assert.match(list.at(-1).data.content[0].text, /completed/);
  } finally {
    await slow.stop();
  }
});

test("only so many calls are streamed at once", async () => {
  const agent = await agentWith();
  const streams = await Promise.all(Array.from({ length: 64 }, () => begin(agent, "endless")));
  assert.ok(streams.every((response) => response.status === 200));
  const one = streams[0].body.getReader();
  const { id } = JSON.parse(/data: (.*)/.exec(new TextDecoder().decode((await one.read()).value))[1]);
  assertProblem(await readAnswer(await begin(agent, "echo")), 429);
  assert.equal((await agent.request("DELETE", `calls/${id}`)).status, 204);
  await until("room for another", async () => (await begin(agent, "echo")).status === 200);
});
