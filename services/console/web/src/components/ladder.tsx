// A way in steps: as a ladder from top to bottom, or as a bar from left to right with the time of each leg.
import { duration } from "../format.ts";
import { STEP_WORD } from "../health.ts";
import type { Leg, Step } from "../wire.ts";
import { StepMark } from "./health.tsx";
import { Age, Text, When } from "./text.tsx";

/** Milliseconds from the latest earlier step to this one; null where either is not known. */
export function tookMs(times: readonly (number | null)[], index: number): number | null {
  const end = times[index] ?? null;
  const earlier = times.slice(0, index).findLast((time) => time !== null) ?? null;
  return end === null || earlier === null ? null : Math.max(0, end - earlier);
}

export function Ladder({ steps }: { steps: readonly Step[] }) {
  const times = steps.map((step) => step.since ?? null);
  return (
    <ol class="ladder">
      {steps.map((step, index) => {
        const took = step.state === "done" ? tookMs(times, index) : null;
        return (
          <li class={`step-${step.state}`} key={step.name} aria-current={step.state === "active" ? "step" : undefined}>
            <StepMark state={step.state} />
            <span class="step-name">
              <Text of={step.name} longest={60} />
            </span>
            <span class="step-time">
              {step.state === "active" ? <Age since={step.since} prefix="for " /> : step.since ? <When time={step.since} /> : STEP_WORD[step.state]}
              {took !== null && <span class="took">{duration(took)}</span>}
            </span>
            {step.detail && (
              <span class="step-detail">
                <Text of={step.detail} />
              </span>
            )}
          </li>
        );
      })}
    </ol>
  );
}

export function IntentPath({ legs }: { legs: readonly Leg[] }) {
  const times = legs.map((leg) => leg.at ?? null);
  return (
    <ol class="path">
      {legs.map((leg, index) => {
        const took = tookMs(times, index);
        // The square root keeps a leg of milliseconds readable beside one of minutes.
        return (
          <li class={`leg step-${leg.state}`} key={leg.leg} style={{ flexGrow: 1 + Math.min(4, Math.sqrt(took ?? 0) / 40) }}>
            <div class="leg-line" />
            <StepMark state={leg.state} />
            <strong>
              <Text of={leg.leg} longest={40} />
            </strong>
            <span class="took">{took !== null ? `+${duration(took)}` : leg.at !== null ? <When time={leg.at} /> : STEP_WORD[leg.state]}</span>
            {leg.detail && (
              <span class="leg-detail">
                <Text of={leg.detail} />
              </span>
            )}
          </li>
        );
      })}
    </ol>
  );
}
