// The tables of the server as signals. Views say which tables they need; one stream brings exactly those.
import { computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import type { Frame, Row, RowOf, Session, Snapshot, TableName } from "./wire.ts";

/** How far the rows of a table can be relied on. */
export type TableState = "loading" | "current" | "failed";

/** A replica of one table. */
export interface Table<R extends Row = Row> {
  rows: Signal<ReadonlyMap<string, R>>;
  list: ReadonlySignal<readonly R[]>;
  state: Signal<TableState>;
  /** Spans in which the console received nothing; known for past times only. */
  gaps: Signal<readonly [number, number | null][]>;
}

/** The rows after a frame. The rows that it does not name keep their identity. */
export function applyFrame<R extends Row>(rows: ReadonlyMap<string, R>, frame: Frame<R>): Map<string, R> {
  const next = frame.full ? new Map<string, R>() : new Map(rows);
  for (const key of frame.del) next.delete(key);
  for (const row of frame.set) next.set(row.key, row);
  return next;
}

function newTable(): Table {
  const rows = signal<ReadonlyMap<string, Row>>(new Map());
  return { rows, list: computed(() => [...rows.value.values()]), state: signal("loading"), gaps: signal([]) };
}

/** A subscription: the table's name, and whether it stays live while a past time is looked at. */
export interface Subscription {
  name: TableName;
  live: boolean;
}

const tables = new Map<string, Table>();
const counts = new Map<string, { subscription: Subscription; users: number }>();
/** What the views on the screen need. */
export const subscriptions = signal<readonly Subscription[]>([]);

const keyOf = ({ name, live }: Subscription): string => (live ? `!${name}` : name);

/** The replica of a table, made when it is first asked for. */
export function tableOf<N extends TableName>(name: N, live = false): Table<RowOf<N>> {
  const key = keyOf({ name, live });
  let found = tables.get(key);
  if (!found) {
    found = newTable();
    tables.set(key, found);
  }
  return found as Table<RowOf<N>>;
}

/** Subscribes until the function is called that is returned. */
export function subscribe(name: TableName, live = false): () => void {
  const subscription = { name, live };
  const key = keyOf(subscription);
  const entry = counts.get(key) ?? { subscription, users: 0 };
  entry.users += 1;
  counts.set(key, entry);
  if (entry.users === 1) publishSubscriptions();
  return () => {
    entry.users -= 1;
    if (entry.users > 0) return;
    counts.delete(key);
    publishSubscriptions();
  };
}

function publishSubscriptions(): void {
  subscriptions.value = [...counts.values()].map((entry) => entry.subscription);
}

/** Takes over what the stream brought. */
export function takeFrame(frame: Frame, live: boolean): void {
  const table = tables.get(keyOf({ name: frame.table as TableName, live }));
  if (!table || (!frame.full && table.state.value !== "current")) return;
  table.rows.value = applyFrame(table.rows.value, frame);
  table.state.value = "current";
}

/** Takes over what a read of one table brought. */
export function takeSnapshot(name: TableName, snapshot: Snapshot): void {
  const table = tables.get(name);
  if (!table) return;
  table.rows.value = new Map(snapshot.rows.map((row) => [row.key, row]));
  table.gaps.value = snapshot.gaps ?? [];
  table.state.value = "current";
}

/** Marks tables as not current; what failed shows no rows. */
export function mark(chosen: readonly Subscription[], state: TableState): void {
  for (const subscription of chosen) {
    const table = tables.get(keyOf(subscription));
    if (!table) continue;
    table.state.value = state;
    if (state === "failed") table.rows.value = new Map();
  }
}

/** Tables that the stream brings no more: their rows are old from now on, and those of one node or object are given back. */
export function release(dropped: readonly Subscription[]): void {
  mark(dropped, "loading");
  for (const { name, live } of dropped) {
    if (/^(metrics|entries|history):/.test(name)) tableOf(name, live).rows.value = new Map();
  }
}

/** Tables that are wanted for now, too, and that another subscription of the same name has already: the stream does not bring them again. */
export function share(added: readonly Subscription[]): void {
  for (const { name, live } of added) {
    const other = tables.get(keyOf({ name, live: !live }));
    if (other?.state.value !== "current") continue;
    const own = tableOf(name, live) as Table;
    own.rows.value = other.rows.value;
    own.state.value = "current";
  }
}

/** Who looks, as the server says; null until it has answered. */
export const session = signal<Session | null>(null);
/** What the clock of the server is ahead of that of this machine. */
export const clockOffset = signal(0);
