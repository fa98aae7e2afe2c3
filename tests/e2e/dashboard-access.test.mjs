// Whether everybody can use the dashboard: by keyboard, with a screen reader, in the dark, on a phone.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { freshAgent } from "./support/api.mjs";
import {
  NO_BROWSER,
  Stage,
  assertAccessible,
  button,
  dialogOf,
  openTool,
  overflows,
  picture,
  server,
} from "./support/dashboard.mjs";

describe("the dashboard for everybody", { skip: NO_BROWSER }, () => {
  const stage = new Stage();
  before(() => stage.start());
  after(() => stage.close());

  test("can be used by keyboard alone", async () => {
    const agent = freshAgent(stage.worker);
    const page = await stage.open({ hash: `/#${agent.name}` });
    await page.getByText("None yet.").waitFor();
    const focused = () => page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.labels?.[0]?.textContent.trim() ?? document.activeElement?.textContent.trim());
    const tabTo = async (name) => {
      for (let i = 0; i < 60; i += 1) {
        await page.keyboard.press("Tab");
        if ((await focused())?.startsWith(name)) return;
      }
      assert.fail(`no way to ${name} by keyboard`);
    };
    await tabTo("Name");
    await page.keyboard.type("Everything");
    await tabTo("URL");
    await page.keyboard.type(stage.remote.url);
    await page.keyboard.press("Enter");
    await server(page, "Everything").getByText("ready", { exact: true }).waitFor();
    await tabTo("Tools");
    await page.keyboard.press("Enter");
    await tabTo("Call Echo Tool");
    await page.keyboard.press("Enter");
    const dialog = dialogOf(page, "Echo Tool");
    await dialog.waitFor();
    await tabTo("message");
    await page.keyboard.type("by keyboard");
    await page.keyboard.press("Enter");
    await dialog.getByText("Echo: by keyboard", { exact: true }).waitFor();
    // The focus does not leave the dialog, and goes back to where it came from.
    for (let i = 0; i < 30; i += 1) {
      await page.keyboard.press("Tab");
      assert.ok(await page.evaluate(() => document.activeElement === document.body || document.activeElement.closest("dialog") !== null));
    }
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    assert.equal(await focused(), "Call Echo Tool");
    await page.end();
  });

  for (const [view, ready] of [
    ["servers", (page) => server(page, "Everything").getByText("ready", { exact: true })],
    ["tools", (page) => button(page, "Call Echo Tool")],
    ["prompts", (page) => page.getByRole("button", { name: /^Get / }).first()],
    ["resources", (page) => page.getByRole("button", { name: /^Read / }).first()],
    ["log", (page) => page.getByRole("heading", { name: "Event log" })],
  ]) {
    test(`the view ${view} is accessible, in the light and in the dark, and fits a phone`, async () => {
      const { page } = await stage.openWithEverything(view);
      await ready(page).waitFor();
      await assertAccessible(page, view);
      await picture(page, view);
      await page.emulateMedia({ colorScheme: "dark" });
      await picture(page, `${view}-dark`);
      await page.setViewportSize({ width: 360, height: 740 });
      assert.equal(await overflows(page), false, "it is wider than a phone");
      await picture(page, `${view}-phone`);
      await page.end();
    });
  }

  test("dialogs are accessible, and fit a phone", async () => {
    const { page } = await stage.openWithEverything("tools");
    const dialog = await openTool(page, "Get Structured Content Tool");
    await dialog.getByLabel("location").selectOption("Chicago");
    await button(dialog, "Call").click();
    await dialog.getByRole("region", { name: "Result" }).waitFor();
    await assertAccessible(page, "a tool");
    await page.setViewportSize({ width: 360, height: 740 });
    assert.equal(await overflows(page), false, "it is wider than a phone");
    assert.ok(await dialog.evaluate((node) => node.scrollWidth <= node.clientWidth), "the dialog is wider than a phone");
    await picture(page, "tool-phone");
    await page.end();
  });
});
