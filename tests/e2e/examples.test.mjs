// Each example is built and used as its README line says. `smallest` has a test of its own.
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { test } from "node:test";
import { freePort } from "./support/auth-agent.mjs";
import { startProtected } from "./support/auth-server.mjs";
import { browserPath, startBrowser } from "./support/browser.mjs";
import { startExample } from "./support/examples.mjs";
import { inRoot } from "./support/paths.mjs";
import { rawRequest } from "./support/raw-http.mjs";
import { openSocket } from "./support/raw-socket.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { call, result } from "./support/socket-scene.mjs";
import { startTalkingServer } from "./support/talking-server.mjs";
import { until } from "./support/until.mjs";

/** Starts an example that ends with the test. */
async function start(t, name, options) {
  const worker = await startExample(name, options);
  t.after(() => worker.dispose());
  return worker;
}

/** Opens a socket that is closed with the test. */
async function open(t, worker, path, headers) {
  const socket = await openSocket(worker, path, headers);
  t.after(() => socket.socket.close(1000));
  return socket;
}

const names = (tools) => tools.map((tool) => tool.name).sort();
const PROTECTED_TOOLS = ["echo", "read", "whoami", "write"];

test("every example has a line in both READMEs, and its wrangler.toml is for it", async () => {
  const entries = await readdir(inRoot("examples"), { withFileTypes: true });
  const examples = entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  assert.ok(examples.length >= 7, `${examples}`);
  const own = await readFile(inRoot("examples/README.md"), "utf8");
  const main = await readFile(inRoot("README.md"), "utf8");
  for (const name of examples) {
    assert.ok(own.includes(`[\`${name}\`](${name})`), `examples/README.md says nothing of ${name}`);
    assert.ok(main.includes(`[\`${name}\`](examples/${name})`), `README.md says nothing of ${name}`);
    const toml = await readFile(inRoot("examples", name, "wrangler.toml"), "utf8");
    assert.ok(toml.includes(`name = "example-${name}"\nmain = "../../build/example-${name}/worker.mjs"`), name);
    assert.ok(toml.includes(`build.mjs example-${name}"`), name);
  }
});

test("oauth: the first visit leads to the sign-in, and back to the tools", async (t) => {
  const { as, mcp, close } = await startProtected();
  t.after(close);
  const worker = await start(t, "oauth", { vars: { MCP_URL: mcp.url }, port: await freePort() });
  const page = "/agents/sign-in-agent/ada/";

  const away = await worker.fetch(page);
  assert.equal(away.status, 302, await away.text());
  const callback = new URL(await as.approve(away.headers.get("location"), { user: "ada" }));
  assert.equal(callback.origin + callback.pathname, `${worker.origin}${page}callback`);
  const back = await worker.fetch(callback.pathname + callback.search);
  assert.deepEqual([back.status, back.headers.get("location")], [302, worker.origin + page]);
  const tools = await worker.fetch(page);
  assert.deepEqual([tools.status, names(await tools.json())], [200, PROTECTED_TOOLS]);
});

test("oauth: whoever says no is told so, and not asked again", async (t) => {
  const { mcp, close } = await startProtected();
  t.after(close);
  const worker = await start(t, "oauth", { vars: { MCP_URL: mcp.url }, port: await freePort() });
  const page = "/agents/sign-in-agent/ada/";

  const away = await worker.fetch(page);
  const { state } = Object.fromEntries(new URL(away.headers.get("location")).searchParams);
  const back = await worker.fetch(`${page}callback?error=access_denied&state=${encodeURIComponent(state)}`);
  const target = new URL(back.headers.get("location"));
  assert.deepEqual([back.status, target.origin + target.pathname], [302, `${worker.origin}${page}failed`]);
  assert.equal((await worker.fetch(target.pathname + target.search)).status, 403);
});

test("hidden-names: a cookie leads to the agent, also back from a sign-in, and nothing shows its name", async (t) => {
  const { as, mcp, close } = await startProtected();
  t.after(close);
  const worker = await start(t, "hidden-names", { vars: { MCP_URL: mcp.url }, port: await freePort() });

  assert.equal((await worker.fetch("/mcp/callback?code=x&state=y")).status, 401, "nothing begins with a callback");
  const first = await worker.fetch("/");
  assert.deepEqual([first.status, first.headers.get("location")], [303, "/"]);
  const [cookie, ...flags] = first.headers.get("set-cookie").split("; ");
  assert.deepEqual(flags, ["Path=/", "HttpOnly", "SameSite=Lax"]);
  const [, session] = /^session=([0-9a-f]{64})$/.exec(cookie);
  const visit = (path) => worker.fetch(path, { headers: { cookie: `other=1; ${cookie}` } });

  const away = await visit("/");
  assert.equal(away.status, 302, await away.text());
  const authUrl = away.headers.get("location");
  const callback = new URL(await as.approve(authUrl));
  assert.equal(callback.pathname, "/mcp/callback");
  const back = await visit(callback.pathname + callback.search);
  assert.deepEqual([back.status, back.headers.get("location")], [302, `${worker.origin}/`]);
  const tools = await visit("/");
  assert.deepEqual([tools.status, names(await tools.json())], [200, PROTECTED_TOOLS]);

  const socket = await open(t, worker, "/any/path", { cookie });
  const { mcp: picture } = await socket.frame("cf_agent_mcp_servers");
  assert.deepEqual(names(picture.tools), PROTECTED_TOOLS);

  const seen = JSON.stringify([as.log, mcp.log, authUrl, callback.href, socket.frames]);
  assert.ok(!seen.includes(session), "the name got out");
  const other = await worker.fetch("/", { headers: { cookie: `session=${"0".repeat(64)}` } });
  assert.equal(other.status, 302, "another session is signed in to nothing");
});

const HANDSHAKE = {
  connection: "Upgrade",
  upgrade: "websocket",
  "sec-websocket-version": "13",
  "sec-websocket-key": "MDEyMzQ1Njc4OWFiY2RlZg==",
};

const FORM = {
  type: "object",
  properties: {
    name: { type: "string", title: "Your name", minLength: 2 },
    seats: { type: "integer", minimum: 1, maximum: 9 },
    window: { type: "boolean", default: true },
    class: { type: "string", enum: ["first", "second"] },
  },
  required: ["name", "seats"],
};

/** A server with one tool, which asks and says what was answered. */
async function askingServer(t) {
  const server = await startTalkingServer({
    events: true,
    tools: [{ name: "book", inputSchema: { type: "object" } }],
    call: async (_, talk) => {
      const { result: said } = await talk.ask("elicitation/create", { message: "Who travels?", requestedSchema: FORM });
      return { content: [{ type: "text", text: JSON.stringify(said) }] };
    },
  });
  t.after(() => server.close());
  return server;
}

test("elicitation: the questions of a server are frames, and a call answers them", async (t) => {
  const server = await askingServer(t);
  const worker = await start(t, "elicitation", { vars: { MCP_URL: server.url } });
  const page = await worker.fetch("/");
  assert.match(page.headers.get("content-security-policy"), /default-src 'none'/);
  for (const [, path] of (await page.text()).matchAll(/(?:href|src)="([^"]+)"/g)) {
    assert.equal((await worker.fetch(path)).status, 200, path);
  }

  const foreign = rawRequest(worker, "/agents/asking-agent/x", {
    headers: { ...HANDSHAKE, origin: "https://elsewhere.example" },
  });
  assert.equal((await foreign).status, 403);

  const socket = await open(t, worker, "/agents/asking-agent/x");
  const id = await result(socket, "addServer");
  const booked = result(socket, "callTool", id, "book", {});
  const question = await socket.frame("mcp-elicitation");
  assert.deepEqual([question.serverId, question.params.message], [id, "Who travels?"]);
  const unfit = await call(socket, "respondToElicitation", question.id, { action: "accept", content: { name: "A" } });
  assert.equal(unfit.success, false, "an answer that does not fit");
  const content = { name: "Ada", seats: 2 };
  assert.equal(await result(socket, "respondToElicitation", question.id, { action: "accept", content }), true);
  const said = JSON.parse((await booked).content[0].text);
  // What has a default and was left out is filled in.
  assert.deepEqual(said, { action: "accept", content: { ...content, window: true } });
  await socket.frame("mcp-elicitation-closed");
});

const noBrowser = !browserPath && "no Chromium here";
test("elicitation: the page shows the form and sends what was typed", { skip: noBrowser }, async (t) => {
  const server = await askingServer(t);
  const worker = await start(t, "elicitation", { vars: { MCP_URL: server.url } });
  const browser = await startBrowser();
  t.after(() => browser.close());
  const page = await browser.newPage();
  const problems = [];
  page.on("pageerror", (error) => problems.push(`${error}`));
  page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  page.on("request", (request) => {
    if (new URL(request.url()).host !== new URL(worker.origin).host) problems.push(request.url());
  });

  await page.goto(worker.origin);
  await page.getByText("Connected.").waitFor();
  await page.getByRole("button", { name: "Add the server" }).click();
  await page.getByText("The server is ready.").waitFor();
  await page.getByRole("button", { name: "Call" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("Who travels?").waitFor();
  await dialog.getByLabel("Your name").fill("Ada");
  await dialog.getByLabel("seats").fill("2");
  await dialog.getByLabel("class").selectOption("second");
  await dialog.getByRole("button", { name: "Send" }).click();
  await dialog.waitFor({ state: "hidden" });
  const shown = await until("the result", async () => {
    const text = await page.locator("#result").textContent();
    return text.startsWith("{") && JSON.parse(text);
  });
  assert.deepEqual(JSON.parse(shown.content[0].text), {
    action: "accept",
    content: { name: "Ada", seats: 2, window: true, class: "second" },
  });
  assert.deepEqual(problems, []);
});

test("rpc: each agent keeps notes on a server of its own, which has no URL", async (t) => {
  const worker = await start(t, "rpc");
  const notes = async (name, text) => {
    const init = text === undefined ? {} : { method: "POST", body: text };
    const answer = await worker.fetch(`/agents/notes-agent/${name}/`, init);
    return [answer.status, await answer.text()];
  };
  assert.deepEqual(await notes("ada", "engine"), [200, "Note 1 is kept"]);
  assert.deepEqual(await notes("ada", "loom"), [200, "Note 2 is kept"]);
  assert.deepEqual(await notes("bob", "tea"), [200, "Note 1 is kept"]);
  assert.equal((await notes("ada", " "))[0], 422);
  assert.deepEqual(await notes("ada"), [200, "Notes of ada:\nengine\nloom"]);
  await worker.restart();
  assert.deepEqual(await notes("ada"), [200, "Notes of ada:\nengine\nloom"]);
  assert.deepEqual(await notes("bob"), [200, "Notes of bob:\ntea"]);
  assert.equal((await worker.fetch("/agents/notes-server/x/")).status, 404);
});

/**
 * A model that has to use a tool: it asks for the first one that it is offered, and answers with what that said.
 * With a name that ends in `chat` it speaks like OpenAI's; one that ends in `stubborn` asks for tools forever.
 */
const MODEL = `
class Ai {
  async run(model, { messages, tools }) {
    const last = messages.at(-1);
    if (last.role === "tool" && !(model.endsWith("stubborn") && tools)) {
      const text = model + " says: " + last.content;
      return model.endsWith("chat") ? { choices: [{ message: { content: text } }] } : { response: text };
    }
    const { name, parameters } = tools[0].function;
    if (parameters.type !== "object") throw new Error("no schema: " + JSON.stringify(tools));
    const args = { question: messages.find((message) => message.role === "user").content };
    if (!model.endsWith("chat")) return { response: null, tool_calls: [{ name, arguments: args }] };
    const call = { id: "c1", type: "function", function: { name, arguments: JSON.stringify(args) } };
    return { choices: [{ message: { content: null, tool_calls: [call] } }] };
  }
}
export default () => new Ai();`;

test("workers-ai: the model's calls are run, and their results lead to its answer", async (t) => {
  const remote = await startScriptedServer();
  t.after(() => remote.close());
  for (const model of ["plain", "chat", "stubborn"]) {
    const vars = { MCP_URL: remote.url, MODEL: model };
    const worker = await start(t, "workers-ai", { vars, wrapped: { AI: MODEL } });
    const ask = (body) => worker.fetch("/agents/model-agent/x/", { method: "POST", body });
    remote.takeLog();
    const answer = await ask("how far?");
    assert.equal(await answer.text(), `${model} says: {"question":"how far?"}`);
    assert.equal(answer.status, 200);
    assert.equal(remote.count("tools/call"), model === "stubborn" ? 5 : 1, "calls are bounded");
    assert.equal((await ask(" ")).status, 422);
    await worker.dispose();
  }
});

test("chat-state: what is said reaches everybody, streams, comes by the clock, and is not for viewers to say", async (t) => {
  const worker = await start(t, "chat-state");
  const path = "/agents/chat-agent/lobby";
  const ada = await open(t, worker, path);
  const viewer = await open(t, worker, `${path}?role=viewer`);
  const { state } = await viewer.frame("cf_agent_state");
  assert.deepEqual(state, { topic: "", messages: [] });
  const last = () => viewer.of("cf_agent_state").at(-1).state;

  await result(ada, "say", "ada", "hello");
  await until("the message", () => last().messages.some(({ from, text }) => from === "ada" && text === "hello"));
  assert.equal((await call(viewer, "say", "eve", "hi")).success, false);
  assert.equal((await call(viewer, "remind", 1, "hi")).success, false);
  assert.equal((await call(ada, "say", "ada", "x".repeat(501))).success, false);

  ada.send({ type: "cf_agent_state", state: { ...last(), topic: "looms" } });
  await until("the topic", () => last().topic === "looms");
  ada.send({ type: "cf_agent_state", state: { topic: "looms", messages: [] } });
  await ada.frame("cf_agent_state_error");
  viewer.send({ type: "cf_agent_state", state: { ...last(), topic: "eve's" } });
  await viewer.frame("cf_agent_state_error");

  const { at } = await result(ada, "remind", 0, "tea");
  assert.ok(Math.abs(at - Date.now()) < 60_000, `${at}`);
  await until("the reminder", () => last().messages.some(({ text }) => text === "tea"));
  assert.ok((await result(ada, "remindByCron", "0 9 * * 1-5", "work")).at > Date.now());
  assert.equal(await result(ada, "forget", "regular"), true);
  assert.equal(await result(ada, "forget", "regular"), false);

  ada.take();
  assert.deepEqual(await result(ada, "history", 5), { sent: 2 });
  const parts = ada.frames.filter((frame) => frame.done === false).map((frame) => frame.result.text);
  assert.deepEqual(parts, ["hello", "tea"]);
  assert.equal(last().topic, "looms");
});
