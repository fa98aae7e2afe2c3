// Tools for models: the loop against scripted models, with the tools of a real MCP server.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { scriptedAi, startModel } from "./support/models.mjs";
import { inRoot } from "./support/paths.mjs";
import { startEverythingServer } from "./support/real-servers.mjs";
import { until } from "./support/until.mjs";
import { startWorker } from "./support/worker.mjs";

const ECHO = "tool_everything_echo";
const SUM = "tool_everything_get-sum";

const call = (id, name, args) => ({ id, type: "function", function: { name, arguments: JSON.stringify(args) } });
const says = (content, calls) => ({
  json: {
    choices: [{ message: { role: "assistant", content, tool_calls: calls }, finish_reason: calls ? "tool_calls" : "stop" }],
    usage: { prompt_tokens: 10, completion_tokens: 2 },
  },
});

describe("a model that uses tools", () => {
  let worker, server, model, ai;
  let script, aiScript;
  before(async () => {
    model = await startModel((body, number) => script(body, number));
    ai = await startModel((body, number) => aiScript(body, number));
    server = await startEverythingServer();
    worker = await startWorker({
      build: "build/test-worker",
      objects: { AiAgent: "AiAgent" },
      wrapped: { AI: scriptedAi(ai.url) },
    });
    const added = await ask("add", { url: server.url });
    assert.equal(added.state, "ready", JSON.stringify(added));
  });
  after(async () => {
    await worker?.dispose();
    await server?.stop?.();
    model?.close();
    ai?.close();
  });

  async function ask(verb, body = {}) {
    const answer = await worker.fetch(`/agents/ai-agent/me/${verb}`, { method: "POST", body: JSON.stringify(body) });
    const text = await answer.text();
    assert.equal(answer.status, 200, `${verb}: ${text}\n${worker.output}`);
    return JSON.parse(text);
  }
  const http = (body) => ask("http", { url: model.url, key: "sk-secret", steps: 5, prompt: "go", ...body });
  const binding = (body) => ask("binding", { steps: 5, prompt: "go", ...body });

  test("knows every tool by a legal name, and schemas are converted once", async () => {
    const { tools, workersAi, anthropic, responses } = await ask("tools");
    const { conversions } = await ask("tools");
    assert.equal(conversions, 3 * tools.length);
    assert.ok(tools.length > 5 && tools.some(({ name }) => name === ECHO), JSON.stringify(tools));
    for (const { name } of tools) assert.match(name, /^[A-Za-z0-9_-]{1,64}$/);
    assert.equal(new Set(tools.map(({ name }) => name)).size, tools.length);
    const echo = (list) => list.find((tool) => (tool.name ?? tool.function.name) === ECHO);
    assert.equal(echo(anthropic).input_schema.type, "object");
    assert.equal(echo(workersAi).function.parameters.properties.message.type, "string");
    assert.equal(echo(responses).strict, true);
    assert.equal(echo(responses).parameters.additionalProperties, false);
    assert.equal((await ask("tools")).conversions, conversions);
  });

  test("calls several at once over HTTP, and is told what came of each", async () => {
    model.requests.length = 0;
    script = (body, number) =>
      number === 0
        ? says(null, [
            call("a", ECHO, { message: "hello" }),
            call("b", SUM, { a: 2, b: 3 }),
            call("c", "no_such_tool", {}),
            call("d", ECHO, { message: 7 }),
            { id: "e", type: "function", function: { name: ECHO, arguments: "{not json" } },
          ])
        : says("done");
    const answer = await http();
    assert.equal(answer.text, "done", JSON.stringify(answer));
    assert.deepEqual(answer.ended, { done: "stop" });
    assert.deepEqual(answer.usage, { inputTokens: 20, outputTokens: 4 });
    const [first, second] = model.requests;
    assert.equal(first.headers.authorization, "Bearer sk-secret");
    assert.equal(first.body.model, "scripted");
    assert.ok(first.body.tools.some((tool) => tool.function.name === SUM && tool.function.strict));
    assert.deepEqual(first.body.messages, [
      { role: "system", content: "Be brief." },
      { role: "user", content: "go" },
    ]);
    const told = second.body.messages.slice(3);
    assert.deepEqual(
      told.map((message) => [message.role, message.tool_call_id]),
      ["a", "b", "c", "d", "e"].map((id) => ["tool", id]),
    );
    assert.match(told[0].content, /hello/);
    assert.match(told[1].content, /5/);
    assert.match(told[2].content, /^Error: there is no tool/);
    assert.match(told[3].content, /^Error: /);
    assert.match(told[4].content, /^Error: not called: the arguments/);
  });

  test("streams its text over HTTP", async () => {
    model.requests.length = 0;
    const delta = (it, finish_reason = null) => ({ choices: [{ delta: it, finish_reason }] });
    const piece = (args, rest) => delta({ tool_calls: [{ index: 0, function: { arguments: args }, ...rest }] });
    script = (body, number) => {
      if (number > 0) return { chunks: [delta({ content: "it is " }), delta({ content: "5" }, "stop")] };
      const first = { index: 0, id: "x", function: { name: SUM, arguments: "" } };
      return {
        chunks: [delta({ content: "let me " }), delta({ content: "see" }), delta({ tool_calls: [first] }), piece('{"a":2,'), piece('"b":3}'), delta({}, "tool_calls")],
      };
    };
    const answer = await http({ stream: true });
    assert.equal(answer.text, "it is 5", JSON.stringify(answer));
    assert.deepEqual(answer.told, ["let me ", "see", "it is ", "5"]);
    assert.equal(model.requests[0].body.stream, true);
    assert.match(model.requests[1].body.messages.at(-1).content, /5/);
  });

  test("runs by the binding of Workers AI, in its older form, whole and streamed", async () => {
    ai.requests.length = 0;
    aiScript = (body, number) =>
      number === 0
        ? { json: { response: null, tool_calls: [{ name: ECHO, arguments: { message: "tide" } }] } }
        : { json: { response: "high" } };
    const answer = await binding();
    assert.equal(answer.text, "high", JSON.stringify(answer));
    const [first, second] = ai.requests.map(({ body }) => body);
    assert.equal(first.model, "@cf/scripted");
    assert.deepEqual(first.options, { gateway: { id: "g" } });
    const [asked, told] = second.inputs.messages.slice(2);
    assert.equal(asked.tool_calls[0].id, told.tool_call_id);
    assert.equal(told.name, ECHO);
    assert.match(told.content, /tide/);
    ai.requests.length = 0;
    aiScript = () => ({ chunks: [{ response: "hi" }, { response: "gh" }] });
    const streamed = await binding({ stream: true });
    assert.deepEqual([streamed.text, streamed.told], ["high", ["hi", "gh"]], JSON.stringify(streamed));
  });

  test("is kept from what nobody allows, and stops when it has had its steps", async () => {
    model.requests.length = 0;
    script = () => says(null, [call("same", SUM, { a: 1, b: 1 }), call("same", ECHO, { message: "yes" })]);
    const answer = await http({ careful: true, steps: 2 });
    assert.equal(answer.ended, "max-steps", JSON.stringify(answer));
    assert.equal(model.requests.length, 2);
    const [denied, allowed] = answer.steps[1].calls;
    assert.equal(denied.output, "Error: not called: ask the user first");
    assert.match(allowed.output, /yes/);
    const ids = answer.steps.flatMap(({ calls }) => calls.map(({ id }) => id));
    assert.equal(new Set(ids).size, 4, ids.join());
  });

  test("says why it failed, without the key", async () => {
    model.requests.length = 0;
    script = () => ({ status: 401, json: { error: { message: "Incorrect API key provided: sk-secret" } } });
    const { error } = await http();
    assert.equal(error, "the model answered with status 401: Incorrect API key provided: ...");
    aiScript = () => ({ status: 500, json: { no: "model" } });
    assert.match((await binding()).error, /^the model failed: 5007: /);
    assert.match((await ask("http", { url: "http://10.0.0.1/v1", key: "k" })).error, /10\.0\.0\.1/);
  });

  test("is given up when it takes too long, and when nobody waits any more", async () => {
    for (const [endpoint, run] of [
      [model, http],
      [ai, binding],
    ]) {
      endpoint.requests.length = 0;
      script = aiScript = () => ({ silence: true });
      assert.match((await run({ timeout: 200 })).error, /took longer than 200 ms/);
      await until("the request to be gone", () => endpoint.requests[0].gone);
      assert.equal(await run({ abandon: 200 }), "abandoned");
      await until("the request to be gone", () => endpoint.requests[1].gone);
    }
  });
});

test("a Worker that has no models links nothing of this", async () => {
  const links = async (build) => (await readFile(inRoot(build, "index_bg.wasm"))).includes("tool_calls");
  assert.equal(await links("build/test-worker"), true);
  assert.equal(await links("build/quick/smallest"), false);
});
