// The address is the whole state of the page: view, filter, tab and the time that is looked at.
import { computed, signal } from "@preact/signals";

/** An address, taken apart. */
export interface Route {
  /** First part of the path; empty for the fleet. */
  view: string;
  /** The rest of the path, decoded. */
  args: string[];
  query: Record<string, string>;
}

/** Takes an address apart. A part that is not valid percent-encoding stays as it is. */
export function parse(path: string, search: string): Route {
  const [view = "", ...args] = path.split("/").filter((part) => part !== "").map(decode);
  return { view, args, query: Object.fromEntries(new URLSearchParams(search)) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a view. Empty values of the query are left out. */
export function address(parts: string[], query: Record<string, string | null | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") search.set(name, value);
  }
  const text = search.toString();
  return `/${parts.map(encodeURIComponent).join("/")}${text === "" ? "" : `?${text}`}`;
}

/** The time of `?at=`: a positive number of milliseconds, or null for now. */
export function timeOf(query: Record<string, string>): number | null {
  const text = query.at ?? "";
  return /^\d{1,15}$/.test(text) && Number(text) > 0 ? Number(text) : null;
}

const current = (): Route =>
  typeof location === "undefined" ? parse("/", "") : parse(location.pathname, location.search);

export const route = signal(current());
/** The time that is looked at, or null for now. */
export const at = computed(() => timeOf(route.value.query));

/** The address of a view that keeps the time that is looked at. */
export function link(parts: string[], query: Record<string, string | null | undefined> = {}): string {
  const time = at.value;
  return address(parts, time === null ? query : { ...query, at: String(time) });
}

/** Goes to an address. */
export function go(to: string, replace = false): void {
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  route.value = current();
  if (!replace) scrollTo(0, 0);
}

/** Changes some values of the query and keeps the view. */
export function setQuery(change: Record<string, string | null>, replace = true): void {
  const { view, args, query } = route.value;
  go(address(view === "" ? [] : [view, ...args], { ...query, ...change }), replace);
}

/** Looks at the state at `time`, or at now. */
export function lookAt(time: number | null, replace = false): void {
  setQuery({ at: time === null ? null : String(Math.round(time)) }, replace);
}

/** Follows the browser's history and turns clicks on own links into changes of the route. */
export function startRouter(): void {
  addEventListener("popstate", () => (route.value = current()));
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const anchor = (event.target as Element | null)?.closest<HTMLAnchorElement>("a[href]");
    const href = anchor?.getAttribute("href");
    if (!anchor || !href?.startsWith("/") || href.startsWith("//") || href.startsWith("/api/") || anchor.target !== "") return;
    event.preventDefault();
    go(href);
  });
}
