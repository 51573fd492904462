// The record of actions: who did what from where, and how it ended. It is read again whenever an action begins or ends.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { commands } from "../commands.ts";
import { Command } from "../components/copy.tsx";
import { FilterBar, Head, Present } from "../components/page.tsx";
import { DataTable, type Column } from "../components/table.tsx";
import { Text, When } from "../components/text.tsx";
import { filtered } from "../filter.ts";
import { visible } from "../format.ts";
import { useTable } from "../hooks.ts";
import { link, route } from "../router.ts";
import { session } from "../store.ts";
import { readRecords } from "../stream.ts";
import type { AuditRow } from "../wire.ts";

const RECORDS_MAX = 1000;
/** Reads of the record while actions come and end: at most one in this time. */
const READ_MS = 300;

const COLUMNS: Column<AuditRow>[] = [
  { title: "When", cell: (row) => <When time={row.at} /> },
  { title: "Who", cell: (row) => <Text of={row.who} longest={60} /> },
  { title: "What", cell: (row) => <Text of={row.operation} longest={40} /> },
  { title: "On", cell: (row) => <>{row.cluster_name !== undefined && <><a href={link(["cluster", row.cluster_name])}><Text of={row.cluster_name} longest={40} /></a> </>}<Text of={row.target} longest={80} /></>, class: "grow" },
  { title: "Result", cell: (row) => <><Text of={row.result} longest={20} />{row.reason !== undefined && <>: <Text of={row.reason} longest={200} /></>}</>, class: "grow" },
  { title: "From", cell: (row) => <Text of={row.from} longest={50} />, class: "mono wide" },
];

export function AuditView() {
  const actions = useTable("actions", true).list.value;
  const clusters = useTable("clusters", true).rows.value;
  const [rows, wrong] = [useSignal<AuditRow[] | null>(null), useSignal<string | null>(null)];
  const marks = actions.map((one) => `${one.key} ${one.state}`).join();
  const user = session.value?.user;
  useEffect(() => {
    const abort = new AbortController();
    const read = async () => {
      try {
        rows.value = await readRecords(RECORDS_MAX, abort.signal);
        wrong.value = null;
      } catch (error) {
        if (!abort.signal.aborted) wrong.value = (error as Error).message;
      }
    };
    const soon = setTimeout(() => void read(), READ_MS);
    return () => (clearTimeout(soon), abort.abort());
  }, [marks, user]);
  const named = (rows.value ?? []).map((row, place): AuditRow => {
    const name = row.cluster === undefined ? undefined : clusters.get(row.cluster)?.name;
    return { ...row, key: `${row.at} ${place}`, ...(name === undefined ? {} : { cluster_name: name }) };
  });
  return (
    <>
      <Head title="Record of actions" above={[{ title: "Access", href: link(["access"]) }]}>
        <Present>This is the record up to the present.</Present>
        <p class="note">What users did on this console, the latest first, of the last MiB of the record.</p>
      </Head>
      <FilterBar />
      {wrong.value !== null ? (
        <p class="wrong" role="alert">{visible(wrong.value, 300)}</p>
      ) : (
        <DataTable label="Record of actions" rows={filtered(named, route.value.query.q ?? "", "")} columns={COLUMNS} empty={rows.value === null ? "Loading…" : "No action passes the filter."} />
      )}
      <details class="as-command"><summary>As command</summary><Command line={commands.verifyRecord()} why="Checks the chain of the file on the console's machine:" /></details>
    </>
  );
}
