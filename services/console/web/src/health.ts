// Health has four words everywhere, each with a colour, a shape and an order of urgency.
import type { Health, HealthCounts, HealthRow, StepState } from "./wire.ts";

/** The most urgent first. */
export const HEALTHS: readonly Health[] = ["attention", "away", "working", "good"];

/** What each word means, for people. */
export const MEANING: Record<Health, string> = {
  good: "Everything that is wanted is there and ready.",
  working: "Something is on its way; no person is needed.",
  attention: "A person is needed.",
  away: "Nothing is received; the last known values are shown.",
};

/** A row whose health is not a known word needs a look. */
export function healthOf(row: { health?: Health }): Health {
  return row.health !== undefined && HEALTHS.includes(row.health) ? row.health : "attention";
}

export function countHealth(rows: readonly HealthRow[]): HealthCounts {
  const counts: HealthCounts = { good: 0, working: 0, attention: 0, away: 0 };
  for (const row of rows) counts[healthOf(row)] += 1;
  return counts;
}

export function total(counts: HealthCounts): number {
  return counts.good + counts.working + counts.attention + counts.away;
}

/** Orders rows by urgency, then by what has lasted longest. */
export function byUrgency(a: HealthRow, b: HealthRow): number {
  return HEALTHS.indexOf(healthOf(a)) - HEALTHS.indexOf(healthOf(b)) || (a.since ?? 0) - (b.since ?? 0);
}

/** The colour of a step, which is the colour of the health that it means. */
export const STEP_HEALTH: Record<StepState, Health> = { done: "good", active: "working", failed: "attention", waiting: "away" };

export const STEP_WORD: Record<StepState, string> = { done: "done", active: "under way", failed: "stopped", waiting: "not yet" };
