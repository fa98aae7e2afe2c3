// Cases from public bug reports about MCP clients: questions to the user, over the JSON API.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { assertProblem, freshAgent } from "./support/api.mjs";
import { startTalkingServer } from "./support/talking-server.mjs";
import { until } from "./support/until.mjs";
import { startToolAgent } from "./support/worker.mjs";

const TIMEOUT_MS = 1_500;

let worker;
before(async () => (worker = await startToolAgent({ REQUEST_TIMEOUT_MS: `${TIMEOUT_MS}` })));
after(() => worker?.dispose());

const FORM = {
  message: "Who is there?",
  requestedSchema: {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    "x-order": ["z", "a"],
    properties: {
      z: { type: "string", minLength: 2, "x-hint": "name" },
      a: { type: "string", enum: ["x", "y"], enumNames: ["X", "Y"], default: "x" },
    },
    required: ["z"],
  },
};

/** A server whose calls ask this, and answer with what was answered. */
async function startAsking(t, params, id) {
  const call = async (_, talk) => {
    const answer = await talk.ask("elicitation/create", params, id);
    return { content: [{ type: "text", text: JSON.stringify(answer.result ?? answer.error) }] };
  };
  const remote = await startTalkingServer({ call, events: true });
  t.after(() => remote.close());
  return remote;
}

const questions = async (agent, count) => {
  const open = async () => (await agent.get("elicitations")).elicitations;
  return until(`${count} questions`, async () => {
    const list = await open();
    return list.length === count && list;
  });
};
const answer = (agent, id, body) => agent.request("POST", `elicitations/${id}`, body);
const said = (result) => JSON.parse(result.content[0].text);

test("EL-02 EL-05 the user is asked at once, sees the form as it was, and may think for longer than a request", async (t) => {
  const remote = await startAsking(t, FORM, "q1");
  const agent = freshAgent(worker);
  await agent.add({ id: "ask", name: "Asker", url: remote.url, transport: { headers: { authorization: "Bearer t-1" } } });
  const start = Date.now();
  const call = agent.call("ask", "echo", {});
  const [question] = await questions(agent, 1);
  assert.deepEqual([question.serverId, question.serverName, question.mode], ["ask", "Asker", "form"]);
  assert.equal(question.message, FORM.message);
  assert.equal(JSON.stringify(question.requestedSchema), JSON.stringify(FORM.requestedSchema));
  await until("twice the request timeout to pass", () => Date.now() - start > 2 * TIMEOUT_MS);
  assert.equal((await answer(agent, question.id, { action: "accept", content: { z: "Ada" } })).status, 200);
  assert.deepEqual(said(await call), { action: "accept", content: { z: "Ada", a: "x" } });
  const sent = remote.log.find(({ message }) => message?.id === "q1");
  assert.equal(sent.headers.authorization, "Bearer t-1");
  assert.ok(sent.headers["mcp-session-id"]);
});

test("EL-07 a dangerous page is not shown, and a strange one is shown with its real host", async (t) => {
  const agent = freshAgent(worker);
  const cases = [
    ["javascript:alert(1)"],
    ["file:///etc/passwd"],
    ["/relative"],
    [""],
    ["http://user:pw@bank.example.evil.example/", "bank.example.evil.example"],
    ["https://xn--pypal-4ve.example/", "xn--pypal-4ve.example"],
  ];
  for (const [number, [url, host]] of cases.entries()) {
    const remote = await startAsking(t, { mode: "url", message: "Visit", url, elicitationId: "e" });
    const id = `s${number}`;
    await agent.add({ id, name: id, url: remote.url });
    const call = agent.call(id, "echo", {});
    if (host) {
      const [question] = await questions(agent, 1);
      assert.deepEqual([question.mode, question.url, question.host], ["url", url, host]);
      assert.equal((await answer(agent, question.id, { action: "decline" })).status, 200);
      assert.deepEqual(said(await call), { action: "decline" });
    } else {
      assert.equal(said(await call).code, -32602, url);
    }
  }
});

test("EL-11 the first valid answer wins, and later ones are told so", async (t) => {
  const remote = await startAsking(t, FORM, 7);
  const agent = freshAgent(worker);
  await agent.add({ id: "ask", name: "Asker", url: remote.url });
  const call = agent.call("ask", "echo", {});
  const [{ id }] = await questions(agent, 1);
  for (const content of [{}, { z: 5 }, { z: "x" }, { z: "Ada", a: "q" }]) {
    assertProblem(await answer(agent, id, { action: "accept", content }), 422);
  }
  assertProblem(await answer(agent, id, { action: "maybe" }), 422);
  const twice = await Promise.all([
    answer(agent, id, { action: "accept", content: { z: "Ada" } }),
    answer(agent, id, { action: "decline" }),
  ]);
  assert.deepEqual(twice.map(({ status }) => status).sort(), [200, 409]);
  await call;
  assertProblem(await answer(agent, id, { action: "decline" }), 409, /no longer open/);
  assertProblem(await answer(agent, "unheard-of", { action: "decline" }), 409, /no longer open/);
  assert.equal(remote.log.filter(({ message }) => message?.id === 7 && !message.method).length, 1);
});

test("EL-11 a question is over when the server withdraws it, and when its call fails", async (t) => {
  const call = ({ name }, talk) => {
    talk.ask("elicitation/create", FORM, "q");
    if (name === "withdraw") talk.notify("notifications/cancelled", { requestId: "q" });
    return new Promise(() => {});
  };
  const tools = ["withdraw", "hang"].map((name) => ({ name, inputSchema: { type: "object" } }));
  const remote = await startTalkingServer({ call, tools, events: true });
  t.after(() => remote.close());
  const agent = freshAgent(worker);
  await agent.add({ id: "ask", name: "Asker", url: remote.url });
  assertProblem(await agent.tryCall("ask", "withdraw", {}), 504);
  const body = { serverId: "ask", name: "hang", arguments: {}, maxTimeMs: 1_000 };
  const failed = agent.request("POST", "tools/call", body);
  const [{ id }] = await questions(agent, 1);
  assertProblem(await failed, 504);
  await questions(agent, 0);
  assertProblem(await answer(agent, id, { action: "decline" }), 409);
  assert.deepEqual(
    remote.log.filter(({ message }) => message?.id === "q"),
    [],
    "the server got no answer",
  );
  assert.equal((await agent.server("ask")).state, "ready");
});

test("EL-13 two servers ask at once with the same id, and each gets its own answer", async (t) => {
  const agent = freshAgent(worker);
  const calls = [];
  for (const id of ["a", "b"]) {
    const remote = await startAsking(t, FORM, 1);
    await agent.add({ id, name: `Server ${id}`, url: remote.url });
    calls.push(agent.call(id, "echo", {}));
  }
  const open = await questions(agent, 2);
  assert.deepEqual(open.map(({ serverName }) => serverName).sort(), ["Server a", "Server b"]);
  for (const { id, serverId } of open.reverse()) {
    const { status } = await answer(agent, id, { action: "accept", content: { z: `for ${serverId}` } });
    assert.equal(status, 200);
  }
  const [a, b] = (await Promise.all(calls)).map((result) => said(result).content.z);
  assert.deepEqual([a, b], ["for a", "for b"]);
});

test("EL-09 a session that is taken up after a wake still answers questions", async (t) => {
  const remote = await startAsking(t, FORM, "q");
  const agent = freshAgent(worker);
  await agent.add({ id: "ask", name: "Asker", url: remote.url });
  await worker.evict("ToolAgent", agent.name);
  const call = agent.call("ask", "echo", {});
  const [{ id }] = await questions(agent, 1);
  assert.equal((await answer(agent, id, { action: "cancel" })).status, 200);
  assert.deepEqual(said(await call), { action: "cancel" });
  assert.equal(remote.count("initialize"), 1);
  const { capabilities } = remote.log.find(({ rpc }) => rpc === "initialize").message.params;
  assert.deepEqual(capabilities.elicitation, { form: {}, url: {} });
});
