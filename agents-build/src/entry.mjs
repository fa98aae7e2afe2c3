// The Worker's entry, between workerd and the glue of wasm-bindgen.
//
// One Wasm instance serves every object of this isolate. A panic, or a JavaScript exception that nobody
// catches, loses that instance: what was in flight, in any object, will never answer. This module finds out
// at once, answers all of it, and starts a new instance for the next call. Storage is kept, memory is not.
import { DurableObject, WorkerEntrypoint } from "cloudflare:workers";
import * as wasm from "./index.js";

Error.stackTraceLimit = 100;

class InstanceLost extends Error {
  name = "InstanceLost";
}

let lost = false;
let generation = 0;

// How to fail each call in flight. Every call has a promise of its own: one shared by all would settle
// reliably only in the request that made it.
const inFlight = new Set();

function lose(why) {
  if (lost) return;
  lost = true;
  console.error(`Wasm instance lost: ${why}. Calls in flight: ${inFlight.size}`);
  for (const fail of inFlight) fail(new InstanceLost("Wasm instance lost"));
  inFlight.clear();
}

function revive() {
  if (!lost) return;
  wasm.__wbg_reset_state();
  lost = false;
  generation += 1;
}

// Set by the panic hook of `worker`, and by the glue when it sees the instance go for any other reason.
Object.defineProperty(wasm.__worker_init_state(), "criticalError", {
  get: () => lost,
  set: (value) => {
    if (value) lose("panic, trap or uncaught exception");
  },
});

// The rest: a trap outside of the calls that the glue watches. Other errors are left alone, since callbacks of
// a lost instance that fire later throw them, and those must not take the new instance down.
addEventListener("error", ({ error }) => {
  if (error instanceof WebAssembly.RuntimeError) lose(error);
});

// The outcome of `work`, or a rejection as soon as the instance is lost.
async function untilLost(work) {
  let fail;
  const loss = new Promise((_, reject) => (fail = reject));
  inFlight.add(fail);
  try {
    return await Promise.race([loss, (async () => work())()]);
  } catch (error) {
    if (error instanceof WebAssembly.RuntimeError) lose(error);
    throw error;
  } finally {
    inFlight.delete(fail);
  }
}

// The same where the runtime keeps everything else out until `work` is done. That includes a rejection from
// another object's call, so this one looks for the loss itself.
async function untilLostInside(work) {
  const mine = generation;
  let timer;
  const loss = new Promise((_, reject) => {
    timer = setInterval(() => {
      if (lost || generation !== mine) reject(new InstanceLost("Wasm instance lost"));
    }, 100);
  });
  try {
    return await Promise.race([loss, (async () => work())()]);
  } finally {
    clearInterval(timer);
  }
}

async function call(work) {
  revive();
  return untilLost(work);
}

const isLoss = (error) => error instanceof InstanceLost || error instanceof WebAssembly.RuntimeError;

const unavailable = () =>
  new Response('{"type":"about:blank","title":"Service Unavailable","status":503}', {
    status: 503,
    headers: { "content-type": "application/problem+json", "retry-after": "1" },
  });

// Rust methods of a class, without what wasm-bindgen adds. Callers of MCP servers start an object by a method whose
// name looks like one of those.
const methodsOf = (Inner) =>
  Object.entries(Object.getOwnPropertyDescriptors(Inner.prototype))
    .filter(([name, { value }]) => typeof value === "function" && !/^(constructor|free|__(?!unsafe_).*)$/.test(name))
    .map(([name]) => name);

// A Durable Object class around the Rust one. It has the handlers and RPC methods that the Rust class has, and
// no others: the runtime tells by their presence whether an object takes alarms or hibernated WebSockets.
function durable(Inner) {
  // The Rust object of each id, so that a new one frees the one before it. Nobody tells us of an eviction, and
  // the garbage collector sees a few bytes where megabytes of Wasm memory hang.
  const living = new Map();
  const collected = new FinalizationRegistry((id) => {
    if (living.get(id)?.inner.deref() === undefined) living.delete(id);
  });

  function succeed(id, inner) {
    const before = living.get(id);
    living.set(id, { generation, inner: new WeakRef(inner) });
    collected.register(inner, id);
    // One of a lost instance is gone already.
    if (before?.generation !== generation) return;
    try {
      before.inner.deref()?.free();
    } catch {
      // A call of the evicted object never came to its end, and Rust still lends the object to it.
    }
  }

  class Shell extends DurableObject {
    #inner;
    #generation = -1;
    #ready;
    #failure;

    constructor(ctx, env) {
      super(ctx, env);
      // The runtime waits up to 30 s for these two, so both have to end with the instance. For the first one
      // that means a new object, for the second one that nothing is written.
      //
      // Weakly: Rust holds `ctx`, and an object that Rust reaches in a circle through its own wrapper is never
      // freed. Wasm memory would grow with every wake.
      const self = new WeakRef(this);
      const block = ctx.blockConcurrencyWhile.bind(ctx);
      ctx.blockConcurrencyWhile = (work) => {
        const ready = block(() => untilLostInside(work));
        const shell = self.deref();
        if (shell) shell.#ready = ready;
        return ready;
      };
      const transaction = ctx.storage.transaction.bind(ctx.storage);
      ctx.storage.transaction = (work) => transaction((txn) => untilLostInside(() => work(txn)));

      // Now and not with the first call: `new` may block concurrency, which has to begin before that call.
      try {
        this.#object();
      } catch (error) {
        this.#failure = error;
      }
    }

    #object() {
      revive();
      if (this.#generation !== generation) {
        this.#ready = undefined;
        this.#inner = new Inner(this.ctx, this.env);
        this.#generation = generation;
        succeed(this.ctx.id.toString(), this.#inner);
      }
      return this.#inner;
    }

    #call(name, args) {
      return call(async () => {
        // Not a second try: what failed in the constructor would take down everybody's calls twice.
        const failure = this.#failure;
        this.#failure = undefined;
        if (failure) throw failure;
        const inner = this.#object();
        await this.#ready;
        return inner[name](...args);
      });
    }

    static {
      for (const name of methodsOf(Inner)) {
        Shell.prototype[name] = function (...args) {
          return this.#call(name, args);
        };
      }
      Shell.prototype.fetch = function (request) {
        return this.#call("fetch", [request]).catch((error) => {
          if (isLoss(error)) return unavailable();
          throw error;
        });
      };
    }
  }
  return Shell;
}

// The Worker itself, with the event handlers that the crate exports.
function entrypoint(events) {
  class Entry extends WorkerEntrypoint {}
  for (const name of events) {
    Entry.prototype[name] = function (event) {
      return call(() => wasm[name](event, this.env, this.ctx));
    };
  }
  if (events.includes("fetch")) {
    const fetch = Entry.prototype.fetch;
    Entry.prototype.fetch = async function (request) {
      try {
        return await fetch.call(this, request);
      } catch (error) {
        if (!isLoss(error)) console.error(error);
        return unavailable();
      }
    };
  }
  return Entry;
}

