// Waiting for a condition instead of for a time: polls, and says what it waited for when the deadline passes.
import { setTimeout as pause } from "node:timers/promises";

const POLL_MS = 20;

export async function until(what, condition, deadlineMs = 10_000) {
  const deadline = Date.now() + deadlineMs;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`waited ${deadlineMs} ms for ${what}`);
    await pause(POLL_MS);
  }
}

/** Runs `action` and says how long it took: `{ value, ms }`. */
export async function timed(action) {
  const start = performance.now();
  const value = await action();
  return { value, ms: Math.round(performance.now() - start) };
}
