// Objects that change between the TypeScript package and this one, in both directions, on the same storage.
// What belongs to a sign-in alone is in oauth-migration.test.mjs, jobs are in jobs-migration.test.mjs.
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { freePort, query, signingAgent } from "./support/auth-agent.mjs";
import { NpmAgent, startNpmAgents, storedByNpmAgents } from "./support/auth-npm-agents.mjs";
import { startProtected } from "./support/auth-server.mjs";
import { startModernServer } from "./support/real-servers.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { withStorage } from "./support/storage.mjs";
import { startTalkingServer } from "./support/talking-server.mjs";
import { until } from "./support/until.mjs";
import { startToolAgent, temporaryFolder } from "./support/worker.mjs";

const NAME = "traveller";

before(async () => {
  // The bundle takes a while: not out of the time of the first test.
  const worker = await startNpmAgents();
  await worker.dispose();
});

/**
 * One object whose code changes: `npm(work)` and `ours(work)` run it on one or the other, at the same address and on
 * the same storage, and end it. `work` is given the agent.
 */
async function traveller(t, { vars = {}, elicits = false } = {}) {
  const [storage, port] = [await temporaryFolder(), await freePort()];
  const run = async (start, agentOf, work) => {
    const worker = await start();
    try {
      return await work(agentOf(worker), worker);
    } finally {
      await worker.dispose();
    }
  };
  const npm = (work, { elicits: asks = elicits } = {}) =>
    run(() => startNpmAgents({ storage, port, elicits: asks }), (worker) => new NpmAgent(worker, NAME), work);
  const ours = (work) =>
    run(
      () => startToolAgent({ REQUEST_TIMEOUT_MS: "10000", STREAM_LINGER_MS: "200", ...vars }, { storage, port }),
      (worker) => signingAgent(worker, NAME),
      work,
    );
  /** The rows of servers, by id, with their options read. */
  const rows = async () => {
    const { rows } = await storedByNpmAgents(storage, NAME);
    return Object.fromEntries(rows.map((row) => [row.id, { ...row, options: JSON.parse(row.server_options ?? "{}") }]));
  };
  return { npm, ours, rows, storage };
}

async function scripted(t, options) {
  const remote = await startScriptedServer(options);
  t.after(() => remote.close());
  return remote;
}

async function talking(t, options) {
  const remote = await startTalkingServer(options);
  t.after(() => remote.close());
  return remote;
}

async function modern(t) {
  const remote = await startModernServer();
  t.after(remote.stop);
  return remote;
}

const KEY = { "x-api-key": "k-123" };
const RETRY = { maxAttempts: 2, baseDelayMs: 150, maxDelayMs: 600 };
const keysOf = (remote) => remote.log.map(({ headers }) => headers["x-api-key"]);

/** A server of every kind that both know. */
async function fleet(t) {
  const [plain, other, sse, current] = [await scripted(t), await scripted(t), await talking(t), await modern(t)];
  const servers = {
    plain: { name: "Plain", url: plain.url, transport: { type: "streamable-http", headers: KEY }, retry: RETRY },
    sse: { name: "Older", url: sse.sseUrl, transport: { type: "sse" } },
    current: { name: "Current", url: current.url },
    "my-id_2": { name: "Plain", url: other.url },
  };
  return { plain, other, sse, current, servers };
}

const TOOLS_OF_CURRENT = ["add", "count", "echo", "fail", "learn", "reserve"];
const TOOLS = [
  ...TOOLS_OF_CURRENT.map((name) => `current/${name}`),
  "my-id_2/echo",
  "plain/echo",
  "sse/echo",
].sort();

/** Every server of the fleet lists and answers, on our side. */
async function assertWorksInOurs(agent, servers) {
  for (const [id, { name, url, transport }] of Object.entries(servers)) {
    const entry = await agent.ready(id);
    assert.deepEqual([entry.name, entry.url], [name, url]);
    assert.equal(entry.transport, transport?.type ?? "auto", id);
  }
  const { tools } = await agent.get("tools?wait=10000");
  assert.deepEqual(tools.map(({ serverId, name }) => `${serverId}/${name}`).sort(), TOOLS);
  for (const id of ["plain", "sse", "my-id_2"]) {
    assert.equal((await agent.call(id, "echo", { id })).content[0].text, JSON.stringify({ id }));
  }
  assert.deepEqual((await agent.call("current", "add", { a: 1, b: 2 })).structuredContent, { sum: 3 });
}

/** The same, on the other. */
async function assertWorksInNpm(agent, servers) {
  assert.deepEqual(await agent.tools(), TOOLS);
  const listed = (await agent.list()).servers;
  assert.deepEqual(Object.keys(listed).sort(), Object.keys(servers).sort());
  for (const [id, { name, url }] of Object.entries(servers)) {
    assert.deepEqual([listed[id].name, listed[id].server_url, listed[id].state], [name, url, "ready"], id);
  }
  for (const id of ["plain", "sse", "my-id_2"]) {
    assert.equal((await agent.call(id, "echo", { id })).content[0].text, JSON.stringify({ id }));
  }
  assert.deepEqual((await agent.call("current", "add", { a: 1, b: 2 })).structuredContent, { sum: 3 });
}

/** What must not be lost of a row, whoever has written it. */
const essence = ({ id, name, server_url, callback_url, client_id, auth_url, options }) => ({
  id,
  name,
  server_url,
  callback_url,
  client_id,
  auth_url,
  type: options.transport?.type ?? "auto",
  headers: { ...options.transport?.requestInit?.headers },
  retry: options.retry,
});
const essences = (rows) => Object.values(rows).map(essence);

describe("an object that the package has written", () => {
  test("works here and there again, with ids, headers, transports and retry options", async (t) => {
    const { plain, servers } = await fleet(t);
    const object = await traveller(t);
    await object.npm(async (agent) => {
      for (const [id, { name, url, ...options }] of Object.entries(servers)) await agent.add(name, url, { id, ...options });
      await assertWorksInNpm(agent, servers);
    });
    const before = await object.rows();
    for (let round = 0; round < 2; round++) {
      plain.takeLog();
      await object.ours((agent) => assertWorksInOurs(agent, servers));
      assert.deepEqual(essences(await object.rows()), essences(before));
      await object.npm((agent) => assertWorksInNpm(agent, servers));
      assert.deepEqual(essences(await object.rows()), essences(before));
      assert.ok(plain.log.length > 0 && keysOf(plain).every((key) => key === KEY["x-api-key"]), `${keysOf(plain)}`);
    }
  });

  test("keeps the id that the package has made up, and that server is the same one when it is added again", async (t) => {
    const remote = await scripted(t);
    const object = await traveller(t);
    const { id } = await object.npm((agent) => agent.add("Made up", remote.url));
    await object.ours(async (agent) => {
      assert.equal((await agent.ready(id)).name, "Made up");
      assert.equal((await agent.add({ name: "Made up", url: remote.url })).id, id);
      assert.equal((await agent.get("servers")).servers.length, 1);
    });
    await object.npm(async (agent) => {
      await agent.ready(id);
      assert.equal((await agent.add("Made up", remote.url)).id, id);
      assert.equal(Object.keys((await agent.list()).servers).length, 1);
    });
  });

  for (const side of ["ours", "npm"]) {
    test(`has a session of the legacy era that is taken up by ${side}, without a handshake`, async (t) => {
      const remote = await scripted(t);
      const object = await traveller(t);
      await object.npm((agent) => agent.add("Plain", remote.url, { id: "plain" }));
      const session = (await object.rows()).plain.options.transport.sessionId;
      assert.ok(session);
      remote.takeLog();
      await object[side](async (agent) => {
        await agent.ready("plain");
        await agent.call("plain", "echo", {});
      });
      const asked = remote.log.map((entry) => `${entry.rpc ?? entry.http} ${entry.session}`);
      assert.equal(remote.count("initialize"), 0, asked.join(", "));
      assert.ok(remote.log.every((entry) => entry.session === session), asked.join(", "));
    });
  }

  test("has a session that the server has forgotten, and opens another", async (t) => {
    const remote = await scripted(t);
    const object = await traveller(t);
    await object.npm((agent) => agent.add("Plain", remote.url, { id: "plain" }));
    remote.forgetSessions();
    await object.ours(async (agent) => {
      await agent.call("plain", "echo", {});
      await agent.ready("plain");
    });
    const mine = (await object.rows()).plain.options.transport.sessionId;
    remote.takeLog();
    await object.npm(async (agent) => {
      await agent.ready("plain");
      await agent.call("plain", "echo", {});
    });
    assert.equal(remote.count("initialize"), 0, "what we have opened is taken up there");
    assert.ok(remote.log.every(({ session }) => session === mine));
    remote.forgetSessions();
    await object.npm(async (agent) => {
      await agent.ready("plain");
      await agent.call("plain", "echo", {});
    });
  });

  test("knows what a modern server said of itself, which is taken up in both directions", async (t) => {
    const remote = await modern(t);
    const object = await traveller(t);
    await object.npm((agent) => agent.add("Current", remote.url, { id: "current" }));
    // The package keeps it with a session only, which servers of this era seldom have.
    const { options } = (await object.rows()).current;
    const stored = {
      ...options,
      transport: { ...options.transport, sessionId: "s-of-a-modern-server", protocolVersion: "2026-07-28" },
      discoverResult: {
        supportedVersions: ["2026-07-28"],
        capabilities: { tools: { listChanged: true }, prompts: {}, resources: {} },
        serverInfo: { name: "library", version: "1.2.3" },
        instructions: "As it was stored.",
      },
    };
    const update = "UPDATE cf_agents_mcp_servers SET server_options = ? WHERE id = 'current'";
    await withStorage(object.storage, { name: NAME, statements: [[update, JSON.stringify(stored)]] });
    await object.ours(async (agent) => {
      const entry = await agent.ready("current");
      assert.deepEqual([entry.protocolVersion, entry.instructions], ["2026-07-28", "As it was stored."]);
      assert.deepEqual((await agent.call("current", "add", { a: 2, b: 3 })).structuredContent, { sum: 5 });
    });
    const after = (await object.rows()).current.options;
    assert.equal(after.transport.protocolVersion, "2026-07-28");
    assert.deepEqual(after.discoverResult.capabilities, stored.discoverResult.capabilities);
    await object.npm(async (agent) => {
      assert.deepEqual(
        await agent.tools(),
        TOOLS_OF_CURRENT.map((name) => `current/${name}`),
      );
      assert.deepEqual((await agent.call("current", "add", { a: 2, b: 3 })).structuredContent, { sum: 5 });
    });
  });

  test("declares to servers what it declared before", async (t) => {
    const remote = await scripted(t);
    const object = await traveller(t, { elicits: true });
    await object.npm((agent) => agent.add("Plain", remote.url, { id: "plain" }));
    const declared = () => {
      const [{ message }] = remote.takeLog().filter(({ rpc }) => rpc === "initialize");
      return message.params.capabilities.elicitation;
    };
    assert.ok(declared().form);
    assert.deepEqual((await object.rows()).plain.options.capabilities, { elicitation: { form: {} } });
    remote.forgetSessions();
    await object.ours((agent) => agent.call("plain", "echo", {}));
    assert.ok(declared().form);
    const stamp = (await object.rows()).plain.options.capabilities;
    assert.ok(stamp.elicitation.form, JSON.stringify(stamp));
    remote.forgetSessions();
    // Without handlers there the stamp alone says it.
    await object.npm((agent) => agent.ready("plain"), { elicits: false });
    assert.ok(declared().form);
  });

  test("is signing in, and the user may come back to either", async (t) => {
    for (const [begins, ends] of [
      ["npm", "ours"],
      ["ours", "npm"],
    ]) {
      const { as, mcp, close } = await startProtected();
      t.after(close);
      const object = await traveller(t);
      const authUrl = await object[begins](async (agent) => {
        if (begins === "ours") return (await agent.begin({ id: "notes", name: "Notes", url: mcp.url })).authUrl;
        return (await agent.add("Notes", mcp.url, { id: "notes" })).authUrl;
      });
      assert.equal((await object.rows()).notes.auth_url, authUrl);
      await object[ends](async (agent) => {
        const { pathname, search } = await as.approve(authUrl, { user: "ada" });
        const answer = await agent.worker.fetch(pathname + search);
        assert.equal(answer.status, 302, `${begins}, ${ends}: ${await answer.text()}`);
        await agent.ready("notes");
      });
      for (const side of ["ours", "npm", "ours"]) {
        await object[side](async (agent) => {
          await agent.ready("notes");
          const { content } = await agent.call("notes", "whoami", {});
          assert.equal(content[0].text, "ada");
        });
      }
      assert.equal(as.count("register"), 1, `${begins}, ${ends}`);
      assert.deepEqual(as.grants, { authorization_code: 1 }, `${begins}, ${ends}`);
      const row = (await object.rows()).notes;
      assert.deepEqual([row.auth_url, row.client_id], [null, query(authUrl).client_id]);
    }
  });

  test("a server that is removed on one side is gone on the other", async (t) => {
    const remote = await scripted(t);
    const object = await traveller(t);
    const add = (id) => (agent) => agent.add(id, `${remote.url}?${id}`, { id });
    for (const id of ["a", "b", "c"]) await object.npm(add(id));
    await object.ours((agent) => agent.remove("a"));
    await object.npm(async (agent) => {
      assert.deepEqual(Object.keys((await agent.list()).servers).sort(), ["b", "c"]);
      await agent.remove("b");
    });
    await object.ours(async (agent) => {
      assert.deepEqual((await agent.get("servers")).servers.map(({ id }) => id), ["c"]);
      await agent.ready("c");
      await agent.remove("c");
    });
    await object.npm(async (agent) => assert.deepEqual(await agent.list(), { ...(await agent.list()), servers: {} }));
    assert.deepEqual(await object.rows(), {});
  });
});

describe("an object that was written here", () => {
  test("works in the package, and here again, with ids, transports and retry options", async (t) => {
    const { servers } = await fleet(t);
    const object = await traveller(t);
    const gone = await scripted(t);
    await object.ours(async (agent) => {
      for (const [id, server] of Object.entries(servers)) await agent.add({ id, ...server });
      await agent.add({ id: "gone", name: "Gone", url: gone.url });
      await agent.call("gone", "echo", {});
      await agent.remove("gone");
      await assertWorksInOurs(agent, servers);
    });
    const before = await object.rows();
    gone.takeLog();
    for (let round = 0; round < 2; round++) {
      await object.npm((agent) => assertWorksInNpm(agent, servers));
      assert.deepEqual(essences(await object.rows()), essences(before));
      await object.ours((agent) => assertWorksInOurs(agent, servers));
      assert.deepEqual(essences(await object.rows()), essences(before));
    }
    assert.deepEqual(gone.log, [], "nobody asks a server that was removed");
  });

  test("has its headers sent by the package too", async (t) => {
    const remote = await scripted(t);
    const object = await traveller(t);
    await object.ours((agent) => agent.add({ id: "plain", name: "Plain", url: remote.url, transport: { headers: KEY } }));
    for (const side of ["npm", "ours"]) {
      remote.takeLog();
      await object[side](async (agent) => {
        await agent.ready("plain");
        await agent.call("plain", "echo", {});
      });
      assert.deepEqual(new Set(keysOf(remote)), new Set([KEY["x-api-key"]]), side);
    }
  });

  test("what only we store does no harm there, and is still good afterwards", async (t) => {
    const [plain, down] = [await scripted(t), await scripted(t)];
    // The next attempt is planned as soon as it may be, after five seconds.
    const object = await traveller(t, { vars: { RECONNECT_LATER_MS: "1" } });
    const planned = "SELECT id, capability, fn FROM cf_agents_jobs";
    const { port } = down;
    await object.ours(async (agent, worker) => {
      await agent.add({ id: "plain", name: "Plain", url: plain.url, reconnect: "lazy" });
      await agent.add({ id: "down", name: "Down", url: down.url, retry: { maxAttempts: 1 } });
      assert.equal((await agent.post("servers/plain/rename", { id: "renamed" })).id, "renamed");
      await down.close();
      await worker.evict("ToolAgent", NAME);
      await agent.get("servers");
      await until("the next attempt to be planned", async () => (await agent.server("down")).state === "reconnecting");
      const jobs = await worker.sql("ToolAgent", NAME, planned);
      assert.deepEqual(jobs, [{ id: "mcp:reconnect:down", capability: "mcp", fn: "reconnect" }]);
    });

    await object.npm(async (agent, worker) => {
      await agent.ready("renamed");
      // The package takes up the session, and notices at the first list: it calls that connected.
      const { state } = await until("the other one to have failed", async () => {
        const { down } = (await agent.list()).servers;
        return !["connecting", "discovering"].includes(down.state) && down;
      });
      assert.ok(["failed", "connected"].includes(state), state);
      const jobs = () => worker.sql("ToolAgent", NAME, planned);
      await until("our plan to have come to nothing", async () => (await jobs()).length === 0, 20_000);
      await agent.call("renamed", "echo", {});
    });
    await down.listen(port);
    await object.npm((agent) => agent.ready("down"));
    plain.takeLog();
    await object.ours(async (agent) => {
      const { tools } = await agent.get("tools");
      assert.deepEqual(tools.map(({ serverId }) => serverId).sort(), ["down", "renamed"]);
      await agent.call("down", "echo", {});
      await agent.call("renamed", "echo", {});
    });
  });
});
