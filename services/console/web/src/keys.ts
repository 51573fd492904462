// Keys that work on every page. Pages need nothing but `data-row` on what `j` and `k` walk, and `data-filter`.
import { signal } from "@preact/signals";
import { at, go, link, lookAt, route } from "./router.ts";

/** Which of the two overlays is open. */
export const overlay = signal<"palette" | "help" | null>(null);

/** Letters after `g`, and the view each goes to. */
export const PLACES: readonly { letter: string; view: string; title: string; icon: string }[] = [
  { letter: "f", view: "", title: "Fleet", icon: "fleet" },
  { letter: "c", view: "clusters", title: "Clusters", icon: "clusters" },
  { letter: "h", view: "hosts", title: "Hosts", icon: "hosts" },
  { letter: "w", view: "enrolment", title: "Enrolment", icon: "plus" },
  { letter: "d", view: "deployments", title: "Deployments", icon: "deployments" },
  { letter: "a", view: "alerts", title: "Alerts", icon: "alerts" },
  { letter: "r", view: "rollouts", title: "Rollouts", icon: "rollouts" },
  { letter: "e", view: "explorer", title: "Explorer", icon: "explorer" },
  { letter: "t", view: "timeline", title: "Timeline", icon: "timeline" },
  { letter: "o", view: "config", title: "Configuration", icon: "config" },
  { letter: "x", view: "access", title: "Access", icon: "key" },
  { letter: "s", view: "system", title: "System", icon: "system" },
];

/** Every key, for the help. */
export const KEYS: readonly [string, string][] = [
  ["Ctrl K", "find a cluster, host, deployment or page"],
  ["/", "filter this page"],
  ["j  k", "next and previous row"],
  ["Enter", "open the row"],
  ["u", "one level up"],
  ["[  ]", "one minute back and forward in time"],
  ["n", "back to now"],
  ["?", "this help"],
  ["Esc", "close, leave the filter"],
  ...PLACES.map(({ letter, title }): [string, string] => [`g ${letter}`, title]),
];

const MINUTE = 60_000;
const SECOND_KEY_MS = 1_500;

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

function walk(step: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("main [data-row]")];
  const present = rows.indexOf(document.activeElement as HTMLElement);
  const next = rows[present < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(present + step, 0), rows.length - 1)];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function up(): void {
  const { view, args } = route.value;
  if (view === "host") go(link(["cluster", args[0] ?? ""], { tab: "hosts" }));
  else if (view === "deployment") go(link(["cluster", args[0] ?? ""], { tab: "deployments" }));
  else if (view === "audit") go(link(["access"]));
  else if (view === "runbook") go(link(["alerts"]));
  else if (view === "policy") go(link(["cluster", args[0] ?? ""]));
  else if (view === "config" && args.length > 0) go(link(["config", ...args.slice(0, -1)]));
  else if (view === "explorer" && args.length > 0) go(link(["explorer"]));
  else go(link([]));
}

/** Keys that work alone. */
const SINGLE: Record<string, () => void> = {
  "/": () => document.querySelector<HTMLElement>("[data-filter]")?.focus(),
  "?": () => (overlay.value = "help"),
  j: () => walk(1),
  k: () => walk(-1),
  u: up,
  n: () => at.value !== null && lookAt(null),
  "[": () => lookAt((at.value ?? Date.now()) - MINUTE),
  "]": () => at.value !== null && lookAt(at.value + MINUTE >= Date.now() ? null : at.value + MINUTE),
};

export function startKeys(): void {
  let afterG = 0;
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      overlay.value = overlay.value === "palette" ? null : "palette";
      return;
    }
    if (event.key === "Escape" && typing(event.target)) (event.target as HTMLElement).blur();
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
    const place = event.timeStamp - afterG < SECOND_KEY_MS ? PLACES.find(({ letter }) => letter === event.key) : undefined;
    afterG = 0;
    if (place) go(link(place.view === "" ? [] : [place.view]));
    else if (event.key === "g") afterG = event.timeStamp;
    else if (Object.hasOwn(SINGLE, event.key)) SINGLE[event.key]!();
    else return;
    event.preventDefault();
  });
}
