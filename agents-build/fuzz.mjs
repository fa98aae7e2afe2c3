// Searches for input that breaks a property of tests/fuzz: `node agents-build/fuzz.mjs [TARGET [SECONDS | FILE…]]`.
//
// cargo-fuzz needs a nightly Rust for its sanitizers. What guides the search is coverage, which stable Rust counts
// as well when LLVM is told to; the crate libfuzzer-sys brings libFuzzer itself.
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { apt } from "./debian.mjs";
import { Problem, environment, main, read, root, run, say, supervise } from "./process.mjs";
import { onPath } from "./toolchain.mjs";

const SECONDS = 60;
const OUTPUT = path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
const CRATE = path.join(root, "tests/fuzz");

const COVERAGE = [
  "-Cpasses=sancov-module",
  ...["level=4", "inline-8bit-counters", "pc-table", "trace-compares"].map(
    (option) => `-Cllvm-args=-sanitizer-coverage-${option}`,
  ),
];

// An input that takes longer, or more memory, is a finding.
const LIMITS = ["-timeout=10", "-rss_limit_mb=1024"];

// Compiles the program and returns its path and the names of its targets.
async function compile() {
  await requireCompiler();
  const [, host] = read(onPath.rustc, ["--version", "--verbose"]).match(/^host: (.+)$/m);
  // Naming the target keeps the flags away from build scripts and macros.
  const args = ["build", "--package", "fuzz", "--features", "libfuzzer", "--profile", "fuzz", "--target", host];
  const RUSTFLAGS = [process.env.RUSTFLAGS, ...COVERAGE].filter(Boolean).join(" ");
  await run("cargo", args, { env: environment({ RUSTFLAGS }), todo: "read what cargo says above" });
  const program = path.join(OUTPUT, host, "fuzz/fuzz");
  return { program, targets: read(program, [], { env: environment({ FUZZ_TARGET: "" }) }).split("\n") };
}

async function requireCompiler() {
  if (read(process.env.CXX ?? "c++", ["--version"]) !== undefined) return;
  if (read("apt-get", ["--version"]) === undefined || process.getuid() !== 0) {
    throw new Problem(
      "there is no C++ compiler, and libFuzzer is written in C++",
      "install one: `apt-get install g++`, or `xcode-select --install` on macOS",
    );
  }
  say("installing Debian's g++: libFuzzer is written in C++");
  await run("apt-get", ["update"], { quiet: true, todo: "check that Debian's archive can be reached" });
  await apt(["g++"]);
}

// The options and the environment of a search that keeps what it learns in `folder`.
function search(target, folder) {
  const findings = path.join(OUTPUT, "fuzz-findings");
  mkdirSync(findings, { recursive: true });
  return {
    args: [
      ...LIMITS,
      `-dict=${path.join(CRATE, "dictionary")}`,
      `-artifact_prefix=${path.join(findings, target)}-`,
      folder,
      path.join(CRATE, "corpus", target),
    ],
    env: environment({ FUZZ_TARGET: target, RUST_BACKTRACE: process.env.RUST_BACKTRACE ?? "1" }),
    todo: `run \`npm run fuzz -- ${target} FILE\` with the file named above to see it again`,
  };
}

// Some thousand inputs of each target, or two seconds, from the committed ones and with the same start every time.
export async function smoke() {
  const { program, targets } = await compile();
  const folder = mkdtempSync(path.join(tmpdir(), "fuzz-"));
  try {
    for (const target of targets) {
      mkdirSync(path.join(folder, target));
      const { args, ...options } = search(target, path.join(folder, target));
      await run(program, ["-seed=1", "-runs=10000", "-max_total_time=1", ...args], { ...options, quiet: true });
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

await main(import.meta.url, async ([wanted, ...rest]) => {
  const { program, targets } = await compile();
  if (wanted && !targets.includes(wanted)) {
    throw new Problem(`there is no target ${wanted}`, `name one of: ${targets.join(", ")}`);
  }
  const seconds = rest.length === 0 ? SECONDS : Number(rest[0]);
  if (Number.isNaN(seconds)) {
    const { env } = search(wanted);
    return supervise(program, [...LIMITS, ...rest.map((file) => path.resolve(file))], { env });
  }
  for (const target of wanted ? [wanted] : targets) {
    say(`${target}: searching for ${seconds} s`);
    // What is learned stays, so the next search starts where this one ended.
    const folder = path.join(OUTPUT, "fuzz-corpus", target);
    mkdirSync(folder, { recursive: true });
    const { args, ...options } = search(target, folder);
    await run(program, [`-max_total_time=${seconds}`, "-print_final_stats=1", ...args], options);
  }
  say("found nothing");
  return 0;
});
