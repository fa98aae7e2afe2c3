// A modal dialog: the browser keeps the focus in it, closes it on Escape, and gives the focus back.
import { useEffect, useId, useRef } from "preact/hooks";

export function Dialog({ title, onClose, children, class: kind = "", label = "Close" }) {
  const dialog = useRef();
  const id = useId();
  useEffect(() => {
    const { current } = dialog;
    const before = document.activeElement;
    current.showModal();
    return () => {
      current.close();
      if (before?.isConnected) before.focus();
      // What opened it is gone, a removed server's button say.
      else document.querySelector("main h2")?.focus();
    };
  }, []);
  // Closing is for whoever rendered it.
  const onCancel = (event) => {
    event.preventDefault();
    onClose();
  };
  return (
    <dialog ref={dialog} class={kind} aria-labelledby={id} onCancel={onCancel}>
      <header class="row spread">
        <h2 id={id} tabIndex={-1}>{title}</h2>
        <button type="button" class="quiet" onClick={onClose}>{label}</button>
      </header>
      {children}
    </dialog>
  );
}

/** A question with two answers. */
export function Confirm({ title, text, verb, onConfirm, onClose }) {
  return (
    <Dialog title={title} onClose={onClose} label="Cancel" class="small">
      <p>{text}</p>
      <div class="row end">
        <button type="button" class="danger" onClick={onConfirm}>{verb}</button>
      </div>
    </Dialog>
  );
}
