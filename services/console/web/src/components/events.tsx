// Events as a list, the newest first.
import { isDecided, laneKind } from "../events.ts";
import { link } from "../router.ts";
import type { EventRow } from "../wire.ts";
import { Text, When } from "./text.tsx";

export function EventList({ events, cluster = true }: { events: readonly EventRow[]; cluster?: boolean }) {
  if (events.length === 0) return <p class="note">No events.</p>;
  return (
    <ol class="events">
      {events.map((event) => (
        <li key={event.key}>
          <When time={event.at} />
          <span class={`kind kind-${laneKind(event)}`}><Text of={event.kind} longest={24} /></span>
          <span class="event-text">
            {cluster && event.cluster && <a href={link(["cluster", event.cluster])}><Text of={event.cluster} longest={40} /></a>} <Text of={event.text || event.subject} />
            {event.who ? <em> by <Text of={event.who} longest={60} /></em> : isDecided(event) && <span class="note"> the user is not known</span>}
          </span>
        </li>
      ))}
    </ol>
  );
}
