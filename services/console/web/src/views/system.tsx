// The services of the organisation, and the console's own link.
import { CopyButton } from "../components/copy.tsx";
import { HealthMark } from "../components/health.tsx";
import { Card, Details, Head, Present } from "../components/page.tsx";
import { DataTable, Hatched, Nothing } from "../components/table.tsx";
import { Age, Text } from "../components/text.tsx";
import { consoleRow, useTable } from "../hooks.ts";
import { session } from "../store.ts";
import { connection } from "../stream.ts";
import { newestFirst } from "../events.ts";
import { plural } from "../format.ts";
import { link } from "../router.ts";
import type { ActionRow, ServiceRow } from "../wire.ts";

/** Programs of machines on their way in: they end when the machine is a member. */
const isOfHost = (row: ServiceRow): boolean => /-Join\//.test(row.key);

const health = (row: ServiceRow) => ({ health: row.alive ? ("good" as const) : ("away" as const) });

export function SystemView() {
  const [services, actions] = [useTable("services"), useTable("actions", true)];
  const [row, who] = [consoleRow.value, session.value];
  const rows = [...services.list.value].sort((a, b) => a.key.localeCompare(b.key));
  const joining = rows.filter(isOfHost);
  const done = newestFirst(actions.list.value as never[]) as unknown as ActionRow[];
  return (
    <>
      <Head title="System" />
      <div class="columns">
        <Card title="This console">
          <Present />
          <Details
            details={[
              ["Stream", connection.value.state],
              ["Broker", row && <><Text of={row.broker} /> <CopyButton text={row.broker} title="Copy the address of the broker" /></>],
              ["Session", row && <>{row.online ? "online" : "offline"} <Age since={row.since} prefix="for " live /></>],
              ["Complete", row && (row.complete ? "yes" : <>no, missing: <Text of={row.missing.join(", ")} longest={600} /></>)],
              ["History", row && (row.history.recording ? "recording" : <Text of={row.history.reason ?? "not recording: waiting for the broker and for births"} longest={300} />)],
              ["Viewers", row?.sessions],
              ["Version", row && <Text of={row.version} />],
              ["Host id", row && <code><Text of={row.host_id} /></code>],
              ["Signed in as", who && <>{who.user === null ? "no user" : <Text of={who.user} />} ({who.role})</>],
              ["Actions", who && (who.read_only ?? (who.actions.length > 0 ? who.actions.join(", ") : "none"))],
            ]}
          />
        </Card>
        <Card title="Services">
          <Hatched of={services}>
            <DataTable
              label="Services"
              rows={rows.filter((one) => !isOfHost(one))}
              columns={[
                { title: "Service", cell: (one) => <Text of={one.name || one.key} longest={60} /> },
                { title: "Health", cell: (one) => <HealthMark row={health(one)} /> },
                { title: "Since", cell: (one) => <Age since={one.since} />, class: "num" },
                { title: "Version", cell: (one) => <Text of={one.version ?? ""} longest={30} /> },
                { title: "Instance", cell: (one) => <Text of={one.instance ?? ""} longest={40} />, class: "mono wide" },
              ]}
              empty={<Nothing of={services}>No service has sent anything.</Nothing>}
            />
            {joining.length > 0 && <p class="note">{plural(joining.length, "program")} of machines on their way in, {joining.filter((one) => one.alive).length} alive. <a class="button" href={link(["enrolment"])}>Enrolment</a></p>}
          </Hatched>
        </Card>
      </div>
      <Card title="Actions">
        <Present>These are the actions up to the present.</Present>
        <DataTable
          label="Actions"
          rows={done.slice(0, 50)}
          columns={[
            { title: "Action", cell: (one) => <Text of={one.name} longest={60} /> },
            { title: "On", cell: (one) => <Text of={one.target} longest={80} /> },
            { title: "State", cell: (one) => <Text of={one.state} longest={20} /> },
            { title: "Ago", cell: (one) => <Age since={one.at} live />, class: "num" },
            { title: "By", cell: (one) => <Text of={one.who} longest={60} /> },
            { title: "Result", cell: (one) => <Text of={one.text} />, class: "grow" },
          ]}
          empty={<Nothing of={actions}>Nothing was done from a console.</Nothing>}
        />
      </Card>
    </>
  );
}
