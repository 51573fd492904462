// What stands around every page: navigation, header, bands, overlays.
import { Component, type ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { followed, dismiss, signOut } from "./actions.ts";
import { now } from "./clock.ts";
import { age, plural, stamp, visible } from "./format.ts";
import { complete, consoleRow, useTable } from "./hooks.ts";
import { PLACES, overlay } from "./keys.ts";
import { at, link, lookAt, route, setQuery } from "./router.ts";
import { session } from "./store.ts";
import { connection, readSession } from "./stream.ts";
import { nextTheme, theme } from "./theme.ts";
import { Icon } from "./components/icon.tsx";
import { SignIn } from "./components/forms.tsx";
import { Help, Palette } from "./components/overlays.tsx";
import { Age, Text } from "./components/text.tsx";
import { AccessView } from "./views/access.tsx";
import { AlertsView } from "./views/alerts.tsx";
import { AuditView } from "./views/audit.tsx";
import { ClusterView } from "./views/cluster.tsx";
import { ClustersView } from "./views/clusters.tsx";
import { ConfigView } from "./views/config.tsx";
import { DeploymentView } from "./views/deployment.tsx";
import { DeploymentsView } from "./views/deployments.tsx";
import { EnrolmentView } from "./views/enrolment.tsx";
import { ExplorerView } from "./views/explorer.tsx";
import { FleetView } from "./views/fleet.tsx";
import { HostView } from "./views/host.tsx";
import { HostsView } from "./views/hosts.tsx";
import { PolicyView } from "./views/policy.tsx";
import { RolloutsView } from "./views/rollouts.tsx";
import { RunbookView } from "./views/runbook.tsx";
import { SystemView } from "./views/system.tsx";
import { TimelineView } from "./views/timeline.tsx";

const VIEWS: Record<string, () => ComponentChildren> = {
  "": () => <FleetView />,
  clusters: () => <ClustersView />,
  cluster: () => <ClusterView />,
  hosts: () => <HostsView />,
  host: () => <HostView />,
  deployments: () => <DeploymentsView />,
  deployment: () => <DeploymentView />,
  alerts: () => <AlertsView />,
  rollouts: () => <RolloutsView />,
  explorer: () => <ExplorerView />,
  timeline: () => <TimelineView />,
  config: () => <ConfigView />,
  enrolment: () => <EnrolmentView />,
  access: () => <AccessView />,
  audit: () => <AuditView />,
  policy: () => <PolicyView />,
  runbook: () => <RunbookView />,
  system: () => <SystemView />,
};

const MINUTE = 60_000;

/** Keeps the frame of the page when a view fails. */
class Guard extends Component<{ children: ComponentChildren }, { error: string | null }> {
  override state = { error: null };
  static getDerivedStateFromError(error: unknown) {
    return { error: String(error) };
  }
  override render() {
    if (this.state.error === null) return this.props.children;
    return (
      <div class="empty" role="alert">
        This page has failed: {visible(this.state.error)}. <button onClick={() => location.reload()}>Load it again</button>
      </div>
    );
  }
}

/** The console's own link: to its server, to the broker, and whether what it knows is complete. */
function LinkState() {
  const row = consoleRow.value;
  const { state } = connection.value;
  const [health, word] =
    state !== "open" ? ["away", state === "lost" ? "console not reachable" : "connecting"]
    : row === null ? ["working", "connecting"]
    : !row.online ? ["away", "no broker"]
    : !row.complete ? ["working", `${plural(row.missing.length, "birth")} missing`]
    : ["good", "live"];
  return (
    <a class={`link-state h-${health}`} href={link(["system"])} title={row ? visible(row.broker) : ""}>
      <i class="dot" />
      <span>{word}</span>
    </a>
  );
}

/** Why a way in at the identity provider led nowhere, by the code in the address. */
const NOT_SIGNED_IN: Record<string, string> = {
  unknown: "This sign-in was not begun in this browser, or too long ago. Begin again.",
  denied: "The identity provider did not sign you in.",
  "no-scope": "The identity provider knows you, and nothing is granted to you here. An administrator can change that.",
  provider: "The identity provider cannot be asked at present, or its answer was not good. The console's log says more.",
};

function Bands() {
  const row = consoleRow.value;
  const { state, since } = connection.value;
  const [gap] = useTable("fleet").gaps.value;
  return (
    <div class="bands" aria-live="polite">
      {Object.hasOwn(NOT_SIGNED_IN, route.value.query["sign-in"] ?? "") && (
        <p class="band h-attention" data-band="sign-in">
          {NOT_SIGNED_IN[route.value.query["sign-in"]!]} <button onClick={() => setQuery({ "sign-in": null })}>Dismiss</button>
        </p>
      )}
      {state === "lost" && (
        <p class="band h-attention" data-band="console">
          The console cannot be reached for {age(now.value - since)}. What is shown is what was known then. Trying again…
        </p>
      )}
      {state === "open" && row !== null && !row.online && (
        <p class="band h-attention" data-band="broker">
          No connection to the broker <Text of={row.broker} />. The last known values are shown, <Age since={row.since} /> old.
        </p>
      )}
      {state === "open" && row?.online && !row.complete && at.value === null && (
        <p class="band h-working" data-band="incomplete">
          Not complete yet: waiting for {row.missing.slice(0, 4).map((name) => visible(name, 80)).join(", ")}
          {row.missing.length > 4 && ` and ${row.missing.length - 4} more`}. Hatched tables may lack rows.
        </p>
      )}
      {at.value !== null && (
        <div class="band band-past" data-band="past">
          <Icon name="clock" />
          <span>
            State at <strong>{stamp(at.value)}</strong>, {age(now.value - at.value)} ago. Read only.
            {gap !== undefined && <strong data-gap> Nothing was received from {stamp(gap[0])}{gap[1] === null ? " on" : ` until ${stamp(gap[1])}`}: this is what was known then.</strong>}
          </span>
          <button onClick={() => lookAt(at.value! - MINUTE, true)}>− 1 min</button>
          <button onClick={() => lookAt(Math.min(at.value! + MINUTE, now.value), true)}>+ 1 min</button>
          <a class="button" href={link(["timeline"])}>Timeline</a>
          <button class="primary" onClick={() => lookAt(null)}>Back to now</button>
        </div>
      )}
    </div>
  );
}

/** Which entry of the navigation is marked on the pages below it. */
const BELOW: Record<string, string> = { audit: "access", runbook: "alerts", cluster: "clusters", policy: "clusters", host: "hosts", deployment: "deployments" };

function Navigation() {
  const chosen = BELOW[route.value.view] ?? route.value.view;
  const fleet = useTable("fleet").rows.value.get("fleet");
  const numbers: Record<string, number | undefined> = { alerts: fleet && fleet.alerts - (fleet.acknowledged ?? 0), enrolment: fleet?.waiting };
  return (
    <nav class="places" aria-label="Pages">
      {PLACES.map(({ view, title, icon, letter }) => (
        <a href={link(view === "" ? [] : [view])} aria-current={chosen === view ? "page" : undefined} title={`${title} (g ${letter})`} key={view}>
          <Icon name={icon} />
          <span>{title}</span>
          {(numbers[view] ?? 0) > 0 && <span class="number">{numbers[view]}</span>}
        </a>
      ))}
    </nav>
  );
}

const ENDED: Record<string, [string, string]> = { sent: ["working", "sent"], done: ["good", "done"], refused: ["attention", "refused"], failed: ["attention", "failed"] };

/** The actions of this page and how they end. */
function Notices() {
  const rows = useTable("actions", true).rows.value;
  return (
    <div class="notices" role="status">
      {followed.value.map(({ id, title, error }) => {
        const row = rows.get(id);
        const [health, word] = error !== null ? ["attention", "not sent"] : (ENDED[row?.state ?? "sent"] ?? ["working", "sent"]);
        return (
          <div class={`notice h-${health}`} key={id}>
            <div>
              <strong>{visible(title)}</strong>: {word}
              {(error ?? row?.text) && <p>{visible(error ?? row?.text, 400)}</p>}
            </div>
            <button class="quiet" aria-label="Dismiss" onClick={() => dismiss(id)}>
              <Icon name="close" />
            </button>
          </div>
        );
      })}
    </div>
  );
}

/** Who has signed in, and the way in and out. */
function User() {
  const asking = useSignal(false);
  const who = session.value;
  if (who === null || !who.can_sign_in) return null;
  const close = () => (asking.value = false);
  return who.user === null ? (
    <>
      <button class="quiet sign-in" onClick={() => (asking.value = true)}><Icon name="key" /> Sign in</button>
      {(asking.value || who.private) && <SignIn close={close} />}
    </>
  ) : (
    <button class="quiet sign-out" title={`Signed in as ${visible(who.user, 80)}`} onClick={() => void signOut()}>
      <Text of={who.user.replace(/^(token|oidc):/, "")} longest={16} /> · Sign out
    </button>
  );
}

const THEME_ICON = { system: "system_theme", light: "light", dark: "dark" };

function Header() {
  return (
    <header class="top">
      <a class="brand" href={link([])}>
        <svg viewBox="0 0 20 20" aria-hidden="true"><path d="M11 1.5 4 11h4.6l-1.2 7.5L15 8.5h-4.8z" /></svg>
        <span>Sparkfleet</span>
        {session.value && <b><Text of={session.value.organisation} longest={24} /></b>}
      </a>
      <button class="find" aria-label="Find anything" onClick={() => (overlay.value = "palette")}>
        <Icon name="search" />
        <span>Find anything</span>
        <kbd>Ctrl K</kbd>
      </button>
      <LinkState />
      <User />
      <button class="quiet" title={`Theme: ${theme.value}`} aria-label={`Theme: ${theme.value}`} onClick={nextTheme}>
        <Icon name={THEME_ICON[theme.value]} />
      </button>
      <button class="quiet help-button" title="Keys (?)" aria-label="Keys" onClick={() => (overlay.value = "help")}>
        ?
      </button>
    </header>
  );
}

export function Shell() {
  useTable("console", true);
  const { view, args } = route.value;
  const render = VIEWS[view];
  const place = [...args].reverse().concat(PLACES.find((one) => one.view === view)?.title ?? []);
  // While ConfigDB is not known, the server knows no user.
  useEffect(() => void (complete.value && readSession()), [complete.value]);
  const title = `${place.map((part) => visible(part, 60)).join(" · ")} – Sparkfleet`;
  useEffect(() => void (document.title = title), [title]);
  return (
    <>
      <a class="skip" href="#main">Skip to the page</a>
      <Header />
      <Bands />
      <div class="body">
        <Navigation />
        <main id="main" tabIndex={-1} class={!complete.value ? "incomplete" : ""}>
          <Guard key={`${view}/${args.join("/")}`}>{render ? render() : <div class="empty">There is no such page. <a href="/">Go to the fleet</a></div>}</Guard>
        </main>
      </div>
      <Notices />
      {overlay.value === "palette" && <Palette />}
      {overlay.value === "help" && <Help />}
    </>
  );
}
