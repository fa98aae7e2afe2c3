// The Workers of examples/, with the objects and the variables that their wrangler.toml gives them.
import { unstable_readConfig } from "wrangler";
import { inRoot } from "./paths.mjs";
import { startWorker } from "./worker.mjs";

/** Starts one. `vars` go on top of its own; other options are those of `startWorker`. */
export function startExample(name, { vars, ...options } = {}) {
  const config = unstable_readConfig({ config: inRoot("examples", name, "wrangler.toml") });
  const objects = config.durable_objects.bindings.map((binding) => [binding.name, binding.class_name]);
  return startWorker({
    build: `build/quick/${name}`,
    objects: Object.fromEntries(objects),
    vars: { ...config.vars, ...vars },
    ...options,
  });
}
