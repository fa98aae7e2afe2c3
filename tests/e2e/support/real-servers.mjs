// MCP servers that nobody here wrote, or that only use the official server package, each in a process of its own.
import { fileURLToPath } from "node:url";
import { inSupport } from "./paths.mjs";
import { startNode } from "./processes.mjs";

const READY = /ready at (http:\/\/127\.0\.0\.1:\d+)/;

async function start(args) {
  const server = await startNode(["--import", inSupport("listen-on-loopback.mjs"), ...args], { ready: READY });
  return { ...server, origin: server.match[1], url: `${server.match[1]}/mcp` };
}

/** `@modelcontextprotocol/server-everything`: the 2025 era, sessions, event streams. */
export const startEverythingServer = () =>
  start([
    fileURLToPath(import.meta.resolve("@modelcontextprotocol/server-everything/dist/index.js")),
    "streamableHttp",
  ]);

/**
 * A server of the official package 2.x: the 2026-07-28 era only, no sessions.
 * It answers with JSON at `/mcp` and with event streams at `/events`.
 */
export const startModernServer = () => start([inSupport("modern-server.mjs")]);
