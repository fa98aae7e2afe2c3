// Which scenarios to run on which revision of the protocol. A lane is a revision, `extensions`, or `default`.

const EXTENSION = "extension";
// Extensions belong to no revision, so they run on both wires.
const EXTENSION_WIRES = ["2025-11-25", "2026-07-28"];

/** Whether a run measures time, so that nothing else may run beside it. */
export const isTimed = ({ scenario }) => scenario === "sse-retry";

/** Reads what `conformance list --client` prints: `  - name [revision,revision]`. */
export function parseList(text) {
  const scenarios = new Map();
  for (const [, name, revisions] of text.matchAll(/^\s*- (\S+) \[([^\]]*)\]/gm))
    scenarios.set(name, revisions.split(","));
  if (scenarios.size === 0) throw new Error("the referee lists no scenarios");
  return scenarios;
}

/** Turns arguments into runs: lanes, scenario names, or `scenario@revision`. */
export function select(scenarios, args) {
  const runs = new Map();
  for (const arg of args.length ? args : ["default"]) {
    const found = selectOne(scenarios, arg);
    if (found.length === 0) throw new Error(`no lane and no scenario is called ${arg}`);
    for (const run of found) runs.set(`${run.scenario}@${run.revision}`, run);
  }
  return [...runs.values()];
}

function selectOne(scenarios, arg) {
  const asRun = ([scenario, revision]) => ({
    scenario,
    revision,
    force: scenarios.get(scenario)?.includes(EXTENSION) ?? false,
  });
  const [scenario, revision] = arg.split("@");
  if (revision) return scenarios.has(scenario) ? [asRun([scenario, revision])] : [];
  const wires = (revisions) => (revisions.includes(EXTENSION) ? EXTENSION_WIRES : revisions);
  // Everything, on every revision that has it, and extensions on both wires.
  if (arg === "default") return [...scenarios.keys()].flatMap((name) => selectOne(scenarios, name));
  if (scenarios.has(arg)) return wires(scenarios.get(arg)).map((wire) => asRun([arg, wire]));
  if (arg === "extensions") {
    const extensions = [...scenarios.keys()].filter((name) => scenarios.get(name).includes(EXTENSION));
    return extensions.flatMap((name) => EXTENSION_WIRES.map((wire) => asRun([name, wire])));
  }
  return [...scenarios.keys()].filter((name) => scenarios.get(name).includes(arg)).map((name) => asRun([name, arg]));
}
