import { AlertTable } from "../components/lists.tsx";
import { Command } from "../components/copy.tsx";
import { FilterBar, Head } from "../components/page.tsx";
import { Hatched } from "../components/table.tsx";
import { commands } from "../commands.ts";
import { filtered } from "../filter.ts";
import { useTable } from "../hooks.ts";
import { isNotified, notified, notify } from "../notify.ts";
import { link, route } from "../router.ts";
import type { AlertRow } from "../wire.ts";

/** Those that no user looks after first, the oldest of them before others. */
const byNeed = (a: AlertRow, b: AlertRow): number => Number(a.acknowledged !== null) - Number(b.acknowledged !== null) || (a.since ?? 0) - (b.since ?? 0);

export function AlertsView() {
  const table = useTable("alerts");
  const rows = filtered(table.list.value, route.value.query.q ?? "", "").sort(byNeed);
  return (
    <>
      <Head title="Alerts" actions={<label><input type="checkbox" checked={isNotified.value} onChange={(event) => notify(event.currentTarget.checked)} /> Sound and notification{notified.value > 0 && <span class="number" data-notified>{notified.value}</span>}</label>}>
        <p class="note"><a href={link(["runbook"])}>What each alert means, and what to do</a></p>
      </Head>
      <FilterBar />
      <Hatched of={table}><AlertTable of={table} rows={rows} /></Hatched>
      <details class="as-command"><summary>As command</summary><Command line={commands.alerts()} /></details>
    </>
  );
}
