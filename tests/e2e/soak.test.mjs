// A few seconds of what `tests/soak.mjs` does for as long as one likes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { soak } from "../soak.mjs";

test("objects that are evicted again and again under faults lose nothing, keep nothing and get stuck nowhere", async () => {
  const seed = Number(process.env.SOAK_SEED ?? Date.now() % 1_000_000);
  const figures = await soak({ seconds: 20, seed });
  assert.ok(figures.steps > 20 && figures.wakes > 5 && figures.checks > 0, `seed ${seed}: ${JSON.stringify(figures)}`);
});
