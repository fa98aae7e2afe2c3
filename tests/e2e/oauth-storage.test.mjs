// What of a sign-in lies on disk, with and without AGENT_ENCRYPTION_KEY.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { signingAgent, startSigningAgent } from "./support/auth-agent.mjs";
import { startProtected } from "./support/auth-server.mjs";
import { foundOnDisk, keyValues, whileDown } from "./support/auth-storage.mjs";
import { storedServers } from "./support/storage.mjs";

const NAME = "keeper";
const HEADER = "value-of-a-secret-header-4711";

const newKey = () => randomBytes(32);
const OLD = newKey();
const NEW = newKey();

/** A Worker with storage of its own, and a server of which it knows a header and tokens. */
async function setUp(t, vars, { isSignedIn = true } = {}) {
  // A client with a secret: there is then one more thing to hide.
  const { as, mcp, close } = await startProtected({ as: { authMethod: "client_secret_post" } });
  t.after(close);
  const worker = await startSigningAgent(vars);
  t.after(() => worker.dispose());
  const agent = signingAgent(worker, NAME);
  const notes = { id: "notes", name: "Notes", url: mcp.url, transport: { headers: { "x-api-key": HEADER } } };
  if (isSignedIn) {
    await agent.signIn(notes, as, { user: "ada" });
    assert.equal(await agent.say("notes", "whoami"), "ada");
  }
  const restart = (changed) =>
    worker.restart({ vars: { ALLOW_INSECURE_LOCAL: "1", REQUEST_TIMEOUT_MS: "10000", ...changed } });
  return { as, mcp, worker, agent, notes, restart };
}

const encrypted = (...keys) => ({ AGENT_ENCRYPTION_KEY: keys.map((key) => key.toString("base64")).join(",") });

/** Everything that must not lie on disk in the clear. */
const secretsOf = (as) => [
  HEADER,
  ...as.secrets,
  ...as
    .requests("token")
    .map(({ form }) => form.get("code_verifier"))
    .filter(Boolean),
];

/** What lies on disk while the Worker runs, and after it has gone. */
async function found(worker, texts) {
  const running = await foundOnDisk(worker.storage, texts);
  const down = await whileDown(worker, (storage) => foundOnDisk(storage, texts));
  return [...running, ...down];
}

/** What the live entries of the object's storage hold, as a text. */
const kept = async (worker) => {
  const rows = JSON.stringify(await storedServers(worker, NAME));
  return rows + JSON.stringify(await whileDown(worker, (storage) => keyValues(storage, NAME)));
};

test("without a key tokens lie there in the clear: this search finds them", async (t) => {
  const { as, worker } = await setUp(t, {});
  const live = [...as.refreshTokens.keys()];
  assert.ok((await found(worker, [...live, HEADER])).length >= 2);
});

for (const [form, spelled] of Object.entries({
  base64: (key) => key.toString("base64"),
  hex: (key) => key.toString("hex"),
})) {
  test(`with a key in ${form} no token, no secret and no header lies there`, async (t) => {
    const { as, mcp, worker, agent } = await setUp(t, { AGENT_ENCRYPTION_KEY: spelled(OLD) });
    assert.equal(mcp.requests("mcp").at(-1).headers["x-api-key"], HEADER);
    assert.deepEqual(await found(worker, secretsOf(as)), []);

    as.expireAccessTokens();
    assert.equal(await agent.say("notes", "whoami"), "ada");
    assert.equal(mcp.requests("mcp").at(-1).headers["x-api-key"], HEADER);
    assert.deepEqual(as.grants, { authorization_code: 1, refresh_token: 1 });
    assert.deepEqual(await found(worker, secretsOf(as)), []);
  });
}

test("with a key nothing lies there while the user signs in, either", async (t) => {
  const { as, worker, agent, notes } = await setUp(t, encrypted(OLD), { isSignedIn: false });
  const { authUrl } = await agent.begin(notes);
  const callback = await as.approve(authUrl, { user: "ada" });
  const before = await found(worker, [HEADER, ...as.secrets]);
  await agent.arrive(callback);
  await agent.ready("notes");
  const [{ form }] = as.requests("token");
  assert.deepEqual(before, []);
  assert.deepEqual(await found(worker, [form.get("code_verifier"), form.get("code")]), []);
});

test("keys can be changed: the first writes, all read", async (t) => {
  const { as, agent, restart, worker } = await setUp(t, encrypted(OLD));
  await restart(encrypted(NEW, OLD));
  assert.equal(await agent.say("notes", "whoami"), "ada");
  as.expireAccessTokens();
  assert.equal(await agent.say("notes", "whoami"), "ada");
  assert.deepEqual(as.grants, { authorization_code: 1, refresh_token: 1 });
  // The tokens have been written anew; what else there is is written when it changes.
  assert.deepEqual(await found(worker, secretsOf(as)), []);
  await restart(encrypted(NEW, OLD));
  assert.equal(await agent.say("notes", "whoami"), "ada");
  assert.equal(as.count("register"), 1);
});

test("what lies there in the clear is read, and encrypted when it is written", async (t) => {
  const { as, agent, restart, worker } = await setUp(t, {});
  await restart(encrypted(OLD));
  assert.equal(await agent.say("notes", "whoami"), "ada");
  as.expireAccessTokens();
  assert.equal(await agent.say("notes", "whoami"), "ada");
  assert.deepEqual(as.grants, { authorization_code: 1, refresh_token: 1 });
  const live = [...as.refreshTokens.keys(), [...as.tokens.keys()].at(-1)];
  assert.deepEqual(await found(worker, live), []);
  const now = await kept(worker);
  for (const token of [...as.tokens.keys(), ...live]) assert.ok(!now.includes(token), `${token} is kept`);
  await restart(encrypted(OLD));
  assert.equal(await agent.say("notes", "whoami"), "ada");
});

for (const [what, vars] of Object.entries({
  "another key": encrypted(NEW),
  "no key": {},
})) {
  test(`with ${what} there is a clear error, and nothing is lost`, async (t) => {
    const { as, agent, restart, notes } = await setUp(t, encrypted(OLD));
    as.takeLog();
    await restart(vars);
    const answer = await agent.tryCall("notes", "whoami", {});
    const shown = `${answer.status} ${JSON.stringify(answer.body)}`;
    assert.ok(answer.status >= 400, shown);
    const { servers, damaged } = await agent.get("servers");
    const said = shown + JSON.stringify({ servers, damaged });
    assert.match(said, /AGENT_ENCRYPTION_KEY|encrypt|decrypt/i);
    // Neither asking nor adding again may replace what cannot be read.
    await agent.request("POST", "servers/notes/reconnect");
    await agent.tryAdd(notes);
    assert.deepEqual(as.requests("token"), []);

    await restart(encrypted(OLD));
    assert.equal(await agent.say("notes", "whoami"), "ada");
    assert.equal(as.count("token"), 0);
    assert.equal(as.count("register"), 0);
  });
}

for (const [what, key] of Object.entries({
  "too short": randomBytes(16).toString("base64"),
  "no base64 and no hex": "not a key at all",
  "one of two is broken": `${OLD.toString("base64")},xyz`,
})) {
  test(`a key that is none (${what}) is said to be none, and nothing is written in the clear`, async (t) => {
    const { as, worker, agent, notes } = await setUp(t, { AGENT_ENCRYPTION_KEY: key }, { isSignedIn: false });
    const answer = await agent.tryAdd(notes);
    const shown = `${answer.status} ${JSON.stringify(answer.body)}`;
    assert.ok(answer.status >= 400, shown);
    assert.match(shown + worker.output, /AGENT_ENCRYPTION_KEY/);
    assert.ok(!shown.includes(key), "the key is shown");
    assert.equal(as.count("register"), 0);
  });
}
