// Workers that are made of npm packages: bundled into one module for workerd.
import { builtinModules } from "node:module";
import { build } from "esbuild";
import { root } from "./paths.mjs";

/** Older packages say `require("path")`; workerd knows only `node:path`, and only as an import. */
const nodeBuiltins = {
  name: "node-builtins",
  setup({ onResolve, onLoad }) {
    const bare = new RegExp(`^(${builtinModules.filter((name) => !name.startsWith("_")).join("|")})$`);
    onResolve({ filter: bare }, ({ path }) => ({ path, namespace: "builtin" }));
    onLoad({ filter: /./, namespace: "builtin" }, ({ path }) => ({
      contents: `export * from "node:${path}"; export { default } from "node:${path}";`,
    }));
  },
};

/** The source of one module; `source` may import packages of this repository. */
export async function bundle(source) {
  const { outputFiles } = await build({
    stdin: { contents: source, resolveDir: root, loader: "js" },
    bundle: true,
    write: false,
    format: "esm",
    target: "es2022",
    conditions: ["workerd", "worker", "browser"],
    mainFields: ["module", "main"],
    external: ["cloudflare:*", "node:*"],
    plugins: [nodeBuiltins],
    logLevel: "error",
  });
  return outputFiles[0].text;
}
