// The whole way over HTTP with SSE, the transport of 2024-11-05, against servers that still offer it.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Agent, freshAgent } from "./support/api.mjs";
import { startEverythingServer, startEverythingSseServer, startPythonServer } from "./support/real-servers.mjs";
import { startToolAgent } from "./support/worker.mjs";

let worker;
before(async () => (worker = await startToolAgent()));
after(() => worker?.dispose());

const startPython = (generation) => async (options) => {
  const server = await startPythonServer(generation, options);
  return { ...server, url: `${server.origin}/sse` };
};

// Each with a prompt, a resource that is listed and one that only a template describes.
const EVERYTHING = {
  prompt: { name: "args-prompt", arguments: { city: "Lisbon" } },
  text: /Lisbon/,
  dynamic: "demo://resource/dynamic/text/7",
};
const LIBRARY = {
  prompt: { name: "review", arguments: { title: "Emma" } },
  text: /Review Emma/,
  dynamic: "book://Emma",
};

const SERVERS = [
  { name: "server-everything", start: startEverythingSseServer, ...EVERYTHING },
  { name: "the Python SDK 1.x", start: startPython("v1"), ...LIBRARY },
  { name: "the Python SDK 2.x", start: startPython("v2"), ...LIBRARY },
];

for (const [index, { name, start, prompt, text, dynamic }] of SERVERS.entries()) {
  describe(`${name} over SSE`, () => {
    let remote;
    const serverId = "remote";
    const agent = () => new Agent(worker, `sse-${index}`);
    const echo = async (message) => {
      const answer = await agent().tryCall(serverId, "echo", { message });
      if (answer.status === 200) assert.ok(answer.body.content[0].text.endsWith(message), answer.body);
      return answer;
    };
    before(async () => (remote = await start()));
    after(() => remote?.stop());

    test("registers without a word on the transport", async () => {
      const server = await agent().add({ id: serverId, name: "Remote", url: remote.url });
      assert.equal(server.protocolVersion, "2025-11-25");
      assert.ok(server.counts.tools > 0 && server.counts.prompts > 0);
      assert.ok(server.counts.resources > 0 && server.counts.resourceTemplates > 0);
      assert.equal(server.error ?? null, null);
    });

    test("registers with the transport named", async () => {
      const named = freshAgent(worker);
      await named.add({ id: serverId, name: "Remote", url: remote.url, transport: { type: "sse" } });
      const result = await named.call(serverId, "echo", { message: "Grüße, 世界 🎉" });
      assert.match(result.content[0].text, /Grüße, 世界 🎉$/);
      await named.remove(serverId);
    });

    test("calls tools, one by one and side by side", async () => {
      for (const message of ["one", "two"]) assert.equal((await echo(message)).status, 200);
      const answers = await Promise.all(["a", "b", "c", "d"].map(echo));
      assert.deepEqual(answers.map(({ status }) => status), [200, 200, 200, 200]);
    });

    test("gets a prompt and reads resources", async () => {
      const { messages } = await agent().post("prompts/get", { serverId, ...prompt });
      assert.match(messages[0].content.text, text);
      const { resources } = await agent().get("resources");
      const listed = await agent().post("resources/read", { serverId, uri: resources[0].uri });
      assert.equal(listed.contents[0].uri, resources[0].uri);
      const described = await agent().post("resources/read", { serverId, uri: dynamic });
      assert.equal(described.contents[0].uri, dynamic);
    });

    test("is back after the object alone was evicted", async () => {
      await worker.evict("ToolAgent", agent().name);
      assert.equal((await echo("evicted")).status, 200);
      assert.equal((await agent().server(serverId)).state, "ready");
    });

    test("is back after workerd was killed", async () => {
      await worker.restart();
      assert.equal((await echo("killed")).status, 200);
      assert.equal((await agent().server(serverId)).state, "ready");
    });

    test("a call works, at the latest the second, after the server came back", async () => {
      await remote.kill();
      remote = await start({ port: remote.port });
      // The first one may be what finds out that the stream is gone, too late to try again.
      const { status } = await echo("first");
      assert.ok([200, 409, 502, 503].includes(status), `${status}`);
      assert.equal((await echo("second")).status, 200);
      assert.equal((await agent().server(serverId)).state, "ready");
    });
  });
}

test("a tool that reports progress on its way answers over SSE", async (t) => {
  const remote = await startPython("v1")();
  t.after(remote.stop);
  const agent = freshAgent(worker);
  await agent.add({ id: "library", name: "Library", url: remote.url });
  const answer = await agent.call("library", "count", { steps: 4 });
  assert.equal(answer.content[0].text, "counted to 4");
});

test("a server is asked the way that it was named for, and no other", async (t) => {
  const remote = await startEverythingSseServer();
  t.after(remote.stop);
  const agent = freshAgent(worker);
  const transport = { type: "streamable-http" };
  const refused = await agent.tryAdd({ id: "sse", name: "SSE", url: remote.url, transport, retry: { maxAttempts: 1 } });
  assert.notEqual(refused.body.state, "ready");

  const modern = await startEverythingServer();
  t.after(modern.stop);
  const wrong = { id: "http", name: "HTTP", url: modern.url, transport: { type: "sse" }, retry: { maxAttempts: 1 } };
  assert.notEqual((await agent.tryAdd(wrong)).body.state, "ready");
});
