// What views use of the store.
import { useLayoutEffect } from "preact/hooks";
import { computed } from "@preact/signals";
import { at } from "./router.ts";
import { session, subscribe, tableOf, type Table } from "./store.ts";
import { connection } from "./stream.ts";
import type { RowOf, TableName } from "./wire.ts";

/** Subscribes to a table while the component is on the screen. */
export function useTable<N extends TableName>(name: N, live = false): Table<RowOf<N>> {
  useLayoutEffect(() => subscribe(name, live), [name, live]);
  return tableOf(name, live);
}

/** The console's own state. */
export const consoleRow = computed(() => tableOf("console", true).rows.value.get("console") ?? null);

/** Whether what the page shows is complete; while it is not, nothing is called absent. */
export const complete = computed(() =>
  at.value !== null ? true : connection.value.state === "open" && consoleRow.value !== null && consoleRow.value.online && consoleRow.value.complete,
);

/** The actions that can be sent: none in the past, none by viewers, none without the server. */
const allowed = computed(() => (at.value === null && connection.value.state === "open" ? (session.value?.actions ?? []) : []));

/** Whether an action can be sent. */
export const may = (action: string): boolean => allowed.value.includes(action);
