// The end of a WebSocket as it is on the wire, which clients hide: sends a close frame of one's own making.
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { request } from "node:http";
import { until } from "./until.mjs";

const CLOSE = 0x88;
const MASKED = 0x80;

/**
 * Opens a WebSocket at `path`, waits for `ready()`, sends a close frame with `code` (none: an empty frame), and waits for
 * the answer. Gives its `code`, undefined when it has none.
 */
export async function closeHandshake(worker, path, code, { ready = async () => {} } = {}) {
  const key = randomBytes(16).toString("base64");
  const headers = { connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13", "sec-websocket-key": key };
  const upgrade = request(new URL(path, worker.origin), { headers });
  upgrade.end();
  const [, socket, head] = await once(upgrade, "upgrade");
  let received = head;
  socket.on("data", (chunk) => (received = Buffer.concat([received, chunk])));
  try {
    await ready();
    socket.write(closeFrame(code));
    const answer = await until(`an answer to the close with ${code ?? "no code"}`, () => findClose(received));
    return { code: answer.length >= 2 ? answer.readUInt16BE(0) : undefined };
  } finally {
    socket.destroy();
  }
}

function closeFrame(code) {
  const payload = Buffer.alloc(code === undefined ? 0 : 2);
  if (code !== undefined) payload.writeUInt16BE(code);
  // A mask of zeros leaves the payload as it is.
  return Buffer.concat([Buffer.from([CLOSE, MASKED | payload.length]), Buffer.alloc(4), payload]);
}

/** The payload of the close frame among the frames of a server, if it is there. */
function findClose(bytes) {
  for (let at = 0; at + 2 <= bytes.length; ) {
    const short = bytes[at + 1] & 0x7f;
    const [length, start] =
      short === 126 ? [bytes.readUInt16BE(at + 2), at + 4] : short === 127 ? [Number(bytes.readBigUInt64BE(at + 2)), at + 10] : [short, at + 2];
    if (start + length > bytes.length) return undefined;
    if (bytes[at] === CLOSE) return bytes.subarray(start, start + length);
    at = start + length;
  }
  return undefined;
}
