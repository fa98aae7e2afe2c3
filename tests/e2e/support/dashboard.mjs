// The dashboard in a browser: pages that watch themselves, pictures of them, and what axe has to say.
import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { freshAgent } from "./api.mjs";
import { browserPath, startBrowser } from "./browser.mjs";
import { inRoot } from "./paths.mjs";
import { startEverythingServer } from "./real-servers.mjs";
import { startToolAgent } from "./worker.mjs";

const AXE = fileURLToPath(import.meta.resolve("axe-core/axe.min.js"));
const PICTURES = inRoot("build/screenshots");

/** Why tests with a browser are left out, or false. */
export const NO_BROWSER = browserPath ? false : "no Chromium here: install one, or name it in CHROMIUM";

/** A browser, a Worker and an MCP server. Start and close them around the tests of a file. */
export class Stage {
  async start() {
    this.browser = await startBrowser();
    this.worker = await startToolAgent();
    this.remote = await startEverythingServer();
  }

  async close() {
    await this.worker?.dispose();
    await this.remote?.stop();
    await this.browser?.close();
  }

  open(options) {
    return openDashboard(this.browser, this.worker, options);
  }

  /** The dashboard of a new object that has a server, at a view. */
  async openWith(url, view = "tools", options = {}) {
    const agent = freshAgent(this.worker);
    await agent.add({ id: "everything", name: "Everything", url });
    return { agent, page: await this.open({ hash: viewOf(agent.name, view), ...options }) };
  }

  /** The same, with the server that has something of everything. */
  openWithEverything(view, options) {
    return this.openWith(this.remote.url, view, options);
  }
}

/**
 * Opens the dashboard in a browser of its own kind (no cookies, no storage of others). `allowed` are origins besides the
 * Worker's that the user may go to. Errors of the page, those of its security policy included, are in `problems`; requests
 * of the page to other origins in `foreign`.
 */
export async function openDashboard(browser, worker, { hash = "", allowed = [], ...options } = {}) {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(20_000);
  const seen = { problems: [], foreign: [] };
  const { origin } = new URL(worker.origin);
  context.on("request", (request) => {
    const url = new URL(request.url());
    if (url.protocol !== "data:" && url.origin !== origin && !allowed.includes(url.origin)) seen.foreign.push(url.href);
  });
  context.on("page", (page) => watch(page, seen));
  const page = await context.newPage();
  await page.goto(`${worker.origin}${hash}`);
  return Object.assign(page, seen, {
    /** Ends it, and says what went wrong meanwhile. */
    async end() {
      assert.deepEqual(seen, { problems: [], foreign: [] });
      await context.close();
    },
  });
}

function watch(page, { problems }) {
  page.on("pageerror", (error) => problems.push(error.message));
  page.on("console", (message) => {
    // A request that is refused on purpose is logged by the browser as well, and so is a socket that is.
    const isRefusal = /^(Failed to load resource|WebSocket connection to)/.test(message.text());
    if (message.type() === "error" && !isRefusal) problems.push(message.text());
  });
}

/** Whether a page is wider than its window. */
export const overflows = (page) => page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);

/** Writes a picture of a page: all of it, or what a dialog leaves to be seen. */
export async function picture(page, name) {
  await mkdir(PICTURES, { recursive: true });
  const fullPage = (await page.getByRole("dialog").count()) === 0;
  await page.screenshot({ path: `${PICTURES}/${name}.png`, fullPage });
}

/** Asserts that axe finds nothing serious, in the light and in the dark. The page's own policy keeps axe's script out. */
export async function assertAccessible(page, what) {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await page.evaluate(await readFile(AXE, "utf8"));
    const found = await page.evaluate(async () => {
      const { violations } = await globalThis.axe.run(document, { resultTypes: ["violations"] });
      return violations
        .filter(({ impact }) => impact === "serious" || impact === "critical")
        .map(({ id, nodes }) => ({ id, nodes: nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`) }));
    });
    assert.deepEqual(found, [], `${what}, ${colorScheme}: ${JSON.stringify(found, null, 2)}`);
  }
  await page.emulateMedia({ colorScheme: "light" });
}

/** The address of a view. */
export const viewOf = (object, view) => `/#${encodeURIComponent(object)}/${view}`;

export const button = (scope, name) => scope.getByRole("button", { name, exact: true });
export const dialogOf = (page, name) => page.getByRole("dialog", { name });
/** What a server has on the page of servers. */
export const server = (page, name) => page.getByRole("listitem", { name, exact: true });
export const go = (page, view) => page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: view }).click();

export async function addServer(page, name, url) {
  await page.getByRole("textbox", { name: "Name", exact: true }).fill(name);
  await page.getByRole("textbox", { name: "URL", exact: true }).fill(url);
  await button(page, "Add and connect").click();
}

/** Opens the dialog of a tool. */
export async function openTool(page, title) {
  await button(page, `Call ${title}`).click();
  const dialog = dialogOf(page, title);
  await dialog.waitFor();
  return dialog;
}

/** Where the answer is shown, without the whole of it as JSON. */
export const resultOf = (dialog) => dialog.getByRole("region", { name: "Result" });
