// A JSON value to be read: a tree that opens and closes.

const MAX_ITEMS = 200;
const OPEN_DEPTH = 2;

export function JsonTree({ value, name, depth = 0 }) {
  const label = name === undefined ? undefined : <span class="json-name">{name}: </span>;
  if (typeof value !== "object" || value === null) {
    return <div class="json-line">{label}<span class={`json-${value === null ? "null" : typeof value}`}>{JSON.stringify(value)}</span></div>;
  }
  const isList = Array.isArray(value);
  const entries = Object.entries(value);
  const size = isList ? `[${entries.length}]` : `{${entries.length}}`;
  if (entries.length === 0) return <div class="json-line">{label}{isList ? "[]" : "{}"}</div>;
  return (
    <details class="json" open={depth < OPEN_DEPTH}>
      <summary>{label}<span class="dim">{size}</span></summary>
      {entries.slice(0, MAX_ITEMS).map(([key, child]) => <JsonTree key={key} name={key} value={child} depth={depth + 1} />)}
      {entries.length > MAX_ITEMS && <div class="dim">and {entries.length - MAX_ITEMS} more, in the whole answer below</div>}
    </details>
  );
}

const MAX_TEXT = 200_000;

/** Text as it is, a part of it where it is very long. */
export function LongText({ text, class: kind = "" }) {
  const shown = text.length > MAX_TEXT ? text.slice(0, MAX_TEXT) : text;
  return (
    <>
      <pre class={kind} tabIndex={0}>{shown}</pre>
      {shown !== text && <p class="dim">The first {MAX_TEXT.toLocaleString()} of {text.length.toLocaleString()} characters.</p>}
    </>
  );
}

/** Everything, to be opened. */
export const Whole = ({ value, label = "Whole answer, as JSON" }) => (
  <details class="whole">
    <summary>{label}</summary>
    <LongText class="code" text={JSON.stringify(value, null, 2)} />
  </details>
);
