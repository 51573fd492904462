// The connection to the server: one stream for what is now, reads of single tables for what was.
import { batch, effect, signal, untracked } from "@preact/signals";
import { at } from "./router.ts";
import { clockOffset, mark, release, session, share, subscriptions, takeFrame, takeSnapshot, type Subscription } from "./store.ts";
import type { AuditRow, EventPage, Frame, Row, Session, Snapshot, TableName } from "./wire.ts";

/** State of the stream, and since when it is so. */
export const connection = signal<{ state: "connecting" | "open" | "lost"; since: number }>({ state: "connecting", since: Date.now() });

const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 8_000;
/** A page that is hidden gives its connection back, because browsers allow few for each server. */
const HIDDEN_MS = 60_000;

let source: EventSource | null = null;
let opened = "";
let retryMs = FIRST_RETRY_MS;
let retry: ReturnType<typeof setTimeout> | undefined;

function setConnection(state: "connecting" | "open" | "lost"): void {
  if (connection.peek().state !== state) connection.value = { state, since: Date.now() };
}

/** Small tables, by which a page is recognised: the server sends tables in the order of the query. */
const FIRST = ["console", "fleet", "actions"];

/** The names of tables as one value of the query, the small ones first: commas in a name are encoded, because commas part the names. */
export function tablesParameter(names: readonly string[]): string {
  const others = [...new Set(names)].filter((name) => !FIRST.includes(name)).sort();
  const unique = [...FIRST.filter((name) => names.includes(name)), ...others];
  return unique.map((name) => name.replace(/[%,]/g, encodeURIComponent)).join(",");
}

function close(): void {
  clearTimeout(retry);
  source?.close();
  source = null;
  opened = "";
  arrived = [];
}

/** Frames that have arrived and are not shown yet. */
let arrived: Frame[] = [];
let drawing: number | undefined;
/** A page that is visible and does not draw, such as one that is covered, takes frames over after this. */
const UNDRAWN_MS = 250;

/** Takes over what has arrived: a large table comes in many frames, and is drawn once. */
function takeArrived(): void {
  cancelAnimationFrame(drawing ?? 0);
  drawing = undefined;
  const frames = arrived;
  arrived = [];
  batch(() => {
    for (const frame of frames) {
      takeFrame(frame, true);
      if (at.peek() === null) takeFrame(frame, false);
    }
  });
}

function receive(event: MessageEvent<string>): void {
  arrived.push(JSON.parse(event.data) as Frame);
  if (drawing !== undefined) return;
  drawing = requestAnimationFrame(takeArrived);
  setTimeout(() => drawing !== undefined && takeArrived(), UNDRAWN_MS);
}

function open(parameter: string): void {
  close();
  opened = parameter;
  const stream = new EventSource(`/api/v1/stream?tables=${encodeURIComponent(parameter)}`);
  source = stream;
  stream.addEventListener("table", receive);
  stream.onopen = () => {
    retryMs = FIRST_RETRY_MS;
    setConnection("open");
    if (session.peek() === null) void readSession();
  };
  stream.onerror = () => {
    setConnection("lost");
    if (stream.readyState !== EventSource.CLOSED) return;
    retry = setTimeout(() => open(parameter), retryMs);
    retryMs = Math.min(retryMs * 2, LONGEST_RETRY_MS);
  };
}

async function readJson<T>(path: string, signal: AbortSignal | null = null): Promise<T> {
  const response = await fetch(path, { signal, headers: { accept: "application/json" } });
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return (await response.json()) as T;
}

/** Reads that a span of events is made of at most, each of a thousand. */
export const EVENT_PAGES = 5;

/** What happened since a time, of one cluster or of all: as many pages as are given, at most. `next` says that there are earlier ones. */
export async function readEvents(since: number, cluster: string, signal: AbortSignal, pages = EVENT_PAGES, about: { subject?: string; at?: number | null } = {}): Promise<EventPage> {
  const of = cluster === "" ? "" : `&cluster=${encodeURIComponent(cluster)}`;
  const subject = about.subject === undefined ? "" : `&subject=${encodeURIComponent(about.subject)}`;
  const time = about.at === undefined || about.at === null ? "" : `&at=${about.at}`;
  const path = `/api/v1/events?since=${Math.max(0, Math.round(since))}&limit=1000${of}${subject}${time}`;
  const first = await readJson<EventPage>(path, signal);
  let [rows, next] = [first.rows, first.next];
  for (let page = 1; page < pages && next !== null; page += 1) {
    const earlier = await readJson<EventPage>(`${path}&before=${encodeURIComponent(next)}`, signal);
    [rows, next] = [[...rows, ...earlier.rows], earlier.next];
  }
  return { ...first, rows, next };
}

/** The newest records of actions. Throws why they are not for this user. */
export async function readRecords(limit: number, signal: AbortSignal): Promise<AuditRow[]> {
  const response = await fetch(`/api/v1/audit?limit=${limit}`, { signal });
  const answer = (await response.json().catch(() => ({}))) as { rows?: AuditRow[]; error?: string };
  if (!response.ok || answer.rows === undefined) throw new Error(answer.error ?? `The console answered ${response.status}.`);
  return answer.rows;
}

/** Reads who looks; null where the server does not answer. */
export async function readSession(): Promise<Session | null> {
  try {
    const found = await readJson<Session>("/api/v1/session");
    batch(() => {
      session.value = found;
      clockOffset.value = found.now - Date.now();
    });
    return found;
  } catch {
    setConnection("lost");
    return null;
  }
}

/** Events that the stream brings: a past time has as many. */
export const EVENTS_SHOWN = 500;

/** The address of a table as it was at a time. */
export const pastOf = (name: TableName, time: number): string => `/api/v1/${encodeURIComponent(name)}?at=${time}${name === "events" ? `&limit=${EVENTS_SHOWN}` : ""}`;

/** The tables whose past is recorded, but for the counters. */
export const RECORDED = ["clusters", "hosts", "deployments", "alerts", "services", "rollout"] as const;

/** The rows of a table as it was at a time. Throws why there are none. */
export async function readPast(name: TableName, time: number): Promise<Row[]> {
  const response = await fetch(pastOf(name, time), { headers: { accept: "application/json" } });
  const answer = (await response.json().catch(() => ({}))) as { rows?: Row[]; error?: string };
  if (!response.ok || answer.rows === undefined) throw new Error(answer.error ?? `The console answered ${response.status}.`);
  return answer.rows;
}

async function readTable(name: TableName, time: number, signal: AbortSignal): Promise<void> {
  try {
    const read = await readJson<Snapshot | EventPage>(pastOf(name, time), signal);
    // Gaps of events are those of a span, and the page shows that of the time.
    takeSnapshot(name, "next" in read ? { rev: 0, at: time, rows: read.rows } : read);
  } catch {
    if (!signal.aborted) mark([{ name, live: false }], "failed");
  }
}

/** Follows the subscriptions and the time that is looked at. */
export function startStream(): void {
  void readSession();
  let reads = new AbortController();
  let pending = false;
  let before: readonly Subscription[] = [];
  const update = (): void => {
    pending = false;
    const [time, wanted] = [at.peek(), subscriptions.peek()];
    // Compared here and not when a view ends, because the next view often needs the same tables.
    const isIn = (list: readonly Subscription[]) => (one: Subscription) => list.some((other) => other.name === one.name && other.live === one.live);
    release(before.filter((one) => !isIn(wanted)(one)));
    if (time === null) share(wanted.filter((one) => !isIn(before)(one)));
    before = wanted;
    const streamed = wanted.filter((one) => one.live || time === null);
    const parameter = tablesParameter(streamed.map((one) => one.name));
    if (parameter !== opened && document.visibilityState === "visible") open(parameter);
    reads.abort();
    reads = new AbortController();
    if (time === null) return;
    const past: Subscription[] = wanted.filter((one) => !one.live);
    mark(past, "loading");
    for (const { name } of past) void readTable(name, time, reads.signal);
  };
  let earlier: number | null = null;
  effect(() => {
    void subscriptions.value;
    const time = at.value;
    if (time === null && earlier !== null) {
      // The rows on the screen are those of the past until the stream brings the whole tables again.
      untracked(() => mark(subscriptions.peek().filter((one) => !one.live), "loading"));
      opened = "";
    }
    earlier = time;
    if (!pending) {
      pending = true;
      queueMicrotask(update);
    }
  });
  let hidden: ReturnType<typeof setTimeout> | undefined;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hidden);
    if (document.visibilityState === "visible") update();
    else hidden = setTimeout(close, HIDDEN_MS);
  });
}
