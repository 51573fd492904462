// What happened, and where nothing was received: order, kinds, gaps. Pure.
import { stamp } from "./format.ts";
import type { EventPage, EventRow, Gap } from "./wire.ts";

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

/** What is known since a time, with the latest page of it. Where the page does not reach what is known, what is between would be missing without a word: then the page alone counts. */
export function continued(known: EventPage, latest: EventPage, since: number): EventPage {
  const keys = new Set(known.rows.map((row) => row.key));
  if (latest.next !== null && !latest.rows.some((row) => keys.has(row.key))) return latest;
  return { ...latest, rows: together(latest.rows, known.rows).filter((row) => row.at >= since), next: latest.next === null ? null : known.next };
}

/** Before which time events are missing, because there are more than are read; null: all since `from` are there. */
export function cutAt({ rows, next }: EventPage, from: number): number | null {
  if (next === null) return null;
  const earliest = rows.reduce((least, row) => Math.min(least, row.at), Infinity);
  return earliest > from ? earliest : null;
}

/** Events by cluster; those of no cluster are of the central services. The lanes with the latest event come first. */
export function lanes(events: readonly EventRow[]): [string, EventRow[]][] {
  const found = new Map<string, EventRow[]>();
  for (const event of newestFirst(events)) {
    const lane = found.get(event.cluster ?? "");
    if (lane) lane.push(event);
    else found.set(event.cluster ?? "", [event]);
  }
  return [...found];
}

/** The events of a lane that can be distinguished: one of each kind at a thousandth of the span. */
export function marks(events: readonly EventRow[], from: number, to: number): { event: EventRow; left: number }[] {
  const found = new Map<string, { event: EventRow; left: number }>();
  for (const event of events) {
    const left = (event.at - from) / (to - from);
    const place = `${Math.round(left * 1000)} ${laneKind(event)}`;
    if (!found.has(place)) found.set(place, { event, left });
  }
  return [...found.values()];
}

/** Kinds of events that a user's decision leads to; others happen by themselves. */
const DECIDED = new Set(["added", "removed", "config", "rollout held", "alert acknowledged"]);

/** Whether a user has decided what happened, be it known who or not. Services and alerts come and go by themselves. */
export const isDecided = (event: EventRow): boolean => DECIDED.has(event.kind) && !/^(service|alert) /.test(event.subject) || event.kind === "alert acknowledged";
