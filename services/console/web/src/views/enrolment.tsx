// Who waits to come in: hosts that have proven their TPM, hosts of a delivery note, clusters without an edge.
import { useSignal } from "@preact/signals";
import { commands } from "../commands.ts";
import { Command } from "../components/copy.tsx";
import { HostName } from "../components/lists.tsx";
import { Card, FilterBar, Head } from "../components/page.tsx";
import { Hatched, Nothing } from "../components/table.tsx";
import { Age, Text } from "../components/text.tsx";
import { enrolCommand, lineOf, readList } from "../enrolment.ts";
import { filtered } from "../filter.ts";
import { inFours, plural, visible } from "../format.ts";
import { useTable } from "../hooks.ts";
import { hostLink, ownName } from "../hosts.ts";
import { link, route } from "../router.ts";
import type { HostRow } from "../wire.ts";

const waits = (row: HostRow): boolean => row.ek !== null && row.joined !== true && (row.member === "waiting" || row.member === "refused");

function Waiting({ rows }: { rows: readonly HostRow[] }) {
  const chosen = useSignal<ReadonlySet<string>>(new Set());
  const toggle = (key: string) => {
    const next = new Set(chosen.value);
    if (!next.delete(key)) next.add(key);
    chosen.value = next;
  };
  const picked = rows.filter((row) => chosen.value.has(row.key));
  const clusters = [...new Set(picked.map((row) => row.cluster))];
  return (
    <>
      <div class="table-scroll" tabIndex={0}>
        <table aria-label="Hosts that wait">
          <thead>
            <tr>
              <th class="choose" scope="col"><input type="checkbox" aria-label="Choose all" checked={rows.length > 0 && picked.length === rows.length} onChange={(event) => (chosen.value = new Set(event.currentTarget.checked ? rows.map((row) => row.key) : []))} /></th>
              <th scope="col">Host</th><th scope="col">Cluster</th><th scope="col">State</th><th scope="col">Role</th><th class="num" scope="col">Since</th><th class="grow" scope="col">Endorsement key</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.key}>
                <td class="choose"><input type="checkbox" aria-label={`Choose ${visible(ownName(row), 60)}`} checked={chosen.value.has(row.key)} onChange={() => toggle(row.key)} /></td>
                <td><a href={hostLink(row)}><HostName row={row} /></a></td>
                <td><Text of={row.cluster} longest={40} /></td>
                <td><Text of={row.refusal ? `refused: ${row.refusal.code}` : row.member} longest={60} /></td>
                <td><Text of={row.role} longest={30} /></td>
                <td class="num"><Age since={row.since} /></td>
                <td class="mono"><code class="ek">{inFours(visible(row.ek, 80))}</code></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {picked.length === 0 && <p class="note">Compare each endorsement key with the machine, and tick the hosts to approve.</p>}
      {clusters.map((cluster) => {
        const own = picked.filter((row) => row.cluster === cluster);
        return <Command key={cluster} why={`Approve ${plural(own.length, "host")} of ${visible(cluster, 60)} by one signed policy. The key that signs it is on your machine only:`} line={enrolCommand(cluster, own.map(lineOf))} />;
      })}
    </>
  );
}

function DeliveryNote({ known }: { known: ReadonlySet<string> }) {
  const clusters = useTable("clusters").list.value;
  const [text, cluster] = [useSignal(""), useSignal("")];
  const { lines, wrong } = readList(text.value, known);
  const name = cluster.value || clusters[0]?.name || "";
  return (
    <>
      <p>Paste the endorsement keys of machines that are on their way: a line for each, <code>EK,NAME,DISK,ROLE,IAK</code>, of which all but the first may be missing. They are admitted when they are switched on.</p>
      <label>Cluster <select value={name} onChange={(event) => (cluster.value = event.currentTarget.value)}>{clusters.map((row) => <option value={row.name} key={row.key}>{visible(row.name, 60)}</option>)}</select></label>
      <label>List <textarea rows={5} spellcheck={false} value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} /></label>
      {wrong.length > 0 && <ul class="wrong" role="alert">{wrong.slice(0, 20).map((one) => <li key={one}>{one}</li>)}</ul>}
      {wrong.length === 0 && lines.length > 0 && <Command why={`Enrol ${plural(lines.length, "host")}, all or none:`} line={enrolCommand(name, lines)} />}
    </>
  );
}

export function EnrolmentView() {
  const [hosts, clusters] = [useTable("hosts"), useTable("clusters")];
  const { q = "" } = route.value.query;
  const waiting = filtered(hosts.list.value.filter(waits), q, "");
  const members = new Set(hosts.list.value.filter((row) => row.joined === true && row.ek !== null).map((row) => row.ek!.toLowerCase()));
  const unborn = filtered(clusters.list.value.filter((row) => row.setup === "ready" && row.edge === "not yet"), q, "");
  return (
    <>
      <Head title="Enrolment" />
      <FilterBar />
      <Hatched of={hosts}>
        <Card title="Hosts that wait">{waiting.length > 0 ? <Waiting rows={waiting} /> : <Nothing of={hosts}>No host waits.</Nothing>}</Card>
      </Hatched>
      <div class="columns">
        <Card title="Delivery note"><DeliveryNote known={members} /></Card>
        <Card title="Clusters without an edge">
          {unborn.length === 0 ? <Nothing of={clusters}>Every cluster has had an edge.</Nothing> : (
            <ul>{unborn.map((row) => <li key={row.key}><a href={link(["cluster", row.name], { tab: "setup" })}><Text of={row.name} longest={60} /></a> <Command line={commands.bootstrap(row.name)} /></li>)}</ul>
          )}
        </Card>
      </div>
    </>
  );
}
