// Models that answer by script: an endpoint compatible with OpenAI's, and one that stands for `env.AI`.
import { once } from "node:events";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";

/** Answers by `script(body, number)`: `{ status?, json }`, `{ chunks }` for an event stream, or `{ silence: true }`. */
export async function startModel(script) {
  const requests = [];
  const http = createServer(async (request, response) => {
    const body = JSON.parse(await text(request));
    const entry = { headers: request.headers, url: request.url, body, gone: false };
    response.once("close", () => (entry.gone = !response.writableFinished));
    requests.push(entry);
    const { status = 200, json, chunks, silence } = script(body, requests.length - 1);
    if (silence) return;
    if (json) return response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(json));
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const chunk of chunks) response.write(`data: ${JSON.stringify(chunk)}\n\n`);
    response.end("data: [DONE]\n\n");
  });
  http.listen(0, "127.0.0.1");
  http.unref();
  await once(http, "listening");
  const { port } = http.address();
  return {
    requests,
    url: `http://127.0.0.1:${port}/v1/chat/completions`,
    close: () => (http.closeAllConnections(), http.close()),
  };
}

/**
 * The script of a binding that stands for `env.AI`: it takes what that takes, asks a scripted model, where it can be looked
 * up, and gives back what that answers: JSON, or a stream of bytes.
 */
export const scriptedAi = (url) => `
    export default () => ({
      async run(model, inputs, options) {
        const { signal, ...rest } = options;
        if (!(signal instanceof AbortSignal)) throw new Error("there is no signal");
        const body = JSON.stringify({ model, inputs, options: rest });
        const answer = await fetch(${JSON.stringify(url)}, { method: "POST", body, signal });
        if (!answer.ok) throw new Error("5007: " + (await answer.text()));
        return inputs.stream ? answer.body : answer.json();
      },
    });`;
