// What `cargo generate` makes of template/: by the real one where it is installed, else by the rules that the template uses.
import { cp, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { environment, read, run } from "../../../agents-build/process.mjs";
import { wasmEnvironment, wasmToolchain } from "../../../agents-build/toolchain.mjs";
import { inRoot } from "./paths.mjs";

const TEMPLATE = inRoot("template");
const CONFIGURATION = "cargo-generate.toml";

/** Whether the real one is here. */
export const hasCargoGenerate = read("cargo", ["generate", "--version"]) !== undefined;

/** The placeholders that the template asks for, with their defaults. */
export async function placeholders() {
  const text = await readFile(path.join(TEMPLATE, CONFIGURATION), "utf8");
  const found = text.matchAll(/^\[placeholders\.(\w+)\]\n(?:(?!\[).*\n)*?default = "(.*)"$/gm);
  return Object.fromEntries([...found].map(([, name, value]) => [name, value]));
}

/** Makes the project `name` in the folder `parent`; gives its folder. `values` stand in for the defaults. */
export async function expandTemplate(name, parent, values = {}, withTool = hasCargoGenerate) {
  const folder = path.join(parent, name);
  await rm(folder, { recursive: true, force: true });
  await mkdir(parent, { recursive: true });
  const all = { ...(await placeholders()), ...values };
  if (withTool) {
    const defined = Object.entries(all).flatMap(([key, value]) => ["--define", `${key}=${value}`]);
    const args = ["generate", "--path", TEMPLATE, "--name", name, "--destination", parent, "--silent", "--vcs", "none"];
    await run("cargo", [...args, ...defined], { env: environment(), quiet: true });
    return folder;
  }
  const known = { ...all, "project-name": name, crate_name: name.replaceAll("-", "_") };
  await cp(TEMPLATE, folder, { recursive: true, filter: (from) => path.basename(from) !== CONFIGURATION });
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const file = path.join(entry.parentPath, entry.name);
    const text = await readFile(file, "utf8");
    // Liquid has more than this; the template does without.
    if (/\{%|%\}/.test(text)) throw new Error(`${file} has a tag of Liquid`);
    const filled = text.replace(/\{\{\s*([^{}]*?)\s*\}\}/g, (_, key) => {
      if (!Object.hasOwn(known, key)) throw new Error(`${file}: nothing is known of {{${key}}}`);
      return known[key];
    });
    await writeFile(file, filled);
  }
  return folder;
}

/** Compiles the project in `folder`, with the versions and the compiled dependencies of this repository. */
export async function buildProject(name, folder) {
  const manifest = path.join(folder, "Cargo.toml");
  const workspace = await readFile(inRoot("Cargo.toml"), "utf8");
  const profiles = workspace.match(/^\[profile\.(release|quick)[^\]]*\]\n(?:.+\n)+/gm).join("\n");
  const [own] = (await readFile(manifest, "utf8")).split("[profile.release]");
  await writeFile(manifest, `${own}${profiles}\n[workspace]\n`);
  await cp(inRoot("Cargo.lock"), path.join(folder, "Cargo.lock"));
  const env = wasmEnvironment(wasmToolchain());
  const tool = path.resolve(inRoot(), process.env.CARGO_TARGET_DIR ?? "target", "debug/agents-build");
  await run(tool, ["--package", name, "--profile", "quick", "--no-opt", "--out", "build"], {
    cwd: folder,
    env: { ...env, CARGO_TARGET_DIR: path.resolve(inRoot(), env.CARGO_TARGET_DIR) },
    quiet: true,
  });
  return path.join(folder, "build");
}
