// Cases from public bug reports about OAuth in MCP clients, by their ids: finding the authorization server, and
// being known to it.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { assertProblem } from "./support/api.mjs";
import { ENDS, assertNoAuthorization, query, startScene, startSigningAgent } from "./support/auth-agent.mjs";
import {
  OAUTH_DOCUMENT,
  OPENID_DOCUMENT,
  RESOURCE_DOCUMENT,
  sendText,
  startAuthServer,
} from "./support/auth-server.mjs";
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

/** What must not have happened where a sign-in is refused before it begins. */
function assertUntouched(as) {
  for (const kind of ["register", "authorize", "token"]) assert.equal(as.count(kind), 0, kind);
}

describe("OD-01 401 without any challenge header", () => {
  for (const [place, at] of [
    ["the path", `${RESOURCE_DOCUMENT}/v1/mcp`],
    ["the root", RESOURCE_DOCUMENT],
  ]) {
    test(`finds the metadata at ${place}`, async (t) => {
      const { agent, as, mcp, notes } = await setUp(t, {
        mcp: { path: "/v1/mcp", challenges: false, metadataAt: [at] },
      });
      const { authUrl } = await agent.begin({ ...notes, url: mcp.url });
      const asked = [...new Set(mcp.requests("resource-metadata").map(({ path }) => path))];
      const order = [`${RESOURCE_DOCUMENT}/v1/mcp`, RESOURCE_DOCUMENT];
      assert.deepEqual(asked, order.slice(0, order.indexOf(at) + 1));
      await agent.finish("notes", authUrl, as);
    });
  }
});

test("OD-05 everything is 404 plain text", async (t) => {
  const { agent, mcp, as, notes } = await setUp(t, { mcp: { challenges: false, metadataAt: [] } });
  const detail = await assertNoAuthorization(agent, notes, /authorization/i);
  assert.doesNotMatch(detail, /JSON|expected value|line 1/i);
  const discovery = mcp.log.filter(({ kind }) => kind !== "mcp");
  assert.ok(discovery.length <= 10, `${discovery.length} requests`);
  assert.deepEqual(as.log, []);
});

describe("OD-06 the first candidate fails, the second is fine", () => {
  const OPENID_AT = `${OPENID_DOCUMENT}/tenant`;
  for (const [how, fail] of [
    ["502", (response) => response.writeHead(502).end("bad gateway")],
    ["no answer", () => true],
  ]) {
    test(how, async (t) => {
      const { agent, as, notes } = await setUp(t, { as: { issuerPath: "/tenant", metadataAt: [OPENID_AT] } });
      as.intercept = ({ path }, response) => path === `${OAUTH_DOCUMENT}/tenant` && (fail(response), true);
      const { value, ms } = await timed(() => agent.begin(notes));
      assert.ok(ms < 20_000, `${ms} ms`);
      as.intercept = undefined;
      await agent.finish("notes", value.authUrl, as);
    });
  }
});

describe("OD-07 all discovery fails with 5xx for a signed-in server", () => {
  for (const [what, kinds] of [
    ["the metadata", ["metadata"]],
    ["the whole authorization server", ["metadata", "token", "register"]],
  ]) {
    for (const [end, leave] of Object.entries({ "it was used all the time": () => undefined, ...ENDS })) {
      test(`${what}, and ${end}`, async (t) => {
        const { agent, as, notes } = await setUp(t);
        await agent.signIn(notes, as, { user: "ada" });
        await leave(agent);
        as.expireAccessTokens();
        as.takeLog();
        as.intercept = ({ kind }, response) => kinds.includes(kind) && (sendText(response, 503, "down"), true);
        const during = await agent.tryCall("notes", "whoami", {});
        assert.notEqual(during.body.kind, "sign-in-required");
        const entry = await agent.server("notes");
        assert.equal(entry.authUrl, null);
        as.intercept = undefined;
        if (during.status !== 200)
          await until("it to work again", async () => {
            await agent.request("POST", "servers/notes/reconnect");
            return (await agent.tryCall("notes", "whoami", {})).status === 200;
          });
        assert.equal(await agent.say("notes", "whoami"), "ada");
        assert.equal(as.requests("register").filter(({ status }) => status === 201).length, 0);
        assert.equal(as.count("authorize"), 0);
      });
    }
  }
});

describe("OD-10 metadata claims a different issuer", () => {
  for (const [name, issuer] of [
    ["of another host", (_, other) => other.issuer],
    ["of another path", (as) => `${as.origin}/backend`],
    ["none", () => undefined],
    ["with another slash", (as) => `${as.origin}/`],
  ]) {
    test(name, async (t) => {
      const { agent, as, notes } = await setUp(t);
      const other = await anotherServer(t);
      const claimed = issuer(as, other);
      as.metadata = { issuer: claimed, token_endpoint: `${other.origin}/token` };
      const detail = await assertNoAuthorization(agent, notes);
      if (claimed) assert.ok(detail.includes(claimed) && detail.includes(as.issuer), detail);
      assert.match(detail, /issuer|expected/i);
      assert.deepEqual(other.log, []);
      assertUntouched(as);
    });
  }
});

describe("OD-12 the resource metadata names another resource", () => {
  for (const [name, resource] of [
    ["elsewhere", () => "http://127.0.0.1:1/api"],
    ["a path that only looks alike", ({ origin }) => `${origin}/api-evil`],
    ["a part of a path", ({ origin }) => `${origin}/ap`],
    ["another scheme and port", () => "https://127.0.0.1:444/api"],
    ["a longer path", ({ origin }) => `${origin}/api/more`],
    ["a number", () => 7],
    ["nothing", () => undefined],
  ]) {
    test(name, async (t) => {
      const { agent, as, mcp, notes } = await setUp(t, { mcp: { path: "/api" } });
      mcp.metadata = { resource: resource(mcp) };
      await assertNoAuthorization(agent, { ...notes, url: mcp.url }, /resource/i);
      assertUntouched(as);
    });
  }
});

test("OD-13 a server URL with a query", async (t) => {
  const { agent, as, mcp, notes } = await setUp(t);
  const { authUrl } = await agent.begin({ ...notes, url: `${mcp.url}?v=2` });
  assert.equal(query(authUrl).resource, mcp.url);
  await agent.finish("notes", authUrl, as);
  assert.equal(as.requests("token")[0].form.get("resource"), mcp.url);
});

describe("OD-17 resource metadata without authorization servers", () => {
  for (const [name, authorization_servers] of [
    ["no such member", undefined],
    ["an empty list", []],
    ["no URL", ["not a url"]],
    ["no list", "http://127.0.0.1:1"],
    ["a list of something else", [7, null]],
  ]) {
    test(name, async (t) => {
      const { agent, as, mcp, notes } = await setUp(t);
      mcp.metadata = { authorization_servers };
      mcp.intercept = ({ path }, response) =>
        path === OAUTH_DOCUMENT && (sendJson(response, 200, { ...as.document, issuer: mcp.origin }), true);
      const answer = await agent.tryAdd(notes);
      if (answer.status === 201) return assert.equal(answer.body.state, "authenticating");
      const problem = assertProblem(answer, 502, /authorization_servers/);
      assert.equal(problem.kind, "authorization");
    });
  }
});

test("OD-18 an external authorization server is the one that is used", async (t) => {
  const { agent, as, mcp, notes } = await setUp(t);
  mcp.intercept = ({ path }, response) => {
    if (path !== OAUTH_DOCUMENT && path !== OPENID_DOCUMENT) return false;
    const endpoint = (name) => `${mcp.origin}/${name}`;
    sendJson(response, 200, {
      ...as.document,
      issuer: mcp.origin,
      authorization_endpoint: endpoint("authorize"),
      token_endpoint: endpoint("token"),
      registration_endpoint: endpoint("register"),
    });
    return true;
  };
  const { authUrl } = await agent.begin(notes);
  assert.equal(new URL(authUrl).origin, as.origin);
  await agent.finish("notes", authUrl, as);
  assert.deepEqual([as.count("register"), as.count("token")], [1, 1]);
  assert.ok(mcp.log.every(({ kind }) => ["mcp", "resource-metadata"].includes(kind)));
});

describe("OD-20 PKCE is not offered", () => {
  for (const [name, methods, metadataAt] of [
    ["only plain", ["plain"]],
    ["none", []],
    ["not said, in the document of OAuth", undefined],
    ["not said, in the document of OpenID", undefined, [OPENID_DOCUMENT]],
  ]) {
    test(`${name}: refused`, async (t) => {
      const { agent, as, notes } = await setUp(t, {
        as: { metadataAt, metadata: { code_challenge_methods_supported: methods } },
      });
      await assertNoAuthorization(agent, notes, /PKCE|S256/i);
      assertUntouched(as);
    });
  }

  test("plain and S256: works with S256", async (t) => {
    const { agent, as, notes } = await setUp(t, {
      as: { metadata: { code_challenge_methods_supported: ["plain", "S256"] } },
    });
    const { authUrl } = await agent.begin(notes);
    assert.equal(query(authUrl).code_challenge_method, "S256");
    await agent.finish("notes", authUrl, as);
  });

  test("not said, and that was allowed: works with S256", async (t) => {
    const { agent, as, notes } = await setUp(t, { as: { metadata: { code_challenge_methods_supported: undefined } } });
    const { authUrl } = await agent.begin({ ...notes, oauth: { allowMissingPkce: true } });
    assert.equal(query(authUrl).code_challenge_method, "S256");
    await agent.finish("notes", authUrl, as);
  });
});

describe("OD-21 dangerous schemes in metadata", () => {
  for (const authorization_endpoint of [
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "data:text/html,x",
    "file:///etc/passwd",
    "ftp://127.0.0.1/a",
    "vbscript:x",
    "//127.0.0.1/a",
    "",
  ]) {
    test(authorization_endpoint || "an empty text", async (t) => {
      const { agent, as, notes } = await setUp(t, { as: { metadata: { authorization_endpoint } } });
      await assertNoAuthorization(agent, notes);
      assert.equal((await storedServers(worker, agent.name)).notes.auth_url, null);
      assertUntouched(as);
    });
  }
});

describe("OR-01 no registration endpoint", () => {
  test("and no client id: says that one must be given", async (t) => {
    const { agent, as, notes } = await setUp(t, { as: { registers: false } });
    await assertNoAuthorization(agent, notes, /client id/i);
    assertUntouched(as);
  });

  for (const [name, client, oauth] of [
    ["a client id", {}, {}],
    [
      "a client id and a secret",
      { client_secret: "configured-secret", token_endpoint_auth_method: "client_secret_basic" },
      { clientSecret: "configured-secret" },
    ],
  ]) {
    test(`but ${name}: works without registration`, async (t) => {
      const { agent, as, notes } = await setUp(t, { as: { registers: false } });
      const clientId = as.addClient({ client_id: "configured", ...client });
      const { authUrl } = await agent.begin({ ...notes, oauth: { clientId, ...oauth } });
      assert.equal(query(authUrl).client_id, clientId);
      await agent.finish("notes", authUrl, as);
      assert.equal(as.count("register"), 0);
    });
  }
});

describe("OR-02 a registration answer with nulls and gaps", () => {
  const nulls = {
    client_id: "c1",
    client_secret: null,
    client_secret_expires_at: null,
    grant_types: null,
    response_types: null,
    token_endpoint_auth_method: "",
    redirect_uris: null,
  };
  for (const [name, status, body] of [
    ["nulls", 201, nulls],
    ["an id alone", 200, { client_id: "c1" }],
  ]) {
    test(name, async (t) => {
      const { agent, as, notes } = await setUp(t, { as: { onRegister: () => ({ status, body }) } });
      const { authUrl } = await agent.begin(notes);
      assert.equal(query(authUrl).client_id, "c1");
      await agent.finish("notes", authUrl, as);
      const [{ form, headers }] = as.requests("token");
      assert.deepEqual([form.get("client_id"), headers.authorization], ["c1", undefined]);
    });
  }
});

describe("OR-03 the server assigns another way to authenticate", () => {
  for (const method of ["client_secret_basic", "client_secret_post"]) {
    test(method, async (t) => {
      const { agent, as, notes } = await setUp(t, { as: { authMethod: method } });
      await agent.signIn(notes, as);
      as.expireAccessTokens();
      await agent.say("notes", "echo");
      assert.deepEqual(as.grants, { authorization_code: 1, refresh_token: 1 });
    });
  }
});

describe("OR-08 a registration that was pruned is noticed in the browser only", () => {
  const ELEVEN_MINUTES = 11 * 60_000;
  const refusedInBrowser = async ({ agent, as, notes }) => {
    const { authUrl } = await agent.begin(notes);
    as.forgetClients();
    await assert.rejects(as.approve(authUrl), /unrecognized/);
    return query(authUrl).client_id;
  };
  for (const [name, again] of [
    [
      "asking again when the first URL has expired",
      async (agent) => {
        await ageSignIns(worker, agent.name, ELEVEN_MINUTES);
        return agent.reconnect("notes");
      },
    ],
    [
      "signing out",
      async (agent) => {
        await agent.signOut("notes");
        return agent.reconnect("notes");
      },
    ],
    [
      "removing and adding",
      async (agent, notes) => {
        await agent.remove("notes");
        return agent.begin(notes);
      },
    ],
  ]) {
    test(`${name} registers anew`, async (t) => {
      const scene = await setUp(t);
      const { agent, as, notes } = scene;
      const pruned = await refusedInBrowser(scene);
      const { authUrl } = await again(agent, notes);
      assert.notEqual(query(authUrl).client_id, pruned);
      await agent.finish("notes", authUrl, as);
      assert.equal(as.count("register"), 2);
    });
  }
});

describe("OR-10 an unknown client is reported with another error", () => {
  for (const error of ["invalid_grant", "unauthorized_client", "invalid_client"]) {
    test(error, async (t) => {
      const { agent, as, notes } = await setUp(t);
      const { auth } = await agent.signIn(notes, as);
      as.expireAccessTokens();
      as.onToken = (form) => form.get("client_id") === auth.clientId && { status: 400, body: { error } };
      const authUrl = await agent.callInVain("notes", "echo");
      let url = authUrl;
      if (query(authUrl).client_id === auth.clientId) {
        await agent.arriveInVain(await as.approve(authUrl));
        url = (await agent.reconnect("notes")).authUrl;
      }
      assert.notEqual(query(url).client_id, auth.clientId);
      await agent.finish("notes", url, as);
      assert.equal(as.count("register"), 2);
    });
  }
});

test("OR-11 a configured client id is never thrown away", async (t) => {
  const { agent, as, notes } = await setUp(t);
  const clientId = as.addClient({ client_id: "configured" });
  as.onToken = () => ({ status: 401, body: { error: "invalid_client" } });
  let { authUrl } = await agent.begin({ ...notes, oauth: { clientId } });
  for (let round = 0; round < 2; round++) {
    assert.equal(query(authUrl).client_id, clientId);
    const page = await agent.arriveInVain(await as.approve(authUrl));
    assert.match(page, /configured/);
    if (round === 0) ({ authUrl } = await agent.reconnect("notes"));
  }
  assert.equal((await agent.server("notes")).state, "failed");
  assert.equal(as.count("register"), 0);

  await worker.restart();
  as.onToken = undefined;
  const { authUrl: after } = await agent.reconnect("notes");
  assert.equal(query(after).client_id, clientId);
  await agent.finish("notes", after, as);
  assert.equal(as.count("register"), 0);
});
