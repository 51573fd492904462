// What is meant to be pasted elsewhere: a command with a button that copies it.
import { useSignal } from "@preact/signals";
import { visible } from "../format.ts";
import { Icon } from "./icon.tsx";

async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** A button that copies `text`, and says whether it could. */
export function CopyButton({ text, title = "Copy" }: { text: string; title?: string }) {
  const said = useSignal<string | null>(null);
  const copy = async () => {
    said.value = (await toClipboard(text)) ? "Copied" : "Select and copy it by hand";
    setTimeout(() => (said.value = null), 2000);
  };
  return (
    <button type="button" class="quiet" onClick={copy} aria-live="polite">
      <Icon name={said.value === "Copied" ? "done" : "copy"} />
      {said.value ?? title}
    </button>
  );
}

/** A command and its copy button. A command that cannot be written safely is not offered. */
export function Command({ line, why }: { line: string | null; why?: string }) {
  if (line === null) return <p class="note">The name has characters that must not be pasted into a shell, so no command is offered.</p>;
  return (
    <div class="command">
      {why && <p>{why}</p>}
      <div class="command-line">
        <code tabIndex={0} role="textbox" aria-readonly="true" aria-label="Command">{visible(line, 4000)}</code>
        <CopyButton text={line} />
      </div>
    </div>
  );
}
