// The tables of objects, used by several pages.
import { link } from "../router.ts";
import type { AlertRow, ClusterRow, DeploymentRow, HostRow } from "../wire.ts";
import type { Table } from "../store.ts";
import { useSignal } from "@preact/signals";
import { actNow } from "../actions.ts";
import { stamp, visible } from "../format.ts";
import { may } from "../hooks.ts";
import { hostLink, ownName } from "../hosts.ts";
import { Acknowledge, alertSubject } from "./forms.tsx";
import { HealthMark } from "./health.tsx";
import { DataTable, Nothing, type Column } from "./table.tsx";
import { Age, Text } from "./text.tsx";

const health = <R extends { health: ClusterRow["health"] }>(): Column<R> => ({ title: "Health", cell: (row) => <HealthMark row={row} />, class: "fit" });
const why = <R extends { reasons: string[] }>(): Column<R> => ({ title: "Why", cell: (row) => <Text of={row.reasons?.[0] ?? ""} longest={160} />, class: "grow" });
const since = <R extends { since: number | null }>(): Column<R> => ({ title: "Since", cell: (row) => <Age since={row.since} />, class: "num" });

const CLUSTERS: Column<ClusterRow>[] = [
  { title: "Cluster", cell: (row) => <Text of={row.name} longest={60} /> },
  health(),
  since(),
  { title: "Set-up", cell: (row) => <Text of={row.setup} longest={30} />, class: "wide" },
  { title: "Edge", cell: (row) => <Text of={row.edge} longest={30} />, class: "wide" },
  { title: "Hosts", cell: (row) => `${row.hosts?.ready ?? 0}/${row.hosts?.total ?? 0}`, class: "num" },
  { title: "Deployments", cell: (row) => `${row.deployments?.ready ?? 0}/${row.deployments?.total ?? 0}`, class: "num" },
  { title: "Wave", cell: (row) => row.wave ?? "", class: "num wide" },
  why(),
];

export function ClusterTable({ rows, of }: { rows: readonly ClusterRow[]; of: Pick<Table, "state"> }) {
  return <DataTable label="Clusters" rows={rows} columns={CLUSTERS} href={(row) => link(["cluster", row.name])} empty={<Nothing of={of}>No cluster.</Nothing>} />;
}

/** The name of a host, with its id where another one has the name. */
export function HostName({ row }: { row: HostRow }) {
  return <><Text of={row.name} longest={60} />{ownName(row) !== row.name && <> <span class="note"><Text of={ownName(row)} longest={60} /></span></>}</>;
}

const HOSTS: Column<HostRow>[] = [
  { title: "Host", cell: (row) => <HostName row={row} /> },
  health(),
  since(),
  { title: "Cluster", cell: (row) => <Text of={row.cluster} longest={40} />, class: "cluster-cell" },
  { title: "Role", cell: (row) => <Text of={row.role} longest={30} />, class: "wide" },
  { title: "Member", cell: (row) => <Text of={row.refusal ? `refused: ${row.refusal.code}` : row.member} longest={40} /> },
  why(),
];

export function HostTable({ rows, of, label = "Hosts" }: { rows: readonly HostRow[]; of: Pick<Table, "state">; label?: string }) {
  return <DataTable label={label} rows={rows} columns={HOSTS} href={hostLink} empty={<Nothing of={of}>No host.</Nothing>} />;
}

const DEPLOYMENTS: Column<DeploymentRow>[] = [
  { title: "Deployment", cell: (row) => <Text of={row.name} longest={60} /> },
  health(),
  since(),
  { title: "Cluster", cell: (row) => <Text of={row.cluster} longest={40} />, class: "cluster-cell" },
  { title: "Chart", cell: (row) => <Text of={row.chart} longest={40} />, class: "wide" },
  { title: "Host", cell: (row) => <Text of={row.host ?? "floating"} longest={40} />, class: "wide" },
  { title: "State", cell: (row) => <Text of={row.state} longest={30} /> },
  why(),
];

export function DeploymentTable({ rows, of }: { rows: readonly DeploymentRow[]; of: Pick<Table, "state"> }) {
  return <DataTable label="Deployments" rows={rows} columns={DEPLOYMENTS} href={(row) => link(["deployment", row.cluster, row.name])} empty={<Nothing of={of}>No deployment.</Nothing>} />;
}

const ALERTS: Column<AlertRow>[] = [
  { title: "Alert", cell: (row) => <Text of={row.alert} longest={60} /> },
  since(),
  { title: "Cluster", cell: (row) => <Text of={row.cluster} longest={40} /> },
  { title: "Node", cell: (row) => <Text of={row.node} longest={60} /> },
  { title: "Reason", cell: (row) => <Text of={row.reason} longest={200} />, class: "grow" },
  { title: "Said by", cell: (row) => <Text of={row.monitor} longest={40} />, class: "wide" },
  { title: "What to do", cell: (row) => <a href={link(["runbook", row.alert])} aria-label={`What to do about ${visible(row.alert, 60)}`}>Runbook</a>, class: "fit" },
  { title: "Looked after by", cell: (row) => <Acknowledgement row={row} /> },
];

/** Who looks after an alert, and the way to say so. */
function Acknowledgement({ row }: { row: AlertRow }) {
  const asking = useSignal(false);
  const known = row.acknowledged;
  const about = `${row.alert} of ${alertSubject(row)}`;
  return (
    <span class="acknowledgement">
      {known && <span title={visible(known.note ?? "")}><Text of={known.by.replace(/^console\/((token|oidc):)?/, "")} longest={30} /> <Age since={known.at} prefix="for " />{known.note && <>: <Text of={known.note} longest={60} /></>}{known.until !== undefined && <>, silenced until {stamp(known.until)}</>}</span>}
      {!known && may("alert.acknowledge") && <button class="quiet" aria-label={`Acknowledge ${visible(about, 80)}`} onClick={() => (asking.value = true)}>Acknowledge</button>}
      {known && may("alert.acknowledge") && <button class="quiet" aria-label={`Withdraw the acknowledgement of ${visible(about, 80)}`} onClick={() => void actNow("alert.acknowledge", { alert: row.key, withdraw: true }, `Withdraw the acknowledgement of ${about}`)}>Withdraw</button>}
      {asking.value && <Acknowledge row={row} close={() => (asking.value = false)} />}
    </span>
  );
}

export function AlertTable({ rows, of }: { rows: readonly AlertRow[]; of: Pick<Table, "state"> }) {
  return <DataTable label="Alerts" rows={rows} columns={ALERTS} href={(row) => link(["cluster", row.cluster], { tab: "alerts" })} empty={<Nothing of={of}>No alert is active.</Nothing>} />;
}
