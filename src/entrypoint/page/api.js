// The JSON API of one object, and the session with the Worker.

/** Resolves to whatever the Worker refuses: a status, and what it says about it. */
export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail ?? `the Worker answered with status ${status}`);
    this.status = status;
    this.body = body ?? {};
  }
}

const loggedOut = new Set();
/** Calls `listener` whenever a request is refused for want of a session. Gives a function that ends that. */
export function onLoggedOut(listener) {
  loggedOut.add(listener);
  return () => loggedOut.delete(listener);
}

async function send(path, { method = "GET", body, text, headers, signal } = {}) {
  const content = text ?? (body === undefined ? undefined : JSON.stringify(body));
  const response = await fetch(path, {
    method,
    signal,
    credentials: "same-origin",
    headers: { ...(content !== undefined && { "content-type": "application/json" }), ...headers },
    body: content,
  });
  if (response.ok) return response;
  const problem = new Problem(response.status, await parsed(response));
  if (response.status === 401) for (const listener of loggedOut) listener();
  throw problem;
}

async function parsed(response) {
  const text = await response.text();
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    // Not ours: an intermediary's page, say. The status speaks for it.
    return null;
  }
}

/** Where the API of an object is. */
export const pathOf = (object) => `/agents/tool-agent/${encodeURIComponent(object)}`;

/** One request about an object. Gives the parsed answer. */
export const ask = async (object, path, options) => parsed(await send(`${pathOf(object)}/${path}`, options));

/** `{needed, signedIn}`: whether the Worker wants a token, and whether we may use it. */
export const session = async () => parsed(await send("/session"));

export const logIn = (token) => send("/session", { method: "POST", body: { token } });

export const logOut = () => send("/session", { method: "DELETE" });

/** Longer than the Worker is ever silent. */
const SILENCE_MS = 15_000;

/** How many calls of tools are under way: servers may ask something meanwhile. */
export let callsUnderWay = 0;

/**
 * Calls a tool. `args` is the text of a JSON object and goes on as it is, long numbers included. `progress` gets what
 * the server tells on the way. When `signal` is aborted, the call is given up, and the server is told.
 */
export async function callTool(object, { serverId, name }, args, { progress, signal }) {
  const about = JSON.stringify({ serverId, name }).slice(0, -1);
  const wire = new AbortController();
  let id;
  // Said, and not only hung up: proxies may keep that to themselves.
  const giveUp = async () => {
    try {
      if (id) await ask(object, `calls/${id}`, { method: "DELETE" });
    } catch {
      // It is over.
    }
    wire.abort();
  };
  signal.addEventListener("abort", giveUp, { once: true });
  callsUnderWay += 1;
  try {
    const response = await send(`${pathOf(object)}/tools/call`, {
      method: "POST",
      text: `${about},"arguments":${args}}`,
      headers: { accept: "text/event-stream" },
      signal: wire.signal,
    });
    for await (const { event, data } of eventsOf(response, () => wire.abort())) {
      if (event === "call") {
        ({ id } = data);
        if (signal.aborted) giveUp();
      } else if (event === "progress") progress(data);
      else if (event === "problem") throw new Problem(data.status, data);
      else return data;
    }
    throw new Error("the connection to the Worker was lost");
  } catch (error) {
    if (signal.aborted) throw new DOMException("cancelled", "AbortError");
    if (error.name === "AbortError") throw new Error("the connection to the Worker was lost");
    throw error;
  } finally {
    callsUnderWay -= 1;
    signal.removeEventListener("abort", giveUp);
  }
}

/** The events of a stream, parsed. Calls `silent` when nothing has come for too long. */
async function* eventsOf(response, silent) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let timer;
  let rest = "";
  try {
    for (;;) {
      clearTimeout(timer);
      timer = setTimeout(silent, SILENCE_MS);
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: ?(.*)/s)));
        if (fields.data !== undefined) yield { event: fields.event, data: JSON.parse(fields.data) };
      }
    }
  } finally {
    clearTimeout(timer);
    reader.cancel().catch(() => {});
  }
}
