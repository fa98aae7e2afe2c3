// What tests of the frames on sockets need of one agent: objects of their own, sockets, calls, pictures of the servers.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { openSocket } from "./raw-socket.mjs";

/** A new object of `ClientAgent` with sockets that are closed with the test. */
export function socketScene(t, worker) {
  const name = `agent-${randomUUID()}`;
  const base = `/agents/client-agent/${name}`;
  const open = async (query = "") => {
    const socket = await openSocket(worker, `${base}?${query}`);
    t.after(() => socket.socket.close(1000));
    return socket;
  };
  return {
    name,
    base,
    open,
    /** Opens a socket and waits until it has been told how things stand. */
    async greeted(query) {
      const socket = await open(query);
      await socket.frame("cf_agent_mcp_servers");
      return socket;
    },
    /** Asks by HTTP; with a body by POST. Gives the JSON of the answer. */
    async ask(path, body) {
      const init = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
      const answer = await worker.fetch(`${base}/${path}`, init);
      const text = await answer.text();
      assert.equal(answer.status, 200, `${path}: ${text}`);
      return JSON.parse(text);
    },
    evict: () => worker.evict("ClientAgent", name),
  };
}

/** Calls a callable; gives the last frame of the answer. */
export async function call(socket, method, ...args) {
  const id = randomUUID();
  socket.send({ type: "rpc", id, method, args });
  return socket.frame((frame) => frame?.id === id && frame.done !== false);
}

/** Calls a callable that is expected to succeed; gives its result. */
export async function result(socket, method, ...args) {
  const answer = await call(socket, method, ...args);
  assert.equal(answer.success, true, JSON.stringify(answer));
  return answer.result;
}

/** `mcp` of the frames about servers, oldest first. */
export const pictures = (socket) => socket.of("cf_agent_mcp_servers").map(({ mcp }) => mcp);
