// Chart templates by clusters, and below it the same as a list.
import { useSignal } from "@preact/signals";
import { CreateDeployment } from "../components/forms.tsx";
import { Shape } from "../components/health.tsx";
import { Icon } from "../components/icon.tsx";
import { DeploymentTable } from "../components/lists.tsx";
import { Card, FilterBar, Head } from "../components/page.tsx";
import { Hatched } from "../components/table.tsx";
import { Text } from "../components/text.tsx";
import { filtered } from "../filter.ts";
import { byUrgency, countHealth, healthOf } from "../health.ts";
import { may, useTable } from "../hooks.ts";
import { link, route } from "../router.ts";
import type { DeploymentRow } from "../wire.ts";

/** More columns than this are not legible any more; the list says it then. */
const MOST_COLUMNS = 40;

/** Rows of the matrix: for each chart the deployments of each cluster, the most urgent first. */
export function matrix(rows: readonly DeploymentRow[]): { clusters: string[]; charts: [string, Map<string, DeploymentRow[]>][] } {
  const charts = new Map<string, Map<string, DeploymentRow[]>>();
  for (const row of [...rows].sort(byUrgency)) {
    const line = charts.get(row.chart) ?? new Map<string, DeploymentRow[]>();
    line.set(row.cluster, [...(line.get(row.cluster) ?? []), row]);
    charts.set(row.chart, line);
  }
  return { clusters: [...new Set(rows.map((row) => row.cluster))].sort(), charts: [...charts].sort(([a], [b]) => a.localeCompare(b)) };
}

function Matrix({ rows }: { rows: readonly DeploymentRow[] }) {
  const { clusters, charts } = matrix(rows);
  if (clusters.length === 0 || clusters.length > MOST_COLUMNS) return null;
  return (
    <Card title="Charts by cluster">
      <div class="table-scroll">
        <table class="matrix" aria-label="Charts by cluster">
          <thead><tr><th scope="col">Chart</th>{clusters.map((name) => <th scope="col" key={name}><a href={link(["cluster", name])}><Text of={name} longest={24} /></a></th>)}</tr></thead>
          <tbody>
            {charts.map(([chart, line]) => (
              <tr key={chart}>
                <th scope="row"><Text of={chart} longest={40} /></th>
                {clusters.map((name) => (
                  <td key={name}>
                    {line.get(name)?.map((row) => (
                      <a class="cell" href={link(["deployment", row.cluster, row.name])} title={`${row.reasons?.[0] ?? ""}`} key={row.key}>
                        <Shape health={healthOf(row)} /> <Text of={row.name} longest={24} /> {row.version !== null && row.version !== undefined && <small><Text of={row.version} longest={16} /></small>}
                        <span class="hidden">{healthOf(row)}</span>
                      </a>
                    ))}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

export function DeploymentsView() {
  const table = useTable("deployments");
  const creating = useSignal(false);
  const { q = "", health = "" } = route.value.query;
  const rows = filtered(table.list.value, q, health).sort(byUrgency);
  return (
    <>
      <Head title="Deployments" actions={may("deployment.create") && <button class="primary" onClick={() => (creating.value = true)}><Icon name="plus" /> New deployment</button>} />
      <FilterBar counts={countHealth(table.list.value)} />
      <Hatched of={table}>
        <Matrix rows={rows} />
        <DeploymentTable of={table} rows={rows} />
      </Hatched>
      {creating.value && <CreateDeployment close={() => (creating.value = false)} />}
    </>
  );
}
