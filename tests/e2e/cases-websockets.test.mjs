// Cases from public bug reports about browser sockets, by their names.
// CLIENT_AGENT=both runs those that the npm package passes with its own agent as well.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { freePort } from "./support/auth-agent.mjs";
import { startProtected } from "./support/auth-server.mjs";
import { AGENTS } from "./support/client-agent.mjs";
import { sendJson, startScriptedServer } from "./support/scripted-server.mjs";
import { call, pictures, result, socketScene } from "./support/socket-scene.mjs";
import { until } from "./support/until.mjs";

const MIB = 1 << 20;
/** What must never be in the log. */
const CRASHED = /unhandled|uncaught|panicked|unreachable/i;

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

    const states = ({ servers }) => Object.values(servers).map(({ name, state }) => `${name} ${state}`).sort();

    test("WS-01 a new socket is told everything about all servers by one frame, also right after a wake", async (t) => {
      const [one, two] = [await remoteFor(t), await remoteFor(t)];
      const { mcp, close } = await startProtected();
      t.after(close);
      const { greeted, evict } = scene(t);
      const first = await greeted();
      const { id } = await result(first, "connect", one.url, "One");
      await result(first, "connect", two.url, "Two");
      const { id: signing, authUrl } = await result(first, "connect", mcp.url, "Three");

      const late = await greeted();
      const check = ({ servers, tools, prompts, resources }) => {
        assert.deepEqual(Object.values(servers).map(({ name }) => name).sort(), ["One", "Three", "Two"]);
        assert.deepEqual([servers[id].server_url, servers[id].auth_url, servers[id].error], [one.url, null, null]);
        assert.equal(servers[signing].state, "authenticating");
        assert.equal(servers[signing].auth_url, authUrl);
        assert.deepEqual([tools.length, prompts.length, resources.length], [2, 2, 2]);
      };
      const [picture] = pictures(late);
      check(picture);
      assert.deepEqual(states(picture), ["One ready", "Three authenticating", "Two ready"]);
      assert.equal(picture.servers[id].instructions, "Echo everything.");
      assert.deepEqual(picture.servers[id].capabilities, { tools: {}, prompts: {}, resources: {} });
      await late.settle();
      assert.equal(pictures(late).length, 1);

      // The npm package does not keep catalogues.
      if (subject !== "ours") return;
      await evict();
      check(pictures(await greeted())[0]);
    });

    test("WS-05 sockets are told what changes after a wake, and need not be opened again", async (t) => {
      const remote = await remoteFor(t);
      const { greeted, ask, evict } = scene(t);
      // One after the other: workerd of July 2026 never lets an object sleep that was asked for two at the same moment
      // (cloudflare/workerd#6862), and thus does not evict it.
      const sockets = [await greeted(), await greeted()];
      for (let count = 1; count <= 3; count++) {
        await evict();
        await ask("count", { count });
        for (const socket of sockets) await socket.frame(({ state }) => state?.count === count);
      }
      await evict();
      const { id } = await result(sockets[0], "connect", remote.url, "Notes");
      for (const socket of sockets) await socket.frame(({ mcp }) => mcp?.servers[id]?.state === "ready");
      assert.deepEqual(sockets.map(({ closed }) => closed), [undefined, undefined]);
      assert.deepEqual(sockets.map((socket) => socket.of("cf_agent_identity").length), [1, 1], "nobody is greeted again");
    });

    test("WS-05 sockets that are opened at the same moment are all told what changes", async (t) => {
      const { greeted, ask } = scene(t);
      const sockets = await Promise.all(Array.from({ length: 20 }, () => greeted()));
      await ask("count", { count: 1 });
      for (const socket of sockets) await socket.frame(({ state }) => state?.count === 1);
    });

    test("WS-05 what wakes an object is dealt with: a message, an unknown one, and the end of a socket", async (t) => {
      const { greeted, ask, evict } = scene(t);
      const [socket, other] = [await greeted("_pk=one"), await greeted("_pk=two")];
      for (const message of ["not json", new Uint8Array([0, 255]), { type: "x" }, { type: "rpc" }]) {
        await evict();
        socket.send(message);
        assert.equal(await result(socket, "add", 1, 2), 3);
      }
      await evict();
      await socket.close(3001, "bye");
      await until("it to be forgotten", async () => (await ask("connections")).length === 1);
      await evict();
      assert.deepEqual(await ask("connections"), ["two"]);
      assert.equal(await result(other, "add", 2, 2), 4);
      assert.doesNotMatch(worker.output, CRASHED);
    });

    test("WS-07 a catalogue that is too large for a frame leaves sockets open, and is reduced", oursOnly, async (t) => {
      const { greeted, evict } = scene(t);
      const socket = await greeted();
      const large = (number) => ({
        name: `t${number}`,
        description: "d".repeat(MIB),
        inputSchema: { type: "object" },
      });
      const remotes = [];
      for (const number of [1, 2, 3, 4, 5]) {
        const remote = await remoteFor(t);
        remote.intercept = ({ rpc, message }, response) => {
          if (rpc !== "tools/list") return false;
          sendJson(response, 200, { jsonrpc: "2.0", id: message.id, result: { tools: [large(1), large(2)] } });
          return true;
        };
        remotes.push(await result(socket, "connect", remote.url, `Large ${number}`));
      }
      const whole = ({ servers }) => Object.values(servers).filter(({ state }) => state === "ready").length === 5;
      const reduced = await until("all servers", () => pictures(socket).find(whole));
      assert.deepEqual([reduced.tools, reduced.prompts.length, reduced.resources.length], [[], 5, 5]);
      assert.equal(reduced.truncated.limit, 8 * MIB);
      assert.deepEqual(reduced.truncated.leftOut, { tools: 10 });
      assert.match(reduced.truncated.hint, /\w/);
      assert.equal(await result(socket, "add", 1, 2), 3);

      const late = await greeted();
      assert.ok(pictures(late)[0].truncated);
      await evict();
      assert.equal(await result(late, "add", 1, 2), 3);
      for (const { id } of remotes.slice(1)) await result(socket, "remove", id);
      const small = await until("the whole picture", () => pictures(socket).find(({ tools }) => tools.length === 2));
      assert.equal(small.truncated, undefined);
      assert.deepEqual([socket.closed, late.closed], [undefined, undefined]);
    });

    test("WS-07 an answer that is too large for a frame fails the call, not the socket", oursOnly, async (t) => {
      const { greeted } = scene(t);
      const [socket, other] = [await greeted(), await greeted()];
      assert.equal((await result(socket, "text", MIB)).length, MIB);
      const answer = await call(socket, "text", 33 * MIB);
      assert.deepEqual([answer.success, typeof answer.error], [false, "string"]);
      assert.equal(await result(socket, "add", 1, 2), 3);
      assert.equal(await result(other, "add", 1, 2), 3);
    });

    const deep = "[".repeat(10_000) + "]".repeat(10_000);
    const GARBAGE = {
      binary: new Uint8Array([0, 1, 254, 255]),
      "no bytes": new Uint8Array(0),
      "no text": "",
      "not json": "not json",
      "half an object": '{"type":"rpc","id":"1"',
      "an unknown type": '{"type":"x"}',
      "no type": "{}",
      "a type that is no text": '{"type":{"a":1}}',
      null: "null",
      "a megabyte of text": "x".repeat(MIB),
      "10,000 arrays": deep,
      "10,000 arrays in a call": `{"type":"rpc","id":"deep","method":"add","args":${deep}}`,
      "10,000 arrays in a type": `{"type":${deep}}`,
      "a call without anything": '{"type":"rpc"}',
      "a call without an id": '{"type":"rpc","method":"add","args":[1,2]}',
      "a call whose id is no text": '{"type":"rpc","id":{"a":1},"method":"add","args":[1,2]}',
      "a call without a method": '{"type":"rpc","id":"x","args":[1,2]}',
      "a call without arguments": '{"type":"rpc","id":"y","method":"add"}',
      "a call whose arguments are no list": '{"type":"rpc","id":"z","method":"add","args":{"0":1}}',
      "a call with arguments of another kind": '{"type":"rpc","id":"k","method":"wait","args":[[{}]]}',
      "a call with half a surrogate": '{"type":"rpc","id":"\\ud800","method":"\\udfff","args":["\\ud83d"]}',
      "a call of something inherited": '{"type":"rpc","id":"p","method":"__proto__","args":[]}',
      "a state frame without a state": '{"type":"cf_agent_state"}',
      "frames that only the agent sends":
        '{"type":"cf_agent_mcp_servers","mcp":{"servers":{}}}',
      "two members of one name": '{"type":"cf_agent_state","state":{"count":0},"type":"x"}',
    };

    test("WS-08 nothing that a page sends disturbs anybody", async (t) => {
      const remote = await remoteFor(t);
      const { greeted, ask } = scene(t);
      const [socket, other] = [await greeted("_pk=bad"), await greeted("_pk=good")];
      const { id } = await result(other, "connect", remote.url, "Notes");
      await socket.frame(({ mcp }) => mcp?.servers[id]?.state === "ready");
      await other.settle();
      other.take();
      for (const [what, garbage] of Object.entries(GARBAGE)) {
        socket.send(garbage);
        assert.equal(await result(socket, "add", 1, 2), 3, what);
        socket.take();
      }
      assert.equal(await result(other, "add", 2, 2), 4);
      assert.deepEqual(other.take().filter(({ type }) => type !== "rpc"), [], "the others are not told");
      assert.deepEqual(await ask("connections"), ["bad", "good"]);
      const answer = await ask("call", { id, tool: "echo", args: { still: "there" } });
      assert.match(answer.content[0].text, /there/);
      const late = await greeted();
      assert.deepEqual(late.of("cf_agent_state"), [{ type: "cf_agent_state", state: { count: 0 } }]);
      assert.doesNotMatch(worker.output, CRASHED);
    });

    test("WS-08 a call with arguments of another kind fails with its id", oursOnly, async (t) => {
      const { greeted } = scene(t);
      const socket = await greeted();
      for (const args of [[], ["1", "2"], [1, 2, 3], [1.5, 2], [null, 1], [{}, []]]) {
        const { success, error } = await call(socket, "add", ...args);
        assert.equal(success, false, JSON.stringify(args));
        assert.match(error, /^invalid arguments: /);
      }
    });

    test("WS-08 a state of 10,000 arrays is taken or refused, and the socket goes on", async (t) => {
      const { greeted } = scene(t);
      const [socket, other] = [await greeted(), await greeted()];
      socket.send(`{"type":"cf_agent_state","state":{"count":1,"deep":${deep}}}`);
      assert.equal(await result(socket, "add", 1, 2), 3);
      socket.send({ type: "cf_agent_state", state: { count: 2 } });
      await other.frame(({ state }) => state?.count === 2);
    });
  });
}
