// The rules of browser sockets: the order and number of frames, ids, tags, limits, and how sockets end.
// CLIENT_AGENT=both runs what holds for the npm package with its own agent as well.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { freePort } from "./support/auth-agent.mjs";
import { AGENTS } from "./support/client-agent.mjs";
import { closeHandshake } from "./support/close-handshake.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { call, pictures, result, socketScene } from "./support/socket-scene.mjs";
import { until } from "./support/until.mjs";

for (const [subject, start] of AGENTS) {
  /** For what the npm package does not do. */
  const oursOnly = { skip: subject === "ours" ? false : "the npm package does not do that" };

  describe(`sockets of ${subject}`, () => {
    let worker;
    before(async () => (worker = await start({ port: await freePort() })));
    after(() => worker?.dispose());

    const scene = (t) => socketScene(t, worker);

    async function remoteFor(t, options) {
      const remote = await startScriptedServer(options);
      t.after(() => remote.close());
      return remote;
    }

    test("a new socket gets identity, state and servers in this order, whatever else is going on", async (t) => {
      const { greeted, name } = scene(t);
      const first = await greeted();
      const writing = Promise.all(Array.from({ length: 50 }, (_, count) => result(first, "setCount", count + 1)));
      const sockets = await Promise.all(Array.from({ length: 10 }, () => greeted()));
      await writing;
      const final = { type: "cf_agent_state", state: { count: 50 } };
      for (const socket of sockets) {
        const last = await until("the last state", () => {
          const frame = socket.of("cf_agent_state").at(-1);
          return frame.state.count === 50 && frame;
        });
        assert.deepEqual(last, final);
        const [identity, state, servers] = socket.frames;
        assert.deepEqual(identity, { type: "cf_agent_identity", name, agent: "client-agent", stateFollows: true });
        assert.equal(state.type, "cf_agent_state");
        assert.equal(servers.type, "cf_agent_mcp_servers");
        const counts = socket.of("cf_agent_state").map(({ state: { count } }) => count);
        assert.deepEqual(counts, counts.toSorted((a, b) => a - b), "nothing old after something new");
        assert.equal(counts.at(-1) - counts[0] + 1, counts.length, "nothing is left out");
      }
    });

    test("what a callable does to the state is seen before its answer", async (t) => {
      const { greeted } = scene(t);
      const socket = await greeted();
      socket.take();
      await result(socket, "setCount", 9);
      assert.deepEqual(socket.frames.map(({ type }) => type), ["cf_agent_state", "rpc"]);
    });

    test("one action is told by as few frames as there are things to tell", async (t) => {
      const remote = await remoteFor(t);
      const { greeted } = scene(t);
      const [socket, other] = [await greeted(), await greeted()];
      await other.settle();
      other.take();
      const { id } = await result(socket, "connect", remote.url, "Notes");
      await other.frame(({ mcp }) => mcp?.servers[id]?.state === "ready");
      await other.settle();
      const adding = pictures(other);
      assert.ok(adding.length <= 3, `${adding.length} frames`);
      const texts = adding.map((picture) => JSON.stringify(picture));
      assert.ok(texts.every((text, at) => text !== texts[at - 1]), "no frame says what the one before has said");

      other.take();
      await result(socket, "connect", remote.url, "Notes");
      await other.settle();
      assert.deepEqual(other.take(), [], "nothing has changed");
      await result(socket, "remove", id);
      await other.frame("cf_agent_mcp_servers");
      await other.settle();
      assert.equal(other.take().length, 1);
    });

    test("many servers that are added at once are told together", oursOnly, async (t) => {
      const remotes = await Promise.all(Array.from({ length: 8 }, () => remoteFor(t)));
      const { greeted } = scene(t);
      const [socket, other] = [await greeted(), await greeted()];
      await Promise.all(remotes.map(({ url }, number) => result(socket, "connect", url, `Notes ${number}`)));
      await other.frame(({ mcp }) => mcp?.tools.length === 8);
      await other.settle();
      const told = pictures(other).length - 1;
      assert.ok(told < 24, `${told} frames for 8 servers; without coalescing 24`);
    });

    test("a socket that wants it gets frames about servers without their lists", oursOnly, async (t) => {
      const remote = await remoteFor(t);
      const { greeted } = scene(t);
      const [whole, compact] = [await greeted(), await greeted("mcp=servers")];
      const { id } = await result(whole, "connect", remote.url, "Notes");
      for (const follower of [compact, await greeted("mcp=servers")]) {
        const { mcp } = await follower.frame(({ mcp }) => mcp?.servers[id]?.state === "ready");
        assert.deepEqual(mcp.servers[id].counts, { tools: 1, prompts: 1, resources: 1, resourceTemplates: 1 });
        assert.deepEqual([mcp.tools, mcp.prompts, mcp.resources], [[], [], []]);
      }
      const { mcp } = await whole.frame(({ mcp }) => mcp?.servers[id]?.state === "ready");
      assert.deepEqual(mcp.resourceTemplates.map(({ name, serverId }) => [name, serverId]), [["notes", id]]);
    });

    for (const code of [1000, 1001, 1003, 1009, 1011, 1012, 3000, 4001, 4999]) {
      test(`a socket that a page closes with ${code} is closed with ${code} by the agent`, async (t) => {
        const { base, ask } = scene(t);
        const ready = () => until("the connection", async () => (await ask("connections")).length === 1);
        assert.deepEqual(await closeHandshake(worker, base, code, { ready }), { code });
        await until("it to be forgotten", async () => (await ask("connections")).length === 0);
      });
    }

    test("a socket that a page closes without a code is closed without one", oursOnly, async (t) => {
      const { base, ask } = scene(t);
      const ready = () => until("the connection", async () => (await ask("connections")).length === 1);
      assert.deepEqual(await closeHandshake(worker, base, undefined, { ready }), { code: undefined });
      await until("it to be forgotten", async () => (await ask("connections")).length === 0);
    });

    test("several sockets of one id are all served, and left out together", async (t) => {
      const { greeted, ask } = scene(t);
      const twins = [await greeted("_pk=twin"), await greeted("_pk=twin")];
      const other = await greeted("_pk=other");
      assert.deepEqual(await ask("connections"), ["other", "twin", "twin"]);
      await ask("broadcast", { text: "not the twins", without: ["twin"] });
      await ask("broadcast", { text: "all" });
      for (const socket of [...twins, other]) await socket.frame((frame) => frame === "all");
      assert.ok(other.frames.includes("not the twins"));
      assert.ok(!twins.some(({ frames }) => frames.includes("not the twins")));
      twins[0].send({ type: "cf_agent_state", state: { count: 1 } });
      await other.frame(({ state }) => state?.count === 1);
      await twins[0].close(1000);
      await until("it to be forgotten", async () => (await ask("connections")).length === 2);
      assert.equal(await result(twins[1], "add", 1, 2), 3);
    });

    test("a tag that the platform does not take is refused, and no other socket is the worse for it", async (t) => {
      const { open, greeted, ask } = scene(t);
      const socket = await greeted("_pk=good&tag=one");
      const eleven = Array.from({ length: 10 }, (_, number) => `tag=t${number}`).join("&");
      for (const query of ["tag=", `tag=${"y".repeat(257)}`, eleven, `_pk=${"y".repeat(257)}`]) {
        await open(query).then(
          (refused) => until("its end", () => refused.closed),
          () => {},
        );
      }
      assert.deepEqual(await ask("connections"), ["good"]);
      assert.deepEqual(await ask("connections?tag=one"), ["good"]);
      assert.equal(await result(socket, "add", 1, 2), 3);
    });

    test("readonly, tags and silence of a socket outlast an eviction", async (t) => {
      const { open, greeted, ask, evict } = scene(t);
      const reader = await greeted("readonly=1&tag=x&_pk=reader");
      const silent = await open("protocol=0&_pk=silent");
      await silent.settle();
      await evict();
      reader.send({ type: "cf_agent_state", state: { count: 3 } });
      assert.deepEqual(await reader.frame("cf_agent_state_error"), {
        type: "cf_agent_state_error",
        error: "Connection is readonly",
      });
      await evict();
      assert.equal((await call(reader, "setCount", 3)).error, "Connection is readonly");
      await evict();
      assert.deepEqual(await ask("connections?tag=x"), ["reader"]);
      await ask("count", { count: 5 });
      await reader.frame(({ state }) => state?.count === 5);
      await silent.settle();
      assert.deepEqual(silent.frames, []);
    });

    test("what is kept with a socket is its own, and outlasts an eviction", async (t) => {
      const { greeted, evict } = scene(t);
      const [one, two] = [await greeted("readonly=1"), await greeted()];
      await result(one, "remember", { mine: [1, "☃"] });
      assert.equal(await result(two, "recall"), null);
      await evict();
      assert.deepEqual(await result(one, "recall"), { mine: [1, "☃"] });
      await result(one, "remember", null);
      await evict();
      assert.equal(await result(one, "recall"), null);
      assert.equal((await call(one, "setCount", 1)).error, "Connection is readonly");
    });

    test("what is too large to be kept with a socket is refused, and what was kept stays", oursOnly, async (t) => {
      const { greeted, evict } = scene(t);
      const socket = await greeted();
      await result(socket, "remember", "small");
      assert.equal((await call(socket, "remember", "x".repeat(20_000))).success, false);
      assert.equal(await result(socket, "recall"), "small");
      await evict();
      assert.equal(await result(socket, "recall"), "small");
    });
  });
}
