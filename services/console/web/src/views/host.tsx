// One host: its way in, what it has proven, and where it stopped.
import { useSignal } from "@preact/signals";
import { commands } from "../commands.ts";
import { Command } from "../components/copy.tsx";
import { MoveHost } from "../components/forms.tsx";
import { Icon } from "../components/icon.tsx";
import { HealthMark, Shape } from "../components/health.tsx";
import { Ladder } from "../components/ladder.tsx";
import { DeploymentTable, HostName } from "../components/lists.tsx";
import { Card, Details, Head } from "../components/page.tsx";
import { Hatched, Nothing } from "../components/table.tsx";
import { Text } from "../components/text.tsx";
import { differingDigits, inFours, valueText, visible } from "../format.ts";
import { may, useTable } from "../hooks.ts";
import { hostArgument, hostLink, namesakes, ownName } from "../hosts.ts";
import { link, route } from "../router.ts";
import type { Health, HostRow, PcrRow } from "../wire.ts";

const VERDICT: Record<PcrRow["verdict"], Health> = { match: "good", differs: "attention", observed: "working", missing: "away" };

/** The expected value that shares most digits with what was quoted: the one whose difference says most. */
export function nearest(expected: readonly string[], quoted: string): string | null {
  const shared = (value: string) => [...value].filter((digit, index) => digit === quoted[index]).length;
  return expected.reduce<string | null>((best, value) => (best === null || shared(value) > shared(best) ? value : best), null);
}

function Digits({ row }: { row: PcrRow }) {
  if (row.quoted === null) return <>–</>;
  const wanted = row.verdict === "differs" ? nearest(row.expected, row.quoted) : null;
  if (wanted === null) return <Text of={row.quoted} longest={160} />;
  return <>{differingDigits(visible(row.quoted, 160), wanted).map((piece, index) => (piece.differs ? <mark key={index}>{piece.text}</mark> : piece.text))}</>;
}

function Registers({ rows }: { rows: readonly PcrRow[] }) {
  return (
    <div class="table-scroll" tabIndex={0}>
      <table aria-label="PCRs of the TPM">
        <thead><tr><th class="num" scope="col">PCR</th><th scope="col">Meaning</th><th scope="col">Verdict</th><th scope="col">Expected and quoted</th></tr></thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.register}>
              <td class="num">{row.register}</td>
              <td><Text of={row.meaning} /></td>
              <td><span class={`mark h-${VERDICT[row.verdict]}`}><Shape health={VERDICT[row.verdict] ?? "away"} /> {row.verdict}</span></td>
              <td class="mono">
                {(row.expected ?? []).map((value) => <div class="pcr" key={value}><span>expected</span> <code><Text of={value} longest={160} /></code></div>)}
                <div class="pcr"><span>quoted</span> <code><Digits row={row} /></code></div>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** What approving, capturing and revoking need: a key that only the operator's machine has. */
function Decide({ row, all }: { row: HostRow; all: readonly HostRow[] }) {
  const host = hostArgument(row, all);
  const differing = row.pcrs.filter((pcr) => pcr.verdict === "differs").map((pcr) => pcr.register);
  return (
    <Card title="Decide">
      <p>A change of the policy is signed with a key that only your machine has. Run the command there.</p>
      <p><a href={link(["policy", row.cluster])}>Try another policy first</a></p>
      <Command why="Approve this host, after you have compared its endorsement key with the machine:" line={commands.approveHost(host, row.ek, /control/.test(row.role))} />
      {differing.length > 0 && <Command why={`Allow what it has quoted in PCR ${differing.join(", ")}:`} line={commands.capture(host, differing)} />}
      <Command why="Revoke it: it cannot join or open its disk again." line={commands.revokeHost(host)} />
    </Card>
  );
}

export function HostView() {
  const [cluster = "", name = ""] = route.value.args;
  const [table, deployments, clusters] = [useTable("hosts"), useTable("deployments"), useTable("clusters")];
  const moving = useSignal(false);
  const row = table.rows.value.get(`${cluster}/${name}`);
  const above = [{ title: "Clusters", href: link(["clusters"]) }, { title: visible(cluster, 60), href: link(["cluster", cluster], { tab: "hosts" }) }];
  if (!row) return <><Head title={<Text of={name} />} above={above} /><div class="empty"><Nothing of={table}>This host is not known.</Nothing></div></>;
  const object = clusters.list.value.find((one) => one.name === cluster)?.key;
  const here = deployments.list.value.filter((one) => one.cluster === cluster && one.host === name);
  const others = namesakes(row, table.list.value);
  return (
    <Hatched of={table}>
      <Head
        title={<><HostName row={row} /> <HealthMark row={row} /></>}
        above={above}
        actions={may("host.move") && here.length > 0 && object !== undefined && <button onClick={() => (moving.value = true)}><Icon name="move" /> Move all…</button>}
      >
        {others.length > 0 && (
          <p class="reason h-attention" data-namesakes>
            Another machine has this name: {others.map((one) => <span key={one.key}><a href={hostLink(one)}><Text of={ownName(one)} longest={60} /></a> </span>)}
            Compare the endorsement key with the machine before you decide.
          </p>
        )}
        {row.reasons?.map((reason) => <p class={`reason h-${row.health}`} key={reason}><Text of={reason} longest={600} /></p>)}
      </Head>
      {row.refusal && (
        <section class="refusal" role="note">
          <h2><Shape health="attention" /> Refused: <code><Text of={row.refusal.code} longest={60} /></code></h2>
          <p><Text of={row.refusal.text} longest={1200} /></p>
          <p><strong>What to do:</strong> <Text of={row.refusal.advice} longest={1200} /></p>
        </section>
      )}
      <div class="columns">
        {(row.steps ?? []).length > 0 && <Card title="Way in"><Ladder steps={row.steps} /></Card>}
        <div>
          <Card title="Details">
            <Details
              details={[
                ["Member", <Text of={row.member} />],
                ["Role", <Text of={row.role} />],
                ["Ready", row.ready === null ? null : row.ready ? "yes" : "no"],
                ["State disk", row.disk && <code><Text of={row.disk} longest={60} /></code>],
                ["Warnings", row.warnings && <Text of={row.warnings} longest={600} />],
                ["Endorsement key", row.ek && <code class="ek">{inFours(visible(row.ek, 160))}</code>],
                ...Object.entries(row.kubernetes ?? {}).map(([fact, value]): [string, preact.ComponentChildren] => [visible(fact, 40), valueText(value)]),
              ]}
            />
          </Card>
          {row.ek !== null && <Decide row={row} all={table.list.value} />}
        </div>
      </div>
      {(row.pcrs ?? []).length > 0 && <Card title="Registers"><Registers rows={row.pcrs} /></Card>}
      <Card title="Deployments on this host"><DeploymentTable rows={here} of={deployments} /></Card>
      {moving.value && object !== undefined && <MoveHost row={row} cluster={object} bound={here} close={() => (moving.value = false)} />}
    </Hatched>
  );
}
