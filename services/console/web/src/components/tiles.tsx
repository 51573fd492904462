// The wall: a tile for each cluster, or a cell of 12 pixels each when there are many.
import { useEffect, useRef } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { coloursAt } from "../colours.ts";
import { visible } from "../format.ts";
import { healthOf } from "../health.ts";
import { go, link } from "../router.ts";
import { painted } from "../theme.ts";
import type { ClusterRow, Health } from "../wire.ts";
import { HealthMark } from "./health.tsx";
import { Age, Text } from "./text.tsx";

/** From this many clusters on the wall is drawn as cells. */
export const DENSE_FROM = 200;
const CELL = 12;
const STEP = 15;

/** The sentence that a tile shows. */
export function worst(row: ClusterRow): string {
  return row.reasons?.[0] ?? "";
}

export function Tile({ row }: { row: ClusterRow }) {
  const health = healthOf(row);
  return (
    <a class={`tile h-${health}`} data-row data-health={health} href={link(["cluster", row.name])}>
      <span class="tile-head">
        <HealthMark row={row} />
        <Age since={row.since} />
      </span>
      <strong class="tile-name"><Text of={row.name} longest={48} /></strong>
      {health !== "good" && <span class="tile-why"><Text of={worst(row)} longest={140} /></span>}
      <span class="tile-details">
        <span>Hosts <b>{row.hosts?.ready ?? 0}/{row.hosts?.total ?? 0}</b></span>
        <span>Deployments <b>{row.deployments?.ready ?? 0}/{row.deployments?.total ?? 0}</b></span>
        {row.alerts > 0 && <span>Alerts <b>{row.alerts}</b></span>}
      </span>
    </a>
  );
}

function addCell(path: Path2D, health: Health, x: number, y: number): void {
  if (health === "good") path.rect(x + 1, y + 1, CELL - 2, CELL - 2);
  else if (health === "working") {
    path.moveTo(x + CELL - 1, y + CELL / 2);
    path.arc(x + CELL / 2, y + CELL / 2, CELL / 2 - 1, 0, 7);
  } else if (health === "attention") {
    path.moveTo(x + CELL / 2, y);
    path.lineTo(x + CELL, y + CELL);
    path.lineTo(x, y + CELL);
    path.closePath();
  } else path.rect(x + 2, y + 2, CELL - 4, CELL - 4);
}

/** Draws all cells: those of one health at once, because a fill costs as much as many cells. */
function drawCells(context: CanvasRenderingContext2D, rows: readonly ClusterRow[], across: number, colour: Record<Health, string>): void {
  const paths: Record<Health, Path2D> = { good: new Path2D(), working: new Path2D(), attention: new Path2D(), away: new Path2D() };
  rows.forEach((row, index) => {
    const health = healthOf(row);
    addCell(paths[health], health, (index % across) * STEP + 1, Math.floor(index / across) * STEP + 1);
  });
  context.lineWidth = 1.5;
  for (const health of ["good", "working", "attention", "away"] as const) {
    context.fillStyle = context.strokeStyle = colour[health];
    if (health === "away") context.stroke(paths.away);
    else context.fill(paths[health]);
  }
}

/** Cells on a canvas; the arrow keys walk them, Enter opens. */
export function DenseWall({ rows }: { rows: readonly ClusterRow[] }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const chosen = useSignal(-1);
  const colours = useRef<{ of: unknown; found: Record<Health | "ink", string> } | null>(null);
  const columns = () => Math.max(1, Math.floor((canvas.current?.clientWidth ?? STEP) / STEP));
  const [paint, selected] = [painted.value, chosen.value];
  useEffect(() => {
    const frame = requestAnimationFrame(() => {
      const element = canvas.current;
      if (!element) return;
      const across = columns();
      const height = Math.ceil(rows.length / across) * STEP;
      const scale = devicePixelRatio;
      const [width, full] = [Math.round(element.clientWidth * scale), Math.round(height * scale)];
      // A canvas is made again when its size is set, also to the same.
      if (element.width !== width || element.height !== full) {
        [element.width, element.height] = [width, full];
        element.style.height = `${height}px`;
      }
      const context = element.getContext("2d")!;
      context.setTransform(scale, 0, 0, scale, 0, 0);
      context.clearRect(0, 0, element.clientWidth, height);
      // Asking for them makes the browser compute styles, so they are asked for once a theme.
      if (colours.current?.of !== paint) colours.current = { of: paint, found: coloursAt(element.parentElement!, ["good", "working", "attention", "away", "ink"]) };
      const colour = colours.current.found;
      drawCells(context, rows, across, colour);
      if (selected >= 0 && selected < rows.length) {
        const [x, y] = [(selected % across) * STEP + 1, Math.floor(selected / across) * STEP + 1];
        context.strokeStyle = colour.ink;
        context.lineWidth = 2;
        context.strokeRect(x - 1, y - 1, CELL + 2, CELL + 2);
      }
    });
    return () => cancelAnimationFrame(frame);
  }, [rows, paint, selected]);
  const at = (event: MouseEvent) => Math.floor(event.offsetY / STEP) * columns() + Math.floor(event.offsetX / STEP);
  const open = (index: number) => rows[index] && go(link(["cluster", rows[index].name]));
  const key = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns(), ArrowUp: -columns() }[event.key];
    if (event.key === "Enter") open(chosen.value);
    else if (step !== undefined) chosen.value = Math.min(Math.max(chosen.value + step, 0), rows.length - 1);
    else return;
    event.preventDefault();
  };
  const row = rows[chosen.value];
  return (
    <div class="dense">
      <canvas
        ref={canvas}
        data-row
        tabIndex={0}
        role="application"
        aria-label={`${rows.length} clusters as cells. Arrow keys choose, Enter opens.`}
        onMouseMove={(event) => (chosen.value = at(event))}
        onClick={(event) => open(at(event))}
        onKeyDown={key}
      />
      <p class="dense-said" aria-live="polite">
        {row ? <><HealthMark row={row} /> <strong>{visible(row.name, 60)}</strong> {visible(worst(row), 160)}</> : "Point at a cell, or walk with the arrow keys."}
      </p>
    </div>
  );
}
