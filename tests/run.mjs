// `npm test`: everything, one step after the other. A step that fails does not stop the others, except those
// that need its result. `npm test -- NAME…` runs some steps only.
import { build, everyWorker } from "../agents-build/build.mjs";
import { smoke } from "../agents-build/fuzz.mjs";
import { Problem, environment, main, report, run, say } from "../agents-build/process.mjs";
import { setup } from "../agents-build/setup.mjs";
import { native, task } from "../agents-build/task.mjs";
import { TARGET, wasmEnvironment } from "../agents-build/toolchain.mjs";

const STRICT = ["--", "-D", "warnings"];
const ENTRYPOINT = ["--package", "workers-agents", "--features", "entrypoint"];

const cargo = (args, todo, env = environment()) => run("cargo", args, { env, todo });
const fixLints = "fix what clippy says; `#[expect(lint, reason = …)]` explains an exception";

const STEPS = [
  {
    name: "format",
    run: () => cargo(["fmt", "--all", "--check"], "run `cargo fmt --all`"),
  },
  {
    name: "clippy",
    run: () => cargo(["clippy", "--locked", "--workspace", "--all-targets", ...STRICT], fixLints),
  },
  {
    name: "clippy with the entrypoint",
    // Cargo would put these files in the place of those without the feature, and check both anew every time.
    run: () =>
      cargo(
        ["clippy", "--all-targets", ...ENTRYPOINT, ...STRICT],
        fixLints,
        environment({ __CARGO_DEFAULT_LIB_METADATA: "entrypoint" }),
      ),
  },
  {
    name: "clippy for Wasm",
    run: ({ wasm }) => cargo(["clippy", "--target", TARGET, ...ENTRYPOINT, ...STRICT], fixLints, wasmEnvironment(wasm)),
  },
  {
    name: "native tests",
    run: () => ended(native([]), "run `npm run test:native`"),
  },
  {
    name: "documentation",
    run: () =>
      cargo(
        ["doc", "--workspace", "--no-deps"],
        "fix what rustdoc says",
        environment({ RUSTDOCFLAGS: "-D warnings" }),
      ),
  },
  {
    name: "fuzz smoke",
    run: smoke,
  },
  {
    name: "build",
    run: (tools) => build(everyWorker, tools),
  },
  {
    name: "end-to-end tests",
    needs: "build",
    run: (tools) => ended(task("e2e", [], tools), "run `npm run test:e2e [FILE]`"),
  },
  {
    name: "conformance",
    needs: "build",
    run: (tools) => ended(task("conformance", [], tools), "run `npm run test:conformance [SCENARIO]`"),
  },
];

async function ended(status, todo) {
  if ((await status) !== 0) throw new Problem("some tests failed, see above", todo);
}

await main(import.meta.url, async (names) => {
  const unknown = names.find((name) => !STEPS.some((step) => step.name === name));
  if (unknown) {
    throw new Problem(`there is no step ${unknown}`, `name some of: ${STEPS.map(({ name }) => name).join(", ")}`);
  }
  const begun = Date.now();
  const tools = await setup();
  say(`Wasm with ${tools.wasm.name}`);

  const failed = [];
  const skipped = [];
  let passed = 0;
  for (const step of STEPS) {
    if (names.length > 0 && !names.includes(step.name)) continue;
    if (failed.includes(step.needs)) {
      skipped.push(step.name);
      continue;
    }
    say(`${step.name} …`);
    const start = Date.now();
    try {
      await step.run(tools);
      passed += 1;
      say(`${step.name}: passed in ${seconds(start)}`);
    } catch (error) {
      failed.push(step.name);
      report(error);
      say(`${step.name}: FAILED after ${seconds(start)}`);
    }
  }

  if (failed.length > 0) say(`failed: ${failed.join(", ")}`);
  if (skipped.length > 0) say(`not run, since they need what failed: ${skipped.join(", ")}`);
  say(`all steps took ${seconds(begun)}`);
  console.log(`${passed} passed, ${failed.length} failed${skipped.length > 0 ? `, ${skipped.length} skipped` : ""}`);
  return failed.length > 0 ? 1 : 0;
});

function seconds(since) {
  return `${((Date.now() - since) / 1000).toFixed(1)} s`;
}
