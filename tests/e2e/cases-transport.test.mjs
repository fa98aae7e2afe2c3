// Cases from public bug reports, over real sockets and through the JSON API: transports and framing.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setInterval } from "node:timers";
import { assertProblem, freshAgent } from "./support/api.mjs";
import { answersStatus, only } from "./support/faults.mjs";
import { handshake, sendError, sendJson, startScriptedServer } from "./support/scripted-server.mjs";
import { speaksHttpSse } from "./support/sse-server.mjs";
import { timed, until } from "./support/until.mjs";
import { startToolAgent } from "./support/worker.mjs";

const TIMEOUT_MS = 3_000;
const CEILING_MS = 9_000;
const retry = { maxAttempts: 1 };

let worker;
before(async () => {
  worker = await startToolAgent({
    REQUEST_TIMEOUT_MS: `${TIMEOUT_MS}`,
    MAX_REQUEST_TIME_MS: `${CEILING_MS}`,
    STREAM_LINGER_MS: "500",
  });
});
after(() => worker?.dispose());

async function startRemote(t) {
  const remote = await startScriptedServer();
  t.after(() => remote.close());
  return remote;
}

const server = (url, transport) => ({ id: "m", name: "M", url, retry, ...(transport && { transport }) });
const text = (result) => result.content[0].text;
const arrived = (remote, http, path) =>
  remote.log.filter((entry) => entry.http === http && entry.path === path).length;
const event = (message) => `data: ${JSON.stringify({ jsonrpc: "2.0", ...message })}\n\n`;
const openStream = (response) => response.writeHead(200, { "content-type": "text/event-stream" });
const evict = (agent) => worker.evict("ToolAgent", agent.name);

test("TR-03 a server of SSE that answers the POST with 400 is connected to in auto", async (t) => {
  const remote = await startRemote(t);
  speaksHttpSse(remote, { refusal: 400 });
  const agent = freshAgent(worker);
  const url = `${remote.origin}/sse`;
  const { value: entry, ms } = await timed(() => agent.add(server(url)));
  assert.ok(ms < 5_000, `${ms} ms`);
  assert.equal(entry.wire, "sse");
  assert.equal(arrived(remote, "POST", "/sse"), 1);
  assert.equal(text(await agent.call("m", "echo", { n: 1 })), '{"n":1}');

  remote.takeLog();
  await evict(agent);
  assert.equal(text(await agent.call("m", "echo", { n: 2 })), '{"n":2}');
  assert.equal(arrived(remote, "POST", "/sse"), 0, "the transport that won is remembered");
});

describe("TR-04", () => {
  test("a broken gateway is named and nobody asks it for a stream", async (t) => {
    const remote = await startRemote(t);
    remote.intercept = (entry, response) =>
      answersStatus(...(entry.http === "POST" ? [502, "bad gateway"] : [405]))(entry, response);
    const agent = freshAgent(worker);
    const problem = assertProblem(await agent.tryAdd(server(remote.url)), 502, /502.*bad gateway/);
    assert.equal(problem.state, "failed");
    assert.doesNotMatch(problem.detail, /405|SSE/);
    assert.ok(remote.log.every((entry) => entry.http === "POST"));
  });

  test("a port where nothing listens could not be connected to", async (t) => {
    const remote = await startRemote(t);
    await remote.close();
    const agent = freshAgent(worker);
    const problem = assertProblem(await agent.tryAdd(server(remote.url)), 502, /connect|network|refused/i);
    assert.equal(problem.state, "failed");
    assert.doesNotMatch(problem.detail, /SSE/);
  });
});

for (const status of [404, 406, 400, 501, 500]) {
  test(`TR-05 a stream that is refused with ${status} is not fatal`, async (t) => {
    const remote = await startRemote(t);
    remote.intercept = (entry, response) => entry.http === "GET" && answersStatus(status, "no")(entry, response);
    const agent = freshAgent(worker);
    await agent.add(server(remote.url));
    for (const n of [1, 2]) assert.equal(text(await agent.call("m", "echo", { n })), `{"n":${n}}`);
    assert.equal((await agent.server("m")).state, "ready");
    assert.ok(arrived(remote, "GET", "/mcp") >= 1);
    assert.equal(remote.count("initialize"), 1);
  });
}

test("TR-11 an event with an id and no data is not JSON", async (t) => {
  const remote = await startRemote(t);
  const agent = freshAgent(worker);
  await agent.add(server(remote.url));
  remote.intercept = only("tools/call", ({ message }, response) => {
    openStream(response).write("id: e1\ndata:\n\n");
    setTimeout(() => {
      const result = { content: [{ type: "text", text: "real" }] };
      response.end(`id: e2\n${event({ id: message.id, result })}`);
    }, 100);
    return true;
  });
  assert.equal(text(await agent.call("m", "echo", {})), "real");
  const entry = await agent.server("m");
  assert.deepEqual([entry.state, entry.error, entry.lastError], ["ready", null, null]);
});

test("TR-14 a notification before the result of initialize is not fatal", async (t) => {
  const remote = await startRemote(t);
  remote.intercept = only("initialize", ({ message }, response) => {
    openStream(response);
    response.write(event({ method: "notifications/message", params: { level: "info", data: "hello" } }));
    response.write(": a comment\n\n");
    const result = handshake("2025-11-25");
    response.end(event({ id: message.id, result }));
    remote.intercept = ({ rpc, message }, response) => {
      if (message?.id === undefined) return answersStatus(rpc ? 202 : 405)(undefined, response);
      sendJson(response, 200, { jsonrpc: "2.0", id: message.id, result: { tools: [], content: [] } });
      return true;
    };
    return true;
  });
  const agent = freshAgent(worker);
  await agent.add(server(remote.url));
  assert.deepEqual((await agent.call("m", "echo", {})).content, []);
});

describe("TR-17 the endpoint is resolved against the URL of the stream", () => {
  for (const [data, target] of [
    ["/messages?sid=1", "/messages?sid=1"],
    ["messages?sid=1", "/weather/messages?sid=1"],
    ["?sid=1", "/weather/sse?sid=1"],
    ["ORIGIN/weather/messages?sid=1", "/weather/messages?sid=1"],
    ["/weather/messages?sid=1#x", "/weather/messages?sid=1"],
  ]) {
    for (const type of ["auto", "sse"]) {
      test(`${data} with transport ${type}`, async (t) => {
        const remote = await startRemote(t);
        const path = "/weather/sse?k=1";
        speaksHttpSse(remote, { path, endpoint: () => data.replace("ORIGIN", remote.origin) });
        const agent = freshAgent(worker);
        await agent.add(server(remote.origin + path, { type }));
        assert.equal(text(await agent.call("m", "echo", { n: 1 })), '{"n":1}');
        const posts = remote.log.filter((entry) => entry.http === "POST" && entry.path !== path);
        assert.deepEqual([...new Set(posts.map((entry) => entry.path))], [target]);
        assert.equal(arrived(remote, "POST", path), type === "auto" ? 1 : 0);
      });
    }
  }
});

test("TR-19 data may come before event in the endpoint event, with CRLF", async (t) => {
  const remote = await startRemote(t);
  const opening = (data) => `data: ${data}\r\nevent: endpoint\r\n\r\n`;
  speaksHttpSse(remote, { endpoint: () => "/message?sid=1", opening });
  const agent = freshAgent(worker);
  await agent.add(server(`${remote.origin}/sse`));
  assert.equal(text(await agent.call("m", "echo", { n: 1 })), '{"n":1}');
});

describe("TR-20 the query of a server", () => {
  test("is on every request, also after the object was gone", async (t) => {
    const remote = await startRemote(t);
    const path = "/mcp?tenant=a%20b&x=1";
    const agent = freshAgent(worker);
    await agent.add(server(remote.origin + path));
    await agent.call("m", "echo", {});
    await evict(agent);
    await agent.call("m", "echo", {});
    remote.forgetSessions();
    await agent.call("m", "echo", {});
    await agent.remove("m");
    await until("the end of the session", () => arrived(remote, "DELETE", path) > 0);
    assert.ok(arrived(remote, "GET", path) > 0);
    assert.ok(remote.log.every((entry) => entry.path === path));
  });

  test("of a stream is on the GET, and the endpoint is used as announced", async (t) => {
    const remote = await startRemote(t);
    const path = "/sse?tenant=a";
    speaksHttpSse(remote, { path });
    const agent = freshAgent(worker);
    await agent.add(server(remote.origin + path));
    await agent.call("m", "echo", {});
    await evict(agent);
    await agent.call("m", "echo", {});
    assert.ok(remote.log.every((entry) => (entry.http === "GET" ? entry.path === path : true)));
    const posts = remote.log.filter((entry) => entry.http === "POST" && entry.path !== path).map((entry) => entry.path);
    assert.deepEqual([...new Set(posts)].sort(), ["/messages?sid=1", "/messages?sid=2"]);
  });
});

test("TR-21 a JSON-RPC error in the body of a 400 is told with code, message and data", async (t) => {
  const remote = await startRemote(t);
  const agent = freshAgent(worker);
  await agent.add(server(remote.url));
  remote.intercept = only("tools/call", ({ message }, response) => {
    sendError(response, 400, message, -32602, "bad argument: city", { field: "city" });
    return true;
  });
  const { code, message, data } = assertProblem(await agent.tryCall("m", "echo", {}), 502);
  assert.deepEqual([code, message, data], [-32602, "bad argument: city", { field: "city" }]);
  remote.intercept = undefined;
  assert.equal((await agent.server("m")).state, "ready");
  await agent.call("m", "echo", {});
  assert.equal(remote.count("initialize"), 1);
});

test("TR-23 a server that stamps every answer with id 0 is told so at once", async (t) => {
  const remote = await startRemote(t);
  const agent = freshAgent(worker);
  await agent.add(server(remote.url));
  remote.intercept = ({ rpc, message }, response) => {
    if (rpc !== "tools/call") return false;
    const content = [{ type: "text", text: JSON.stringify(message.params) }];
    sendJson(response, 200, { jsonrpc: "2.0", id: 0, result: { content } });
    return true;
  };
  const { value: answers, ms } = await timed(() => Promise.all([1, 2].map((n) => agent.tryCall("m", "echo", { n }))));
  assert.ok(ms < TIMEOUT_MS, `${ms} ms`);
  for (const answer of answers) assertProblem(answer, 502, /id does not match/);
});

for (const version of ["2025-03-26", "2024-11-05"]) {
  test(`TR-25 ${version}, which the server picks, is what later requests carry`, async (t) => {
    const remote = await startRemote(t);
    remote.intercept = ({ rpc, headers, message, http }, response) => {
      if (rpc === "server/discover") return answersStatus(400)(undefined, response);
      if (rpc === "initialize") {
        const result = handshake(version);
        sendJson(response, 200, { jsonrpc: "2.0", id: message.id, result });
        return true;
      }
      // The look for a stream of the old kind comes before anything is agreed on.
      if (http === "GET" && !headers["mcp-protocol-version"]) return answersStatus(405)(undefined, response);
      if (headers["mcp-protocol-version"] !== version) return answersStatus(400, "wrong version")(undefined, response);
      if (message?.id === undefined) return answersStatus(http === "GET" ? 405 : 202)(undefined, response);
      sendJson(response, 200, { jsonrpc: "2.0", id: message.id, result: { tools: [], content: [] } });
      return true;
    };
    const agent = freshAgent(worker);
    assert.equal((await agent.add(server(remote.url))).protocolVersion, version);
    await agent.call("m", "echo", {});
    await evict(agent);
    await agent.call("m", "echo", {});
    assert.ok(remote.log.every((entry) => entry.status !== 400 || entry.rpc === "server/discover"));
  });
}

for (const version of ["1999-01-01", undefined, "v2"]) {
  test(`TR-26 version ${version} ends the handshake`, async (t) => {
    const remote = await startRemote(t);
    remote.intercept = only("initialize", ({ message }, response) => {
      const result = handshake(version);
      sendJson(response, 200, { jsonrpc: "2.0", id: message.id, result });
      return true;
    });
    const agent = freshAgent(worker);
    const problem = assertProblem(await agent.tryAdd(server(remote.url)), 502, /version/i);
    assert.equal(problem.state, "failed");
    if (version) assert.ok(problem.detail.includes(version) && /2024-11-05/.test(problem.detail), problem.detail);
    assert.equal(remote.count("tools/list"), 0);
  });
}

const OLD_GATE = "Unsupported protocol version (supported versions: 2025-06-18, 2025-03-26)";

test("TR-27 initialize goes without the header that old servers refuse, and what they say is shown", async (t) => {
  const remote = await startRemote(t);
  let refusesAll = false;
  remote.intercept = ({ rpc, headers, message, http }, response) => {
    if (headers["mcp-protocol-version"] > "2025-06-18") return answersStatus(400, OLD_GATE)(undefined, response);
    if (http === "GET") return answersStatus(405)(undefined, response);
    if (refusesAll) return answersStatus(400, OLD_GATE)(undefined, response);
    if (message?.id === undefined) return answersStatus(202)(undefined, response);
    const initialize = handshake("2025-06-18");
    const result = rpc === "initialize" ? initialize : { tools: [], content: [] };
    sendJson(response, 200, { jsonrpc: "2.0", id: message.id, result });
    return true;
  };
  const agent = freshAgent(worker);
  await agent.add(server(remote.url));
  await agent.call("m", "echo", {});

  refusesAll = true;
  const problem = assertProblem(await freshAgent(worker).tryAdd(server(remote.url)), 502);
  assert.ok(problem.detail.includes(OLD_GATE), problem.detail);
});

test("TR-28 a session id on the refusal of the first POST is never sent", async (t) => {
  const remote = await startRemote(t);
  let isFirst = true;
  remote.intercept = ({ http, rpc, session }, response) => {
    if (http === "POST" && isFirst) {
      isFirst = false;
      response.writeHead(400, { "mcp-session-id": "junk" }).end();
      return true;
    }
    return rpc === "initialize" && session ? answersStatus(404)(undefined, response) : false;
  };
  const agent = freshAgent(worker);
  await agent.add(server(remote.url));
  await agent.call("m", "echo", {});
  assert.ok(remote.log.every((entry) => entry.session !== "junk"));
});

for (const [end, leave] of Object.entries({
  ends: (response) => response.end(),
  "is reset": (response) => response.socket.resetAndDestroy(),
})) {
  test(`TR-29 a stream that ${end} without the answer fails that call alone, and at once`, async (t) => {
    const remote = await startRemote(t);
    const agent = freshAgent(worker);
    await agent.add(server(remote.url));
    const waiting = [];
    remote.intercept = only("tools/call", ({ message }, response) => {
      openStream(response);
      const progressToken = message.params._meta?.progressToken;
      response.write(event({ method: "notifications/progress", params: { progressToken, progress: 1 } }));
      waiting.push({ message, response });
      return true;
    });
    const calls = [1, 2].map((n) => agent.tryCall("m", "echo", { n }));
    await until("both calls to arrive", () => waiting.length === 2);
    const [first, second] = waiting.sort((a, b) => a.message.params.arguments.n - b.message.params.arguments.n);
    leave(first.response);
    const { value: answer, ms } = await timed(() => calls[0]);
    assert.ok(ms < TIMEOUT_MS, `${ms} ms`);
    assertProblem(answer, 502, /stream|network|connection/i);
    second.response.end(event({ id: second.message.id, result: { content: [{ type: "text", text: "fine" }] } }));
    assert.equal(text((await calls[1]).body), "fine");
    assert.equal(remote.count("tools/call"), 2, "sent once more");
    assert.equal((await agent.server("m")).state, "ready");
  });
}

describe("TR-30 progress keeps a call alive", () => {
  const reportsProgress =
    (answerAfterMs) =>
    ({ message }, response) => {
      openStream(response);
      const progressToken = message.params._meta?.progressToken;
      const progress = event({ method: "notifications/progress", params: { progressToken, progress: 1 } });
      const start = Date.now();
      const timer = setInterval(() => {
        if (Date.now() - start >= answerAfterMs) response.end(event({ id: message.id, result: { content: [] } }));
        else if (progressToken !== undefined) response.write(progress);
      }, TIMEOUT_MS / 6);
      response.once("close", () => clearInterval(timer));
      return true;
    };

  test("beyond the time of a request", async (t) => {
    const remote = await startRemote(t);
    const agent = freshAgent(worker);
    await agent.add(server(remote.url));
    remote.intercept = only("tools/call", reportsProgress(TIMEOUT_MS * 1.5));
    await agent.call("m", "echo", {});
  });

  test("up to a ceiling", async (t) => {
    const remote = await startRemote(t);
    const agent = freshAgent(worker);
    await agent.add(server(remote.url));
    remote.intercept = only("tools/call", reportsProgress(Infinity));
    const { value: answer, ms } = await timed(() => agent.tryCall("m", "echo", {}));
    assertProblem(answer, 504, new RegExp(`${CEILING_MS}`));
    assert.ok(ms >= CEILING_MS - 100 && ms < CEILING_MS + TIMEOUT_MS, `${ms} ms`);
  });
});

const LISTS = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"];

for (const [what, status, type, body, needles] of [
  ["a page", 200, "text/html", "<!doctype html><title>Sign in</title>", [/200/, /text\/html/, /&lt;!doctype html/]],
  ["half a message", 200, "application/json", '{"tools":', [/200/, /application\/json/, /tools/]],
  ["nothing", 200, undefined, "", [/200/, /empty/]],
]) {
  test(`TR-32 ${what} is no list of tools`, async (t) => {
    const remote = await startRemote(t);
    const breaks = (_, response) => {
      response.writeHead(status, type ? { "content-type": type } : {}).end(body);
      return true;
    };
    // With other lists that are good, and with none.
    for (const broken of [["tools/list"], LISTS]) {
      remote.intercept = undefined;
      const agent = freshAgent(worker);
      await agent.add(server(remote.url));
      remote.intercept = (entry, response) => broken.includes(entry.rpc) && breaks(entry, response);
      const answer = await agent.request("POST", "servers/m/reconnect", {});
      const entry = await agent.server("m");
      const told = `${answer.body.detail ?? ""} ${entry.error ?? ""} ${entry.problems.join(" ")}`;
      for (const needle of needles) assert.match(told, needle);
      assert.doesNotMatch(told, /<!doctype/);
      assert.equal(entry.counts.tools, 1, "the last good list is kept");
      if (broken.length > 1) assertProblem(answer, 502);
    }
  });
}
