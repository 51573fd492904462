// The last values of a metric as a line.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { coloursAt } from "../colours.ts";
import { clock, valueText } from "../format.ts";
import { painted } from "../theme.ts";

const HEIGHT = 200;

export function Trend({ points, label }: { points: readonly [number, number][]; label: string }) {
  const element = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const paint = painted.value;
  const data: uPlot.AlignedData = [points.map(([time]) => time / 1000), points.map(([, value]) => value)];
  useEffect(() => {
    const host = element.current!;
    const colours = coloursAt(host, ["muted", "line", "accent"]);
    const axis = { stroke: colours.muted, grid: { stroke: colours.line, width: 1 }, ticks: { stroke: colours.line, width: 1 } };
    plot.current = new uPlot(
      {
        width: host.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        axes: [{ ...axis, space: 90, values: (_, times) => times.map((time) => clock(time * 1000)) }, { ...axis, size: 64, values: (_, values) => values.map((value) => valueText(value)) }],
        series: [{}, { stroke: colours.accent, width: 2, points: { show: points.length < 60 } }],
      },
      data,
      host,
    );
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: host.clientWidth, height: HEIGHT }));
    resized.observe(host);
    return () => {
      resized.disconnect();
      plot.current?.destroy();
    };
  }, [label, paint]);
  useEffect(() => plot.current?.setData(data), [points]);
  return <div class="trend" ref={element} role="img" aria-label={`Trend of ${label}: ${points.length} values`} />;
}
