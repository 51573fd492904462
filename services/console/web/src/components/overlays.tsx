// The command palette and the help.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { visible } from "../format.ts";
import { healthOf, MEANING, HEALTHS } from "../health.ts";
import { useTable } from "../hooks.ts";
import { hostLink, ownName } from "../hosts.ts";
import { KEYS, PLACES, overlay } from "../keys.ts";
import { go, link, lookAt } from "../router.ts";
import { nextTheme } from "../theme.ts";
import { Dialog } from "./dialog.tsx";
import { Shape } from "./health.tsx";
import { Icon } from "./icon.tsx";
import type { Health } from "../wire.ts";

interface Entry {
  id: string;
  title: string;
  kind: string;
  health?: Health;
  run: () => void;
}

const MOST = 12;

/** How well `title` fits: beginning, beginning of a word, anywhere, or not at all (null). */
export function fit(title: string, query: string): number | null {
  const place = title.toLowerCase().indexOf(query.toLowerCase());
  if (place < 0) return null;
  return place === 0 ? 0 : /[^a-z0-9]/i.test(title[place - 1]!) ? 1 : 2;
}

export function Palette() {
  const query = useSignal("");
  const chosen = useSignal(0);
  const input = useRef<HTMLInputElement>(null);
  const close = () => (overlay.value = null);
  const to = (href: string) => () => (close(), go(href));
  const entries: Entry[] = [
    ...PLACES.map(({ view, title }) => ({ id: `page ${view}`, title, kind: "page", run: to(link(view === "" ? [] : [view])) })),
    ...useTable("clusters").list.value.map((row) => ({ id: row.key, title: row.name, kind: "cluster", health: healthOf(row), run: to(link(["cluster", row.name])) })),
    ...useTable("hosts").list.value.map((row) => ({ id: row.key, title: row.name, kind: `host of ${row.cluster}${ownName(row) === row.name ? "" : ` (${ownName(row)})`}`, health: healthOf(row), run: to(hostLink(row)) })),
    ...useTable("deployments").list.value.map((row) => ({ id: row.key, title: row.name, kind: `deployment on ${row.cluster}`, health: healthOf(row), run: to(link(["deployment", row.cluster, row.name])) })),
    { id: "page audit", title: "Record of actions", kind: "page", run: to(link(["audit"])) },
    { id: "theme", title: "Change the theme", kind: "do", run: nextTheme },
    { id: "hour", title: "Look at one hour ago", kind: "do", run: () => (close(), lookAt(Date.now() - 3_600_000)) },
    { id: "now", title: "Back to now", kind: "do", run: () => (close(), lookAt(null)) },
  ];
  const found = entries
    .map((entry) => ({ entry, rank: fit(entry.title, query.value) }))
    .filter((one) => one.rank !== null)
    .sort((a, b) => a.rank! - b.rank! || a.entry.title.length - b.entry.title.length)
    .slice(0, MOST)
    .map((one) => one.entry);
  useEffect(() => input.current?.focus(), []);
  const key = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) chosen.value = (chosen.value + step + found.length) % Math.max(1, found.length);
    else if (event.key === "Enter") found[chosen.value]?.run();
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title="Find anything" close={close}>
      <input
        ref={input}
        class="palette-input"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={`palette-${chosen.value}`}
        aria-label="Cluster, host, deployment or page"
        placeholder="Cluster, host, deployment or page"
        value={query.value}
        onInput={(event) => ((query.value = event.currentTarget.value), (chosen.value = 0))}
        onKeyDown={key}
      />
      <ul class="palette" id="palette-list" role="listbox" aria-label="Found">
        {found.map((entry, index) => (
          <li role="option" id={`palette-${index}`} aria-selected={index === chosen.value} onClick={entry.run} key={entry.id}>
            {entry.health ? <Shape health={entry.health} /> : <Icon name="forward" />}
            <bdi>{visible(entry.title, 80)}</bdi>
            <span>{visible(entry.kind, 60)}</span>
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="note">Nothing here has this in its name.</p>}
    </Dialog>
  );
}

export function Help() {
  return (
    <Dialog title="Keys and signs" close={() => (overlay.value = null)} wide>
      <div class="help">
        <dl class="keys">
          {KEYS.map(([key, what]) => (
            <div key={key}>
              <dt><kbd>{key}</kbd></dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
        <dl class="keys signs">
          {HEALTHS.map((health) => (
            <div key={health}>
              <dt class={`mark h-${health}`}><Shape health={health} /> {health}</dt>
              <dd>{MEANING[health]}</dd>
            </div>
          ))}
        </dl>
      </div>
    </Dialog>
  );
}
