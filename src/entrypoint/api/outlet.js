// The body of an answer that is written piece by piece.
//
// The platform tells nobody that the client has hung up. A write does: it fails once the other end is gone, which
// a stream of the platform's own kind reports and other streams do not.
export class Outlet {
  #encoder = new TextEncoder();
  #writer;

  constructor() {
    const { readable, writable } = new IdentityTransformStream();
    this.readable = readable;
    this.#writer = writable.getWriter();
    this.#writer.closed.catch(() => {});
  }

  // Resolves when it has been taken, and says whether anybody is there to take more.
  async write(text) {
    try {
      await this.#writer.write(this.#encoder.encode(text));
      return true;
    } catch {
      return false;
    }
  }

  // May come long after the request, when the platform has no use for it.
  close() {
    try {
      this.#writer.close().catch(() => {});
    } catch {}
  }
}
