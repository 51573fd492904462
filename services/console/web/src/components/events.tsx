// Events as a list, the newest first.
import { link } from "../router.ts";
import type { EventRow } from "../wire.ts";
import { Text, When } from "./text.tsx";

export function newestFirst(events: readonly EventRow[]): EventRow[] {
  return [...events].sort((a, b) => b.at - a.at || Number(b.key) - Number(a.key));
}

export function EventList({ events, cluster = true }: { events: readonly EventRow[]; cluster?: boolean }) {
  if (events.length === 0) return <p class="note">No events.</p>;
  return (
    <ol class="events">
      {events.map((event) => (
        <li key={event.key}>
          <When time={event.at} />
          <span class={`kind kind-${laneKind(event.kind)}`}><Text of={event.kind} longest={24} /></span>
          <span class="event-text">
            {cluster && event.cluster && <a href={link(["cluster", event.cluster])}><Text of={event.cluster} longest={40} /></a>} <Text of={event.text || event.subject} />
            {event.who && <em> by <Text of={event.who} longest={60} /></em>}
          </span>
        </li>
      ))}
    </ol>
  );
}

/** What an event is drawn as: its kind as a word of the stylesheet. */
export function laneKind(kind: string): string {
  const lower = kind.toLowerCase();
  if (/death|away|lost|gap|alert|refus|fail/.test(lower)) return "bad";
  if (/birth|alive|ready|clear|online|done/.test(lower)) return "good";
  if (/config|write|command|action|push|audit/.test(lower)) return "config";
  return "change";
}
