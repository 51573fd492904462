// One deployment: what is wanted beside what is reported, and the way between them.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { act, actNow } from "../actions.ts";
import { commands } from "../commands.ts";
import { Command } from "../components/copy.tsx";
import { TypeTheName } from "../components/dialog.tsx";
import { EventList } from "../components/events.tsx";
import { MoveDeployment } from "../components/forms.tsx";
import { HealthMark } from "../components/health.tsx";
import { Icon } from "../components/icon.tsx";
import { IntentPath } from "../components/ladder.tsx";
import { Card, Details, Head } from "../components/page.tsx";
import { Hatched, Nothing } from "../components/table.tsx";
import { Text } from "../components/text.tsx";
import { newestFirst } from "../events.ts";
import { compare, visible } from "../format.ts";
import { may, useTable } from "../hooks.ts";
import { at, link, route } from "../router.ts";
import { laidOut } from "../schema.ts";
import { readEvents } from "../stream.ts";
import type { DeploymentRow, EventPage } from "../wire.ts";

/** Reads of the history while events come: at most one in this time. */
const READ_MS = 300;

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

/** The entries that the deployment is made of, each where it can be edited. */
const SOURCES: [string, string][] = [["EdgeDeployment", "The deployment, with its own Helm values"], ["AgentConfig", "Configuration of its edge agent"]];

/** An entry as it is in ConfigDB. */
function Entry({ object, application, title }: { object: string; application: string; title: string }) {
  const entry = useTable(`entries:${object}`).rows.value.get(application);
  if (entry === undefined) return null;
  return (
    <details data-entry={application}>
      <summary>{title}</summary>
      <p><a href={link(["config", object, application])}>{application}</a></p>
      <pre class="mono" tabIndex={0}><Text of={laidOut(entry.json)} longest={20_000} /></pre>
    </details>
  );
}

/** What the manifests are rendered from: the chart template with its values, and what this deployment puts over them. */
function AsWritten({ row }: { row: DeploymentRow }) {
  const object = row.key.split("/").at(-1)!;
  const { charts, chart } = (row.wanted ?? {}) as { charts?: unknown; chart?: unknown };
  const templates = [chart, ...(Array.isArray(charts) ? charts : [])].filter((one): one is string => typeof one === "string");
  return (
    <>
      {templates.map((template) => <Entry object={template} application="HelmChartTemplate" title="Its chart template, with values for all" key={template} />)}
      {SOURCES.map(([application, title]) => <Entry object={object} application={application} title={title} key={application} />)}
    </>
  );
}

/** The manifests that the deployment is rendered to, and whether the edge has applied these. */
function Manifests({ row }: { row: DeploymentRow }) {
  const table = useTable(`manifests:${row.key.split("/").at(-1)!}`);
  const summary = table.rows.value.get("000");
  if (summary === undefined) return <Nothing of={table}>Nothing is rendered.</Nothing>;
  if (summary.reason) return <p class="note">It cannot be rendered: <Text of={summary.reason} longest={600} /></p>;
  return (
    <>
      <p>
        {summary.applied === summary.digest ? "The edge has applied these manifests." : summary.applied ? <mark>The edge has applied other manifests, and keeps them until these reach it.</mark> : "The edge reports no manifests of it yet."}{" "}
        <span class="note">Digest <code>{summary.digest!.slice(0, 12)}</code></span>
      </p>
      {table.list.value.filter((one) => one.json !== undefined).map((one) => (
        <details data-manifest={one.kind} key={one.key}>
          <summary>{one.kind} <Text of={one.name!} longest={80} /></summary>
          <pre class="mono" tabIndex={0}><Text of={laidOut(one.json!)} longest={20_000} /></pre>
        </details>
      ))}
    </>
  );
}

/** The recorded transitions of one deployment, the latest first. */
function Happened({ row }: { row: DeploymentRow }) {
  const [page, failed] = [useSignal<EventPage | null>(null), useSignal<string | null>(null)];
  const [time, subject] = [at.value, `deployment ${row.name}`];
  // What is recorded comes over the stream, too: then the history is read again.
  const latest = newestFirst(useTable("events", true).list.value).find((event) => event.subject === subject && event.cluster === row.cluster)?.key;
  useEffect(() => {
    const abort = new AbortController();
    const read = async () => {
      try {
        [page.value, failed.value] = [await readEvents(0, row.cluster, abort.signal, 1, { subject, at: time }), null];
      } catch (error) {
        if (!abort.signal.aborted) failed.value = (error as Error).message;
      }
    };
    const soon = setTimeout(() => void read(), READ_MS);
    return () => {
      clearTimeout(soon);
      abort.abort();
    };
  }, [row.cluster, subject, time, latest]);
  if (failed.value !== null) return <p class="note">There is no history of it: {visible(failed.value, 200)}</p>;
  if (page.value === null) return <p class="note">Reading…</p>;
  return <>{page.value.rows.length > 0 ? <EventList events={page.value.rows} cluster={false} /> : <p class="note">Nothing of it is recorded.</p>}{page.value.next !== null && <p class="note">Earlier events are in the timeline.</p>}</>;
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
        <Details
          details={[
            ["State", <Text of={row.state} />],
            ["Chart", <Text of={row.chart} />],
            ["Host", row.host ? <a href={link(["host", row.cluster, row.host])}><Text of={row.host} /></a> : "floating"],
            ["Version", row.version !== null && row.version !== undefined ? <Text of={row.version} /> : null],
          ]}
        />
      </Head>
      {(row.path ?? []).length > 0 && <Card title="From wanted to running"><IntentPath legs={row.path} /></Card>}
      <Card title="Wanted and reported"><Compared row={row} /></Card>
      {at.value === null && <Card title="As written"><AsWritten row={row} /></Card>}
      {at.value === null && <Card title="Manifests"><Manifests row={row} /></Card>}
      <Card title="What happened"><Happened row={row} /></Card>
      <details class="as-command"><summary>As commands</summary><Command line={commands.showDeployment(row.cluster, row.name)} /><Command line={commands.showManifests(row.cluster, row.name)} /><Command line={commands.moveDeployment(row.cluster, row.name, row.host ?? "")} /><Command line={commands.suspendDeployment(row.cluster, row.name, suspended)} /><Command line={commands.reconcileDeployment(row.cluster, row.name)} /><Command line={commands.deleteDeployment(row.cluster, row.name)} /></details>
      {dialog.value === "move" && <MoveDeployment row={row} close={close} />}
      {dialog.value === "delete" && (
        <TypeTheName
          title={`Delete ${visible(row.name, 60)}`}
          verb="Delete the deployment"
          name={row.name}
          consequence={`The edge of ${visible(row.cluster, 60)} removes its release (${visible(row.chart, 60)}).`}
          action={{ name: "deployment.delete", body: { deployment: row.key } }}
          command={commands.deleteDeployment(row.cluster, row.name)}
          send={() => act("deployment.delete", { deployment: row.key }, `Delete deployment ${row.name}`)}
          close={close}
        />
      )}
    </Hatched>
  );
}
