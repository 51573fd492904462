// Which alerts are new. Pure.
import type { AlertRow } from "./wire.ts";

/** The alerts that were not there before, and that no user looks after. Those that are there when the page opens are not new: `known` is null then. */
export function newAlerts(known: ReadonlySet<string> | null, rows: readonly AlertRow[]): AlertRow[] {
  return known === null ? [] : rows.filter((row) => !known.has(row.key) && row.acknowledged === null);
}
