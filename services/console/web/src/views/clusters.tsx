import { ClusterTable } from "../components/lists.tsx";
import { FilterBar, Head } from "../components/page.tsx";
import { Hatched } from "../components/table.tsx";
import { filtered } from "../filter.ts";
import { byUrgency, countHealth } from "../health.ts";
import { useTable } from "../hooks.ts";
import { route } from "../router.ts";

export function ClustersView() {
  const table = useTable("clusters");
  const { q = "", health = "" } = route.value.query;
  return (
    <>
      <Head title="Clusters" />
      <FilterBar counts={countHealth(table.list.value)} />
      <Hatched of={table}><ClusterTable of={table} rows={filtered(table.list.value, q, health).sort(byUrgency)} /></Hatched>
    </>
  );
}
