// Where users come back to after a sign-in, by what is being handled when a server is added.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { WebSocket } from "ws";
import { query } from "./support/auth-agent.mjs";
import { startProtected } from "./support/auth-server.mjs";
import { startOurAgent } from "./support/client-agent.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { until } from "./support/until.mjs";

let worker;
before(async () => (worker = await startOurAgent()));
after(() => worker?.dispose());

async function protectedServer(t) {
  const { mcp, close } = await startProtected();
  t.after(close);
  return mcp;
}

/** A socket that was opened at another host, as a proxy in front of the Worker says it. */
async function socketAt(t, name, host) {
  const url = `${worker.origin.replace("http", "ws")}/agents/client-agent/${name}`;
  const socket = new WebSocket(url, { headers: { host } });
  t.after(() => socket.terminate());
  const frames = [];
  socket.on("message", (data) => frames.push(JSON.parse(data)));
  await once(socket, "open");
  const call = async (method, ...args) => {
    const id = randomUUID();
    socket.send(JSON.stringify({ type: "rpc", id, method, args }));
    return until(`the answer to ${method}`, () => frames.find((frame) => frame.id === id && frame.done !== false));
  };
  const state = (wanted) =>
    until("the state", () => frames.filter(({ type }) => type === "cf_agent_state").map(({ state }) => state).find(wanted));
  return { call, state };
}

const redirect = ({ result }) => query(result.authUrl).redirect_uri;

test("RT-04 from a socket: the host at which that was opened, also after the object slept", async (t) => {
  const name = randomUUID();
  const [one, other] = [await protectedServer(t), await protectedServer(t)];
  const socket = await socketAt(t, name, "b.example:8080");
  const expected = `http://b.example:8080/agents/client-agent/${name}/callback`;
  assert.equal(redirect(await socket.call("connect", one.url, "One")), expected);
  await until("the object to be evicted", () => worker.evict("ClientAgent", name).then(() => true, () => false));
  assert.equal(redirect(await socket.call("connect", other.url, "Other")), expected);
  // The one that waits already goes on waiting where it was.
  const elsewhere = await socketAt(t, name, "c.example");
  assert.equal(redirect(await elsewhere.call("connect", one.url, "One")), expected);
});

test("RT-04 from an alarm: what is said, or an error that says what is missing", async (t) => {
  const mcp = await protectedServer(t);
  const open = await startScriptedServer();
  t.after(() => open.close());
  const name = randomUUID();
  const socket = await socketAt(t, name, "b.example");
  await socket.call("connectLater", mcp.url, "Notes", null);
  const { added: missing } = await socket.state(({ added }) => added?.includes("callback"));
  assert.match(missing, /asks for a sign-in, but has no callback URL/);
  // A server that asks for none needs none.
  await socket.call("connectLater", open.url, "Open", null);
  await socket.state(({ added }) => added === "ready");
  await socket.call("connectLater", mcp.url, "Notes", "https://said.example");
  const { added } = await socket.state(({ added }) => added?.startsWith("http"));
  assert.equal(query(added).redirect_uri, `https://said.example/agents/client-agent/${name}/callback`);
});
