// Plain frames on a plain WebSocket. The npm clients (`agents/client`, `agents/react`) speak the same.
const part = (id) => document.getElementById(id);
const say = (text) => (part("status").textContent = text);

// An agent of this tab's own, as long as its address is kept.
location.hash ||= crypto.randomUUID();
const address = new URL(`/agents/asking-agent/${encodeURIComponent(location.hash.slice(1))}`, location.href);
address.protocol = address.protocol.replace("http", "ws");

let socket;
const calls = new Map();
const questions = new Map();

function connect() {
  socket = new WebSocket(address);
  socket.addEventListener("open", () => say("Connected."));
  socket.addEventListener("message", ({ data }) => {
    const frame = JSON.parse(data);
    FRAMES[frame.type]?.(frame);
  });
  socket.addEventListener("close", () => {
    for (const { reject } of calls.values()) reject(new Error("the connection is lost"));
    calls.clear();
    questions.clear();
    part("question").close();
    say("Connecting again …");
    setTimeout(connect, 1000);
  });
}

const FRAMES = {
  rpc({ id, success, result, error }) {
    const call = calls.get(id);
    calls.delete(id);
    if (success) call?.resolve(result);
    else call?.reject(new Error(error));
  },
  cf_agent_mcp_servers({ mcp }) {
    const options = mcp.tools.map(({ name, serverId }) => {
      const option = new Option(`${name} (${mcp.servers[serverId]?.name})`, JSON.stringify([serverId, name]));
      option.selected = option.value === part("tool").value;
      return option;
    });
    part("tool").replaceChildren(...options);
  },
  "mcp-elicitation"(question) {
    questions.set(question.id, question);
    showNext();
  },
  // Somebody has answered, here or elsewhere, or it has taken too long.
  "mcp-elicitation-closed"({ id }) {
    questions.delete(id);
    if (part("question").dataset.id === id) part("question").close();
    showNext();
  },
};

function call(method, ...args) {
  const id = crypto.randomUUID();
  return new Promise((resolve, reject) => {
    calls.set(id, { resolve, reject });
    socket.send(JSON.stringify({ type: "rpc", id, method, args }));
  });
}

function showNext() {
  const [question] = questions.values();
  if (!question || part("question").open) return;
  const { message, requestedSchema, url } = question.params;
  part("question").dataset.id = question.id;
  part("asker").textContent = `A question of ${question.serverId}`;
  part("message").textContent = message;
  part("problem").textContent = "";
  const required = requestedSchema?.required ?? [];
  const properties = Object.entries(requestedSchema?.properties ?? {});
  part("fields").replaceChildren(
    ...properties.map(([name, schema]) => field(name, schema, required.includes(name))),
    ...(url ? [pageToOpen(url)] : []),
  );
  part("question").showModal();
}

// The kinds of fields that MCP has: texts, numbers, yes or no, one of several, some of several.
function field(name, schema, isRequired) {
  const choices = choicesOf(schema.type === "array" ? (schema.items ?? {}) : schema);
  const input = document.createElement(choices ? "select" : "input");
  input.name = name;
  if (choices) {
    input.multiple = schema.type === "array";
    input.append(...choices.map(([value, title]) => new Option(title, value)));
    if (!isRequired && !input.multiple) input.prepend(new Option("", ""));
    const chosen = [schema.default ?? (isRequired ? choices[0]?.[0] : "")].flat();
    for (const option of input.options) option.selected = chosen.includes(option.value);
    input.required = isRequired && !input.multiple;
  } else if (schema.type === "boolean") {
    input.type = "checkbox";
    input.checked = schema.default === true;
  } else {
    const isNumber = schema.type === "number" || schema.type === "integer";
    const kinds = { email: "email", uri: "url", date: "date" };
    input.type = isNumber ? "number" : (kinds[schema.format] ?? "text");
    if (isNumber) input.step = schema.type === "integer" ? "1" : "any";
    const limits = { min: schema.minimum, max: schema.maximum, minLength: schema.minLength, maxLength: schema.maxLength };
    for (const [limit, value] of Object.entries(limits)) if (value !== undefined) input[limit] = value;
    input.value = schema.default ?? "";
    input.required = isRequired;
  }
  const label = document.createElement("label");
  label.className = input.type === "checkbox" ? "choice" : "";
  const title = `${schema.title ?? name}${schema.description ? `: ${schema.description}` : ""}`;
  label.append(...(input.type === "checkbox" ? [input, title] : [title, input]));
  return label;
}

function choicesOf({ enum: values, enumNames, oneOf, anyOf }) {
  if (values) return values.map((value, index) => [value, enumNames?.[index] ?? value]);
  return (oneOf ?? anyOf)?.map(({ const: value, title }) => [value, title ?? value]);
}

// The user sees which host it is before going there. The server never gets what is typed there from us.
function pageToOpen(text) {
  const line = document.createElement("p");
  const { protocol, host } = URL.canParse(text) ? new URL(text) : {};
  if (protocol !== "https:" && protocol !== "http:") {
    line.textContent = "Its address cannot be opened.";
    return line;
  }
  const link = Object.assign(document.createElement("a"), { href: text, target: "_blank", rel: "noopener noreferrer" });
  link.textContent = `Open a page of ${host}`;
  line.append(link);
  return line;
}

// What was typed, as the schema wants it. A field that is left empty is left out.
function contentOf(schema = {}) {
  const entries = Object.entries(schema.properties ?? {}).map(([name, { type }]) => {
    const input = part("fields").querySelector(`[name="${CSS.escape(name)}"]`);
    if (type === "boolean") return [name, input.checked];
    if (type === "array") return [name, [...input.selectedOptions].map(({ value }) => value)];
    if (input.value === "") return [name, undefined];
    return [name, type === "number" || type === "integer" ? Number(input.value) : input.value];
  });
  return Object.fromEntries(entries.filter(([, value]) => value !== undefined));
}

async function answer(action) {
  const question = questions.get(part("question").dataset.id);
  if (!question) return part("question").close();
  const schema = question.params.requestedSchema;
  const content = action === "accept" && schema ? { content: contentOf(schema) } : {};
  try {
    await call("respondToElicitation", question.id, { action, ...content });
  } catch (error) {
    part("problem").textContent = error.message;
  }
}

part("question").addEventListener("submit", (event) => {
  // It stays until the server says that the question is closed: an answer may not fit.
  event.preventDefault();
  answer(event.submitter.value);
});
part("question").addEventListener("cancel", (event) => {
  event.preventDefault();
  answer("cancel");
});
part("add").addEventListener("click", async () => {
  say("Connecting to the server …");
  await call("addServer").then(() => say("The server is ready."), ({ message }) => say(message));
});
part("call").addEventListener("submit", async (event) => {
  event.preventDefault();
  const show = (text) => (part("result").textContent = text);
  show("…");
  try {
    const [server, tool] = JSON.parse(part("tool").value);
    show(JSON.stringify(await call("callTool", server, tool, JSON.parse(part("arguments").value)), null, 2));
  } catch ({ message }) {
    show(message);
  }
});
connect();
