// What happened, and where nothing was received: order, kinds, gaps. Pure.
import { stamp } from "./format.ts";
import type { EventRow, Gap } from "./wire.ts";

export function newestFirst(events: readonly EventRow[]): EventRow[] {
  return [...events].sort((a, b) => b.at - a.at || Number(b.key) - Number(a.key) || 0);
}

/** What an event is drawn as: how it ended and what kind it is, as a word of the stylesheet. */
export function laneKind(event: Pick<EventRow, "kind" | "new">): string {
  const words = `${event.kind} ${event.new ?? ""}`.toLowerCase();
  if (/clear/.test(words)) return "good";
  if (/death|away|lost|gap|alert|attention|refus|fail/.test(words)) return "bad";
  if (/birth|alive|ready|applied|online|done|good/.test(words)) return "good";
  if (/config|write|command|action|push|audit/.test(words)) return "config";
  return "change";
}

/** Gaps that overlap the span from `from` to `to`, cut to it, as parts of it. */
export function gapParts(gaps: readonly Gap[], from: number, to: number): { gap: Gap; left: number; width: number }[] {
  return gaps
    .map((gap) => ({ gap, start: Math.max(gap.since, from), end: Math.min(gap.until ?? to, to) }))
    .filter(({ start, end }) => start <= end)
    .map(({ gap, start, end }) => ({ gap, left: (start - from) / (to - from), width: (end - start) / (to - from) }));
}

/** A gap among the events. */
export function gapEvent(gap: Gap): EventRow {
  const text = `nothing was received ${gap.until === null ? "since then" : `until ${stamp(gap.until)}`}: ${gap.reason}`;
  return { key: `-${gap.since}`, at: gap.since, cluster: null, kind: "gap", subject: "gap", old: null, new: null, text, who: null, request: null };
}

/** Of two lists of events each event once. */
export function together(one: readonly EventRow[], other: readonly EventRow[]): EventRow[] {
  return [...new Map([...one, ...other].map((event) => [event.key, event])).values()];
}
