// The client of the npm package as tests use it: it writes down what its application is told.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { AgentClient, agentFetch } from "agents/client";
import { until } from "./until.mjs";

const QUICK = { minReconnectionDelay: 20, maxReconnectionDelay: 100, reconnectionDelayGrowFactor: 1 };

/** Clients of the agents of a Worker. */
export function npmClients(worker, agent = "ClientAgent") {
  const address = () => ({ agent, host: new URL(worker.origin).host });
  const freshName = () => `agent-${randomUUID()}`;

  /** A client that writes down what its application is told: `updates`, `refusals`, `identities`, `frames`, `ends`. */
  function open(t, options = {}) {
    const told = { updates: [], refusals: [], identities: [], frames: [], ends: [] };
    const client = new AgentClient({
      ...address(),
      ...QUICK,
      onStateUpdate: (state, source) => told.updates.push([source, state]),
      onStateUpdateError: (error) => told.refusals.push(error),
      onIdentity: (...identity) => told.identities.push(identity),
      onConnectionError: ({ code, reason }) => told.ends.push({ code, reason }),
      ...options,
    });
    client.addEventListener("message", ({ data }) => told.frames.push(typeof data === "string" ? data : "binary"));
    t.after(() => client.close());
    return Object.assign(client, told);
  }

  async function connected(t, options) {
    const client = open(t, options);
    await client.ready;
    return client;
  }

  /**
   * Several clients of one new object. One after the other: workerd of July 2026 never lets an object sleep that was asked
   * for two sockets at the same moment (cloudflare/workerd#6862), and thus does not evict it.
   */
  async function several(t, ...options) {
    const name = freshName();
    const clients = [];
    for (const some of options) clients.push(await connected(t, { name, ...some }));
    return clients;
  }

  const http = async (name, path, { query, ...init } = {}) => {
    const response = await agentFetch({ ...address(), name, path, query }, init);
    assert.equal(response.status, 200);
    return response.json();
  };
  const post = (name, path, body) => http(name, path, { method: "POST", body: JSON.stringify(body) });
  const connections = (name, tag) => http(name, "connections", { query: tag ? { tag } : {} });
  const release = (name, gate) => http(name, "release", { query: { gate } });
  /** Waits until what the client sent before has been dealt with. */
  async function settled(client) {
    const token = `echo ${randomUUID()}`;
    client.send(token);
    await until("the echo", () => client.frames.includes(token));
  }

  return { address, freshName, open, connected, several, http, post, connections, release, settled };
}

/** The MCP servers as the frames so far tell them, oldest first. */
export const pictures = ({ frames }) =>
  frames.filter((frame) => frame.includes('"cf_agent_mcp_servers"')).map((frame) => JSON.parse(frame).mcp);

/** Waits for a picture in which the only server has this state. */
export const untilServer = (client, state) =>
  until(`a server that is ${state}`, () =>
    pictures(client).find(({ servers }) => Object.values(servers).some((server) => server.state === state)),
  );
