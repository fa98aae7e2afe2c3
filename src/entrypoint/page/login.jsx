// The way in, where the Worker wants its token.
import { useState } from "preact/hooks";
import { logIn } from "./api.js";
import { useWork } from "./work.js";

export function Login({ onDone }) {
  const [token, setToken] = useState("");
  const { busy, error, run } = useWork();
  const submit = async (event) => {
    event.preventDefault();
    if (await run(() => logIn(token))) onDone();
    // Kept nowhere: from here on a cookie speaks for us, which no script can read.
    setToken("");
  };
  return (
    <main class="login">
      <section class="card">
        <h1>workers-agents</h1>
        <form onSubmit={submit}>
          <label class="field">
            <span>The <code>AGENT_TOKEN</code> of this Worker</span>
            <input type="password" value={token} required autocomplete="current-password" onInput={({ currentTarget }) => setToken(currentTarget.value)} />
          </label>
          <button class="primary" disabled={busy}>Sign in</button>
        </form>
        {error && <p class="error-banner" role="alert">{error}</p>}
      </section>
    </main>
  );
}
