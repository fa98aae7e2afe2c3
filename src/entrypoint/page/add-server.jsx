// Adding a server.
import { useState } from "preact/hooks";
import { ask } from "./api.js";
import { useWork } from "./work.js";

const TRANSPORTS = { auto: "Automatic", "streamable-http": "Streamable HTTP", sse: "HTTP with SSE (2024)" };
const BLANK = { name: "", url: "", id: "", transport: "auto", headers: [] };

/** What is sent for the fields of the form. */
export function bodyOf({ name, url, id, transport, headers }) {
  const rows = headers.filter((row) => row.name.trim() !== "");
  return {
    name,
    url,
    ...(id && { id }),
    transport: { type: transport, headers: Object.fromEntries(rows.map((row) => [row.name.trim(), row.value])) },
  };
}

export function AddServer({ object, look, tell }) {
  const [fields, setFields] = useState(BLANK);
  const { busy, error, run } = useWork();
  const set = (name) => ({ currentTarget }) => setFields({ ...fields, [name]: currentTarget.value });
  const setHeaders = (headers) => setFields({ ...fields, headers });
  const submit = (event) => {
    event.preventDefault();
    run(async () => {
      try {
        const { state } = await ask(object, "servers", { method: "POST", body: bodyOf(fields) });
        setFields(BLANK);
        tell(state === "authenticating" ? `${fields.name} wants you to sign in.` : `${fields.name} is added.`);
      } finally {
        await look();
      }
    });
  };
  return (
    <section class="card" aria-labelledby="add-title">
      <h3 id="add-title">Add a server</h3>
      <form onSubmit={submit}>
        <div class="grid">
          <label class="field">Name <input value={fields.name} onInput={set("name")} required maxLength={100} autocomplete="off" /></label>
          <label class="field stretch">URL <input value={fields.url} onInput={set("url")} type="url" required autocomplete="off" placeholder="https://example.com/mcp" /></label>
        </div>
        <details>
          <summary>Transport, headers, id</summary>
          <div class="grid">
            <label class="field">Transport
              <select value={fields.transport} onChange={set("transport")}>
                {Object.entries(TRANSPORTS).map(([value, label]) => <option key={value} value={value}>{label}</option>)}
              </select>
            </label>
            <label class="field">Id <input value={fields.id} onInput={set("id")} maxLength={100} autocomplete="off" spellcheck={false} placeholder="made up" /></label>
          </div>
          <Headers headers={fields.headers} onChange={setHeaders} />
        </details>
        <button class="primary" disabled={busy}>{busy ? "Connecting…" : "Add and connect"}</button>
      </form>
      {error && <p class="error-banner" role="alert">{error}</p>}
    </section>
  );
}

/** Rows of names and values. Values are as secret as they look. */
function Headers({ headers, onChange }) {
  const replace = (i, change) => onChange(headers.map((row, at) => (at === i ? { ...row, ...change } : row)));
  return (
    <fieldset class="group">
      <legend>Headers</legend>
      {headers.map((row, i) => (
        <div key={i} class="row item-of-list">
          <label class="field">Header {i + 1} <input value={row.name} autocomplete="off" spellcheck={false} placeholder="authorization" onInput={({ currentTarget }) => replace(i, { name: currentTarget.value })} /></label>
          <label class="field stretch">Value {i + 1} <input type="password" value={row.value} autocomplete="off" onInput={({ currentTarget }) => replace(i, { value: currentTarget.value })} /></label>
          <button type="button" class="quiet" aria-label={`Remove header ${i + 1}`} onClick={() => onChange(headers.filter((_, at) => at !== i))}>Remove</button>
        </div>
      ))}
      <button type="button" class="quiet" onClick={() => onChange([...headers, { name: "", value: "" }])}>Add a header</button>
    </fieldset>
  );
}
