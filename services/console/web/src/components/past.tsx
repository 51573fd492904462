// The revisions of an entry of ConfigDB, each compared with the entry of now or with the revision before.
import { useSignal } from "@preact/signals";
import { act } from "../actions.ts";
import { commands } from "../commands.ts";
import { count, plural } from "../format.ts";
import { may, useTable } from "../hooks.ts";
import { disagreements, laidOut } from "../schema.ts";
import { Command } from "./copy.tsx";
import { Card } from "./page.tsx";
import { Text, When } from "./text.tsx";

/** How an action of this page ended, by its id. */
export function useOutcome(id: string | null): { state: string; text: string } | null {
  const row = useTable("actions", true).rows.value.get(id ?? "");
  return id === null ? null : { state: row?.state ?? "sent", text: row?.text ?? "" };
}

/** Changes that ConfigDB sends for one request. */
const REPLAYED_MAX = 1_000;

/** What a revision is compared with. */
const AGAINST = { now: "now", before: "the revision before" };

/** What an entry was, the latest first. Reading it asks ConfigDB for a replay, which is why it is a button. */
export function Past({ object, application, text, restore }: { object: string; application: string; text: string; restore: ((text: string) => void) | null }) {
  const table = useTable(`history:${object}`, true);
  const [shown, asked, against] = [useSignal<string | null>(null), useSignal<string | null>(null), useSignal<keyof typeof AGAINST>("now")];
  const outcome = useOutcome(asked.value);
  const rows = table.list.value.filter((one) => one.application === application).sort((a, b) => b.revision - a.revision);
  const ask = async (since: number) => {
    const body = { object, application, ...(since > 0 ? { since } : {}) };
    asked.value = (await act("object.history", body, `History of ${application}`).catch(() => null))?.id ?? null;
  };
  const more = rows.length > 0 && rows.length % REPLAYED_MAX === 0;
  return (
    <Card title="History">
      <p class="choices">
        {may("object.history") && <button type="button" disabled={outcome?.state === "sent"} onClick={() => void ask(0)}>Read the history</button>}
        {may("object.history") && more && <button type="button" onClick={() => void ask((rows[0]?.revision ?? 0) + 1)}>Read more</button>}
        {rows.length > 0 && (
          <label>
            Compare with{" "}
            <select value={against.value} onChange={(event) => (against.value = event.currentTarget.value as keyof typeof AGAINST)}>
              {Object.entries(AGAINST).map(([value, title]) => <option value={value} key={value}>{title}</option>)}
            </select>
          </label>
        )}
        <span class="note" role="status">{outcome?.state === "sent" ? "On its way…" : rows.length === 0 ? "ConfigDB is asked for it when you read it." : `${plural(rows.length, "revision")} read.`}</span>
      </p>
      {!may("object.history") && rows.length === 0 && <p class="note">An operator reads it, or the command below does.</p>}
      {rows.length > 0 && (
        <div class="table-scroll" tabIndex={0}>
          <table aria-label="History of the entry">
            <thead><tr><th class="num" scope="col">Revision</th><th scope="col">Written</th><th scope="col">By</th><th scope="col">What differs from {AGAINST[against.value]}</th><th scope="col"><span class="hidden">Actions</span></th></tr></thead>
            <tbody>
              {rows.map((row, place) => {
                const then = row.json === null ? null : laidOut(row.json);
                // Of what was before the first revision, or of a deletion, nothing is left.
                const before = rows[place + 1]?.json;
                const other = against.value === "now" ? text : before ? laidOut(before) : "";
                const lines = then === null ? [] : disagreements(other, then, other);
                const isRestored = then === null || disagreements(text, then, text).length === 0;
                const open = shown.value === row.key;
                return (
                  <tr key={row.key}>
                    <td class="num">{count(row.revision)}</td>
                    <td><When time={row.at} /></td>
                    <td><Text of={row.writer} longest={60} /></td>
                    <td class="mono">
                      {then === null ? "deleted" : lines.length === 0 ? "nothing" : open
                        ? lines.map((line) => <p key={line.path}><Text of={line.path} />: {against.value === "before" && <><Text of={line.before ?? "–"} longest={300} /> → </>}<mark><Text of={line.mine ?? "–"} longest={300} /></mark></p>)
                        : <button type="button" class="quiet" onClick={() => (shown.value = row.key)}>{plural(lines.length, "value")}…</button>}
                    </td>
                    <td>{restore !== null && then !== null && !isRestored && <button type="button" aria-label={`Restore revision ${row.revision}`} onClick={() => restore(then)}>Restore</button>}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
      <details class="as-command"><summary>As command</summary><Command line={commands.history(object, application)} /></details>
    </Card>
  );
}
