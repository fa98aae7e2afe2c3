// Runs the official conformance suite against the client: `node run.mjs [lane | scenario | scenario@revision]...`.
import { fileURLToPath } from "node:url";
import { startNode } from "../e2e/support/processes.mjs";
import { timed } from "../e2e/support/until.mjs";
import { isTimed, parseList, select } from "./lanes.mjs";
import { play, referee } from "./referee.mjs";

// Runs share nothing, and mostly wait: for programs to start, and for idle connections to end.
const AT_ONCE = 2;

const { output } = await referee(["list", "--client"]);
const runs = select(parseList(output), process.argv.slice(2));

const host = await startNode([fileURLToPath(new URL("host.mjs", import.meta.url))], { ready: /ready at (\S+)/ });
let failed = 0;

async function playAll(queue) {
  for (let run = queue.shift(); run; run = queue.shift()) {
    const { value: reasons, ms } = await timed(() => play(run, host.match[1]));
    const title = `${run.scenario} on ${run.revision} (${(ms / 1000).toFixed(1)} s)`;
    console.log(reasons.length ? `FAIL ${title}\n     ${reasons.join("\n     ")}` : `ok   ${title}`);
    if (reasons.length) failed++;
  }
}

try {
  const queue = runs.filter((run) => !isTimed(run));
  await Promise.all(Array.from({ length: AT_ONCE }, () => playAll(queue)));
  await playAll(runs.filter(isTimed));
} finally {
  await host.stop();
}
console.log(`${runs.length - failed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
