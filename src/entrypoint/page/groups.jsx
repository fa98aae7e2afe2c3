// Things of several servers, with a field to search them.
import { useMemo, useState } from "preact/hooks";

/** The first text that says something. */
export const nameOf = (item) =>
  [item.title, item.annotations?.title, item.name, item.uri, item.uriTemplate].find((text) => typeof text === "string" && text.trim()) ?? "(no name)";

const matches = (item, words) => {
  const text = [item.name, item.title, item.description, item.uri, item.uriTemplate].filter(Boolean).join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
};

/** `items` by server; `render` makes the buttons of one. */
export function Groups({ items, servers, stale = [], label, empty, render }) {
  const [search, setSearch] = useState("");
  const groups = useMemo(() => {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const byServer = Map.groupBy ? Map.groupBy(items.filter((item) => matches(item, words)), (item) => item.serverId) : grouped(items.filter((item) => matches(item, words)));
    return [...byServer];
  }, [items, search]);
  const named = (id) => servers.find((server) => server.id === id)?.name ?? id;
  const count = groups.reduce((sum, [, list]) => sum + list.length, 0);
  return (
    <>
      {items.length > 0 && (
        <label class="field search">
          Search {label}
          <input type="search" value={search} autocomplete="off" spellcheck={false} onInput={({ currentTarget }) => setSearch(currentTarget.value)} />
        </label>
      )}
      <p class="dim" role="status">{items.length === 0 ? empty : search ? `${count} of ${items.length}` : `${items.length} in all`}</p>
      {groups.map(([id, list]) => (
        <section key={id} class="card" aria-label={`${label} of ${named(id)}`}>
          <h3>{named(id)} <span class="dim id">{id}</span> {stale.includes(id) && <span class="dim">from before the object slept</span>}</h3>
          <ul class="plain">
            {list.map((item, i) => (
              <li key={`${item.name}\n${item.uri ?? item.uriTemplate ?? ""}\n${i}`} class="row item">
                <div>
                  <strong>{nameOf(item)}</strong>
                  <p class="dim">{[item.title && item.name, item.uri ?? item.uriTemplate, item.mimeType].filter(Boolean).join(" · ")}</p>
                  {item.description && <p class="clip">{item.description}</p>}
                </div>
                {render(item)}
              </li>
            ))}
          </ul>
        </section>
      ))}
    </>
  );
}

function grouped(items) {
  const groups = new Map();
  for (const item of items) groups.set(item.serverId, [...(groups.get(item.serverId) ?? []), item]);
  return groups;
}
