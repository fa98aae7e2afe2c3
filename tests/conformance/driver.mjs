// What the referee takes for the client: `WORKER_ORIGIN=http://127.0.0.1:PORT node driver.mjs SERVER_URL`.
// It passes the work on to the conformance host, plays the browser where a user is needed, and closes up.
import { randomUUID } from "node:crypto";

// More than any client may need: the referee, not this driver, is to catch one that asks too often.
const MAX_AUTHORIZATIONS = 5;

const serverUrl = process.argv.at(-1);
const { WORKER_ORIGIN, MCP_CONFORMANCE_SCENARIO, MCP_CONFORMANCE_PROTOCOL_VERSION, MCP_CONFORMANCE_CONTEXT } =
  process.env;

// A fresh object for each run: runs side by side share nothing.
const host = `${WORKER_ORIGIN}/agents/conformance-host/${randomUUID()}`;

const job = JSON.stringify({
  scenario: MCP_CONFORMANCE_SCENARIO,
  serverUrl,
  protocolVersion: MCP_CONFORMANCE_PROTOCOL_VERSION,
  context: MCP_CONFORMANCE_CONTEXT ? JSON.parse(MCP_CONFORMANCE_CONTEXT) : null,
});

async function post(action, body) {
  const headers = { "content-type": "application/json" };
  const response = await fetch(`${host}/${action}`, { method: "POST", headers, body });
  if (!response.ok) throw new Error(`${action}: ${await explain(response)}`);
  return response;
}

async function explain(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).detail ?? text;
  } catch {
    return `${response.status} ${text}`;
  }
}

/** The referee's authorization server approves at once; its answer leads to the host's callback. */
async function authorize(url) {
  const approval = await fetch(url, { redirect: "manual" });
  const callback = approval.headers.get("location");
  if (!callback) throw new Error(`authorization: ${approval.status} without a Location`);
  if (!callback.startsWith(`${host}/`))
    throw new Error(`authorization led to ${callback}, which is not our callback`);
  const response = await fetch(callback, { redirect: "manual" });
  if (response.status >= 400) throw new Error(`callback: ${await explain(response)}`);
}

async function run() {
  if (!WORKER_ORIGIN) throw new Error("WORKER_ORIGIN is not set");
  for (let authorizations = 0; ; authorizations++) {
    const { outcome, url } = await (await post("run", job)).json();
    if (outcome === "finished") return;
    if (outcome !== "authorize") throw new Error(`run: unknown outcome ${outcome}`);
    if (authorizations === MAX_AUTHORIZATIONS) throw new Error(`still not authorized after ${authorizations} rounds`);
    await authorize(url);
  }
}

/** An open stream would keep the referee waiting for ever, so this is the end of every run. */
const close = () => post("close");

await run()
  .then(close, async (error) => {
    await close().catch(() => {});
    throw error;
  })
  .catch((error) => {
    const cause = error.cause ? ` (${error.cause.message})` : "";
    console.error(`${error.message}${cause}`.replaceAll("\n", " "));
    process.exitCode = 1;
  });
