// Who may use the Worker: the holder of the token; without a token nobody, except locally where that was asked for.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Agent, assertProblem, readAnswer } from "./support/api.mjs";
import { rawRequest } from "./support/raw-http.mjs";
import { startWorker } from "./support/worker.mjs";

const TOKEN = "correct-horse-battery-staple";
const LIST = "/agents/tool-agent/gate/servers";

let worker;
before(async () => (worker = await startWorker()));
after(() => worker?.dispose());

const ask = async (headers = {}, path = LIST) => readAnswer(await worker.fetch(path, { headers }));

/** A request as any client could forge it. */
async function rawAsk(headers) {
  const { status, headers: answered, text } = await rawRequest(worker, LIST, { headers });
  const type = (answered["content-type"] ?? "").split(";")[0];
  return { status, type, body: type.endsWith("json") ? JSON.parse(text) : text };
}

describe("with neither a secret nor permission to go without", () => {
  for (const vars of [
    {},
    { AGENT_TOKEN: "" },
    { ALLOW_INSECURE_LOCAL: "0" },
    { ALLOW_INSECURE_LOCAL: "false" },
    { ALLOW_INSECURE_LOCAL: "" },
  ]) {
    test(`${JSON.stringify(vars)} is closed with 503 and says how to open it`, async () => {
      await worker.restart({ vars });
      for (const headers of [{}, { authorization: "Bearer " }, { authorization: "Bearer undefined" }]) {
        const problem = assertProblem(await ask(headers), 503);
        assert.match(problem.detail, /npx wrangler secret put AGENT_TOKEN/);
      }
    });
  }

  test("the page and the health check answer all the same", async () => {
    assert.equal((await worker.fetch("/")).status, 200);
    const health = await worker.fetch("/healthz");
    assert.deepEqual([health.status, await health.text()], [200, "ok"]);
  });

  test("no object is touched", async () => {
    assert.deepEqual(await worker.objectIds("ToolAgent"), []);
  });
});

describe("with a token", () => {
  before(() => worker.restart({ vars: { AGENT_TOKEN: TOKEN, ALLOW_INSECURE_LOCAL: "1" } }));

  const refused = {
    "no token": {},
    "a wrong token": { authorization: `Bearer ${"x".repeat(TOKEN.length)}` },
    "the beginning of the token": { authorization: `Bearer ${TOKEN.slice(0, -1)}` },
    "the token and more": { authorization: `Bearer ${TOKEN}x` },
    "the token in capitals": { authorization: `Bearer ${TOKEN.toUpperCase()}` },
    "an empty token": { authorization: "Bearer " },
    "the token under another scheme": { authorization: `Basic ${TOKEN}` },
    "the token without a scheme": { authorization: TOKEN },
  };
  for (const [name, headers] of Object.entries(refused)) {
    test(`${name} is refused with 401, even where going without would be allowed`, async () => {
      const answer = await ask(headers);
      assertProblem(answer, 401);
      assert.match(answer.headers.get("www-authenticate"), /^Bearer/);
    });
  }

  test("a token in the address is refused", async () => {
    assertProblem(await ask({}, `${LIST}?token=${TOKEN}&access_token=${TOKEN}`), 401);
  });

  test("every route of an object is behind the gate", async () => {
    const routes = [
      ["GET", "servers"],
      ["POST", "servers"],
      ["DELETE", "servers/x"],
      ["GET", "tools"],
      ["POST", "tools/call"],
      ["GET", "nothing-here"],
      ["OPTIONS", "servers"],
    ];
    const agent = new Agent(worker, "gate");
    for (const [method, path] of routes) {
      assert.equal((await agent.request(method, path)).status, 401, `${method} ${path}`);
    }
    assertProblem(await ask({}, "/agents/unknown-class/x/"), [401, 404]);
  });

  test("no object is touched before the token is right", async () => {
    assert.deepEqual(await worker.objectIds("ToolAgent"), []);
  });

  test("the right token opens, whatever the case of the scheme's name", async () => {
    assert.equal((await ask({ authorization: `Bearer ${TOKEN}` })).status, 200);
    assert.equal((await ask({ authorization: `bearer ${TOKEN}` })).status, 200);
  });

  test("the right token opens for any host and any origin", async () => {
    const headers = {
      host: "agents.example.com",
      origin: "https://elsewhere.example",
      authorization: `Bearer ${TOKEN}`,
    };
    assert.equal((await rawAsk(headers)).status, 200);
  });

  test("no token, right or wrong, comes back in an answer or goes to the log", async () => {
    const guess = "guess-0123456789";
    for (const token of [TOKEN, guess]) {
      for (const path of [LIST, "/agents/tool-agent/gate/nothing-here", "/agents/unknown-class/x/"]) {
        const { body, headers } = await ask({ authorization: `Bearer ${token}` }, path);
        const everything = JSON.stringify([body, ...headers]);
        assert.ok(!everything.includes(TOKEN) && !everything.includes(guess), everything);
      }
    }
    assert.ok(!worker.output.includes(TOKEN) && !worker.output.includes(guess), worker.output);
  });
});

describe("where going without a token is allowed", () => {
  before(() => worker.restart({ vars: { ALLOW_INSECURE_LOCAL: "1" } }));

  for (const host of ["127.0.0.1:8787", "localhost:8787", "localhost", "[::1]:8787"]) {
    test(`the loopback host ${host} is open`, async () => {
      assert.equal((await rawAsk({ host })).status, 200);
    });

    test(`a page of the same origin, http://${host}, is served`, async () => {
      assert.equal((await rawAsk({ host, origin: `http://${host}` })).status, 200);
    });
  }

  for (const host of [
    "agents.example.com",
    "localhost.example.com",
    "127.0.0.1.nip.io",
    "10.0.0.1",
    "0.0.0.0:8787",
  ]) {
    test(`the host ${host} is refused`, async () => {
      assertProblem(await rawAsk({ host }), 403);
    });
  }

  for (const origin of ["https://evil.example", "http://localhost:9999", "http://localhost.evil.example", "null"]) {
    test(`a page of the origin ${origin} is refused`, async () => {
      assertProblem(await rawAsk({ host: "localhost:8787", origin }), 403);
    });
  }
});
