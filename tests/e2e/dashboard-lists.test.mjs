// Prompts, resources and the event log in the dashboard.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import {
  NO_BROWSER,
  Stage,
  assertAccessible,
  button,
  picture,
  server,
} from "./support/dashboard.mjs";

describe("lists in the dashboard", { skip: NO_BROWSER }, () => {
  const stage = new Stage();
  before(() => stage.start());
  after(() => stage.close());

  test("fills in prompts, with what the server offers", async () => {
    const { page } = await stage.openWithEverything("prompts");
    await button(page, "Get Team Management").click();
    const dialog = page.getByRole("dialog");
    const field = dialog.getByLabel("department");
    await field.fill("Eng");
    await page.waitForFunction(() => [...document.querySelectorAll("datalist option")].some(({ value }) => value === "Engineering"));
    await field.fill("Engineering");
    await dialog.getByLabel("name", { exact: true }).fill("Alice");
    await button(dialog, "Get").click();
    await dialog.getByRole("region", { name: "Result" }).getByText(/Alice/).first().waitFor();
    await assertAccessible(page, "a prompt");
    await picture(page, "prompt");
    await page.end();
  });

  test("reads resources, and fills in their templates", async () => {
    const { page } = await stage.openWithEverything("resources");
    await page.getByRole("button", { name: /^Read / }).first().click();
    await page.getByRole("region", { name: "Contents" }).getByRole("article").first().waitFor();
    await assertAccessible(page, "a resource");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: /^Fill in .*text/i }).first().click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("textbox").or(dialog.getByRole("combobox")).first().fill("3");
    await dialog.locator(".url", { hasText: "/3" }).waitFor();
    await assertAccessible(page, "a template");
    await button(dialog, "Read").click();
    await dialog.getByRole("region", { name: "Contents" }).getByText(/Resource 3/i).first().waitFor();
    await page.end();
  });

  test("shows what servers tell", async () => {
    const { agent, page } = await stage.openWithEverything("log");
    await page.getByText("Nothing yet.").waitFor();
    await agent.call("everything", "toggle-simulated-logging", {});
    await page.getByRole("list", { name: "Events" }).getByRole("listitem").first().waitFor();
    await assertAccessible(page, "the log");
    await picture(page, "log");
    await page.end();
  });
});
