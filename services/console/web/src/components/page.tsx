// The frame that pages share: head, tabs, filter, cards.
import type { ComponentChildren } from "preact";
import { HEALTHS } from "../health.ts";
import { count } from "../format.ts";
import { at, link, lookAt, route, setQuery } from "../router.ts";
import type { HealthCounts } from "../wire.ts";
import { Shape } from "./health.tsx";
import { Icon } from "./icon.tsx";

/** Head of a page: where it belongs, its title, its actions. */
export function Head(props: { title: ComponentChildren; above?: { title: string; href: string }[]; children?: ComponentChildren; actions?: ComponentChildren }) {
  return (
    <div class="head">
      {props.above && (
        <nav class="crumbs" aria-label="Breadcrumbs">
          {props.above.map((place) => (
            <a href={place.href} key={place.href}>
              {place.title}
            </a>
          ))}
        </nav>
      )}
      <div class="head-line">
        <h1>{props.title}</h1>
        <div class="head-actions">{props.actions}</div>
      </div>
      {props.children && <div class="head-details">{props.children}</div>}
    </div>
  );
}

/** Tabs as links, so that each has an address. */
export function Tabs({ tabs, chosen }: { tabs: { id: string; title: string; number?: number }[]; chosen: string }) {
  const { view, args } = route.value;
  return (
    <nav class="tabs" aria-label="Parts of this page">
      {tabs.map(({ id, title, number }) => (
        <a href={link([view, ...args], { tab: id })} aria-current={id === chosen ? "page" : undefined} key={id}>
          {title}
          {number !== undefined && <span class="number">{count(number)}</span>}
        </a>
      ))}
    </nav>
  );
}

/** Says, while a past time is looked at, that what stands below is of the present. */
export function Present({ children = "This shows the present state: its past is not recorded." }: { children?: ComponentChildren }) {
  return at.value === null ? null : <p class="reason h-away" data-present>{children}</p>;
}

/** What is shown in place of something that can be seen at present only. */
export function NoPast({ children }: { children: ComponentChildren }) {
  return <div class="empty" data-no-past>{children} <button onClick={() => lookAt(null)}>Back to now</button></div>;
}

/** The filter of a page: text, and chips for each health that occurs. */
export function FilterBar({ counts, children }: { counts?: HealthCounts; children?: ComponentChildren }) {
  const { q = "", health = "" } = route.value.query;
  return (
    <div class="filter" role="search">
      <label class="filter-text">
        <Icon name="search" />
        <span class="hidden">Filter</span>
        <input data-filter type="search" placeholder="Filter: words, wave:2, site:north" value={q} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
        <kbd>/</kbd>
      </label>
      {counts &&
        HEALTHS.map(
          (word) =>
            (counts[word] > 0 || health === word) && (
              <button type="button" class={`chip h-${word}`} aria-pressed={health === word} onClick={() => setQuery({ health: health === word ? null : word })} key={word}>
                <Shape health={word} />
                {count(counts[word])} {word}
              </button>
            ),
        )}
      {children}
    </div>
  );
}

/** A titled part of a page. */
export function Card({ title, actions, children, class: extra = "" }: { title: string; actions?: ComponentChildren; children: ComponentChildren; class?: string }) {
  return (
    <section class={`card ${extra}`}>
      <header>
        <h2>{title}</h2>
        {actions}
      </header>
      {children}
    </section>
  );
}

/** Names with their values; those without a value are left out. */
export function Details({ details }: { details: [string, ComponentChildren][] }) {
  return (
    <dl class="details">
      {details
        .filter(([, value]) => value !== null && value !== undefined && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}
