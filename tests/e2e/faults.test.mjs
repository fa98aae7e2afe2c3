// Servers that fail in every way a server can: a clear problem within the configured time, and nobody else notices.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { assertProblem, freshAgent } from "./support/api.mjs";
import {
  answersError,
  answersHtml,
  answersStatus,
  answersWithMegabytes,
  cutsTheConnection,
  dripsForEver,
  endsWithoutAnswer,
  neverAnswers,
  only,
  redirects,
  streamsMegabytes,
} from "./support/faults.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { timed, until } from "./support/until.mjs";
import { startToolAgent } from "./support/worker.mjs";

const TIMEOUT_MS = 2_500;
// What a slow machine may need on top; far below the default of a minute.
const SLACK_MS = 2_500;
const retry = { maxAttempts: 1 };

let worker;
before(async () => {
  worker = await startToolAgent({ REQUEST_TIMEOUT_MS: `${TIMEOUT_MS}`, DISCOVERY_TIMEOUT_MS: `${TIMEOUT_MS}` });
});
after(() => worker?.dispose());

async function startRemote(t, options) {
  const remote = await startScriptedServer(options);
  t.after(() => remote.close());
  return remote;
}

async function withinTheTime(action) {
  const { value, ms } = await timed(action);
  assert.ok(ms < TIMEOUT_MS + SLACK_MS, `took ${ms} ms`);
  return value;
}

const TIMED_OUT = /no answer|timed? ?out|did not answer/i;
const MOVED = /redirect|moved/i;
const TOO_LARGE = /large|limit|exceed|more than/i;

/** name of the fault → [fault, status, text of the problem] */
const FAULTS = {
  "answers with a web page": [answersHtml, 502, /text\/html/],
  "never answers": [neverAnswers, 504, TIMED_OUT],
  "drips comments for ever": [dripsForEver, 504, TIMED_OUT],
  "answers with 20 MB": [answersWithMegabytes(20), 502, TOO_LARGE],
  "streams 20 MB": [streamsMegabytes(20), 502, TOO_LARGE],
  "ends its stream without the answer": [endsWithoutAnswer, [502, 504], /./],
  "cuts the connection in the middle of its answer": [cutsTheConnection, 502, /./],
  "answers 500": [answersStatus(500, "out of order"), 502, /500/],
  "answers 200 with nothing": [answersStatus(200), 502, /./],
};

describe("at registration, a server that", () => {
  for (const [name, [fault, status, text]] of Object.entries(FAULTS)) {
    test(`${name} gives a problem with id and state, and stays stored`, async (t) => {
      const remote = await startRemote(t);
      const agent = freshAgent(worker);
      remote.intercept = fault;

      const server = { id: "bad", name: "Bad", url: remote.url, retry };
      const problem = assertProblem(await withinTheTime(() => agent.tryAdd(server)), status, text);
      assert.equal(problem.id, "bad");
      assert.equal(problem.state, "failed");
      const stored = await agent.server("bad");
      assert.equal(stored.state, "failed");
      assert.ok(stored.error);

      remote.intercept = undefined;
      assert.equal((await agent.post("servers/bad/reconnect")).state, "ready");
    });
  }

  test("is not there gives a problem with id and state, and can be reconnected when it is", async (t) => {
    const remote = await startRemote(t);
    await remote.close();
    const agent = freshAgent(worker);
    const add = () => agent.tryAdd({ id: "bad", name: "Bad", url: remote.url, retry });
    const problem = assertProblem(await withinTheTime(add), 502, /connect|network|reach|refused/i);
    assert.deepEqual([problem.id, problem.state], ["bad", "failed"]);

    await remote.listen(remote.port);
    assert.equal((await agent.post("servers/bad/reconnect")).state, "ready");
  });

  test("answers initialize with an error gives its code and message", async (t) => {
    const remote = await startRemote(t);
    remote.intercept = only("initialize", answersError(-32603, "no more licences", { seats: 0 }));
    const problem = assertProblem(
      await freshAgent(worker).tryAdd({ id: "bad", name: "Bad", url: remote.url, retry }),
      502,
      /no more licences/,
    );
    assert.equal(problem.state, "failed");
  });

  test("answers one list late is ready with the others, and says what is missing", async (t) => {
    const remote = await startRemote(t);
    remote.intercept = only("prompts/list", neverAnswers);
    const agent = freshAgent(worker);
    const server = await withinTheTime(() => agent.add({ id: "late", name: "Late", url: remote.url, retry }));
    assert.deepEqual(server.counts, { tools: 1, prompts: 0, resources: 1, resourceTemplates: 1 });
    assert.equal(server.problems.length, 1);
    assert.match(server.problems[0], /prompts\/list/);
  });
});

describe("during a call, a server that", () => {
  for (const [name, [fault, status, text]] of Object.entries(FAULTS)) {
    test(`${name} gives a problem, and the next call works`, async (t) => {
      const remote = await startRemote(t);
      const agent = freshAgent(worker);
      await agent.add({ id: "bad", name: "Bad", url: remote.url });
      remote.intercept = only("tools/call", fault);
      assertProblem(await withinTheTime(() => agent.tryCall("bad", "echo", {})), status, text);

      remote.intercept = undefined;
      await agent.call("bad", "echo", { after: name });
    });
  }

  test("answers with a JSON-RPC error gives its code, message and data", async (t) => {
    const remote = await startRemote(t);
    const agent = freshAgent(worker);
    await agent.add({ id: "bad", name: "Bad", url: remote.url });
    remote.intercept = only("tools/call", answersError(-32602, "Unknown tool: ecko", { hint: "echo" }));
    const problem = assertProblem(await agent.tryCall("bad", "ecko", {}), 502, /Unknown tool: ecko/);
    assert.equal(problem.code, -32602);
    assert.equal(problem.message, "Unknown tool: ecko");
    assert.deepEqual(problem.data, { hint: "echo" });
  });

  test("is gone gives a problem at once", async (t) => {
    const remote = await startRemote(t);
    const agent = freshAgent(worker);
    await agent.add({ id: "bad", name: "Bad", url: remote.url });
    await remote.close();
    const answer = await withinTheTime(() => agent.tryCall("bad", "echo", {}));
    assertProblem(answer, 502, /connect|network|reach|refused/i);
  });

  test("never answers is hung up on when the time is over", async (t) => {
    const remote = await startRemote(t);
    const agent = freshAgent(worker);
    await agent.add({ id: "bad", name: "Bad", url: remote.url });
    remote.intercept = only("tools/call", neverAnswers);
    assertProblem(await agent.tryCall("bad", "echo", {}), 504);
    const call = remote.log.find((entry) => entry.rpc === "tools/call");
    await until("the connection to be closed", () => call.gone, 2_000);
  });

  test("never answers keeps neither other servers nor other objects waiting", async (t) => {
    const [slow, quick] = await Promise.all([startRemote(t), startRemote(t)]);
    const agent = freshAgent(worker);
    const other = freshAgent(worker);
    await agent.add({ id: "slow", name: "Slow", url: slow.url });
    await agent.add({ id: "quick", name: "Quick", url: quick.url });
    await other.add({ id: "quick", name: "Quick", url: quick.url });
    slow.intercept = only("tools/call", neverAnswers);

    let answered = false;
    const pending = agent.tryCall("slow", "echo", {}).finally(() => (answered = true));
    await until("the slow call to arrive", () => slow.count("tools/call") === 1);
    await Promise.all([agent.call("quick", "echo", {}), other.call("quick", "echo", {})]);
    assert.equal(answered, false, "the slow call was still waiting");
    assertProblem(await pending, 504);
  });
});

test("an answer just below the limit passes, and the limit can be set", async (t) => {
  const remote = await startRemote(t);
  const strict = await startToolAgent({ MAX_RESPONSE_BYTES: "2000000" });
  t.after(() => strict.dispose());
  for (const [host, fits, tooMuch] of [
    [worker, 9, 11],
    [strict, 1, 3],
  ]) {
    const agent = freshAgent(host);
    await agent.add({ id: "big", name: "Big", url: remote.url });
    remote.intercept = only("tools/call", answersWithMegabytes(fits));
    assert.equal((await agent.call("big", "echo", {})).padding.length, fits << 20);
    remote.intercept = only("tools/call", answersWithMegabytes(tooMuch));
    assertProblem(await agent.tryCall("big", "echo", {}), 502, TOO_LARGE);
    remote.intercept = undefined;
  }
});

describe("a redirect", () => {
  const add = (agent, remote) => agent.tryAdd({ id: "moved", name: "Moved", url: remote.url, retry });

  for (const status of [307, 308]) {
    test(`with ${status} to another path of the same origin is followed with method, headers and body`, async (t) => {
      const remote = await startRemote(t);
      remote.intercept = redirects(status, "/moved/mcp");
      const agent = freshAgent(worker);
      const transport = { headers: { "x-api-key": "k-123" } };
      await agent.add({ id: "moved", name: "Moved", url: remote.url, transport });
      const result = await agent.call("moved", "echo", { over: "there" });
      assert.equal(result.content[0].text, '{"over":"there"}');
      const arrived = remote.log.filter((entry) => entry.path === "/moved/mcp" && entry.http !== "GET");
      assert.ok(arrived.length > 0 && arrived.every((entry) => entry.http === "POST" && entry.message));
      assert.ok(arrived.every((entry) => entry.headers["x-api-key"] === "k-123"));
    });
  }

  for (const status of [301, 302, 303]) {
    test(`with ${status}, which would turn the POST into a GET, is an error`, async (t) => {
      const remote = await startRemote(t);
      remote.intercept = redirects(status, "/moved/mcp");
      assertProblem(await add(freshAgent(worker), remote), 502, MOVED);
      assert.deepEqual(
        remote.log.filter((entry) => entry.path !== "/mcp"),
        [],
      );
    });
  }

  test("to another origin is not followed, and the problem names the place", async (t) => {
    const [remote, elsewhere] = await Promise.all([startRemote(t), startRemote(t)]);
    remote.intercept = redirects(307, elsewhere.url);
    const problem = assertProblem(await add(freshAgent(worker), remote), 502, MOVED);
    assert.ok(problem.detail.includes(elsewhere.origin), problem.detail);
    assert.deepEqual(elsewhere.log, []);
  });

  for (const target of ["http://10.0.0.1/mcp", "http://169.254.169.254/latest/meta-data/", "http://[fd00::1]/mcp"]) {
    test(`to the private address ${target} is not followed, and the problem names it`, async (t) => {
      const remote = await startRemote(t);
      remote.intercept = redirects(307, target);
      const problem = assertProblem(await withinTheTime(() => add(freshAgent(worker), remote)), 502, MOVED);
      assert.ok(problem.detail.includes(new URL(target).host), problem.detail);
    });
  }

  for (const location of ["file:///etc/passwd", "http://", ""]) {
    test(`to "${location}" is an error`, async (t) => {
      const remote = await startRemote(t);
      remote.intercept = redirects(307, location);
      assertProblem(await withinTheTime(() => add(freshAgent(worker), remote)), 502, /redirect|307/i);
    });
  }

  test("that goes round in circles ends after a few hops", async (t) => {
    const remote = await startRemote(t);
    remote.intercept = redirects(307, "/mcp");
    assertProblem(await withinTheTime(() => add(freshAgent(worker), remote)), 502, MOVED);
    assert.ok(remote.log.length <= 20, `${remote.log.length} requests`);
  });

  test("during a call is not followed elsewhere either, and no secret leaves", async (t) => {
    const [remote, elsewhere] = await Promise.all([startRemote(t), startRemote(t)]);
    const agent = freshAgent(worker);
    const transport = { headers: { authorization: "Bearer s3cret" } };
    await agent.add({ id: "moved", name: "Moved", url: remote.url, transport });
    remote.intercept = only("tools/call", redirects(307, elsewhere.url));
    const answer = await agent.tryCall("moved", "echo", {});
    assertProblem(answer, 502, MOVED);
    assert.deepEqual(elsewhere.log, []);
    assert.doesNotMatch(JSON.stringify(answer.body) + worker.output, /s3cret/);
  });
});
