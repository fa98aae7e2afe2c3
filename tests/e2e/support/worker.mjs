// A built Worker under workerd: `build/worker.mjs` and its Wasm, on loopback and a free port, with storage in a folder.
import { rmSync } from "node:fs";
import { mkdtemp, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { Miniflare } from "miniflare";
import { inRoot } from "./paths.mjs";

// Storage belongs to this name and the class name together; every run on the same folder must use the same.
export const SCRIPT = "workers-agents";

// A Worker that does not answer fails the test instead of hanging it.
const ANSWER_DEADLINE_MS = 30_000;

/** What `wrangler.toml` deploys with, so that the tests run what a deployment runs. */
export async function compatibility() {
  const toml = await readFile(inRoot("wrangler.toml"), "utf8");
  const date = /^compatibility_date\s*=\s*"([^"]+)"/m.exec(toml)?.[1];
  if (!date) throw new Error("wrangler.toml has no compatibility_date");
  const flags = /^compatibility_flags\s*=\s*\[([^\]]*)\]/m.exec(toml)?.[1] ?? "";
  return { compatibilityDate: date, compatibilityFlags: [...flags.matchAll(/"([^"]+)"/g)].map((match) => match[1]) };
}

const temporary = new Set();
process.on("exit", () =>
  temporary.forEach((folder) => rmSync(folder, { recursive: true, force: true, maxRetries: 5 })),
);

/** A folder that is gone when this process is. */
export async function temporaryFolder() {
  const folder = await mkdtemp(path.join(tmpdir(), "workers-agents-"));
  temporary.add(folder);
  return folder;
}

/** The modules of a folder written by `npm run build`. */
function builtModules(folder) {
  return {
    modulesRoot: folder,
    modules: [
      { type: "ESModule", path: path.join(folder, "worker.mjs") },
      { type: "CompiledWasm", path: path.join(folder, "index_bg.wasm") },
    ],
  };
}

/** A class is one of the same Worker, unless it is given with the name of another: `{ className, scriptName }`. */
const asBindings = (objects) =>
  Object.fromEntries(
    Object.entries(objects).map(([name, of]) => [name, { useSQLite: true, ...(of.className ? of : { className: of }) }]),
  );

/**
 * Starts a Worker and resolves when it answers.
 *
 * - `build`: folder with the build, relative to the repository
 * - `script`: source of a JavaScript Worker to run instead of a build
 * - `flags`: compatibility flags besides those of a deployment
 * - `kv`: names of KV namespaces, which are empty
 * - `objects`: Durable Object bindings, `{ BINDING: "Class" }`
 * - `vars`: variables and secrets
 * - `storage`: folder of the objects' storage; without it a temporary one
 * - `beside`: a Worker on the same storage, `{ name, script or build, objects }`; it is not reached from outside
 * - `wrapped`: bindings that a script makes, as the platform does with `env.AI`: `{ BINDING: "source" }`
 * - `port`: 0 takes a free one
 * - `direct`: also a socket at `directOrigin` with nothing between it and the Worker. Others go through a proxy of
 *   Miniflare's, which keeps it to itself when a client hangs up
 * - `outbound`: answers what the Worker fetches, in place of the network (Miniflare's Request to its Response)
 */
export async function startWorker(options = {}) {
  const worker = new RunningWorker(options);
  await worker.start();
  return worker;
}

/** The ready-made Worker as most tests want it: open on loopback, impatient. */
export const startToolAgent = (vars = {}, options = {}) =>
  startWorker({ ...options, vars: { ALLOW_INSECURE_LOCAL: "1", ...vars } });

class RunningWorker {
  #options;
  #miniflare;
  /** Everything the runtime printed, for assertions and for failing tests. */
  output = "";

  constructor({
    build = "build",
    script,
    flags = [],
    kv = [],
    objects = { ToolAgent: "ToolAgent" },
    vars = {},
    storage,
    port = 0,
    direct = false,
    outbound,
    beside,
    wrapped = {},
  }) {
    this.#options = { build, script, flags, kv, objects, vars, port, direct, outbound, beside, wrapped };
    this.storage = storage;
  }

  async start() {
    const { build, script, flags, kv, objects, vars, port, direct, outbound, beside, wrapped } = this.#options;
    this.storage ??= await temporaryFolder();
    const source = script ? { script, modules: true } : builtModules(inRoot(build));
    const { compatibilityDate, compatibilityFlags } = await compatibility();
    const worker = {
      name: SCRIPT,
      compatibilityDate,
      compatibilityFlags: [...compatibilityFlags, ...flags],
      ...source,
      bindings: vars,
      kvNamespaces: kv,
      outboundService: outbound,
      unsafeDirectSockets: direct ? [{ host: "127.0.0.1", port: 0 }] : undefined,
      durableObjects: asBindings(objects),
      wrappedBindings: Object.fromEntries(Object.keys(wrapped).map((name) => [name, { scriptName: `wrapped-${name}` }])),
    };
    const makers = Object.entries(wrapped).map(([name, script]) => ({ name: `wrapped-${name}`, modules: true, script }));
    const other = beside && {
      name: beside.name,
      compatibilityDate,
      compatibilityFlags: [...compatibilityFlags, "nodejs_compat"],
      ...(beside.script ? { script: beside.script, modules: true } : builtModules(inRoot(beside.build))),
      durableObjects: asBindings(beside.objects),
    };
    this.#miniflare = new Miniflare({
      host: "127.0.0.1",
      port,
      cf: false,
      workers: [worker, ...(other ? [other] : []), ...makers],
      durableObjectsPersist: this.storage,
      unsafeInspectDurableObjects: true,
      handleRuntimeStdio: (stdout, stderr) => {
        for (const stream of [stdout, stderr]) stream.on("data", (chunk) => (this.output += chunk));
      },
    });
    try {
      this.origin = (await this.#miniflare.ready).origin;
      this.directOrigin = direct ? (await this.#miniflare.unsafeGetDirectURL()).origin : undefined;
    } catch (error) {
      await this.dispose();
      throw new Error(`the Worker did not start: ${error.message}\n${this.output}`, { cause: error });
    }
  }

  fetch(pathname, { headers, ...init } = {}) {
    const signal = AbortSignal.timeout(ANSWER_DEADLINE_MS);
    // A connection of its own: a kept one may be closed by the other side just as it is used again.
    const all = new Headers(headers);
    all.set("connection", "close");
    return fetch(new URL(pathname, this.origin), { redirect: "manual", signal, headers: all, ...init });
  }

  /** Ends workerd (Miniflare uses SIGKILL: nothing gets to say goodbye) and starts it on the same storage. */
  async restart(changes = {}) {
    await this.#miniflare.dispose();
    Object.assign(this.#options, changes);
    await this.start();
  }

  /** Drops one object from memory and keeps its storage, as the platform does with an idle object. */
  evict(className, name, script = SCRIPT) {
    return this.#miniflare.unsafeEvictDurableObject(script, className, { name });
  }

  /** SQL inside one object: `sql("ToolAgent", "name", "SELECT …", ...bindings)` gives rows. */
  async sql(className, name, query, ...bindings) {
    const handle = await this.#miniflare.unsafeGetDurableObjectStorage(SCRIPT, className, { name });
    return handle.exec(query, ...bindings);
  }

  /** Ids of the objects that have storage. */
  objectIds(binding) {
    return this.#miniflare.listDurableObjectIds(binding, SCRIPT);
  }

  async dispose() {
    await this.#miniflare?.dispose();
    this.#miniflare = undefined;
  }
}
