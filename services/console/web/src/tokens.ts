// Tokens among the objects of ConfigDB.
import type { ObjectRow } from "./wire.ts";

/** What a token is called: its object is named after it. */
export const nameOf = (row: Pick<ObjectRow, "key" | "name">): string => (row.name ?? row.key).replace(/^API token /, "");
