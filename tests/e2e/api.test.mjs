// The JSON API beyond the happy path: what it refuses, what it leaves alone, what it passes on.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { assertProblem, freshAgent, readAnswer } from "./support/api.mjs";
import { neverAnswers, only } from "./support/faults.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { timed, until } from "./support/until.mjs";
import { startToolAgent } from "./support/worker.mjs";

let worker;
let remote;
before(async () => {
  worker = await startToolAgent();
  remote = await startScriptedServer();
});
after(() => Promise.all([worker?.dispose(), remote?.close()]));

describe("registering", () => {
  const refused = {
    "no body": undefined,
    "no address": { name: "x" },
    "no name": { url: "http://127.0.0.1:1/mcp" },
    "a name that is no text": { name: 7, url: "http://127.0.0.1:1/mcp" },
    "an address that is none": { name: "x", url: "not a url" },
    "an empty address": { name: "x", url: "" },
    "a retry policy without attempts": { name: "x", url: "http://127.0.0.1:1/mcp", retry: { maxAttempts: 0 } },
    "delays the wrong way round": {
      name: "x",
      url: "http://127.0.0.1:1/mcp",
      retry: { baseDelayMs: 1000, maxDelayMs: 10 },
    },
    "a header with a line break": {
      name: "x",
      url: "http://127.0.0.1:1/mcp",
      transport: { headers: { "x-a": "1\r\nx-b: 2" } },
    },
    "a list": [],
  };
  for (const [name, body] of Object.entries(refused)) {
    test(`${name} is refused, and nothing is stored`, async () => {
      const agent = freshAgent(worker);
      assertProblem(await agent.tryAdd(body), [400, 422]);
      assert.deepEqual((await agent.get("servers")).servers, []);
    });
  }

  test("adding again replaces what is said, and keeps what is not", async () => {
    const agent = freshAgent(worker);
    const server = { id: "kept", name: "Kept", url: remote.url };
    const seen = () => remote.log.at(-1).headers["x-key"];
    await agent.add({ ...server, transport: { headers: { "x-key": "1" } } });
    for (const more of [{}, { retry: { maxAttempts: 2 } }]) {
      await agent.add({ ...server, ...more });
      await agent.call("kept", "echo", {});
      assert.equal(seen(), "1", JSON.stringify(more));
    }
    await agent.add({ ...server, transport: {} });
    await agent.call("kept", "echo", {});
    assert.equal(seen(), undefined);
  });

  test("a body that is not JSON is refused", async () => {
    const agent = freshAgent(worker);
    const init = { method: "POST", headers: { "content-type": "application/json" }, body: '{"name":' };
    assertProblem(await readAnswer(await worker.fetch(`${agent.base}servers`, init)), 400);
  });

  test("a body of more than a megabyte is refused", async () => {
    const name = "x".repeat(1 << 21);
    assertProblem(await freshAgent(worker).tryAdd({ name, url: remote.url }), 413);
  });

  for (const url of [
    "http://10.0.0.1/mcp",
    "http://192.168.1.1/mcp",
    "http://169.254.169.254/latest/meta-data",
    "http://0x0a000001/mcp",
    "http://[fd00::1]/mcp",
    "http://[::ffff:10.0.0.1]/mcp",
    "http://metadata.google.internal/",
    "file:///etc/passwd",
    "javascript:alert(1)",
  ]) {
    test(`the address ${url} is blocked, and nothing is stored`, async () => {
      const agent = freshAgent(worker);
      assertProblem(await agent.tryAdd({ id: "x", name: "x", url }), 422);
      assert.deepEqual((await agent.get("servers")).servers, []);
    });
  }

  test("without an id makes one up, a new one each time", async () => {
    const agent = freshAgent(worker);
    const first = await agent.add({ name: "Notes", url: remote.url });
    const second = await agent.add({ name: "Others", url: `${remote.url}?other` });
    assert.ok(first.id && second.id && first.id !== second.id);
    assert.equal((await agent.get("servers")).servers.length, 2);
  });

  test("an id that another server has is refused, and that server stays as it is", async () => {
    const agent = freshAgent(worker);
    await agent.add({ id: "notes", name: "Notes", url: remote.url });
    assertProblem(await agent.tryAdd({ id: "notes", name: "Others", url: `${remote.url}?other` }), 409);
    const server = await agent.server("notes");
    assert.deepEqual([server.name, server.url, server.state], ["Notes", remote.url, "ready"]);
    await agent.call("notes", "echo", {});
  });

  test("adding the same server again, or twice at once, means the one that is there", async () => {
    const agent = freshAgent(worker);
    const server = { id: "notes", name: "Notes", url: remote.url };
    const [one, two] = await Promise.all([agent.add(server), agent.add(server)]);
    assert.deepEqual([one.id, two.id], ["notes", "notes"]);
    await agent.add(server);
    assert.equal((await agent.get("servers")).servers.length, 1);
  });

  test("the same id twice at the same time stores one server", async () => {
    const agent = freshAgent(worker);
    const adding = ["one", "two"].map((name) => agent.tryAdd({ id: "same", name, url: `${remote.url}?${name}` }));
    const statuses = (await Promise.all(adding)).map((answer) => answer.status).sort();
    assert.deepEqual(statuses, [201, 409]);
    assert.equal((await agent.get("servers")).servers.length, 1);
  });
});

describe("one server", () => {
  test("is shown, and is 404 when there is none", async () => {
    const agent = freshAgent(worker);
    await agent.add({ id: "notes", name: "Notes", url: remote.url });
    const shown = await agent.get("servers/notes");
    assert.deepEqual(shown, await agent.server("notes"));
    for (const [method, path] of [
      ["GET", "servers/none"],
      ["DELETE", "servers/none"],
      ["POST", "servers/none/reconnect"],
      ["POST", "servers/none/close"],
    ]) {
      assertProblem(await agent.request(method, path), 404);
    }
  });

  test("never shows the values of its headers", async () => {
    const agent = freshAgent(worker);
    const transport = { headers: { authorization: "Bearer s3cret" } };
    await agent.add({ id: "notes", name: "Notes", url: remote.url, transport });
    assert.doesNotMatch(JSON.stringify(await agent.get("servers")), /s3cret/);
  });

  test("is closed with its session, stays stored, and reconnects", async () => {
    const agent = freshAgent(worker);
    await agent.add({ id: "notes", name: "Notes", url: remote.url });
    remote.takeLog();
    const closed = await agent.post("servers/notes/close");
    assert.deepEqual([closed.id, closed.state], ["notes", "not-connected"]);
    assert.equal((await agent.server("notes")).state, "not-connected");
    assert.equal((await agent.post("servers/notes/close")).state, "not-connected", "closing twice changes nothing");
    await until("the session to be ended", () => remote.requests.includes("DELETE"));
    assertProblem(await agent.tryCall("notes", "echo", {}), [409, 502]);
    assert.equal((await agent.post("servers/notes/reconnect")).state, "ready");
    await agent.call("notes", "echo", {});
  });

  test("is removed with its session and its catalogue", async () => {
    const agent = freshAgent(worker);
    await agent.add({ id: "notes", name: "Notes", url: remote.url });
    remote.takeLog();
    await agent.remove("notes");
    assert.deepEqual((await agent.get("servers")).servers, []);
    assert.deepEqual((await agent.get("tools")).tools, []);
    await until("the session to be ended", () => remote.requests.includes("DELETE"));
    assertProblem(await agent.tryCall("notes", "echo", {}), 404);
  });

  test("uses one session for all its requests", async () => {
    const agent = freshAgent(worker);
    remote.takeLog();
    await agent.add({ id: "notes", name: "Notes", url: remote.url });
    await agent.call("notes", "echo", {});
    const sessions = new Set(remote.log.filter((entry) => entry.session).map((entry) => entry.session));
    assert.equal(sessions.size, 1);
    const versions = remote.log.filter((entry) => entry.rpc === "tools/call");
    assert.equal(versions[0].headers["mcp-protocol-version"], "2025-11-25");
  });
});

describe("calling", () => {
  let agent;
  before(async () => {
    agent = freshAgent(worker);
    await agent.add({ id: "notes", name: "Notes", url: remote.url });
  });

  const routes = [
    ["tools/call", { name: "echo" }],
    ["prompts/get", { name: "greet" }],
    ["resources/read", { uri: "note://1" }],
  ];
  for (const [route, body] of routes) {
    test(`${route} on an unknown server is 404`, async () => {
      assertProblem(await agent.request("POST", route, { ...body, serverId: "none" }), 404);
    });

    test(`${route} with a body that misses something is refused`, async () => {
      for (const bad of [undefined, {}, body, { serverId: "notes" }, { ...body, serverId: 7 }, []]) {
        assertProblem(await agent.request("POST", route, bad), [400, 422]);
      }
    });
  }

  test("arguments must be an object, and may be left out", async () => {
    for (const args of ["text", [1], 7]) {
      assertProblem(await agent.tryCall("notes", "echo", args), [400, 422]);
    }
    assert.deepEqual((await agent.call("notes", "echo")).content[0].text, "{}");
  });

  test("on a session that the server has lost starts a new one, and carries the call out once", async (t) => {
    const forgetful = await startScriptedServer();
    t.after(() => forgetful.close());
    await agent.add({ id: "forgetful", name: "Forgetful", url: forgetful.url });
    forgetful.forgetSessions();
    assert.equal((await agent.call("forgetful", "echo", { n: 1 })).content[0].text, '{"n":1}');
    const done = forgetful.log.filter((entry) => entry.rpc === "tools/call" && entry.status === 200);
    assert.equal(done.length, 1);
  });

  test("passes results on as they came, unknown members included", async (t) => {
    const odd = {
      content: [
        { type: "hologram", data: [1, { deep: null }] },
        { type: "text", text: "", annotations: { x: 1 } },
      ],
      structuredContent: { float: 1.5, big: 9007199254740991, empty: {}, none: null },
      _meta: { "example.com/x": true },
      future: ["x"],
    };
    const strange = await startScriptedServer({ answers: { "tools/call": () => odd } });
    t.after(() => strange.close());
    await agent.add({ id: "strange", name: "Strange", url: strange.url });
    assert.deepEqual(await agent.call("strange", "any", {}), odd);
  });

  test("passes arguments on as they came", async () => {
    const args = {
      text: "é\u0000🎉",
      list: [1, 2.5, -0.25, 1e21],
      deep: { none: null },
      "": "empty key",
      __proto: 1,
    };
    assert.deepEqual(JSON.parse((await agent.call("notes", "echo", args)).content[0].text), args);
  });

  test("many calls at a time each get their own answer", async () => {
    const numbers = Array.from({ length: 30 }, (_, n) => n);
    const answers = await Promise.all(numbers.map((n) => agent.call("notes", "echo", { n })));
    assert.deepEqual(
      answers.map((answer) => JSON.parse(answer.content[0].text).n),
      numbers,
    );
    const ids = remote.log
      .filter((entry) => entry.rpc === "tools/call")
      .map(({ session, message }) => `${session} ${message.id}`);
    assert.equal(new Set(ids).size, ids.length, "no request id is used twice in a session");
  });
});

test("a list waits for servers that are still connecting, and no longer than asked", async (t) => {
  const agent = freshAgent(worker);
  const slow = await startScriptedServer();
  t.after(() => slow.close());
  await agent.add({ id: "slow", name: "Slow", url: slow.url });
  slow.intercept = only("tools/list", neverAnswers);
  slow.forgetSessions();
  await worker.evict("ToolAgent", agent.name);
  const { ms } = await timed(() => agent.get("tools?wait=300"));
  assert.ok(ms >= 250 && ms < 5_000, `waited ${ms} ms`);
  const { ms: none } = await timed(() => agent.get("tools?wait=0"));
  assert.ok(none < 250, `waited ${none} ms`);
  for (const wait of ["x", "-1"]) assertProblem(await agent.request("GET", `tools?wait=${wait}`), [400, 422]);
});
