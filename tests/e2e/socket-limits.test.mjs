// Limits of sockets, reached by an agent that has small ones: 3 connections, 64 KiB a frame, 2 calls at a time, 1 KiB of state.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";
import { startOurAgent } from "./support/client-agent.mjs";
import { openSocket } from "./support/raw-socket.mjs";
import { call, result } from "./support/socket-scene.mjs";

let worker;
before(async () => (worker = await startOurAgent()));
after(() => worker?.dispose());

/** Opens sockets of a new object. */
function scene(t) {
  const base = `/agents/small-agent/agent-${randomUUID()}`;
  return async () => {
    const socket = await openSocket(worker, base);
    t.after(() => socket.socket.close(1000));
    await socket.frame("cf_agent_mcp_servers");
    return socket;
  };
}

test("one connection too many is refused, and there is room again when another ends", async (t) => {
  const open = scene(t);
  const sockets = [await open(), await open(), await open()];
  await assert.rejects(open(), /no WebSocket/);
  await sockets[0].close(1000);
  const late = await open();
  assert.equal(await result(late, "open", "gate"), "gate");
});

test("a message that is too large is refused with a reason, and the socket goes on", async (t) => {
  const open = scene(t);
  const socket = await open();
  const large = "x".repeat(65 << 10);
  for (const message of [large, new Uint8Array(65 << 10)]) {
    socket.send(message);
    const { success, error } = await socket.frame("rpc");
    assert.equal(success, false);
    assert.match(error, /larger than 65536 bytes/);
    socket.take();
  }
  assert.match((await call(socket, "open", large)).error, /larger than 65536 bytes/);
  socket.send({ type: "cf_agent_state", state: large });
  assert.match((await socket.frame("cf_agent_state_error")).error, /larger than 65536 bytes/);
  assert.equal(await result(socket, "open", "gate"), "gate");
});

test("a state that is too large is refused with a reason", async (t) => {
  const open = scene(t);
  const [socket, other] = [await open(), await open()];
  socket.send({ type: "cf_agent_state", state: "x".repeat(1 << 10) });
  assert.match((await socket.frame("cf_agent_state_error")).error, /\w/);
  socket.send({ type: "cf_agent_state", state: "small" });
  const { state } = await other.frame("cf_agent_state");
  assert.equal(state, "small");
});

test("one call too many fails, and there is room again when another ends; other sockets have calls of their own", async (t) => {
  const open = scene(t);
  const [socket, other] = [await open(), await open()];
  const waiting = [result(socket, "wait", "a"), result(socket, "wait", "b")];
  assert.match((await call(socket, "wait", "c")).error, /more than 2 calls/);
  assert.equal(await result(other, "open", "a"), "a");
  assert.equal(await waiting[0], "a");
  assert.equal(await result(socket, "open", "b"), "b");
  assert.equal(await waiting[1], "b");
});
