// Makes a scripted server one of HTTP+SSE, the transport of 2024-11-05: every GET begins a session with its own stream.
import { handshake } from "./scripted-server.mjs";

const RESULTS = {
  initialize: () => handshake("2024-11-05"),
  "tools/list": () => ({ tools: [{ name: "echo", inputSchema: { type: "object" } }] }),
  "tools/call": ({ arguments: args }) => ({ content: [{ type: "text", text: JSON.stringify(args ?? {}) }] }),
};

/**
 * - `path`: where the stream is
 * - `endpoint`: what the endpoint event says for the session of a number
 * - `opening`: the text of that event, where it is written otherwise
 * - `refusal`: the status for a POST to the stream
 *
 * Gives `{ opened, forget }`: how many sessions there were, and a way to lose all of them.
 */
export function speaksHttpSse(
  remote,
  { path = "/sse", endpoint = (sid) => `/messages?sid=${sid}`, opening, refusal = 405 } = {},
) {
  const streams = new Map();
  const state = { opened: 0, forget: () => streams.clear() };
  const write = opening ?? ((data) => `event: endpoint\ndata: ${data}\n\n`);
  remote.intercept = ({ http, path: target, rpc, message }, response) => {
    const sid = new URL(target, remote.origin).searchParams.get("sid");
    if (http === "GET" && target === path) {
      const number = `${++state.opened}`;
      streams.set(number, response);
      response.once("close", () => streams.delete(number));
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(write(endpoint(number)));
      return true;
    }
    const stream = streams.get(sid);
    if (http !== "POST" || target === path || !stream) {
      response.writeHead(target === path ? refusal : 404).end();
      return true;
    }
    const result = message.id === undefined ? undefined : RESULTS[rpc]?.(message.params ?? {});
    if (result) stream.write(`data: ${JSON.stringify({ jsonrpc: "2.0", id: message.id, result })}\n\n`);
    response.writeHead(202).end();
    return true;
  };
  return state;
}
