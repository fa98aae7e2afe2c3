// How much memory the runtime takes, as the system sees it.
import { readFileSync, readdirSync } from "node:fs";
import path from "node:path";

/** The resident memory of the largest workerd that is a child of this process, in MiB; 0 where that cannot be seen. */
export function residentOfWorkerd() {
  let most = 0;
  try {
    for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
      try {
        const status = readFileSync(path.join("/proc", pid, "status"), "utf8");
        const parent = Number(/^PPid:\s+(\d+)/m.exec(status)?.[1]);
        if (parent !== process.pid || !/^Name:\s+workerd/m.test(status)) continue;
        most = Math.max(most, Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1] ?? 0));
      } catch {
        // It has ended meanwhile.
      }
    }
  } catch {
    return 0;
  }
  return Math.round(most / 1024);
}
