// MCP servers that nobody here wrote, or that only use an official SDK, each in a process of its own.
// Every one takes `{ port }`, to come back where an earlier one was.
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { pythonWith, rmcpServer } from "../../../agents-build/servers.mjs";
import { inRoot, inSupport } from "./paths.mjs";
import { startNode, startProgram } from "./processes.mjs";

const READY = /ready at (http:\/\/127\.0\.0\.1:(\d+))/;

const placed = (server) => ({
  ...server,
  origin: server.match[1],
  port: Number(server.match[2]),
  url: `${server.match[1]}/mcp`,
});

const startScript = async (args, { port = 0 } = {}) =>
  placed(
    await startNode(["--import", inSupport("listen-on-loopback.mjs"), ...args], {
      ready: READY,
      env: { LOOPBACK_PORT: `${port}` },
    }),
  );

async function startInstalled(command, args, { port = 0 } = {}) {
  if (!existsSync(command)) throw new Error(`${command} is missing: run \`npm run setup\`, which says why`);
  return placed(await startProgram(command, [...args, `${port}`], { ready: READY }));
}

const EVERYTHING = fileURLToPath(import.meta.resolve("@modelcontextprotocol/server-everything/dist/index.js"));

/** `@modelcontextprotocol/server-everything`: the 2025 era, sessions, event streams. */
export const startEverythingServer = (options) => startScript([EVERYTHING, "streamableHttp"], options);

/** The same over HTTP with SSE, the transport of 2024-11-05, at `/sse`. */
export const startEverythingSseServer = async (options) => {
  const server = await startScript([EVERYTHING, "sse"], options);
  return { ...server, url: `${server.origin}/sse` };
};

/**
 * A server of the official package 2.x: the 2026-07-28 era only, no sessions.
 * It answers with JSON at `/mcp` and with event streams at `/events`.
 */
export const startModernServer = (options) => startScript([inSupport("modern-server.mjs")], options);

/** A server on the Python SDK of a generation, `v1` or `v2`: Streamable HTTP at `/mcp`, HTTP with SSE at `/sse`. */
export const startPythonServer = (generation, options) =>
  startInstalled(pythonWith(generation), [inRoot("tests/servers/python/server.py")], options);

/** A server on the Rust SDK: all eras at `/mcp`, 2025-11-25 only at `/legacy`. */
export const startRmcpServer = (options) => startInstalled(rmcpServer, [], options);
