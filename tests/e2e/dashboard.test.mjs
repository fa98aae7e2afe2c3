// What an operator does by hand: adds servers, sees how they are, and gets rid of them.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Agent, freshAgent } from "./support/api.mjs";
import {
  NO_BROWSER,
  Stage,
  addServer,
  assertAccessible,
  button,
  dialogOf,
  go,
  openDashboard,
  openTool,
  picture,
  server,
} from "./support/dashboard.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { startToolAgent, startWorker } from "./support/worker.mjs";

describe("the dashboard in a browser", { skip: NO_BROWSER }, () => {
  const stage = new Stage();
  before(() => stage.start());
  after(() => stage.close());

  test("adds a server, calls its tool, and still shows both after a restart of the runtime", async () => {
    const mine = await startToolAgent();
    try {
      const page = await openDashboard(stage.browser, mine);
      await addServer(page, "Everything", stage.remote.url);
      await server(page, "Everything").getByText("ready", { exact: true }).waitFor();
      await page.getByRole("status").getByText("Everything is added.").waitFor();
      await go(page, "Tools");
      const dialog = await openTool(page, "Echo Tool");
      await dialog.getByLabel("message").fill("hello");
      await button(dialog, "Call").click();
      await dialog.getByText("Echo: hello", { exact: true }).waitFor();
      await page.end();

      await mine.restart();
      const again = await openDashboard(stage.browser, mine);
      await server(again, "Everything").getByText("ready", { exact: true }).waitFor();
      await go(again, "Tools");
      await button(again, "Call Echo Tool").waitFor();
      await again.end();
    } finally {
      await mine.dispose();
    }
  });

  test("says why a server could not be added, and shows it as failed", async () => {
    const page = await stage.open({ hash: "/#failing" });
    await addServer(page, "<b>Down</b>", "http://127.0.0.1:9/mcp");
    await server(page, "<b>Down</b>").getByText("failed", { exact: true }).waitFor();
    await page.getByRole("alert").getByText("network").waitFor();
    await assertAccessible(page, "a server that failed");
    assert.equal(await page.locator("main b").count(), 0, "text of a user became markup");
    await addServer(page, "Inside", "http://10.0.0.1/mcp");
    await page.getByRole("alert").getByText("Blocked URL").waitFor();
    await page.end();
  });

  test("adds a server with its transport, headers and id", async () => {
    const scripted = await startScriptedServer();
    try {
      const page = await stage.open({ hash: "/#headers" });
      await page.getByText("Transport, headers, id").click();
      await page.getByLabel("Transport").selectOption("Streamable HTTP");
      await page.getByLabel("Id", { exact: true }).fill("keyed");
      await button(page, "Add a header").click();
      await page.getByRole("textbox", { name: "Header 1" }).fill("x-key");
      await page.getByRole("textbox", { name: "Value 1" }).fill("s3cret");
      await button(page, "Add a header").click();
      await button(page, "Remove header 2").click();
      await assertAccessible(page, "all that can be said of a new server");
      await addServer(page, "Keyed", scripted.url);
      await server(page, "Keyed").getByText("ready", { exact: true }).waitFor();
      const entry = await new Agent(stage.worker, "headers").server("keyed");
      assert.equal(entry.transport, "streamable-http");
      assert.equal(scripted.log.at(-1).headers["x-key"], "s3cret");
      assert.ok(!(await page.content()).includes("s3cret"));
      await page.end();
    } finally {
      await scripted.close();
    }
  });

  test("reconnects, renames and removes a server", async () => {
    const { agent, page } = await stage.openWithEverything("servers");
    await agent.post("servers/everything/close");
    await server(page, "Everything").getByText("not-connected").waitFor();
    await button(page, "Reconnect Everything").click();
    await server(page, "Everything").getByText("ready", { exact: true }).waitFor();
    await button(page, "Rename Everything").click();
    await assertAccessible(page, "renaming");
    await page.getByLabel("New id").fill("all");
    await button(dialogOf(page, "Rename everything"), "Rename").click();
    await page.getByText("The server is now all.").waitFor();
    assert.equal((await agent.server("all")).name, "Everything");
    await button(page, "Remove Everything").click();
    await assertAccessible(page, "a question before something is removed");
    await button(dialogOf(page, "Remove Everything?"), "Cancel").click();
    assert.equal((await agent.get("servers")).servers.length, 1);
    await button(page, "Remove Everything").click();
    await button(dialogOf(page, "Remove Everything?"), "Remove").click();
    await page.getByText("None yet.").waitFor();
    assert.deepEqual((await agent.get("servers")).servers, []);
    await page.end();
  });

  test("shows what changes elsewhere without being asked", async () => {
    const agent = freshAgent(stage.worker);
    const page = await stage.open({ hash: `/#${agent.name}` });
    await page.getByText("None yet.").waitFor();
    await agent.add({ id: "everything", name: "Everything", url: stage.remote.url });
    await server(page, "Everything").getByText("ready", { exact: true }).waitFor();
    await page.end();
  });

  test("never shows one object under the name of another, however slow the answers are", async () => {
    for (const name of ["one", "two"]) {
      await new Agent(stage.worker, name).add({ id: "same", name: `Server of ${name}`, url: stage.remote.url });
    }
    const page = await stage.open();
    let slow;
    const waits = new Promise((resolve) => (slow = resolve));
    await page.route("**/agents/tool-agent/one/servers", async (route) => {
      await waits;
      await route.continue();
    });
    const openObject = async (name) => {
      await page.getByLabel("Object").fill(name);
      await button(page, "Open").click();
    };
    await openObject("one");
    await openObject("two");
    slow();
    await server(page, "Server of two").waitFor();
    assert.equal(await server(page, "Server of one").count(), 0);
    await button(page, "Remove Server of two").click();
    await button(dialogOf(page, "Remove Server of two?"), "Remove").click();
    await page.getByText("None yet.").waitFor();
    assert.equal((await new Agent(stage.worker, "one").get("servers")).servers.length, 1);
    await page.end();
  });

  test("opens with any address, and follows it", async () => {
    const page = await stage.open({ hash: "/#100%" });
    await page.getByText("None yet.").waitFor();
    assert.equal(await page.getByLabel("Object").inputValue(), "100%");
    await page.evaluate(() => (location.hash = "a%2Fb%20%C3%A9/log"));
    await page.getByRole("heading", { name: "Event log" }).waitFor();
    assert.equal(await page.getByLabel("Object").inputValue(), "a/b é");
    await page.end();
  });

  describe("with a token", () => {
    let closed;
    before(async () => (closed = await startWorker({ vars: { AGENT_TOKEN: "s3cret" } })));
    after(() => closed?.dispose());

    test("asks for it, keeps it from scripts, and forgets it when the user logs out", async () => {
      const page = await openDashboard(stage.browser, closed);
      const field = page.getByLabel("AGENT_TOKEN");
      await field.fill("wrong");
      await assertAccessible(page, "the way in");
      await picture(page, "login");
      await button(page, "Sign in").click();
      await page.getByRole("alert").getByText("not the AGENT_TOKEN").waitFor();
      await field.fill("s3cret");
      await button(page, "Sign in").click();
      await page.getByText("None yet.").waitFor();
      const kept = await page.evaluate(() => JSON.stringify([{ ...sessionStorage }, { ...localStorage }, document.cookie, location.href]));
      assert.equal(kept, JSON.stringify([{}, {}, "", `${new URL(closed.origin).origin}/`]));
      await page.reload();
      await page.getByText("None yet.").waitFor();
      await button(page, "Log out").click();
      await field.waitFor();
      await page.reload();
      await field.waitFor();
      await page.end();
    });

    test("asks for it again when the session is over", async () => {
      const page = await openDashboard(stage.browser, closed);
      await page.getByLabel("AGENT_TOKEN").fill("s3cret");
      await button(page, "Sign in").click();
      await page.getByText("None yet.").waitFor();
      await page.context().clearCookies();
      // The socket that is open says nothing of the session; the next request does.
      await page.evaluate(() => (location.hash = "another"));
      await page.getByLabel("AGENT_TOKEN").waitFor();
      await page.end();
    });
  });
});
