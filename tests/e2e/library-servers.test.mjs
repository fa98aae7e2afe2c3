// The whole way against one and the same server on each official SDK (see tests/servers/README.md).
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Agent } from "./support/api.mjs";
import { LIBRARIES, TOOLS } from "./support/libraries.mjs";
import { startModernServer, startPythonServer, startRmcpServer } from "./support/real-servers.mjs";
import { startToolAgent } from "./support/worker.mjs";

let worker;
before(async () => (worker = await startToolAgent()));
after(() => worker?.dispose());

const names = (items) => items.map((item) => item.name).sort();
const textOf = (result) => result.content[0].text;

for (const [index, { name, start, path, revision, session }] of LIBRARIES.entries()) {
  describe(`a server on ${name}`, () => {
    let remote;
    const agent = () => new Agent(worker, `library-${index}`);
    const serverId = "library";
    before(async () => (remote = await start()));
    after(() => remote?.stop());

    test("registers, connects and discovers in one request", async () => {
      const server = await agent().add({ id: serverId, name: "Library", url: remote.origin + path });
      assert.equal(server.protocolVersion, revision);
      assert.equal(server.instructions, "Ask for a book by its title.");
      assert.deepEqual(server.counts, { tools: TOOLS.length, prompts: 1, resources: 1, resourceTemplates: 1 });
      assert.equal(server.error ?? null, null);
    });

    test("lists everything", async () => {
      const { tools } = await agent().get("tools");
      const { prompts } = await agent().get("prompts");
      const { resources } = await agent().get("resources");
      const { resourceTemplates } = await agent().get("resource-templates");
      assert.deepEqual(names(tools), TOOLS);
      assert.deepEqual(names(prompts), ["review"]);
      assert.deepEqual(resources.map(({ uri }) => uri), ["book://index"]);
      assert.deepEqual(resourceTemplates.map(({ uriTemplate }) => uriTemplate), ["book://{title}"]);
      const add = tools.find((tool) => tool.name === "add");
      assert.deepEqual(add.inputSchema.required, ["a", "b"]);
      assert.equal(add.outputSchema.properties.sum.type, "number");
      for (const item of [...tools, ...prompts, ...resources, ...resourceTemplates]) {
        assert.equal(item.serverId, serverId);
      }
    });

    test("calls tools: with text, with structured content, with progress on the way, and in vain", async () => {
      const message = "Grüße, 世界 🎉";
      assert.equal(textOf(await agent().call(serverId, "echo", { message })), message);
      const sum = await agent().call(serverId, "add", { a: 2, b: 3.5 });
      assert.deepEqual(sum.structuredContent, { sum: 5.5 });
      assert.equal(textOf(await agent().call(serverId, "count", { steps: 4 })), "counted to 4");
      const failed = await agent().call(serverId, "fail", {});
      assert.equal(failed.isError, true);
      assert.match(textOf(failed), /no such book/);
    });

    test("runs calls side by side", async () => {
      const answers = await Promise.all(
        [5, 1, 3].map((steps) => agent().call(serverId, "count", { steps })),
      );
      assert.deepEqual(answers.map(textOf), ["counted to 5", "counted to 1", "counted to 3"]);
    });

    test("gets a prompt and reads resources whose names need encoding in headers", async () => {
      const title = "Krieg und Frieden – 戦争";
      const prompt = await agent().post("prompts/get", { serverId, name: "review", arguments: { title } });
      assert.equal(prompt.messages[0].content.text, `Review ${title}`);
      const index = await agent().post("resources/read", { serverId, uri: "book://index" });
      assert.equal(index.contents[0].text, "Emma, Ulysses");
      const book = await agent().post("resources/read", { serverId, uri: "book://Emma" });
      assert.equal(book.contents[0].text, "The text of Emma");
      const foreign = await agent().post("resources/read", { serverId, uri: "book://Düne" });
      assert.match(foreign.contents[0].text, /^The text of /);
    });

    test("is back after workerd was killed, in the session it had", async () => {
      const sessions = () => remote.output().match(session ?? /$^/g)?.length ?? 0;
      const begun = sessions();
      if (session) assert.ok(begun > 0, "no session was seen");

      await worker.restart();

      assert.equal(textOf(await agent().call(serverId, "echo", { message: "again" })), "again");
      const server = await agent().server(serverId);
      assert.equal(server.state, "ready");
      assert.equal(server.protocolVersion, revision);
      assert.equal(sessions(), begun);
    });

    test("a call works at once after the server came back without its sessions", async () => {
      await remote.kill();
      remote = await start({ port: remote.port });
      assert.equal(textOf(await agent().call(serverId, "echo", { message: "and again" })), "and again");
      assert.equal((await agent().server(serverId)).state, "ready");
    });
  });
}

test("a tool has both its schemas as the server sent them", async (t) => {
  const remote = await startModernServer();
  t.after(remote.stop);
  const agent = new Agent(worker, "schemas");
  await agent.add({ id: "library", name: "Library", url: remote.url });
  const { tools } = await agent.get("tools");
  const number = { type: "number" };
  const object = { type: "object", additionalProperties: false };
  assert.deepEqual(
    tools.find((tool) => tool.name === "add"),
    {
      name: "add",
      title: "Add",
      description: "Adds two numbers",
      inputSchema: { ...object, properties: { a: number, b: number }, required: ["a", "b"] },
      outputSchema: { ...object, properties: { sum: number }, required: ["sum"] },
      serverId: "library",
    },
  );
});

test("servers on four SDKs live in one object, and filters tell them apart", async (t) => {
  const starts = [() => startPythonServer("v1"), () => startPythonServer("v2"), startRmcpServer, startModernServer];
  const remotes = await Promise.all(starts.map((start) => start()));
  for (const remote of remotes) t.after(remote.stop);
  const agent = new Agent(worker, "libraries");
  await Promise.all(remotes.map(({ url }, n) => agent.add({ id: `library-${n}`, name: `Library ${n}`, url })));
  const { tools } = await agent.get("tools");
  assert.equal(tools.length, starts.length * TOOLS.length);
  const filtered = (await agent.get("tools?server=library-2")).tools;
  assert.deepEqual(names(filtered), TOOLS);
  const sums = await Promise.all(remotes.map((_, n) => agent.call(`library-${n}`, "add", { a: n, b: 1 })));
  assert.deepEqual(sums.map(({ structuredContent }) => structuredContent.sum), [1, 2, 3, 4]);
});
