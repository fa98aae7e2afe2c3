// The dashboard of one object.
import { useEffect, useRef, useState } from "preact/hooks";
import { logOut, onLoggedOut, session } from "./api.js";
import { useContent } from "./content.js";
import { Log } from "./log.jsx";
import { Login } from "./login.jsx";
import { VIEWS, hashOf, usePlace } from "./place.js";
import { Prompts } from "./prompts.jsx";
import { Questions } from "./questions.jsx";
import { Resources } from "./resources.jsx";
import { Servers } from "./servers.jsx";
import { onSignedIn } from "./sign-in.js";
import { Tools } from "./tools.jsx";

const SHOWN = { servers: Servers, tools: Tools, prompts: Prompts, resources: Resources, log: Log };
const LABELS = { servers: "Servers", tools: "Tools", prompts: "Prompts", resources: "Resources", log: "Log" };

/** Asks whether we may come in, and shows the way in where we may not. */
export function App() {
  const [gate, setGate] = useState();
  const look = () => session().then(setGate, (error) => setGate({ error }));
  useEffect(() => {
    look();
    return onLoggedOut(() => setGate({ needed: true, signedIn: false }));
  }, []);
  if (!gate) return <main aria-busy="true" />;
  if (gate.error) return <main><p class="error-banner" role="alert">{gate.error.message}</p></main>;
  if (!gate.signedIn) return <Login onDone={look} />;
  const leave = () => logOut().finally(() => setGate({ needed: true, signedIn: false }));
  return <Dashboard onLogOut={gate.needed ? leave : undefined} />;
}

function Dashboard({ onLogOut }) {
  const { object, view } = usePlace();
  const { content, error, look } = useContent(object);
  const [told, setTold] = useState("");
  useEffect(() => {
    document.title = `${LABELS[view]} · ${object} · workers-agents`;
    setTold("");
  }, [object, view]);
  useEffect(() => onSignedIn((where) => where === object && look()), [object, look]);
  useFocusOnChange(view);
  const View = SHOWN[view];
  return (
    <>
      <header class="top">
        <h1>workers-agents</h1>
        <ObjectPicker key={object} object={object} view={view} />
        {onLogOut && <button type="button" class="quiet" onClick={onLogOut}>Log out</button>}
      </header>
      <nav aria-label="Views">
        {VIEWS.map((name) => (
          <a key={name} href={hashOf({ object, view: name })} aria-current={name === view ? "page" : undefined}>
            {LABELS[name]}<Count content={content} view={name} />
          </a>
        ))}
      </nav>
      <main>
        {error && <p class="error-banner" role="alert">{error.message}</p>}
        <p role="status" class="told">{told}</p>
        {content && <Questions key={object} object={object} questions={content.questions} look={look} />}
        {content ? <View key={object} object={object} content={content} look={look} tell={setTold} /> : !error && <p class="dim">…</p>}
      </main>
    </>
  );
}

const Count = ({ content, view }) => content?.[view]?.length > 0 && <span class="count"> {content[view].length}</span>;

function ObjectPicker({ object, view }) {
  const [name, setName] = useState(object);
  const submit = (event) => {
    event.preventDefault();
    location.hash = hashOf({ object: name, view });
  };
  return (
    <form class="row picker" onSubmit={submit}>
      <label>Object <input value={name} required maxLength={200} autocomplete="off" spellcheck={false} onInput={({ currentTarget }) => setName(currentTarget.value)} /></label>
      <button>Open</button>
    </form>
  );
}

/** Whoever chose another view by keyboard goes on reading there. */
function useFocusOnChange(view) {
  const before = useRef(view);
  useEffect(() => {
    if (before.current === view) return;
    before.current = view;
    document.querySelector("main h2")?.focus();
  }, [view]);
}
