// A text field that offers what the server would complete it with.
import { useEffect, useId, useState } from "preact/hooks";
import { ask } from "./api.js";

const PAUSE_MS = 200;

/**
 * `target` is the reference of the protocol, or undefined where the server completes nothing; `others` are the values of
 * the other fields.
 */
export function Completed({ object, serverId, target, name, value, others, onChange, label, help, required }) {
  const id = useId();
  const [offers, setOffers] = useState([]);
  const [touched, setTouched] = useState(false);
  const about = JSON.stringify([target, others]);
  useEffect(() => {
    if (!target || !touched) return undefined;
    const controller = new AbortController();
    const timer = setTimeout(async () => {
      const body = { serverId, ref: target, argument: { name, value }, arguments: others };
      try {
        const { values } = await ask(object, "completion", { method: "POST", body, signal: controller.signal });
        setOffers(values.filter((offer) => offer !== value).slice(0, 100));
      } catch {
        // It is only an offer.
        if (!controller.signal.aborted) setOffers([]);
      }
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [object, serverId, name, value, touched, about]);
  return (
    <div class="field">
      <label for={id} class={required ? "required" : undefined}>{label ?? name}</label>
      <input
        id={id}
        list={`${id}-offers`}
        value={value}
        required={required}
        autocomplete="off"
        aria-describedby={help && `${id}-help`}
        onFocus={() => setTouched(true)}
        onInput={({ currentTarget }) => onChange(currentTarget.value)}
      />
      <datalist id={`${id}-offers`}>{offers.map((offer) => <option key={offer} value={offer} />)}</datalist>
      {help && <p class="help" id={`${id}-help`}>{help}</p>}
    </div>
  );
}

/** Whether a server says that it completes arguments. */
export const completes = (server) => server?.capabilities?.completions !== undefined;
