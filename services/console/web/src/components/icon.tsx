// Own symbols on a grid of 20: strokes in the colour of the text.

const PATHS: Record<string, string> = {
  fleet: "M3 3h6v6H3zM11 3h6v6h-6zM3 11h6v6H3zM11 11h6v6h-6z",
  clusters: "M3 5h14M3 10h14M3 15h14",
  hosts: "M4 3h12v6H4zM4 11h12v6H4zM7 6h.01M7 14h.01",
  deployments: "M10 2.5l6.5 3.7v7.6L10 17.5l-6.5-3.7V6.2zM3.5 6.2 10 10l6.5-3.8M10 10v7.5",
  alerts: "M10 3a5 5 0 0 1 5 5c0 4 2 5 2 6H3c0-1 2-2 2-6a5 5 0 0 1 5-5zM8.5 17h3",
  rollouts: "M3 6h4v8H3zM8.5 4h4v12h-4zM14 8h3v4h-3z",
  explorer: "M5 3v12h5M5 8h5M10 6h6v4h-6zM10 13h6v4h-6z",
  timeline: "M3 10h14M6 7v6M11 5v10M15 8v4",
  config: "M6 3C3 3 5 9 2.5 10 5 11 3 17 6 17M14 3c3 0 1 6 3.5 7-2.5 1-.5 7-3.5 7M8.5 10h.01M11.5 10h.01",
  system: "M10 7a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM10 2.5V5M10 15v2.5M2.5 10H5M15 10h2.5M4.7 4.7l1.8 1.8M13.5 13.5l1.8 1.8M4.7 15.3l1.8-1.8M13.5 6.5l1.8-1.8",
  search: "M9 4a5 5 0 1 0 0 10A5 5 0 0 0 9 4zM12.7 12.7 17 17",
  copy: "M7 7h9v9H7zM4 13V4h9",
  done: "M4 10.5l4 4 8-9",
  close: "M5 5l10 10M15 5L5 15",
  plus: "M10 4v12M4 10h12",
  clock: "M10 3a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM10 6v4.3l3 1.7",
  back: "M12 4l-6 6 6 6",
  forward: "M8 4l6 6-6 6",
  system_theme: "M3 4h14v9H3zM7 17h6M10 13v4",
  light: "M10 7a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM10 2v2M10 16v2M2 10h2M16 10h2M4.3 4.3l1.5 1.5M14.2 14.2l1.5 1.5M4.3 15.7l1.5-1.5M14.2 5.8l1.5-1.5",
  dark: "M16 12A7 7 0 0 1 8 4a7 7 0 1 0 8 8z",
  key: "M7 9.5a3.5 3.5 0 1 0 0 .01M10.5 9.5H17M14.5 9.5v3",
  trend: "M3 14l4-5 3 3 6-7",
  trash: "M4 6h12M8 6V3.5h4V6M5.5 6l.8 11h7.4l.8-11",
  move: "M3 10h13M12 6l4 4-4 4",
  pause: "M7 5v10M13 5v10",
  play: "M7 4.5v11l8.5-5.5z",
  refresh: "M16 10a6 6 0 1 1-2-4.5M16 3v3.5h-3.5",
};

export function Icon({ name }: { name: string }) {
  return (
    <svg class="icon" viewBox="0 0 20 20" aria-hidden="true">
      <path d={PATHS[name] ?? ""} />
    </svg>
  );
}
