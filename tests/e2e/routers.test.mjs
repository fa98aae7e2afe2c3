// Routers with options: where they answer, what they let through, and what they add.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { request } from "node:http";
import { after, before, describe, test } from "node:test";
import { assertProblem, readAnswer } from "./support/api.mjs";
import { rawRequest } from "./support/raw-http.mjs";
import { until } from "./support/until.mjs";
import { startWorker } from "./support/worker.mjs";

let worker;
before(async () => {
  const objects = { Fixture: "Fixture", Planner: "Planner", Flaky: "Flaky" };
  worker = await startWorker({ build: "build/test-worker", objects });
});
after(() => worker?.dispose());

const at = (router, path, init) => worker.fetch(`/routers/${router}/${path}`, init);
const answerOf = async (...call) => readAnswer(await at(...call));
const fresh = () => `n-${randomUUID()}`;

/** The headers about other origins, without their common beginning. */
const corsOf = (headers) => {
  const all = headers instanceof Headers ? [...headers] : Object.entries(headers);
  const ours = all.filter(([name]) => name.startsWith("access-control-"));
  return Object.fromEntries(ours.map(([name, value]) => [name.slice("access-control-".length), value]));
};

const ANY = { "allow-origin": "*", "allow-methods": "GET, POST, HEAD, OPTIONS", "allow-headers": "*", "max-age": "86400" };

const preflight = (router, path, origin = "https://a.example", extra = {}) =>
  rawRequest(worker, `/routers/${router}/${path}`, {
    method: "OPTIONS",
    headers: { origin, "access-control-request-method": "POST", ...extra },
  });

describe("RT-03 a preflight", () => {
  const routes = ["fixture/n1", "fixture/n1/", "fixture/n1/callback", "fixture/u1%2Fs1/a/b"];
  for (const path of routes) {
    test(`for ${path} is answered by the router where any origin is allowed`, async () => {
      const { status, headers, text } = await preflight("cors-any", path);
      assert.equal(status, 200);
      assert.equal(text, "");
      assert.deepEqual(corsOf(headers), ANY);
      assert.equal(headers.vary, undefined);
    });
  }

  for (const router of ["plain", "cors-any", "cors-list"]) {
    for (const path of ["unknown/n1", "Fixture/n1", "fixture", "fixture/", "fixture/%FF", "fixture/%zz/x"]) {
      test(`for ${path}, where no object is, is left to the app by the router "${router}"`, async () => {
        const { status, headers, text } = await preflight(router, path);
        assert.deepEqual([status, text], [404, "the app"]);
        assert.deepEqual(corsOf(headers), {});
      });
    }
  }

  test("for a path that is no agent path is left to the app", async () => {
    const { status, text } = await rawRequest(worker, "/other", { method: "OPTIONS" });
    assert.deepEqual([status, text], [404, "Not found"]);
  });

  test("reaches the object where no other origin is allowed", async () => {
    const { status, headers, text } = await preflight("plain", `flaky/${fresh()}`);
    assert.equal(status, 200);
    assert.equal(JSON.parse(text).method, "OPTIONS");
    assert.equal(corsOf(headers)["allow-methods"], undefined);
  });

  test("wakes no object where the router answers", async () => {
    const before = (await worker.objectIds("Fixture")).length;
    await preflight("cors-any", `fixture/${fresh()}`);
    assert.equal((await worker.objectIds("Fixture")).length, before);
  });

  test("of a listed origin is told its own name and the headers that it asks for", async () => {
    for (const origin of ["https://a.example", "https://b.example"]) {
      const asked = { "access-control-request-headers": "authorization,x-mine" };
      const { status, headers } = await preflight("cors-list", "fixture/n1", origin, asked);
      assert.equal(status, 200);
      assert.deepEqual(corsOf(headers), { ...ANY, "allow-origin": origin, "allow-headers": "authorization,x-mine" });
      assert.equal(headers.vary, "Origin, Access-Control-Request-Headers");
    }
  });

  test("of an origin that is not listed is told nothing, and caches know", async () => {
    for (const origin of ["https://c.example", "http://a.example", "https://a.example.evil.example", "null"]) {
      const { headers } = await preflight("cors-list", "fixture/n1", origin);
      assert.deepEqual(corsOf(headers), {});
      assert.equal(headers.vary, "Origin");
    }
  });

  test("gets exactly the headers that the Worker has chosen", async () => {
    const { headers } = await preflight("cors-own", "fixture/n1");
    assert.deepEqual(corsOf(headers), { "allow-origin": "https://own.example", "expose-headers": "x-mine" });
  });
});

describe("RT-03 an answer to another origin", () => {
  const headers = { origin: "https://a.example" };

  test("carries the headers whatever its status, and keeps its own", async () => {
    const name = fresh();
    for (const [path, status] of [
      [`fixture/${name}/headers`, 200],
      [`fixture/${name}/no-such-verb`, 404],
      ["unknown/n1", 404],
      ["fixture/%FF/headers", 400],
      [`flaky/${name}/x?fail=9`, 500],
      [`flaky/${name}/y?fail=9&flags={"overloaded":true}`, 503],
    ]) {
      const answer = await at("cors-any", path, { headers });
      assert.equal(answer.status, status, path);
      assert.deepEqual(corsOf(answer.headers), ANY, path);
      await answer.text();
    }
  });

  test("is the object's but for those headers: cookies, Vary and body stay", async () => {
    const answer = await at("cors-list", `flaky/${fresh()}`, { headers });
    assert.deepEqual(answer.headers.getSetCookie(), ["a=1", "b=2"]);
    assert.equal(answer.headers.get("vary"), "accept, Origin");
    assert.equal(answer.headers.get("access-control-allow-origin"), "https://a.example");
    assert.equal((await answer.json()).method, "GET");
  });

  test("does not say what the object allows when the router does not allow it", async () => {
    const answer = await at("cors-list", `flaky/${fresh()}`, { headers: { origin: "https://c.example" } });
    assert.equal(answer.status, 200);
    assert.deepEqual(corsOf(answer.headers), {});
    await answer.text();
  });

  test("is left alone where the router has no such headers", async () => {
    const answer = await at("plain", `flaky/${fresh()}`, { headers });
    assert.deepEqual(corsOf(answer.headers), { "allow-origin": "https://object.example" });
    assert.equal(answer.headers.get("vary"), "accept");
    await answer.text();
  });
});

describe("RT-02 a name", () => {
  test("is decoded by a router, and taken literally by one that is told so", async () => {
    for (const [segment, decoded] of [
      ["a%20b", "a b"],
      ["u1%2Fs1", "u1/s1"],
      ["a%2520b", "a%20b"],
      ["%E5%90%8D%E5%89%8D", "名前"],
    ]) {
      assert.equal((await answerOf("plain", `fixture/${segment}/headers`)).body.name, decoded);
      assert.equal((await answerOf("raw", `fixture/${segment}/headers`)).body.name, segment);
    }
    assert.equal((await answerOf("raw", "fixture/%FF/headers")).body.name, "%FF");
    assertProblem(await answerOf("raw", `fixture/${"x".repeat(1025)}/headers`), 400, /1,024 bytes/);
  });

  test("comes back from a URL that was built for it", async () => {
    const names = ["u1/s1", "名前", "a b", "a%20b", "%2e%2e", "...", "a\\b?c#d", "!'()*", "\t", "🎉", "%"];
    for (const name of names) {
      const segment = (await readAnswer(await worker.fetch(`/routers/encode?name=${encodeURIComponent(name)}`))).body;
      assert.match(segment, /^[\w.~%-]+$/);
      assert.equal((await answerOf("plain", `fixture/${segment}/headers`)).body.name, name);
    }
    for (const name of ["", ".", "..", "x".repeat(1025)]) {
      const { body } = await readAnswer(await worker.fetch(`/routers/encode?name=${encodeURIComponent(name)}`));
      assert.equal(body, null, name);
    }
  });
});

describe("props", () => {
  const forged = { "x-agents-lifecycle-props": '{"admin":true}', "X-Agents-Lifecycle-Start": "1" };

  test("of a router reach an object that accepts them, whatever a request brings", async () => {
    const answer = await answerOf("props", `planner/${fresh()}/props`, { headers: forged });
    assert.deepEqual(answer.body, { user: "名前" });
  });

  test("are those with which the object was started", async () => {
    const name = fresh();
    await answerOf("plain", `planner/${name}/log`);
    assert.equal((await answerOf("props", `planner/${name}/props`)).body, null);
    await worker.evict("Planner", name);
    assert.deepEqual((await answerOf("props", `planner/${name}/props`)).body, { user: "名前" });
  });

  test("are seen neither by requests of the object nor by one that does not accept them", async () => {
    const { body } = await answerOf("props", `fixture/${fresh()}/headers`, { headers: forged });
    assert.deepEqual(
      Object.keys(body.headers).filter((name) => name.startsWith("x-agents-")),
      [],
    );
  });

  test("from outside never reach an object by a router without any", async () => {
    for (const router of ["plain", "hooks"]) {
      assert.equal((await answerOf(router, `planner/${fresh()}/props?hook=change`, { headers: forged })).body, null);
    }
  });
});

describe("a hook", () => {
  test("answers in place of the object, with the router's headers", async () => {
    const before = (await worker.objectIds("Fixture")).length;
    const answer = await at("hooks", `fixture/u1%2F${fresh()}/headers?hook=deny`);
    assert.equal(answer.status, 403);
    assert.match(await answer.text(), /^Fixture:u1\/n-/);
    assert.deepEqual(corsOf(answer.headers), ANY);
    assert.equal((await worker.objectIds("Fixture")).length, before);
  });

  test("changes a request and keeps its body", async () => {
    const name = fresh();
    const changed = await answerOf("hooks", `fixture/${name}/headers?hook=change`, { headers: { "x-mine": "kept" } });
    assert.equal(changed.body.headers["x-hook"], name);
    assert.equal(changed.body.headers["x-mine"], "kept");
    const post = { method: "POST", body: "hello" };
    const { body } = await answerOf("hooks", `flaky/${name}?hook=change`, post);
    assert.deepEqual(body, { failed: 0, method: "POST", length: 5, begin: "hello" });
  });

  test("sees no internal header", async () => {
    const headers = { "x-agents-lifecycle-props": "{}", "x-cf-agents-subagent-url": "x", "x-mine": "kept" };
    const { body } = await answerOf("hooks", "fixture/n1/headers?hook=headers", { headers });
    assert.ok(body.includes("x-mine"));
    assert.deepEqual(
      body.filter((name) => /^x-(agents|cf-agents)-/.test(name)),
      [],
    );
  });

  test("that fails is answered with 500, without details but in the log", async () => {
    const answer = await at("hooks", "fixture/n1/headers?hook=fail");
    assert.deepEqual(corsOf(answer.headers), ANY);
    const problem = assertProblem(await readAnswer(answer), 500);
    assert.doesNotMatch(JSON.stringify(problem), /on purpose/);
    await until("the log", () => worker.output.includes("on purpose, in a hook"));
  });

  test("is not asked about a preflight that the router answers", async () => {
    assert.equal((await preflight("hooks", "fixture/n1?hook=deny")).status, 200);
  });
});

describe("a WebSocket", () => {
  /** What a request for one is answered with: `{ status, headers, text? }`. */
  const upgrade = (path, headers = {}) =>
    new Promise((resolve, reject) => {
      const { hostname, port } = new URL(worker.origin);
      const all = { connection: "Upgrade", upgrade: "WebSocket", "sec-websocket-version": "13", ...headers };
      all["sec-websocket-key"] = Buffer.alloc(16, 7).toString("base64");
      const call = request({ hostname, port, path: `/routers/${path}`, headers: all, agent: false });
      call.on("error", reject);
      call.on("upgrade", ({ statusCode, headers }, socket) => {
        socket.destroy();
        resolve({ status: statusCode, headers });
      });
      call.on("response", (response) => {
        let text = "";
        response.on("data", (chunk) => (text += chunk));
        response.on("end", () => resolve({ status: response.statusCode, headers: response.headers, text }));
      });
      call.end();
    });

  for (const router of ["plain", "cors-any", "cors-list", "props", "hooks", "place", "once"]) {
    test(`opens through the router "${router}", whose answer has no header about origins`, async () => {
      const origin = { origin: "https://a.example", "x-agents-lifecycle-props": "{}" };
      const { status, headers } = await upgrade(`${router}/planner/${fresh()}/socket`, origin);
      assert.equal(status, 101);
      assert.deepEqual(corsOf(headers), {});
    });
  }

  test("carries messages through a router with hooks", async () => {
    const url = new URL(`/routers/hooks/planner/${fresh()}/socket?hook=change`, worker.origin.replace("http", "ws"));
    const socket = new WebSocket(url);
    const message = await new Promise((resolve, reject) => {
      socket.addEventListener("open", () => socket.send("one"));
      socket.addEventListener("message", ({ data }) => resolve(JSON.parse(data)));
      socket.addEventListener("error", reject);
    });
    assert.equal(message.text, "one");
    socket.close();
  });

  test("is refused by the hook for connections", async () => {
    const { status, text } = await upgrade("hooks/planner/n1/socket?hook=deny");
    assert.deepEqual([status, text], [403, "Planner:n1"]);
  });

  test("is refused where no object is", async () => {
    assert.equal((await upgrade("plain/unknown/n1")).status, 404);
    assert.equal((await upgrade("plain/planner/%FF")).status, 400);
  });
});

describe("a request that the platform does not deliver", () => {
  const PASSING = '{"retryable":true}';
  const flaky = (router, query, init) => answerOf(router, `flaky/${fresh()}?${query}`, init);

  test("is sent up to three times", async () => {
    for (const router of ["plain", "thrice"]) {
      assert.equal((await flaky(router, `fail=2&flags=${PASSING}`)).body.failed, 2);
    }
    const answer = await flaky("thrice", `fail=3&flags=${PASSING}`);
    assertProblem(answer, 503);
    assert.equal(answer.headers.get("retry-after"), "1");
  });

  test("is sent once when it is not to be sent again", async () => {
    for (const [router, flags, status] of [
      ["thrice", "{}", 500],
      ["thrice", '{"overloaded":true}', 503],
      ["thrice", '{"retryable":true,"overloaded":true}', 503],
      ["once", PASSING, 503],
    ]) {
      assertProblem(await flaky(router, `fail=1&flags=${flags}`), status);
    }
  });

  test("keeps its body each time, as long as that is short", async () => {
    for (const length of [0, 5, 1024 * 1024]) {
      const body = "x".repeat(length);
      const answer = await flaky("thrice", `fail=2&flags=${PASSING}`, { method: "POST", body });
      assert.equal(answer.status, 200, `${length}`);
      assert.deepEqual([answer.body.failed, answer.body.length, answer.body.method], [2, length, "POST"]);
    }
  });

  test("is sent once when its body is long, or of unknown length", async () => {
    const long = "x".repeat(1024 * 1024 + 1);
    const stream = () => new Blob(["hello"]).stream();
    for (const [body, length] of [
      [() => long, long.length],
      [stream, 5],
    ]) {
      const post = () => ({ method: "POST", body: body(), duplex: "half" });
      assertProblem(await flaky("thrice", `fail=1&flags=${PASSING}`, post()), 503);
      assert.equal((await flaky("thrice", "fail=0", post())).body.length, length);
    }
  });
});

describe("where objects live", () => {
  test("a location hint is taken", async () => {
    const name = fresh();
    assert.equal((await answerOf("place", `fixture/${name}/headers`)).body.name, name);
  });

  test("jurisdiction and location hint reach the platform", async () => {
    const { body } = await answerOf("recorded", "recorded/a%20b/x");
    assert.deepEqual(body, ["fedramp", "a b", { locationHint: "weur" }]);
  });

  test("a jurisdiction that the runtime does not have is answered with 500", async () => {
    const answer = await at("jurisdiction", "fixture/n1/headers");
    assert.deepEqual(corsOf(answer.headers), ANY);
    assertProblem(await readAnswer(answer), 500);
    await until("the log", () => /jurisdiction/i.test(worker.output));
  });
});

describe("an agent by its name", () => {
  const byName = async (path, init) => readAnswer(await worker.fetch(`/routers/by-name/${path}`, init));

  test("is the object that a router finds under that name", async () => {
    const name = `u1/${fresh()}`;
    const segment = encodeURIComponent(name);
    await answerOf("plain", `fixture/${segment}/count`);
    assert.deepEqual((await byName(`Fixture/${segment}/count`)).body, { memory: 2, stored: 2 });
    assert.equal((await byName(`Fixture/${segment}/stub`)).body.name, name);
  });

  test("has been started, with props, before it is asked anything", async () => {
    const name = fresh();
    assert.equal((await byName(`Planner/${name}/only-start`)).body, name);
    assert.deepEqual((await answerOf("plain", `planner/${name}/props`)).body, { by: "name" });
    const { body } = await answerOf("plain", `planner/${name}/log`);
    assert.deepEqual(body.slice(0, 4), ["alpha: start by call", "omega: start by call", "host: start", "alpha: request"]);
  });

  test("gets no internal header from outside", async () => {
    const headers = { "x-agents-lifecycle-props": '{"admin":true}', "x-agents-lifecycle-start": "1" };
    const name = fresh();
    assert.deepEqual((await byName(`Planner/${name}/props`, { headers })).body, { by: "name" });
    const { body } = await byName(`Fixture/${name}/headers`, { headers });
    assert.equal(body.name, name);
  });

  test("that does not start is an error", async () => {
    const name = fresh();
    await answerOf("plain", `fixture/${name}/fail-next-start`);
    await worker.evict("Fixture", name);
    const failed = await byName(`Fixture/${name}/headers`);
    assert.deepEqual([failed.status, /does not start.* 500/.test(failed.body)], [502, true]);
    assert.equal((await byName(`Fixture/${name}/headers`)).status, 200);
  });

  test("that is no agent is asked all the same", async () => {
    assert.equal((await byName(`Flaky/${fresh()}/x`)).body.failed, 0);
  });

  test("of no binding is an error that names it", async () => {
    const { status, body } = await byName("Nothing/n1/x");
    assert.deepEqual([status, body.includes("Nothing")], [502, true]);
  });
});

test("a request from outside does not pass for an internal one", async () => {
  const headers = { host: "agents-lifecycle.invalid", "x-agents-lifecycle-start": "1" };
  const { status, text } = await rawRequest(worker, "/agents/fixture/forged/headers", { headers });
  assert.equal(status, 200);
  assert.equal(JSON.parse(text).headers["x-agents-lifecycle-start"], undefined);
});
