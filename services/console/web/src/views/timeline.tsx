// Events as lanes of clusters. The scrubber sets the time that every page shows.
import { useEffect, useRef } from "preact/hooks";
import { now } from "../clock.ts";
import { EventList, laneKind, newestFirst } from "../components/events.tsx";
import { FilterBar, Head } from "../components/page.tsx";
import { Hatched } from "../components/table.tsx";
import { Text } from "../components/text.tsx";
import { filtered } from "../filter.ts";
import { age, clock, stamp } from "../format.ts";
import { useTable } from "../hooks.ts";
import { at, link, lookAt, route, setQuery } from "../router.ts";
import type { EventRow } from "../wire.ts";

const MINUTE = 60_000;
const SPANS: [string, number][] = [["15 min", 15 * MINUTE], ["1 h", 60 * MINUTE], ["6 h", 360 * MINUTE], ["24 h", 1440 * MINUTE]];
const MOST_LANES = 60;
/** Reads of a past time while the scrubber moves: at most one in this time. */
const SCRUB_MS = 150;

/** Events by cluster; those of no cluster are the centre's. The lanes with the latest event come first. */
export function lanes(events: readonly EventRow[]): [string, EventRow[]][] {
  const found = new Map<string, EventRow[]>();
  for (const event of newestFirst(events)) found.set(event.cluster ?? "", [...(found.get(event.cluster ?? "") ?? []), event]);
  return [...found].slice(0, MOST_LANES);
}

function Lane({ name, events, from, to }: { name: string; events: readonly EventRow[]; from: number; to: number }) {
  return (
    <div class="lane">
      <span class="lane-name">{name === "" ? "Central services" : <a href={link(["cluster", name])}><Text of={name} longest={40} /></a>}</span>
      <div class="lane-line" role="img" aria-label={`${events.length} events`}>
        {events.map((event) => <i class={`kind-${laneKind(event.kind)}`} style={{ left: `${((event.at - from) / (to - from)) * 100}%` }} key={event.key} />)}
      </div>
    </div>
  );
}

export function TimelineView() {
  const table = useTable("events", true);
  const wait = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(wait.current), []);
  const { q = "", span = "60" } = route.value.query;
  const to = now.value;
  const time = at.value;
  const length = Math.max(MINUTE, (Number(span) || 60) * MINUTE);
  const from = to - length;
  const events = filtered(table.list.value, q, "").filter((event) => event.at >= from && event.at <= to);
  const scrub = (value: number) => {
    clearTimeout(wait.current);
    wait.current = setTimeout(() => lookAt(value >= now.peek() - 1500 ? null : value, true), SCRUB_MS);
  };
  const shown = newestFirst(time === null ? events : events.filter((event) => event.at <= time));
  return (
    <>
      <Head title="Timeline" />
      <FilterBar>
        <div class="spans" role="group" aria-label="Span">
          {SPANS.map(([title, ms]) => <button aria-pressed={ms === length} onClick={() => setQuery({ span: String(ms / MINUTE) })} key={title}>{title}</button>)}
        </div>
      </FilterBar>
      <Hatched of={table}>
        <section class="card lanes">
          <div class="lane">
            <label class="lane-name" for="scrubber">Look at</label>
            <div class="scrub">
              <input id="scrubber" type="range" min={from} max={to} step={1000} value={time ?? to} aria-valuetext={time === null ? "now" : stamp(time)} onInput={(event) => scrub(Number(event.currentTarget.value))} />
              <div class="ticks" aria-hidden="true">{[0, 0.25, 0.5, 0.75].map((part) => <span key={part}>{clock(from + part * length)}</span>)}<span>now</span></div>
            </div>
          </div>
          {lanes(events).map(([name, own]) => <Lane name={name} events={own} from={from} to={to} key={name} />)}
          {events.length === 0 && <p class="note">No event in the last {age(length)}.</p>}
        </section>
        <section class="card"><header><h2>{time === null ? "Events" : `Events until ${clock(time)}`}</h2></header><EventList events={shown.slice(0, 200)} /></section>
      </Hatched>
    </>
  );
}
