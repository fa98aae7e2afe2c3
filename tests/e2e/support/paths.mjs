// Where things are, whatever folder the tests are started from.
import path from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../../../", import.meta.url));
export const inRoot = (...parts) => path.join(root, ...parts);
export const inSupport = (name) => fileURLToPath(new URL(name, import.meta.url));
