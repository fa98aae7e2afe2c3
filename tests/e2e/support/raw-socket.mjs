// A WebSocket that writes down what it gets, for tests of the frames themselves.
import { until } from "./until.mjs";

/** Opens one and resolves when it is open. `path` is relative to the Worker's origin. */
export async function openSocket(worker, path, headers) {
  const url = new URL(path, worker.origin);
  url.protocol = "ws:";
  const socket = new RawSocket(url, headers);
  await socket.opened;
  return socket;
}

export class RawSocket {
  /** Every message, oldest first; text that is JSON is parsed, binary is an `ArrayBuffer`. */
  frames = [];
  /** `{ code, reason, wasClean }` once it is closed. */
  closed = undefined;

  constructor(url, headers) {
    this.socket = new WebSocket(url, { headers });
    this.socket.binaryType = "arraybuffer";
    this.opened = new Promise((resolve, reject) => {
      this.socket.addEventListener("open", () => resolve());
      this.socket.addEventListener("error", () => reject(new Error(`no WebSocket at ${url}`)));
    });
    this.opened.catch(() => {});
    this.socket.addEventListener("message", ({ data }) => this.frames.push(parsed(data)));
    this.socket.addEventListener("close", ({ code, reason, wasClean }) => (this.closed = { code, reason, wasClean }));
  }

  send(message) {
    const isRaw = typeof message === "string" || message instanceof ArrayBuffer || ArrayBuffer.isView(message);
    this.socket.send(isRaw ? message : JSON.stringify(message));
  }

  of(type) {
    return this.frames.filter((frame) => frame?.type === type);
  }

  take() {
    return this.frames.splice(0);
  }

  /** Waits for a frame that `matches`: a type, or a function. */
  frame(matches, deadlineMs) {
    const isIt = typeof matches === "string" ? (frame) => frame?.type === matches : matches;
    const what = typeof matches === "string" ? `a frame ${matches}` : `a frame like ${matches}`;
    return until(what, () => this.frames.find(isIt), deadlineMs);
  }

  /** Waits until what was sent before has been dealt with: the agent echoes plain messages. */
  async settle() {
    const token = `echo ${crypto.randomUUID()}`;
    this.send(token);
    await this.frame((frame) => frame === token);
    this.frames.splice(this.frames.indexOf(token), 1);
  }

  async close(code, reason) {
    this.socket.close(...(code === undefined ? [] : [code, reason]));
    return until("the close", () => this.closed);
  }
}

function parsed(data) {
  if (typeof data !== "string") return data;
  try {
    return JSON.parse(data);
  } catch {
    return data;
  }
}
