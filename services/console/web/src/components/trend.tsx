// The last values of a metric as a line. What draws it is loaded when the first one is shown.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type uPlot from "uplot";
import { coloursAt } from "../colours.ts";
import { clock, valueText } from "../format.ts";
import { painted } from "../theme.ts";

const HEIGHT = 200;

export function Trend({ points, label }: { points: readonly [number, number][]; label: string }) {
  const element = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const paint = painted.value;
  const failed = useSignal(false);
  const data = useRef<uPlot.AlignedData>([[], []]);
  data.current = [points.map(([time]) => time / 1000), points.map(([, value]) => value)];
  useEffect(() => {
    let ended = false;
    const host = element.current!;
    const colours = coloursAt(host, ["muted", "line", "accent"]);
    const axis = { stroke: colours.muted, grid: { stroke: colours.line, width: 1 }, ticks: { stroke: colours.line, width: 1 } };
    const draw = (Plot: typeof uPlot) =>
      new Plot(
        {
          width: host.clientWidth,
          height: HEIGHT,
          legend: { show: false },
          axes: [{ ...axis, space: 90, values: (_, times) => times.map((time) => clock(time * 1000)) }, { ...axis, size: 64, values: (_, values) => values.map((value) => valueText(value)) }],
          series: [{}, { stroke: colours.accent, width: 2, points: { show: points.length < 60 } }],
        },
        data.current,
        host,
      );
    import("../plot.ts").then(
      (loaded) => {
        if (!ended) plot.current = draw(loaded.default);
      },
      () => (failed.value = true),
    );
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: host.clientWidth, height: HEIGHT }));
    resized.observe(host);
    return () => {
      ended = true;
      resized.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [label, paint]);
  useEffect(() => plot.current?.setData(data.current), [points]);
  return (
    <div class="trend" ref={element} role="img" aria-label={`Trend of ${label}: ${points.length} values`}>
      {failed.value && <p class="note">The plot cannot be loaded; reload the page.</p>}
    </div>
  );
}
