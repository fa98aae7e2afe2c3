// Signing in to servers that guard themselves with what others have written.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { query, signingAgent, startSigningAgent } from "./support/auth-agent.mjs";
import { startOidcProtected } from "./support/auth-oidc.mjs";
import { startWorkersProvider } from "./support/auth-workers-provider.mjs";
import { browserPath, startBrowser } from "./support/browser.mjs";

const NO_BROWSER = browserPath ? false : "no Chromium here: install one, or name it in CHROMIUM";

let worker;
before(async () => (worker = await startSigningAgent()));
after(() => worker?.dispose());

/** Ten calls at once when no token is valid any longer. */
async function callTenTimes(agent, id) {
  const users = await Promise.all(Array.from({ length: 10 }, () => agent.say(id, "whoami")));
  assert.deepEqual(
    users,
    Array.from({ length: 10 }, () => "ada"),
  );
}

describe("oidc-provider", () => {
  async function setUp(t, options) {
    const remote = await startOidcProtected(options);
    t.after(remote.close);
    return { remote, agent: signingAgent(worker), notes: { id: "notes", name: "Notes", url: remote.url } };
  }

  test("lets a user in who signs in and consents in a browser", { skip: NO_BROWSER }, async (t) => {
    const { remote, agent, notes } = await setUp(t);
    const browser = await startBrowser();
    t.after(() => browser.close());
    const page = await browser.newPage();
    page.setDefaultTimeout(20_000);
    // Its pages ask for fonts of the internet.
    await page.route(/^(?!http:\/\/127\.0\.0\.1)/, (route) => route.abort());

    const { authUrl } = await agent.begin(notes);
    await page.goto(authUrl);
    await page.locator("input[name=login]").fill("ada");
    await page.locator("input[name=password]").fill("x");
    await page.locator("button[type=submit]").click();
    await page.getByRole("button", { name: "Continue" }).click();
    await page.waitForURL(`${worker.origin}/**`);
    assert.equal(page.url(), `${worker.origin}/`);

    const entry = await agent.ready("notes");
    assert.equal(entry.auth.issuer, remote.issuer);
    assert.equal(await agent.say("notes", "whoami"), "ada");
    assert.equal(await agent.say("notes", "echo", { message: "hi" }), "hi");
  });

  test("shows what it says when the user refuses, and lets them in the next time", { skip: NO_BROWSER }, async (t) => {
    const { remote, agent, notes } = await setUp(t);
    const browser = await startBrowser();
    t.after(() => browser.close());
    const page = await browser.newPage();
    page.setDefaultTimeout(20_000);
    await page.route(/^(?!http:\/\/127\.0\.0\.1)/, (route) => route.abort());

    const { authUrl } = await agent.begin(notes);
    await page.goto(authUrl);
    await page.getByText("Cancel").click();
    // Neither code nor state stays in the address.
    await page.waitForURL(/\/callback$/);
    assert.match(await page.locator("body").innerText(), /aborted|denied|sign/i);
    const { authUrl: next } = await agent.reconnect("notes");
    await agent.finish("notes", next, { approve: remote.approve }, "ada");
    assert.equal(await agent.say("notes", "whoami"), "ada");
  });

  for (const metadata of ["oauth-authorization-server", "openid-configuration"]) {
    for (const format of ["opaque", "jwt"]) {
      test(`is found by ${metadata}, with ${format} tokens that are refreshed one at a time`, async (t) => {
        const { remote, agent, notes } = await setUp(t, { metadata, format });
        const { authUrl } = await agent.begin(notes);
        assert.match(query(authUrl).scope, /^mcp:read offline_access$/);
        await agent.arrive(await remote.approve(authUrl, "ada"));
        await agent.ready("notes");
        assert.equal(await agent.say("notes", "whoami"), "ada");
        for (let round = 1; round <= 3; round++) {
          remote.expire();
          await callTenTimes(agent, "notes");
          assert.deepEqual(remote.grants, { authorization_code: 1, refresh_token: round });
          if (round === 2) await worker.restart();
        }
        const failed = remote.log.filter(({ path, status }) => path === "/token" && status !== 200);
        assert.deepEqual(failed, []);
        assert.equal(remote.log.filter(({ path }) => path === "/reg").length, 1);
      });
    }
  }

  test("gives tokens of two seconds, which are renewed without a word", async (t) => {
    const { remote, agent, notes } = await setUp(t, { accessTokenSeconds: 2 });
    const { authUrl } = await agent.begin(notes);
    await agent.arrive(await remote.approve(authUrl, "ada"));
    await agent.ready("notes");
    const end = Date.now() + 6_000;
    while (Date.now() < end) assert.equal(await agent.say("notes", "whoami"), "ada");
    assert.equal(remote.grants.authorization_code, 1);
    assert.ok(remote.grants.refresh_token >= 2);
  });

  test("forgets what is signed out", async (t) => {
    const { remote, agent, notes } = await setUp(t);
    const { authUrl } = await agent.begin(notes);
    await agent.arrive(await remote.approve(authUrl, "ada"));
    await agent.ready("notes");
    await agent.signOut("notes");
    assert.ok(remote.log.some(({ path, status }) => path === "/token/revocation" && status === 200));
    const { authUrl: next } = await agent.reconnect("notes");
    await agent.arrive(await remote.approve(next, "bob"));
    await agent.ready("notes");
    assert.equal(await agent.say("notes", "whoami"), "bob");
  });
});

test("workers-oauth-provider lets a user in, and refreshes once for all", async (t) => {
  const remote = await startWorkersProvider();
  t.after(remote.close);
  const agent = signingAgent(worker);
  const { authUrl } = await agent.begin({ id: "notes", name: "Notes", url: remote.url });
  await agent.arrive(await remote.approve(authUrl, "ada"));
  await agent.ready("notes");
  assert.equal(await agent.say("notes", "whoami"), "ada");
  for (let round = 1; round <= 3; round++) {
    await remote.expire();
    await callTenTimes(agent, "notes");
    assert.deepEqual(await remote.grants(), { authorization_code: 1, refresh_token: round });
    if (round === 2) await worker.restart();
  }
  const log = await remote.log();
  assert.deepEqual(
    log.filter(({ path, status }) => path === "/oauth/token" && status !== 200),
    [],
  );
  assert.equal(log.filter(({ path }) => path === "/oauth/register").length, 1);
});
