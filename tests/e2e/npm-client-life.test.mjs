// `AgentClient` and `agentFetch` of the npm package through the life of an agent: servers, wakes, restarts, ends, addresses.
// CLIENT_AGENT=both runs the same tests with the package's own agent.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { agentFetch } from "agents/client";
import { freePort } from "./support/auth-agent.mjs";
import { startProtected } from "./support/auth-server.mjs";
import { AGENTS } from "./support/client-agent.mjs";
import { npmClients, pictures, untilServer } from "./support/npm-client.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { startTalkingServer } from "./support/talking-server.mjs";
import { until } from "./support/until.mjs";

const AGENT = "client-agent";

for (const [subject, start] of AGENTS) {
  describe(`the npm client with ${subject}`, () => {
    let worker;
    // It keeps its address over restarts.
    before(async () => (worker = await start({ port: await freePort() })));
    after(() => worker?.dispose());

    test("every client follows the MCP servers, and one that comes later gets the whole picture", async (t) => {
      const { connected, several } = npmClients(worker);
      const remote = await startScriptedServer();
      t.after(() => remote.close());
      const [client, other] = await several(t, {}, {});
      const added = await client.call("connect", [remote.url, "Notes"]);
      assert.equal(added.state, "ready");
      for (const follower of [client, other, await connected(t, { name: client.name })]) {
        const { servers, tools, prompts, resources } = await untilServer(follower, "ready");
        assert.deepEqual(Object.keys(servers), [added.id]);
        // Ours says besides how much it offers.
        const { counts, ...server } = servers[added.id];
        assert.deepEqual(server, {
          name: "Notes",
          server_url: remote.url,
          auth_url: null,
          state: "ready",
          capabilities: { tools: {}, prompts: {}, resources: {} },
          instructions: "Echo everything.",
          error: null,
        });
        const [tool] = tools;
        assert.deepEqual([tool.name, tool.description, tool.serverId], ["echo", "Says it again", added.id]);
        assert.deepEqual(tool.inputSchema, { type: "object" });
        assert.deepEqual(prompts, [
          { name: "greet", arguments: [{ name: "who", required: true }], serverId: added.id },
        ]);
        assert.deepEqual(resources, [{ name: "note", uri: "note://1", serverId: added.id }]);
      }
      const states = pictures(other).flatMap(({ servers }) => Object.values(servers).map(({ state }) => state));
      const order = ["connecting", "connected", "discovering", "ready"];
      assert.deepEqual(states, states.toSorted((a, b) => order.indexOf(a) - order.indexOf(b)));
      assert.deepEqual(await client.call("connect", [remote.url, "Notes"]), { id: added.id, state: "ready" });

      await client.call("remove", [added.id]);
      for (const follower of [client, other]) {
        await until("the server to be gone", () => {
          const { servers, tools } = pictures(follower).at(-1);
          return Object.keys(servers).length === 0 && tools.length === 0;
        });
      }
    });

    test("a server that cannot be reached fails the call and is shown as failed", async (t) => {
      const { several } = npmClients(worker);
      const [client, other] = await several(t, {}, {});
      await assert.rejects(client.call("connect", [`http://127.0.0.1:${await freePort()}/mcp`, "Nobody"]));
      await untilServer(other, "failed");
    });

    test("signing in is offered to every client, with the host that the socket was opened at", async (t) => {
      const { several } = npmClients(worker);
      const { as, mcp, close } = await startProtected();
      t.after(close);
      const [client, other] = await several(t, {}, {});
      const added = await client.call("connect", [mcp.url, "Notes"]);
      assert.equal(added.state, "authenticating");
      const redirect = new URL(new URL(added.authUrl).searchParams.get("redirect_uri"));
      assert.equal(redirect.origin, worker.origin.replace?.(/\/$/, "") ?? worker.origin);
      assert.equal(redirect.pathname, `/agents/${AGENT}/${client.name}/callback`);
      await until("the address in a frame", () =>
        pictures(other).some(({ servers }) => servers[added.id]?.auth_url === added.authUrl),
      );
      const callback = new URL(await as.approve(added.authUrl));
      const answer = await worker.fetch(callback.pathname + callback.search);
      assert.equal(answer.status, 302);
      await answer.body?.cancel();
      const { servers, tools } = await untilServer(other, "ready");
      assert.equal(servers[added.id].auth_url, null);
      assert.ok(tools.length > 0);
    });

    test("a question of a server is asked in the client, and answered by it", async (t) => {
      const { several, post } = npmClients(worker);
      const requestedSchema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
      const remote = await startTalkingServer({
        events: true,
        call: async (_, talk) => {
          const { result } = await talk.ask("elicitation/create", { message: "Who?", requestedSchema }, "q1");
          return { content: [{ type: "text", text: JSON.stringify(result) }] };
        },
      });
      t.after(() => remote.close());
      const [client] = await several(t, {});
      const { id } = await client.call("connect", [remote.url, "Asking"]);
      const call = post(client.name, "call", { id, tool: "echo", args: {} });
      const frame = await until("the question", () => client.frames.find((text) => text.includes('"mcp-elicitation"')));
      const question = JSON.parse(frame);
      assert.deepEqual([question.serverId, question.params.message], [id, "Who?"]);
      assert.deepEqual(question.params.requestedSchema, requestedSchema);
      const answer = { action: "accept", content: { name: "Ada" } };
      await client.call("respondToElicitation", [question.id, answer]);
      assert.deepEqual(JSON.parse((await call).content[0].text), answer);
    });

    test("the object is evicted, and no client notices", async (t) => {
      const { open, several, connections } = npmClients(worker);
      const [client, reader] = await several(t, {}, { query: { readonly: "1", tag: "x" } });
      const silent = open(t, { name: client.name, query: { protocol: "0" } });
      await silent.call("nothing");
      const closed = t.mock.fn();
      for (const each of [client, reader, silent]) each.addEventListener("close", closed);
      for (const count of [1, 2]) {
        await worker.evict("ClientAgent", client.name);
        client.setState({ count });
        await until("the state", () => reader.state.count === count);
      }
      await worker.evict("ClientAgent", client.name);
      reader.setState({ count: 9 });
      await until("the refusal", () => reader.refusals.length === 1);
      await worker.evict("ClientAgent", client.name);
      assert.equal(await silent.call("add", [2, 2]), 4);
      assert.deepEqual(silent.frames.filter((frame) => frame.includes("cf_agent")), []);
      assert.equal((await connections(client.name)).length, 3);
      assert.equal((await connections(client.name, "x")).length, 1);
      assert.equal(closed.mock.callCount(), 0);
    });

    test("the client comes back by itself when workerd was killed, and finds everything", async (t) => {
      const { several, connections, settled } = npmClients(worker);
      const remote = await startScriptedServer();
      t.after(() => remote.close());
      const [client, reader] = await several(t, { id: "kept" }, { query: async () => ({ readonly: "1" }) });
      await client.call("connect", [remote.url, "Notes"]);
      client.setState({ count: 7 });
      await until("the state", () => reader.state.count === 7);
      for (const each of [client, reader]) each.updates.length = each.frames.length = 0;

      const lost = assert.rejects(client.call("wait", ["never"]), { message: "Connection closed" });
      await settled(client);
      await worker.restart();
      await lost;
      // Given up before the connection is back, it would be lost; this one is sent then.
      const kept = client.call("add", [20, 3]);
      await Promise.all([client.ready, reader.ready]);
      assert.equal(await kept, 23);
      for (const each of [client, reader]) {
        assert.deepEqual(each.updates, [["server", { count: 7 }]]);
        await untilServer(each, "ready");
        assert.deepEqual(each.identities, [[client.name, AGENT], [client.name, AGENT]]);
      }
      reader.setState({ count: 8 });
      await until("the refusal", () => reader.refusals.length === 1);
      assert.ok((await connections(client.name)).includes("kept"), "it keeps its id");
    });

    test("a client that says goodbye is forgotten, and its calls end", async (t) => {
      const { several, connections, settled } = npmClients(worker);
      const [client, other] = await several(t, { id: "leaves" }, { id: "stays" });
      const lost = assert.rejects(client.call("wait", ["never"]), { message: "Connection closed" });
      await settled(client);
      const closed = new Promise((resolve) => client.addEventListener("close", resolve));
      client.close();
      await lost;
      assert.equal((await closed).code, 1000);
      await until("it to be forgotten", async () => (await connections(other.name)).length === 1);
      assert.deepEqual(await connections(other.name), ["stays"]);
    });

    test("the codes the agent closes with reach the client, which comes back or not as they say", async (t) => {
      const { freshName, connected } = npmClients(worker);
      const final = await connected(t, { name: freshName() });
      final.send("close 4001 you are done");
      await until("the end", () => final.ends.length === 1);
      assert.deepEqual(final.ends, [{ code: 4001, reason: "you are done" }]);
      await assert.rejects(final.call("add", [1, 2]), { message: "Connection closed" });

      const policy = await connected(t, { name: freshName() });
      policy.send("close 1008 not you");
      await until("the end", () => policy.ends.length === 1);

      const again = await connected(t, { name: freshName() });
      const codes = [];
      again.addEventListener("close", ({ code }) => codes.push(code));
      again.send("close 1011 try again");
      await until("it to come back", () => again.identities.length === 2);
      assert.deepEqual([codes, again.ends], [[1011], []]);
      assert.equal(await again.call("add", [1, 2]), 3);
    });

    for (const name of ["u1/s1", "名前", "a b", "100%", "a.b~c_d-e", "%", "ünïcode ☃"]) {
      test(`the name ${JSON.stringify(name)} leads to one object, by socket and by HTTP`, async (t) => {
        const { connected, http, settled } = npmClients(worker);
        const written = `${encodeURIComponent(name)}-${Date.now()}`;
        const client = await connected(t, { name: written });
        client.setState({ count: 42 });
        await settled(client);
        const byHttp = await http(written, "any");
        assert.equal(byHttp.name, client.name);
        assert.equal(byHttp.path, `/agents/${AGENT}/${written}/any`);
        assert.deepEqual((await connected(t, { name: written })).state, { count: 42 });
        assert.deepEqual((await connected(t, { name: `${written}x` })).state, { count: 0 });
      });
    }

    test("a name that the client does not encode leads where its encoded form leads", async (t) => {
      const { connected, settled } = npmClients(worker);
      const suffix = Date.now();
      for (const name of [`名前 ${suffix}`, `a b ${suffix}`]) {
        const client = await connected(t, { name });
        client.setState({ count: 6 });
        await settled(client);
        assert.deepEqual((await connected(t, { name: encodeURIComponent(name) })).state, { count: 6 });
      }
    });

    test("a path after the name, or a path of its own, leads to the same object", async (t) => {
      const { freshName, connected, settled } = npmClients(worker);
      const name = freshName();
      const first = await connected(t, { name, path: "deep/er" });
      first.setState({ count: 1 });
      await settled(first);
      const byPath = await connected(t, { agent: "Whatever", basePath: `agents/${AGENT}/${name}` });
      assert.deepEqual([byPath.name, byPath.agent, byPath.state], [name, AGENT, { count: 1 }]);
    });

    test("agentFetch gets the agent's answers", async () => {
      const { address, freshName, http } = npmClients(worker);
      const name = freshName();
      assert.deepEqual(await http(name, "some/where", { query: { x: "1" } }), {
        name,
        method: "GET",
        path: `/agents/${AGENT}/${name}/some/where`,
        body: null,
      });
      assert.equal((await http(name, "", { method: "POST", body: "hello ☃" })).body, "hello ☃");
      const unknown = await agentFetch({ ...address(), agent: "Nobody", name });
      assert.ok([400, 404].includes(unknown.status));
      await unknown.body?.cancel();
    });

    test("there is no connection to a class that does not exist, and the client says so in the end", async (t) => {
      const { open } = npmClients(worker);
      const client = open(t, { agent: "Nobody", maxRetries: 1 });
      await until("the end", () => client.ends.length === 1);
      assert.equal(client.identified, false);
    });
  });
}
