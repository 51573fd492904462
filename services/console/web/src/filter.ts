// The filter of tables and of the wall: words that must all occur, and `field:word` for one field.
import { healthOf } from "./health.ts";
import type { Health, Row } from "./wire.ts";

/** A filter, taken apart. */
export interface Filter {
  words: string[];
  fields: [string, string][];
}

export function parseFilter(text: string): Filter {
  const filter: Filter = { words: [], fields: [] };
  for (const part of text.toLowerCase().split(/\s+/).filter((one) => one !== "")) {
    const colon = part.indexOf(":");
    if (colon > 0 && colon < part.length - 1) filter.fields.push([part.slice(0, colon), part.slice(colon + 1)]);
    else filter.words.push(part);
  }
  return filter;
}

function text(value: unknown): string {
  if (value === null || value === undefined) return "";
  return (typeof value === "object" ? JSON.stringify(value) : String(value)).toLowerCase();
}

/** What words are looked for in: the row without its ladders and documents. */
function searched(row: Row): string {
  const { steps: _steps, pcrs: _pcrs, path: _path, wanted: _wanted, reported: _reported, trend: _trend, ...rest } = row as Row & Record<string, unknown>;
  return text(Object.values(rest));
}

/** Whether a row passes; labels can be named as fields. */
export function passes(row: Row, filter: Filter): boolean {
  const values = row as Row & Record<string, unknown>;
  const labels = (values.labels ?? {}) as Record<string, unknown>;
  const fields = filter.fields.every(([name, wanted]) => text(values[name] ?? labels[name]).includes(wanted));
  if (!fields || filter.words.length === 0) return fields;
  const whole = searched(row);
  return filter.words.every((word) => whole.includes(word));
}

/** The rows that pass both the text and the chosen health. */
export function filtered<R extends Row>(rows: readonly R[], query: string, health: string): R[] {
  const filter = parseFilter(query);
  return rows.filter((row) => (health === "" || healthOf(row as { health?: Health }) === health) && passes(row, filter));
}
