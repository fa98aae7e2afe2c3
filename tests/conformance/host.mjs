// The conformance host Worker under workerd, on loopback, until it is ended: `node host.mjs [--port N]`.
import { parseArgs } from "node:util";
import { startWorker } from "../e2e/support/worker.mjs";

const { values } = parseArgs({ options: { port: { type: "string", default: "0" } } });

const worker = await startWorker({
  build: "build/test-worker",
  objects: { ConformanceHost: "ConformanceHost" },
  port: Number(values.port),
});
console.log(`conformance host ready at ${worker.origin}`);
