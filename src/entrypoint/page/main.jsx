// The dashboard. Everything that comes from a server is shown as text, never as markup.
import { render } from "preact";
import { App } from "./app.jsx";
import { comeBack } from "./sign-in.js";

const Done = () => <main class="login"><p>You are signed in. You can close this window.</p></main>;

render(comeBack() ? <Done /> : <App />, document.getElementById("app"));
