// The messages of an Edge Node as they arrive, with what is odd about them.
import { Card, Details } from "../components/page.tsx";
import { DataTable, Hatched, Nothing } from "../components/table.tsx";
import { Text, When } from "../components/text.tsx";
import { clock, count, valueText } from "../format.ts";
import { useTable } from "../hooks.ts";
import { link, route } from "../router.ts";
import type { MessageMetric, MessageRow } from "../wire.ts";

/** Metrics that a row of the table names. */
const NAMED = 4;

/** What a message calls a metric. */
const nameOf = (metric: MessageMetric) => metric.name ?? `alias ${metric.alias}`;

function Detail({ row }: { row: MessageRow }) {
  return (
    <Card title={`${row.kind} ${row.device}`} class="metric-detail">
      {row.note !== "" && <p class="reason h-attention"><Text of={row.note} longest={400} /></p>}
      <Details
        details={[
          ["Received", <When time={row.at} />],
          ["Timestamp", typeof row.timestamp === "number" ? <When time={row.timestamp} /> : row.timestamp],
          ["seq", row.seq],
          ["bdSeq", row.bd_seq],
          ["Size", `${count(row.bytes)} bytes`],
          ["QoS", row.qos],
          ["Retained", row.retained ? "yes" : "no"],
        ]}
      />
      {row.metrics_total > row.metrics.length && <p class="note">The first {row.metrics.length} of {count(row.metrics_total)} metrics.</p>}
      <DataTable
        label="Metrics of the message"
        rows={row.metrics.map((metric, index) => ({ ...metric, key: String(index) }))}
        columns={[
          { title: "Metric", cell: (metric) => <Text of={nameOf(metric)} longest={100} /> },
          { title: "Value", cell: (metric) => <><code class={metric.value === null ? "null" : ""}><Text of={valueText(metric.value, 400)} longest={400} /></code> {metric.problem && <mark><Text of={metric.problem} /></mark>}{metric.historical && " historical"}</>, class: "value" },
          { title: "Type", cell: (metric) => metric.datatype, class: "wide" },
          { title: "Alias", cell: (metric) => metric.alias, class: "num" },
        ]}
        empty="It has no metrics."
      />
    </Card>
  );
}

/** Messages of a node, or of a device of it; the latest first. */
export function Messages({ node, device, path }: { node: string; device: string | undefined; path: string[] }) {
  const table = useTable(`messages:${node}`);
  const { q, message } = route.value.query;
  const chosen = message === undefined ? undefined : table.rows.value.get(message);
  const rows = table.list.value.filter((row) => device === undefined || row.device === device).sort((a, b) => b.key.localeCompare(a.key));
  return (
    <>
      {chosen && <Detail row={chosen} />}
      <Hatched of={table}>
        <DataTable
          label="Messages"
          rows={rows}
          href={(row) => link(path, { q, tab: "messages", message: row.key })}
          rowClass={(row) => (row.key === message ? "chosen" : "")}
          columns={[
            { title: "Received", cell: (row) => `${clock(row.at)}.${String(row.at % 1000).padStart(3, "0")}` },
            { title: "Message", cell: (row) => <>{row.kind} <Text of={row.device} longest={40} />{row.retained && " retained"}</> },
            { title: "seq", cell: (row) => row.seq, class: "num" },
            { title: "QoS", cell: (row) => row.qos, class: "num wide" },
            { title: "Bytes", cell: (row) => count(row.bytes), class: "num wide" },
            {
              title: "Content",
              cell: (row) => (
                <>
                  {row.note !== "" && <mark><Text of={row.note} longest={200} /></mark>} <Text of={row.metrics.slice(0, NAMED).map((metric) => `${nameOf(metric)} = ${valueText(metric.value, 20)}`).join(", ")} longest={120} />
                  {row.metrics_total > NAMED && ` and ${count(row.metrics_total - NAMED)} more`}
                </>
              ),
              class: "grow",
            },
          ]}
          empty={<Nothing of={table}>No message has arrived since you opened this tab.</Nothing>}
        />
      </Hatched>
      <p class="note">The latest messages since a browser has had this tab open. Nothing of them is recorded: <code>sparkfleet watch --record</code> does that.</p>
    </>
  );
}
