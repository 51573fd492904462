// Dialogs on the platform's own element, which keeps the focus and closes by Esc.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { ActionError } from "../actions.ts";
import { visible } from "../format.ts";
import { at } from "../router.ts";
import { Icon } from "./icon.tsx";
import { Command } from "./copy.tsx";
import { Plan, type Planned } from "./plan.tsx";

/** A dialog that is open as long as it is rendered. */
export function Dialog({ title, close, children, wide = false }: { title: string; close: () => void; children: ComponentChildren; wide?: boolean }) {
  const element = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const dialog = element.current!;
    const before = document.activeElement as HTMLElement | null;
    dialog.showModal();
    return () => {
      dialog.close();
      before?.focus?.();
    };
  }, []);
  return (
    <dialog
      ref={element}
      class={wide ? "wide" : ""}
      aria-label={title}
      onCancel={(event) => (event.preventDefault(), close())}
      onClick={(event) => event.target === element.current && close()}
    >
      <header>
        <h2>{title}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={close}>
          <Icon name="close" />
        </button>
      </header>
      {children}
    </dialog>
  );
}

/** What is wrong with a form, and with which field. */
export interface Wrong {
  text: string;
  field: string | null;
}

/** A form in a dialog: sends, shows what is wrong, closes when it was accepted. */
export function FormDialog(props: {
  title: string;
  verb: string;
  danger?: boolean;
  close: () => void;
  /** Says what is wrong before anything is sent. */
  check: () => Wrong | null;
  send: () => Promise<unknown>;
  /** The action with its arguments, of which the plan is shown; null: it is not an action, and can be sent whatever time is looked at. */
  action: Planned | null;
  /** Whether the action is complete, so that it can be planned; by default once nothing is wrong. */
  isComplete?: boolean;
  command: string | null;
  children: (wrong: Wrong | null) => ComponentChildren;
}) {
  const wrong = useSignal<Wrong | null>(null);
  const busy = useSignal(false);
  const isPast = props.action !== null && at.value !== null;
  const submit = async (event: Event) => {
    event.preventDefault();
    wrong.value = props.check();
    if (wrong.value || busy.value || isPast) return;
    busy.value = true;
    try {
      await props.send();
      props.close();
    } catch (error) {
      wrong.value = { text: (error as Error).message, field: error instanceof ActionError ? error.field : null };
    } finally {
      busy.value = false;
    }
  };
  return (
    <Dialog title={props.title} close={props.close}>
      <form onSubmit={submit} noValidate>
        {props.children(wrong.value)}
        {wrong.value && (
          <p class="wrong" role="alert">
            {visible(wrong.value.text, 600)}
          </p>
        )}
        {isPast && <p class="reason h-away" data-past>You look at a past time, and nothing is sent from there. Go back to now.</p>}
        {props.action !== null && !isPast && <Plan action={props.action} isReady={props.isComplete ?? props.check() === null} />}
        {props.command !== null && (
          <details>
            <summary>Copy as command</summary>
            <Command line={props.command} />
          </details>
        )}
        <footer>
          <button type="button" onClick={props.close}>
            Cancel
          </button>
          <button type="submit" class={props.danger ? "danger" : "primary"} disabled={busy.value || isPast}>
            {props.verb}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

/** A field with its label, its hint, and a mark when it is wrong. */
export function Field(props: { name: string; label: string; hint?: string; wrong: Wrong | null; children: (id: string, described: string) => ComponentChildren }) {
  const id = `field-${props.name}`;
  return (
    <div class={`field ${props.wrong?.field === props.name ? "field-wrong" : ""}`}>
      <label for={id}>{props.label}</label>
      {props.children(id, `${id}-hint`)}
      <p class="hint" id={`${id}-hint`}>
        {props.hint}
      </p>
    </div>
  );
}

/** Asks for the name of what will be destroyed. */
export function TypeTheName(props: { title: string; verb: string; name: string; consequence: string; action: Planned; command: string | null; send: () => Promise<unknown>; close: () => void }) {
  const typed = useSignal("");
  return (
    <FormDialog
      title={props.title}
      verb={props.verb}
      danger
      close={props.close}
      action={props.action}
      isComplete
      command={props.command}
      check={() => (typed.value === props.name ? null : { text: "The name is not the one above.", field: "confirm" })}
      send={props.send}
    >
      {(wrong) => (
        <>
          <p>{props.consequence}</p>
          <Field name="confirm" label={`Type the name: ${visible(props.name)}`} wrong={wrong}>
            {(id) => <input id={id} autocomplete="off" spellcheck={false} value={typed.value} onInput={(event) => (typed.value = event.currentTarget.value)} />}
          </Field>
        </>
      )}
    </FormDialog>
  );
}
