// A table whose rows are links. Long tables render only the rows near the window.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { complete } from "../hooks.ts";
import type { Table } from "../store.ts";
import type { Row } from "../wire.ts";

export interface Column<R> {
  title: string;
  cell: (row: R) => ComponentChildren;
  /** Class of the cells: `num`, `grow`, `mono`, `wide` (not on narrow screens). */
  class?: string;
}

/** Above this many rows only those near the window are rendered. */
const ALL_ROWS = 150;
const MARGIN_ROWS = 30;

/** First and last row that are rendered of `count` rows of `height`, `above` pixels of which are above the window. */
export function windowOf(count: number, height: number, above: number, windowHeight: number): [number, number] {
  if (count <= ALL_ROWS || height <= 0) return [0, count];
  const first = Math.max(0, Math.floor(above / height) - MARGIN_ROWS);
  return [Math.min(first, count), Math.min(count, Math.ceil((above + windowHeight) / height) + MARGIN_ROWS)];
}

export function DataTable<R extends Row>(props: {
  label: string;
  rows: readonly R[];
  columns: readonly Column<R>[];
  href?: (row: R) => string;
  rowClass?: (row: R) => string;
  empty: ComponentChildren;
}) {
  const { rows, columns } = props;
  const body = useRef<HTMLTableSectionElement>(null);
  const range = useSignal<[number, number]>([0, Math.min(rows.length, ALL_ROWS)]);
  const height = useRef(41);
  useLayoutEffect(() => {
    const measure = () => {
      const row = body.current?.querySelector<HTMLElement>("tr[data-index]");
      if (row) height.current = row.offsetHeight;
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const next = windowOf(rows.length, height.current, Math.max(0, -top), innerHeight);
      if (next[0] !== range.value[0] || next[1] !== range.value[1]) range.value = next;
    };
    measure();
    addEventListener("scroll", measure, { passive: true });
    addEventListener("resize", measure);
    return () => {
      removeEventListener("scroll", measure);
      removeEventListener("resize", measure);
    };
  }, [rows.length]);
  if (rows.length === 0) return <div class="empty">{props.empty}</div>;
  const [first, last] = rows.length <= ALL_ROWS ? [0, rows.length] : range.value;
  return (
    <div class="table-scroll" tabIndex={props.href ? -1 : 0}>
      <table aria-label={props.label} aria-rowcount={rows.length + 1}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th class={column.class ?? ""} scope="col" key={column.title}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody ref={body}>
          <Spacer rows={first} height={height.current} />
          {rows.slice(first, last).map((row, index) => (
            <tr key={row.key} data-index={first + index} aria-rowindex={first + index + 2} class={props.rowClass?.(row) ?? ""}>
              {columns.map((column, place) => (
                <td class={column.class ?? ""} key={column.title}>
                  {place === 0 && props.href ? (
                    <a class="row-link" data-row href={props.href(row)}>
                      {column.cell(row)}
                    </a>
                  ) : (
                    column.cell(row)
                  )}
                </td>
              ))}
            </tr>
          ))}
          <Spacer rows={rows.length - last} height={height.current} />
        </tbody>
      </table>
    </div>
  );
}

function Spacer({ rows, height }: { rows: number; height: number }) {
  return rows > 0 ? (
    <tr aria-hidden="true" class="spacer">
      <td style={{ height: `${rows * height}px` }} />
    </tr>
  ) : null;
}

/** Marks what is inside as not complete by hatching, while the replicas or the table are not. */
export function Hatched({ of, children }: { of: Pick<Table, "state">; children: ComponentChildren }) {
  const whole = of.state.value === "current" && complete.value;
  return (
    <div class={whole ? "" : "hatched"} aria-busy={!whole}>
      {children}
    </div>
  );
}

/** What is said where there are no rows: absent only if the table is complete. */
export function Nothing({ of, children }: { of: Pick<Table, "state">; children: ComponentChildren }) {
  if (of.state.value === "failed") return <>This could not be read for the time that you look at.</>;
  if (of.state.value === "loading") return <>Loading…</>;
  if (!complete.value) return <>Nothing has arrived yet. The header says what is missing.</>;
  return <>{children}</>;
}
