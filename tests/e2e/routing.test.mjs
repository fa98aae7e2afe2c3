// Which request reaches which object, and what an object gets to see.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Agent, assertProblem, readAnswer } from "./support/api.mjs";
import { rawRequest } from "./support/raw-http.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { startToolAgent, startWorker } from "./support/worker.mjs";

// Names of different objects.
const NAMES = [
  "plain",
  "Plain",
  "u1/s1",
  "u1/s2",
  "u1",
  "u1%2Fs1",
  "a b",
  "a%20b",
  "a+b",
  "a-b",
  "a.b",
  "a\\b",
  "a?b#c",
  "名前",
  "\u00e9",
  "e\u0301",
  "🎉",
  "%",
  "%2e%2e",
  "...",
  "a\0b",
  "<script>\"'&",
  "__proto__",
  "x".repeat(1000),
  "é".repeat(512),
];

// Segments that name nothing, and what is said about them.
const BAD_NAMES = [
  ["%", /percent-encoded/],
  ["a%2", /percent-encoded/],
  ["%zz", /percent-encoded/],
  ["%FF", /UTF-8/],
  ["%C0%AF", /UTF-8/],
  ["%ED%A0%80", /UTF-8/],
  ["x".repeat(1025), /1,024 bytes/],
  ["%C3%A9".repeat(513), /1,024 bytes/],
];

const shown = (name) => (name.length > 20 ? `${name.slice(0, 6)}… of ${name.length} characters` : name);

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

  test("RT-02 gives every name an object of its own, whatever is in it", async (t) => {
    const remote = await startScriptedServer();
    t.after(() => remote.close());
    const agents = NAMES.map((name) => new Agent(worker, encodeURIComponent(name)));
    const objectsBefore = (await worker.objectIds("ToolAgent")).length;
    for (const [n, agent] of agents.entries()) {
      await agent.add({ id: `server-${n}`, name: "Notes", url: remote.url });
    }
    for (const [n, agent] of agents.entries()) {
      const { servers } = await agent.get("servers");
      assert.deepEqual(
        servers.map((server) => server.id),
        [`server-${n}`],
        agent.name,
      );
    }
    assert.equal((await worker.objectIds("ToolAgent")).length - objectsBefore, NAMES.length);
  });

  test("RT-02 takes two ways to write a name for one name", async (t) => {
    const remote = await startScriptedServer();
    t.after(() => remote.close());
    await new Agent(worker, "spelt%2Fso").add({ id: "notes", name: "Notes", url: remote.url });
    for (const name of ["spelt%2fso", "%73pelt%2fso", "spelt%2Fs%6F"]) {
      assert.equal((await new Agent(worker, name).server("notes"))?.id, "notes", name);
    }
  });

  for (const [name, why] of BAD_NAMES) {
    test(`RT-02 refuses the name ${shown(name)} with a 400 problem`, async () => {
      const { status, headers, text } = await rawRequest(worker, `/agents/tool-agent/${name}/servers`);
      const answer = { status, type: headers["content-type"], body: JSON.parse(text) };
      assertProblem(answer, 400, why);
    });
  }

  // `.` and `..` never come here: URL parsers resolve them, percent-encoded or not.
  for (const dots of ["..", "%2e%2e", "%2E."]) {
    test(`RT-02 has no object named ${dots}`, async () => {
      const objectsBefore = (await worker.objectIds("ToolAgent")).length;
      const { status } = await rawRequest(worker, `/agents/tool-agent/${dots}/servers`);
      assert.equal(status, 404);
      assert.equal((await worker.objectIds("ToolAgent")).length, objectsBefore);
    });
  }

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
  before(async () => (worker = await startWorker({ build: "build/test-worker", objects: { Fixture: "Fixture", Planner: "Planner" } })));
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

  test("RT-02 has the name that the address gives, decoded once", async () => {
    for (const name of NAMES) {
      const { body } = await readAnswer(await worker.fetch(`/agents/fixture/${encodeURIComponent(name)}/headers`));
      assert.equal(body.name, name);
    }
    const { body } = await readAnswer(await worker.fetch("/agents/fixture/a%2520b/headers"));
    assert.equal(body.name, "a%20b");
  });

  test("RT-02 is the one that a WebSocket of that address reaches", async () => {
    const reached = NAMES.map(
      (name) =>
        new Promise((resolve, reject) => {
          const path = `/agents/planner/${encodeURIComponent(name)}/socket`;
          const socket = new WebSocket(new URL(path, worker.origin.replace("http", "ws")));
          socket.addEventListener("open", () => socket.send("name"));
          socket.addEventListener("error", () => reject(new Error(`no WebSocket at ${path}`)));
          socket.addEventListener("message", ({ data }) => {
            socket.close();
            resolve(data);
          });
        }),
    );
    assert.deepEqual(await Promise.all(reached), NAMES);
  });
});
