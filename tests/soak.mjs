// Wakes under faults, for as long as one likes: `node tests/soak.mjs --minutes 30 --seed 1 --objects 4`.
//
// Objects of the ready-made Worker are driven at random: servers are added, called, renamed and removed while they answer
// 503, hang, reset, forget sessions, change their tools or are slow, and the objects are evicted again and again. From time
// to time all faults end. Then every server must become ready, nothing may be stored that belongs to nobody, and storage
// and memory must not have grown since the last time.
import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Agent } from "./e2e/support/api.mjs";
import { answersStatus, cutsTheConnection, neverAnswers } from "./e2e/support/faults.mjs";
import { residentOfWorkerd } from "./e2e/support/memory.mjs";
import { sendJson, startScriptedServer } from "./e2e/support/scripted-server.mjs";
import { until } from "./e2e/support/until.mjs";
import { startToolAgent } from "./e2e/support/worker.mjs";

const CLASS = "ToolAgent";
const SERVERS = 5;
const STEPS_BETWEEN_CHECKS = 60;
const HEALED_WITHIN_MS = 60_000;
// workerd and V8 keep what they once had for a while.
const MEMORY_SLACK = 1.6;

/** Splitmix, so that a run is its seed. */
function randomFrom(seed) {
  let state = BigInt(seed);
  const next = () => {
    state = BigInt.asUintN(64, state + 0x9e3779b97f4a7c15n);
    let z = state;
    z = BigInt.asUintN(64, (z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
    z = BigInt.asUintN(64, (z ^ (z >> 27n)) * 0x94d049bb133111ebn);
    return Number((z ^ (z >> 31n)) % 1_000_000n);
  };
  return { below: (limit) => next() % limit, of: (all) => all[next() % all.length] };
}

const slow = (_, response) => pause(300).then(() => response.destroyed);
const renamesATool = (version) => ({ rpc, message, session }, response) => {
  if (rpc !== "tools/list" || !session) return false;
  const tools = ["echo", `v${version}`].map((name) => ({ name, inputSchema: { type: "object" } }));
  sendJson(response, 200, { jsonrpc: "2.0", id: message.id, result: { tools } });
  return true;
};

/** Drives objects for `seconds`. Gives figures; throws when something is wrong. */
export async function soak({ seconds, seed, objects = 2, say = () => {} }) {
  const random = randomFrom(seed);
  const vars = { RECONNECT_LATER_MS: "1", REQUEST_TIMEOUT_MS: "1500", CONNECT_TIMEOUT_MS: "1500", DISCOVERY_TIMEOUT_MS: "1500" };
  const worker = await startToolAgent(vars);
  const remotes = await Promise.all(Array.from({ length: SERVERS }, () => startScriptedServer()));
  const agents = Array.from({ length: objects }, (_, number) => new Agent(worker, `soak-${seed}-${number}`));
  /** What should be registered: object, then id, then which server. */
  const registered = new Map(agents.map((agent) => [agent, new Map()]));
  const figures = { steps: 0, wakes: 0, calls: 0, failedCalls: 0, checks: 0, sizes: [], memory: [] };
  const end = Date.now() + seconds * 1_000;
  const retry = { maxAttempts: 2, baseDelayMs: 10, maxDelayMs: 50 };
  const remember = (agent, id, number) => registered.get(agent).set(id, number);

  const faults = [
    () => answersStatus(503),
    () => answersStatus(500),
    () => answersStatus(403),
    () => neverAnswers,
    () => cutsTheConnection,
    () => slow,
    () => renamesATool(random.below(5)),
    () => undefined,
    () => undefined,
  ];
  const evict = async (agent) => {
    await worker.evict(CLASS, agent.name).catch((error) => {
      // It waits for requests that are under way, and says so when they do not end.
      if (!/evict|in.?flight|timed? ?out/i.test(String(error))) throw error;
    });
    figures.wakes += 1;
  };
  const steps = {
    async add(agent) {
      const [id, number] = [`s${random.below(8)}`, random.below(SERVERS)];
      if (registered.get(agent).has(id)) return;
      const reconnect = random.of(["eager", "eager", "lazy"]);
      const body = { id, name: id, url: `${remotes[number].origin}/${id}`, retry, reconnect };
      const { status } = await agent.tryAdd(body);
      // One that could not be reached stays registered.
      if (status === 201 || status === 502 || status === 504 || status === 409) remember(agent, id, number);
      else assert.fail(`adding: ${status}`);
    },
    async call(agent) {
      const id = random.of([...registered.get(agent).keys(), "nobody"]);
      const { status } = await agent.tryCall(id, "echo", { at: figures.steps });
      figures.calls += 1;
      if (status !== 200) figures.failedCalls += 1;
      assert.ok([200, 404, 409, 502, 504].includes(status), `a call: ${status}`);
    },
    async list(agent) {
      const { tools } = await agent.get("tools?wait=0");
      for (const { serverId } of tools) assert.ok(registered.get(agent).has(serverId), `tools of ${serverId}`);
    },
    async remove(agent) {
      const id = random.of([...registered.get(agent).keys(), undefined]);
      if (id === undefined || random.below(3) > 0) return;
      await agent.remove(id);
      registered.get(agent).delete(id);
    },
    async rename(agent) {
      const from = random.of([...registered.get(agent).keys(), undefined]);
      const to = `s${random.below(8)}`;
      if (from === undefined || registered.get(agent).has(to)) return;
      const number = registered.get(agent).get(from);
      await agent.post(`servers/${from}/rename`, { id: to });
      registered.get(agent).delete(from);
      remember(agent, to, number);
    },
    async close(agent) {
      const id = random.of([...registered.get(agent).keys(), "nobody"]);
      const { status } = await agent.request("POST", `servers/${id}/close`, {});
      assert.ok([200, 404, 409].includes(status), `closing: ${status}`);
    },
    fault: () => void (random.of(remotes).intercept = random.of(faults)()),
    forget: () => random.of(remotes).forgetSessions(),
    evict,
  };
  const names = ["add", "add", "call", "call", "call", "list", "remove", "rename", "close", "fault", "fault", "forget", "evict", "evict"];

  /** All faults end; then everything is as it should be. */
  async function check() {
    for (const remote of remotes) {
      remote.intercept = undefined;
      remote.takeLog();
    }
    let bytes = 0;
    for (const agent of agents) {
      await evict(agent);
      const wanted = registered.get(agent);
      await until(
        `all servers of ${agent.name} to be ready`,
        async () => {
          const { servers, damaged } = await agent.get("servers");
          assert.deepEqual(damaged, []);
          assert.deepEqual(new Set(servers.map(({ id }) => id)), new Set(wanted.keys()));
          const late = servers.filter(({ state }) => state !== "ready");
          const planned = (await rows(agent, "cf_agents_jobs")).map(({ time, payload }) => ({ time, payload: String(payload) }));
          for (const { id, state } of late) {
            const plan = planned.find(({ payload }) => payload.includes(`"${id}"`));
            assert.ok(state !== "reconnecting" || plan, `${id} is to be tried again, but nothing is planned`);
            // One that says 403 is not asked again by itself, and one that was down for long not soon.
            const isFar = state === "reconnecting" && plan.time > Date.now() + HEALED_WITHIN_MS / 2;
            if (state === "failed" || isFar) await agent.request("POST", `servers/${id}/reconnect`, {});
          }
          return late.length === 0;
        },
        HEALED_WITHIN_MS,
      );
      const { tools } = await agent.get("tools?wait=10000");
      assert.deepEqual(new Set(tools.map(({ serverId }) => serverId)), new Set(wanted.keys()));
      await until("nothing to be planned", async () => (await rows(agent, "cf_agents_jobs")).length === 0, HEALED_WITHIN_MS);
      for (const [table, column] of [["cf_agents_mcp_servers", "id"], ["workers_agents_catalogs", "server_id"], ["workers_agents_tasks", "server_id"]]) {
        for (const row of await rows(agent, table)) assert.ok(wanted.has(row[column]), `${table} has ${row[column]}`);
      }
      const tables = await worker.sql(CLASS, agent.name, "SELECT name FROM sqlite_master WHERE type = 'table'");
      assert.ok(tables.length < 8, "tables");
      const stored = [
        ...(await rows(agent, "cf_agents_mcp_servers")).map(({ server_options: options }) => options.length),
        ...(await rows(agent, "workers_agents_catalogs")).map(({ items }) => items.byteLength ?? items.length),
      ];
      const size = stored.reduce((sum, length) => sum + length, 0);
      bytes += size;
    }
    figures.checks += 1;
    figures.sizes.push(bytes);
    figures.memory.push(residentOfWorkerd());
    say(`${figures.steps} steps, ${figures.wakes} wakes: ${bytes} bytes stored, ${figures.memory.at(-1)} MiB in memory`);
  }

  const rows = async (agent, table) => {
    const there = await worker.sql(CLASS, agent.name, "SELECT 1 FROM sqlite_master WHERE name = ?", table);
    return there.length === 0 ? [] : worker.sql(CLASS, agent.name, `SELECT * FROM ${table}`);
  };

  try {
    do {
      for (let step = 0; step < STEPS_BETWEEN_CHECKS && Date.now() < end; step++) {
        const agent = random.of(agents);
        const name = random.of(names);
        try {
          await steps[name](agent);
        } catch (error) {
          error.message = `seed ${seed}, step ${figures.steps} (${name}): ${error.message}`;
          throw error;
        }
        figures.steps += 1;
      }
      await check();
    } while (Date.now() < end);
    // At most eight servers an object: storage has a bound, whatever has happened.
    assert.ok(Math.max(...figures.sizes) < objects * (64 << 10), `storage grew: ${figures.sizes}`);
    const settled = figures.memory.slice(Math.ceil(figures.memory.length / 3));
    if (settled.length > 3) {
      assert.ok(settled.at(-1) < settled[0] * MEMORY_SLACK, `memory grew: ${figures.memory}`);
    }
    return figures;
  } finally {
    await worker.dispose();
    await Promise.all(remotes.map((remote) => remote.close()));
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({
    options: {
      minutes: { type: "string", default: "30" },
      seed: { type: "string", default: String(Date.now() % 1_000_000) },
      objects: { type: "string", default: "4" },
    },
  });
  const [minutes, seed, objects] = [values.minutes, values.seed, values.objects].map(Number);
  console.log(`seed ${seed}`);
  const figures = await soak({ seconds: minutes * 60, seed, objects, say: (line) => console.log(line) });
  console.log(JSON.stringify(figures));
}
