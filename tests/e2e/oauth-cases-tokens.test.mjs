// Cases from public bug reports about OAuth in MCP clients, by their ids: callbacks, tokens and scopes, and what is
// left of them after an object was gone.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { assertProblem } from "./support/api.mjs";
import { ENDS, assertSignInRequired, expiry, query, startScene, startSigningAgent } from "./support/auth-agent.mjs";
import { challenge, sendText, startAuthServer } from "./support/auth-server.mjs";
import { ageSignIns } from "./support/auth-storage.mjs";
import { sendJson } from "./support/scripted-server.mjs";
import { storedServers } from "./support/storage.mjs";
import { timed, until } from "./support/until.mjs";

let worker;
before(async () => (worker = await startSigningAgent()));
after(() => worker?.dispose());

const setUp = (t, options) => startScene(t, worker, options);

async function anotherServer(t) {
  const server = await startAuthServer();
  t.after(() => server.close());
  return server;
}

const evict = (agent) => agent.worker.evict("ToolAgent", agent.name);

test("OT-01 expires_in as a string", async (t) => {
  const extra = { expires_on: "1790000000", ext_expires_in: "3600", not_before: null };
  const { agent, as, notes } = await setUp(t, { as: { expiresIn: "3600", extra } });
  const entry = await agent.signIn(notes, as);
  assert.ok(Math.abs(expiry(entry) - Date.now() - 3_600_000) < 60_000, `${entry.auth.expiresAt}`);
});

describe("OT-02 expires_in of any shape", () => {
  for (const expiresIn of [0, -1]) {
    test(`${expiresIn} is over already: refreshed before use`, async (t) => {
      const { agent, as, mcp, notes } = await setUp(t, { as: { expiresIn } });
      as.afterToken = (form) => {
        if (form.get("grant_type") === "authorization_code") as.expiresIn = 3600;
      };
      await agent.signIn(notes, as);
      await agent.say("notes", "echo");
      assert.deepEqual(as.grants, { authorization_code: 1, refresh_token: 1 });
      assert.equal(mcp.presented.length, 1, "the first token was shown");
    });
  }

  for (const expiresIn of [99999999999999, 1e300, 3600.7, "3600abc", null, undefined, {}, true]) {
    test(`${JSON.stringify(expiresIn)} is used until the server says no`, async (t) => {
      const { agent, as, notes } = await setUp(t, { as: { expiresIn } });
      await agent.signIn(notes, as);
      await agent.say("notes", "echo");
      assert.deepEqual(as.grants, { authorization_code: 1 });
      as.expireAccessTokens();
      await agent.say("notes", "echo");
      assert.deepEqual(as.grants, { authorization_code: 1, refresh_token: 1 });
    });
  }
});

describe("OT-05 token answers that are a form", () => {
  test("unless JSON is asked for", async (t) => {
    const { agent, as, notes } = await setUp(t);
    as.onToken = (_, { headers }) => {
      as.tokenFormat = headers.accept?.includes("application/json") ? "json" : "form";
    };
    await agent.signIn(notes, as);
  });

  test("always: works, or says what is wrong and shows no token", async (t) => {
    const { agent, as, notes } = await setUp(t, { as: { tokenFormat: "form" } });
    const { authUrl } = await agent.begin(notes);
    const answer = await agent.callback(await as.approve(authUrl));
    if (answer.status === 302) return agent.ready("notes");
    assert.equal(answer.status, 400);
    assert.match(answer.body, /x-www-form-urlencoded|content type/i);
    const shown = answer.body + JSON.stringify(await agent.get("servers")) + worker.output;
    for (const secret of as.secrets) assert.ok(!shown.includes(secret));
  });
});

test("OT-09 a rejection reported as invalid_request", async (t) => {
  const { agent, as, notes } = await setUp(t);
  await agent.signIn(notes, as);
  as.expireAccessTokens();
  as.onToken = (form) =>
    form.get("grant_type") === "refresh_token" && {
      status: 400,
      body: { error: "invalid_request", error_description: "token request invalid" },
    };
  const authUrl = await agent.callInVain("notes", "echo");
  for (let i = 0; i < 3; i++) await agent.tryCall("notes", "echo", {});
  assert.ok(as.grants.refresh_token <= 3, `${as.grants.refresh_token} refreshes`);
  await agent.finish("notes", authUrl, as);
  await agent.say("notes", "echo");
});

test("OT-10 refreshing works, the server still says 401", async (t) => {
  const { agent, as, mcp, notes } = await setUp(t);
  await agent.signIn(notes, as, { user: "ada" });
  const { grant } = as.check(mcp.presented[0]);
  mcp.refuses = (_, known) => known.grant === grant;
  const authUrl = await agent.callInVain("notes", "whoami");
  assert.ok((as.grants.refresh_token ?? 0) <= 2, `${as.grants.refresh_token} refreshes`);
  await agent.finish("notes", authUrl, as, { user: "bob" });
  assert.equal(await agent.say("notes", "whoami"), "bob");
});

test("OT-12 a late loser leaves the tokens of the winner", async (t) => {
  const { agent, as, mcp, notes } = await setUp(t, { mcp: { scope: "read" } });
  await agent.signIn(notes, as, { user: "ada" });
  let refreshing = false;
  as.onToken = (form) => {
    if (form.get("grant_type") !== "refresh_token") return undefined;
    refreshing = true;
    return { status: 400, body: { error: "invalid_grant" }, delayMs: 3_000 };
  };
  // One call is on its way with the old token, and asks for more scopes only when the other has begun to refresh.
  mcp.intercept = async ({ json }, response) => {
    if (json?.params?.name !== "write" || refreshing === "over") return false;
    await until("the refresh to begin", () => refreshing);
    const wanted = challenge({ error: "insufficient_scope", scope: "write" });
    sendJson(response, 403, { error: "insufficient_scope" }, { "www-authenticate": wanted });
    return true;
  };
  const writing = agent.tryCall("notes", "write", {});
  await until("the call to be there", () => mcp.rpc("tools/call").length > 0);
  as.expireAccessTokens();
  const reading = agent.tryCall("notes", "whoami", {});
  const authUrl = assertSignInRequired(await writing, "notes");
  refreshing = "over";
  await agent.arrive(await as.approve(authUrl, { user: "bob" }));
  await reading;
  await agent.ready("notes");
  assert.equal(await agent.say("notes", "whoami"), "bob");
  await worker.restart();
  assert.equal(await agent.say("notes", "whoami"), "bob");
  assert.equal(as.grants.authorization_code, 2);
});

test("OT-13 new tokens are used at once", async (t) => {
  const { agent, as, mcp, notes } = await setUp(t);
  await agent.signIn(notes, as, { user: "ada" });
  as.revokeEverything();
  const authUrl = await agent.callInVain("notes", "whoami");
  const old = new Set(mcp.presented);
  mcp.takeLog();
  await agent.arrive(await as.approve(authUrl, { user: "bob" }));
  assert.equal(await agent.say("notes", "whoami"), "bob");
  assert.ok(
    mcp.presented.every((token) => !old.has(token)),
    "the old token was seen again",
  );
});

test("OT-18 the user comes back too late", async (t) => {
  const { agent, as, notes } = await setUp(t);
  const { authUrl } = await agent.begin(notes);
  const callback = await as.approve(authUrl);
  await ageSignIns(worker, agent.name, 11 * 60_000);
  const page = await agent.arriveInVain(callback);
  assert.match(page, /expired|too old|time is over|start again|again/i);
  assert.deepEqual(as.grants, {});
  const { authUrl: next } = await agent.reconnect("notes");
  assert.notEqual(query(next).state, query(authUrl).state);
  await agent.finish("notes", next, as);
});

test("OT-18 the user comes back after nine minutes", async (t) => {
  const { agent, as, notes } = await setUp(t);
  const { authUrl } = await agent.begin(notes);
  const callback = await as.approve(authUrl);
  await ageSignIns(worker, agent.name, 9 * 60_000);
  await agent.arrive(callback);
  await agent.ready("notes");
});

test("OT-20 the same URL for two accounts", async (t) => {
  const { agent, as, mcp } = await setUp(t);
  await agent.signIn({ id: "a", name: "A", url: mcp.url }, as, { user: "user 1" });
  const second = await agent.tryAdd({ id: "b", name: "B", url: mcp.url });
  if (second.status !== 201) return assertProblem(second, [409, 422]);
  assert.equal(second.body.state, "authenticating", "the first sign-in was shared");
  await agent.finish("b", second.body.authUrl, as, { user: "user 2" });
  const users = async () => [await agent.say("a", "whoami"), await agent.say("b", "whoami")];
  assert.deepEqual(await users(), ["user 1", "user 2"]);
  await worker.restart();
  assert.deepEqual(await users(), ["user 1", "user 2"]);
  as.expireAccessTokens();
  assert.deepEqual(await users(), ["user 1", "user 2"]);
  await agent.signOut("a");
  assert.equal(await agent.say("b", "whoami"), "user 2");
});

test("OT-22 a refresh token goes only where it came from", async (t) => {
  const { agent, as, notes } = await setUp(t, { as: { authMethod: "client_secret_post" } });
  const evil = await anotherServer(t);
  await agent.signIn(notes, as);
  as.metadata = { token_endpoint: `${evil.origin}/token`, revocation_endpoint: `${evil.origin}/revoke` };
  for (const leave of [() => undefined, evict]) {
    await leave(agent);
    as.expireAccessTokens();
    const answer = await agent.tryCall("notes", "echo", {});
    if (answer.status !== 200) assertSignInRequired(answer, "notes");
  }
  await agent.request("POST", "servers/notes/sign-out");
  const sent = evil.log.map(({ body, headers }) => body + JSON.stringify(headers)).join("\n");
  for (const secret of as.secrets) assert.ok(!sent.includes(secret), `${secret} was sent elsewhere`);
});

describe("OT-23 the iss parameter", () => {
  for (const [name, advertised, iss, isGood] of [
    ["right", true, (as) => as.issuer, true],
    ["wrong", true, () => "http://127.0.0.1:1", false],
    ["absent although promised", true, () => undefined, false],
    ["absent and not promised", undefined, () => undefined, true],
    ["absent and said to be absent", false, () => undefined, true],
    ["right and not promised", undefined, (as) => as.issuer, true],
    ["wrong and not promised", undefined, () => "http://127.0.0.1:1", false],
    ["right but for a slash", true, (as) => `${as.issuer}/`, false],
    ["empty", true, () => "", false],
  ]) {
    test(`${name} is ${isGood ? "accepted" : "refused before anything is asked"}`, async (t) => {
      const { agent, as, notes } = await setUp(t, {
        as: { metadata: { authorization_response_iss_parameter_supported: advertised } },
      });
      const { authUrl } = await agent.begin(notes);
      const callback = await as.approve(authUrl);
      callback.searchParams.delete("iss");
      if (iss(as) !== undefined) callback.searchParams.set("iss", iss(as));
      if (isGood) {
        await agent.arrive(callback);
        return agent.ready("notes");
      }
      await agent.arriveInVain(callback);
      assert.deepEqual(as.grants, {});
    });
  }

  test("twice is refused", async (t) => {
    const { agent, as, notes } = await setUp(t);
    const { authUrl } = await agent.begin(notes);
    const callback = await as.approve(authUrl);
    callback.searchParams.append("iss", "http://127.0.0.1:1");
    await agent.arriveInVain(callback);
    assert.deepEqual(as.grants, {});
  });

  test("wrong hides what else the callback says", async (t) => {
    const { agent, as, notes } = await setUp(t);
    const { authUrl } = await agent.begin(notes);
    const callback = await as.deny(authUrl, "access_denied", "text of a stranger");
    callback.searchParams.set("iss", "http://127.0.0.1:1");
    assert.doesNotMatch(await agent.arriveInVain(callback), /text of a stranger|access_denied/);
  });
});

test("OT-24 a rejected iss does not burn the sign-in", async (t) => {
  const { agent, as, notes } = await setUp(t);
  const { authUrl } = await agent.begin(notes);
  const callback = await as.approve(authUrl);
  const wrong = new URL(callback);
  wrong.searchParams.set("iss", "http://127.0.0.1:1");
  await agent.arriveInVain(wrong);
  const answer = await agent.callback(callback);
  if (answer.status === 302) return agent.ready("notes");
  const { authUrl: next } = await agent.reconnect("notes");
  await agent.finish("notes", next, as);
});

test("OT-25 more scopes are asked for together with those that are there", async (t) => {
  const { agent, as, mcp, notes } = await setUp(t, { mcp: { scope: "read", needs: { read: "read", write: "write" } } });
  await agent.signIn(notes, as);
  assert.equal(await agent.say("notes", "read"), "read");
  const authUrl = await agent.callInVain("notes", "write");
  assert.deepEqual(query(authUrl).scope.split(" ").sort(), ["read", "write"]);
  assert.equal(as.grants.refresh_token, undefined, "a refresh cannot widen a grant");
  await agent.finish("notes", authUrl, as);
  for (const tool of ["write", "read", "write"]) await agent.say("notes", tool);
  assert.equal(as.count("authorize"), 2);
  as.expireAccessTokens();
  for (const tool of ["write", "read"]) await agent.say("notes", tool);
  assert.equal(as.count("authorize"), 2);
  assert.equal(mcp.log.filter(({ status }) => status === 403).length, 1);
});

test("OT-25 a server that is never content is not asked for ever", async (t) => {
  const { agent, as, notes } = await setUp(t, { mcp: { scope: "read", needs: { write: "write" } } });
  await agent.signIn(notes, as);
  for (let round = 0; round < 6; round++) {
    const answer = await agent.tryCall("notes", "write", {});
    if (answer.body.kind !== "sign-in-required") {
      assertProblem(answer, [403, 409, 502]);
      assert.ok(round <= 3, `${round} sign-ins`);
      return;
    }
    // The authorization server never grants more than reading.
    await agent.finish("notes", answer.body.authUrl, as, { scope: "read" });
  }
  assert.fail("a sign-in was asked for six times");
});

test("OT-27 a plain 403", async (t) => {
  const { agent, as, mcp, notes } = await setUp(t);
  await agent.signIn(notes, as);
  mcp.intercept = ({ json }, response) =>
    json?.method === "tools/call" && (sendJson(response, 403, { error: "forbidden for your role" }), true);
  mcp.takeLog();
  as.takeLog();
  const problem = assertProblem(await agent.tryCall("notes", "echo", {}), [403, 502]);
  assert.notEqual(problem.kind, "sign-in-required");
  assert.deepEqual(as.log, []);
  assert.ok(
    // The stream of a session that may bring a question is no fallback to the older transport.
    mcp.log.every(({ http, headers }) => http === "POST" || headers["mcp-protocol-version"]),
    "the older transport was tried",
  );
  const entry = await agent.server("notes");
  assert.deepEqual([entry.state, entry.authUrl], ["ready", null]);
  mcp.intercept = undefined;
  await agent.say("notes", "echo");
});

describe("OT-28 which scopes are requested", () => {
  for (const [name, scope, scopes_supported, expected] of [
    ["those of the challenge", "s1 s2", ["x"], "s1 s2"],
    ["all that the resource lists", undefined, ["api://m/.default", "offline"], "api://m/.default offline"],
    ["none, and then no parameter", undefined, undefined, undefined],
    ["none where the list is empty", undefined, [], undefined],
  ]) {
    test(name, async (t) => {
      const { agent, as, notes } = await setUp(t, { mcp: { scope, metadata: { scopes_supported } } });
      const { authUrl } = await agent.begin(notes);
      assert.equal(query(authUrl).scope, expected);
      const registered = as.requests("register")[0].json.scope;
      assert.ok(registered === undefined || registered === expected, `registered with ${registered}`);
      await agent.finish("notes", authUrl, as);
    });
  }

  for (const [name, scopes_supported, expected] of [
    ["offline_access is added where the authorization server has it", ["s1", "offline_access"], "s1 offline_access"],
    ["other scopes of the authorization server are not", ["s1", "admin"], "s1"],
  ]) {
    test(name, async (t) => {
      const { agent, notes } = await setUp(t, { as: { metadata: { scopes_supported } }, mcp: { scope: "s1" } });
      assert.equal(query((await agent.begin(notes)).authUrl).scope, expected);
    });
  }
});

describe("OT-30 credentials with special characters", () => {
  for (const method of ["client_secret_basic", "client_secret_post"]) {
    test(method, async (t) => {
      const { agent, as, notes } = await setUp(t);
      const [clientId, clientSecret] = ["app:1", 'a+b/c%d:é &="ü'];
      as.addClient({ client_id: clientId, client_secret: clientSecret, token_endpoint_auth_method: method });
      const oauth = { clientId, clientSecret, tokenEndpointAuthMethod: method };
      await agent.signIn({ ...notes, oauth }, as);
      as.expireAccessTokens();
      await agent.say("notes", "echo");
      assert.deepEqual(as.grants, { authorization_code: 1, refresh_token: 1 });
      assert.equal(as.count("register"), 0);
    });
  }
});

for (const [end, leave] of Object.entries(ENDS)) {
  test(`OT-33 the token endpoint is still known at the callback, after ${end}`, async (t) => {
    const place = "/somewhere/else/entirely.json";
    const { agent, as, mcp, notes } = await setUp(t, { mcp: { metadataAt: [place] } });
    as.endpoints = { ...as.endpoints, token: "/oauth/v2/exchange" };
    const { authUrl } = await agent.begin(notes);
    const callback = await as.approve(authUrl);
    await leave(agent);
    await agent.arrive(callback);
    await agent.ready("notes");
    assert.deepEqual(
      as.requests("token").map(({ path }) => path),
      ["/oauth/v2/exchange"],
    );
    assert.ok(mcp.log.every(({ path }) => [mcp.path, place].includes(path)));
  });

  test(`OT-37 the user is not asked again after success, after ${end}`, async (t) => {
    const { agent, as, notes } = await setUp(t);
    await agent.signIn(notes, as);
    as.takeLog();
    for (let round = 0; round < 3; round++) {
      await leave(agent);
      const { authUrl } = await agent.ready("notes");
      assert.equal(authUrl, null);
    }
    assert.deepEqual(as.log, []);
    assert.equal((await storedServers(worker, agent.name)).notes.auth_url, null);
  });
}

test("OT-38 a valid token and a lost network: no new sign-in", async (t) => {
  const { agent, as, mcp, notes } = await setUp(t);
  const retry = { maxAttempts: 1 };
  await agent.signIn({ ...notes, retry }, as, { user: "ada" });
  as.takeLog();
  await mcp.close();
  for (let i = 0; i < 3; i++) assertProblem(await agent.tryCall("notes", "whoami", {}), [409, 502, 504]);
  await evict(agent);
  await agent.get("servers");
  assertProblem(await agent.tryCall("notes", "whoami", {}), [409, 502, 504]);
  assert.equal((await agent.server("notes")).authUrl, null);
  await mcp.listen(mcp.port);
  await agent.reconnect("notes");
  assert.equal(await agent.say("notes", "whoami"), "ada");
  assert.deepEqual(as.log, []);
});

test("OT-39 the answer to the exchange is lost", async (t) => {
  const { agent, as, notes } = await setUp(t);
  const { authUrl } = await agent.begin(notes);
  as.afterToken = () => ({ cut: true });
  const { value: page, ms } = await timed(async () => agent.arriveInVain(await as.approve(authUrl)));
  assert.match(page, /again/i);
  assert.ok(ms < 20_000, `${ms} ms`);
  assert.ok(as.grants.authorization_code <= 2, `${as.grants.authorization_code} tries`);
  assert.equal((await agent.server("notes")).auth, null);
  as.afterToken = undefined;
  const { authUrl: next } = await agent.reconnect("notes");
  assert.notEqual(query(next).state, query(authUrl).state);
  await agent.finish("notes", next, as);
});

for (const [end, leave] of Object.entries(ENDS)) {
  test(`HB-17 a token that expired overnight is refreshed in silence, after ${end}`, async (t) => {
    const { agent, as, notes } = await setUp(t);
    await agent.signIn(notes, as, { user: "ada" });
    await leave(agent);
    as.expireAccessTokens();
    as.intercept = ({ kind }, response) => kind === "metadata" && (sendText(response, 503, "down"), true);
    assert.equal(await agent.say("notes", "whoami"), "ada");
    assert.deepEqual(as.grants, { authorization_code: 1, refresh_token: 1 });
    assert.equal((await agent.ready("notes")).authUrl, null);
  });

  test(`HB-18 its own settings are used, after ${end}`, async (t) => {
    const { agent, as, notes } = await setUp(t);
    const method = "client_secret_basic";
    const [clientId, clientSecret] = ["configured", "secret-of-the-configured-client"];
    as.addClient({ client_id: clientId, client_secret: clientSecret, token_endpoint_auth_method: method });
    await agent.signIn({ ...notes, oauth: { clientId, clientSecret } }, as, { user: "ada" });
    await leave(agent);
    as.expireAccessTokens();
    assert.equal(await agent.say("notes", "whoami"), "ada");
    assert.equal(as.count("register"), 0);
    assert.deepEqual(as.grants, { authorization_code: 1, refresh_token: 1 });
    as.revokeEverything();
    await leave(agent);
    const { authUrl } = await agent.reconnect("notes");
    assert.equal(query(authUrl).client_id, clientId);
    assert.equal(as.count("register"), 0);
  });
}

test("a refresh ahead of the end of a token spares the server a refusal", async (t) => {
  const { agent, as, mcp, notes } = await setUp(t, { as: { expiresIn: 2 } });
  as.afterToken = (form) => {
    if (form.get("grant_type") === "refresh_token") as.expiresIn = 3600;
  };
  await agent.signIn(notes, as);
  await until("the token to be old", async () => {
    await agent.say("notes", "echo");
    await pause(200);
    return as.grants.refresh_token === 1;
  });
  const refused = mcp.log.filter(({ status, headers }) => status === 401 && headers.authorization);
  assert.deepEqual(refused, []);
});
