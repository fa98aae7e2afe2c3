// The fields of a form that a schema asks for. Every value is what would be sent; undefined is left out.
import { useId, useRef, useState } from "preact/hooks";
import { changed, initialOf, own } from "./schema.js";

/** The field of a form, with its label and what is known about it. */
export function Field({ form, value, onChange, required = false, fallbackLabel }) {
  const id = useId();
  const Kind = KINDS[form.kind];
  const label = form.label ?? fallbackLabel;
  const help = [form.help, hintOf(form)].filter(Boolean).join(" ");
  const props = { id, form, value, onChange, required, describedBy: help ? `${id}-help` : undefined };
  if (form.kind === "object" || form.kind === "list" || form.kind === "choices") {
    return (
      <fieldset class="group" aria-describedby={props.describedBy}>
        <legend class={markOf(required)}>{label}</legend>
        <Help id={props.describedBy} text={help} />
        <Kind {...props} label={label} />
      </fieldset>
    );
  }
  const isCheckbox = form.kind === "boolean";
  return (
    <div class={isCheckbox ? "field check" : "field"}>
      <label for={id} class={markOf(required && !isCheckbox)}>{label}</label>
      <Kind {...props} label={label} />
      <Help id={props.describedBy} text={help} />
    </div>
  );
}

/** Marks a label for the eye; assistive technology is told by the field itself. */
const markOf = (required) => (required ? "required" : undefined);
const Help = ({ id, text }) => text && <p class="help" id={id}>{text}</p>;

function hintOf({ kind, format, input, pattern, minItems, maxItems, isInteger }) {
  if (kind === "string") return [format && input === "text" && `Format: ${format}.`, pattern && `Pattern: ${pattern}`].filter(Boolean).join(" ");
  if (kind === "number" && isInteger) return "A whole number.";
  if (kind === "choices" || kind === "list") return [minItems && `At least ${minItems}.`, maxItems && `At most ${maxItems}.`].filter(Boolean).join(" ");
  return undefined;
}

/** The fields of an object, without a frame of their own. */
export function Fields({ form, value, onChange }) {
  return form.fields.map(({ name, required, form: field }) => (
    <Field
      key={name}
      form={field}
      fallbackLabel={name}
      required={required}
      value={own(value, name)}
      onChange={(next) => onChange(changed(value, name, next))}
    />
  ));
}

function Text({ id, form, value, onChange, required, describedBy }) {
  const Tag = form.isLong ? "textarea" : "input";
  return (
    <Tag
      id={id}
      type={form.isLong ? undefined : form.input}
      rows={form.isLong ? 4 : undefined}
      value={value ?? ""}
      required={required}
      minLength={form.minLength}
      maxLength={form.maxLength}
      autocomplete="off"
      aria-describedby={describedBy}
      onInput={({ currentTarget }) => onChange(currentTarget.value === "" ? undefined : currentTarget.value)}
    />
  );
}

function Numeric({ id, form, value, onChange, required, describedBy }) {
  // As it is being written: a number that is half written must not be put right.
  const [text, setText] = useState(value ?? "");
  const change = ({ currentTarget }) => {
    setText(currentTarget.value);
    onChange(currentTarget.value === "" ? undefined : currentTarget.valueAsNumber);
  };
  return (
    <input
      id={id}
      type="number"
      step={form.isInteger ? 1 : "any"}
      inputMode={form.isInteger ? "numeric" : "decimal"}
      value={text}
      min={form.min}
      max={form.max}
      required={required}
      aria-describedby={describedBy}
      onInput={change}
    />
  );
}

function Checkbox({ id, value, onChange, describedBy }) {
  const props = { id, type: "checkbox", checked: value === true, "aria-describedby": describedBy };
  return <input {...props} onChange={({ currentTarget }) => onChange(currentTarget.checked)} />;
}

const isSame = (one, other) => JSON.stringify(one) === JSON.stringify(other);

function Choice({ id, form, value, onChange, required, describedBy }) {
  const chosen = form.options.findIndex((option) => isSame(option.value, value));
  return (
    <select
      id={id}
      required={required}
      aria-describedby={describedBy}
      value={chosen === -1 ? "" : `${chosen}`}
      onChange={({ currentTarget }) => onChange(form.options[currentTarget.value]?.value)}
    >
      <option value="">{required ? "Choose…" : "(none)"}</option>
      {form.options.map((option, i) => <option key={i} value={`${i}`}>{option.label}</option>)}
    </select>
  );
}

/** A list that is not asked for is left out rather than empty. */
const listOrNothing = (list, required) => (list.length > 0 || required ? list : undefined);

function Choices({ form, value, onChange, required }) {
  const list = Array.isArray(value) ? value : [];
  const isChosen = (option) => list.some((kept) => isSame(kept, option.value));
  const toggle = (option, on) => {
    // In the order of the options, whatever the order of the clicks.
    const chosen = form.options.filter((one) => (one === option ? on : isChosen(one)));
    onChange(listOrNothing(chosen.map((one) => one.value), required));
  };
  return form.options.map((option, i) => (
    <label key={i} class="check">
      <input type="checkbox" checked={isChosen(option)} onChange={({ currentTarget }) => toggle(option, currentTarget.checked)} />
      {option.label}
    </label>
  ));
}

function List({ form, value, onChange, required, label = "item" }) {
  const list = Array.isArray(value) ? value : [];
  // Fields keep what is being written in them, so each stays with its item.
  const keys = useRef({ next: 0, list: [] }).current;
  while (keys.list.length < list.length) keys.list.push(keys.next++);
  const replace = (i, next) => onChange(list.map((kept, at) => (at === i ? next : kept)));
  const remove = (i) => {
    keys.list.splice(i, 1);
    onChange(listOrNothing(list.filter((_, at) => at !== i), required));
  };
  return (
    <>
      {list.map((item, i) => (
        <div key={keys.list[i]} class="row item-of-list">
          <Field form={form.item} fallbackLabel={`${label} ${i + 1}`} required value={item} onChange={(next) => replace(i, next)} />
          <button type="button" class="quiet" aria-label={`Remove ${label} ${i + 1}`} onClick={() => remove(i)}>Remove</button>
        </div>
      ))}
      <button type="button" class="quiet" onClick={() => onChange([...list, initialOf(form.item)])}>Add {label}</button>
    </>
  );
}

/** JSON for what has no field of its own. What cannot be read keeps the form from being sent. */
function Json({ id, value, onChange, required, describedBy }) {
  const [text, setText] = useState(value === undefined ? "" : JSON.stringify(value, null, 2));
  const change = ({ currentTarget }) => {
    setText(currentTarget.value);
    currentTarget.setCustomValidity("");
    if (currentTarget.value.trim() === "") return onChange(undefined);
    try {
      onChange(JSON.parse(currentTarget.value));
    } catch {
      currentTarget.setCustomValidity("This is not JSON.");
    }
  };
  return (
    <textarea id={id} class="code" rows="3" spellcheck={false} placeholder="JSON" value={text} required={required} aria-describedby={describedBy} onInput={change} />
  );
}

const KINDS = { string: Text, number: Numeric, boolean: Checkbox, choice: Choice, choices: Choices, list: List, object: Fields, json: Json };
