// What differs between two times, of every table whose past is recorded.
import { useEffect } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { commands } from "../commands.ts";
import { differencesOf, type Difference } from "../differences.ts";
import { plural, stamp, visible } from "../format.ts";
import { at, route, setQuery, timeOf } from "../router.ts";
import { readPast, RECORDED } from "../stream.ts";
import { Command } from "./copy.tsx";
import { Card } from "./page.tsx";
import { Text } from "./text.tsx";

const LISTED_MAX = 200;
const VALUES_MAX = 12;

/** A time as a field of the form takes it, in the reader's time zone. */
const fieldOf = (time: number): string => stamp(time).replace(" ", "T");

function Time({ name, label, time }: { name: "t1" | "t2"; label: string; time: number }) {
  const set = (value: string) => {
    const found = Date.parse(value);
    if (Number.isFinite(found)) setQuery({ [name]: String(found) });
  };
  return (
    <span class="time-field">
      <label>{label} <input type="datetime-local" step={1} value={fieldOf(time)} onChange={(event) => set(event.currentTarget.value)} /></label>
      {at.value !== null && <button type="button" aria-label={`${label}: the time that is looked at`} onClick={() => setQuery({ [name]: String(at.value) })}>{stamp(at.value)}</button>}
    </span>
  );
}

/** Two times, and the list of what differs between them. Without a choice they are the ends of the span. */
export function Differences({ from, to }: { from: number; to: number }) {
  const { t1 = "", t2 = "" } = route.value.query;
  const [first, second] = [timeOf({ at: t1 }) ?? Math.round(from), timeOf({ at: t2 }) ?? Math.round(to)];
  const [found, reason, busy] = [useSignal<Difference[] | null>(null), useSignal<string | null>(null), useSignal(false)];
  const wanted = `${first} ${second}`;
  const shown = useSignal("");
  const compareThem = async () => {
    [busy.value, reason.value] = [true, null];
    try {
      const of = await Promise.all(RECORDED.map(async (table) => differencesOf(table, await readPast(table, first), await readPast(table, second))));
      [found.value, shown.value] = [of.flat(), wanted];
    } catch (error) {
      [found.value, reason.value] = [null, (error as Error).message];
    } finally {
      busy.value = false;
    }
  };
  // Times that were chosen are compared at once; the ends of the span move with every second.
  useEffect(() => void (t1 !== "" && t2 !== "" && shown.peek() !== wanted && compareThem()), [t1, t2]);
  const rows = found.value ?? [];
  return (
    <Card title="What differs between two times">
      <p class="choices">
        <Time name="t1" label="From" time={first} />
        <Time name="t2" label="To" time={second} />
        <button type="button" class="primary" disabled={busy.value} onClick={() => void compareThem()}>Compare</button>
        {(t1 !== "" || t2 !== "") && <button type="button" onClick={() => setQuery({ t1: null, t2: null })}>The ends of the span</button>}
      </p>
      {reason.value !== null && <p class="wrong" role="alert">{visible(reason.value, 300)}</p>}
      {found.value !== null && rows.length === 0 && <p class="note">Nothing differs.</p>}
      {rows.length > 0 && (
        <div class="table-scroll" tabIndex={0}>
          <table aria-label="Differences">
            <thead><tr><th scope="col">Table</th><th scope="col">What</th><th scope="col">How it differs</th></tr></thead>
            <tbody>
              {rows.slice(0, LISTED_MAX).map((row) => (
                <tr key={`${row.table} ${row.key}`}>
                  <td>{row.table}</td>
                  <td><Text of={row.title} longest={80} /></td>
                  <td class="mono">
                    {row.change === "changed" ? row.values.slice(0, VALUES_MAX).map((line) => <p key={line.path}><Text of={line.path} longest={80} />: <Text of={line.before ?? "–"} longest={120} /> → <Text of={line.after ?? "–"} longest={120} /></p>) : row.change}
                    {row.values.length > VALUES_MAX && <p>{plural(row.values.length - VALUES_MAX, "more value")}</p>}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {rows.length > LISTED_MAX && <p class="note">{plural(rows.length - LISTED_MAX, "more difference")} not listed: choose times that are nearer to each other.</p>}
      <details class="as-command"><summary>As command</summary><Command line={commands.differences(new Date(first).toISOString(), new Date(second).toISOString())} /></details>
    </Card>
  );
}
