// Never at once: the exception would go through Wasm, and take down every object of the isolate.
export function abortSoon(state, reason) {
  setTimeout(() => state.abort(reason), 0);
}
