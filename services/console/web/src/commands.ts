// The line of the command line that does the same as a button, so that the page teaches it.
import { hasInvisible } from "./format.ts";

/** A word as the shell takes it literally; null for words that must not be pasted into a shell, among them those of more than `longest` characters. */
export function shellWord(word: string, longest = 300): string | null {
  if (word === "" || hasInvisible(word) || word.length > longest) return null;
  return /^[A-Za-z0-9_./:@%+=,][A-Za-z0-9_./:@%+=,-]*$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** Options begin with `--`; every other part is taken literally. Null if a part cannot be written safely. */
function command(verb: string, words: string[], options: [string, string | null | undefined][] = []): string | null {
  const parts = ["sparkfleet", verb];
  for (const word of words) {
    const safe = word.startsWith("-") ? null : shellWord(word);
    if (safe === null) return null;
    parts.push(safe);
  }
  for (const [name, value] of options) {
    if (value === null || value === undefined) continue;
    const safe = value === "" ? "" : shellWord(value);
    if (safe === null) return null;
    parts.push(safe === "" ? `--${name}` : `--${name}=${safe}`);
  }
  return parts.join(" ");
}

export const commands = {
  createCluster: (name: string, namespace?: string) =>
    command("cluster create", [name], [["namespace", namespace === "fplus-edge" ? null : namespace || null], ["wait", ""]]),
  showCluster: (name: string) => command("cluster show", [name]),
  deleteCluster: (name: string) => command("cluster delete", [name], [["with-deployments", ""], ["wait", ""]]),
  setWave: (name: string, wave: number) => command("cluster rollout", [name], [["wave", String(wave)]]),
  putSecret: (cluster: string, name: string, key: string, print: string) => command("secret put", [cluster, name, key], [["fingerprint", print || null]]),
  listSecrets: (cluster: string) => command("secret list", [cluster]),
  deleteSecret: (cluster: string, namespace: string, name: string, keys: string[]) => command("secret delete", [cluster, name, ...keys], [["namespace", namespace === "fplus-edge" ? null : namespace]]),
  revokeToken: (name: string) => command("token revoke", [name]),
  createToken: () => command("token create", ["NAME"], [["scope", "operator"]]),
  bootstrap: (name: string) => command("cluster bootstrap", [name]),
  createDeployment: (cluster: string, name: string, chart: string, host: string) =>
    command("deployment create", [name], [["cluster", cluster], ["chart", chart === "Edge agent" ? null : chart], ["host", host || null], ["wait", ""]]),
  showDeployment: (cluster: string, name: string) => command("deployment show", [`${cluster}/${name}`]),
  deleteDeployment: (cluster: string, name: string) => command("deployment delete", [`${cluster}/${name}`], [["wait", ""]]),
  moveDeployment: (cluster: string, name: string, host: string) =>
    command("deployment move", [`${cluster}/${name}`], [["host", host || null], ["wait", ""]]),
  suspendDeployment: (cluster: string, name: string, resume: boolean) => command(resume ? "deployment resume" : "deployment suspend", [`${cluster}/${name}`], [["wait", ""]]),
  reconcileDeployment: (cluster: string, name: string) => command("deployment reconcile", [`${cluster}/${name}`], [["wait", ""]]),
  approveHost: (cluster: string, host: string, controlPlane = false) =>
    command("host approve", [`${cluster}/${host}`], [["control-plane", controlPlane ? "" : null], ["wait", ""]]),
  revokeHost: (cluster: string, host: string) => command("host revoke", [`${cluster}/${host}`], [["wait", ""]]),
  capture: (cluster: string, host: string, registers: number[]) =>
    command("policy capture", [`${cluster}/${host}`], [["pcr", registers.length > 0 ? registers.join(",") : null]]),
  setPolicy: (cluster: string) => command("policy set", [cluster, "policy.json"]),
  initPolicy: (cluster: string) => command("policy init", [cluster]),
  watch: (group: string, node: string) => command("watch", [], [["group", group], ["node", node]]),
  rebirth: (group: string, node: string) => command("watch", [], [["group", group], ["node", node], ["rebirth", ""]]),
  history: (object: string, application: string) => command("config history", [object, application]),
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
