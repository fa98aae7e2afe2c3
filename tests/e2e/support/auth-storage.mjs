// What lies in an object's storage, read and changed while its Worker is down, and in the files that hold it.
import { readFile, readdir } from "node:fs/promises";
import path from "node:path";
import { startWorker } from "./worker.mjs";

const SCRIPT = `
import { DurableObject } from "cloudflare:workers";
export class ToolAgent extends DurableObject {
  async fetch(request) {
    const { prefix, age } = await request.json();
    const { kv } = this.ctx.storage;
    const entries = [...kv.list({ prefix })];
    for (const [key, value] of entries) {
      if (!age || typeof value?.createdAt !== "number") continue;
      value.createdAt -= age;
      kv.put(key, value);
    }
    const plain = (_, value) => (value instanceof Uint8Array ? { bytes: value.toString() } : value);
    return new Response(JSON.stringify(Object.fromEntries(entries), plain));
  }
}
export default {
  fetch(request, env) {
    return env.OBJECT.getByName(decodeURIComponent(new URL(request.url).pathname.slice(1))).fetch(request);
  },
};`;

async function ask(storage, name, body) {
  const worker = await startWorker({ script: SCRIPT, objects: { OBJECT: "ToolAgent" }, storage });
  try {
    const response = await worker.fetch(`/${encodeURIComponent(name)}`, { method: "POST", body: JSON.stringify(body) });
    if (!response.ok) throw new Error(`storage: ${await response.text()}`);
    return await response.json();
  } finally {
    await worker.dispose();
  }
}

/** The key-value entries of an object, by key, of a Worker that is down. */
export const keyValues = (storage, name, prefix = "") => ask(storage, name, { prefix });

/** Takes a Worker down, does something with its storage, and brings it back. */
export async function whileDown(worker, action) {
  await worker.dispose();
  try {
    return await action(worker.storage);
  } finally {
    await worker.start();
  }
}

/** Makes the sign-ins of an object that wait for the user older. */
export const ageSignIns = (worker, name, milliseconds) =>
  whileDown(worker, (storage) => ask(storage, name, { prefix: "", age: milliseconds }));

/** All bytes of the files below a folder, by path: the database, its log, whatever else. */
async function filesBelow(folder) {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => path.join(entry.parentPath, entry.name));
  return Promise.all(files.map(async (file) => [file, await readFile(file)]));
}

/** The ways in which a text may be written down. */
const spellings = (text) => [
  Buffer.from(text, "utf8"),
  Buffer.from(text, "utf16le"),
  Buffer.from(Buffer.from(text).toString("base64").replace(/=+$/, "")),
  Buffer.from(Buffer.from(text).toString("hex")),
];

/** Which of these texts stand in a file below the folder: `["text in file", …]`. */
export async function foundOnDisk(folder, texts) {
  const files = await filesBelow(folder);
  if (files.length === 0) throw new Error(`nothing is stored in ${folder}`);
  const found = [];
  for (const text of texts) {
    for (const [file, bytes] of files) {
      if (spellings(text).some((spelling) => bytes.includes(spelling))) found.push(`${text} in ${path.basename(file)}`);
    }
  }
  return found;
}
