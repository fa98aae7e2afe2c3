// Reads and writes an object's storage while the Worker is down, through a small JavaScript object of the same name:
// key-value entries are out of reach of SQL, and rows must be there before the Worker first sees the object.
import { startWorker } from "./worker.mjs";

const script = (className) => `
import { DurableObject } from "cloudflare:workers";
export class ${className} extends DurableObject {
  async fetch(request) {
    const { statements, put, get } = await request.json();
    const rows = statements.map(([sql, ...bindings]) => this.ctx.storage.sql.exec(sql, ...bindings).toArray());
    for (const [key, value] of Object.entries(put)) this.ctx.storage.kv.put(key, value);
    const values = Object.fromEntries(get.map((key) => [key, this.ctx.storage.kv.get(key)]));
    return Response.json({ rows, values });
  }
}
export default {
  fetch(request, env) {
    return env.OBJECT.getByName(decodeURIComponent(new URL(request.url).pathname.slice(1))).fetch(request);
  },
};`;

/** Runs `statements` (`[sql, ...bindings]` each), writes `put`, reads `get`; gives `{ rows, values }`. */
export async function withStorage(folder, { className = "ToolAgent", name, statements = [], put = {}, get = [] }) {
  const worker = await startWorker({ script: script(className), objects: { OBJECT: className }, storage: folder });
  try {
    const body = JSON.stringify({ statements, put, get });
    const response = await worker.fetch(`/${encodeURIComponent(name)}`, { method: "POST", body });
    if (!response.ok) throw new Error(`storage: ${await response.text()}`);
    return await response.json();
  } finally {
    await worker.dispose();
  }
}

const TABLE = `CREATE TABLE IF NOT EXISTS cf_agents_mcp_servers (
  id TEXT PRIMARY KEY NOT NULL,
  name TEXT NOT NULL,
  server_url TEXT NOT NULL,
  callback_url TEXT NOT NULL,
  client_id TEXT,
  auth_url TEXT,
  server_options TEXT
)`;

/** Stores server rows as an earlier version, or the TypeScript package, would have left them. */
export function seedServers(folder, name, rows) {
  const insert = "INSERT INTO cf_agents_mcp_servers VALUES (?, ?, ?, ?, ?, ?, ?)";
  const statements = rows.map((row) => [
    insert,
    row.id,
    row.name ?? row.id,
    row.server_url,
    row.callback_url ?? "",
    row.client_id ?? null,
    row.auth_url ?? null,
    row.server_options ?? null,
  ]);
  return withStorage(folder, {
    name,
    statements: [[TABLE], ...statements],
    put: { "cf_agents:mcp_schema_version": 1 },
  });
}

/** All server rows of an object of a running Worker, by id. */
export async function storedServers(worker, name) {
  const rows = await worker.sql("ToolAgent", name, "SELECT * FROM cf_agents_mcp_servers ORDER BY id");
  return Object.fromEntries(rows.map((row) => [row.id, row]));
}
