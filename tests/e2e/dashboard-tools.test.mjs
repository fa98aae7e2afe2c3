// Tools in the dashboard: found, filled in, called, given up, and what they answer.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { freshAgent } from "./support/api.mjs";
import {
  NO_BROWSER,
  Stage,
  assertAccessible,
  button,
  openTool,
  picture,
  resultOf,
  server,
  viewOf,
} from "./support/dashboard.mjs";
import { startTalkingServer } from "./support/talking-server.mjs";
import { until } from "./support/until.mjs";

describe("tools in the dashboard", { skip: NO_BROWSER }, () => {
  const stage = new Stage();
  before(() => stage.start());
  after(() => stage.close());

  test("are found by words", async () => {
    const { page } = await stage.openWithEverything();
    await button(page, "Call Echo Tool").waitFor();
    await page.getByLabel("Search tools").fill("LONG running");
    await button(page, "Call Trigger Long Running Operation Tool").waitFor();
    assert.equal(await page.getByRole("button", { name: /^Call / }).count(), 1);
    await page.end();
  });

  test("show their progress, and their result", async () => {
    const { page } = await stage.openWithEverything();
    const dialog = await openTool(page, "Trigger Long Running Operation Tool");
    assert.deepEqual([await dialog.getByLabel("duration").inputValue(), await dialog.getByLabel("steps").inputValue()], ["10", "5"]);
    await dialog.getByLabel("duration").fill("2");
    await dialog.getByLabel("steps").fill("4");
    await button(dialog, "Call").click();
    await dialog.getByText("2 of 4").waitFor();
    await resultOf(dialog).getByText("Long running operation completed. Duration: 2 seconds, Steps: 4.", { exact: true }).waitFor();
    await page.end();
  });

  test("are given up for good, by a button and by closing the dialog", async () => {
    const tools = [{ name: "endless", inputSchema: { type: "object" } }];
    const talking = await startTalkingServer({ tools, call: () => new Promise(() => {}), events: true });
    try {
      const agent = freshAgent(stage.worker);
      await agent.add({ id: "talking", name: "Talking", url: talking.url });
      const page = await stage.open({ hash: viewOf(agent.name, "tools") });
      const dialog = await openTool(page, "endless");
      const told = (times) => until("the server to be told", () => talking.count("notifications/cancelled") === times);
      const asked = (times) => until("the server to be asked", () => talking.count("tools/call") === times);
      await button(dialog, "Call").click();
      await asked(1);
      await button(dialog, "Cancel the call").click();
      await dialog.getByText("Cancelled.").waitFor();
      await told(1);
      await button(dialog, "Call").click();
      await asked(2);
      await page.keyboard.press("Escape");
      await told(2);
      await page.end();
    } finally {
      await talking.close();
    }
  });

  test("show images, links, resources and structured values as what they are", async () => {
    const { page } = await stage.openWithEverything();
    const call = async (title, fill = async () => {}) => {
      const dialog = await openTool(page, title);
      await fill(dialog);
      await button(dialog, "Call").click();
      await dialog.getByRole("region", { name: "Result" }).waitFor();
      return dialog;
    };
    const close = (dialog) => button(dialog, "Close").first().click();

    const image = await call("Get Tiny Image Tool");
    const shown = image.getByRole("img");
    await shown.waitFor();
    assert.ok(await shown.evaluate((img) => img.complete && img.naturalWidth > 0), "the image was not drawn");
    await picture(page, "image");
    await close(image);

    const links = await call("Get Resource Links Tool");
    await links.getByRole("button", { name: "Read" }).first().click();
    await page.getByRole("region", { name: "Contents" }).getByText(/resource/i).first().waitFor();
    await page.keyboard.press("Escape");
    await close(links);

    const structured = await call("Get Structured Content Tool", (dialog) => dialog.getByLabel("location").selectOption("Chicago"));
    await structured.getByRole("heading", { name: "Structured content", exact: true }).waitFor();
    await structured.getByText("temperature:").first().waitFor();
    await picture(page, "structured");
    await close(structured);

    const reference = await call("Get Resource Reference Tool");
    await reference.getByRole("article").first().waitFor();
    await close(reference);
    await page.end();
  });

  test("say clearly that they failed, and show nothing as markup", async () => {
    const answer = {
      isError: true,
      content: [
        { type: "text", text: "<img src=x onerror=alert(1)>" },
        { type: "image", mimeType: "text/html", data: "PGI+" },
        { type: "hologram", x: 1 },
        { type: "audio", mimeType: "audio/wav", data: "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=" },
      ],
    };
    const tools = [{ name: "<i>bad</i>", description: "<script>alert(1)</script>", inputSchema: { type: "object" } }];
    const talking = await startTalkingServer({ tools, call: () => answer });
    try {
      const agent = freshAgent(stage.worker);
      await agent.add({ id: "talking", name: "Talking", url: talking.url });
      const page = await stage.open({ hash: viewOf(agent.name, "tools") });
      const dialog = await openTool(page, "<i>bad</i>");
      await button(dialog, "Call").click();
      await dialog.getByRole("alert").getByText("The tool reports an error.").waitFor();
      await dialog.getByText("<img src=x onerror=alert(1)>", { exact: true }).waitFor();
      await dialog.getByText(/Not shown: image of the type text\/html/).waitFor();
      assert.equal(await dialog.locator("audio").count(), 1);
      await assertAccessible(page, "a failed call");
      assert.equal(await page.locator("main i, main script, main img, dialog img").count(), 0);
      await page.end();
    } finally {
      await talking.close();
    }
  });

  test("take every kind of argument, by form and as JSON, and get them as they were given", async () => {
    const inputSchema = {
      type: "object",
      required: ["text", "count", "where"],
      $defs: { place: { type: "object", required: ["city"], properties: { city: { type: "string" }, zip: { type: ["string", "null"] } } } },
      properties: {
        text: { type: "string", title: "Some text", description: "Any text" },
        count: { type: "integer", minimum: 1, maximum: 9, default: 3 },
        ratio: { type: "number" },
        on: { type: "boolean" },
        colour: { enum: ["red", "green"] },
        size: { oneOf: [{ const: 1, title: "Small" }, { const: 2, title: "Large" }] },
        tags: { type: "array", items: { type: "string" } },
        days: { type: "array", items: { enum: ["mon", "tue", "wed"] } },
        where: { $ref: "#/$defs/place" },
        odd: { anyOf: [{ type: "string" }, { type: "number" }] },
        left: { type: "string" },
      },
    };
    const seen = [];
    const call = ({ arguments: args }) => (seen.push(args), { content: [] });
    const talking = await startTalkingServer({ tools: [{ name: "all", inputSchema }], call });
    try {
      const agent = freshAgent(stage.worker);
      await agent.add({ id: "talking", name: "Talking", url: talking.url });
      const page = await stage.open({ hash: viewOf(agent.name, "tools") });
      const dialog = await openTool(page, "all");
      await button(dialog, "Call").click();
      assert.deepEqual(seen, [], "a required field was empty");
      await dialog.getByLabel("Some text").fill("hi");
      await dialog.getByLabel("ratio").pressSequentially("0.5");
      await dialog.getByLabel("on", { exact: true }).check();
      await dialog.getByLabel("colour").selectOption("green");
      await dialog.getByLabel("size").selectOption("Large");
      await button(dialog, "Add tags").click();
      await dialog.getByLabel("tags 1", { exact: true }).fill("a");
      await button(dialog, "Add tags").click();
      await dialog.getByLabel("tags 2", { exact: true }).fill("x");
      await button(dialog, "Add tags").click();
      await dialog.getByLabel("tags 3", { exact: true }).fill("b");
      await button(dialog, "Remove tags 2").click();
      await dialog.getByLabel("wed").check();
      await dialog.getByLabel("mon").check();
      await dialog.getByLabel("city").fill("Oslo");
      await dialog.getByLabel("odd").fill("{");
      await button(dialog, "Call").click();
      assert.deepEqual(seen, [], "what is no JSON was sent");
      await dialog.getByLabel("odd").fill("[7]");
      await assertAccessible(page, "a form with every kind of field");
      await picture(page, "form");
      await button(dialog, "Call").click();
      await dialog.getByText("The answer is empty.").waitFor();
      const given = {
        text: "hi", count: 3, ratio: 0.5, on: true, colour: "green", size: 2, tags: ["a", "b"], days: ["mon", "wed"],
        where: { city: "Oslo" }, odd: [7],
      };
      assert.deepEqual(seen, [given]);

      await button(dialog, "JSON").click();
      assert.deepEqual(JSON.parse(await dialog.getByLabel("Arguments, as JSON").inputValue()), given);
      await dialog.getByLabel("Arguments, as JSON").fill("[1]");
      await button(dialog, "Form").click();
      await dialog.getByRole("alert").getByText("not a JSON object").waitFor();
      await dialog.getByLabel("Arguments, as JSON").fill('{"text":"again","unknown":1,"where":{"city":"Rome"}}');
      await button(dialog, "Form").click();
      assert.equal(await dialog.getByLabel("Some text").inputValue(), "again");
      await button(dialog, "JSON").click();
      await button(dialog, "Call").click();
      await until("the second call", () => seen.length === 2);
      assert.deepEqual(seen[1], { text: "again", unknown: 1, where: { city: "Rome" } });
      await page.end();
    } finally {
      await talking.close();
    }
  });
});
