// The line of the command line that does the same as a button, so that the page teaches it.
import { hasInvisible } from "./format.ts";
import type { Wanted } from "./seal.ts";

/** Longest document that is written into a command; a longer one is taken from a file. */
const DOCUMENT_MAX = 2000;
const DEFAULT_NAMESPACE = "fplus-edge";

/** A word as the shell takes it literally; null for words that must not be pasted into a shell, among them those of more than `longest` characters. */
export function shellWord(word: string, longest = 300): string | null {
  if (word === "" || hasInvisible(word) || word.length > longest) return null;
  return /^[A-Za-z0-9_./:@%+=,][A-Za-z0-9_./:@%+=,-]*$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** Options begin with `--`; every other part is taken literally, `-` as standard input. Null if a part cannot be written safely. */
function command(verb: string, words: string[], options: [string, string | null | undefined][] = []): string | null {
  const parts = ["sparkfleet", verb];
  for (const word of words) {
    const safe = word === "-" ? word : word.startsWith("-") ? null : shellWord(word);
    if (safe === null) return null;
    parts.push(safe);
  }
  for (const [name, value] of options) {
    if (value === null || value === undefined) continue;
    const safe = value === "" || value === "-" ? value : shellWord(value);
    if (safe === null) return null;
    parts.push(safe === "" ? `--${name}` : `--${name}=${safe}`);
  }
  return parts.join(" ");
}

/** A namespace as an option, where it is not the usual one. */
const inNamespace = (namespace: string | undefined): [string, string | null] => ["namespace", namespace === DEFAULT_NAMESPACE ? null : namespace || null];

/** A deployment with its Helm values: they come over standard input, or from a file where they cannot be written into a command. */
function createDeployment(cluster: string, name: string, chart: string, host: string, values?: Record<string, unknown>): string | null {
  const document = values === undefined ? null : shellWord(JSON.stringify(values), DOCUMENT_MAX);
  const source = values === undefined ? null : document === null ? "values.json" : "-";
  const line = command("deployment create", [name], [["cluster", cluster], ["chart", chart === "Edge agent" ? null : chart], ["host", host || null], ["values", source], ["wait", ""]]);
  return line === null || document === null ? line : `printf '%s\\n' ${document} | ${line}`;
}

/** A new object with its name, which is in its `Info` entry. */
function createObject(object: string, objectClass: string, name: string): string | null {
  const document = shellWord(JSON.stringify({ name }), DOCUMENT_MAX);
  const line = command("config put", [object, "Info", "-"], [["class", objectClass], ["if-match", "none"]]);
  return line === null || document === null ? null : `printf '%s\\n' ${document} | ${line}`;
}

/** A value that is sealed; it is asked for on standard input. */
function putSecret(cluster: string, { namespace, name, key, scope, type }: Wanted, print: string): string | null {
  const bound = scope === "strict" ? null : scope;
  return command("secret put", [cluster, name, key], [inNamespace(namespace), ["scope", bound], ["type", type === "Opaque" ? null : type], ["fingerprint", print || null]]);
}

export const commands = {
  createCluster: (name: string, namespace?: string) =>
    command("cluster create", [name], [inNamespace(namespace), ["wait", ""]]),
  showCluster: (name: string) => command("cluster show", [name]),
  deleteCluster: (name: string) => command("cluster delete", [name], [["with-deployments", ""], ["wait", ""]]),
  setWave: (name: string, wave: number) => command("cluster rollout", [name], [["wave", String(wave)]]),
  putSecret,
  listSecrets: (cluster: string) => command("secret list", [cluster]),
  deleteSecret: (cluster: string, namespace: string, name: string, keys: string[]) => command("secret delete", [cluster, name, ...keys], [inNamespace(namespace)]),
  revokeToken: (name: string) => command("token revoke", [name]),
  createToken: (name: string, scope: string, cluster = "", days = 90) =>
    command("token create", [name], [["scope", scope], ["cluster", cluster || null], ["expires", days === 90 ? null : `${days}d`]]),
  reconcileCluster: (name: string) => command("cluster reconcile", [name]),
  bootstrap: (name: string) => command("cluster bootstrap", [name]),
  createDeployment,
  showManifests: (cluster: string, name: string) => command("deployment manifests", [`${cluster}/${name}`]),
  showDeployment: (cluster: string, name: string) => command("deployment show", [`${cluster}/${name}`]),
  deleteDeployment: (cluster: string, name: string) => command("deployment delete", [`${cluster}/${name}`], [["wait", ""]]),
  moveDeployment: (cluster: string, name: string, host: string) =>
    command("deployment move", [`${cluster}/${name}`], [["host", host || null], ["wait", ""]]),
  suspendDeployment: (cluster: string, name: string, resume: boolean) => command(resume ? "deployment resume" : "deployment suspend", [`${cluster}/${name}`], [["wait", ""]]),
  reconcileDeployment: (cluster: string, name: string) => command("deployment reconcile", [`${cluster}/${name}`], [["wait", ""]]),
  /** Approves the machine with that endorsement key, and no other that takes its name meanwhile. */
  approveHost: (host: string, ek: string | null, controlPlane = false) =>
    command("host approve", [host], [["ek", ek], ["control-plane", controlPlane ? "" : null], ["wait", ""]]),
  moveHost: (cluster: string, host: string, to: string) => command("host move", [`${cluster}/${host}`], [["to", to || null]]),
  revokeHost: (host: string) => command("host revoke", [host], [["wait", ""]]),
  capture: (host: string, pcrs: number[]) =>
    command("policy capture", [host], [["pcr", pcrs.length > 0 ? pcrs.join(",") : null]]),
  setPolicy: (cluster: string) => command("policy set", [cluster, "policy.json"]),
  initPolicy: (cluster: string) => command("policy init", [cluster]),
  watch: (group: string, node: string) => command("watch", [], [["group", group], ["node", node]]),
  rebirth: (group: string, node: string) => command("watch", [], [["group", group], ["node", node], ["rebirth", ""]]),
  history: (object: string, application: string) => command("config history", [object, application]),
  createObject,
  writeMetric: (node: string, device: string, metric: string, value: string) => {
    const [line, safe] = [command("write", [[node, ...(device === "" ? [] : [device])].join("/"), metric]), shellWord(value)];
    return line === null || safe === null ? null : `${line} ${safe}`;
  },
  differences: (from: string, to: string) => command("at", [from], [["diff", to]]),
  exportHistory: (since: string, until: string) => command("events", [], [["since", since], ["until", until], ["export", "history.jsonl"]]),
  listObjects: () => command("config list", []),
  getEntry: (object: string, application: string) => command("config get", [object, application]),
  putEntry: (object: string, application: string, etag: string | null) => command("config put", [object, application, "entry.json"], [["if-match", etag ?? "none"]]),
  deleteEntry: (object: string, application: string) => command("config delete", [object, application]),
  acknowledge: (about: string, alert: string, note: string) => command("alert ack", [about], [["alert", alert], ["note", note || null]]),
  silence: (about: string, alert: string, time: string, note: string) => command("alert silence", [about], [["for", time], ["alert", alert], ["note", note || null]]),
  verifyRecord: () => command("audit verify", ["audit.jsonl"]),
  alerts: () => command("alert list", []),
  rollouts: () => command("rollout list", []),
  holdRollout: (chart: string, note: string) => command("rollout hold", [chart], [["note", note || null]]),
  resumeRollout: (chart: string) => command("rollout resume", [chart]),
  freeRollout: (chart: string, cluster: string, note: string) => command("rollout free", [chart], [["cluster", cluster], ["note", note || null]]),
};
