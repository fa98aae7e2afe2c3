// The client of the npm package with the ready-made Worker: servers, calls of tools with their progress, questions.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Agent } from "./support/api.mjs";
import { npmClients, pictures, untilServer } from "./support/npm-client.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { startTalkingServer } from "./support/talking-server.mjs";
import { until } from "./support/until.mjs";
import { startToolAgent } from "./support/worker.mjs";

let worker;
before(async () => (worker = await startToolAgent()));
after(() => worker?.dispose());

/** An object with a client of the package, and the JSON API. */
async function scene(t, options = {}) {
  const { connected, freshName } = npmClients(worker, "ToolAgent");
  const name = freshName();
  return { client: await connected(t, { name, ...options }), agent: new Agent(worker, name) };
}

const ofType = ({ frames }, type) =>
  frames.filter((frame) => frame.includes(`"${type}"`)).map((frame) => JSON.parse(frame));

async function talking(t, call) {
  const remote = await startTalkingServer({ events: true, call });
  t.after(() => remote.close());
  return remote;
}

test("the client is told who it talks to, and of servers that are added and removed by HTTP", async (t) => {
  const remote = await startScriptedServer();
  t.after(() => remote.close());
  const { client, agent } = await scene(t);
  assert.deepEqual([client.name, client.agent], [agent.name, "tool-agent"]);
  await agent.add({ id: "notes", name: "Notes", url: remote.url });
  const { servers, tools } = await untilServer(client, "ready");
  assert.deepEqual([servers.notes.name, servers.notes.server_url], ["Notes", remote.url]);
  assert.deepEqual(tools.map(({ name, serverId }) => [name, serverId]), [["echo", "notes"]]);
  await agent.remove("notes");
  await until("it to be gone", () => Object.keys(pictures(client).at(-1).servers).length === 0);
});

test("a tool is called over the socket, and its progress comes in between", async (t) => {
  const remote = await talking(t, async ({ _meta }, talk) => {
    for (const progress of [1, 2]) {
      talk.notify("notifications/progress", { progressToken: _meta.progressToken, progress, total: 2 });
    }
    return { content: [{ type: "text", text: "done" }] };
  });
  const { client, agent } = await scene(t);
  await agent.add({ id: "slow", name: "Slow", url: remote.url });
  const chunks = [];
  const stream = { onChunk: (chunk) => chunks.push(chunk) };
  const result = await client.call("callTool", [{ serverId: "slow", name: "echo", arguments: {} }], { stream });
  assert.equal(result.content[0].text, "done");
  assert.deepEqual(chunks.map(({ progress, total }) => [progress, total]), [[1, 2], [2, 2]]);
  const unknown = client.call("callTool", [{ serverId: "nobody", name: "echo", arguments: {} }]);
  await assert.rejects(unknown, /nobody/);
});

test("a question is put to every client, answered by one, and then closed for all", async (t) => {
  const requestedSchema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
  const remote = await talking(t, async (_, talk) => {
    const { result } = await talk.ask("elicitation/create", { message: "Who?", requestedSchema }, "q1");
    return { content: [{ type: "text", text: JSON.stringify(result) }] };
  });
  const { client, agent } = await scene(t);
  const [other] = [await npmClients(worker, "ToolAgent").connected(t, { name: agent.name })];
  await agent.add({ id: "ask", name: "Asking", url: remote.url });
  const call = client.call("callTool", [{ serverId: "ask", name: "echo", arguments: {} }]);
  const [question] = await until("the question", () => {
    const found = ofType(other, "mcp-elicitation");
    return found.length > 0 && found;
  });
  assert.deepEqual([question.serverId, question.params.message], ["ask", "Who?"]);
  assert.deepEqual(question.params.requestedSchema, requestedSchema);
  await assert.rejects(other.call("respondToElicitation", [question.id, { action: "accept", content: { name: 7 } }]));
  const answer = { action: "accept", content: { name: "Ada" } };
  await other.call("respondToElicitation", [question.id, answer]);
  assert.deepEqual(JSON.parse((await call).content[0].text), answer);
  for (const each of [client, other]) {
    await until("its end", () => ofType(each, "mcp-elicitation-closed").some(({ id }) => id === question.id));
  }
  await assert.rejects(other.call("respondToElicitation", [question.id, answer]));
});
