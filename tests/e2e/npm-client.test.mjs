// `AgentClient` of the npm package cannot tell our agent from one on the package itself: state, calls, streams, messages.
// CLIENT_AGENT=both runs the same tests with the package's own agent.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { freePort } from "./support/auth-agent.mjs";
import { AGENTS } from "./support/client-agent.mjs";
import { npmClients, pictures } from "./support/npm-client.mjs";
import { until } from "./support/until.mjs";

const AGENT = "client-agent";

for (const [subject, start] of AGENTS) {
  describe(`the npm client with ${subject}`, () => {
    let worker;
    // It keeps its address over restarts.
    before(async () => (worker = await start({ port: await freePort() })));
    after(() => worker?.dispose());

    test("it learns who it talks to, then the state, and then is ready", async (t) => {
      const { freshName, open } = npmClients(worker);
      const name = freshName();
      const client = open(t, { name });
      assert.equal(client.identified, false);
      await client.ready;
      assert.deepEqual([client.identified, client.name, client.agent], [true, name, AGENT]);
      assert.deepEqual(client.identities, [[name, AGENT]]);
      assert.deepEqual(client.state, { count: 0 });
      assert.deepEqual(client.updates, [["server", { count: 0 }]]);
      await until("the servers", () => pictures(client).length > 0);
      const types = client.frames.map((frame) => JSON.parse(frame).type);
      assert.deepEqual(types, ["cf_agent_identity", "cf_agent_state", "cf_agent_mcp_servers"]);
      const { servers, tools, prompts, resources } = pictures(client)[0];
      assert.deepEqual({ servers, tools, prompts, resources }, { servers: {}, tools: [], prompts: [], resources: [] });
    });

    test("the state that one client sets reaches the others, once, and those that come later", async (t) => {
      const { connected, several, settled } = npmClients(worker);
      const [writer, reader] = await several(t, {}, {});
      writer.setState({ count: 5, note: "naïve ☃" });
      await until("the state", () => reader.state.count === 5);
      await Promise.all([settled(writer), settled(reader)]);
      assert.deepEqual(writer.updates, [["server", { count: 0 }], ["client", { count: 5, note: "naïve ☃" }]]);
      assert.deepEqual(reader.updates, [["server", { count: 0 }], ["server", { count: 5, note: "naïve ☃" }]]);
      const late = await connected(t, { name: writer.name });
      assert.deepEqual(late.state, { count: 5, note: "naïve ☃" });
    });

    test("null is a state", async (t) => {
      const { connected, several } = npmClients(worker);
      const [writer, reader] = await several(t, {}, {});
      writer.setState(null);
      await until("the state", () => reader.state === null);
      const late = await connected(t, { name: writer.name });
      assert.deepEqual(late.updates, [["server", null]]);
    });

    test("the state that the agent sets reaches everybody", async (t) => {
      const { several, post } = npmClients(worker);
      const [caller, other] = await several(t, {}, {});
      await caller.call("setCount", [3]);
      assert.deepEqual(caller.state, { count: 3 }, "before the answer");
      await until("the state", () => other.state.count === 3);
      await post(caller.name, "count", { count: 4 });
      await until("the state", () => caller.state.count === 4 && other.state.count === 4);
      assert.deepEqual(other.updates.map(([source]) => source), ["server", "server", "server"]);
    });

    test("a state that the agent refuses is not taken, and the client is told", async (t) => {
      const { connected, several, settled } = npmClients(worker);
      const [writer, reader] = await several(t, {}, {});
      writer.setState({ count: -1 });
      await until("the refusal", () => writer.refusals.length === 1);
      assert.deepEqual(writer.refusals, ["State update rejected"]);
      await assert.rejects(writer.call("setCount", [-1]), /count is negative/);
      await settled(reader);
      assert.deepEqual(reader.updates, [["server", { count: 0 }]]);
      assert.deepEqual((await connected(t, { name: writer.name })).state, { count: 0 });
    });

    test("a readonly connection reads and calls, and cannot write, not even by a call", async (t) => {
      const { several, settled } = npmClients(worker);
      const [writer, reader] = await several(t, {}, { query: { readonly: "1" } });
      reader.setState({ count: 1 });
      await until("the refusal", () => reader.refusals.length === 1);
      assert.deepEqual(reader.refusals, ["Connection is readonly"]);
      await assert.rejects(reader.call("setCount", [1]), { message: "Connection is readonly" });
      assert.equal(await reader.call("add", [1, 2]), 3);
      await settled(writer);
      assert.deepEqual(writer.state, { count: 0 });
      writer.setState({ count: 2 });
      await until("the state", () => reader.state.count === 2);
    });

    test("a connection without protocol gets no frames of it, and can call, send and be sent to", async (t) => {
      const { open, several, post, settled } = npmClients(worker);
      const [client] = await several(t, {});
      const plain = open(t, { name: client.name, query: { protocol: "0" } });
      assert.equal(await plain.call("add", [1, 2]), 3);
      client.setState({ count: 1 });
      await settled(client);
      await post(client.name, "broadcast", { text: "to all" });
      await until("the message", () => plain.frames.includes("to all"));
      assert.equal(plain.identified, false);
      assert.deepEqual(plain.frames.filter((frame) => frame.includes("cf_agent")), []);
    });

    test("a call gives what the callable gives", async (t) => {
      const { several } = npmClients(worker);
      const [client] = await several(t, {});
      assert.equal(await client.call("add", [1, 2]), 3);
      assert.equal(await client.stub.add(3, 4), 7);
      // Rust's nothing is JSON's null; the npm package has no result then.
      assert.equal((await client.call("nothing")) ?? null, null);
    });

    test("a call that fails says why, and the next one works", async (t) => {
      const { several } = npmClients(worker);
      const [client] = await several(t, {});
      await assert.rejects(client.call("fail", ["no luck: ☂"]), { message: "no luck: ☂" });
      await assert.rejects(client.call("missing", [1]), { message: "Method missing does not exist" });
      for (const name of ["constructor", "toString", "__proto__", "onStart", "broadcast", ""]) {
        await assert.rejects(client.call(name), /^Error: Method .* (does not exist|is not callable)$/, name);
      }
      assert.equal(await client.call("add", [1, 1]), 2);
    });

    test("a call that takes its time holds nobody up", async (t) => {
      const { several, release } = npmClients(worker);
      const [client] = await several(t, {});
      const slow = client.call("wait", ["gate"]);
      assert.equal(await client.call("add", [1, 2]), 3);
      await release(client.name, "gate");
      assert.equal(await slow, "gate");
    });

    test("a call that runs out of time is given up, and its late answer does no harm", async (t) => {
      const { several, release } = npmClients(worker);
      const [client] = await several(t, {});
      const warn = t.mock.method(console, "warn", () => {});
      await assert.rejects(client.call("wait", ["late"], { timeout: 50 }), /timed out after 50ms/);
      await release(client.name, "late");
      await until("the late answer", () => client.frames.some((frame) => frame.includes('"result":"late"')));
      assert.equal(warn.mock.callCount(), 1);
      assert.equal(await client.call("add", [1, 2]), 3);
    });

    test("a stream gives its chunks in order, then its result", async (t) => {
      const { several, settled } = npmClients(worker);
      const [client, other] = await several(t, {}, {});
      for (const shape of [(stream) => ({ stream }), (stream) => stream]) {
        const got = [];
        const onChunk = (chunk) => got.push(chunk);
        const onDone = (last) => got.push(["done", last]);
        const result = await client.call("countTo", [200], shape({ onChunk, onDone }));
        assert.deepEqual(result, { total: 200 });
        await until("the end", () => got.length === 201);
        assert.deepEqual(got, [...Array.from({ length: 200 }, (_, i) => i + 1), ["done", { total: 200 }]]);
      }
      assert.deepEqual(await client.call("countTo", [0], { stream: {} }), { total: 0 });
      // One that does not want the chunks gets the result.
      assert.deepEqual(await client.call("countTo", [3]), { total: 3 });
      await settled(other);
      assert.deepEqual(other.frames.filter((frame) => frame.includes('"rpc"')), [], "nobody else sees them");
    });

    test("a stream that fails half-way gives its chunks, then the error", async (t) => {
      const { several } = npmClients(worker);
      const [client] = await several(t, {});
      const got = [];
      const stream = { onChunk: (chunk) => got.push(chunk), onError: (error) => got.push(error) };
      await assert.rejects(client.call("countAndFail", [2], { stream }), { message: "lost count" });
      await until("the error", () => got.length === 3);
      assert.deepEqual(got, [1, 2, "lost count"]);
    });

    test("plain messages, text and binary, are the agent's own", async (t) => {
      const { several } = npmClients(worker);
      const [client] = await several(t, {});
      const plain = ["hello", "{", '{"type":"x"}', "[]", "7", '"text"'];
      for (const message of plain) client.send(message);
      client.send(new Uint8Array([1, 2, 3]));
      await until("the echoes", () => client.frames.includes("binary"));
      assert.deepEqual(client.frames.filter((frame) => plain.includes(frame)), plain);
      assert.equal(await client.call("add", [1, 2]), 3);
    });

    test("connections are found by their id and tags, and left out of a broadcast by their id", async (t) => {
      const { freshName, connected, post, connections } = npmClients(worker);
      const name = freshName();
      const one = await connected(t, { name, id: "one", query: { tag: "x" } });
      const two = await connected(t, { name, id: "two" });
      assert.deepEqual(await connections(name), ["one", "two"]);
      assert.deepEqual(await connections(name, "x"), ["one"]);
      assert.deepEqual(await connections(name, "two"), ["two"]);
      assert.deepEqual(await connections(name, "y"), []);
      await post(name, "broadcast", { text: "not two", without: ["two"] });
      await post(name, "broadcast", { text: "all" });
      await until("the messages", () => one.frames.includes("all") && two.frames.includes("all"));
      assert.ok(one.frames.includes("not two"));
      assert.ok(!two.frames.includes("not two"));
    });
  });
}
