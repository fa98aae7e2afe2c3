// The servers: how they are, and what can be done with them.
import { useState } from "preact/hooks";
import { ask } from "./api.js";
import { AddServer } from "./add-server.jsx";
import { Confirm, Dialog } from "./dialog.jsx";
import { signInByPopup, signInHere } from "./sign-in.js";
import { useWork } from "./work.js";

export function Servers({ object, content, look, tell }) {
  const { servers, damaged } = content;
  return (
    <>
      <h2 tabIndex={-1}>Servers</h2>
      {servers.length + damaged.length === 0 && <p class="dim">None yet.</p>}
      <ul class="plain" aria-label="Servers">
        {servers.map((server) => <Server key={server.id} object={object} server={server} look={look} tell={tell} />)}
        {damaged.map((row) => <Damaged key={row.id} object={object} row={row} look={look} tell={tell} />)}
      </ul>
      <AddServer object={object} look={look} tell={tell} />
    </>
  );
}

const pathOf = (id) => `servers/${encodeURIComponent(id)}`;

/** Work on a server, after which everything is looked at again. */
function useServerWork(look) {
  const work = useWork();
  return { ...work, act: (what) => work.run(() => what().finally(look)) };
}

function Server({ object, server, look, tell }) {
  const { busy, error, act } = useServerWork(look);
  const [dialog, setDialog] = useState();
  const { id, name, authUrl } = server;
  const post = (verb) => act(() => ask(object, `${pathOf(id)}/${verb}`, { method: "POST" }));
  const remove = async () => {
    setDialog(undefined);
    if (await act(() => ask(object, pathOf(id), { method: "DELETE" }))) tell(`${name} is removed.`);
  };
  const about = (verb) => `${verb} ${name}`;
  return (
    <li class="card server" aria-label={name}>
      <div class="row spread">
        <h3>{name} <span class="dim id">{id}</span></h3>
        <State state={server.state} />
      </div>
      <Facts server={server} />
      {[error || server.error, ...server.problems].filter(Boolean).map((text) => <p key={text} class="error">{text}</p>)}
      <LastError last={server.lastError} current={error || server.error} />
      {server.instructions && <details><summary>Instructions of the server</summary><p class="prose">{server.instructions}</p></details>}
      <div class="row">
        {authUrl && (
          <>
            <button type="button" class="primary" aria-label={about("Sign in to")} onClick={() => signInByPopup(object, authUrl)}>Sign in</button>
            <button type="button" aria-label={about("Sign in in this tab to")} onClick={() => signInHere(object, authUrl)}>Sign in in this tab</button>
          </>
        )}
        <button type="button" disabled={busy} aria-label={about("Reconnect")} onClick={() => post("reconnect")}>Reconnect</button>
        {server.auth && <button type="button" disabled={busy} aria-label={about("Sign out of")} onClick={() => post("sign-out")}>Sign out</button>}
        <button type="button" disabled={busy} aria-label={about("Rename")} onClick={() => setDialog("rename")}>Rename…</button>
        <button type="button" class="danger" disabled={busy} aria-label={about("Remove")} onClick={() => setDialog("remove")}>Remove…</button>
      </div>
      {dialog === "remove" && (
        <Confirm title={`Remove ${name}?`} text="Its session, its lists and what is stored of its sign-in are forgotten." verb="Remove" onConfirm={remove} onClose={() => setDialog(undefined)} />
      )}
      {dialog === "rename" && <Rename object={object} id={id} look={look} tell={tell} onClose={() => setDialog(undefined)} />}
    </li>
  );
}

const State = ({ state }) => <span class={`state ${state}`}>{state}</span>;

const COUNTS = { tools: "tools", prompts: "prompts", resources: "resources", resourceTemplates: "templates" };
const FRESHNESS = { stored: "lists from before the object slept", fresh: "lists", unknown: "" };

function Facts({ server }) {
  const { url, serverInfo, protocolVersion, wire, counts, freshness, listedAt, auth, listening } = server;
  const listed = Object.entries(COUNTS).filter(([name]) => counts[name] > 0).map(([name, label]) => `${counts[name]} ${label}`);
  const since = listedAt ? `${FRESHNESS[freshness] || "lists"} of ${new Date(listedAt).toLocaleString()}` : FRESHNESS[freshness];
  const lines = [
    [url],
    [serverInfo && [serverInfo.title ?? serverInfo.name, serverInfo.version].filter(Boolean).join(" "), protocolVersion, wire, listening && "listening"],
    [...listed, since],
    [auth && `signed in at ${auth.issuer}`, auth?.scope && `for ${auth.scope}`],
  ];
  return lines.map((line) => line.filter(Boolean).join(" · ")).filter(Boolean).map((line) => <p key={line} class="dim">{line}</p>);
}

function LastError({ last, current }) {
  if (!last || last.message === current) return null;
  const tries = last.attempts > 1 ? `, after ${last.attempts} attempts` : "";
  return <p class="dim">Last error, {new Date(last.at).toLocaleString()}{tries}: {last.message}</p>;
}

function Rename({ object, id, look, tell, onClose }) {
  const [wanted, setWanted] = useState(id);
  const { busy, error, act } = useServerWork(look);
  const submit = async (event) => {
    event.preventDefault();
    const done = await act(async () => {
      const answer = await ask(object, `${pathOf(id)}/rename`, { method: "POST", body: { id: wanted } });
      tell(`The server is now ${answer.id}.`);
    });
    if (done) onClose();
  };
  return (
    <Dialog title={`Rename ${id}`} onClose={onClose} label="Cancel" class="small">
      <form onSubmit={submit}>
        <label class="field">New id <input value={wanted} required maxLength={100} autocomplete="off" spellcheck={false} onInput={({ currentTarget }) => setWanted(currentTarget.value)} /></label>
        <button class="primary" disabled={busy}>Rename</button>
      </form>
      {error && <p class="error-banner" role="alert">{error}</p>}
    </Dialog>
  );
}

/** A row that cannot be read. All that can be done with it is to remove it. */
function Damaged({ object, row, look, tell }) {
  const { busy, error, act } = useServerWork(look);
  const [asked, setAsked] = useState(false);
  const remove = async () => {
    setAsked(false);
    if (await act(() => ask(object, pathOf(row.id), { method: "DELETE" }))) tell(`${row.id} is removed.`);
  };
  return (
    <li class="card server" aria-label={row.id}>
      <div class="row spread"><h3>{row.id}</h3><State state="damaged" /></div>
      <p class="error">{error || row.reason}</p>
      <button type="button" class="danger" disabled={busy} aria-label={`Remove ${row.id}`} onClick={() => setAsked(true)}>Remove…</button>
      {asked && <Confirm title={`Remove ${row.id}?`} text="What is stored of it is forgotten." verb="Remove" onConfirm={remove} onClose={() => setAsked(false)} />}
    </li>
  );
}
