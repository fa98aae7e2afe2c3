// The arguments of a tool: as a form, or as JSON.
import { useMemo, useState } from "preact/hooks";
import { Fields } from "./fields.jsx";
import { formOf, initialOf } from "./schema.js";

/**
 * Keeps the arguments that a schema asks for. `text()` gives them as JSON, or throws an error for the user; what was
 * written as JSON is given as it was written.
 */
export function useArguments(schema) {
  const form = useMemo(() => formOf(schema), [schema]);
  const canFill = form.kind === "object";
  const [value, setValue] = useState(() => (canFill ? initialOf(form) : undefined));
  const [raw, setRaw] = useState(canFill ? undefined : "{}");
  const [version, setVersion] = useState(0);

  const parsed = () => {
    let object;
    try {
      object = JSON.parse(raw);
    } catch {
      throw new Error("The arguments are not JSON.");
    }
    if (typeof object !== "object" || object === null || Array.isArray(object)) {
      throw new Error("The arguments are not a JSON object.");
    }
    return object;
  };
  const text = () => (raw === undefined ? JSON.stringify(value ?? {}) : (parsed(), raw));
  const toJson = () => setRaw(JSON.stringify(value ?? {}, null, 2));
  const toForm = () => {
    setValue(parsed());
    setRaw(undefined);
    // Fields that keep a text of their own begin anew.
    setVersion(version + 1);
  };
  return { form, canFill, value, setValue, raw, setRaw, text, toJson, toForm, version };
}

export function Arguments({ args, say }) {
  const { form, canFill, value, setValue, raw, setRaw, toJson, toForm, version } = args;
  const asForm = () => {
    try {
      toForm();
      say("");
    } catch (error) {
      say(error.message);
    }
  };
  const Switch = ({ isOn, onClick, children }) => (
    <button type="button" class="tab" aria-pressed={isOn} onClick={onClick}>{children}</button>
  );
  return (
    <>
      {canFill && (
        <div class="row tabs" role="group" aria-label="How to give the arguments">
          <Switch isOn={raw === undefined} onClick={() => raw !== undefined && asForm()}>Form</Switch>
          <Switch isOn={raw !== undefined} onClick={() => raw === undefined && toJson()}>JSON</Switch>
        </div>
      )}
      {raw === undefined ? (
        <div key={version} class="fields">
          {form.fields.length === 0 && <p class="dim">It takes no arguments.</p>}
          <Fields form={form} value={value} onChange={setValue} />
        </div>
      ) : (
        <label class="field">
          Arguments, as JSON
          <textarea class="code" rows="8" spellcheck={false} value={raw} onInput={({ currentTarget }) => setRaw(currentTarget.value)} />
        </label>
      )}
    </>
  );
}
