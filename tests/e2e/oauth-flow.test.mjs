// Signing in to a server, from adding it to a tool that answers, with everything that may come in between.
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { assertProblem, readAnswer } from "./support/api.mjs";
import {
  ENDS,
  assertSignInRequired,
  expiry,
  query,
  signingAgent,
  startScene,
  startSigningAgent,
} from "./support/auth-agent.mjs";
import { startProtected } from "./support/auth-server.mjs";
import { neverAnswers } from "./support/faults.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { storedServers } from "./support/storage.mjs";
import { timed, until } from "./support/until.mjs";

let worker;
before(async () => (worker = await startSigningAgent()));
after(() => worker?.dispose());

const setUp = (t, options) => startScene(t, worker, options);

describe("signing in", () => {
  test("goes from an authorization URL to a tool that knows the user", async (t) => {
    const { agent, as, mcp, notes } = await setUp(t, { mcp: { scope: "read" } });
    const added = await agent.begin(notes);
    assert.equal(added.id, "notes");
    assert.deepEqual(
      [added.server.state, added.server.authUrl, added.server.auth],
      ["authenticating", added.authUrl, null],
    );
    assert.equal((await agent.server("notes")).authUrl, added.authUrl);

    const callback = new URL(`${agent.base}callback`, worker.origin).href;
    const { client_id, state, code_challenge, ...asked } = query(added.authUrl);
    assert.deepEqual(asked, {
      response_type: "code",
      redirect_uri: callback,
      code_challenge_method: "S256",
      scope: "read",
      resource: mcp.url,
    });
    assert.match(state, /^[\w-]{21}\.notes$/);
    assert.match(code_challenge, /^[\w-]{43}$/);
    const [{ json: document }] = as.requests("register");
    assert.deepEqual(document.redirect_uris, [callback]);
    assert.ok(document.grant_types.includes("authorization_code") && document.grant_types.includes("refresh_token"));
    assert.equal(document.application_type, "native");

    const entry = await agent.finish("notes", added.authUrl, as, { user: "ada" });
    assert.equal(entry.authUrl, null);
    const { expiresAt, ...auth } = entry.auth;
    assert.deepEqual(auth, { issuer: as.issuer, clientId: client_id, scope: "read" });
    assert.ok(Math.abs(expiry(entry) - Date.now() - 3_600_000) < 60_000, `${expiresAt}`);
    assert.equal(await agent.say("notes", "whoami"), "ada");

    assert.deepEqual(as.grants, { authorization_code: 1 });
    const [{ form, headers }] = as.requests("token");
    assert.equal(form.get("redirect_uri"), callback);
    assert.equal(form.get("resource"), mcp.url);
    assert.match(headers.accept, /application\/json/);
    assert.equal(as.count("register"), 1);
    assert.equal((await storedServers(worker, agent.name)).notes.auth_url, null);
  });

  test("is asked for by a call as well, with the URL that is open", async (t) => {
    const { agent, as, notes } = await setUp(t);
    const { authUrl } = await agent.begin(notes);
    const again = await agent.callInVain("notes", "echo");
    assert.equal(query(again).client_id, query(authUrl).client_id);
    await agent.finish("notes", again, as);
    assert.equal(await agent.say("notes", "echo", { a: 1 }), '{"a":1}');
  });

  test("begins in the middle of the work when the server no longer lets us in", async (t) => {
    const { agent, as, notes } = await setUp(t);
    await agent.signIn(notes, as);
    as.revokeEverything();
    const authUrl = await agent.callInVain("notes", "whoami");
    const entry = await agent.server("notes");
    assert.deepEqual([entry.state, entry.authUrl], ["authenticating", authUrl]);
    await agent.finish("notes", authUrl, as, { user: "bob" });
    assert.equal(await agent.say("notes", "whoami"), "bob");
  });

  test("to a server that asks for nothing is not needed", async (t) => {
    const { agent, as, notes } = await setUp(t, { mcp: { open: true } });
    const entry = await agent.add(notes);
    assert.deepEqual([entry.authUrl, entry.auth], [null, null]);
    assert.deepEqual(as.log, []);
  });

  test("to several servers at once, with callbacks in another order, mixes nothing up", async (t) => {
    const agent = signingAgent(worker);
    const pairs = await Promise.all(["a", "b", "c", "d"].map(() => startProtected()));
    t.after(() => Promise.all(pairs.map(({ close }) => close())));
    // Two servers that trust the same authorization server are two sign-ins all the same.
    pairs[3].mcp.as = pairs[2].as;
    pairs[3].as = pairs[2].as;
    const ids = ["a", "b", "c", "d"];
    const begun = await Promise.all(
      ids.map((id, i) => agent.begin({ id, name: id.toUpperCase(), url: pairs[i].mcp.url })),
    );
    const callbacks = await Promise.all(
      begun.map(({ authUrl }, i) => pairs[i].as.approve(authUrl, { user: `user of ${ids[i]}` })),
    );
    await Promise.all([3, 1, 0, 2].map((i) => agent.arrive(callbacks[i])));
    await Promise.all(ids.map((id) => agent.ready(id)));
    const users = await Promise.all(ids.map((id) => agent.say(id, "whoami")));
    assert.deepEqual(
      users,
      ids.map((id) => `user of ${id}`),
    );
    assert.deepEqual(pairs[0].as.grants, { authorization_code: 1 });
    assert.deepEqual(pairs[2].as.grants, { authorization_code: 2 });
  });

  test("shows no token and no secret anywhere", async (t) => {
    const { agent, as, notes } = await setUp(t, { as: { authMethod: "client_secret_post" } });
    await agent.signIn(notes, as);
    as.expireAccessTokens();
    await agent.say("notes", "echo");
    const shown = [];
    for (const path of ["servers", "servers/notes", "tools", "events"])
      shown.push(JSON.stringify(await agent.get(path)));
    as.revokeEverything();
    shown.push(JSON.stringify((await agent.tryCall("notes", "echo", {})).body), worker.output);
    for (const secret of as.secrets) assert.ok(!shown.some((text) => text.includes(secret)), `${secret} is shown`);
  });
});

// A step may be the last that an object does.
const STEPS = {
  "the server was added": "added",
  "the user was sent back": "approved",
  "the callback was answered": "arrived",
  "the server was ready": "ready",
};

for (const [end, leave] of Object.entries(ENDS)) {
  describe(`after ${end}`, () => {
    for (const [name, step] of Object.entries(STEPS)) {
      // miniflare evicts no object that is in the middle of connecting.
      if (step === "arrived" && end.includes("evicted")) continue;
      test(`the sign-in goes on where it was: ${name}`, async (t) => {
        const { agent, as, mcp, notes } = await setUp(t);
        const { authUrl } = await agent.begin(notes);
        if (step === "added") {
          await leave(agent);
          const entry = await agent.server("notes");
          assert.deepEqual([entry.state, entry.authUrl], ["authenticating", authUrl]);
        }
        const callback = await as.approve(authUrl, { user: "ada" });
        if (step === "approved") await leave(agent);
        await agent.arrive(callback);
        if (step === "arrived") await leave(agent);
        const entry = await agent.ready("notes");
        if (step === "ready") await leave(agent);
        assert.equal(await agent.say("notes", "whoami"), "ada");

        assert.equal(entry.authUrl, null);
        assert.equal(as.count("register"), 1);
        assert.equal(as.count("authorize"), 1);
        assert.deepEqual(as.grants, { authorization_code: 1 });
        assert.equal(mcp.rpc("tools/call").length, 1);
        const { auth } = await agent.server("notes");
        assert.equal(auth.clientId, query(authUrl).client_id);
      });
    }

    test("a token that has run out meanwhile is refreshed once, however many ask", async (t) => {
      const { agent, as, notes } = await setUp(t);
      await agent.signIn(notes, as, { user: "ada" });
      await leave(agent);
      as.expireAccessTokens();
      const users = await Promise.all(Array.from({ length: 10 }, () => agent.say("notes", "whoami")));
      assert.deepEqual(new Set(users), new Set(["ada"]));
      assert.deepEqual(as.grants, { authorization_code: 1, refresh_token: 1 });
    });

    test("HB-01 a server that waits for the user is not called ready", async (t) => {
      const { agent, as, notes } = await setUp(t);
      await agent.begin(notes);
      await leave(agent);
      const [again, listed] = [await agent.begin(notes), await agent.server("notes")];
      assert.deepEqual([listed.state, listed.authUrl], ["authenticating", again.authUrl]);
      assert.equal((await agent.get("servers")).servers.length, 1);
      await agent.finish("notes", again.authUrl, as);
    });

    test("HB-02 a wake leaves the sign-in that the user is in the middle of", async (t) => {
      const { agent, as, notes } = await setUp(t);
      const { authUrl } = await agent.begin(notes);
      const registered = as.count("register");
      await leave(agent);
      as.takeLog();
      for (const path of ["servers", "tools?wait=200", "servers/notes"]) await agent.get(path);
      const { state, authUrl: offered } = await agent.server("notes");
      assert.deepEqual([state, offered], ["authenticating", authUrl]);
      assert.deepEqual(as.log, [], "the wake asks nothing");
      // The user was in the middle of it, and comes to the end of it now.
      await agent.arrive(await as.approve(authUrl));
      await agent.ready("notes");
      assert.deepEqual([registered, as.count("register")], [1, 0]);
    });

    test("HB-03 a callback that comes first is answered, whatever other servers do", async (t) => {
      const { agent, as, notes } = await setUp(t);
      const dead = await startScriptedServer();
      t.after(() => dead.close());
      await agent.add({ id: "dead", name: "Dead", url: dead.url });
      const { authUrl } = await agent.begin(notes);
      const callback = await as.approve(authUrl);
      await leave(agent);
      dead.intercept = neverAnswers;
      const { ms } = await timed(() => agent.arrive(callback));
      assert.ok(ms < 5_000, `${ms} ms`);
      await agent.ready("notes");
    });
  });
}

test("workerd may be killed after every single step", async (t) => {
  const { agent, as, notes } = await setUp(t);
  const { authUrl } = await agent.begin(notes);
  await worker.restart();
  const callback = await as.approve(authUrl, { user: "ada" });
  await worker.restart();
  await agent.arrive(callback);
  await worker.restart();
  assert.equal(await agent.say("notes", "whoami"), "ada");
  await worker.restart();
  as.expireAccessTokens();
  assert.equal(await agent.say("notes", "whoami"), "ada");
  await worker.restart();
  assert.equal(await agent.say("notes", "whoami"), "ada");
  assert.deepEqual(as.grants, { authorization_code: 1, refresh_token: 1 });
  assert.equal(as.count("register"), 1);
});

describe("a callback", () => {
  for (const [how, twice] of Object.entries({
    "one after the other": async (agent, callback) => [await agent.callback(callback), await agent.callback(callback)],
    "at the same time": (agent, callback) => Promise.all([agent.callback(callback), agent.callback(callback)]),
  })) {
    test(`that comes twice, ${how}, redeems the code once`, async (t) => {
      const { agent, as, notes } = await setUp(t);
      const { authUrl } = await agent.begin(notes);
      const answers = await twice(agent, await as.approve(authUrl, { user: "ada" }));
      assert.ok(
        answers.some(({ status }) => status === 302),
        "neither succeeds",
      );
      for (const { status } of answers) assert.ok([302, 400].includes(status), `${status}`);
      await agent.ready("notes");
      assert.deepEqual(as.grants, { authorization_code: 1 });
      assert.equal(await agent.say("notes", "whoami"), "ada");
    });
  }

  for (const [order, first, second] of [
    ["the older first", 0, 1],
    ["the newer first", 1, 0],
  ]) {
    test(`of two tabs, ${order}, ends in one server that is ready`, async (t) => {
      const { agent, as, notes } = await setUp(t);
      const urls = [(await agent.begin(notes)).authUrl, (await agent.reconnect("notes")).authUrl];
      const callbacks = [];
      for (const url of urls) callbacks.push(await as.approve(url, { user: "ada" }));
      await agent.arrive(callbacks[first]);
      await agent.ready("notes");
      const late = await agent.callback(callbacks[second]);
      assert.ok([302, 400].includes(late.status), `${late.status}`);
      await agent.ready("notes");
      assert.equal(await agent.say("notes", "whoami"), "ada");
      assert.equal((await agent.server("notes")).authUrl, null);
    });
  }

  test("that says no gives a page on which nothing of it runs", async (t) => {
    const { agent, as, notes } = await setUp(t);
    const { authUrl } = await agent.begin(notes);
    const text = `No <script>alert(1)</script><img src=x onerror=alert(2)> "quoted" & 'more'`;
    const page = await agent.arriveInVain(await as.deny(authUrl, "access_denied", text));
    assert.ok(!/<script>alert|<img src=x/i.test(page), page);
    assert.deepEqual(as.grants, {});
    const { authUrl: next } = await agent.reconnect("notes");
    await agent.finish("notes", next, as);
  });

  test("gives a page with headers that keep it to itself", async (t) => {
    const { agent, as, notes } = await setUp(t);
    const { authUrl } = await agent.begin(notes);
    const answer = await agent.callback(await as.deny(authUrl));
    assert.equal(answer.headers.get("cache-control"), "no-store");
    assert.equal(answer.headers.get("x-content-type-options"), "nosniff");
    assert.match(answer.headers.get("content-security-policy") ?? "", /default-src 'none'/);
    assert.match(answer.headers.get("referrer-policy") ?? "no-referrer", /no-referrer/);
  });

  for (const [name, forge] of Object.entries({
    "without a state": (url) => url.searchParams.delete("state"),
    "with a state of no form": (url) => url.searchParams.set("state", "nonsense"),
    "with a state that nobody gave": (url) => url.searchParams.set("state", `${"x".repeat(21)}.notes`),
    "with a state for another server": (url) =>
      url.searchParams.set("state", url.searchParams.get("state").replace(".notes", ".other")),
    "with two states": (url) => url.searchParams.append("state", "second"),
  })) {
    test(`${name} changes nothing, and the true one still works`, async (t) => {
      const { agent, as, notes } = await setUp(t);
      const { authUrl } = await agent.begin(notes);
      const callback = await as.approve(authUrl);
      const forged = new URL(callback);
      forge(forged);
      await agent.arriveInVain(forged);
      assert.deepEqual(as.grants, {});
      assert.equal((await agent.server("notes")).state, "authenticating");
      await agent.arrive(callback);
      await agent.ready("notes");
    });
  }

  test("without a code leaves the sign-in open", async (t) => {
    const { agent, as, notes } = await setUp(t);
    const { authUrl } = await agent.begin(notes);
    const callback = await as.approve(authUrl);
    const bare = new URL(callback);
    bare.searchParams.delete("code");
    await agent.arriveInVain(bare);
    assert.deepEqual(as.grants, {});
    await agent.arrive(callback);
  });

  test("RT-06 at another object is refused there, and works where it belongs", async (t) => {
    const { agent, as, mcp, notes } = await setUp(t);
    const other = signingAgent(worker);
    const { authUrl: otherUrl } = await other.begin(notes);
    const { authUrl } = await agent.begin(notes);
    const callback = await as.approve(authUrl);
    const stray = new URL(callback);
    stray.pathname = `${other.base}callback`;
    await other.arriveInVain(stray);
    const empty = signingAgent(worker);
    stray.pathname = `${empty.base}callback`;
    await empty.arriveInVain(stray);

    assert.deepEqual(as.grants, {});
    assert.deepEqual((await empty.get("servers")).servers, []);
    const entry = await other.server("notes");
    assert.deepEqual([entry.state, entry.authUrl], ["authenticating", otherUrl]);
    await agent.arrive(callback);
    await agent.ready("notes");
    assert.equal(mcp.presented.length, 1);
  });

  test("is let in without the token of the Worker, and nothing else is", async (t) => {
    const closed = await startSigningAgent({ AGENT_TOKEN: "s3cret" });
    t.after(() => closed.dispose());
    const { as, mcp, close } = await startProtected();
    t.after(close);
    const agent = signingAgent(closed, "guarded", { token: "s3cret" });
    const { authUrl } = await agent.begin({ id: "notes", name: "Notes", url: mcp.url });
    await agent.arrive(await as.approve(authUrl));
    await agent.ready("notes");
    const open = await readAnswer(await closed.fetch(`${agent.base}client-metadata.json`));
    assert.equal(open.status, 200);
    assert.ok(
      open.body.redirect_uris?.some((uri) => uri.endsWith(`${agent.base}callback`)),
      JSON.stringify(open.body),
    );
    for (const path of ["servers", "tools", "servers/notes", "callback/x", "servers/callback"]) {
      assert.equal((await closed.fetch(agent.base + path)).status, 401, path);
    }
    for (const method of ["POST", "DELETE", "PUT"]) {
      const { status } = await closed.fetch(`${agent.base}callback?state=a.b&code=c`, { method });
      assert.ok([401, 404, 405].includes(status), `${method}: ${status}`);
    }
  });
});

describe("signing out", () => {
  test("revokes and forgets tokens and registration", async (t) => {
    const { agent, as, mcp, notes } = await setUp(t);
    const before = await agent.signIn(notes, as, { user: "ada" });
    const [token] = mcp.presented;
    const answer = await agent.signOut("notes");
    assert.equal(answer.id, "notes");
    assert.equal(answer.server.auth, null);
    assert.ok(as.count("revoke") >= 1);
    assert.equal(as.check(token), undefined);

    mcp.takeLog();
    const { authUrl } = await agent.reconnect("notes");
    assert.notEqual(query(authUrl).client_id, before.auth.clientId);
    assert.deepEqual(mcp.presented, []);
    await agent.finish("notes", authUrl, as, { user: "bob" });
    assert.equal(await agent.say("notes", "whoami"), "bob");
  });

  test("keeps a client that was configured", async (t) => {
    const { agent, as, notes } = await setUp(t);
    const clientId = as.addClient({ client_id: "configured" });
    await agent.signIn({ ...notes, oauth: { clientId } }, as);
    await agent.signOut("notes");
    const { authUrl } = await agent.reconnect("notes");
    assert.equal(query(authUrl).client_id, clientId);
    assert.equal(as.count("register"), 0);
  });

  test("works when the authorization server does not answer", async (t) => {
    const { agent, as, mcp, notes } = await setUp(t);
    await agent.signIn(notes, as);
    await as.close();
    const answer = await agent.signOut("notes");
    assert.equal(answer.server.auth, null);
    mcp.takeLog();
    await as.listen(as.port);
    const { authUrl } = await agent.reconnect("notes");
    assert.deepEqual(mcp.presented, []);
    assert.ok(authUrl);
  });

  test("of a server that is not there is 404", async (t) => {
    const { agent } = await setUp(t);
    assertProblem(await agent.request("POST", "servers/none/sign-out"), 404);
  });
});

test("a server that is removed leaves nothing, and its late callback does nothing", async (t) => {
  const { agent, as, notes } = await setUp(t);
  await agent.signIn(notes, as);
  as.revokeEverything();
  const late = await as.approve(await agent.callInVain("notes", "echo"));
  await agent.remove("notes");
  as.takeLog();
  await agent.arriveInVain(late);
  assert.deepEqual(as.log, []);
  assert.deepEqual((await agent.get("servers")).servers, []);
  const { authUrl } = await agent.begin(notes);
  assert.equal(as.count("register"), 1, "nothing of the old registration is left");
  await agent.finish("notes", authUrl, as);
});

test("ten calls at once for a token that has run out cause one refresh", async (t) => {
  const { agent, as, mcp, notes } = await setUp(t);
  await agent.signIn(notes, as, { user: "ada" });
  for (let round = 1; round <= 3; round++) {
    as.expireAccessTokens();
    const users = await Promise.all(Array.from({ length: 10 }, () => agent.say("notes", "whoami")));
    assert.deepEqual(
      users,
      Array.from({ length: 10 }, () => "ada"),
    );
    assert.deepEqual(as.grants, { authorization_code: 1, refresh_token: round });
  }
  assert.equal(mcp.presented.length, 4);
});

test("ten calls at once that need a sign-in are told of one", async (t) => {
  const { agent, as, notes } = await setUp(t);
  await agent.signIn(notes, as);
  as.revokeEverything();
  const answers = await Promise.all(Array.from({ length: 10 }, () => agent.tryCall("notes", "echo", {})));
  const urls = new Set(answers.map((answer) => assertSignInRequired(answer, "notes")));
  assert.equal(urls.size, 1, [...urls].join("\n"));
  assert.ok((as.grants.refresh_token ?? 0) <= 1);
  await until("the entry to say so", async () => (await agent.server("notes")).authUrl === [...urls][0]);
});

describe("where callbacks go", () => {
  for (const name of ["u1%2Fs1", "%E5%90%8D%E5%89%8D", "a%20b", "a%2520b"]) {
    test(`RT-02 to the object that is named ${name}`, async (t) => {
      const { as, notes } = await setUp(t);
      const agent = signingAgent(worker, name);
      const { authUrl } = await agent.begin(notes);
      assert.equal(query(authUrl).redirect_uri, `${worker.origin}${agent.base}callback`);
      await agent.finish("notes", authUrl, as, { user: name });
      assert.equal(await agent.say("notes", "whoami"), name);
    });
  }

  test("RT-04 not where a forged header says", async (t) => {
    const { agent, notes } = await setUp(t);
    const headers = {
      "content-type": "application/json",
      "x-forwarded-host": "evil.example",
      "x-forwarded-proto": "https",
      forwarded: "host=evil.example;proto=https",
    };
    const init = { method: "POST", headers, body: JSON.stringify(notes) };
    const { status, body } = await readAnswer(await worker.fetch(`${agent.base}servers`, init));
    assert.equal(status, 201);
    assert.equal(new URL(query(body.authUrl).redirect_uri).origin, worker.origin);
  });

  test("RT-04 where PUBLIC_ORIGIN says", async (t) => {
    const behind = await startSigningAgent({ PUBLIC_ORIGIN: "https://agents.example" });
    t.after(() => behind.dispose());
    const { as, notes } = await setUp(t);
    const agent = signingAgent(behind);
    const { authUrl } = await agent.begin(notes);
    assert.equal(query(authUrl).redirect_uri, `https://agents.example${agent.base}callback`);
    assert.equal(as.requests("register")[0].json.application_type, "web");
    const { pathname, search } = await as.approve(authUrl);
    const { status } = await readAnswer(await behind.fetch(pathname + search));
    assert.equal(status, 302);
    await agent.ready("notes");
    assert.equal(as.requests("token")[0].form.get("redirect_uri"), `https://agents.example${agent.base}callback`);
  });
});

describe("without a user", () => {
  const grants = { grant_types_supported: ["client_credentials"] };
  const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const ec = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const withKey = (algorithm, { publicKey, privateKey }) => [
    `a key for ${algorithm}`,
    { token_endpoint_auth_method: "private_key_jwt", jwk: publicKey.export({ format: "jwk" }) },
    { privateKey: privateKey.export({ type: "pkcs8", format: "pem" }), signingAlgorithm: algorithm },
    { token_endpoint_auth_methods_supported: ["private_key_jwt"] },
  ];
  for (const [name, client, oauth, metadata] of [
    [
      "a secret",
      { token_endpoint_auth_method: "client_secret_basic", client_secret: "secret-of-a-machine" },
      { clientSecret: "secret-of-a-machine" },
      { token_endpoint_auth_methods_supported: ["client_secret_basic"] },
    ],
    withKey("ES256", ec),
    withKey("RS256", rsa),
  ]) {
    test(`a client with ${name} gets tokens by itself, and new ones when they run out`, async (t) => {
      const { agent, as, mcp, notes } = await setUp(t, { as: { metadata: { ...grants, ...metadata } } });
      const clientId = as.addClient({ client_id: "machine", ...client });
      const server = { ...notes, oauth: { grant: "client_credentials", clientId, scope: "read", ...oauth } };
      const entry = await agent.add(server);
      assert.deepEqual([entry.authUrl, entry.auth.clientId], [null, clientId]);
      assert.equal(await agent.say("notes", "whoami"), "machine");
      assert.equal(as.requests("token")[0].form.get("resource"), mcp.url);
      as.expireAccessTokens();
      const users = await Promise.all(Array.from({ length: 10 }, () => agent.say("notes", "whoami")));
      assert.deepEqual(new Set(users), new Set(["machine"]));
      assert.deepEqual(as.grants, { client_credentials: 2 });
      await worker.restart();
      as.expireAccessTokens();
      assert.equal(await agent.say("notes", "whoami"), "machine");
      assert.deepEqual(as.grants, { client_credentials: 3 });
      assert.deepEqual([as.count("register"), as.count("authorize")], [0, 0]);
      const shown = JSON.stringify(await agent.get("servers")) + worker.output;
      for (const secret of [...as.secrets, "PRIVATE KEY"]) assert.ok(!shown.includes(secret), "a secret is shown");
    });
  }

  test("a client that is refused is told so, and nobody is asked to sign in", async (t) => {
    const { agent, as, notes } = await setUp(t, { as: { metadata: grants } });
    const oauth = { grant: "client_credentials", clientId: "nobody", clientSecret: "wrong" };
    const problem = assertProblem(await agent.tryAdd({ ...notes, oauth }), 502);
    assert.equal(problem.kind, "authorization");
    assert.ok(!JSON.stringify(problem).includes("wrong"));
    assert.equal((await agent.server("notes")).authUrl, null);
    assert.ok(as.count("token") <= 2, `${as.count("token")} requests`);
  });
});
