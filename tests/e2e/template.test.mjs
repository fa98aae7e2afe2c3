// What a newcomer gets from `cargo generate` compiles and works.
import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { inRoot } from "./support/paths.mjs";
import { startScriptedServer } from "./support/scripted-server.mjs";
import { buildProject, expandTemplate, hasCargoGenerate, placeholders } from "./support/template.mjs";
import { startWorker, temporaryFolder } from "./support/worker.mjs";

const NAME = "my-first-agent";

test("the template becomes a project that lists the tools of its server", async (t) => {
  const remote = await startScriptedServer();
  t.after(() => remote.close());
  // Below `target`, so that the tools of this repository are found.
  const folder = await expandTemplate(NAME, inRoot("target/template"), { workers_agents: inRoot(), mcp_url: remote.url });
  const wrangler = await readFile(path.join(folder, "wrangler.toml"), "utf8");
  assert.ok(wrangler.includes(`name = "${NAME}"\n`));
  const [, url] = /^MCP_URL = "(.*)"$/m.exec(wrangler);
  assert.equal(url, remote.url);
  const [, className] = /^class_name = "(.*)"$/m.exec(wrangler);

  const build = path.relative(inRoot(), await buildProject(NAME, folder));
  const worker = await startWorker({ build, objects: { MyAgent: className }, vars: { MCP_URL: url } });
  t.after(() => worker.dispose());
  const page = await worker.fetch("/agents/my-agent/me/");
  assert.equal(page.status, 200);
  assert.deepEqual((await page.json()).map((tool) => tool.name), ["echo"]);
});

test("the defaults leave nothing open, and nothing of cargo-generate stays", async () => {
  assert.deepEqual(Object.keys(await placeholders()), ["workers_agents", "mcp_url"]);
  const folder = await expandTemplate(NAME, await temporaryFolder());
  const files = (await readdir(folder, { recursive: true })).sort();
  const expected = [".gitignore", "Cargo.toml", "README.md", "package.json", "src", "src/lib.rs", "wrangler.toml"];
  assert.deepEqual(files, expected);
  const own = await readFile(path.join(folder, "Cargo.toml"), "utf8");
  assert.ok(own.includes('path = "../workers-agents"') && own.includes(`name = "${NAME}"`), own);
  JSON.parse(await readFile(path.join(folder, "package.json"), "utf8"));
});

test("cargo-generate and our own expansion agree", { skip: !hasCargoGenerate && "no cargo-generate here" }, async () => {
  const [theirs, ours] = await Promise.all([true, false].map(async (withTool) => expandTemplate(NAME, await temporaryFolder(), {}, withTool)));
  for (const file of ["Cargo.toml", "README.md", "package.json", "src/lib.rs", "wrangler.toml"]) {
    assert.equal(await readFile(path.join(theirs, file), "utf8"), await readFile(path.join(ours, file), "utf8"), file);
  }
});
