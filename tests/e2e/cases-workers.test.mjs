// Cases from public bug reports about what Workers and Wasm cannot do, or not without end.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { assertProblem, freshAgent } from "./support/api.mjs";
import { freePort, signingAgent } from "./support/auth-agent.mjs";
import { startProtected } from "./support/auth-server.mjs";
import { only } from "./support/faults.mjs";
import { inRoot } from "./support/paths.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { quiet, startTalkingServer } from "./support/talking-server.mjs";
import { timed, until } from "./support/until.mjs";
import { startToolAgent, startWorker } from "./support/worker.mjs";

let worker;
before(async () => (worker = await startToolAgent({ REQUEST_TIMEOUT_MS: "10000", MAX_RESPONSE_BYTES: "2000000" })));
after(() => worker?.dispose());

async function startTalking(t, options) {
  const remote = await startTalkingServer(options);
  t.after(() => remote.close());
  return remote;
}

async function startScripted(t) {
  const remote = await startScriptedServer();
  t.after(() => remote.close());
  return remote;
}

describe("WK-02 no code is generated from strings", () => {
  const object = (properties, more = {}) => ({ type: "object", properties, required: Object.keys(properties), ...more });
  const OUTPUTS = {
    plain: [object({ a: { type: "string", pattern: "^[a-z]+$" } }), { a: "x" }],
    refs: [
      object({ a: { $ref: "#/$defs/n" } }, { $defs: { n: { type: "object", properties: { next: { $ref: "#/$defs/n" } } } } }),
      { a: { next: {} } },
    ],
    draft7: [
      object(
        { a: { $ref: "#/definitions/s" } },
        { $schema: "http://json-schema.org/draft-07/schema#", definitions: { s: { type: "string" } } },
      ),
      { a: "x" },
    ],
  };
  const FORM = {
    message: "Who?",
    requestedSchema: object({ name: { type: "string", format: "email", pattern: "@" } }),
  };
  const tools = [...Object.entries(OUTPUTS), ["ask", [object({})]]].map(([name, [outputSchema]]) => ({
    name,
    inputSchema: { type: "object" },
    outputSchema,
  }));
  const GENERATED = /code generation|unsafe-eval|EvalError|new Function/i;

  for (const [way, type, path] of [
    ["streamable HTTP", "streamable-http", "url"],
    ["HTTP+SSE", "sse", "sseUrl"],
  ]) {
    test(`over ${way}, before and after a restart`, async (t) => {
      let wrong = false;
      const call = async ({ name }, talk) => {
        if (name === "ask") {
          const { result } = await talk.ask("elicitation/create", FORM);
          return { content: [], structuredContent: result.content };
        }
        return { content: [], structuredContent: wrong ? { a: 5 } : OUTPUTS[name][1] };
      };
      const remote = await startTalking(t, { tools, call, events: true });
      const own = await startToolAgent({ STREAM_LINGER_MS: "200" });
      t.after(() => own.dispose());
      const agent = freshAgent(own);
      await agent.add({ id: "typed", name: "Typed", url: remote[path], transport: { type } });
      for (const step of ["fresh", "evicted", "restarted"]) {
        if (step === "evicted") {
          await quiet(remote);
          await own.evict("ToolAgent", agent.name);
        }
        if (step === "restarted") await own.restart();
        for (const name of Object.keys(OUTPUTS)) {
          wrong = false;
          const result = await agent.call("typed", name, {});
          assert.deepEqual(result.structuredContent, OUTPUTS[name][1], `${step} ${name}`);
          wrong = true;
          assertProblem(await agent.tryCall("typed", name, {}), 502, /output schema/);
        }
        const asking = agent.call("typed", "ask", {});
        const [{ id }] = await until("the question", async () => {
          const { elicitations } = await agent.get("elicitations");
          return elicitations.length > 0 && elicitations;
        });
        const answer = { action: "accept", content: { name: "a@b.example" } };
        assert.equal((await agent.request("POST", `elicitations/${id}`, answer)).status, 200);
        assert.deepEqual((await asking).structuredContent, { name: "a@b.example" });
      }
      assert.doesNotMatch(own.output, GENERATED);
    });
  }

  test("and the Worker's JavaScript has nothing that would", async () => {
    const source = await readFile(inRoot("build/worker.mjs"), "utf8");
    assert.doesNotMatch(source, /\bnew Function\(|\beval\(/);
  });
});

const FOREIGN = /different (request|object|Durable Object)|Cannot perform I\/O/i;

test("WK-06 streams opened in one request are used in another, by two objects at once", async (t) => {
  const capabilities = { tools: { listChanged: true } };
  const ways = [
    { events: false, path: "url", type: "streamable-http" },
    { events: true, path: "url", type: "streamable-http" },
    { events: true, path: "sseUrl", type: "sse" },
  ];
  for (const { events, path, type } of ways) {
    const remote = await startTalking(t, { events, capabilities });
    const agents = [freshAgent(worker), freshAgent(worker)];
    const server = { id: "s", name: "S", url: remote[path], transport: { type } };
    await Promise.all(agents.map((agent) => agent.add(server)));
    await until("both streams", () => remote.standing.size === 2);
    for (let round = 0; round < 3; round++) {
      const calls = agents.flatMap((agent, n) =>
        Array.from({ length: 5 }, async (_, call) => {
          const result = await agent.call("s", "echo", { n, round, call });
          assert.deepEqual(JSON.parse(result.content[0].text), { n, round, call });
        }),
      );
      await Promise.all(calls);
    }
    // What comes on a stream that an earlier request opened is acted on when no request is there.
    const lists = remote.count("tools/list");
    remote.tools = [...remote.tools, { name: "new", inputSchema: { type: "object" } }];
    remote.notify("notifications/tools/list_changed");
    await until("both objects to list again", () => remote.count("tools/list") === lists + 2);
    for (const agent of agents) {
      await until("the new tool", async () => (await agent.get("tools")).tools.length === 2);
    }
  }
  assert.doesNotMatch(worker.output, FOREIGN);
});

test("WK-06 so are those that an alarm or a callback has opened", async (t) => {
  const vars = { REQUEST_TIMEOUT_MS: "10000", RECONNECT_LATER_MS: "1", STREAM_LINGER_MS: "200" };
  const own = await startToolAgent(vars, { port: await freePort() });
  t.after(() => own.dispose());
  const remote = await startTalking(t, { events: true, capabilities: { tools: { listChanged: true } } });
  const { as, mcp, close } = await startProtected();
  t.after(close);
  const agents = [signingAgent(own), signingAgent(own)];
  for (const agent of agents) {
    await agent.add({ id: "s", name: "S", url: remote.url, retry: { maxAttempts: 1 } });
    await agent.signIn({ id: "notes", name: "Notes", url: mcp.url }, as, { user: "ada" });
    assert.equal(await agent.say("notes", "whoami"), "ada");
  }
  await quiet(remote);
  remote.intercept = (_, response) => {
    response.writeHead(503).end();
    return true;
  };
  for (const agent of agents) {
    await own.evict("ToolAgent", agent.name);
    await agent.get("servers");
    const isPlanned = async () => (await agent.server("s")).state === "reconnecting";
    await until("the next attempt to be planned", isPlanned);
  }
  // Nobody asks the objects for anything until their alarms have opened what is used afterwards.
  remote.log.length = 0;
  remote.intercept = undefined;
  await until("both to come back by their alarms", () => remote.count("tools/list") === 2, 30_000);
  const calls = agents.flatMap((agent, n) => [1, 2, 3].map((call) => [agent, { n, call }]));
  await Promise.all(
    calls.map(async ([agent, args]) => assert.equal(await agent.say("s", "echo", args), JSON.stringify(args))),
  );
  assert.doesNotMatch(own.output, FOREIGN);
});

describe("WK-09 what has no end is cut", () => {
  const pour =
    (status, type, start, chunk, headers = {}) =>
    async (_, response) => {
      response.writeHead(status, { "content-type": type, ...headers });
      response.write(start);
      while (!response.destroyed) {
        if (!response.write(chunk)) await Promise.race([once(response, "drain"), once(response, "close")]);
      }
      return true;
    };
  const chunk = "a".repeat(1 << 16);
  const bomb = gzipSync(Buffer.alloc(64 << 20, "a"));
  const ENDLESS = {
    "a line of events without end": [pour(200, "text/event-stream", "data: ", chunk), 502],
    "an event of lines without end": [pour(200, "text/event-stream", "", `data: ${chunk}\n`), 502],
    "comments without end": [pour(200, "text/event-stream", "", `: ${chunk}\n\n`), 502],
    "JSON without end": [pour(200, "application/json", '{"jsonrpc":"2.0","result":{"a":"', chunk), 502],
    "arrays without end": [pour(200, "application/json", "", "[".repeat(1 << 16)), 502],
    "an error body without end": [pour(500, "text/plain", "", chunk), 502],
    "an error in JSON without end": [pour(400, "application/json", '{"error":"', chunk), 502],
    "64 MB out of a few bytes": [
      (_, response) => {
        response.writeHead(200, { "content-type": "application/json", "content-encoding": "gzip" }).end(bomb);
        return true;
      },
      502,
    ],
  };

  for (const [name, [fault, status]] of Object.entries(ENDLESS)) {
    test(`${name}, in a call and at registration, and others are fine`, async (t) => {
      const [bad, good] = await Promise.all([startScripted(t), startScripted(t)]);
      const agent = freshAgent(worker);
      await agent.add({ id: "bad", name: "Bad", url: bad.url });
      await agent.add({ id: "good", name: "Good", url: good.url });
      bad.intercept = only("tools/call", fault);
      const [answer] = await Promise.all([agent.tryCall("bad", "echo", {}), agent.call("good", "echo", {})]);
      assertProblem(answer, status);
      bad.intercept = fault;
      const retry = { maxAttempts: 1 };
      const { value, ms } = await timed(() => agent.tryAdd({ id: "new", name: "New", url: bad.url, retry }));
      const problem = assertProblem(value, status);
      assert.equal(problem.state, "failed");
      assert.ok(ms < 10_000, `${ms} ms: it is cut by its size, not by the time`);
      await agent.call("good", "echo", {});
    });
  }

  for (const [whose, kind] of [
    ["mcp", "resource-metadata"],
    ["as", "metadata"],
  ]) {
    test(`a document without end (${kind}), and others are fine`, async (t) => {
      const servers = await startProtected();
      t.after(servers.close);
      const good = await startScripted(t);
      const agent = freshAgent(worker);
      await agent.add({ id: "good", name: "Good", url: good.url });
      const endless = pour(200, "application/json", '{"issuer":"', chunk);
      servers[whose].intercept = (entry, response) => entry.kind === kind && endless(entry, response);
      const bad = { id: "bad", name: "Bad", url: servers.mcp.url, retry: { maxAttempts: 1 } };
      const { value, ms } = await timed(() => agent.tryAdd(bad));
      assertProblem(value, 502);
      assert.ok(ms < 10_000, `${ms} ms: it is cut by its size, not by the time`);
      await agent.call("good", "echo", {});
    });
  }
});

test("WK-10 a fresh object has nothing and says so", async () => {
  const fresh = () => freshAgent(worker);
  assert.deepEqual(await fresh().get("servers"), { servers: [], damaged: [] });
  assert.deepEqual(await fresh().get("tools"), { tools: [] });
  assert.deepEqual(await fresh().get("prompts"), { prompts: [] });
  assert.deepEqual(await fresh().get("resources"), { resources: [] });
  assert.deepEqual(await fresh().get("elicitations"), { elicitations: [] });
  assert.deepEqual(await fresh().get("events"), { events: [] });
  assert.deepEqual(await fresh().get("tasks"), { tasks: [] });
  // A page for people, since browsers come there.
  for (const query of ["?code=c&state=random.nobody", "?error=access_denied&state=random.nobody", "?code=c", ""]) {
    const { status } = await fresh().request("GET", `callback${query}`);
    assert.ok(status >= 400 && status < 500, `callback${query}: ${status}`);
  }
  const nobody = { serverId: "nobody" };
  for (const [method, path, body] of [
    ["GET", "servers/nobody"],
    ["DELETE", "servers/nobody"],
    ["POST", "servers/nobody/reconnect", {}],
    ["POST", "servers/nobody/close", {}],
    ["POST", "servers/nobody/ping", {}],
    ["POST", "tools/call", { ...nobody, name: "echo" }],
    ["POST", "prompts/get", { ...nobody, name: "greet" }],
    ["POST", "resources/read", { ...nobody, uri: "r://1" }],
    ["POST", "resources/subscribe", { ...nobody, uri: "r://1" }],
    ["GET", "tasks/nobody/t-1"],
  ]) {
    const answer = await fresh().request(method, path, body);
    assert.ok(answer.status >= 400 && answer.status < 500, `${method} ${path}: ${answer.status}`);
    assertProblem(answer, answer.status);
  }
});

test("WK-11 two hundred instances of two classes in one isolate do not mix", async (t) => {
  const remote = await startTalking(t);
  const objects = { First: "First", Second: "Second" };
  const many = await startWorker({ build: "build/test-worker", objects });
  t.after(() => many.dispose());
  const ask = async (path, body) => {
    const init = body && { method: "POST", body: JSON.stringify(body) };
    const response = await many.fetch(`/agents/${path}`, init);
    assert.equal(response.status, 200, `${path}: ${response.status}`);
    return response.json();
  };
  const instances = Array.from({ length: 200 }, (_, n) => `${n % 2 ? "first" : "second"}/n${n >> 1}`);
  const nameOf = (instance) => `server-${instance.replace("/", "-")}`;
  const inBatches = async (work) => {
    for (let at = 0; at < instances.length; at += 20) await Promise.all(instances.slice(at, at + 20).map(work));
  };
  const expect = (instance, listing) => {
    const id = nameOf(instance);
    assert.deepEqual(listing, { servers: [id], tools: [`${id}/echo`] }, instance);
  };
  const add = async (instance) =>
    expect(instance, await ask(`${instance}/add`, { id: nameOf(instance), url: remote.url }));
  await inBatches(add);
  const { wasm } = await ask("first/n0/memory");
  // Three more rounds over all of them, with wakes in between.
  for (let round = 0; round < 3; round++) {
    await inBatches(async (instance) => {
      const [kind, name] = instance.split("/");
      // One that has slept by itself already is not there to be evicted.
      await many.evict(kind === "first" ? "First" : "Second", name).catch(() => {});
      expect(instance, await ask(`${instance}/list`));
    });
  }
  const after = await ask("first/n0/memory");
  assert.ok(after.wasm < 100 << 20, `${after.wasm} bytes`);
  assert.ok(after.wasm - wasm < 8 << 20, `grew by ${after.wasm - wasm} bytes over 600 wakes`);
});

test("WK-12 a quiet object lets its streams go, and sleeps", async (t) => {
  const own = await startToolAgent({ STREAM_LINGER_MS: "500", MAX_STREAMS: "3" });
  t.after(() => own.dispose());
  const agent = freshAgent(own);
  const remotes = [];
  for (const id of ["a", "b", "c"]) {
    const remote = await startTalking(t, { capabilities: { tools: { listChanged: true }, logging: {} } });
    remotes.push(remote);
    await agent.add({ id, name: id, url: remote.url });
    await until("the stream", () => remote.count("GET") === 1);
    remote.notify("notifications/message", { level: "info", data: "awake" });
  }
  await until("the messages", async () => (await agent.get("events")).events.length === 3);
  await until("the streams to be let go", () => remotes.every((remote) => remote.standing.size === 0));
  const before = remotes.map((remote) => remote.log.length);
  // Asking the object would keep it awake, so it is left alone for longer and longer. workerd waits ten seconds.
  let events;
  for (const seconds of [12, 20, 30]) {
    await pause(seconds * 1_000);
    assert.deepEqual(
      remotes.map((remote) => remote.log.length),
      before,
      "nobody asks the servers for anything",
    );
    ({ events } = await agent.get("events"));
    if (events.length === 0) break;
  }
  assert.deepEqual(events, [], "the object still has what it had in memory");
  await agent.call("a", "echo", {});
});

test("what a server logs is repeated as it was, whatever it is, and costs nobody anything", async (t) => {
  const odd = ['"\\ud83d"', '{"\\ud83d":1}', "1e999", "[".repeat(200) + "]".repeat(200), '{"b":1,"a":12345678901234567890}'];
  const remote = await startTalking(t, {
    events: true,
    call: (_params, talk) => {
      for (const data of odd)
        talk.raw(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":${data}}}`);
      return { content: [] };
    },
  });
  const [agent, other] = [freshAgent(worker), freshAgent(worker)];
  await agent.add({ id: "logs", name: "Logs", url: remote.url });
  await other.add({ id: "logs", name: "Logs", url: remote.url });
  await agent.call("logs", "echo", {});
  const listed = await (await worker.fetch(`${agent.base}events`, { headers: agent.headers })).text();
  for (const data of odd) assert.ok(listed.includes(`"data":${data}`), `${data.slice(0, 40)} in ${listed.slice(0, 300)}`);
  await other.call("logs", "echo", {});
  const body = `{"serverId":"logs","ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"n","value":"v"},"arguments":{"a":1e999}}`;
  const headers = { ...agent.headers, "content-type": "application/json" };
  const completion = await worker.fetch(`${agent.base}completion`, { method: "POST", headers, body });
  assert.equal(completion.status, 502, "the server knows no completion");
  await other.call("logs", "echo", {});
});

test("twenty servers with streams leave connections to twenty calls at once", async (t) => {
  const remotes = await Promise.all(
    Array.from({ length: 20 }, () => startTalking(t, { capabilities: { tools: { listChanged: true } } })),
  );
  const agent = freshAgent(worker);
  const standing = () => remotes.reduce((sum, remote) => sum + remote.standing.size, 0);
  for (const [n, remote] of remotes.entries()) await agent.add({ id: `s${n}`, name: `S${n}`, url: remote.url });
  assert.ok(standing() <= 2, `${standing()} streams`);
  const results = await Promise.all(remotes.map((_, n) => agent.call(`s${n}`, "echo", { n })));
  assert.deepEqual(
    results.map((result) => JSON.parse(result.content[0].text).n),
    remotes.map((_, n) => n),
  );
  assert.ok(standing() >= 1 && standing() <= 2, `${standing()} streams`);
  await worker.evict("ToolAgent", agent.name);
  const { tools } = await agent.get("tools");
  assert.equal(tools.length, 20);
  assert.ok(standing() <= 2, `${standing()} streams after a wake`);
});
