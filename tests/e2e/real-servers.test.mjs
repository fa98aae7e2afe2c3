// The whole way against servers that were not written for these tests.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Agent } from "./support/api.mjs";
import { startEverythingServer, startModernServer } from "./support/real-servers.mjs";
import { startToolAgent } from "./support/worker.mjs";

let worker;
before(async () => (worker = await startToolAgent()));
after(() => worker?.dispose());

const names = (items) => items.map((item) => item.name);

describe("server-everything, a server of the 2025 era with sessions and event streams", () => {
  let remote;
  let agent;
  before(async () => {
    remote = await startEverythingServer();
    agent = new Agent(worker, "everything");
  });
  after(() => remote?.stop());

  test("registers, connects and discovers in one request", async () => {
    const server = await agent.add({ id: "everything", name: "Everything", url: remote.url });
    assert.equal(server.protocolVersion, "2025-11-25");
    assert.equal(server.name, "Everything");
    assert.equal(server.url, remote.url);
    assert.match(server.instructions, /Everything Server/);
    assert.ok(server.capabilities.tools);
    assert.equal(server.error ?? null, null);
  });

  test("lists tools, prompts, resources and templates, as many as its entry says", async () => {
    const { counts } = await agent.server("everything");
    const { tools } = await agent.get("tools");
    const { prompts } = await agent.get("prompts");
    const { resources } = await agent.get("resources");
    const { resourceTemplates } = await agent.get("resource-templates");
    assert.deepEqual(counts, {
      tools: tools.length,
      prompts: prompts.length,
      resources: resources.length,
      resourceTemplates: resourceTemplates.length,
    });
    assert.ok(names(tools).includes("echo"), names(tools).join());
    assert.ok(names(prompts).includes("simple-prompt"), names(prompts).join());
    assert.ok(resources.length > 0 && resourceTemplates.length > 0);
    for (const item of [...tools, ...prompts, ...resources, ...resourceTemplates]) {
      assert.equal(item.serverId, "everything");
    }
  });

  test("calls a tool", async () => {
    const result = await agent.call("everything", "echo", { message: "Grüße, 世界 🎉" });
    assert.deepEqual(result.content, [{ type: "text", text: "Echo: Grüße, 世界 🎉" }]);
  });

  test("calls a tool with numbers", async () => {
    const result = await agent.call("everything", "get-sum", { a: 2, b: 3.5 });
    assert.match(result.content[0].text, /5\.5/);
  });

  test("passes structured content and binary content on unchanged", async () => {
    const structured = await agent.call("everything", "get-structured-content", { location: "New York" });
    assert.equal(typeof structured.structuredContent.temperature, "number");
    const image = await agent.call("everything", "get-tiny-image", {});
    assert.ok(image.content.some((block) => block.type === "image" && block.data.length > 100));
  });

  test("calls a tool that reports progress on its way", async () => {
    const result = await agent.call("everything", "trigger-long-running-operation", { duration: 0.3, steps: 3 });
    assert.match(result.content[0].text, /completed/i);
  });

  test("gives a tool's own error back as a result", async () => {
    const result = await agent.call("everything", "get-sum", { a: "two" });
    assert.equal(result.isError, true);
  });

  test("gets prompts without and with arguments", async () => {
    const simple = await agent.post("prompts/get", { serverId: "everything", name: "simple-prompt" });
    assert.equal(simple.messages[0].content.type, "text");
    const withArguments = { serverId: "everything", name: "args-prompt", arguments: { city: "Lisbon" } };
    const filled = await agent.post("prompts/get", withArguments);
    assert.match(filled.messages[0].content.text, /Lisbon/);
  });

  test("reads a listed resource and one that only a template describes", async () => {
    const { resources } = await agent.get("resources");
    const listed = await agent.post("resources/read", { serverId: "everything", uri: resources[0].uri });
    assert.equal(listed.contents[0].uri, resources[0].uri);
    const uri = "demo://resource/dynamic/text/7";
    const dynamic = await agent.post("resources/read", { serverId: "everything", uri });
    assert.match(dynamic.contents[0].text, /7/);
  });

  test("is back after workerd was killed, in the session it had", async () => {
    const sessions = () => remote.output().match(/Session initialized/g).length;
    const begun = sessions();

    await worker.restart();

    assert.match((await agent.call("everything", "echo", { message: "again" })).content[0].text, /again/);
    assert.equal(sessions(), begun);
  });

  test("a call works at once after the server came back without its sessions", async () => {
    await remote.kill();
    remote = await startEverythingServer({ port: remote.port });
    // It refuses an unknown session with 400, not with the 404 that the specification asks for.
    assert.match((await agent.call("everything", "echo", { message: "and again" })).content[0].text, /and again/);
  });
});

test("two servers of both eras live in one object, and filters tell them apart", async (t) => {
  const old = await startEverythingServer();
  t.after(old.stop);
  const modern = await startModernServer();
  t.after(modern.stop);
  const agent = new Agent(worker, "both-eras");
  await Promise.all([
    agent.add({ id: "old", name: "Old", url: old.url }),
    agent.add({ id: "new", name: "New", url: modern.url }),
  ]);
  const ids = async (query) => new Set((await agent.get(`tools${query}`)).tools.map((tool) => tool.serverId));
  assert.deepEqual(await ids(""), new Set(["old", "new"]));
  assert.deepEqual(await ids("?server=new"), new Set(["new"]));
  assert.deepEqual(await ids("?name=Old"), new Set(["old"]));
  assert.deepEqual(await ids("?server=old&server=new"), new Set(["old", "new"]));
  assert.deepEqual(await ids("?server=old&name=New"), new Set());
  assert.deepEqual(await ids("?state=failed"), new Set());
});
