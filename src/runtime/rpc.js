// Objects behind bindings, called by JavaScript RPC. Messages come and go as JSON text.

// A binding of a service answers to every name, too: what makes a namespace is having both of these.
const isNamespace = (it) =>
  typeof it === "object" && it !== null && typeof it.idFromName === "function" && typeof it.newUniqueId === "function";

// `undefined` where the Worker has no such binding.
export function stub(env, binding, name) {
  const namespace = Object.hasOwn(env, binding) ? env[binding] : undefined;
  return isNamespace(namespace) ? namespace.get(namespace.idFromName(name)) : undefined;
}

// A call holds on to both objects until its promise is let go, even one that has failed: without that, until the
// garbage is collected, and neither of them can be evicted meanwhile.
const letGo = (promise) => promise[Symbol.dispose]?.();

export async function start(object, props) {
  const started = object.__unsafe_ensureInitialized(props === undefined ? undefined : JSON.parse(props));
  try {
    await started;
  } finally {
    letGo(started);
  }
}

export class Call {
  #returned;

  constructor(object, message) {
    this.#returned = object.handleMcpMessage(JSON.parse(message));
  }

  // Resolves to text, to `undefined` for nothing, or to a number: the length of a text that is too long.
  async text(most) {
    let result;
    try {
      result = await this.#returned;
      if (result === undefined || result === null) return undefined;
      const text = asText(result);
      return text.length > most ? text.length : text;
    } finally {
      letGo(this.#returned);
      // A result may hold on to something at the other side, too. Plain values have no such method.
      result?.[Symbol.dispose]?.();
    }
  }

  // Nobody waits for it any more.
  abandon() {
    letGo(this.#returned);
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
