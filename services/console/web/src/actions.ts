// Actions of people: sent once, then followed in table `actions` until they have ended.
import { signal } from "@preact/signals";
import { at, go } from "./router.ts";
import { readSession } from "./stream.ts";
import type { HostOutlook, PlanStep, PolicyDocument } from "./wire.ts";

/** What the server says to an action that it has accepted. */
export interface Accepted {
  id: string;
  /** The bootstrap command, of `cluster.bootstrap` only. It is a secret. */
  command?: string;
  /** The text of a new token, of `token.create` only. It is a secret. */
  token?: string;
  /** When the bootstrap command ends, RFC 3339. */
  expires?: string;
}

/** Why the server did not accept an action, and which field is wrong. */
export class ActionError extends Error {
  constructor(
    message: string,
    readonly field: string | null,
  ) {
    super(message);
  }
}

/** An action of this page, until its end was seen. */
export interface Followed {
  id: string;
  /** What is done, for people. */
  title: string;
  /** Set when the server refused it or could not be reached. */
  error: string | null;
}

export const followed = signal<readonly Followed[]>([]);

function follow(entry: Followed): void {
  followed.value = [...followed.value.slice(-4), entry];
}

export function dismiss(id: string): void {
  followed.value = followed.value.filter((entry) => entry.id !== id);
}

const WRITES = { "content-type": "application/json", "x-sparkfleet": "1" };

/** Signs in with a token. Throws an {@link ActionError} when it is not taken. The token is not kept: a cookie that scripts cannot read stands for it. */
export async function signIn(token: string): Promise<void> {
  const response = await fetch("/api/v1/session", { method: "POST", headers: WRITES, body: JSON.stringify({ token }) }).catch(() => null);
  if (response === null) throw new ActionError("The console cannot be reached.", null);
  const answer = (await response.json().catch(() => ({}))) as { error?: string; user?: string | null };
  if (!response.ok) throw new ActionError(answer.error ?? `The console answered ${response.status}.`, "token");
  const now = await readSession();
  if (now !== null && now.user === null) throw new ActionError("The browser has not kept the session: it needs HTTPS, or a console on this machine.", null);
}

export async function signOut(): Promise<void> {
  await fetch("/api/v1/session", { method: "DELETE", headers: WRITES }).catch(() => null);
  await readSession();
}

/** Sends an action. Throws an {@link ActionError} when it was not accepted. */
export const act = (name: string, body: Record<string, unknown>, title: string): Promise<Accepted> => actText(name, JSON.stringify(body), title);

/** The same with a body that is JSON already, so that its numbers stay as they were typed. */
export async function actText(name: string, body: string, title: string): Promise<Accepted> {
  // A dialog may be open when the page goes to a past time, as by the browser's own button for that.
  if (at.peek() !== null) throw new ActionError("You look at a past time, and nothing is sent from there. Go back to now.", null);
  const response = await fetch(`/api/v1/actions/${name}`, {
    method: "POST",
    headers: { ...WRITES, "idempotency-key": crypto.randomUUID() },
    body,
  }).catch(() => {
    throw new ActionError("The console cannot be reached. Nothing is known about whether the action was sent.", null);
  });
  const answer = (await response.json().catch(() => ({}))) as Partial<Accepted> & { error?: string; field?: string };
  if (response.status === 401) void readSession();
  if (!response.ok || answer.id === undefined) {
    throw new ActionError(answer.error ?? `The console answered ${response.status}.`, answer.field ?? null);
  }
  follow({ id: answer.id, title, error: null });
  return answer as Accepted;
}

/** What an action would do; nothing comes of it. Throws an {@link ActionError} where it cannot be done. */
export async function planOf(name: string, body: Record<string, unknown>, signal: AbortSignal): Promise<PlanStep[]> {
  const response = await fetch(`/api/v1/actions/${name}/plan`, { method: "POST", headers: WRITES, body: JSON.stringify(body), signal });
  const answer = (await response.json().catch(() => ({}))) as { steps?: PlanStep[]; error?: string; field?: string };
  if (!response.ok || answer.steps === undefined) throw new ActionError(answer.error ?? `The console answered ${response.status}.`, answer.field ?? null);
  return answer.steps;
}

/** What a policy would say of the hosts of a cluster; nothing comes of it. */
export async function simulatePolicy(cluster: string, policy: PolicyDocument, signal: AbortSignal): Promise<HostOutlook[]> {
  const response = await fetch(`/api/v1/policies/${encodeURIComponent(cluster)}/simulation`, { method: "POST", headers: WRITES, body: JSON.stringify(policy), signal });
  const answer = (await response.json().catch(() => ({}))) as { hosts?: HostOutlook[]; error?: string };
  if (!response.ok || answer.hosts === undefined) throw new Error(answer.error ?? `The console answered ${response.status}.`);
  return answer.hosts;
}

/** Sends an action from a button that has no form; what goes wrong is shown like its end. */
export async function actNow(name: string, body: Record<string, unknown>, title: string, then?: string): Promise<void> {
  try {
    await act(name, body, title);
    if (then !== undefined) go(then);
  } catch (error) {
    follow({ id: crypto.randomUUID(), title, error: (error as Error).message });
  }
}
