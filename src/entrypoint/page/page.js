// The dashboard. Everything that comes from a server is shown as text, never as markup.

const $ = (id) => document.getElementById(id);
const TOKEN = "workers-agents-token";
const SETTLED = new Set(["ready", "failed", "authenticating", "not-connected", "connected"]);

let object = objectOfAddress();
/** The refresh under way, and whether another one was asked for meanwhile. */
let refreshing = false;
let again = false;
/** Display names of the servers, by id. */
let names = new Map();

function objectOfAddress() {
  const hash = location.hash.slice(1);
  try {
    return decodeURIComponent(hash) || "default";
  } catch {
    // Not ours: somebody typed a lone percent sign.
    return hash;
  }
}

/** Makes an element with text or children. */
function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

class Problem extends Error {
  constructor(status, details) {
    super(details?.detail ?? `HTTP status ${status}`);
    this.status = status;
  }
}

/** One request of the JSON API of an object. */
async function api(target, path, { method = "GET", body } = {}) {
  const headers = {};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const response = await fetch(`/agents/tool-agent/${encodeURIComponent(target)}/${path}`, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await response.text();
  let answer = null;
  try {
    answer = text ? JSON.parse(text) : null;
  } catch {
    // Not ours: an intermediary's page, say. The status speaks for it.
  }
  if (!response.ok) {
    if (response.status === 401) $("token-form").hidden = false;
    throw new Problem(response.status, answer);
  }
  $("token-form").hidden = true;
  return answer;
}

function say(text) {
  $("message").textContent = text;
  $("message").hidden = !text;
}

/** Runs work for a button: one run at a time, failures shown. */
async function run(button, work) {
  if (button) button.disabled = true;
  say("");
  try {
    await work();
  } catch (error) {
    say(error.message);
  } finally {
    if (button) button.disabled = false;
  }
}

function action(label, work) {
  const button = element("button", { type: "button", textContent: label });
  button.onclick = () => run(button, async () => {
    try {
      await work();
    } finally {
      await refresh();
    }
  });
  return button;
}

function fill(id, items, empty) {
  $(id).replaceChildren(...(items.length ? items : [element("p", { className: "empty", textContent: empty })]));
}

/** Where the user signs in, in a tab of its own, or signs out. */
function signIn(server, path, target) {
  if (server.authUrl) {
    const link = { href: server.authUrl, target: "_blank", rel: "noopener noreferrer", textContent: "Sign in" };
    return [element("a", link)];
  }
  return server.auth ? [action("Sign out", () => api(target, `${path}/sign-out`, { method: "POST" }))] : [];
}

function showServer(server, target) {
  const path = `servers/${encodeURIComponent(server.id)}`;
  const about = element("div", {}, element("strong", { textContent: server.name }), ` ${server.id}`);
  const facts = [server.url, server.serverInfo?.name, server.protocolVersion].filter(Boolean);
  about.append(element("p", { textContent: facts.join(" · ") }));
  for (const problem of [server.error, ...server.problems]) {
    if (problem) about.append(element("p", { className: "error", textContent: problem }));
  }
  return element("div", { className: "item" }, about,
    element("span", { className: `state ${server.state}`, textContent: server.state }),
    element("div", { className: "row" },
      ...signIn(server, path, target),
      action("Reconnect", () => api(target, `${path}/reconnect`, { method: "POST" })),
      action("Remove", () => confirm(`Remove ${server.name}?`) && api(target, path, { method: "DELETE" }))));
}

function showDamaged(row, target) {
  const path = `servers/${encodeURIComponent(row.id)}`;
  return element("div", { className: "item" },
    element("div", {}, element("strong", { textContent: row.id }), element("p", { className: "error", textContent: row.reason })),
    element("span", { className: "state damaged", textContent: "damaged" }),
    action("Remove", () => confirm(`Remove ${row.id}?`) && api(target, path, { method: "DELETE" })));
}

/** The first text that says something. */
const firstText = (...texts) => texts.find((text) => typeof text === "string" && text.trim()) ?? "(no name)";

function showItem(item, kind, target) {
  const name = firstText(item.title, item.name, item.uri, item.uriTemplate);
  const about = element("div", {}, element("strong", { textContent: name }));
  about.append(element("p", { textContent: [kind, names.get(item.serverId) ?? item.serverId, item.description].filter(Boolean).join(" · ") }));
  const node = element("div", { className: "item" }, about);
  if (USES[kind]) {
    const button = element("button", { type: "button", textContent: USES[kind].verb });
    button.onclick = () => openDialog(item, kind, target);
    node.append(button);
  }
  return node;
}

const USES = {
  tool: {
    verb: "Call",
    send: (target, item, args) => api(target, "tools/call", { method: "POST", body: { serverId: item.serverId, name: item.name, arguments: args } }),
  },
  prompt: {
    verb: "Get",
    send: (target, item, args) => api(target, "prompts/get", { method: "POST", body: { serverId: item.serverId, name: item.name, arguments: args } }),
  },
  resource: {
    verb: "Read",
    send: (target, item) => api(target, "resources/read", { method: "POST", body: { serverId: item.serverId, uri: item.uri } }),
  },
};

/** What the dialog is open for; a result that comes later than that is dropped. */
let opened;

function openDialog(item, kind, target) {
  const mine = (opened = {});
  const schema = item.inputSchema ?? item.arguments;
  const form = $("use-form");
  $("use-title").textContent = firstText(item.title, item.name, item.uri);
  $("use-description").textContent = item.description ?? "";
  $("use-arguments").hidden = kind === "resource";
  $("use-schema").hidden = !schema;
  $("use-schema").querySelector("pre").textContent = JSON.stringify(schema, null, 2);
  $("use-result").hidden = true;
  form.elements.arguments.value = JSON.stringify(example(item.inputSchema), null, 2);
  const button = $("use-run");
  button.textContent = USES[kind].verb;
  button.onclick = async () => {
    button.disabled = true;
    let text;
    try {
      text = JSON.stringify(await USES[kind].send(target, item, JSON.parse(form.elements.arguments.value || "{}")), null, 2);
    } catch (error) {
      text = error.message;
    }
    if (opened !== mine) return;
    $("use-result").textContent = text;
    $("use-result").hidden = false;
    button.disabled = false;
  };
  button.disabled = false;
  $("use").showModal();
}

/** A starting point for the arguments: the required ones, empty. */
function example(schema) {
  const empty = { string: "", number: 0, integer: 0, boolean: false, array: [], object: {} };
  const required = Array.isArray(schema?.required) ? schema.required : [];
  return Object.fromEntries(required.map((name) => {
    const property = schema.properties?.[name] ?? {};
    return [name, property.default ?? property.enum?.[0] ?? empty[property.type] ?? null];
  }));
}

// The user may come back from signing in.
document.addEventListener("visibilitychange", () => document.hidden || refresh());

/** Shows the object as it is now. Asked for while it runs, it runs once more afterwards. */
async function refresh() {
  if (refreshing) {
    again = true;
    return;
  }
  refreshing = true;
  do {
    again = false;
    const target = object;
    try {
      await show(target);
    } catch (error) {
      if (target === object) say(error.message);
    }
  } while (again);
  refreshing = false;
}

async function show(target) {
  const { servers, damaged } = await api(target, "servers");
  const kinds = ["tools", "prompts", "resources", "resource-templates"];
  const [{ tools }, { prompts }, { resources }, { resourceTemplates }] = await Promise.all(
    kinds.map((kind) => api(target, `${kind}?wait=0`)));
  // Another object was opened meanwhile; its own refresh follows.
  if (target !== object) return;
  names = new Map(servers.map((server) => [server.id, server.name]));
  const rows = [...servers.map((server) => showServer(server, target)), ...damaged.map((row) => showDamaged(row, target))];
  fill("servers", rows, "None yet.");
  fill("tools", tools.map((item) => showItem(item, "tool", target)), "None.");
  fill("others", [
    ...prompts.map((item) => showItem(item, "prompt", target)),
    ...resources.map((item) => showItem(item, "resource", target)),
    ...resourceTemplates.map((item) => showItem(item, "template", target)),
  ], "None.");
  // Look again while a server is on its way.
  if (servers.some((server) => !SETTLED.has(server.state))) setTimeout(refresh, 1000);
}

function openObject(name) {
  object = name;
  $("object").value = name;
  for (const id of ["servers", "tools", "others"]) fill(id, [], "…");
  run(null, refresh);
}

$("object-form").onsubmit = (event) => {
  event.preventDefault();
  location.hash = encodeURIComponent($("object").value);
};
window.onhashchange = () => openObject(objectOfAddress());
$("token-form").onsubmit = (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, $("token").value);
  $("token").value = "";
  run(null, refresh);
};
$("add-form").onsubmit = (event) => {
  event.preventDefault();
  const form = event.target;
  const target = object;
  const { name, url, authorization } = Object.fromEntries(new FormData(form));
  const transport = authorization ? { headers: { authorization } } : undefined;
  run(form.querySelector("button"), async () => {
    try {
      await api(target, "servers", { method: "POST", body: { name, url, transport } });
      form.reset();
    } finally {
      await refresh();
    }
  });
};
openObject(object);
