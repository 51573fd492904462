// Every Edge Node on the broker: tree, live values, trend. It works for nodes of others, too.
import { useSignal } from "@preact/signals";
import { act, actNow } from "../actions.ts";
import { commands } from "../commands.ts";
import { Command } from "../components/copy.tsx";
import { Field, FormDialog } from "../components/dialog.tsx";
import { Shape } from "../components/health.tsx";
import { Icon } from "../components/icon.tsx";
import { Card, Details, FilterBar, Head, NoPast, Tabs } from "../components/page.tsx";
import { DataTable, Hatched, Nothing } from "../components/table.tsx";
import { Age, Text } from "../components/text.tsx";
import { Trend } from "../components/trend.tsx";
import { parseFilter, passes } from "../filter.ts";
import { count, valueText, visible } from "../format.ts";
import { healthOf } from "../health.ts";
import { may, useTable } from "../hooks.ts";
import { at, link, route } from "../router.ts";
import type { MetricRow, NodeRow } from "../wire.ts";
import { Messages } from "./messages.tsx";

/** Groups that are rendered at most; the filter finds the others. */
const MOST_GROUPS = 200;
/** With more groups than this all but the chosen one are closed. */
const OPEN_GROUPS = 25;

/** Nodes by their group, both in order. */
export function byGroup(nodes: readonly NodeRow[]): [string, NodeRow[]][] {
  const groups = new Map<string, NodeRow[]>();
  for (const node of [...nodes].sort((a, b) => a.key.localeCompare(b.key))) groups.set(node.group, [...(groups.get(node.group) ?? []), node]);
  return [...groups];
}

function Tree({ nodes, chosen, device }: { nodes: readonly NodeRow[]; chosen: string; device: string | undefined }) {
  const filter = parseFilter(route.value.query.q ?? "");
  const groups = byGroup(nodes.filter((node) => passes(node, filter)));
  return (
    <nav class="tree" aria-label="Edge Nodes">
      {groups.slice(0, MOST_GROUPS).map(([group, members]) => (
        <details open={groups.length <= OPEN_GROUPS || chosen.startsWith(`${group}/`)} key={group}>
          <summary><Text of={group} longest={60} /> <span class="number">{members.length}</span></summary>
          <ul>
            {members.map((node) => (
              <li key={node.key}>
                <a data-row href={link(["explorer", node.group, node.node], { q: route.value.query.q })} aria-current={node.key === chosen && device === undefined ? "page" : undefined}>
                  <Shape health={healthOf(node)} /> <Text of={node.node} longest={60} /> <span class="hidden">{node.alive ? "alive" : "away"}</span>
                </a>
                {node.key === chosen && (
                  <ul>
                    {node.devices.map((name) => (
                      <li key={name}>
                        <a data-row href={link(["explorer", node.group, node.node, name], { q: route.value.query.q })} aria-current={name === device ? "page" : undefined}><Text of={name} longest={60} /></a>
                      </li>
                    ))}
                  </ul>
                )}
              </li>
            ))}
          </ul>
        </details>
      ))}
      {groups.length > MOST_GROUPS && <p class="note">{count(groups.length - MOST_GROUPS)} more groups: filter for them.</p>}
    </nav>
  );
}

/** Values of these datatypes have no form as text. */
const WITHOUT_TEXT = new Set(["DataSet", "Template"]);

/** Writes a metric by a command; it is done when the node reports the value. */
function WriteMetric({ node, metric, close }: { node: string; metric: MetricRow; close: () => void }) {
  const value = useSignal(metric.value === null ? "" : typeof metric.value === "object" ? JSON.stringify(metric.value) : String(metric.value));
  const body = { node, ...(metric.device === "" ? {} : { device: metric.device }), metric: metric.name, value: value.value };
  const title = `Write ${metric.name} of ${[node, metric.device].filter((part) => part !== "").join("/")}`;
  return (
    <FormDialog
      title={visible(title, 120)}
      verb="Write"
      close={close}
      action={{ name: "metric.write", body }}
      isComplete={value.value !== ""}
      command={commands.writeMetric(node, metric.device, metric.name, value.value)}
      check={() => null}
      send={() => act("metric.write", body, title)}
    >
      {(wrong) => (
        <>
          <p>The node gets a command ({metric.device === "" ? "NCMD" : "DCMD"}). It decides whether it takes the value. What it moves, moves.</p>
          <Field name="value" label={`Value (${metric.datatype})`} hint="As text: true, 21.5, [1,2], hexadecimal digits for bytes, or null." wrong={wrong}>
            {(id, hint) => <input id={id} aria-describedby={hint} autofocus autocomplete="off" spellcheck={false} value={value.value} onInput={(event) => (value.value = event.currentTarget.value)} />}
          </Field>
        </>
      )}
    </FormDialog>
  );
}

function MetricDetail({ node, metric }: { node: NodeRow; metric: MetricRow }) {
  const writing = useSignal(false);
  const canWrite = may("metric.write") && node.alive && metric.writable === true && !WITHOUT_TEXT.has(metric.datatype);
  return (
    <Card title={visible(metric.name, 120)} class="metric-detail" actions={canWrite && <button onClick={() => (writing.value = true)}>Write…</button>}>
      {writing.value && <WriteMetric node={node.key} metric={metric} close={() => (writing.value = false)} />}
      {(metric.trend ?? []).length > 1 ? <Trend points={metric.trend ?? []} label={metric.name} /> : <p class="note">No trend: the value has not changed while the console was watching, or it is not a number.</p>}
      <Details
        details={[
          ["Value", <code><Text of={valueText(metric.value, 2000)} longest={2000} /></code>],
          ["Datatype", <Text of={metric.datatype} />],
          ["Alias", metric.alias],
          ["Quality", metric.quality !== null ? <Text of={qualityText(metric.quality)} /> : null],
          ["Historical", metric.historical ? "yes" : null],
          ...Object.entries(metric.properties ?? {}).map(([name, value]): [string, preact.ComponentChildren] => [visible(name, 40), valueText(value)]),
        ]}
      />
    </Card>
  );
}

/** The three qualities of Sparkplug by name; any other as it came. */
export function qualityText(quality: string | number | null): string {
  return { 0: "bad", 192: "good", 500: "stale" }[Number(quality ?? -1)] ?? String(quality ?? "");
}

function Metrics({ node, device, path }: { node: NodeRow; device: string | undefined; path: string[] }) {
  const table = useTable(`metrics:${node.key}`);
  const { metric: chosen, m = "" } = route.value.query;
  const filter = parseFilter(m);
  const rows = table.list.value.filter((row) => (device === undefined || row.device === device) && passes(row, filter)).sort((a, b) => a.key.localeCompare(b.key));
  const metric = chosen === undefined ? undefined : table.rows.value.get(chosen);
  return (
    <>
      {metric && <MetricDetail node={node} metric={metric} key={metric.key} />}
      <Hatched of={table}>
        <DataTable
          label="Metrics"
          rows={rows}
          href={(row) => link(path, { q: route.value.query.q, metric: row.key })}
          rowClass={(row) => `${row.key === chosen ? "chosen" : ""} ${node.alive ? "" : "stale"}`}
          columns={[
            { title: "Metric", cell: (row) => <>{device === undefined && row.device !== "" && <span class="device"><Text of={row.device} longest={40} /> / </span>}<Text of={row.name} longest={100} /></> },
            { title: "Value", cell: (row) => <code class={row.value === null ? "null" : ""}><Text of={valueText(row.value, 80)} /></code>, class: "value" },
            { title: "Type", cell: (row) => <Text of={row.datatype} longest={20} />, class: "wide" },
            ...(rows.some((row) => row.alias !== null) ? [{ title: "Alias", cell: (row: MetricRow) => row.alias ?? "", class: "num wide" }] : []),
            { title: "Quality", cell: (row) => <>{row.historical && "historical "}<Text of={qualityText(row.quality)} longest={20} /></>, class: "wide" },
            { title: "Age", cell: (row) => <Age since={row.at} />, class: "num" },
          ]}
          empty={<Nothing of={table}>No metric.</Nothing>}
        />
      </Hatched>
    </>
  );
}

function NodeDetail({ node, device }: { node: NodeRow; device: string | undefined }) {
  const { tab = "metrics" } = route.value.query;
  const path = ["explorer", node.group, node.node, ...(device === undefined ? [] : [device])];
  return (
    <div>
      <Card
        title={visible(device ?? node.node, 80)}
        actions={may("node.rebirth") && <button onClick={() => actNow("node.rebirth", { node: node.key }, `Rebirth of ${node.node}`)}><Icon name="refresh" /> Ask for a birth</button>}
      >
        {node.note && <p class={`reason h-${healthOf(node)}`}><Text of={node.note} longest={400} /></p>}
        <Details
          details={[
            ["State", <>{node.alive ? "alive" : "away"} <Age since={node.since} prefix="for " /></>],
            ["bdSeq", node.bd_seq],
            ["Messages", count(node.messages)],
            ["Rate", `${node.rate.toFixed(1)} /s`],
            ["Out of sync", node.gaps > 0 ? <mark>{node.gaps}</mark> : "0"],
            ["Rebirths", node.rebirths],
            ["Sparkplug", node.compliant ? "conforms" : <mark>does not conform</mark>],
          ]}
        />
        <details><summary>As commands</summary><Command line={commands.watch(node.group, node.node)} /><Command line={commands.rebirth(node.group, node.node)} why="Asks the node for its birth:" /></details>
      </Card>
      <Tabs chosen={tab} tabs={[{ id: "metrics", title: "Metrics" }, { id: "messages", title: "Messages" }]} />
      {tab === "messages" ? <Messages node={node.key} device={device} path={path} /> : <Metrics node={node} device={device} path={path} />}
    </div>
  );
}

export function ExplorerView() {
  return at.value === null ? <Live /> : <><Head title="Explorer" /><NoPast>The explorer has no past: what Edge Nodes send is not recorded.</NoPast></>;
}

function Live() {
  const table = useTable("nodes");
  const [group = "", name = "", device] = route.value.args;
  const key = `${group}/${name}`;
  const node = table.rows.value.get(key);
  return (
    <>
      <Head title="Explorer" />
      <FilterBar />
      <div class="explorer">
        <Hatched of={table}>
          {table.list.value.length === 0 ? <div class="empty"><Nothing of={table}>No Edge Node has sent anything.</Nothing></div> : <Tree nodes={table.list.value} chosen={key} device={device} />}
        </Hatched>
        {node ? <NodeDetail node={node} device={device} key={key} /> : <div class="empty">{group === "" ? "Choose an Edge Node." : <Nothing of={table}>This Edge Node is not known.</Nothing>}</div>}
      </div>
    </>
  );
}
