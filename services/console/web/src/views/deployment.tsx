// One deployment: what is wanted beside what is reported, and the way between them.
import { useSignal } from "@preact/signals";
import { act, actNow } from "../actions.ts";
import { commands } from "../commands.ts";
import { Command } from "../components/copy.tsx";
import { TypeTheName } from "../components/dialog.tsx";
import { MoveDeployment } from "../components/forms.tsx";
import { HealthMark } from "../components/health.tsx";
import { Icon } from "../components/icon.tsx";
import { IntentPath } from "../components/ladder.tsx";
import { Card, Facts, Head } from "../components/page.tsx";
import { Hatched, Nothing } from "../components/table.tsx";
import { Text } from "../components/text.tsx";
import { compare, visible } from "../format.ts";
import { may, useTable } from "../hooks.ts";
import { link, route } from "../router.ts";
import type { DeploymentRow } from "../wire.ts";

function Compared({ row }: { row: DeploymentRow }) {
  const lines = compare(row.wanted, row.reported);
  if (lines.length === 0) return <p class="note">Nothing is wanted or reported in detail.</p>;
  return (
    <div class="table-scroll" tabIndex={0}>
      <table aria-label="Wanted and reported">
        <thead><tr><th scope="col">Value</th><th scope="col">Wanted</th><th scope="col">Reported</th></tr></thead>
        <tbody>
          {lines.map((line) => (
            <tr class={line.differs ? "differing" : ""} key={line.path}>
              <td class="mono"><Text of={line.path} /></td>
              <td class="mono">{line.wanted !== null && <Text of={line.wanted} longest={300} />}</td>
              <td class="mono">{line.reported !== null && (line.differs ? <mark><Text of={line.reported} longest={300} /></mark> : <Text of={line.reported} longest={300} />)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function DeploymentView() {
  const [cluster = "", name = ""] = route.value.args;
  const table = useTable("deployments");
  const dialog = useSignal<"move" | "delete" | null>(null);
  const row = table.list.value.find((one) => one.cluster === cluster && (one.name === name || one.key === name));
  const above = [{ title: "Clusters", href: link(["clusters"]) }, { title: visible(cluster, 60), href: link(["cluster", cluster], { tab: "deployments" }) }];
  if (!row) return <><Head title={<Text of={name} />} above={above} /><div class="empty"><Nothing of={table}>This deployment is not known.</Nothing></div></>;
  const suspended = row.wanted?.suspend === true;
  const close = () => (dialog.value = null);
  return (
    <Hatched of={table}>
      <Head
        title={<><Text of={row.name} longest={60} /> <HealthMark row={row} /></>}
        above={above}
        actions={
          <>
            {may("deployment.reconcile") && !suspended && <button onClick={() => void actNow("deployment.reconcile", { deployment: row.key }, `Reconcile ${row.name}`)}><Icon name="refresh" /> Reconcile</button>}
            {may("deployment.suspend") && <button onClick={() => void actNow("deployment.suspend", { deployment: row.key, withdraw: suspended }, `${suspended ? "Resume" : "Suspend"} ${row.name}`)}><Icon name={suspended ? "play" : "pause"} /> {suspended ? "Resume" : "Suspend"}</button>}
            {may("deployment.move") && <button onClick={() => (dialog.value = "move")}><Icon name="move" /> Move</button>}
            {may("deployment.delete") && <button class="danger-quiet" onClick={() => (dialog.value = "delete")}><Icon name="trash" /> Delete</button>}
          </>
        }
      >
        {row.reasons?.map((reason) => <p class={`reason h-${row.health}`} key={reason}><Text of={reason} longest={600} /></p>)}
        <Facts
          facts={[
            ["State", <Text of={row.state} />],
            ["Chart", <Text of={row.chart} />],
            ["Host", row.host ? <a href={link(["host", row.cluster, row.host])}><Text of={row.host} /></a> : "floating"],
            ["Version", row.version !== null && row.version !== undefined ? <Text of={row.version} /> : null],
          ]}
        />
      </Head>
      {(row.path ?? []).length > 0 && <Card title="From wanted to running"><IntentPath legs={row.path} /></Card>}
      <Card title="Wanted and reported"><Compared row={row} /></Card>
      <details class="as-command"><summary>As commands</summary><Command line={commands.showDeployment(row.cluster, row.name)} /><Command line={commands.moveDeployment(row.cluster, row.name, row.host ?? "")} /><Command line={commands.suspendDeployment(row.cluster, row.name, suspended)} /><Command line={commands.reconcileDeployment(row.cluster, row.name)} /><Command line={commands.deleteDeployment(row.cluster, row.name)} /></details>
      {dialog.value === "move" && <MoveDeployment row={row} close={close} />}
      {dialog.value === "delete" && (
        <TypeTheName
          title={`Delete ${visible(row.name, 60)}`}
          verb="Delete the deployment"
          name={row.name}
          consequence={`The edge of ${visible(row.cluster, 60)} removes its release (${visible(row.chart, 60)}).`}
          command={commands.deleteDeployment(row.cluster, row.name)}
          send={() => act("deployment.delete", { deployment: row.key }, `Delete deployment ${row.name}`)}
          close={close}
        />
      )}
    </Hatched>
  );
}
