// What differs between two states of a table. Pure.
import { compare } from "./format.ts";
import type { Row } from "./wire.ts";

/** A row that is another one, or came, or went. */
export interface Difference {
  table: string;
  key: string;
  /** What it is about. */
  title: string;
  change: "came" | "went" | "changed";
  values: { path: string; before: string | null; after: string | null }[];
}

/** Fields that change with time alone, or are made of others. */
const NOISE = /^(since|reasons(\..*)?|steps(\..*)?|path(\..*)?|alive_since|edge_since|setup_since)$/;
/** What a row is about: its name, in its cluster. */
function titleOf(table: string, row: Row): string {
  const { name, cluster, alert, node, template } = row as unknown as Record<string, unknown>;
  if (table === "alerts") return `${String(alert)} of ${[cluster, node].filter((part) => typeof part === "string").join("/")}`;
  const own = typeof name === "string" ? name : typeof template === "string" ? template : row.key;
  return typeof cluster === "string" ? `${cluster}/${own}` : own;
}

/** The rows of a table that differ between two times. Pure. */
export function differencesOf(table: string, before: readonly Row[], after: readonly Row[]): Difference[] {
  const [old, now] = [new Map(before.map((row) => [row.key, row])), new Map(after.map((row) => [row.key, row]))];
  return [...new Set([...old.keys(), ...now.keys()])].sort().flatMap((key): Difference[] => {
    const [was, is] = [old.get(key), now.get(key)];
    const title = titleOf(table, (is ?? was)!);
    if (was === undefined || is === undefined) return [{ table, key, title, change: was === undefined ? "came" : "went", values: [] }];
    const values = compare(was, is).filter((line) => line.wanted !== line.reported && !NOISE.test(line.path)).map(({ path, wanted, reported }) => ({ path, before: wanted, after: reported }));
    return values.length === 0 ? [] : [{ table, key, title, change: "changed", values }];
  });
}
