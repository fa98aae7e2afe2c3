// What a newcomer does by hand: opens the page, adds a server, calls a tool, and finds it again after a restart.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Agent } from "./support/api.mjs";
import { browserPath, startBrowser } from "./support/browser.mjs";
import { startEverythingServer } from "./support/real-servers.mjs";
import { startToolAgent } from "./support/worker.mjs";

const NO_BROWSER = browserPath ? false : "no Chromium here: install one, or name it in CHROMIUM";

describe("the dashboard in a browser", { skip: NO_BROWSER }, () => {
  let browser;
  let remote;
  before(async () => {
    browser = await startBrowser();
    remote = await startEverythingServer();
  });
  after(async () => {
    await remote?.stop();
    await browser?.close();
  });

  /** A page whose errors, those of its security policy included, fail the test. */
  async function open(worker) {
    const page = await browser.newPage();
    page.setDefaultTimeout(20_000);
    page.problems = [];
    page.on("pageerror", (error) => page.problems.push(error.message));
    page.on("console", (message) => {
      // A request that is refused on purpose is logged by the browser as well.
      const isRefusal = message.text().startsWith("Failed to load resource");
      if (message.type() === "error" && !isRefusal) page.problems.push(message.text());
    });
    await page.goto(worker.origin.toString());
    return page;
  }

  const addServer = async (page, name, url) => {
    await page.getByLabel("Name").fill(name);
    await page.getByLabel("URL").fill(url);
    await page.getByRole("button", { name: "Add and connect" }).click();
  };

  const serverRow = (page, name) => page.locator("#servers .item", { hasText: name });

  test("adds a server, calls its tool, and still shows both after a restart of the runtime", async () => {
    const worker = await startToolAgent();
    try {
      const page = await open(worker);
      await addServer(page, "Everything", remote.url);
      await serverRow(page, "Everything").getByText("ready", { exact: true }).waitFor();

      const tool = page.locator("#tools .item", { hasText: "Echo" }).first();
      await tool.getByRole("button", { name: "Call" }).click();
      await page.getByLabel("Arguments, as JSON").fill('{"message":"hello"}');
      await page.locator("#use-run").click();
      await page.locator("#use-result", { hasText: "Echo: hello" }).waitFor();
      assert.deepEqual(page.problems, []);
      await page.close();

      await worker.restart();
      const again = await open(worker);
      await serverRow(again, "Everything").getByText("ready", { exact: true }).waitFor();
      await again.locator("#tools .item", { hasText: "Echo" }).first().waitFor();
      assert.deepEqual(again.problems, []);
      await again.close();
    } finally {
      await worker.dispose();
    }
  });

  test("says why a server could not be added, and shows it as failed", async () => {
    const worker = await startToolAgent();
    try {
      const page = await open(worker);
      await addServer(page, "<b>Down</b>", "http://127.0.0.1:9/mcp");
      await serverRow(page, "<b>Down</b>").getByText("failed", { exact: true }).waitFor();
      await page.locator("#message", { hasText: "network" }).waitFor();
      assert.equal(await page.locator("#servers b").count(), 0, "text of a user became markup");
      await addServer(page, "Inside", "http://10.0.0.1/mcp");
      await page.locator("#message", { hasText: "Blocked URL" }).waitFor();
      assert.deepEqual(page.problems, []);
      await page.close();
    } finally {
      await worker.dispose();
    }
  });

  test("never shows one object under the name of another, however slow the answers are", async () => {
    const worker = await startToolAgent();
    try {
      for (const name of ["one", "two"]) {
        await new Agent(worker, name).add({ id: "same", name: `Server of ${name}`, url: remote.url });
      }
      const page = await open(worker);
      let slow;
      const waits = new Promise((resolve) => (slow = resolve));
      await page.route("**/agents/tool-agent/one/servers", async (route) => {
        await waits;
        await route.continue();
      });
      const openObject = async (name) => {
        await page.getByLabel("Object").fill(name);
        await page.getByRole("button", { name: "Open" }).click();
      };
      await openObject("one");
      await openObject("two");
      slow();
      await serverRow(page, "Server of two").waitFor();
      assert.equal(await serverRow(page, "Server of one").count(), 0);
      page.on("dialog", (dialog) => dialog.accept());
      await serverRow(page, "Server of two").getByRole("button", { name: "Remove" }).click();
      await page.locator("#servers", { hasText: "None yet." }).waitFor();
      assert.equal((await new Agent(worker, "one").get("servers")).servers.length, 1);
      assert.deepEqual(page.problems, []);
      await page.close();
    } finally {
      await worker.dispose();
    }
  });

  test("opens with any address, and follows it", async () => {
    const worker = await startToolAgent();
    try {
      const page = await open(worker);
      await page.goto(`${worker.origin}/#100%`);
      await page.reload();
      await page.locator("#servers", { hasText: "None yet." }).waitFor();
      await page.evaluate(() => (location.hash = "other"));
      await page.waitForFunction(() => document.getElementById("object").value === "other");
      assert.deepEqual(page.problems, []);
      await page.close();
    } finally {
      await worker.dispose();
    }
  });

  test("asks for the token where the Worker wants one", async () => {
    const worker = await startToolAgent({ AGENT_TOKEN: "s3cret" });
    try {
      const page = await open(worker);
      await page.getByLabel("AGENT_TOKEN").fill("s3cret");
      await page.getByRole("button", { name: "Sign in" }).click();
      await page.locator("#servers", { hasText: "None yet." }).waitFor();
      assert.ok(!page.url().includes("s3cret"));
      assert.deepEqual(page.problems, []);
      await page.close();
    } finally {
      await worker.dispose();
    }
  });
});
