// The servers that the end-to-end tests connect to, as far as npm does not bring them: two generations of the
// Python SDK, each in an environment of its own, and a program on the Rust SDK.
import { createHash } from "node:crypto";
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { Problem, environment, read, report, root, run, say } from "./process.mjs";

const TARGET = path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
const GENERATIONS = ["v1", "v2"];
const STAMP = ".installed";

const folderOf = (generation) => path.join(TARGET, `python-${generation}`);

/** The Python that has the SDK of a generation, and the Rust server: where they are once they are installed. */
export const pythonWith = (generation) => path.join(folderOf(generation), "bin/python");
export const rmcpServer = path.join(TARGET, "debug/rmcp-server");

// What is wrong with one server is no reason to do without the others: the tests that need it will say so.
export async function installServers() {
  let failed = false;
  for (const install of [installPythons, buildRmcpServer]) {
    try {
      await install();
    } catch (error) {
      failed = true;
      report(error);
    }
  }
  return !failed;
}

// With the features of the whole workspace, so that nothing is compiled twice for it and for the native tests.
const buildRmcpServer = () => {
  if (!existsSync(rmcpServer)) say("compiling the server on the Rust SDK (once, about a minute)");
  return run("cargo", ["build", "--quiet", "--locked", "--workspace", "--bin", "rmcp-server"], {
    env: environment(),
    todo: "read what cargo says above",
  });
};

async function installPythons() {
  let python;
  for (const generation of GENERATIONS) {
    const requirements = path.join(root, `tests/servers/python/requirements-${generation}.txt`);
    const folder = folderOf(generation);
    const stamp = path.join(folder, STAMP);
    const wanted = createHash("sha256").update(readFileSync(requirements)).digest("hex");
    // The environment is only as good as the Python that it was made with, which may be gone.
    const works = read(pythonWith(generation), ["-c", ""]) !== undefined;
    if (works && existsSync(stamp) && readFileSync(stamp, "utf8") === wanted) continue;
    python ??= usablePython() ?? (await installDebianPython());
    await installEnvironment(python, { generation, requirements, folder, wanted });
  }
}

async function installEnvironment(python, { generation, requirements, folder, wanted }) {
  say(`installing the Python SDK ${generation} in ${path.relative(root, folder)}: servers under test run on it`);
  // Beside its destination, so that an environment is there whole or not at all.
  const partial = `${folder}.${process.pid}.partial`;
  try {
    await run(python, ["-m", "venv", partial], { quiet: true, todo: "read what Python says above" });
    const options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--only-binary=:all:"];
    await run(path.join(partial, "bin/python"), ["-m", "pip", "install", ...options, "--requirement", requirements], {
      quiet: true,
      todo: "check that the Python package index can be reached, then try again",
    });
    writeFileSync(path.join(partial, STAMP), wanted);
    rmSync(folder, { recursive: true, force: true });
    renameSync(partial, folder);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
}

// One that is recent enough and can make environments, which Debian leaves to a package of its own.
const usablePython = () =>
  [process.env.PYTHON, "python3", "/usr/bin/python3"].find(
    (python) =>
      python && read(python, ["-c", "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))"]) !== undefined,
  );

async function installDebianPython() {
  const missing = "no Python 3.10 or newer with its modules venv and ensurepip is here, and servers under test need it";
  const todo = "install Python 3.10 or newer (with Debian: `apt-get install python3-venv`), then try again";
  if (read("apt-get", ["--version"]) === undefined || process.getuid() !== 0) throw new Problem(missing, todo);
  say("installing Debian's python3-venv: servers under test are written in Python");
  await run("apt-get", ["update"], { quiet: true, todo });
  await run("apt-get", ["install", "--yes", "--no-install-recommends", "--no-remove", "python3-venv"], {
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
    quiet: true,
    todo,
  });
  const python = usablePython();
  if (python === undefined) throw new Problem(missing, todo);
  return python;
}
