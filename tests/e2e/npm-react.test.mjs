// The hook `useAgent` of the npm package, in a real browser, cannot tell our agent from one on the package itself.
// CLIENT_AGENT=both runs the same tests with the package's own agent.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { freePort } from "./support/auth-agent.mjs";
import { browserPath, startBrowser } from "./support/browser.mjs";
import { AGENTS } from "./support/client-agent.mjs";
import { startReactPages } from "./support/react-page.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";

const NO_BROWSER = browserPath ? false : "no Chromium here: install one, or name it in CHROMIUM";

for (const [subject, start] of AGENTS) {
  describe(`useAgent with ${subject}`, { skip: NO_BROWSER }, () => {
    let browser;
    let pages;
    let worker;
    before(async () => {
      // It keeps its address over restarts.
      [browser, worker] = await Promise.all([startBrowser(), start({ port: await freePort() })]);
      pages = await startReactPages(await browser.newContext());
    });
    after(async () => {
      await browser?.close();
      pages?.close();
      await worker?.dispose();
    });

    /** Opens a page that is closed with the test, and without errors then. */
    async function open(t, options) {
      const page = await pages.open(worker, options);
      t.after(async () => {
        await page.close();
        assert.deepEqual(page.problems, []);
      });
      await page.locator("h1", { hasText: "client-agent" }).waitFor();
      return page;
    }

    const freshName = () => `agent-${randomUUID()}`;
    const shows = (page, what, text) => page.locator(what).getByText(text, { exact: true }).waitFor();
    const showsState = (page, state) => shows(page, ":root", JSON.stringify(state));
    const told = (page, what) => page.evaluate((name) => window.told[name], what);
    /** Calls by `agent.call`; an error is given as `{ error }`. */
    const call = (page, method, ...args) =>
      page.evaluate(
        ([name, values]) => window.agent.call(name, values).catch(({ message }) => ({ error: message })),
        [method, args],
      );

    test("it shows who it talks to, and the state, though React mounts it twice", async (t) => {
      const name = freshName();
      const page = await open(t, { name, strict: true });
      await shows(page, "h1", `client-agent ${name}`);
      await showsState(page, { count: 0 });
      assert.deepEqual((await told(page, "identities")).at(-1), [name, "client-agent"]);
    });

    test("what one page sets is seen in the other, both ways", async (t) => {
      const name = freshName();
      const [one, two] = await Promise.all([open(t, { name }), open(t, { name })]);
      await one.getByRole("button", { name: "Count" }).click();
      for (const page of [one, two]) await showsState(page, { count: 1 });
      await two.getByRole("button", { name: "Count" }).click();
      for (const page of [one, two]) await showsState(page, { count: 2 });
      const sources = (updates) => updates.map(([source, { count }]) => `${source} ${count}`);
      assert.deepEqual(sources(await told(one, "updates")), ["server 0", "client 1", "server 2"]);
      assert.deepEqual(sources(await told(two, "updates")), ["server 0", "server 1", "client 2"]);
      await call(one, "setCount", 10);
      for (const page of [one, two]) await showsState(page, { count: 10 });
    });

    test("an MCP server that one page adds is shown in the other, with its tools, and goes again", async (t) => {
      const remote = await startScriptedServer();
      t.after(() => remote.close());
      const name = freshName();
      const [one, two] = await Promise.all([open(t, { name }), open(t, { name })]);
      const { id } = await call(one, "connect", remote.url, "Notes");
      for (const page of [one, two, await open(t, { name })]) {
        await shows(page, "li", "Notes is ready");
        await shows(page, "p", "echo");
      }
      const last = (await told(two, "servers")).at(-1);
      assert.equal(last.servers[id].instructions, "Echo everything.");
      assert.equal(last.resources[0].serverId, id);
      await call(two, "remove", id);
      for (const page of [one, two]) await page.locator("li").waitFor({ state: "detached" });
    });

    test("calls give results, errors and streams", async (t) => {
      const page = await open(t, { name: freshName() });
      assert.equal(await call(page, "add", 1, 2), 3);
      assert.equal(await page.evaluate(() => window.agent.stub.add(20, 3)), 23);
      assert.deepEqual(await call(page, "fail", "no luck"), { error: "no luck" });
      assert.deepEqual(await call(page, "missing"), { error: "Method missing does not exist" });
      const streamed = await page.evaluate(async () => {
        const got = [];
        const stream = { onChunk: (chunk) => got.push(chunk), onDone: (last) => got.push(last) };
        return [await window.agent.call("countTo", [3], { stream }), got];
      });
      assert.deepEqual(streamed, [{ total: 3 }, [1, 2, 3, { total: 3 }]]);
    });

    test("a readonly page is told that it may not write, and sees what others write", async (t) => {
      const name = freshName();
      const [writer, reader] = await Promise.all([open(t, { name }), open(t, { name, query: { readonly: "1" } })]);
      await reader.getByRole("button", { name: "Count" }).click();
      await reader.waitForFunction(() => window.told.refusals.length > 0);
      assert.deepEqual(await told(reader, "refusals"), ["Connection is readonly"]);
      assert.deepEqual(await call(reader, "setCount", 5), { error: "Connection is readonly" });
      assert.deepEqual(await told(writer, "updates"), [["server", { count: 0 }]]);
      await call(writer, "setCount", 6);
      await showsState(reader, { count: 6 });
    });

    test("a page comes back by itself when workerd was killed, and works on", async (t) => {
      const remote = await startScriptedServer();
      t.after(() => remote.close());
      const page = await open(t, { name: freshName() });
      await call(page, "connect", remote.url, "Notes");
      await call(page, "setCount", 3);
      await shows(page, "li", "Notes is ready");
      await worker.restart();
      await page.waitForFunction(() => window.told.identities.length === 2);
      await showsState(page, { count: 3 });
      await shows(page, "li", "Notes is ready");
      await page.getByRole("button", { name: "Count" }).click();
      await showsState(page, { count: 4 });
      assert.equal(await call(page, "add", 2, 2), 4);
      assert.equal((await told(page, "closes"))[0], 1006);
    });
  });
}
