// The attestation policy of a cluster, and what another one would say of the hosts that are known.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { simulatePolicy } from "../actions.ts";
import { commands } from "../commands.ts";
import { Command, CopyButton } from "../components/copy.tsx";
import { Shape } from "../components/health.tsx";
import { HostName } from "../components/lists.tsx";
import { Card, Details, Head, Present } from "../components/page.tsx";
import { Past } from "../components/past.tsx";
import { DataTable, Hatched, Nothing, type Column } from "../components/table.tsx";
import { Text, When } from "../components/text.tsx";
import { count, plural, visible } from "../format.ts";
import { useTable } from "../hooks.ts";
import { hostArgument, hostLink } from "../hosts.ts";
import { NO_TRIAL, captures, isEmpty, quotedOf, toggled, tried, type Trial } from "../policy.ts";
import { link, route } from "../router.ts";
import { laidOut } from "../schema.ts";
import type { Health, HostOutlook, HostRow, PolicyDocument, PolicyRow } from "../wire.ts";

const HEALTH: Record<HostOutlook["outlook"], Health> = { passes: "good", fails: "attention", unknown: "away" };
/** Typing and clicking ends before the server is asked. */
const PAUSE_MS = 150;

/** A host now and under the policy that is tried. */
interface Compared {
  key: string;
  host: string;
  /** Its row in table hosts; undefined: it has none there. */
  row: HostRow | undefined;
  now: HostOutlook | undefined;
  then: HostOutlook;
}

const Said = ({ of }: { of: HostOutlook | undefined }) =>
  of === undefined ? <>–</> : <span class={`mark h-${HEALTH[of.outlook]}`}><Shape health={HEALTH[of.outlook]} /> {of.outlook}</span>;

const HOSTS: Column<Compared>[] = [
  { title: "Host", cell: ({ row, host }) => (row === undefined ? <Text of={host} longest={60} /> : <a href={hostLink(row)}><HostName row={row} /></a>) },
  { title: "State", cell: (row) => <Text of={row.then.state} longest={30} /> },
  { title: "Policy in force", cell: (row) => <Said of={row.now} /> },
  { title: "This policy", cell: (row) => <Said of={row.then} /> },
  { title: "Why", cell: (row) => <Text of={[...row.then.differences, ...row.then.unknown, ...row.then.warnings.map((text) => `only reported: ${text}`)].join("; ")} longest={400} />, class: "grow" },
];

function Check({ label, checked, changed, onChange }: { label: preact.ComponentChildren; checked: boolean; changed: boolean; onChange: () => void }) {
  return (
    <label class={`check ${changed ? "changed" : ""}`}>
      <input type="checkbox" checked={checked} onChange={onChange} /> <span>{label}</span>
    </label>
  );
}

function Registers({ row, policy, hosts, trial, change }: { row: PolicyRow; policy: PolicyDocument; hosts: readonly HostRow[]; trial: Trial; change: (trial: Trial) => void }) {
  const indices = Object.entries(policy.pcrs).sort(([a], [b]) => Number(a) - Number(b));
  return (
    <div class="table-scroll" tabIndex={0}>
      <table aria-label="Registers of the policy">
        <thead><tr><th class="num" scope="col">PCR</th><th scope="col">Meaning</th><th scope="col">Allowed values</th></tr></thead>
        <tbody>
          {indices.map(([pcr, rule]) => {
            const expected = rule.expected ?? [];
            return (
              <tr key={pcr}>
                <td class="num">{pcr}</td>
                <td><Text of={row.meanings[pcr] ?? ""} />{rule.warnOnly && <span class="note"> only reported</span>}</td>
                <td class="mono">
                  {expected.map((value) => {
                    const id = `${pcr}=${value}`;
                    return <Check key={value} label={<code><Text of={value} longest={130} /></code>} checked={!trial.taken.has(id)} changed={trial.taken.has(id)} onChange={() => change(toggled(trial, "taken", id))} />;
                  })}
                  {quotedOf(hosts, row.cluster, pcr, expected).map(([value, names]) => {
                    const id = `${pcr}=${value}`;
                    return <Check key={value} label={<><code><Text of={value} longest={130} /></code> <span class="note">quoted by <Text of={names.join(", ")} longest={120} /></span></>} checked={trial.allowed.has(id)} changed={trial.allowed.has(id)} onChange={() => change(toggled(trial, "allowed", id))} />;
                  })}
                  {expected.length === 0 && <span class="note">observed only</span>}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function Keys({ policy, hosts, trial, change }: { policy: PolicyDocument; hosts: readonly HostOutlook[]; trial: Trial; change: (trial: Trial) => void }) {
  const enrolled = policy.endorsement.enrolled ?? [];
  const others = hosts.filter((host) => !enrolled.some((one) => one.ek.toLowerCase() === host.ek.toLowerCase()));
  const nameOf = (ek: string, own?: string | null) => own ?? hosts.find((host) => host.ek.toLowerCase() === ek.toLowerCase())?.host;
  return (
    <>
      {enrolled.map((one) => <Check key={one.ek} label={<>{nameOf(one.ek, one.host) && <strong><Text of={nameOf(one.ek, one.host)} longest={60} /> </strong>}<code><Text of={one.ek} longest={70} /></code>{one.controlPlane && <span class="note"> control plane</span>}</>} checked={!trial.dropped.has(one.ek)} changed={trial.dropped.has(one.ek)} onChange={() => change(toggled(trial, "dropped", one.ek))} />)}
      {others.map((host) => <Check key={host.ek} label={<><strong><Text of={host.host} longest={60} /></strong> <code><Text of={host.ek} longest={70} /></code> <span class="note">{host.state}, not enrolled</span></>} checked={trial.enrolled.has(host.ek)} changed={trial.enrolled.has(host.ek)} onChange={() => change(toggled(trial, "enrolled", host.ek))} />)}
      {enrolled.length + others.length === 0 && <p class="note">No host is enrolled, and no host has asked.</p>}
    </>
  );
}

/** The commands by which a trial comes into force: a policy is signed on the machine that has the key. */
function Signing({ row, policy, hosts, trial }: { row: PolicyRow; policy: PolicyDocument; hosts: readonly HostRow[]; trial: Trial }) {
  const own = hosts.filter((host) => host.cluster === row.cluster);
  const { found, left } = captures(hosts, row.cluster, trial.allowed);
  // What no host quotes any more can only be written into the policy.
  const only = trial.taken.size === 0 && trial.dropped.size === 0 && left.length === 0;
  return (
    <Card title="Make it so">
      <p>A policy is signed with a key that only your machine has. Run there:</p>
      {only && found.map(([host, indices]) => <Command key={host.key} line={commands.capture(hostArgument(host, hosts), indices)} why="Allow what this host has quoted:" />)}
      {only && own.filter((host) => host.ek !== null && trial.enrolled.has(host.ek)).map((host) => <Command key={host.key} line={commands.approveHost(hostArgument(host, hosts), host.ek, /control/.test(host.role))} why="Enrol this host:" />)}
      {!only && (
        <>
          <p><CopyButton text={JSON.stringify(tried(policy, trial), null, 2)} title="Copy the policy" /> into <code>policy.json</code>, and sign it:</p>
          <Command line={commands.setPolicy(row.cluster)} />
        </>
      )}
    </Card>
  );
}

function Body({ row, policy }: { row: PolicyRow; policy: PolicyDocument }) {
  const hosts = useTable("hosts", true).list.value;
  const trial = useSignal(NO_TRIAL);
  const [then, wrong] = [useSignal<HostOutlook[] | null>(null), useSignal<string | null>(null)];
  const empty = isEmpty(trial.value);
  useEffect(() => {
    if (empty) return void ((then.value = null), (wrong.value = null));
    const stop = new AbortController();
    const later = setTimeout(async () => {
      try {
        then.value = await simulatePolicy(row.key, tried(policy, trial.value), stop.signal);
        wrong.value = null;
      } catch (error) {
        if (!stop.signal.aborted) wrong.value = (error as Error).message;
      }
    }, PAUSE_MS);
    return () => (clearTimeout(later), stop.abort());
  }, [trial.value, row.revision, row.hosts]);
  const now = row.hosts ?? [];
  const shown = then.value ?? now;
  const ofKey = (ek: string) => hosts.find((one) => one.cluster === row.cluster && one.ek?.toLowerCase() === ek.toLowerCase());
  const compared = shown.map((host): Compared => ({ key: host.ek + host.host, host: host.host, row: ofKey(host.ek), now: now.find((one) => one.ek === host.ek && one.host === host.host), then: host }));
  const others = compared.filter((one) => one.now?.outlook !== one.then.outlook);
  const change = (next: Trial) => (trial.value = next);
  return (
    <>
      <p class="note">Tick and untick to try another policy. Nothing is written.</p>
      <Card title="Registers"><Registers row={row} policy={policy} hosts={hosts} trial={trial.value} change={change} /></Card>
      <Card title="Endorsement keys"><Keys policy={policy} hosts={now} trial={trial.value} change={change} /></Card>
      <Card title="Hosts under this policy" actions={!empty && <button type="button" onClick={() => change(NO_TRIAL)}>Back to the policy in force</button>}>
        {wrong.value !== null && <p class="wrong" role="alert">{visible(wrong.value, 400)}</p>}
        <p role="status">{empty ? `${plural(now.length, "host")} known.` : others.length === 0 ? "No host is judged otherwise." : others.map((one) => `${visible(one.host, 40)}: ${one.now?.outlook ?? "not known"} → ${one.then.outlook}`).join("; ")}</p>
        <DataTable label="Hosts under this policy" rows={compared} columns={HOSTS} empty="No host has shown itself to the join service." />
      </Card>
      {!empty && <Signing row={row} policy={policy} hosts={hosts} trial={trial.value} />}
    </>
  );
}

/** The revisions of the policy, each with what it changed. */
function Revisions({ cluster }: { cluster: string }) {
  const entry = useTable(`entries:${cluster}`, true).rows.value.get("AttestationPolicy");
  return entry === undefined ? null : <Past object={cluster} application="AttestationPolicy" text={laidOut(entry.json)} restore={null} />;
}

export function PolicyView() {
  const name = route.value.args[0] ?? "";
  const table = useTable("policies", true);
  const row = table.list.value.find((one) => one.cluster === name || one.key === name);
  const above = [{ title: "Clusters", href: link(["clusters"]) }, { title: visible(name, 60), href: link(["cluster", name]) }];
  const title = <>Policy of <Text of={row?.cluster ?? name} longest={60} /></>;
  if (!row) return <><Head title={title} above={above}><Present /></Head><div class="empty"><Nothing of={table}>This cluster has no attestation policy.</Nothing></div><details class="as-command"><summary>As command</summary><Command line={commands.initPolicy(name)} /></details></>;
  const { policy, join } = row;
  return (
    <Hatched of={table}>
      <Head title={title} above={above}>
        <Present />
        <Details
          details={[
            ["Revision", count(row.revision)],
            ["The join service judges by", join && (join.revision === row.revision ? "this revision" : `revision ${join.revision}`)],
            ["It says", join?.error && <Text of={join.error} longest={400} />],
            ["Serial", policy?.signature && count(policy.signature.serial)],
            ["Signed until", policy?.signature && <When time={policy.signature.notAfterMs} />],
            ["Bank", policy?.bank],
            ["Vouched for by", policy?.endorsement.require],
            ["Evidence", policy?.variants?.join(", ")],
            ["Events", policy?.boot ? "judged by the event log" : null],
          ]}
        />
        {row.reason !== null && <p class="reason h-attention"><Text of={row.reason} longest={400} /></p>}
      </Head>
      {policy !== null && <Body row={row} policy={policy} />}
      <Revisions cluster={row.key} />
    </Hatched>
  );
}
