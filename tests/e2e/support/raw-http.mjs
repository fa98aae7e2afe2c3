// Requests that `fetch` will not make: any Host header, no Accept-Encoding of its own, the bytes as they came.
import { request } from "node:http";

export function rawRequest(worker, path, { method = "GET", headers = {}, body } = {}) {
  const { hostname, port } = new URL(worker.origin);
  return new Promise((resolve, reject) => {
    const call = request({ hostname, port, path, method, headers, agent: false }, (response) => {
      const chunks = [];
      response.on("data", (chunk) => chunks.push(chunk));
      response.on("error", reject);
      response.on("end", () => {
        const bytes = Buffer.concat(chunks);
        resolve({ status: response.statusCode, headers: response.headers, bytes, text: bytes.toString() });
      });
    });
    call.on("error", reject);
    call.end(body);
  });
}
