// The tools: to be found, filled in, called, and given up.
import { useEffect, useRef, useState } from "preact/hooks";
import { callTool } from "./api.js";
import { Arguments, useArguments } from "./arguments.jsx";
import { Dialog } from "./dialog.jsx";
import { Groups, nameOf } from "./groups.jsx";
import { Whole } from "./json.jsx";
import { ReadDialog } from "./reading.jsx";
import { ToolResult } from "./result.jsx";

export function Tools({ object, content, look }) {
  const [open, setOpen] = useState();
  return (
    <>
      <h2 tabIndex={-1}>Tools</h2>
      <Groups
        items={content.tools}
        servers={content.servers}
        stale={content.stale}
        label="tools"
        empty="There are no tools: add a server that has some."
        render={(tool) => <button type="button" aria-label={`Call ${nameOf(tool)}`} onClick={() => setOpen(tool)}>Call…</button>}
      />
      {open && <ToolDialog object={object} tool={open} look={look} onClose={() => setOpen(undefined)} />}
    </>
  );
}

function ToolDialog({ object, tool, look, onClose }) {
  const args = useArguments(tool.inputSchema);
  const call = useCall(object, tool, look);
  const [reading, setReading] = useState();
  const submit = (event) => {
    event.preventDefault();
    call.start(args.text);
  };
  return (
    <Dialog title={nameOf(tool)} onClose={onClose} class="wide">
      {tool.description && <p class="prose">{tool.description}</p>}
      <Hints annotations={tool.annotations} />
      <form onSubmit={submit}>
        <Arguments args={args} say={call.say} />
        <div class="row">
          <button class="primary" disabled={call.running}>Call</button>
          {call.running && <button type="button" onClick={call.cancel}>Cancel the call</button>}
        </div>
      </form>
      <div role="status">
        {call.running && <Progress progress={call.progress} />}
        {call.note && <p class="dim">{call.note}</p>}
      </div>
      {call.error && <p class="error-banner" role="alert">{call.error}</p>}
      {call.result && <ToolResult result={call.result} read={(link) => setReading({ ...link, serverId: tool.serverId })} />}
      <Whole value={{ inputSchema: tool.inputSchema, outputSchema: tool.outputSchema, annotations: tool.annotations }} label="Schema" />
      {reading && <ReadDialog object={object} resource={reading} onClose={() => setReading(undefined)} />}
    </Dialog>
  );
}

/** What the server claims that the tool does. */
function Hints({ annotations = {} }) {
  const said = [
    annotations.readOnlyHint === true && "only reads",
    annotations.destructiveHint === true && annotations.readOnlyHint !== true && "may destroy",
    annotations.idempotentHint === true && "may be repeated",
    annotations.openWorldHint === true && "reaches outside",
  ].filter(Boolean);
  return said.length > 0 && <p class="dim">The server says that it {said.join(", ")}.</p>;
}

function Progress({ progress }) {
  const { progress: done, total, message } = progress ?? {};
  const isMeasured = total > 0 && done >= 0;
  const text = [message, isMeasured ? `${done} of ${total}` : done].filter((part) => part !== undefined).join(" · ");
  return (
    <div class="progress">
      <progress aria-label="Progress of the call" max={isMeasured ? total : undefined} value={isMeasured ? Math.min(done, total) : undefined} />
      <span>{text || "Waiting for the server…"}</span>
    </div>
  );
}

/** One call at a time. It is given up when whoever started it goes away. */
function useCall(object, tool, look) {
  const [state, setState] = useState({ running: false });
  const controller = useRef();
  useEffect(() => () => controller.current?.abort(), []);
  const start = async (textOf) => {
    let args;
    try {
      args = textOf();
    } catch (error) {
      return setState({ running: false, error: error.message });
    }
    const mine = (controller.current = new AbortController());
    setState({ running: true });
    const progress = (progress) => setState((state) => ({ ...state, progress }));
    let outcome;
    try {
      outcome = { result: await callTool(object, tool, args, { progress, signal: mine.signal }) };
    } catch (error) {
      outcome = error.name === "AbortError" ? { note: "Cancelled." } : { error: error.message };
    }
    controller.current = undefined;
    setState({ running: false, ...outcome });
    // A server that wants a sign-in says so by a call, for one.
    if (outcome.error) look();
  };
  return {
    ...state,
    start,
    cancel: () => controller.current?.abort(),
    say: (error) => setState((state) => ({ ...state, error })),
  };
}
