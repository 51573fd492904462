// A board for each template: waves as columns, clusters as cards.
import { Shape } from "../components/health.tsx";
import { Card, Head } from "../components/page.tsx";
import { Hatched, Nothing } from "../components/table.tsx";
import { Text } from "../components/text.tsx";
import { useTable } from "../hooks.ts";
import { link } from "../router.ts";
import type { Health } from "../wire.ts";

const STATE: Record<string, Health> = { waits: "away", runs: "working", settled: "good", blocks: "attention" };

export function RolloutsView() {
  const table = useTable("rollout");
  const rows = table.list.value;
  return (
    <>
      <Head title="Rollouts" />
      <Hatched of={table}>
        {rows.length === 0 && <div class="empty"><Nothing of={table}>No change is being rolled out.</Nothing></div>}
        {rows.map((row) => (
          <Card title={row.template} key={row.key}>
            {row.blocked && <p class="reason h-attention"><Shape health="attention" /> <Text of={row.blocked} longest={600} /></p>}
            <div class="board" tabIndex={0} role="group" aria-label={`Waves of ${row.template}`}>
              {(row.waves ?? []).map(({ wave, clusters }) => (
                <section class="wave" key={wave}>
                  <h3>Wave {wave} <span>{clusters.length}</span></h3>
                  {clusters.map((cluster) => (
                    <a class={`wave-card h-${STATE[cluster.state] ?? "away"}`} data-row href={link(["cluster", cluster.name])} key={cluster.name}>
                      <Shape health={STATE[cluster.state] ?? "away"} /> <strong><Text of={cluster.name} longest={40} /></strong> <span>{cluster.state}</span>
                      {cluster.reason && <p><Text of={cluster.reason} /></p>}
                    </a>
                  ))}
                </section>
              ))}
            </div>
          </Card>
        ))}
      </Hatched>
    </>
  );
}
