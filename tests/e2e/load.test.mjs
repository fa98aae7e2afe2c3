// A short run of what `tests/load.mjs` does with 1,000 sockets.
import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "../load.mjs";

test("hundreds of sockets on one object get every change of the state once, across an eviction", async () => {
  const figures = await load({ sockets: 200, changes: 6, everyMs: 50 });
  assert.deepEqual(figures.framesPerSocket, {
    cf_agent_identity: [1, 1],
    cf_agent_state: [7, 7],
    // Nothing about servers has changed.
    cf_agent_mcp_servers: [1, 1],
  });
});
