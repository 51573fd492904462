// The wall: what is wrong, since when, where.
import { useSignal } from "@preact/signals";
import { CreateCluster } from "../components/forms.tsx";
import { commands } from "../commands.ts";
import { Command } from "../components/copy.tsx";
import { EventList } from "../components/events.tsx";
import { newestFirst } from "../events.ts";
import { HealthBar, HealthCountsText, Shape } from "../components/health.tsx";
import { Icon } from "../components/icon.tsx";
import { FilterBar } from "../components/page.tsx";
import { Age, Text } from "../components/text.tsx";
import { Hatched, Nothing } from "../components/table.tsx";
import { DENSE_FROM, DenseWall, Tile, worst } from "../components/tiles.tsx";
import { filtered } from "../filter.ts";
import { count, plural } from "../format.ts";
import { byUrgency, countHealth, healthOf, total } from "../health.ts";
import { may, complete, useTable } from "../hooks.ts";
import { at, link, route } from "../router.ts";
import type { ClusterRow, FleetRow, HealthCounts } from "../wire.ts";

const LAST_EVENTS = 20;

/** Made once: a comparison of two names by `localeCompare` makes a collator each time. */
const byName = new Intl.Collator(undefined, { numeric: true }).compare;

/** Clusters by their site, else by their wave; in one group when neither distinguishes them. */
export function grouped(rows: readonly ClusterRow[]): [string, ClusterRow[]][] {
  const bySite = rows.some((row) => row.labels?.site);
  const waves = new Set(rows.map((row) => row.wave ?? null));
  const nameOf = (row: ClusterRow) => (bySite ? (row.labels?.site ?? "No site") : waves.size > 1 ? (row.wave === null || row.wave === undefined ? "No wave" : `Wave ${row.wave}`) : "");
  const groups = new Map<string, ClusterRow[]>();
  for (const row of rows) {
    const name = nameOf(row);
    const members = groups.get(name);
    if (members) members.push(row);
    else groups.set(name, [row]);
  }
  for (const members of groups.values()) members.sort((a, b) => byName(a.name, b.name));
  return [...groups].sort(([a], [b]) => byName(a, b));
}

function Counter({ title, counts, href }: { title: string; counts: HealthCounts; href: string }) {
  return (
    <a class="counter" href={href}>
      <span class="counter-title">{title}</span>
      <span class="counter-number">
        {count(counts.good)}
        <small> / {count(total(counts))} good</small>
      </span>
      <HealthBar counts={counts} />
      <HealthCountsText counts={{ ...counts, good: 0 }} />
    </a>
  );
}

/** What needs a look beside the clusters themselves, each with the page that shows it. */
export function elsewhere(fleet: FleetRow | undefined): { text: string; href: string }[] {
  if (!fleet) return [];
  const needs = (number: number, noun: string) => `${plural(number, noun)} ${number === 1 ? "needs" : "need"} a look`;
  const found: [number, string, string][] = [
    [fleet.hosts.attention + fleet.hosts.away, "host", "hosts"],
    [fleet.deployments.attention + fleet.deployments.away, "deployment", "deployments"],
    [fleet.alerts - (fleet.acknowledged ?? 0), "alert", "alerts"],
  ];
  return found.filter(([number]) => number > 0).map(([number, noun, view]) => ({ text: needs(number, noun), href: link([view]) }));
}

/** What the numbers say before the rows have arrived. */
function FirstHeadline({ fleet }: { fleet: FleetRow }) {
  const [bad, all] = [fleet.clusters.attention + fleet.clusters.away, total(fleet.clusters)];
  if (bad > 0) return <h1 class="headline"><Shape health="attention" /> {bad} of {plural(all, "cluster")} {bad === 1 ? "needs" : "need"} a look</h1>;
  return <h1 class="headline">{plural(all, "cluster")}</h1>;
}

function Headline({ rows, fleet, arrived }: { rows: readonly ClusterRow[]; fleet: FleetRow | undefined; arrived: boolean }) {
  if (complete.value && !arrived && fleet) return <FirstHeadline fleet={fleet} />;
  const bad = rows.filter((row) => healthOf(row) === "attention" || healthOf(row) === "away").sort(byUrgency);
  const first = bad[0];
  if (!complete.value) return <h1 class="headline">Not everything is known yet</h1>;
  if (rows.length === 0) return <h1 class="headline">No clusters yet</h1>;
  const others = elsewhere(fleet);
  if (!first && others.length > 0) {
    return (
      <div>
        <h1 class="headline"><Shape health="attention" /> {others[0]!.text}</h1>
        <p class="headline-why">The clusters themselves are well. {others.map(({ text, href }) => <span key={href}><a href={href}>{text}</a>. </span>)}</p>
      </div>
    );
  }
  if (!first) {
    const working = rows.filter((row) => healthOf(row) === "working").length;
    return <h1 class="headline"><Shape health="good" /> {working > 0 ? `All well; ${plural(working, "cluster")} working` : "All is well"}</h1>;
  }
  return (
    <div>
      <h1 class="headline"><Shape health={healthOf(first)} /> {bad.length} of {plural(rows.length, "cluster")} {bad.length === 1 ? "needs" : "need"} a look</h1>
      <p class="headline-why"><a href={link(["cluster", first.name])}><Text of={first.name} longest={48} /></a> <Age since={first.since} prefix="for " />: <Text of={worst(first)} /></p>
    </div>
  );
}

const NONE: HealthCounts = { good: 0, working: 0, attention: 0, away: 0 };

export function FleetView() {
  const clusters = useTable("clusters");
  const fleet = useTable("fleet").rows.value.get("fleet");
  const events = useTable("events").list.value;
  const creating = useSignal(false);
  const { q = "", health = "" } = route.value.query;
  const all = clusters.list.value;
  const rows = filtered(all, q, health);
  const arrived = clusters.state.value === "current";
  // The first rows of many are not drawn as tiles that the next ones replace by cells.
  const awaited = q === "" && health === "" && fleet ? total(fleet.clusters) : 0;
  const dense = Math.max(rows.length, awaited) >= DENSE_FROM;
  return (
    <div class="wall">
      <div class="wall-top">
        <Headline rows={all} fleet={fleet} arrived={arrived} />
        {may("cluster.create") ? (
          <button class="primary" onClick={() => (creating.value = true)}><Icon name="plus" /> New cluster</button>
        ) : (
          at.value === null && <details class="by-command"><summary>New cluster</summary><Command line={commands.createCluster("NAME")} /></details>
        )}
      </div>
      <div class="counters">
        <Counter title="Clusters" counts={fleet?.clusters ?? countHealth(all)} href={link(["clusters"])} />
        <Counter title="Hosts" counts={fleet?.hosts ?? NONE} href={link(["hosts"])} />
        <Counter title="Deployments" counts={fleet?.deployments ?? NONE} href={link(["deployments"])} />
        <a class={`counter ${(fleet?.alerts ?? 0) > 0 ? "counter-bad" : ""}`} href={link(["alerts"])}>
          <span class="counter-title">Alerts</span>
          <span class="counter-number">{count(fleet?.alerts ?? 0)}</span>
          {(fleet?.acknowledged ?? 0) > 0 && <span class="counts">{count(fleet!.acknowledged)} acknowledged</span>}
          <span class="counts">{fleet?.waiting ? `${plural(fleet.waiting, "host")} waiting` : "no host waits"}</span>
        </a>
      </div>
      {fleet?.rollout && <p class="rollout-line"><Icon name="rollouts" /> <a href={link(["rollouts"])}><Text of={fleet.rollout} /></a></p>}
      <div class={events.length > 0 ? "wall-body" : ""}>
        <Hatched of={clusters}>
          {all.length > 8 && <FilterBar counts={countHealth(all)} />}
          {rows.length === 0 && <div class="empty"><Nothing of={clusters}>{all.length === 0 ? "No clusters yet. Create the first one." : "No cluster passes the filter."}</Nothing></div>}
          {grouped(rows).map(([name, members]) => (
            <section class="tiles-group" key={name}>
              {name !== "" && <h2><Text of={name} longest={60} /> <span>{members.length}</span></h2>}
              {dense ? <DenseWall rows={members} /> : <div class="tiles">{members.map((row) => <Tile row={row} key={row.key} />)}</div>}
            </section>
          ))}
          {dense && (
            <section class="tiles-group">
              <h2>Need a look</h2>
              <div class="tiles">{rows.filter((row) => healthOf(row) !== "good").sort(byUrgency).slice(0, 24).map((row) => <Tile row={row} key={row.key} />)}</div>
            </section>
          )}
        </Hatched>
        {events.length > 0 && <aside class="card"><header><h2>Last events</h2><a href={link(["timeline"])}>Timeline</a></header><EventList events={newestFirst(events).slice(0, LAST_EVENTS)} /></aside>}
      </div>
      {creating.value && <CreateCluster close={() => (creating.value = false)} />}
    </div>
  );
}
