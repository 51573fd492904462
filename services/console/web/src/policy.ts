// A policy that is tried out: the one in force with some values allowed or taken away.
import type { HostRow, PolicyDocument } from "./wire.ts";

/** What is tried: values of PCRs as `PCR=VALUE`, and endorsement keys. */
export interface Trial {
  allowed: ReadonlySet<string>;
  taken: ReadonlySet<string>;
  enrolled: ReadonlySet<string>;
  dropped: ReadonlySet<string>;
}

export const NO_TRIAL: Trial = { allowed: new Set(), taken: new Set(), enrolled: new Set(), dropped: new Set() };

export const isEmpty = (trial: Trial): boolean => Object.values(trial).every((set: ReadonlySet<string>) => set.size === 0);

/** The trial with one thing the other way round. */
export function toggled(trial: Trial, part: keyof Trial, value: string): Trial {
  const next = new Set(trial[part]);
  if (!next.delete(value)) next.add(value);
  return { ...trial, [part]: next };
}

/** The policy that a trial comes to, without a signature. */
export function tried(policy: PolicyDocument, trial: Trial): PolicyDocument {
  const { signature: _signature, ...rest } = policy;
  const pcrs = Object.fromEntries(
    Object.entries(policy.pcrs).map(([register, rule]) => {
      const kept = (rule.expected ?? []).filter((value) => !trial.taken.has(`${register}=${value}`));
      return [register, { ...rule, expected: kept }];
    }),
  );
  for (const entry of trial.allowed) {
    const at = entry.indexOf("=");
    const [register, value] = [entry.slice(0, at), entry.slice(at + 1)];
    const rule = pcrs[register] ?? { expected: [] };
    pcrs[register] = { ...rule, expected: [...rule.expected, value] };
  }
  // What is only observed has no list at all.
  for (const rule of Object.values(pcrs)) if (rule.expected?.length === 0) delete (rule as { expected?: string[] }).expected;
  const enrolled = (policy.endorsement.enrolled ?? []).filter((host) => !trial.dropped.has(host.ek)).concat([...trial.enrolled].map((ek) => ({ ek })));
  return { ...rest, pcrs, endorsement: { ...policy.endorsement, enrolled } };
}

/** Hosts with the PCRs to take from each, so that every allowed value of a trial is taken from one that has quoted it. What no host of the cluster has quoted is left over. */
export function captures(hosts: readonly HostRow[], cluster: string, allowed: ReadonlySet<string>): { found: [HostRow, number[]][]; left: string[] } {
  const open = new Set(allowed);
  const found: [HostRow, number[]][] = [];
  for (const host of hosts.filter((one) => one.cluster === cluster)) {
    const indices = host.pcrs.filter((pcr) => open.delete(`${pcr.register}=${pcr.quoted}`)).map((pcr) => pcr.register);
    if (indices.length > 0) found.push([host, indices]);
  }
  return { found, left: [...open] };
}

/** Values that hosts of a cluster have quoted in a PCR and that the policy does not allow, each with the hosts that have it. */
export function quotedOf(hosts: readonly HostRow[], cluster: string, register: string, expected: readonly string[]): [string, string[]][] {
  const found = new Map<string, string[]>();
  for (const host of hosts.filter((one) => one.cluster === cluster)) {
    const quoted = host.pcrs.find((pcr) => String(pcr.register) === register)?.quoted;
    if (!quoted || expected.some((value) => value.toLowerCase() === quoted.toLowerCase())) continue;
    found.set(quoted, [...(found.get(quoted) ?? []), host.name]);
  }
  return [...found];
}
