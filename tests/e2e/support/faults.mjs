// Ways in which a server fails. Each is `(entry, response) => true`, for `ScriptedServer.intercept`.
import { once } from "node:events";
import { setInterval } from "node:timers";
import { sendError } from "./scripted-server.mjs";

/** Applies a fault to one JSON-RPC method only. */
export const only = (rpc, fault) => (entry, response) => (entry.rpc === rpc ? fault(entry, response) : false);

export const answersHtml = (_, response) => {
  response.writeHead(200, { "content-type": "text/html" }).end("<!doctype html><title>Sign in</title><p>Welcome");
  return true;
};

export const neverAnswers = () => true;

/** Headers at once, then a comment every 20 ms, and never an event: a limit on silence alone would not end this. */
export const dripsForEver = (_, response) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  const timer = setInterval(() => response.write(": wait\n\n"), 20);
  response.once("close", () => clearInterval(timer));
  return true;
};

/** A well-formed JSON answer of `megabytes` MB. */
export const answersWithMegabytes =
  (megabytes) =>
  async ({ message }, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    const chunk = "x".repeat(1 << 20);
    response.write(`{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},"result":{"padding":"`);
    for (let sent = 0; sent < megabytes && !response.destroyed; sent++) {
      if (!response.write(chunk)) await Promise.race([once(response, "drain"), once(response, "close")]);
    }
    response.end('"}}');
    return true;
  };

/** The same as one event of a stream. */
export const streamsMegabytes = (megabytes) => async (_, response) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  const line = `data: ${"x".repeat(1 << 20)}\n`;
  for (let sent = 0; sent < megabytes && !response.destroyed; sent++) {
    if (!response.write(line)) await Promise.race([once(response, "drain"), once(response, "close")]);
  }
  response.end("\n");
  return true;
};

/** A stream that ends in good order, but without the answer. */
export const endsWithoutAnswer = (_, response) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  const notification = { jsonrpc: "2.0", method: "notifications/message", params: { level: "info", data: "soon" } };
  response.end(`event: message\ndata: ${JSON.stringify(notification)}\n\n`);
  return true;
};

/** Half a JSON body, then the connection is cut. */
export const cutsTheConnection = (_, response) => {
  response.writeHead(200, { "content-type": "application/json", "content-length": "1000" });
  response.write('{"jsonrpc":"2.0",', () => response.destroy());
  return true;
};

export const answersStatus =
  (status, body = "") =>
  (_, response) => {
    response.writeHead(status, { "content-type": "text/plain" }).end(body);
    return true;
  };

export const answersError =
  (code, text, data) =>
  ({ message }, response) => {
    sendError(response, 200, message, code, text, data);
    return true;
  };

/** Sends every request for `from` elsewhere. */
export const redirects =
  (status, location, from = "/mcp") =>
  ({ path }, response) => {
    if (path !== from) return false;
    response.writeHead(status, { location }).end();
    return true;
  };
