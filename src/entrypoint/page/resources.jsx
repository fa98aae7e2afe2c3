// The resources and their templates: to be read.
import { useState } from "preact/hooks";
import { Completed, completes } from "./completion.jsx";
import { Dialog } from "./dialog.jsx";
import { Groups, nameOf } from "./groups.jsx";
import { ReadDialog, Reading } from "./reading.jsx";
import { expand, variablesOf } from "./uri-template.js";

export function Resources({ object, content }) {
  const [open, setOpen] = useState();
  const serverOf = ({ serverId }) => content.servers.find((server) => server.id === serverId);
  const close = () => setOpen(undefined);
  const button = (verb) => (item) => <button type="button" aria-label={`${verb} ${nameOf(item)}`} onClick={() => setOpen(item)}>{verb}</button>;
  return (
    <>
      <h2 tabIndex={-1}>Resources</h2>
      <Groups items={content.resources} servers={content.servers} stale={content.stale} label="resources" empty="There are no resources." render={button("Read")} />
      <h2>Templates of resources</h2>
      <Groups items={content.resourceTemplates} servers={content.servers} label="templates" empty="There are no templates." render={button("Fill in")} />
      {open?.uriTemplate !== undefined && <TemplateDialog object={object} template={open} server={serverOf(open)} onClose={close} />}
      {open && open.uriTemplate === undefined && <ReadDialog object={object} resource={open} onClose={close} />}
    </>
  );
}

function TemplateDialog({ object, template, server, onClose }) {
  const [values, setValues] = useState({});
  const [wanted, setWanted] = useState();
  const given = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ""));
  const uri = expand(template.uriTemplate, given);
  const target = completes(server) ? { type: "ref/resource", uri: template.uriTemplate } : undefined;
  const submit = (event) => {
    event.preventDefault();
    setWanted({ uri, at: Date.now() });
  };
  return (
    <Dialog title={nameOf(template)} onClose={onClose} class="wide">
      {template.description && <p class="prose">{template.description}</p>}
      <form onSubmit={submit}>
        {variablesOf(template.uriTemplate).map((name) => (
          <Completed
            key={name}
            object={object}
            serverId={template.serverId}
            target={target}
            name={name}
            value={values[name] ?? ""}
            others={Object.fromEntries(Object.entries(given).filter(([other]) => other !== name))}
            onChange={(value) => setValues({ ...values, [name]: value })}
          />
        ))}
        <p class="dim url">{uri}</p>
        <button class="primary">Read</button>
      </form>
      {wanted && <Reading key={wanted.at} object={object} serverId={template.serverId} uri={wanted.uri} />}
    </Dialog>
  );
}
