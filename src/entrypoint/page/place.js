// Where in the dashboard we are: `#<object>` or `#<object>/<view>`.
import { useEffect, useState } from "preact/hooks";

export const VIEWS = ["servers", "tools", "prompts", "resources", "log"];

export function read(hash) {
  const [name, view] = hash.replace(/^#/, "").split("/");
  return { object: decoded(name) || "default", view: VIEWS.includes(view) ? view : VIEWS[0] };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    // Not ours: somebody typed a lone percent sign.
    return text;
  }
}

export const hashOf = ({ object, view = VIEWS[0] }) =>
  `#${encodeURIComponent(object)}${view === VIEWS[0] ? "" : `/${view}`}`;

/** The place, kept up to date. */
export function usePlace() {
  const [place, setPlace] = useState(() => read(location.hash));
  useEffect(() => {
    const follow = () => setPlace(read(location.hash));
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return place;
}
