// One HTTP exchange. Every call between Wasm and JavaScript costs, so what takes many of them is done here.

// A body that is stated to be no longer than this is read in one piece if the caller takes as much, in bytes.
const SHORT = 4 << 20;
// How much of a body is read at once: what there is, up to a buffer that grows as long as it is filled.
const FIRST_BUFFER = 4 << 10;
const LARGEST_BUFFER = 64 << 10;
// How many chunks of a body are read in a row before others get their turn. A body whose chunks are always there
// already would be read in one turn of the event loop, and neither timers nor other objects would get theirs.
const CHUNKS_PER_TURN = 32;

export class Exchange {
  #via;
  #abort = new AbortController();
  #response;
  #reader;
  #buffer = FIRST_BUFFER;
  #chunks = 0;
  #chunk;
  #failure;
  ended = false;

  // `via` is a binding that fetches in place of the platform, or undefined.
  constructor(via) {
    this.#via = via;
  }

  // Sends the request and resolves to status and headers, a line each for the status, every name and every value.
  // Names and values cannot hold line breaks. A short body of an answer is there by then, too: to wait twice costs
  // more. The caller takes bodies of up to `most` bytes.
  async send(method, url, headers, body, most) {
    const lines = headers.split("\n");
    const pairs = [];
    for (let i = 0; i + 1 < lines.length; i += 2) pairs.push([lines[i], lines[i + 1]]);
    const init = { method, headers: pairs, body, redirect: "manual", signal: this.#abort.signal };
    const response = await (this.#via ? this.#via.fetch(url, init) : fetch(url, init));
    this.#response = response;
    this.ended = response.body === null;
    if (!this.ended && response.ok && this.#length() <= Math.min(most, SHORT)) {
      try {
        this.#chunk = new Uint8Array(await response.arrayBuffer());
        this.ended = true;
      } catch (error) {
        // Of interest to whoever reads the body.
        this.#failure = error;
      }
    }
    let head = `${response.status}`;
    for (const [name, value] of response.headers) head += `\n${name}\n${value}`;
    return head;
  }

  // Resolves when there is a chunk to take, or the body has ended.
  async read() {
    if (this.#failure) {
      this.ended = true;
      throw this.#failure;
    }
    this.#reader ??= this.#response.body.getReader({ mode: "byob" });
    this.#chunks += 1;
    if (this.#chunks % CHUNKS_PER_TURN === 0) await new Promise((resolve) => setTimeout(resolve));
    const { done, value } = await this.#reader.read(new Uint8Array(this.#buffer));
    this.ended = done;
    if (done) return;
    if (value.byteLength === this.#buffer) this.#buffer = Math.min(4 * this.#buffer, LARGEST_BUFFER);
    this.#chunk = value;
  }

  take() {
    const chunk = this.#chunk;
    this.#chunk = undefined;
    return chunk;
  }

  // Gives up what has not ended. May come long after the object's eviction, when the platform has no use for it.
  abandon() {
    if (this.ended) return;
    this.ended = true;
    try {
      // Cancelling the reader alone leaves a read that is waiting, which keeps the object in memory.
      this.#abort.abort();
      this.#reader?.cancel().catch(() => {});
    } catch {}
  }

  // What is stated is the length of the encoded body.
  #length() {
    const { headers } = this.#response;
    return headers.has("content-encoding") ? Infinity : Number(headers.get("content-length") ?? Infinity);
  }
}
