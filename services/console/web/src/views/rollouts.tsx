// A board for each template: waves as columns, clusters as cards. Rollouts are held, resumed, and freed of a cluster here.
import { useSignal } from "@preact/signals";
import { act, actNow } from "../actions.ts";
import { commands } from "../commands.ts";
import { Command } from "../components/copy.tsx";
import { Field, FormDialog } from "../components/dialog.tsx";
import { Shape } from "../components/health.tsx";
import { Card, Head } from "../components/page.tsx";
import { Hatched, Nothing } from "../components/table.tsx";
import { Text, When } from "../components/text.tsx";
import { visible } from "../format.ts";
import { may, useTable } from "../hooks.ts";
import { link } from "../router.ts";
import type { Health, RolloutCluster, RolloutDecision, RolloutRow } from "../wire.ts";

const STATE: Record<string, Health> = { waits: "away", runs: "working", settled: "good", blocks: "attention" };

/** Who decided, when, and why. */
function Decision({ of }: { of: RolloutDecision }) {
  return <><Text of={of.by} longest={60} /> {of.at !== null && <When time={of.at} />}{of.note && <>: <Text of={of.note} /></>}</>;
}

/** Holds a rollout, or lets it continue without a cluster. */
function Decide({ row, cluster, close }: { row: RolloutRow; cluster: RolloutCluster | null; close: () => void }) {
  const note = useSignal("");
  const title = cluster === null ? `Hold the rollout of ${row.template}` : `Continue without ${cluster.name}`;
  const name = cluster === null ? "rollout.hold" : "rollout.free";
  const body = { template: row.uuid, ...(cluster === null ? {} : { cluster: cluster.cluster }), ...(note.value === "" ? {} : { note: note.value }) };
  return (
    <FormDialog
      title={visible(title, 120)}
      verb={cluster === null ? "Hold" : "Continue without it"}
      close={close}
      command={cluster === null ? commands.holdRollout(row.template, note.value) : commands.freeRollout(row.template, cluster.name, note.value)}
      check={() => null}
      action={{ name, body }}
      send={() => act(name, body, title)}
    >
      {(wrong) => (
        <>
          <p>{cluster === null
            ? "Deployments that run another version keep it until the rollout is resumed. What is new on a cluster does not wait."
            : "Later waves do not wait for this cluster, until the chart template changes again. The cluster itself is tried further."}</p>
          <Field name="note" label="Why" hint="All users see it beside your name." wrong={wrong}>
            {(id, hint) => <input id={id} aria-describedby={hint} autofocus autocomplete="off" maxLength={1000} value={note.value} onInput={(event) => (note.value = event.currentTarget.value)} />}
          </Field>
        </>
      )}
    </FormDialog>
  );
}

function ClusterCard({ row, cluster }: { row: RolloutRow; cluster: RolloutCluster }) {
  const asking = useSignal(false);
  const health = STATE[cluster.state] ?? "away";
  const again = () => void actNow("rollout.free", { template: row.uuid, cluster: cluster.cluster, withdraw: true }, `Wait for ${cluster.name} again`);
  return (
    <div class={`wave-card h-${health}`}>
      <a data-row href={link(["cluster", cluster.name])}>
        <Shape health={health} /> <strong><Text of={cluster.name} longest={40} /></strong> <span>{cluster.state}</span>
      </a>
      {cluster.reason && <p><Text of={cluster.reason} /></p>}
      {cluster.passed && <p class="passed">Later waves do not wait for it: <Decision of={cluster.passed} /></p>}
      {may("rollout.free") && cluster.state === "blocks" && cluster.passed === null && <button class="quiet" onClick={() => (asking.value = true)}>Continue without it</button>}
      {may("rollout.free") && cluster.passed !== null && <button class="quiet" onClick={again}>Wait for it again</button>}
      {asking.value && <Decide row={row} cluster={cluster} close={() => (asking.value = false)} />}
    </div>
  );
}

function Board({ row }: { row: RolloutRow }) {
  const asking = useSignal(false);
  const name = visible(row.template, 60);
  const resume = () => void actNow("rollout.hold", { template: row.uuid, withdraw: true }, `Resume the rollout of ${row.template}`);
  return (
    <Card title={row.template}>
      {row.hold && <p class="reason h-attention held"><Shape health="attention" /> Held by <Decision of={row.hold} /></p>}
      {row.blocked && <p class="reason h-attention"><Shape health="attention" /> <Text of={row.blocked} longest={600} /></p>}
      {may("rollout.hold") && (
        <p class="choices">
          {row.hold === null
            ? <button aria-label={`Hold the rollout of ${name}`} onClick={() => (asking.value = true)}>Hold</button>
            : <button aria-label={`Resume the rollout of ${name}`} class="primary" onClick={resume}>Resume</button>}
        </p>
      )}
      <div class="board" tabIndex={0} role="group" aria-label={`Waves of ${name}`}>
        {(row.waves ?? []).map(({ wave, clusters }) => (
          <section class="wave" key={wave}>
            <h3>Wave {wave} <span>{clusters.length}</span></h3>
            {clusters.map((cluster) => <ClusterCard row={row} cluster={cluster} key={cluster.cluster} />)}
          </section>
        ))}
      </div>
      {asking.value && <Decide row={row} cluster={null} close={() => (asking.value = false)} />}
    </Card>
  );
}

export function RolloutsView() {
  const table = useTable("rollout");
  const rows = table.list.value;
  return (
    <>
      <Head title="Rollouts" />
      <Hatched of={table}>
        {rows.length === 0 && <div class="empty"><Nothing of={table}>No chart template is in use.</Nothing></div>}
        {rows.map((row) => <Board row={row} key={row.key} />)}
      </Hatched>
      <details class="as-command"><summary>As commands</summary>
        <Command line={commands.rollouts()} />
        {rows[0] && <Command line={nextOf(rows[0])} />}
      </details>
    </>
  );
}

/** The command that holds a rollout, or resumes it. */
const nextOf = (row: RolloutRow): string | null => (row.hold === null ? commands.holdRollout(row.template, "") : commands.resumeRollout(row.template));
