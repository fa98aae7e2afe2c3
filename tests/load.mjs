// Many sockets on one object: `node tests/load.mjs --sockets 1000 --changes 30 --agent ours`.
//
// All sockets are opened, then the state changes again and again, in the middle of which the object is evicted once. Every
// socket must get every change once and in order. Printed: frames per socket, how long it took until the last socket had a
// change, and the memory of workerd.
import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { startOurAgent, startPeerAgent } from "./e2e/support/client-agent.mjs";
import { residentOfWorkerd } from "./e2e/support/memory.mjs";
import { until } from "./e2e/support/until.mjs";

const PATH = "/agents/client-agent/load";
const SETTLED_WITHIN_MS = 30_000;
const START = { ours: startOurAgent, peer: startPeerAgent };

/** One of the sockets: counts what it gets and keeps only what the figures need. */
class Listener {
  /** Frames by type. */
  frames = {};
  /** The counts of the states, in the order in which they came. */
  counts = [];
  lastAt = 0;
  isClosed = false;
  #greeted;

  /** Resolves when it has been told everything that a new connection is told. */
  open(worker) {
    const url = new URL(PATH, worker.origin);
    url.protocol = "ws:";
    this.socket = new WebSocket(url);
    this.socket.onmessage = ({ data }) => this.#take(data);
    return new Promise((resolve, reject) => {
      this.#greeted = resolve;
      this.socket.onclose = ({ code }) => {
        this.isClosed = true;
        reject(new Error(`closed with ${code}`));
      };
    });
  }

  #take(data) {
    const { type, state } = JSON.parse(data);
    this.frames[type] = (this.frames[type] ?? 0) + 1;
    if (type === "cf_agent_state") this.counts.push(state.count);
    if (type === "cf_agent_mcp_servers") this.#greeted();
    this.lastAt = performance.now();
  }
}

/** Opens `sockets`, changes the state `changes` times; gives the figures, and throws when something is lost. */
export async function load({ agent = "ours", sockets, changes, everyMs = 1_000, say = () => {} }) {
  const worker = await START[agent]();
  const listeners = Array.from({ length: sockets }, () => new Listener());
  const figures = { agent, sockets, changes, memory: {} };
  try {
    await (await worker.fetch(`${PATH}/connections`)).json();
    figures.memory.before = residentOfWorkerd();
    const opening = performance.now();
    // One by one: workerd of July 2026 never lets an object sleep that was asked for several sockets at once
    // (cloudflare/workerd#6862), and thus does not evict it.
    for (const listener of listeners) await listener.open(worker);
    figures.openMs = Math.round(performance.now() - opening);
    assert.equal((await (await worker.fetch(`${PATH}/connections`)).json()).length, sockets);
    figures.memory.opened = residentOfWorkerd();
    say(`${sockets} sockets open after ${figures.openMs} ms`);

    const latencies = [];
    for (let change = 1; change <= changes; change++) {
      if (change === Math.ceil(changes / 2)) await worker.evict("ClientAgent", "load");
      const at = performance.now();
      const answer = await worker.fetch(`${PATH}/count`, { method: "POST", body: JSON.stringify({ count: change }) });
      assert.equal(answer.status, 200, worker.output);
      await answer.arrayBuffer();
      await until(
        `change ${change} everywhere`,
        () => listeners.every(({ counts, isClosed }) => isClosed || counts.at(-1) === change),
        SETTLED_WITHIN_MS,
      );
      const took = Math.max(...listeners.map(({ lastAt }) => lastAt)) - at;
      latencies.push(took);
      say(`change ${change}: the last socket has it after ${took.toFixed(1)} ms`);
      if (change < changes) await pause(Math.max(0, everyMs - (performance.now() - at)));
    }
    figures.memory.changed = residentOfWorkerd();

    const wanted = Array.from({ length: changes + 1 }, (_, count) => count);
    figures.closed = listeners.filter(({ isClosed }) => isClosed).length;
    figures.lost = listeners.filter(({ counts }) => JSON.stringify(counts) !== JSON.stringify(wanted)).length;
    figures.framesPerSocket = perSocket(listeners);
    latencies.sort((a, b) => a - b);
    const quantile = (q) => Number(latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * q))].toFixed(1));
    figures.lastReceiverMs = { median: quantile(0.5), p95: quantile(0.95), most: quantile(1) };

    for (const { socket } of listeners) socket.close(1000);
    await until("the sockets to be closed", () => listeners.every(({ isClosed }) => isClosed), SETTLED_WITHIN_MS);
    await until("the object to have forgotten them", async () => {
      const open = await (await worker.fetch(`${PATH}/connections`)).json();
      return open.length === 0;
    }, SETTLED_WITHIN_MS);
    figures.memory.closed = residentOfWorkerd();
    assert.deepEqual([figures.closed, figures.lost], [0, 0], JSON.stringify(figures));
    return figures;
  } finally {
    for (const { socket } of listeners) socket?.close(1000);
    await worker.dispose();
  }
}

/** The fewest and the most frames of each type that a socket has got. */
function perSocket(listeners) {
  const types = new Set(listeners.flatMap(({ frames }) => Object.keys(frames)));
  const range = (type) => {
    const counts = listeners.map(({ frames }) => frames[type] ?? 0);
    return [Math.min(...counts), Math.max(...counts)];
  };
  return Object.fromEntries([...types].map((type) => [type, range(type)]));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({
    options: {
      agent: { type: "string", default: "ours" },
      sockets: { type: "string", default: "1000" },
      changes: { type: "string", default: "30" },
      every: { type: "string", default: "1000" },
    },
  });
  const [sockets, changes, everyMs] = [values.sockets, values.changes, values.every].map(Number);
  const say = (line) => console.log(line);
  console.log(JSON.stringify(await load({ agent: values.agent, sockets, changes, everyMs, say }), null, 2));
}
