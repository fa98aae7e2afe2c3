// What servers ask the user: one dialog at a time, and a line that says how many wait.
import { useMemo, useState } from "preact/hooks";
import { ask } from "./api.js";
import { Dialog } from "./dialog.jsx";
import { Fields } from "./fields.jsx";
import { formOf, initialOf } from "./schema.js";
import { useWork } from "./work.js";

/** The questions that are open. One that the user puts off waits in the line until it is taken up again. */
export function Questions({ object, questions, look }) {
  const [later, setLater] = useState(() => new Set());
  const current = questions.find((question) => !later.has(question.id));
  const waiting = questions.filter((question) => later.has(question.id)).length;
  return (
    <>
      <div role="status">
        {waiting > 0 && (
          <p class="banner row spread">
            {waiting === 1 ? "A server waits for an answer." : `${waiting} questions of servers wait for an answer.`}
            <button type="button" onClick={() => setLater(new Set())}>Answer</button>
          </p>
        )}
      </div>
      {current && (
        <Question key={current.id} object={object} question={current} look={look} onLater={() => setLater(new Set([...later, current.id]))} />
      )}
    </>
  );
}

function Question({ object, question, look, onLater }) {
  const { busy, error, run } = useWork();
  const answer = (body) =>
    run(async () => {
      try {
        await ask(object, `elicitations/${encodeURIComponent(question.id)}`, { method: "POST", body });
      } catch (problem) {
        // Somebody else has answered it, or the server has given up.
        if (problem.body?.kind !== "question-closed") throw problem;
      }
      await look();
    });
  const Body = question.mode === "url" ? UrlQuestion : FormQuestion;
  return (
    <Dialog title={`${question.serverName ?? question.serverId} asks`} onClose={onLater} label="Later" class="wide">
      <p class="dim">Asked by the server <strong>{question.serverName ?? question.serverId}</strong> <span class="id">{question.serverId}</span>, which gets your answer. Give it no passwords.</p>
      <p class="prose">{question.message}</p>
      <Body question={question} answer={answer} busy={busy} />
      {error && <p class="error-banner" role="alert">{error}</p>}
    </Dialog>
  );
}

const Refusals = ({ answer, busy }) => (
  <>
    <button type="button" disabled={busy} onClick={() => answer({ action: "decline" })}>Decline</button>
    <button type="button" disabled={busy} onClick={() => answer({ action: "cancel" })}>Cancel</button>
  </>
);

function FormQuestion({ question, answer, busy }) {
  const form = useMemo(() => formOf(question.requestedSchema), [question.id]);
  const [content, setContent] = useState(() => initialOf(form) ?? {});
  const submit = (event) => {
    event.preventDefault();
    answer({ action: "accept", content });
  };
  return (
    <form onSubmit={submit}>
      {form.kind === "object" && <Fields form={form} value={content} onChange={setContent} />}
      <div class="row">
        <button class="primary" disabled={busy}>Accept</button>
        <Refusals answer={answer} busy={busy} />
      </div>
    </form>
  );
}

/** A page that the server wants to be visited. It is opened only when the user says so, and never loaded here. */
function UrlQuestion({ question, answer, busy }) {
  const accept = () => {
    // Without a way back to this window, and without telling where it was opened.
    window.open(question.url, "_blank", "noopener,noreferrer");
    answer({ action: "accept" });
  };
  return (
    <>
      <p>It wants you to open this page of <strong class="host">{question.host}</strong>:</p>
      <p class="url"><Parts url={question.url} host={question.host} /></p>
      <p class="dim">What you do there is between you and that page. Open it only if you trust <strong>{question.host}</strong>.</p>
      <div class="row">
        <button type="button" class="primary" disabled={busy} onClick={accept}>Open the page</button>
        <Refusals answer={answer} busy={busy} />
      </div>
    </>
  );
}

/** The whole URL, its host emphasised. The host stands after the scheme, and after any name of a user. */
function Parts({ url, host }) {
  const [, before, rest] = /^([a-z]+:\/\/(?:[^/?#]*@)?)(.*)$/is.exec(url) ?? [];
  if (!rest?.startsWith(host)) return url;
  return <>{before}<strong class="host">{host}</strong>{rest.slice(host.length)}</>;
}
