// Objects behind bindings, called by JavaScript RPC. Messages come and go as JSON text.

// A binding of a service answers to every name, too: what makes a namespace is having both of these.
const isNamespace = (it) =>
  typeof it === "object" && it !== null && typeof it.idFromName === "function" && typeof it.newUniqueId === "function";

// `undefined` where the Worker has no such binding.
export function stub(env, binding, name) {
  const namespace = Object.hasOwn(env, binding) ? env[binding] : undefined;
  return isNamespace(namespace) ? namespace.get(namespace.idFromName(name)) : undefined;
}

// A call holds on to both objects until its promise is let go, even one that has failed: without this, until the
// garbage is collected, and neither of them can be evicted meanwhile. One that is under way cannot be taken back.
async function settled(promise) {
  try {
    return await promise;
  } finally {
    promise[Symbol.dispose]?.();
  }
}

export async function start(object, props) {
  await settled(object.__unsafe_ensureInitialized(props === undefined ? undefined : JSON.parse(props)));
}

// Resolves to text, to `undefined` for nothing, or to a number: the length of a text that is too long.
export async function call(object, message, most) {
  const result = await settled(object.handleMcpMessage(JSON.parse(message)));
  if (result === undefined || result === null) return undefined;
  try {
    const text = asText(result);
    return text.length > most ? text.length : text;
  } finally {
    // A result may hold on to something at the other side, too. Plain values have no such method.
    result[Symbol.dispose]?.();
  }
}

function asText(result) {
  try {
    const text = JSON.stringify(result);
    if (typeof text === "string") return text;
  } catch (error) {
    throw Object.assign(new Error(String(error?.message)), { notJson: true });
  }
  throw Object.assign(new Error(`a ${typeof result}`), { notJson: true });
}
