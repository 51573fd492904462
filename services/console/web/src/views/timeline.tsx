// Events as lanes of clusters. The scrubber sets the time that every page shows.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { now } from "../clock.ts";
import { commands } from "../commands.ts";
import { Command } from "../components/copy.tsx";
import { Differences } from "../components/differences.tsx";
import { EventList } from "../components/events.tsx";
import { Icon } from "../components/icon.tsx";
import { FilterBar, Head } from "../components/page.tsx";
import { Hatched } from "../components/table.tsx";
import { Text } from "../components/text.tsx";
import { filtered } from "../filter.ts";
import { age, clock, count, plural, stamp, visible } from "../format.ts";
import { continued, cutAt, gapEvent, gapParts, laneKind, lanes, marks, newestFirst, together } from "../events.ts";
import { consoleRow, useTable } from "../hooks.ts";
import { at, link, lookAt, route, setQuery } from "../router.ts";
import { readEvents } from "../stream.ts";
import type { EventPage, EventRow, Gap } from "../wire.ts";

const MINUTE = 60_000;
const SPANS: [string, number][] = [["15 min", 15 * MINUTE], ["1 h", 60 * MINUTE], ["6 h", 360 * MINUTE], ["24 h", 1440 * MINUTE], ["7 d", 7 * 1440 * MINUTE], ["30 d", 30 * 1440 * MINUTE]];
const DAY = 1440 * MINUTE;
const MOST_LANES = 60;
const MOST_LISTED = 200;
/** Reads of a past time while the scrubber moves: at most one in this time. */
const SCRUB_MS = 150;
/** Reads of the history while events come: at most one in this time. */
const READ_MS = 300;
const NOTHING: EventPage = { rows: [], next: null, gaps: [], begins: null };

/** The address of the history from a time on, until the time that is looked at or now. */
const exportOf = (from: number, until: number | null): string => `/api/v1/export?since=${Math.round(from)}${until === null ? "" : `&until=${Math.round(until)}`}`;

function Gaps({ gaps, from, to }: { gaps: readonly Gap[]; from: number; to: number }) {
  const parts = gapParts(gaps, from, to);
  if (parts.length === 0) return null;
  return (
    <div class="lane" data-gaps>
      <span class="lane-name">Nothing received</span>
      <div class="lane-line" role="img" aria-label={`${parts.length} gaps`}>
        {parts.map(({ gap, left, width }) => (
          <i class="gap" style={{ left: `${left * 100}%`, width: `${width * 100}%` }} title={visible(gap.reason, 200)} key={gap.since} />
        ))}
      </div>
    </div>
  );
}

function Lane({ name, events, from, to }: { name: string; events: readonly EventRow[]; from: number; to: number }) {
  return (
    <div class="lane">
      <span class="lane-name">{name === "" ? "Central services" : <a href={link(["cluster", name])}><Text of={name} longest={40} /></a>}</span>
      <div class="lane-line" role="img" aria-label={`${events.length} events`}>
        {marks(events, from, to).map(({ event, left }) => <i class={`kind-${laneKind(event)}`} style={{ left: `${left * 100}%` }} key={event.key} />)}
      </div>
    </div>
  );
}

export function TimelineView() {
  const table = useTable("events", true);
  const wait = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(wait.current), []);
  const { q = "", span = "60", cluster = "" } = route.value.query;
  const to = now.value;
  const time = at.value;
  const length = Math.max(MINUTE, (Number(span) || 60) * MINUTE);
  const from = to - length;
  const clusters = useTable("clusters", true).list.value;
  const [past, failed] = [useSignal(NOTHING), useSignal<string | null>(null)];
  /** The span of which `past` has what there is. */
  const whole = useRef("");
  const latest = newestFirst(table.list.value)[0]?.key;
  const recording = consoleRow.value?.history.recording ?? false;
  useEffect(() => {
    const abort = new AbortController();
    const read = async () => {
      const [since, wanted] = [now.peek() - length, `${length} ${cluster} ${recording}`];
      try {
        // What is known of this span is continued by one page.
        const isKnown = whole.current === wanted;
        const found = await readEvents(since, cluster, abort.signal, isKnown ? 1 : undefined);
        past.value = isKnown ? continued(past.peek(), found, since) : found;
        [whole.current, failed.value] = [wanted, null];
      } catch (error) {
        if (abort.signal.aborted) return;
        // Without a history there is what came over the stream.
        [past.value, whole.current, failed.value] = [NOTHING, "", (error as Error).message];
      }
    };
    const soon = setTimeout(() => void read(), READ_MS);
    return () => {
      clearTimeout(soon);
      abort.abort();
    };
  }, [length, cluster, latest, recording]);
  const { gaps, begins } = past.value;
  const cut = cutAt(past.value, from);
  const known = together(past.value.rows, table.list.value).filter((event) => cluster === "" || event.cluster === cluster);
  const events = filtered(known, q, "").filter((event) => event.at >= from && event.at <= to);
  const scrub = (value: number) => {
    clearTimeout(wait.current);
    wait.current = setTimeout(() => lookAt(value >= now.peek() - 1500 ? null : value, true), SCRUB_MS);
  };
  const listed = q === "" ? [...events, ...gaps.filter((gap) => (gap.until ?? to) >= from).map(gapEvent)] : events;
  const found = lanes(events);
  const shown = newestFirst(time === null ? listed : listed.filter((event) => event.at <= time));
  return (
    <>
      <Head title="Timeline" actions={recording && <a class="button" href={exportOf(from, time)} download="history.jsonl" title={`The history from ${stamp(from)} as a file that sparkfleet up --replay plays`}><Icon name="copy" /> Export</a>} />
      <FilterBar>
        <div class="spans" role="group" aria-label="Span">
          {SPANS.map(([title, ms]) => <button aria-pressed={ms === length} onClick={() => setQuery({ span: String(ms / MINUTE) })} key={title}>{title}</button>)}
        </div>
        <select aria-label="Cluster" value={cluster} onChange={(event) => setQuery({ cluster: event.currentTarget.value })}>
          <option value="">all clusters</option>
          {clusters.map((one) => <option value={one.name} key={one.key}>{visible(one.name, 40)}</option>)}
        </select>
      </FilterBar>
      {consoleRow.value?.history.reason && <p class="note" data-history="none"><Text of={consoleRow.value.history.reason} /></p>}
      <Hatched of={table}>
        <section class="card lanes">
          <div class="lane">
            <label class="lane-name" for="scrubber">Look at</label>
            <div class="scrub">
              <input id="scrubber" type="range" min={from} max={to} step={1000} value={time ?? to} aria-valuetext={time === null ? "now" : stamp(time)} onInput={(event) => scrub(Number(event.currentTarget.value))} />
              <div class="ticks" aria-hidden="true">{[0, 0.25, 0.5, 0.75].map((part) => <span key={part}>{(length > DAY ? stamp : clock)(from + part * length)}</span>)}<span>now</span></div>
            </div>
          </div>
          <Gaps gaps={gaps} from={from} to={to} />
          {found.slice(0, MOST_LANES).map(([name, own]) => <Lane name={name} events={own} from={from} to={to} key={name} />)}
          {found.length > MOST_LANES && <p class="note" data-cut="lanes">{plural(found.length - MOST_LANES, "more lane")} not shown: choose a cluster, or filter.</p>}
          {cut !== null && <p class="reason h-attention" data-cut="events">Only the latest {count(past.value.rows.length)} events are shown: those before {stamp(cut)} are not. Choose a shorter span or a cluster.</p>}
          {failed.value !== null && consoleRow.value?.history.reason === null && <p class="reason h-attention" data-cut="history">The history could not be read, and what is shown may lack events: {visible(failed.value, 200)}</p>}
          {time !== null && time < from && <p class="reason h-attention" data-cut="time">The time that you look at is before this span. Choose a longer one.</p>}
          {events.length === 0 && <p class="note">No event in the last {age(length)}.</p>}
          {begins !== null && begins > from && <p class="note">The history begins at {stamp(begins)}.</p>}
        </section>
        <section class="card"><header><h2>{time === null ? "Events" : `Events until ${clock(time)}`}</h2></header><EventList events={shown.slice(0, MOST_LISTED)} />{shown.length > MOST_LISTED && <p class="note" data-cut="list">{plural(shown.length - MOST_LISTED, "earlier event")} of this span not listed: filter, or look at an earlier time.</p>}</section>
      </Hatched>
      <Differences from={from} to={time ?? to} />
      <details class="as-command"><summary>As command</summary><Command line={commands.exportHistory(new Date(from).toISOString(), new Date(time ?? to).toISOString())} /></details>
    </>
  );
}
