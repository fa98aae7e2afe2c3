// Signing in to servers from the dashboard: in a window of its own, and in the same one.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { freshAgent } from "./support/api.mjs";
import { startProtected } from "./support/auth-server.mjs";
import { startBrowser } from "./support/browser.mjs";
import { startSigningAgent } from "./support/auth-agent.mjs";
import { NO_BROWSER, addServer, assertAccessible, button, openDashboard, openTool, picture, resultOf, server, go } from "./support/dashboard.mjs";

describe("signing in from the dashboard", { skip: NO_BROWSER }, () => {
  let browser;
  let worker;
  before(async () => {
    browser = await startBrowser();
    worker = await startSigningAgent({ AGENT_TOKEN: "s3cret" });
  });
  after(async () => {
    await worker?.dispose();
    await browser?.close();
  });

  /** The dashboard of a new object, after a server was added that wants a sign-in. */
  async function begin(t) {
    const { as, mcp, close } = await startProtected({ as: { consent: true } });
    t.after(close);
    const { name } = freshAgent(worker);
    const page = await openDashboard(browser, worker, { hash: `/#${name}`, allowed: [new URL(as.issuer).origin] });
    await page.getByLabel("AGENT_TOKEN").fill("s3cret");
    await button(page, "Sign in").click();
    await page.getByText("None yet.").waitFor();
    await addServer(page, "Notes", mcp.url);
    await server(page, "Notes").getByText("authenticating", { exact: true }).waitFor();
    return { page, name, as };
  }

  async function consent(page, user) {
    await page.getByLabel("User").fill(user);
    await page.getByRole("button", { name: "Allow" }).click();
  }

  async function assertSignedIn(page, user) {
    await server(page, "Notes").getByText("ready", { exact: true }).waitFor();
    await button(page, "Sign out of Notes").waitFor();
    await go(page, "Tools");
    const dialog = await openTool(page, "whoami");
    await button(dialog, "Call").click();
    await resultOf(dialog).getByText(user, { exact: true }).waitFor();
    await page.keyboard.press("Escape");
  }

  test("happens in a window of its own, which closes itself", async (t) => {
    const { page } = await begin(t);
    await assertAccessible(page, "a server that wants a sign-in");
    await picture(page, "sign-in");
    const opening = page.waitForEvent("popup");
    await button(page, "Sign in to Notes").click();
    const popup = await opening;
    await popup.getByLabel("User").waitFor();
    assert.equal(await popup.evaluate(() => window.opener), null, "the authorization server holds our window");
    const closed = popup.waitForEvent("close");
    await consent(popup, "ada");
    await closed;
    await assertSignedIn(page, "ada");
    await go(page, "Servers");
    await button(page, "Sign out of Notes").click();
    await button(page, "Sign out of Notes").waitFor({ state: "detached" });
    assert.equal(await server(page, "Notes").getByText("ready", { exact: true }).count(), 0);
    await page.end();
  });

  test("happens in the same tab, and comes back to the same object", async (t) => {
    const { page, name } = await begin(t);
    await button(page, "Sign in in this tab to Notes").click();
    await consent(page, "bob");
    await page.waitForURL(`${new URL(worker.origin).origin}/#${name}`);
    await assertSignedIn(page, "bob");
    assert.deepEqual(await page.evaluate(() => ({ ...sessionStorage })), {});
    await page.end();
  });

  test("that failed says why, and leads back", async (t) => {
    const { page, name, as } = await begin(t);
    await button(page, "Sign in in this tab to Notes").click();
    await page.getByLabel("User").waitFor();
    await page.goto((await as.deny(page.url())).href);
    await page.getByText("The user said no").waitFor();
    await page.getByRole("link", { name: "go back" }).click();
    await page.waitForFunction((hash) => location.hash === hash, `#${name}`);
    await server(page, "Notes").waitFor();
    await page.end();
  });
});
