// The servers that the OAuth tests sign in to, used by a client that knows nothing of the Worker: a test that fails
// there and not here found something in the Worker.
import assert from "node:assert/strict";
import { generateKeyPairSync, sign } from "node:crypto";
import { test } from "node:test";
import { ask, begin, discover, exchange, HELLO, refresh } from "./support/auth-plain-client.mjs";
import { NpmAgent, startNpmAgents, storedByNpmAgents } from "./support/auth-npm-agents.mjs";
import { startOidcProtected } from "./support/auth-oidc.mjs";
import { startProtected } from "./support/auth-server.mjs";
import { startWorkersProvider } from "./support/auth-workers-provider.mjs";
import { until } from "./support/until.mjs";
import { temporaryFolder } from "./support/worker.mjs";

const CALLBACK = "http://127.0.0.1:9/callback";

/** Whatever asks for it must be refused. */
const refused = (action, pattern) => assert.rejects(action, pattern);

test("the scripted servers give tokens to a plain client, and let it in", async (t) => {
  const { as, mcp, close } = await startProtected();
  t.after(close);
  const found = await discover(mcp.url, CALLBACK);
  const flow = begin(found, "read");
  const callback = await as.approve(flow.url, { user: "ada" });
  assert.equal(callback.searchParams.get("iss"), as.issuer);
  const tokens = await exchange(found, flow, callback);
  assert.deepEqual(
    { ...tokens, access_token: 0, refresh_token: 0 },
    { access_token: 0, refresh_token: 0, token_type: "Bearer", expires_in: 3600, scope: "read" },
  );
  assert.equal((await ask(mcp.url, tokens.access_token, "initialize", HELLO)).result.serverInfo.name, "scripted");
  const who = await ask(mcp.url, tokens.access_token, "tools/call", { name: "whoami" });
  assert.equal(who.result.content[0].text, "ada");
  assert.deepEqual(as.grants, { authorization_code: 1 });

  as.expireAccessTokens();
  assert.equal((await ask(mcp.url, tokens.access_token, "tools/list")).status, 401);
  const fresh = await refresh(found, tokens.refresh_token);
  assert.equal((await ask(mcp.url, fresh.access_token, "tools/list")).status, 200);
  await refused(refresh(found, tokens.refresh_token), /used before/);
  assert.equal((await ask(mcp.url, fresh.access_token, "tools/list")).status, 401, "the whole grant is over");
  assert.deepEqual(as.grants, { authorization_code: 1, refresh_token: 2 });
});

test("the scripted servers refuse what is wrong", async (t) => {
  const { as, mcp, close } = await startProtected({ mcp: { needs: { write: "write" } } });
  t.after(close);
  const found = await discover(mcp.url, CALLBACK);
  const flow = begin(found, "read");
  const callback = await as.approve(flow.url);
  await refused(exchange(found, { ...flow, verifier: "x".repeat(43) }, callback), /code_verifier/);
  const tokens = await exchange(found, flow, callback);
  await refused(exchange(found, flow, callback), /used before/);
  assert.equal((await ask(mcp.url, tokens.access_token, "tools/list")).status, 401, "a code used twice ends the grant");
  await refused(as.approve(flow.url.replace("S256", "plain")).then((url) => exchange(found, flow, url)));
  await refused(as.approve(flow.url.replace(/client_id=[^&]+/, "client_id=nobody")), /unrecognized/);

  const again = begin(found, "read");
  const { access_token: token } = await exchange(found, again, await as.approve(again.url));
  const lacking = await ask(mcp.url, token, "tools/call", { name: "write" });
  assert.deepEqual([lacking.status, JSON.parse(lacking.body).error], [403, "insufficient_scope"]);
});

test("the scripted servers fail as they are told", async (t) => {
  const { as, mcp, close } = await startProtected();
  t.after(close);
  const found = await discover(mcp.url, CALLBACK);
  const flow = begin(found);
  const callback = await as.approve(flow.url);
  as.onToken = () => ({ cut: true });
  await refused(exchange(found, flow, callback), /fetch failed/);
  as.onToken = () => ({ status: 503, body: "busy" });
  await refused(exchange(found, flow, callback), /503 busy/);
  as.onToken = undefined;
  Object.assign(as, { expiresIn: "3600", extra: { ext_expires_in: "7200" } });
  const tokens = await exchange(found, flow, callback);
  assert.deepEqual([tokens.expires_in, tokens.ext_expires_in, tokens.scope], ["3600", "7200", undefined]);
  as.intercept = (entry, response) => entry.kind === "metadata" && response.writeHead(502).end("bad gateway");
  await refused(discover(mcp.url, CALLBACK), /no document/);
  Object.assign(mcp, { challenges: false, metadataAt: [] });
  await refused(discover(mcp.url, CALLBACK), /no document/);
});

test("the scripted authorization server checks assertions that clients sign", async (t) => {
  const { as, close } = await startProtected();
  t.after(close);
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const jwk = publicKey.export({ format: "jwk" });
  as.addClient({ client_id: "machine", token_endpoint_auth_method: "private_key_jwt", jwk });
  const assertion = (claims) => {
    const now = Math.floor(Date.now() / 1000);
    const all = { iss: "machine", sub: "machine", aud: as.issuer, iat: now, exp: now + 60, jti: "1", ...claims };
    const text = [{ alg: "ES256" }, all]
      .map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
      .join(".");
    const signature = sign("sha256", Buffer.from(text), { key: privateKey, dsaEncoding: "ieee-p1363" });
    return `${text}.${signature.toString("base64url")}`;
  };
  const ask = async (client_assertion) => {
    const client_assertion_type = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
    const body = new URLSearchParams({ grant_type: "client_credentials", client_assertion_type, client_assertion });
    return (await fetch(`${as.origin}/token`, { method: "POST", body })).status;
  };
  const good = assertion({});
  assert.equal(await ask(good), 200);
  assert.equal(await ask(good), 401, "used twice");
  assert.equal(await ask(assertion({ jti: "2", aud: "http://127.0.0.1:1" })), 401);
  assert.equal(await ask(assertion({ jti: "3", exp: 1 })), 401);
  assert.equal(await ask(`${assertion({ jti: "4" }).slice(0, -4)}AAAA`), 401);
});

test("the npm package agents signs in, calls a tool, and leaves its data in the folder", async (t) => {
  const { as, mcp, close } = await startProtected();
  t.after(close);
  const storage = await temporaryFolder();
  const worker = await startNpmAgents({ storage });
  t.after(() => worker.dispose());
  const agent = new NpmAgent(worker, "from-npm");

  const added = await agent.add("Notes", mcp.url, { id: "notes" });
  assert.equal(added.state, "authenticating");
  const half = await agent.dump();
  const callback = await as.approve(added.authUrl, { user: "ada" });
  assert.equal((await worker.fetch(callback.pathname + callback.search)).status, 302);
  await until("the server to be ready", async () => (await agent.list()).servers.notes?.state === "ready");
  const { content } = await agent.call("notes", "whoami");
  assert.equal(content[0].text, "ada");
  const done = await agent.dump();
  // What is stored of a sign-in that waits for the user, and of one that is over.
  const kinds = (entries) => Object.keys(entries).map((key) => key.split("/").slice(3).join("/"));
  const clientId = Object.values(half).find((value) => value.client_id)?.client_id;
  const own = (entries) =>
    kinds(entries).map((key) => key.replace(clientId, "C").replace(/(state|verifier)\/.*/, "$1/N"));
  assert.deepEqual(own(half).filter(Boolean).sort(), [
    "C/client_info/",
    "C/code_verifier/N",
    "oauth_discovery",
    "state/N",
  ]);
  assert.deepEqual(own(done).filter(Boolean).sort(), ["C/client_info/", "C/token"]);

  await worker.dispose();
  const { rows } = await storedByNpmAgents(storage, "from-npm");
  assert.deepEqual(
    rows.map(({ id, server_url, auth_url }) => ({ id, server_url, auth_url })),
    [{ id: "notes", server_url: mcp.url, auth_url: null }],
  );
});

for (const metadata of ["oauth-authorization-server", "openid-configuration"]) {
  for (const format of ["opaque", "jwt"]) {
    test(`oidc-provider with ${metadata} and ${format} tokens lets a plain client in`, async (t) => {
      const protectedBy = await startOidcProtected({ metadata, format });
      t.after(protectedBy.close);
      const found = await discover(protectedBy.url, CALLBACK);
      const flow = begin(found, "mcp:read offline_access");
      const tokens = await exchange(found, flow, await protectedBy.approve(flow.url, "ada"));
      assert.ok(tokens.refresh_token, JSON.stringify(tokens));
      const { url, grants } = protectedBy;
      const hello = await ask(url, tokens.access_token, "initialize", HELLO);
      assert.equal(hello.result?.serverInfo.name, "protected", hello.body);
      const who = await ask(url, tokens.access_token, "tools/call", { name: "whoami", arguments: {} });
      assert.equal(who.result?.content[0].text, "ada", who.body);

      const fresh = await refresh(found, tokens.refresh_token);
      assert.equal((await ask(url, fresh.access_token, "tools/list")).status, 200);
      assert.notEqual(fresh.refresh_token, tokens.refresh_token);
      await refused(refresh(found, tokens.refresh_token), /invalid_grant/);
      assert.deepEqual(grants, { authorization_code: 1, refresh_token: 1 });
      assert.equal((await ask(url, "nonsense", "tools/list")).status, 401);
    });
  }
}

test("workers-oauth-provider lets a plain client in", async (t) => {
  const protectedBy = await startWorkersProvider();
  t.after(protectedBy.close);
  const { url } = protectedBy;
  const found = await discover(url, CALLBACK);
  const flow = begin(found, "mcp:read");
  const tokens = await exchange(found, flow, await protectedBy.approve(flow.url, "ada"));
  const who = await ask(url, tokens.access_token, "tools/call", { name: "whoami", arguments: {} });
  assert.equal(who.result?.content[0].text, "ada", who.body);

  assert.equal(await protectedBy.expire(), 1);
  assert.equal((await ask(url, tokens.access_token, "tools/list")).status, 401);
  const fresh = await refresh(found, tokens.refresh_token);
  assert.equal((await ask(url, fresh.access_token, "tools/list")).status, 200);
  assert.deepEqual(await protectedBy.grants(), { authorization_code: 1, refresh_token: 1 });
});
