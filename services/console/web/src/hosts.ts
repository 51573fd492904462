// How one host is distinguished from others: a machine chooses its own name, and several can choose the same.
import { link } from "./router.ts";
import type { HostRow } from "./wire.ts";

/** What the key of a row has after the cluster: the name, or the id of a host without one and of one that shares its name. */
export const ownName = (row: HostRow): string => (row.key.startsWith(`${row.cluster}/`) ? row.key.slice(row.cluster.length + 1) : row.name);

/** The address of a host's page. It is by key, so that it leads to no other host of that name. */
export const hostLink = (row: HostRow): string => link(["host", row.cluster, ownName(row)]);

/** The other hosts of the cluster that have the name of this one. */
export const namesakes = (row: HostRow, rows: readonly HostRow[]): HostRow[] =>
  rows.filter((one) => one.key !== row.key && one.cluster === row.cluster && one.name === row.name);

/** A host as the command line names it: by its id where the name means several. */
export function hostArgument(row: HostRow, rows: readonly HostRow[]): string {
  const id = row.joining?.id;
  const isOnly = ownName(row) === row.name && namesakes(row, rows).length === 0;
  return `${row.cluster}/${isOnly || id === undefined ? ownName(row) : id}`;
}
