// Two tables: hosts that wait to be admitted, and members.
import { HostTable } from "../components/lists.tsx";
import { Card, FilterBar, Head } from "../components/page.tsx";
import { Hatched } from "../components/table.tsx";
import { filtered } from "../filter.ts";
import { byUrgency, countHealth } from "../health.ts";
import { useTable } from "../hooks.ts";
import { route } from "../router.ts";
import type { HostRow } from "../wire.ts";

/** Rows that were recorded by an earlier version do not say it. */
const isIn = (row: HostRow): boolean => row.joined ?? row.kubernetes !== null;

export function HostsView() {
  const table = useTable("hosts");
  const { q = "", health = "" } = route.value.query;
  const rows = filtered(table.list.value, q, health).sort(byUrgency);
  const waiting = rows.filter((row) => !isIn(row));
  return (
    <>
      <Head title="Hosts" />
      <FilterBar counts={countHealth(table.list.value)} />
      <Hatched of={table}>
        {waiting.length > 0 && <Card title="On their way in"><HostTable label="Hosts on their way in" of={table} rows={waiting} /></Card>}
        <Card title="Members"><HostTable of={table} rows={rows.filter(isIn)} /></Card>
      </Hatched>
    </>
  );
}
