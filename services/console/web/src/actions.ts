// Actions of people: sent once, then followed in table `actions` until they have ended.
import { signal } from "@preact/signals";
import { go } from "./router.ts";

/** What the server says to an action that it has accepted. */
export interface Accepted {
  id: string;
  /** The bootstrap command, of `cluster.bootstrap` only. It is a secret. */
  command?: string;
  /** When the bootstrap command ends. */
  expires?: number;
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

/** Sends an action. Throws an {@link ActionError} when it was not accepted. */
export async function act(name: string, body: Record<string, unknown>, title: string): Promise<Accepted> {
  const response = await fetch(`/api/v1/actions/${name}`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-sparkfleet": "1", "idempotency-key": crypto.randomUUID() },
    body: JSON.stringify(body),
  }).catch(() => {
    throw new ActionError("The console cannot be reached. Nothing is known about whether the action was sent.", null);
  });
  const answer = (await response.json().catch(() => ({}))) as Partial<Accepted> & { error?: string; field?: string };
  if (!response.ok || answer.id === undefined) {
    throw new ActionError(answer.error ?? `The console answered ${response.status}.`, answer.field ?? null);
  }
  follow({ id: answer.id, title, error: null });
  return answer as Accepted;
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
