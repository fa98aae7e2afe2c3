// Signing in to a server at its authorization server, in a window of its own or in this one. The user comes back to the
// dashboard's address in the window that left, which a note in that window's own storage tells apart.
import { hashOf } from "./place.js";

const NOTE = "workers-agents-sign-in";
const CHANNEL = "workers-agents-sign-in";

const noted = (object, isPopup) => JSON.stringify({ object, isPopup });

/** Leaves for the authorization server. */
export function signInHere(object, authUrl) {
  sessionStorage.setItem(NOTE, noted(object, false));
  location.assign(authUrl);
}

/** Opens it in a window of its own; in this one where the browser opens none. */
export function signInByPopup(object, authUrl) {
  const popup = window.open("", "", "popup,width=520,height=680");
  if (!popup) return signInHere(object, authUrl);
  popup.sessionStorage.setItem(NOTE, noted(object, true));
  // What comes next is not ours, and must not reach this window.
  popup.opener = null;
  popup.location.replace(authUrl);
}

/** Calls `listener` with the object when the user has come back in another window. Gives a function that ends that. */
export function onSignedIn(listener) {
  const channel = new BroadcastChannel(CHANNEL);
  channel.onmessage = ({ data }) => listener(data.object);
  return () => channel.close();
}

/** Finds out whether this window has just come back. True when it was a popup, which is closing. */
export function comeBack() {
  const note = sessionStorage.getItem(NOTE);
  if (!note) return false;
  sessionStorage.removeItem(NOTE);
  const { object, isPopup } = JSON.parse(note);
  const channel = new BroadcastChannel(CHANNEL);
  channel.postMessage({ object });
  channel.close();
  if (isPopup) window.close();
  else if (!location.hash) location.replace(hashOf({ object }));
  return isPopup;
}
