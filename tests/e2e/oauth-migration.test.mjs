// Objects whose data the TypeScript package wrote: they are opened by the ready-made Worker, and go on.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { freePort, query, signingAgent, startSigningAgent } from "./support/auth-agent.mjs";
import { NpmAgent, startNpmAgents } from "./support/auth-npm-agents.mjs";
import { startProtected } from "./support/auth-server.mjs";
import { keyValues, whileDown } from "./support/auth-storage.mjs";
import { storedServers } from "./support/storage.mjs";
import { until } from "./support/until.mjs";
import { temporaryFolder } from "./support/worker.mjs";

const NAME = "moved";
const KEY = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/**
 * Lets the package write its data with `work(agent)`, and opens it with our Worker at the same address.
 * Gives our agent, and what `work` gave.
 */
async function moveTo(t, work, { vars } = {}) {
  const storage = await temporaryFolder();
  const port = await freePort();
  const theirs = await startNpmAgents({ storage, port });
  let result;
  try {
    result = await work(new NpmAgent(theirs, NAME));
  } finally {
    await theirs.dispose();
  }
  const worker = await startSigningAgent(vars, { storage, port });
  t.after(() => worker.dispose());
  return { agent: signingAgent(worker, NAME), worker, result };
}

async function startServers(t, options) {
  const servers = await startProtected(options);
  t.after(servers.close);
  return servers;
}

/** Signs in with the package; the server is ready. */
const signInThere = (as, mcp, user) => async (agent) => {
  const { authUrl } = await agent.add("Notes", mcp.url, { id: "notes" });
  const callback = await as.approve(authUrl, { user });
  assert.equal((await agent.worker.fetch(callback.pathname + callback.search)).status, 302);
  await until("the server to be ready", async () => (await agent.list()).servers.notes?.state === "ready");
  return query(authUrl).client_id;
};

for (const [how, vars] of Object.entries({
  "without encryption": {},
  "with encryption": { AGENT_ENCRYPTION_KEY: KEY },
})) {
  describe(how, () => {
    test("a server that is signed in works without another sign-in", async (t) => {
      const { as, mcp } = await startServers(t);
      const { agent, result: clientId } = await moveTo(t, signInThere(as, mcp, "ada"), { vars });
      as.takeLog();
      assert.equal(await agent.say("notes", "whoami"), "ada");
      const entry = await agent.ready("notes");
      assert.deepEqual([entry.name, entry.url, entry.authUrl], ["Notes", mcp.url, null]);
      assert.deepEqual([entry.auth.issuer, entry.auth.clientId], [as.issuer, clientId]);
      assert.deepEqual(as.log, []);
      assert.equal(mcp.presented.length, 1);
    });

    test("its token is refreshed with the same client, and again after a restart", async (t) => {
      const { as, mcp } = await startServers(t);
      const { agent, worker, result: clientId } = await moveTo(t, signInThere(as, mcp, "ada"), { vars });
      for (let round = 1; round <= 3; round++) {
        as.expireAccessTokens();
        assert.equal(await agent.say("notes", "whoami"), "ada");
        assert.deepEqual(as.grants, { authorization_code: 1, refresh_token: round });
        await worker.restart();
      }
      assert.ok(as.requests("token").every(({ form }) => form.get("client_id") === clientId));
      assert.equal(as.count("register"), 1);
    });

    test("a sign-in that the user is in the middle of is finished here", async (t) => {
      const { as, mcp } = await startServers(t);
      const { agent, result } = await moveTo(t, (theirs) => theirs.add("Notes", mcp.url, { id: "notes" }), { vars });
      const entry = await agent.server("notes");
      assert.deepEqual([entry.state, entry.authUrl], ["authenticating", result.authUrl]);
      await agent.finish("notes", result.authUrl, as, { user: "ada" });
      assert.equal(await agent.say("notes", "whoami"), "ada");
      assert.equal(as.count("register"), 1);
      assert.deepEqual(as.grants, { authorization_code: 1 });
    });

    test("the callback of such a sign-in may be the first request", async (t) => {
      const { as, mcp } = await startServers(t);
      const { agent, result: callback } = await moveTo(
        t,
        async (theirs) => as.approve((await theirs.add("Notes", mcp.url, { id: "notes" })).authUrl, { user: "ada" }),
        { vars },
      );
      await agent.arrive(callback);
      assert.equal(await agent.say("notes", "whoami"), "ada");
    });
  });
}

test("a sign-in that is too old is begun anew, with the same registration", async (t) => {
  const { as, mcp } = await startServers(t);
  const { agent, result } = await moveTo(t, (theirs) => theirs.add("Notes", mcp.url, { id: "notes" }));
  const callback = await as.approve(result.authUrl);
  callback.searchParams.set("state", `${"x".repeat(21)}.notes`);
  await agent.arriveInVain(callback);
  const { authUrl } = await agent.reconnect("notes");
  await agent.finish("notes", authUrl, as);
});

test("a client with a secret is used as it was registered", async (t) => {
  const { as, mcp } = await startServers(t, { as: { authMethod: "client_secret_post" } });
  const { agent } = await moveTo(t, signInThere(as, mcp, "ada"));
  as.expireAccessTokens();
  assert.equal(await agent.say("notes", "whoami"), "ada");
  assert.deepEqual(as.grants, { authorization_code: 1, refresh_token: 1 });
});

test("several servers, and one without sign-in, all come over", async (t) => {
  const one = await startServers(t);
  const two = await startServers(t);
  const { mcp: open } = await startServers(t, { mcp: { open: true } });
  const { agent } = await moveTo(t, async (theirs) => {
    await signInThere(one.as, one.mcp, "ada")(theirs);
    await theirs.add("Open", open.url, { id: "open" });
    return theirs.add("Waiting", two.mcp.url, { id: "waiting" });
  });
  await agent.ready("notes");
  await agent.ready("open");
  const { servers } = await agent.get("servers");
  assert.deepEqual(servers.map(({ id, state }) => [id, state]).sort(), [
    ["notes", "ready"],
    ["open", "ready"],
    ["waiting", "authenticating"],
  ]);
  assert.equal(await agent.say("notes", "whoami"), "ada");
});

test("what was removed here leaves no key of the server behind", async (t) => {
  const { as, mcp } = await startServers(t);
  const { agent, worker } = await moveTo(t, signInThere(as, mcp, "ada"));
  await agent.remove("notes");
  assert.deepEqual(await storedServers(worker, NAME), {});
  const left = await whileDown(worker, (storage) => keyValues(storage, NAME, `/${NAME}/notes/`));
  assert.deepEqual(left, {});
});

test("what is written here can be read by the package again", async (t) => {
  const { as, mcp } = await startServers(t);
  const { agent, worker } = await moveTo(t, signInThere(as, mcp, "ada"));
  as.expireAccessTokens();
  assert.equal(await agent.say("notes", "whoami"), "ada");
  const port = Number(new URL(worker.origin).port);
  await worker.dispose();
  const theirs = await startNpmAgents({ storage: worker.storage, port });
  t.after(() => theirs.dispose());
  const back = new NpmAgent(theirs, NAME);
  await until("the server to be ready", async () => (await back.list()).servers.notes?.state === "ready");
  const { content } = await back.call("notes", "whoami");
  assert.equal(content[0].text, "ada");
  assert.deepEqual(as.grants, { authorization_code: 1, refresh_token: 1 });
});
