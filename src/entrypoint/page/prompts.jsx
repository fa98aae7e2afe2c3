// The prompts: to be filled in and read.
import { useState } from "preact/hooks";
import { ask } from "./api.js";
import { Completed, completes } from "./completion.jsx";
import { Dialog } from "./dialog.jsx";
import { Groups, nameOf } from "./groups.jsx";
import { Whole } from "./json.jsx";
import { Block } from "./result.jsx";
import { useWork } from "./work.js";

export function Prompts({ object, content }) {
  const [open, setOpen] = useState();
  const serverOf = ({ serverId }) => content.servers.find((server) => server.id === serverId);
  return (
    <>
      <h2 tabIndex={-1}>Prompts</h2>
      <Groups
        items={content.prompts}
        servers={content.servers}
        stale={content.stale}
        label="prompts"
        empty="There are no prompts."
        render={(prompt) => <button type="button" aria-label={`Get ${nameOf(prompt)}`} onClick={() => setOpen(prompt)}>Get…</button>}
      />
      {open && <PromptDialog object={object} prompt={open} server={serverOf(open)} onClose={() => setOpen(undefined)} />}
    </>
  );
}

function PromptDialog({ object, prompt, server, onClose }) {
  const fields = Array.isArray(prompt.arguments) ? prompt.arguments : [];
  const [values, setValues] = useState({});
  const [result, setResult] = useState();
  const { busy, error, run } = useWork();
  const target = completes(server) ? { type: "ref/prompt", name: prompt.name } : undefined;
  const given = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ""));
  const submit = (event) => {
    event.preventDefault();
    setResult(undefined);
    const body = { serverId: prompt.serverId, name: prompt.name, arguments: given };
    run(async () => setResult(await ask(object, "prompts/get", { method: "POST", body })));
  };
  return (
    <Dialog title={nameOf(prompt)} onClose={onClose} class="wide">
      {prompt.description && <p class="prose">{prompt.description}</p>}
      <form onSubmit={submit}>
        {fields.map(({ name, title, description, required }) => (
          <Completed
            key={name}
            object={object}
            serverId={prompt.serverId}
            target={target}
            name={name}
            label={title}
            help={description}
            required={required === true}
            value={values[name] ?? ""}
            others={Object.fromEntries(Object.entries(given).filter(([other]) => other !== name))}
            onChange={(value) => setValues({ ...values, [name]: value })}
          />
        ))}
        <button class="primary" disabled={busy}>Get</button>
      </form>
      <p role="status">{busy ? "Waiting for the server…" : ""}</p>
      {error && <p class="error-banner" role="alert">{error}</p>}
      {result && (
        <section class="result" aria-label="Result">
          {result.description && <p>{result.description}</p>}
          {(result.messages ?? []).map(({ role, content }, i) => (
            <article key={i} class="message">
              <h3>{role}</h3>
              {[content].flat().map((block, at) => <Block key={at} block={block} />)}
            </article>
          ))}
          <Whole value={result} />
        </section>
      )}
    </Dialog>
  );
}
