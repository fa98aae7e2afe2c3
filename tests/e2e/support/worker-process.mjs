// The ready-made Worker in a process of its own, to be killed: `node worker-process.mjs STORAGE_FOLDER`.
import { startToolAgent } from "./worker.mjs";

const worker = await startToolAgent({}, { storage: process.argv[2] });
console.log(`ready at ${worker.origin}`);
