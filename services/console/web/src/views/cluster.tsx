// One cluster: how its set-up stands, what it has, and what is to do.
import { useSignal } from "@preact/signals";
import { act, actNow, ActionError, type Accepted } from "../actions.ts";
import { now, shownTime } from "../clock.ts";
import { commands } from "../commands.ts";
import { Command } from "../components/copy.tsx";
import { TypeTheName } from "../components/dialog.tsx";
import { EventList } from "../components/events.tsx";
import { newestFirst } from "../events.ts";
import { CreateDeployment, SetWave } from "../components/forms.tsx";
import { HealthMark } from "../components/health.tsx";
import { Icon } from "../components/icon.tsx";
import { Ladder } from "../components/ladder.tsx";
import { AlertTable, DeploymentTable, HostTable } from "../components/lists.tsx";
import { Card, Details, FilterBar, Head, Tabs } from "../components/page.tsx";
import { Secrets } from "../components/secrets.tsx";
import { Hatched, Nothing } from "../components/table.tsx";
import { Age, Text, When } from "../components/text.tsx";
import { filtered } from "../filter.ts";
import { age, visible } from "../format.ts";
import { byUrgency } from "../health.ts";
import { may, useTable } from "../hooks.ts";
import { EVENTS_SHOWN } from "../stream.ts";
import { link, route } from "../router.ts";
import type { ClusterRow } from "../wire.ts";

/** The bootstrap command: made on request, shown once, never stored. */
function Bootstrap({ row }: { row: ClusterRow }) {
  const answer = useSignal<Accepted | null>(null);
  const wrong = useSignal<string | null>(null);
  const make = async () => {
    wrong.value = null;
    try {
      answer.value = await act("cluster.bootstrap", { cluster: row.key }, `Bootstrap command for ${row.name}`);
    } catch (error) {
      wrong.value = error instanceof ActionError ? error.message : String(error);
    }
  };
  const { command } = answer.value ?? {};
  const expires = answer.value?.expires === undefined ? undefined : Date.parse(answer.value.expires);
  return (
    <Card title="Bootstrap">
      <p>The bootstrap command makes a Kubernetes cluster this edge cluster. Paste it where <code>kubectl</code> reaches that cluster. Treat it as a password.</p>
      {command !== undefined ? (
        <>
          <Command line={command} />
          {expires !== undefined && <p class="note">{expires > now.value ? `It can be used for ${age(expires - now.value)}.` : "It has expired. Make a new one."}</p>}
        </>
      ) : (
        <>
          {may("cluster.bootstrap") && <button onClick={make}><Icon name="key" /> Make the command</button>}
          {wrong.value && <p class="wrong" role="alert">{visible(wrong.value, 400)}</p>}
          <details><summary>As command</summary><Command line={commands.bootstrap(row.name)} /></details>
        </>
      )}
    </Card>
  );
}

function Repository({ row }: { row: ClusterRow }) {
  const { git, flux } = row;
  const same = git?.wanted === git?.applied;
  return (
    <Card title="Repository">
      <Details
        details={[
          ["Commit wanted", git?.wanted && <code><Text of={git.wanted} longest={64} /></code>],
          ["Commit applied", git?.applied && <code class={same ? "" : "differs"}><Text of={git.applied} longest={64} /></code>],
          ["Flux", flux && (flux.ready === true ? "ready" : flux.ready === false ? "not ready" : "not known")],
          ["Flux says", flux?.message && <Text of={flux.message} longest={600} />],
        ]}
      />
      {!git && !flux && <p class="note">Nothing is reported of the repository.</p>}
    </Card>
  );
}

function Body({ row }: { row: ClusterRow }) {
  const [hosts, deployments, alerts, events] = [useTable("hosts"), useTable("deployments"), useTable("alerts"), useTable("events")];
  const of = (own: { cluster: string | null }) => own.cluster === row.name || own.cluster === row.key;
  const { q = "" } = route.value.query;
  const [ownHosts, ownDeployments, ownAlerts, ownEvents] = [hosts.list.value.filter(of), deployments.list.value.filter(of), alerts.list.value.filter(of), newestFirst(events.list.value.filter(of))];
  const tab = route.value.query.tab ?? (row.setup === "ready" ? "hosts" : "setup");
  return (
    <>
      <Tabs
        chosen={tab}
        tabs={[
          { id: "hosts", title: "Hosts", number: ownHosts.length },
          { id: "deployments", title: "Deployments", number: ownDeployments.length },
          { id: "alerts", title: "Alerts", number: ownAlerts.length },
          { id: "setup", title: "Set-up" },
          { id: "repository", title: "Repository" },
          { id: "secrets", title: "Secrets" },
          { id: "events", title: "Events" },
        ]}
      />
      {["hosts", "deployments", "alerts"].includes(tab) && <FilterBar />}
      {tab === "hosts" && <Hatched of={hosts}><HostTable of={hosts} rows={filtered(ownHosts, q, "").sort(byUrgency)} /></Hatched>}
      {tab === "deployments" && <Hatched of={deployments}><DeploymentTable of={deployments} rows={filtered(ownDeployments, q, "").sort(byUrgency)} /></Hatched>}
      {tab === "alerts" && <Hatched of={alerts}><AlertTable of={alerts} rows={filtered(ownAlerts, q, "")} /></Hatched>}
      {tab === "setup" && <div class="columns"><Card title="Set-up"><Ladder steps={row.steps ?? []} /></Card><Bootstrap row={row} /></div>}
      {tab === "repository" && <Repository row={row} />}
      {tab === "secrets" && <Secrets cluster={row} />}
      {tab === "events" && <Card title="Events" actions={<a href={link(["timeline"], { cluster: row.name })}>Timeline</a>}><EventList events={ownEvents} cluster={false} /><p class="note">Those of this cluster among the latest {EVENTS_SHOWN} events of the fleet. The timeline has the earlier ones.</p></Card>}
    </>
  );
}

export function ClusterView() {
  const name = route.value.args[0] ?? "";
  const table = useTable("clusters");
  const dialog = useSignal<"delete" | "deploy" | "wave" | null>(null);
  const row = table.list.value.find((one) => one.name === name || one.key === name);
  const above = [{ title: "Clusters", href: link(["clusters"]) }];
  if (!row) return <><Head title={<Text of={name} />} above={above} /><div class="empty"><Nothing of={table}>This cluster is not known{route.value.query.tab === "setup" ? " yet; it appears as soon as its entry is written" : ""}.</Nothing></div></>;
  const close = () => (dialog.value = null);
  const ends = row.certificate_ends;
  return (
    <Hatched of={table}>
      <Head
        title={<><Text of={row.name} longest={60} /> <HealthMark row={row} /></>}
        above={above}
        actions={
          <>
            {may("deployment.create") && <button onClick={() => (dialog.value = "deploy")}><Icon name="plus" /> New deployment</button>}
            {may("cluster.reconcile") && <button onClick={() => void actNow("cluster.reconcile", { cluster: row.key }, `Reconcile ${row.name}`)}><Icon name="refresh" /> Reconcile</button>}
            {may("cluster.wave") && <button onClick={() => (dialog.value = "wave")}>Wave…</button>}
            {may("cluster.delete") && <button class="danger-quiet" onClick={() => (dialog.value = "delete")}><Icon name="trash" /> Delete</button>}
          </>
        }
      >
        {row.reasons?.map((reason) => <p class={`reason h-${row.health}`} key={reason}><Text of={reason} longest={600} /></p>)}
        <Details
          details={[
            ["Set-up", <Text of={row.setup} />],
            ["Edge", <><Text of={row.edge} /> <Age since={row.alive_since} prefix="for " /></>],
            ["Hosts ready", `${row.hosts?.ready ?? 0} of ${row.hosts?.total ?? 0}`],
            ["Deployments ready", `${row.deployments?.ready ?? 0} of ${row.deployments?.total ?? 0}`],
            ["Sparkplug group", <a href={link(["explorer"], { q: row.group })}><Text of={row.group} /></a>],
            ["Attestation", <a href={link(["policy", row.name])}>policy</a>],
            ["Entries", <a href={link(["config", row.key])}>configuration</a>],
            ["Wave", row.wave],
            ["Desired version", row.desired_version],
            ["Edge runs it", row.agreed === null ? "not known" : row.agreed ? "yes" : "not yet"],
            ["Software", row.version && <Text of={row.version} />],
            ["Certificate ends", ends && <><When time={ends} /> {ends > shownTime.value ? `(in ${age(ends - shownTime.value)})` : "(has ended)"}</>],
            ["Held", row.held && <Text of={row.held} longest={400} />],
            ["Simulated", row.simulated ? "yes" : null],
            ...Object.entries(row.labels ?? {}).map(([label, value]): [string, preact.ComponentChildren] => [visible(label, 40), <Text of={value} />]),
          ]}
        />
      </Head>
      <Body row={row} />
      <details class="as-command"><summary>As commands</summary><Command line={commands.showCluster(row.name)} /><Command line={commands.createDeployment(row.name, "NAME", "Edge agent", "")} /><Command line={commands.reconcileCluster(row.name)} /><Command line={commands.deleteCluster(row.name)} /></details>
      {dialog.value === "deploy" && <CreateDeployment cluster={row.name} close={close} />}
      {dialog.value === "wave" && <SetWave row={row} close={close} />}
      {dialog.value === "delete" && (
        <TypeTheName
          title={`Delete ${visible(row.name, 60)}`}
          verb="Delete the cluster"
          name={row.name}
          consequence={`Its tear-down begins: ${row.deployments?.total ?? 0} deployments, its accounts, its address and the access to its repository go. Its hosts and what else runs on its Kubernetes stay.`}
          action={{ name: "cluster.delete", body: { cluster: row.key, with_deployments: true } }}
          command={commands.deleteCluster(row.name)}
          send={() => act("cluster.delete", { cluster: row.key, with_deployments: true }, `Delete cluster ${row.name}`)}
          close={close}
        />
      )}
    </Hatched>
  );
}
