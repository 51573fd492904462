// A way in steps: as a ladder from top to bottom, or as a bar from left to right with the time of each leg.
import { duration, milliseconds } from "../format.ts";
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

/** What is said of the time of a leg: how long after the one before it was reported, or when, or that this is not known. */
function LegTime({ leg }: { leg: Leg }) {
  if (leg.state !== "done") return <>{STEP_WORD[leg.state]}</>;
  if (leg.at === null) return <>time not known</>;
  const { ms } = leg;
  const after = ms === null ? null : ms < 0 ? `clocks differ by ${milliseconds(-ms)}` : `+${milliseconds(ms)}`;
  return <>{after !== null && <b>{after}</b>} <When time={leg.at} /></>;
}

export function IntentPath({ legs }: { legs: readonly Leg[] }) {
  const [first, last] = [legs[0]?.at ?? null, legs.at(-1)];
  const whole = first !== null && last?.state === "done" && last.at !== null ? last.at - first : null;
  return (
    <>
      <ol class="path">
        {legs.map((leg) => (
          // The square root keeps a leg of milliseconds readable beside one of minutes.
          <li class={`leg step-${leg.state}`} key={leg.leg} style={{ flexGrow: 1 + Math.min(4, Math.sqrt(Math.max(0, leg.ms ?? 0)) / 40) }}>
            <div class="leg-line" />
            <StepMark state={leg.state} />
            <strong>
              <Text of={leg.leg} longest={40} />
            </strong>
            <span class="took"><LegTime leg={leg} /></span>
            {leg.detail && (
              <span class="leg-detail">
                <Text of={leg.detail} />
              </span>
            )}
          </li>
        ))}
      </ol>
      {whole !== null && whole >= 0 && <p class="note">From desired to ready in {milliseconds(whole)}, by the clocks of the services that reported it.</p>}
    </>
  );
}
