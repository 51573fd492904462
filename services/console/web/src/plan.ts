// The plan of an action in words. Pure.
import { compare } from "./format.ts";
import type { PlanStep } from "./wire.ts";

/** What a step does, as the beginning of a sentence. */
export function deed({ change, name, before }: PlanStep): string {
  switch (change) {
    case "create-object": return "create";
    case "change-object": return "change the registration of";
    case "write": return before === null ? `write ${name} of` : `change ${name} of`;
    case "delete": return `delete ${name} of`;
    case "command": return `write ${name} of`;
    case "ask-rebirth": return "ask for the birth of";
    case "read-history": return `read the history of ${name ?? "all entries"} of`;
  }
}

const asObject = (value: unknown): object | null => (value === null || value === undefined ? null : typeof value === "object" ? value : { value });

/** The values that a step changes, each with what is there at present and what is there afterwards. */
export function changes({ change, before, after }: PlanStep): { path: string; before: string | null; after: string | null }[] {
  if (change === "delete") return [];
  return compare(asObject(before), asObject(after)).filter((line) => line.wanted !== line.reported).map(({ path, wanted, reported }) => ({ path, before: wanted, after: reported }));
}
