// Health is colour, shape and word. The shapes can be distinguished without colour and at the size of a letter.
import { HEALTHS, STEP_HEALTH, STEP_WORD, healthOf, total } from "../health.ts";
import { count } from "../format.ts";
import type { Health, HealthCounts, StepState } from "../wire.ts";

const SHAPES: Record<Health, preact.JSX.Element> = {
  good: (
    <>
      <circle class="fill" cx="10" cy="10" r="8" />
      <path class="cut" d="M6 10.3l2.8 2.8L14 7.6" />
    </>
  ),
  working: (
    <>
      <circle class="line" cx="10" cy="10" r="7" />
      <path class="fill" d="M10 3a7 7 0 0 1 0 14z" />
    </>
  ),
  attention: (
    <>
      <path class="fill" d="M10 1.6 19 17.6H1z" />
      <path class="cut" d="M10 7.2v4.6M10 14.6v.2" />
    </>
  ),
  away: <rect class="line dashed" x="3" y="3" width="14" height="14" rx="2" />,
};

/** The shape alone; give a word beside it. */
export function Shape({ health }: { health: Health }) {
  return (
    <svg class={`shape h-${health}`} viewBox="0 0 20 20" aria-hidden="true">
      {SHAPES[health]}
    </svg>
  );
}

/** Shape and word. */
export function HealthMark({ row, word = true }: { row: { health?: Health }; word?: boolean }) {
  const health = healthOf(row);
  return (
    <span class={`mark h-${health}`}>
      <Shape health={health} />
      <span class={word ? "word" : "hidden"}>{health}</span>
    </span>
  );
}

/** State of one step, as shape and hidden word. */
export function StepMark({ state }: { state: StepState }) {
  const health = STEP_HEALTH[state] ?? "away";
  return (
    <span class={`mark h-${health}`}>
      <Shape health={health} />
      <span class="hidden">{STEP_WORD[state] ?? "unknown"}</span>
    </span>
  );
}

/** Shares of health as a bar; the numbers stand beside it. */
export function HealthBar({ counts }: { counts: HealthCounts }) {
  if (total(counts) === 0) return <div class="bar" />;
  return (
    <div class="bar" aria-hidden="true">
      {[...HEALTHS].reverse().map((health) => counts[health] > 0 && <i class={`h-${health}`} style={{ flexGrow: counts[health] }} key={health} />)}
    </div>
  );
}

/** `9 good · 1 away`: only what there is. */
export function HealthCountsText({ counts }: { counts: HealthCounts }) {
  return (
    <span class="counts">
      {HEALTHS.map(
        (health) =>
          counts[health] > 0 && (
            <span class={`mark h-${health}`} key={health}>
              <Shape health={health} />
              {count(counts[health])} {health}
            </span>
          ),
      )}
    </span>
  );
}
