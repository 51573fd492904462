// The secrets of one cluster: those in its repository, and a form that seals a value and puts it there.
import { useEffect } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { act, actNow } from "../actions.ts";
import { commands } from "../commands.ts";
import { inFours, visible } from "../format.ts";
import { may, useTable } from "../hooks.ts";
import { fingerprint, namesProblem, seal, sealedSecret, type Scope, type Wanted } from "../seal.ts";
import type { ClusterRow, SecretRow } from "../wire.ts";
import { Command, CopyButton } from "./copy.tsx";
import { Field, TypeTheName, type Wrong } from "./dialog.tsx";
import { Card, Details, Present } from "./page.tsx";
import { DataTable, Hatched, Nothing, type Column } from "./table.tsx";
import { Text } from "./text.tsx";

/** What the cluster reports that secrets are sealed with; null: nothing. */
function certificateOf(json: string | undefined): string | null {
  try {
    const found: unknown = JSON.parse(json ?? "null");
    return (found as { kubeseal_cert?: string } | null)?.kubeseal_cert ?? null;
  } catch {
    return null;
  }
}

const SCOPES: [Scope, string][] = [["strict", "this namespace and name"], ["namespace-wide", "this namespace"], ["cluster-wide", "this cluster"]];

interface Sealed {
  wanted: Wanted;
  print: string;
  text: string;
}

function Result({ cluster, sealed: { wanted, print, text }, close }: { cluster: ClusterRow; sealed: Sealed; close: () => void }) {
  const { namespace, name, key, scope, type } = wanted;
  const put = async () => {
    await actNow("secret.put", { cluster: cluster.key, namespace, name, key, scope, type, sealed: text, fingerprint: print }, `Put ${key} of ${namespace}/${name}`);
    close();
  };
  return (
    <div data-sealed>
      <p>Sealed. Only the controller of this cluster can open it. It can be read by others.</p>
      {may("secret.put") ? <button class="primary" onClick={() => void put()}>Put into the repository</button> : <p class="note">An operator who has signed in puts it into the cluster's repository from here.</p>}
      <p>
        Or copy it into <code>by-hand/</code> of the repository: <CopyButton text={JSON.stringify(sealedSecret(wanted, text), null, 2)} title="Copy the SealedSecret" />
      </p>
    </div>
  );
}

const STATES = { written: "", waits: " (not there yet)", goes: " (being deleted)" };

function Stored({ cluster }: { cluster: ClusterRow }) {
  const table = useTable("secrets", true);
  const asking = useSignal<SecretRow | null>(null);
  const rows = table.list.value.filter((row) => row.cluster === cluster.name);
  const columns: Column<SecretRow>[] = [
    { title: "Secret", cell: (row) => <Text of={`${row.namespace}/${row.name}`} longest={80} /> },
    { title: "Keys", cell: (row) => <Text of={row.keys.map((one) => one.key + STATES[one.state]).join(", ")} longest={200} />, class: "grow" },
    { title: "Bound to", cell: (row) => SCOPES.find(([scope]) => scope === row.scope)?.[1] ?? "", class: "wide" },
    { title: "Type", cell: (row) => <Text of={row.type} longest={60} />, class: "wide" },
  ];
  if (may("secret.delete")) {
    columns.push({ title: "", cell: (row) => <button class="quiet" aria-label={`Delete ${visible(row.name, 60)}`} onClick={() => (asking.value = row)}>Delete</button>, class: "fit" });
  }
  const keysOf = (row: SecretRow) => row.keys.filter((one) => one.state !== "goes").map((one) => one.key);
  const reason = rows.find((row) => row.reason !== null)?.reason;
  return (
    <Card title="Secrets in the repository">
      <Hatched of={table}>
        {reason && <p class="reason h-attention"><Text of={reason} longest={600} /></p>}
        <DataTable label="Secrets" rows={rows} columns={columns} empty={<Nothing of={table}>There is none.</Nothing>} />
      </Hatched>
      <details class="as-command"><summary>As command</summary><Command line={commands.listSecrets(cluster.name)} /></details>
      {asking.value && (
        <TypeTheName
          title={`Delete ${visible(asking.value.name, 60)}`}
          verb="Delete the Secret"
          name={asking.value.name}
          consequence={`Flux removes the Secret ${visible(asking.value.name, 60)} from ${visible(cluster.name, 60)}.`}
          action={{ name: "secret.delete", body: { cluster: cluster.key, namespace: asking.value.namespace, name: asking.value.name, keys: keysOf(asking.value) } }}
          command={commands.deleteSecret(cluster.name, asking.value.namespace, asking.value.name, keysOf(asking.value))}
          send={() => act("secret.delete", { cluster: cluster.key, namespace: asking.value!.namespace, name: asking.value!.name, keys: keysOf(asking.value!) }, `Delete ${asking.value!.namespace}/${asking.value!.name}`)}
          close={() => (asking.value = null)}
        />
      )}
    </Card>
  );
}

function Form({ cluster, certificate }: { cluster: ClusterRow; certificate: string }) {
  const [namespace, name, key, scope, type, value] = [useSignal(cluster.namespace ?? "fplus-edge"), useSignal(""), useSignal(""), useSignal<Scope>("strict"), useSignal("Opaque"), useSignal("")];
  const [print, wrong, sealed] = [useSignal(""), useSignal<Wrong | null>(null), useSignal<Sealed | null>(null)];
  useEffect(() => void fingerprint(certificate).then((text) => (print.value = text), () => (print.value = "")), [certificate]);
  const wanted = { namespace: namespace.value, name: name.value, key: key.value, scope: scope.value, type: type.value };
  const submit = async (event: Event) => {
    event.preventDefault();
    [wrong.value, sealed.value] = [namesProblem(wanted), null];
    if (wrong.value !== null) return;
    if (value.value === "") return void (wrong.value = { text: "There is no value to seal.", field: "value" });
    try {
      sealed.value = { wanted, print: await fingerprint(certificate), text: await seal(certificate, wanted, new TextEncoder().encode(value.value)) };
      value.value = "";
    } catch (error) {
      wrong.value = { text: visible((error as Error).message, 300), field: null };
    }
  };
  const text = (name: string, title: string, hint: string, of: typeof namespace) => (
    <Field name={name} label={title} hint={hint} wrong={wrong.value}>
      {(id, described) => <input id={id} aria-describedby={described} autocomplete="off" spellcheck={false} value={of.value} onInput={(event) => (of.value = event.currentTarget.value)} />}
    </Field>
  );
  return (
    <>
      <form onSubmit={submit}>
        {text("name", "Name of the Secret", "Such as press-login.", name)}
        {text("key", "Key in it", "Such as password.", key)}
        {text("namespace", "Namespace", "Of the Secret.", namespace)}
        {text("type", "Type", "Of the Secret: all its keys share it.", type)}
        <Field name="scope" label="Bound to" hint="Elsewhere the controller refuses to open it." wrong={wrong.value}>
          {(id, described) => (
            <select id={id} aria-describedby={described} value={scope.value} onChange={(event) => (scope.value = event.currentTarget.value as Scope)}>
              {SCOPES.map(([one, title]) => <option value={one} key={one}>{title}</option>)}
            </select>
          )}
        </Field>
        <Field name="value" label="Value" hint="It is sealed in this browser, and sent nowhere." wrong={wrong.value}>
          {(id, described) => <input id={id} type="password" aria-describedby={described} autocomplete="new-password" spellcheck={false} value={value.value} onInput={(event) => (value.value = event.currentTarget.value)} />}
        </Field>
        {wrong.value !== null && <p class="wrong" role="alert">{wrong.value.text}</p>}
        <button class="primary">Seal</button>
      </form>
      {sealed.value && <Result cluster={cluster} sealed={sealed.value} close={() => (sealed.value = null)} />}
      <Details details={[["Certificate", print.value && <code class="ek" title="SHA-256">{inFours(print.value)}</code>]]} />
      <details class="as-command"><summary>As command</summary><Command line={commands.putSecret(cluster.name, { ...wanted, name: wanted.name || "NAME", key: wanted.key || "KEY" }, print.value)} /></details>
    </>
  );
}

export function Secrets({ cluster }: { cluster: ClusterRow }) {
  const entries = useTable(`entries:${cluster.key}`, true);
  const certificate = certificateOf(entries.rows.value.get("EdgeClusterStatus")?.json);
  return (
    <>
      <Present />
      <Stored cluster={cluster} />
      <Card title="Seal a secret">
        <Hatched of={entries}>
          {certificate === null ? <Nothing of={entries}>The cluster has not reported a certificate that secrets are sealed with.</Nothing>
          : globalThis.isSecureContext ? <Form cluster={cluster} certificate={certificate} />
          : <p class="note">A browser seals only on pages that come over TLS or from this machine. On the command line: <code>sparkfleet secret put</code></p>}
        </Hatched>
      </Card>
    </>
  );
}
