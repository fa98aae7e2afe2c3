// The npm packages, and among them the Node that wrangler needs.
import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { Problem, read, root, run, say } from "./process.mjs";

const STAMP = path.join(root, "node_modules/.installed");

// Installs exactly what package-lock.json names, when that has not been done.
export async function installPackages() {
  const wanted = createHash("sha256")
    .update(readFileSync(path.join(root, "package-lock.json")))
    .update(`${process.platform} ${process.arch}`)
    .digest("hex");
  if (existsSync(STAMP) && readFileSync(STAMP, "utf8") === wanted) return;
  say("installing the npm packages of package-lock.json: workerd, wrangler, esbuild and the servers under test");
  // None of them needs its install script: the binaries are in packages of their own.
  await run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], {
    quiet: true,
    todo: "check that the npm registry can be reached, then try again",
  });
  // Inside node_modules, which npm empties first: an installation that was cut off has no stamp.
  writeFileSync(STAMP, wanted);
}

// A Node that wrangler accepts. The packages node-<system>-<processor> hold one.
export function modernNode() {
  const candidates = [path.join(root, "node_modules/.bin/node"), process.execPath];
  for (const node of candidates) {
    const [major, minor] = (read(node, ["--version"]) ?? "v0.0").slice(1).split(".").map(Number);
    if (major > 22 || (major === 22 && minor >= 12)) return node;
  }
  throw new Problem(
    "wrangler needs Node 22.12 or newer, and npm has none for this system",
    "install Node 22 or newer, then try again",
  );
}
