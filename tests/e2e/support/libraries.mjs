// The libraries of tests/servers/README.md, one for each SDK and way to answer.
import { startModernServer, startPythonServer, startRmcpServer } from "./real-servers.mjs";

/** The tools that each has from the start, in the order of the alphabet. */
export const TOOLS = ["add", "count", "echo", "fail", "learn", "reserve"];

/** `session` is what the server prints when a session begins, where it has sessions. */
export const LIBRARIES = [
  {
    name: "the Python SDK 1.x",
    start: (options) => startPythonServer("v1", options),
    path: "/mcp",
    revision: "2025-11-25",
    session: /Created new transport with session ID/g,
  },
  {
    name: "the Python SDK 2.x",
    start: (options) => startPythonServer("v2", options),
    path: "/mcp",
    revision: "2026-07-28",
  },
  {
    name: "the Rust SDK, for 2025-11-25",
    start: startRmcpServer,
    path: "/legacy",
    revision: "2025-11-25",
    session: /session begun/g,
  },
  { name: "the Rust SDK, for 2026-07-28", start: startRmcpServer, path: "/mcp", revision: "2026-07-28" },
  {
    name: "the TypeScript SDK 2.x, answering with JSON",
    start: startModernServer,
    path: "/mcp",
    revision: "2026-07-28",
  },
  {
    name: "the TypeScript SDK 2.x, answering with event streams",
    start: startModernServer,
    path: "/events",
    revision: "2026-07-28",
  },
];
