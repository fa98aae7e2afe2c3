// How the dashboard learns of changes: told over a WebSocket, and by looking where there is none. The clock is ours.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { freshAgent } from "./support/api.mjs";
import { NO_BROWSER, Stage, dialogOf, server } from "./support/dashboard.mjs";
import { until } from "./support/until.mjs";

describe("the live dashboard", { skip: NO_BROWSER }, () => {
  const stage = new Stage();
  before(() => stage.start());
  after(() => stage.close());

  /** A dashboard whose WebSockets end here, and that counts how often it looks. */
  async function open(agent, { accepts = true } = {}) {
    const page = await stage.open();
    await page.clock.install();
    const live = { page, sockets: [], looks: 0 };
    await page.routeWebSocket(/\/agents\/tool-agent\//, (socket) => {
      live.sockets.push(socket);
      if (!accepts) socket.close();
    });
    page.on("request", (request) => {
      if (request.url().endsWith(`${agent.base}servers`)) live.looks += 1;
    });
    await page.goto(`${stage.worker.origin}#${agent.name}`);
    await page.reload();
    await page.getByText("None yet.").waitFor();
    live.settled = async () => {
      await page.waitForLoadState("networkidle");
      return live.looks;
    };
    live.say = (frame) => live.sockets.at(-1).send(JSON.stringify(frame));
    return live;
  }

  test("asks for compact frames, looks when it is told to, and never otherwise", async () => {
    const agent = freshAgent(stage.worker);
    const live = await open(agent);
    await until("the socket", () => live.sockets.length > 0);
    assert.match(live.sockets.at(-1).url(), new RegExp(`^ws://[^/]+/agents/tool-agent/${agent.name}\\?mcp=servers$`));
    await agent.add({ id: "everything", name: "Everything", url: stage.remote.url });
    const before = await live.settled();
    await live.page.clock.runFor(120_000);
    for (const other of ["{", "[]", "null", '{"type":"cf_agent_state","state":{}}', '{"type":"rpc"}']) live.sockets.at(-1).send(other);
    assert.equal(await live.settled(), before);
    assert.equal(await server(live.page, "Everything").count(), 0);
    live.say({ type: "cf_agent_mcp_servers", mcp: {} });
    await server(live.page, "Everything").getByText("ready", { exact: true }).waitFor();
    await live.page.end();
  });

  test("shows a question as soon as it is told, and takes it away when it is told so", async () => {
    const agent = freshAgent(stage.worker);
    await agent.add({ id: "everything", name: "Everything", url: stage.remote.url });
    const page = await stage.open();
    await page.clock.install();
    let socket;
    await page.routeWebSocket(/\/agents\/tool-agent\//, (opened) => (socket = opened));
    await page.goto(`${stage.worker.origin}#${agent.name}`);
    await page.reload();
    await server(page, "Everything").waitFor();
    const calling = agent.call("everything", "trigger-elicitation-request", {});
    const [question] = await until("the question", async () => {
      const { elicitations } = await agent.get("elicitations");
      return elicitations.length > 0 && elicitations;
    });
    socket.send(JSON.stringify({ type: "mcp-elicitation", id: question.id, serverId: "everything", request: {} }));
    const dialog = dialogOf(page, "Everything asks");
    await dialog.waitFor();
    // Somebody else answers it.
    await agent.post(`elicitations/${question.id}`, { action: "decline" });
    await calling;
    socket.send(JSON.stringify({ type: "mcp-elicitation-closed", id: question.id }));
    await dialog.waitFor({ state: "detached" });
    await page.end();
  });

  test("looks now and then while no socket can be opened, and tries less and less often", async () => {
    const agent = freshAgent(stage.worker);
    const live = await open(agent, { accepts: false });
    const attempts = [];
    for (let minute = 0; minute < 4; minute += 1) {
      const before = live.sockets.length;
      for (let second = 0; second < 60; second += 1) await live.page.clock.runFor(1_000);
      attempts.push(live.sockets.length - before);
    }
    assert.ok(attempts[0] >= 4 && attempts[0] <= 10, `${attempts}`);
    assert.ok(attempts.slice(2).every((number) => number >= 0 && number <= 2), `${attempts}`);
    await agent.add({ id: "everything", name: "Everything", url: stage.remote.url });
    await until("the server", async () => {
      await live.page.clock.runFor(1_000);
      return (await server(live.page, "Everything").count()) > 0;
    });
    await live.page.end();
  });

  test("comes back when its socket breaks off, and looks at what it has missed", async () => {
    const agent = freshAgent(stage.worker);
    const live = await open(agent);
    await until("the socket", () => live.sockets.length > 0);
    await live.settled();
    const { length } = live.sockets;
    await agent.add({ id: "everything", name: "Everything", url: stage.remote.url });
    await live.sockets.at(-1).close();
    await until("another socket", async () => {
      await live.page.clock.runFor(500);
      return live.sockets.length > length;
    });
    await server(live.page, "Everything").getByText("ready", { exact: true }).waitFor();
    const before = await live.settled();
    await live.page.clock.runFor(60_000);
    assert.equal(await live.settled(), before);
    await live.page.end();
  });
});
