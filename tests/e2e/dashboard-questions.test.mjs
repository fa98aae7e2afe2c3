// What servers ask the user, in the dashboard.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import {
  NO_BROWSER,
  Stage,
  assertAccessible,
  button,
  dialogOf,
  go,
  openTool,
  picture,
  server,
} from "./support/dashboard.mjs";

describe("questions in the dashboard", { skip: NO_BROWSER }, () => {
  const stage = new Stage();
  before(() => stage.start());
  after(() => stage.close());

  test("are asked as a form, checked, and answered", async () => {
    const { page } = await stage.openWithEverything();
    const tool = await openTool(page, "Trigger Elicitation Request Tool");
    await button(tool, "Call").click();
    const dialog = dialogOf(page, "Everything asks");
    await dialog.waitFor();
    await dialog.getByText("Please provide inputs for the following fields:").waitFor();
    await assertAccessible(page, "a question");
    await picture(page, "question");
    await button(dialog, "Accept").click();
    assert.equal(await dialog.count(), 1, "a required field was empty");
    await dialog.getByLabel("String", { exact: true }).fill("Ada");
    await dialog.getByLabel("Titled Single Select Enum", { exact: true }).selectOption("Wonder Woman");
    await dialog.getByLabel("Salmon").check();
    await button(dialog, "Accept").click();
    await dialog.waitFor({ state: "detached" });
    await tool.getByText(/- Name: Ada/).first().waitFor();
    await tool.getByText(/hero-3/).first().waitFor();
    await tool.getByText(/fish-2/).first().waitFor();
    await page.end();
  });

  test("are declined, cancelled, or put off", async () => {
    const { page } = await stage.openWithEverything();
    const tool = await openTool(page, "Trigger Elicitation Request Tool");
    const dialog = dialogOf(page, "Everything asks");
    await button(tool, "Call").click();
    await button(dialog, "Decline").click();
    await tool.getByText(/declined/).first().waitFor();
    await button(tool, "Call").click();
    await button(dialog, "Cancel").click();
    await tool.getByText(/cancelled/).first().waitFor();
    await button(tool, "Call").click();
    await dialog.waitFor();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    // The question is open, and comes back when the user wants it.
    await page.evaluate(() => {});
    assert.equal(await page.getByText("A server waits for an answer.").count(), 1);
    await page.end();
  });

  test("go away when the call that led to them is given up", async () => {
    const { page } = await stage.openWithEverything();
    const tool = await openTool(page, "Trigger Elicitation Request Tool");
    await button(tool, "Call").click();
    const dialog = dialogOf(page, "Everything asks");
    await dialog.waitFor();
    await button(dialog, "Later").click();
    await button(tool, "Cancel the call").click();
    await page.getByText("A server waits for an answer.").waitFor({ state: "detached" });
    await page.end();
  });

  test("that name a page show all of its URL, and open it only when the user says so", async () => {
    const { page } = await stage.openWithEverything("tools", { allowed: [new URL(stage.remote.url).origin] });
    const target = `${new URL(stage.remote.url).origin}/elsewhere?a=b`;
    const tool = await openTool(page, "Trigger URL Elicitation Tool");
    await tool.getByLabel("url").fill(target);
    await button(tool, "Call").click();
    const dialog = dialogOf(page, "Everything asks");
    await dialog.locator(".url", { hasText: target }).waitFor();
    assert.equal(await dialog.locator(".url .host").textContent(), "127.0.0.1");
    await assertAccessible(page, "a question with a URL");
    await picture(page, "question-url");
    assert.equal(page.context().pages().length, 1);
    const popup = page.context().waitForEvent("page");
    await button(dialog, "Open the page").click();
    const opened = await popup;
    await opened.waitForURL(target);
    assert.equal(await opened.evaluate(() => window.opener), null);
    assert.equal(await opened.evaluate(() => document.referrer), "");
    await tool.getByRole("region", { name: "Result" }).waitFor();
    await opened.close();
    await page.end();
  });
});
