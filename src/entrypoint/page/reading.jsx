// Reading a resource.
import { useEffect, useState } from "preact/hooks";
import { ask } from "./api.js";
import { Dialog } from "./dialog.jsx";
import { nameOf } from "./groups.jsx";
import { Whole } from "./json.jsx";
import { Contents } from "./result.jsx";

/** Reads `{serverId, uri}` and shows what comes. */
export function ReadDialog({ object, resource, onClose }) {
  return (
    <Dialog title={nameOf(resource)} onClose={onClose} class="wide">
      <Reading object={object} serverId={resource.serverId} uri={resource.uri} />
    </Dialog>
  );
}

export function Reading({ object, serverId, uri }) {
  const [state, setState] = useState({});
  useEffect(() => {
    const controller = new AbortController();
    setState({});
    ask(object, "resources/read", { method: "POST", body: { serverId, uri }, signal: controller.signal })
      .then((result) => setState({ result }))
      .catch((error) => controller.signal.aborted || setState({ error: error.message }));
    return () => controller.abort();
  }, [object, serverId, uri]);
  const { result, error } = state;
  return (
    <section class="result" aria-label="Contents" aria-busy={!result && !error}>
      {!result && !error && <p role="status">Reading…</p>}
      {error && <p class="error-banner" role="alert">{error}</p>}
      {result && (
        <>
          {(result.contents ?? []).map((contents, i) => <Contents key={i} contents={contents} />)}
          <Whole value={result} />
        </>
      )}
    </section>
  );
}
