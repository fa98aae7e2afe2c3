// Preloaded into child processes: a test process that dies, however it dies, takes them along.
process.stdin.on("end", () => process.exit()).resume();
process.stdin.unref?.();
