// Which request reaches which object, and what an object gets to see.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Agent, assertProblem, readAnswer } from "./support/api.mjs";
import { rawRequest } from "./support/raw-http.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { startToolAgent, startWorker } from "./support/worker.mjs";

describe("the ready-made Worker", () => {
  let worker;
  before(async () => (worker = await startToolAgent()));
  after(() => worker?.dispose());

  const notFound = [
    "/agents/unknown-class/x/servers",
    "/agents/ToolAgent/x/servers",
    "/agents/TOOL-AGENT/x/servers",
    "/agents/tool-agent",
    "/agents/tool-agent/",
    "/agents",
    "/agents/",
    "/agent/tool-agent/x/servers",
    "/nothing",
    "/agents/tool-agent/x/nothing",
    "/agents/tool-agent/x/servers/none/nothing",
  ];
  for (const path of notFound) {
    test(`answers ${path} with a 404 problem`, async () => {
      assertProblem(await readAnswer(await worker.fetch(path)), 404);
    });
  }

  test("takes empty path segments for nothing", async () => {
    const { status } = await rawRequest(worker, "/agents///tool-agent//x//servers");
    assert.equal(status, 200);
  });

  test("gives every name an object of its own, percent signs and capitals included", async (t) => {
    const remote = await startScriptedServer();
    t.after(() => remote.close());
    const names = [
      "plain",
      "Plain",
      "a%20b",
      "a+b",
      "a-b",
      "a%2Fb",
      "a%2fb",
      "%C3%BC",
      "%F0%9F%8E%89",
      "a.b",
      "__proto__",
    ];
    const agents = names.map((name) => new Agent(worker, name));
    const objectsBefore = (await worker.objectIds("ToolAgent")).length;
    for (const [n, agent] of agents.entries()) {
      await agent.add({ id: `server-${n}`, name: agent.name, url: remote.url });
    }
    for (const [n, agent] of agents.entries()) {
      const { servers } = await agent.get("servers");
      assert.deepEqual(
        servers.map((server) => server.id),
        [`server-${n}`],
        agent.name,
      );
    }
    assert.equal((await worker.objectIds("ToolAgent")).length - objectsBefore, names.length);
  });

  test("refuses methods that a route does not have, and says which it has", async () => {
    const agent = new Agent(worker, "methods");
    const answer = await agent.request("PUT", "servers");
    assertProblem(answer, 405);
    assert.match(answer.headers.get("allow"), /GET/);
    assertProblem(await agent.request("GET", "tools/call"), 405);
  });
});

describe("an object of another Worker that uses the library", () => {
  let worker;
  before(async () => (worker = await startWorker({ build: "build/test-worker", objects: { Fixture: "Fixture" } })));
  after(() => worker?.dispose());

  test("does not see the internal header when it comes from outside", async () => {
    const plain = '{"admin":true}';
    for (const value of [plain, Buffer.from(plain).toString("base64"), "nonsense"]) {
      const headers = { "X-Agents-Lifecycle-Props": value, "x-mine": "kept" };
      const answer = await readAnswer(await worker.fetch("/agents/fixture/headers-test/headers", { headers }));
      assert.equal(answer.status, 200);
      const { headers: seen } = answer.body;
      assert.equal(seen["x-mine"], "kept");
      assert.deepEqual(
        Object.keys(seen).filter((name) => name.startsWith("x-agents-")),
        [],
      );
    }
  });

  test("has the name that the address gives, letter for letter", async () => {
    for (const name of ["plain", "a%20b", "%C3%BC", "A.b"]) {
      const { body } = await readAnswer(await worker.fetch(`/agents/fixture/${name}/headers`));
      assert.equal(body.name, name);
    }
  });
});
