// What an action will do, as the console plans it from what it knows: shown before it is sent.
import { useEffect } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { planOf } from "../actions.ts";
import { plural, visible } from "../format.ts";
import { changes, deed } from "../plan.ts";
import type { PlanStep } from "../wire.ts";
import { Text } from "./text.tsx";

/** An action with its arguments. */
export interface Planned {
  name: string;
  body: Record<string, unknown>;
}

/** The plan is asked for when the form has rested so long. */
const REST_MS = 300;
/** Steps and values that are listed. */
const STEPS_MAX = 20;
const VALUES_MAX = 20;

function Step({ step }: { step: PlanStep }) {
  const lines = changes(step);
  return (
    <li>
      {visible(deed(step), 120)} <strong><Text of={step.subject} longest={80} /></strong>
      {step.change === "write" && lines.length === 0 && <span class="note"> (as it is)</span>}
      {lines.length > 0 && (
        <ul class="plan-values">
          {lines.slice(0, VALUES_MAX).map((line) => (
            <li class="mono" key={line.path}><Text of={line.path} longest={80} />: {line.before !== null && <><Text of={line.before} longest={120} /> → </>}{line.after === null ? "–" : <Text of={line.after} longest={120} />}</li>
          ))}
          {lines.length > VALUES_MAX && <li>{plural(lines.length - VALUES_MAX, "more value")}</li>}
        </ul>
      )}
    </li>
  );
}

/** The plan of an action, as long as its form is ready to be sent. */
export function Plan({ action, isReady }: { action: Planned; isReady: boolean }) {
  const [steps, reason] = [useSignal<PlanStep[] | null>(null), useSignal<string | null>(null)];
  const asked = JSON.stringify(action);
  useEffect(() => {
    [steps.value, reason.value] = [null, null];
    if (!isReady) return;
    const abort = new AbortController();
    const ask = async () => {
      try {
        steps.value = await planOf(action.name, action.body, abort.signal);
      } catch (error) {
        if (!abort.signal.aborted) reason.value = (error as Error).message;
      }
    };
    const soon = setTimeout(() => void ask(), REST_MS);
    return () => {
      clearTimeout(soon);
      abort.abort();
    };
  }, [asked, isReady]);
  return (
    <section class="plan" aria-label="What will be done" aria-live="polite">
      <h3>What will be done</h3>
      {reason.value !== null ? <p class="wrong">{visible(reason.value, 600)}</p>
        : steps.value === null ? <p class="note">{isReady ? "Planning…" : "It is planned when the form is complete."}</p>
        : steps.value.length === 0 ? <p class="note">Nothing: it is so already.</p>
        : <ol>{steps.value.slice(0, STEPS_MAX).map((step, index) => <Step step={step} key={index} />)}{steps.value.length > STEPS_MAX && <li>{plural(steps.value.length - STEPS_MAX, "more step")}</li>}</ol>}
    </section>
  );
}
