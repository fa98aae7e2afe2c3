// What servers have told lately.
import { useEffect, useState } from "preact/hooks";
import { ask } from "./api.js";

const POLL_MS = 3_000;

export function Log({ object, content }) {
  const [state, setState] = useState({});
  useEffect(() => {
    let timer;
    let ended = false;
    const look = async () => {
      clearTimeout(timer);
      if (document.hidden) return;
      const next = await ask(object, "events").catch((error) => ({ error: error.message }));
      if (ended) return;
      setState((before) => ({ ...before, error: undefined, ...next }));
      timer = setTimeout(look, POLL_MS);
    };
    look();
    document.addEventListener("visibilitychange", look);
    return () => {
      ended = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", look);
    };
  }, [object]);
  const { events = [], error } = state;
  const named = (id) => content.servers.find((server) => server.id === id)?.name ?? id;
  return (
    <>
      <h2 tabIndex={-1}>Event log</h2>
      <p class="dim">The last 100 things that servers told unasked, the newest first. They are gone when the object is evicted.</p>
      {error && <p class="error-banner" role="alert">{error}</p>}
      {events.length === 0 && <p class="dim">Nothing yet.</p>}
      <ol class="plain log" aria-label="Events">
        {[...events].reverse().map((event, i) => <Entry key={events.length - i} event={event} server={named(event.serverId)} />)}
      </ol>
    </>
  );
}

function Entry({ event, server }) {
  const { type, level, logger, data, uri, list, elicitationId, taskId } = event;
  const text = data === undefined ? (uri ?? list ?? elicitationId ?? taskId ?? "") : typeof data === "string" ? data : JSON.stringify(data);
  return (
    <li class="row item">
      <span class={`state ${level ?? ""}`}>{level ?? type}</span>
      <span>{server}{logger ? ` · ${logger}` : ""}</span>
      <span class="stretch">{text}</span>
    </li>
  );
}
