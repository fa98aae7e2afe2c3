// What servers begin: they say that a list has changed, and ask the user in the middle of a call.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Agent, freshAgent } from "./support/api.mjs";
import { LIBRARIES, TOOLS } from "./support/libraries.mjs";
import { startEverythingServer, startPythonServer } from "./support/real-servers.mjs";
import { until } from "./support/until.mjs";
import { startToolAgent } from "./support/worker.mjs";

let worker;
before(async () => (worker = await startToolAgent()));
after(() => worker?.dispose());

const OVER_SSE = {
  name: "the Python SDK 1.x, over SSE",
  start: (options) => startPythonServer("v1", options),
  path: "/sse",
};

/** A call that somebody has to answer a question for: `{ question, answer }`, the latter still to come. */
async function callThatAsks(agent, serverId, tool, args) {
  const answer = agent.tryCall(serverId, tool, args);
  // Whoever fails before it awaits this has said so already.
  answer.catch(() => {});
  const question = await until("the question", async () => {
    const { elicitations } = await agent.get("elicitations");
    return elicitations.find((elicitation) => elicitation.serverId === serverId);
  });
  return { question, answer };
}

const reply = (agent, { id }, body) => agent.request("POST", `elicitations/${id}`, body);
const open = async (agent) => (await agent.get("elicitations")).elicitations;

async function assertAnswered(answer, text) {
  const { status, body } = await answer;
  assert.equal(status, 200, JSON.stringify(body));
  assert.equal(body.content[0].text, text);
}

for (const [index, { name, start, path }] of [...LIBRARIES, OVER_SSE].entries()) {
  describe(`a server on ${name}`, () => {
    let remote;
    let agent;
    const serverId = "library";
    before(async () => {
      remote = await start();
      agent = new Agent(worker, `server-sent-${index}`);
      await agent.add({ id: serverId, name: "Library", url: remote.origin + path });
    });
    after(() => remote?.stop());

    const learn = async (name) => {
      await agent.call(serverId, "learn", { name });
      await until(`the tool ${name}`, async () => (await agent.get("tools")).tools.some((tool) => tool.name === name));
    };

    test("says that its tools have changed, and the new one is listed and called without a refresh", async () => {
      await learn("dance");
      const { tools } = await agent.get("tools");
      assert.deepEqual(tools.map((tool) => tool.name).sort(), [...TOOLS, "dance"].sort());
      assert.equal((await agent.server(serverId)).counts.tools, TOOLS.length + 1);
      assert.equal((await agent.call(serverId, "dance", {})).content[0].text, "dance works");
    });

    test("is heard again after workerd was killed", async () => {
      await worker.restart();
      await learn("sing");
      assert.equal((await agent.call(serverId, "sing", {})).content[0].text, "sing works");
    });

    test("asks in the middle of a call, refuses what breaks its schema, and goes on with the answer", async () => {
      const { question, answer } = await callThatAsks(agent, serverId, "reserve", { title: "Emma" });
      assert.equal(typeof question.id, "string");
      assert.equal(question.serverName, "Library");
      assert.equal(question.mode, "form");
      assert.equal(question.message, "For how many days do you want Emma?");
      assert.equal(question.requestedSchema.properties.days.type, "integer");
      assert.deepEqual(question.requestedSchema.required, ["days"]);

      for (const content of [{}, { days: "seven" }, { days: 1.5 }]) {
        const refused = await reply(agent, question, { action: "accept", content });
        assert.equal(refused.status, 422, JSON.stringify(content));
      }
      assert.equal((await reply(agent, question, { action: "accept", content: { days: 7 } })).status, 200);
      await assertAnswered(answer, "Emma is yours for 7 days");
      assert.deepEqual(await open(agent), []);
      assert.equal((await reply(agent, question, { action: "accept", content: { days: 7 } })).status, 409);
    });

    for (const action of ["decline", "cancel"]) {
      test(`takes a ${action} for an answer`, async () => {
        const { question, answer } = await callThatAsks(agent, serverId, "reserve", { title: "Ulysses" });
        assert.equal((await reply(agent, question, { action })).status, 200);
        await assertAnswered(answer, "Ulysses stays here");
        assert.deepEqual(await open(agent), []);
      });
    }

    test("two questions at a time each get their own answer", async () => {
      const titles = ["Emma", "Ulysses"];
      const answers = titles.map((title) => agent.tryCall(serverId, "reserve", { title }));
      for (const answer of answers) answer.catch(() => {});
      const questions = await until("both questions", async () => {
        const elicitations = await open(agent);
        return elicitations.length === 2 && elicitations;
      });
      for (const question of questions) {
        const days = question.message.includes("Emma") ? 3 : 5;
        assert.equal((await reply(agent, question, { action: "accept", content: { days } })).status, 200);
      }
      await assertAnswered(answers[0], "Emma is yours for 3 days");
      await assertAnswered(answers[1], "Ulysses is yours for 5 days");
    });
  });
}

describe("server-everything, which offers tools that ask to those who can be asked", () => {
  let remote;
  let agent;
  const serverId = "everything";
  before(async () => {
    remote = await startEverythingServer();
    agent = freshAgent(worker);
    await agent.add({ id: serverId, name: "Everything", url: remote.url });
  });
  after(() => remote?.stop());

  test("asks by form", async () => {
    const tool = "trigger-elicitation-request";
    // It offers the tool only once it knows what we can do.
    await until("the tool", async () => (await agent.get("tools")).tools.some(({ name }) => name === tool));
    const { question, answer } = await callThatAsks(agent, serverId, tool, {});
    assert.equal(question.mode, "form");
    assert.ok(question.requestedSchema.required.includes("name"));
    const content = { name: "Ada", check: true, integer: 42, email: "ada@example.org" };
    const accepted = await reply(agent, question, { action: "accept", content });
    assert.equal(accepted.status, 200, JSON.stringify(accepted.body));
    const { status, body } = await answer;
    assert.equal(status, 200);
    assert.match(body.content.map(({ text }) => text).join("\n"), /Ada/);
  });

  test("asks for a visit to a page, which answers with consent alone", async () => {
    const tool = "trigger-url-elicitation";
    await until("the tool", async () => (await agent.get("tools")).tools.some(({ name }) => name === tool));
    const page = { url: "https://example.com/consent?of=you", message: "Please agree" };
    const { question, answer } = await callThatAsks(agent, serverId, tool, page);
    assert.equal(question.mode, "url");
    assert.equal(question.url, page.url);
    assert.equal(question.message, page.message);
    assert.equal((await reply(agent, question, { action: "accept" })).status, 200);
    const { status, body } = await answer;
    assert.equal(status, 200);
    assert.match(JSON.stringify(body.content), /accept/);
  });
});
