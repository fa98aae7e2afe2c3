// Work that a button starts: one run at a time, and its failure is shown.
import { useRef, useState } from "preact/hooks";

/** `{busy, error, run, say}`; `run(work)` resolves to whether the work was done. */
export function useWork() {
  const [state, setState] = useState({ busy: false, error: "" });
  const running = useRef(false);
  const run = async (work) => {
    if (running.current) return false;
    running.current = true;
    setState({ busy: true, error: "" });
    let error = "";
    try {
      await work();
    } catch (problem) {
      error = problem.message;
    }
    running.current = false;
    setState({ busy: false, error });
    return !error;
  };
  return { ...state, run, say: (error) => setState((state) => ({ ...state, error })) };
}
