// What an object has, looked up again whenever there may be something new.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ask, callsUnderWay } from "./api.js";
import { watch } from "./live.js";

const NOTHING = { tools: [], prompts: [], resources: [], resourceTemplates: [], questions: [], stale: [] };
const SETTLED = new Set(["ready", "failed", "authenticating", "not-connected", "connected", "reconnecting"]);
const LISTS = { tools: "tools", prompts: "prompts", resources: "resources", "resource-templates": "resourceTemplates" };

/** Whether a server is on its way to another state. */
export const isOnItsWay = (server) => !SETTLED.has(server.state);

/** What must stay the same for the lists to be the same. */
const signature = (servers) => JSON.stringify(servers.map(({ id, name, state, listedAt, freshness, counts }) => [id, name, state, listedAt, freshness, counts]));

/**
 * `{content, error, look}`: what the object has, why it could not be looked up, and a function that looks again. `content`
 * is undefined until it is known.
 */
export function useContent(object) {
  const [shown, setShown] = useState({ object });
  const state = useRef();
  if (state.current?.object !== object) state.current = { object, content: undefined, signature: undefined };

  const look = useCallback(() => {
    const mine = state.current;
    // Asked for while it runs, it runs once more afterwards, and whoever asked waits for that.
    if (mine.running) return (mine.next ??= mine.running.then(() => start(mine)));
    return start(mine);

    function start(mine) {
      mine.next = undefined;
      mine.running = lookUp(mine)
        .then((error) => state.current === mine && setShown({ object, content: mine.content, error }))
        .finally(() => (mine.running = undefined));
      return mine.running;
    }
  }, [object]);

  useEffect(() => {
    look();
    const isBusy = () => callsUnderWay > 0 || (state.current.content?.servers.some(isOnItsWay) ?? true);
    return watch(object, { look, isBusy });
  }, [object, look]);

  // Never one object under the name of another.
  return shown.object === object ? { ...shown, look } : { look };
}

/** Looks everything up; gives the reason when that fails. */
async function lookUp(mine) {
  const { object } = mine;
  try {
    const [{ servers, damaged }, { elicitations }] = await Promise.all([ask(object, "servers"), ask(object, "elicitations")]);
    const now = signature(servers);
    const lists = now === mine.signature ? {} : await listsOf(object);
    mine.signature = now;
    mine.content = { ...NOTHING, ...mine.content, ...lists, servers, damaged, questions: elicitations };
  } catch (error) {
    return error;
  }
}

async function listsOf(object) {
  const answers = await Promise.all(Object.keys(LISTS).map((path) => ask(object, `${path}?wait=0`)));
  const lists = Object.values(LISTS).map((name, i) => [name, answers[i][name]]);
  return { ...Object.fromEntries(lists), stale: [...new Set(answers.flatMap(({ stale }) => stale ?? []))] };
}
