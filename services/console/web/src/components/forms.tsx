// The forms of actions.
import { useSignal } from "@preact/signals";
import { act, signIn } from "../actions.ts";
import { commands } from "../commands.ts";
import { visible } from "../format.ts";
import { useTable } from "../hooks.ts";
import { go, link } from "../router.ts";
import { session } from "../store.ts";
import type { AlertRow, ClusterRow, DeploymentRow, HostRow } from "../wire.ts";
import { Field, FormDialog } from "./dialog.tsx";
import { Text } from "./text.tsx";

const NAME_RULE = "Letters, digits and _, beginning with a letter.";
const DEFAULT_NAMESPACE = "fplus-edge";
const DEFAULT_CHART = "Edge agent";

/** What is wrong with the name of a cluster or a deployment; null if nothing is. */
export function nameProblem(name: string): string | null {
  return /^[A-Za-z][A-Za-z0-9_]*$/.test(name) ? null : `The name must be made of: ${NAME_RULE}`;
}

export function CreateCluster({ close }: { close: () => void }) {
  const name = useSignal("");
  const namespace = useSignal(DEFAULT_NAMESPACE);
  const wanted = { name: name.value, namespace: namespace.value };
  return (
    <FormDialog
      title="New cluster"
      verb="Create"
      close={close}
      action={{ name: "cluster.create", body: wanted }}
      command={commands.createCluster(name.value || "NAME", namespace.value)}
      check={() => {
        const text = nameProblem(name.value);
        return text === null ? null : { text, field: "name" };
      }}
      send={async () => {
        await act("cluster.create", wanted, `Create cluster ${name.value}`);
        go(link(["cluster", name.value], { tab: "setup" }));
      }}
    >
      {(wrong) => (
        <>
          <Field name="name" label="Name" hint={NAME_RULE} wrong={wrong}>
            {(id, hint) => <input id={id} aria-describedby={hint} autofocus autocomplete="off" spellcheck={false} value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />}
          </Field>
          <Field name="namespace" label="Kubernetes namespace" hint="Where the edge services run." wrong={wrong}>
            {(id, hint) => <input id={id} aria-describedby={hint} autocomplete="off" spellcheck={false} value={namespace.value} onInput={(event) => (namespace.value = event.currentTarget.value)} />}
          </Field>
        </>
      )}
    </FormDialog>
  );
}

function HostField({ cluster, host, onHost }: { cluster: string; host: string; onHost: (host: string) => void }) {
  const hosts = useTable("hosts").list.value.filter((row) => row.cluster === cluster);
  return (
    <Field name="host" label="Host" hint="Floating: Kubernetes chooses the host." wrong={null}>
      {(id, hint) => (
        <select id={id} aria-describedby={hint} value={host} onChange={(event) => onHost(event.currentTarget.value)}>
          <option value="">floating</option>
          {hosts.map((row) => <option value={row.name} key={row.key}>{row.name}</option>)}
        </select>
      )}
    </Field>
  );
}

/** The values of a form as a document; undefined where the text is empty, null where it is anything but an object. */
export function valuesOf(text: string): Record<string, unknown> | undefined | null {
  if (text.trim() === "") return undefined;
  try {
    const found: unknown = JSON.parse(text);
    return typeof found === "object" && !Array.isArray(found) ? (found as Record<string, unknown> | null) : null;
  } catch {
    return null;
  }
}

export function CreateDeployment({ cluster: given, close }: { cluster?: string; close: () => void }) {
  const clusters = useTable("clusters").list.value;
  const charts = [...new Set([DEFAULT_CHART, ...useTable("deployments").list.value.map((row) => row.chart)])];
  const [name, cluster, chart, host, values] = [useSignal(""), useSignal(given ?? clusters[0]?.name ?? ""), useSignal(DEFAULT_CHART), useSignal(""), useSignal("")];
  const document = valuesOf(values.value);
  const check = () => {
    const text = nameProblem(name.value);
    if (text !== null) return { text, field: "name" };
    return document === null ? { text: "The values must be a JSON object.", field: "values" } : null;
  };
  const key = clusters.find((row) => row.name === cluster.value)?.key ?? cluster.value;
  const body = { cluster: key, name: name.value, chart: chart.value, ...(host.value === "" ? {} : { host: host.value }), ...(document === undefined ? {} : { values: document }) };
  const send = async () => {
    await act("deployment.create", body, `Create deployment ${name.value}`);
    go(link(["deployment", cluster.value, name.value]));
  };
  return (
    <FormDialog title="New deployment" verb="Create" close={close} action={{ name: "deployment.create", body }} command={commands.createDeployment(cluster.value || "CLUSTER", name.value || "NAME", chart.value, host.value, document ?? undefined)} check={check} send={send}>
      {(wrong) => (
        <>
          <Field name="name" label="Name" hint={NAME_RULE} wrong={wrong}>
            {(id, hint) => <input id={id} aria-describedby={hint} autofocus autocomplete="off" spellcheck={false} value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />}
          </Field>
          <Field name="cluster" label="Cluster" wrong={wrong}>
            {(id) => (
              <select id={id} value={cluster.value} onChange={(event) => ((cluster.value = event.currentTarget.value), (host.value = ""))}>
                {clusters.map((row) => <option value={row.name} key={row.key}>{row.name}</option>)}
              </select>
            )}
          </Field>
          <Field name="chart" label="Chart template" wrong={wrong}>
            {(id) => (
              <>
                <input id={id} list="charts" autocomplete="off" value={chart.value} onInput={(event) => (chart.value = event.currentTarget.value)} />
                <datalist id="charts">{charts.map((one) => <option value={one} key={one} />)}</datalist>
              </>
            )}
          </Field>
          <HostField cluster={cluster.value} host={host.value} onHost={(chosen) => (host.value = chosen)} />
          <Field name="values" label="Helm values" hint="A JSON object, or nothing." wrong={wrong}>
            {(id, hint) => <textarea id={id} aria-describedby={hint} rows={4} spellcheck={false} value={values.value} onInput={(event) => (values.value = event.currentTarget.value)} />}
          </Field>
        </>
      )}
    </FormDialog>
  );
}

const WAVES = [1, 2, 3, 4, 5, 6, 7, 8, 9];

export function SetWave({ row, close }: { row: ClusterRow; close: () => void }) {
  const wave = useSignal(row.wave ?? WAVES.length);
  return (
    <FormDialog
      title={`Wave of ${row.name}`}
      verb="Set"
      close={close}
      action={{ name: "cluster.wave", body: { cluster: row.key, wave: wave.value } }}
      command={commands.setWave(row.name, wave.value)}
      check={() => null}
      send={() => act("cluster.wave", { cluster: row.key, wave: wave.value }, `Wave ${wave.value} for ${row.name}`)}
    >
      {(wrong) => (
        <Field name="wave" label="Wave" hint="A changed template reaches a wave when every earlier one has settled." wrong={wrong}>
          {(id, hint) => (
            <select id={id} aria-describedby={hint} value={wave.value} onChange={(event) => (wave.value = Number(event.currentTarget.value))}>
              {WAVES.map((one) => <option value={one} key={one}>{one}</option>)}
            </select>
          )}
        </Field>
      )}
    </FormDialog>
  );
}

/** What an alert is about, as the command line names it. */
export const alertSubject = (row: AlertRow): string => [row.cluster, row.node].filter((part) => part).join("/");

/** For how long an alert can be silenced: seconds, as the command line writes it, and for people. */
const SILENCES = [[3_600, "1h", "1 hour"], [28_800, "8h", "8 hours"], [86_400, "1d", "1 day"], [604_800, "7d", "7 days"]] as const;

export function Acknowledge({ row, close }: { row: AlertRow; close: () => void }) {
  const note = useSignal("");
  const seconds = useSignal(0);
  const known = row.acknowledged;
  const silence = SILENCES.find(([time]) => time === seconds.value);
  const about = `${row.alert} of ${alertSubject(row)}`;
  const body = { alert: row.key, ...(note.value === "" ? {} : { note: note.value }), ...(silence ? { silence_s: silence[0] } : {}) };
  return (
    <FormDialog
      title={`Look after ${about}`}
      verb={silence ? "Silence" : "Acknowledge"}
      close={close}
      command={silence ? commands.silence(alertSubject(row), row.alert, silence[1], note.value) : commands.acknowledge(alertSubject(row), row.alert, note.value)}
      check={() => null}
      action={{ name: "alert.acknowledge", body }}
      send={() => act("alert.acknowledge", body, `${silence ? "Silence" : "Acknowledge"} ${about}`)}
    >
      {(wrong) => (
        <>
          <p>All users see that you look after it. The alert stays until its cause ends.</p>
          {known && <p class="note">Now <Text of={known.by} longest={60} /> looks after it{known.note && <>: <Text of={known.note} /></>}.</p>}
          <Field name="note" label="Note" hint="What you do about it." wrong={wrong}>
            {(id, hint) => <input id={id} aria-describedby={hint} autofocus autocomplete="off" maxLength={1000} value={note.value} onInput={(event) => (note.value = event.currentTarget.value)} />}
          </Field>
          <Field name="silence" label="For" hint="A silence also counts where the alert ends meanwhile and becomes active again." wrong={wrong}>
            {(id, hint) => (
              <select id={id} aria-describedby={hint} value={seconds.value} onChange={(event) => (seconds.value = Number(event.currentTarget.value))}>
                <option value={0}>until it ends</option>
                {SILENCES.map(([time, , title]) => <option value={time} key={time}>{title}, silenced</option>)}
              </select>
            )}
          </Field>
        </>
      )}
    </FormDialog>
  );
}

/** Asks for a token. A console on this machine, and one with TLS, take it. */
export function SignIn({ close }: { close: () => void }) {
  const token = useSignal("");
  return (
    <FormDialog
      title="Sign in"
      verb="Sign in"
      close={close}
      action={null}
      command={commands.createToken("NAME", "operator")}
      check={() => (token.value.trim() === "" ? { text: "Paste a token.", field: "token" } : null)}
      send={() => signIn(token.value.trim())}
    >
      {(wrong) => (
        <>
        {session.value?.single_sign_on && <p><a class="button" href="/api/v1/session/oidc">Sign in with your organisation</a> <span class="note">or with a token:</span></p>}
        <Field name="token" label="Token" hint="It begins with sfp_. An administrator makes one by the command below." wrong={wrong}>
          {(id, hint) => <input id={id} aria-describedby={hint} type="password" autofocus autocomplete="off" spellcheck={false} value={token.value} onInput={(event) => (token.value = event.currentTarget.value)} />}
        </Field>
        </>
      )}
    </FormDialog>
  );
}

/** Binds all that is bound to a host to another one. */
export function MoveHost({ row, cluster, bound, close }: { row: HostRow; cluster: string; bound: readonly DeploymentRow[]; close: () => void }) {
  const to = useSignal("");
  return (
    <FormDialog
      title={`Move all from ${row.name}`}
      verb="Move"
      close={close}
      command={commands.moveHost(row.cluster, row.name, to.value)}
      check={() => (to.value === row.name ? { text: "They are there already.", field: "host" } : null)}
      action={{ name: "host.move", body: { cluster, host: row.name, to: to.value || null } }}
      send={() => act("host.move", { cluster, host: row.name, to: to.value || null }, `Move all from ${row.name}`)}
    >
      {() => (
        <>
          <p>{bound.map((one) => visible(one.name, 40)).join(", ")}</p>
          <HostField cluster={row.cluster} host={to.value} onHost={(chosen) => (to.value = chosen)} />
        </>
      )}
    </FormDialog>
  );
}

export function MoveDeployment({ row, close }: { row: DeploymentRow; close: () => void }) {
  const host = useSignal(row.host ?? "");
  return (
    <FormDialog
      title={`Move ${row.name}`}
      verb="Move"
      close={close}
      command={commands.moveDeployment(row.cluster, row.name, host.value)}
      check={() => null}
      action={{ name: "deployment.move", body: { deployment: row.key, host: host.value || null } }}
      send={() => act("deployment.move", { deployment: row.key, host: host.value || null }, `Move ${row.name}`)}
    >
      {() => <HostField cluster={row.cluster} host={host.value} onHost={(chosen) => (host.value = chosen)} />}
    </FormDialog>
  );
}
