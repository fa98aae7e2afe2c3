// What changes in an object, as it changes: told over a WebSocket, or looked up where none can be opened.
import { pathOf } from "./api.js";

const POLL_MS = 3_000;
const POLL_BUSY_MS = 1_000;
const FIRST_RETRY_MS = 1_000;
const LAST_RETRY_MS = 60_000;

/** Frames after which there is something new to see. */
const TELLING = new Set(["cf_agent_mcp_servers", "mcp-elicitation", "mcp-elicitation-closed"]);

/**
 * Calls `look` when there may be something new in an object, and only while somebody can see it. `isBusy` says whether
 * things are on their way; it counts where we have to poll. Gives a function that ends it.
 */
export function watch(object, { look, isBusy }) {
  let socket;
  let isOpen = false;
  let retryMs = FIRST_RETRY_MS;
  let retry;
  let poll;
  let ended = false;

  function connect() {
    if (ended || document.hidden || socket) return;
    clearTimeout(retry);
    const url = new URL(`${pathOf(object)}?mcp=servers`, location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    const mine = (socket = new WebSocket(url));
    mine.onopen = () => {
      isOpen = true;
      retryMs = FIRST_RETRY_MS;
      clearTimeout(poll);
      // What happened before it was open.
      look();
    };
    mine.onmessage = ({ data }) => {
      if (tells(data)) look();
    };
    mine.onclose = () => {
      if (socket !== mine) return;
      socket = undefined;
      isOpen = false;
      if (ended) return;
      // Everybody at once would come back at once after a deployment.
      retry = setTimeout(connect, retryMs * (0.5 + Math.random()));
      retryMs = Math.min(2 * retryMs, LAST_RETRY_MS);
      pollLater();
    };
  }

  /** Looks after a while; `waited` says how long we have not looked already. */
  function pollLater(waited = 0) {
    clearTimeout(poll);
    if (ended || isOpen || document.hidden) return;
    poll = setTimeout(async () => {
      const now = waited + POLL_BUSY_MS;
      if (!isBusy() && now < POLL_MS) return pollLater(now);
      await look();
      pollLater();
    }, POLL_BUSY_MS);
  }

  function onVisibility() {
    if (document.hidden) return;
    // The user may come back from signing in.
    look();
    connect();
    pollLater();
  }

  document.addEventListener("visibilitychange", onVisibility);
  connect();
  pollLater();
  return () => {
    ended = true;
    document.removeEventListener("visibilitychange", onVisibility);
    clearTimeout(retry);
    clearTimeout(poll);
    socket?.close();
  };
}

function tells(data) {
  if (typeof data !== "string") return false;
  try {
    return TELLING.has(JSON.parse(data).type);
  } catch {
    return false;
  }
}
