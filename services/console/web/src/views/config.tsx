// ConfigDB: objects, their entries, and an editor for one entry.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { act, actText, ActionError } from "../actions.ts";
import { commands } from "../commands.ts";
import { Command } from "../components/copy.tsx";
import { Field, FormDialog, TypeTheName } from "../components/dialog.tsx";
import { Icon } from "../components/icon.tsx";
import { Card, Details, FilterBar, Head, Present, Tabs } from "../components/page.tsx";
import { Past, useOutcome } from "../components/past.tsx";
import { notJson, Value } from "../components/schema-form.tsx";
import { DataTable, Hatched, Nothing, type Column } from "../components/table.tsx";
import { Text } from "../components/text.tsx";
import { filtered } from "../filter.ts";
import { count, visible } from "../format.ts";
import { may, useTable } from "../hooks.ts";
import { go, link, route } from "../router.ts";
import { blank, disagreements, hasLargeNumbers, laidOut, resolved, type Json, type Schema } from "../schema.ts";
import type { EntryRow, ObjectRow } from "../wire.ts";

/** What an object is called: its name, or its UUID. */
const called = (row: ObjectRow | undefined, key: string): string => row?.name ?? key;

const OBJECTS: Column<ObjectRow>[] = [
  { title: "Object", cell: (row) => <Text of={called(row, row.key)} longest={60} /> },
  { title: "Class", cell: (row) => <Text of={row.class_name ?? row.class ?? ""} longest={40} /> },
  { title: "Entries", cell: (row) => <Text of={row.deleted ? "deleted" : row.entries.join(", ")} longest={160} />, class: "grow" },
  { title: "UUID", cell: (row) => <Text of={row.key} longest={40} />, class: "mono wide" },
];

/** What the objects are that an object can be made of: classes. Applications are objects of rank 1, too. */
export const classesOf = (rows: readonly ObjectRow[]): ObjectRow[] =>
  rows.filter((row) => row.rank !== null && row.rank > 0 && !row.deleted && row.class_name !== "Application").sort((a, b) => called(a, a.key).localeCompare(called(b, b.key)));

function CreateObject({ close }: { close: () => void }) {
  const classes = classesOf(useTable("objects", true).list.value);
  const [name, chosen] = [useSignal(""), useSignal("")];
  const object = useSignal(crypto.randomUUID()).value;
  const body = { object, class: chosen.value, name: name.value.trim() };
  return (
    <FormDialog
      title="New object"
      verb="Create"
      close={close}
      action={{ name: "object.create", body }}
      command={commands.createObject(object, chosen.value || "CLASS", body.name || "NAME")}
      check={() => (name.value.trim() === "" ? { text: "The object needs a name.", field: "name" } : chosen.value === "" ? { text: "Choose what it is.", field: "class" } : null)}
      send={async () => {
        await act("object.create", body, `Create ${body.name}`);
        go(link(["config", object]));
      }}
    >
      {(wrong) => (
        <>
          <Field name="name" label="Name" hint="In its Info entry." wrong={wrong}>
            {(id, hint) => <input id={id} aria-describedby={hint} autofocus autocomplete="off" value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />}
          </Field>
          <Field name="class" label="Class" hint="An object of it is made." wrong={wrong}>
            {(id, hint) => (
              <select id={id} aria-describedby={hint} value={chosen.value} onChange={(event) => (chosen.value = event.currentTarget.value)}>
                <option value="">class…</option>
                {classes.map((row) => <option value={row.key} key={row.key}>{visible(called(row, row.key), 60)}</option>)}
              </select>
            )}
          </Field>
        </>
      )}
    </FormDialog>
  );
}

function Objects() {
  const table = useTable("objects", true);
  const creating = useSignal(false);
  const rows = filtered(table.list.value, route.value.query.q ?? "", "").sort((a, b) => called(a, a.key).localeCompare(called(b, b.key)));
  return (
    <>
      <Head title="Configuration" actions={may("object.create") && <button onClick={() => (creating.value = true)}><Icon name="plus" /> New object</button>}>
        <Present />
        <p class="note">The objects of ConfigDB. A filter such as <code>class_name:cluster</code> or <code>entries:EdgeDeployment</code> looks at one column.</p>
      </Head>
      <FilterBar />
      <Hatched of={table}>
        <DataTable label="Objects" rows={rows} columns={OBJECTS} href={(row) => link(["config", row.key])} empty={<Nothing of={table}>No object passes the filter.</Nothing>} />
      </Hatched>
      <details class="as-command"><summary>As command</summary><Command line={commands.listObjects()} /></details>
      {creating.value && <CreateObject close={() => (creating.value = false)} />}
    </>
  );
}

function Entries({ object }: { object: string }) {
  const [table, objects, applications] = [useTable(`entries:${object}`, true), useTable("objects", true), useTable("applications", true)];
  const rows = table.list.value;
  const row = objects.rows.value.get(object);
  const written = rows.filter((one) => one.etag !== null);
  const absent = applications.list.value.map((one) => one.key).filter((key) => !rows.some((one) => one.key === key)).sort();
  const columns: Column<EntryRow>[] = [
    { title: "Application", cell: (one) => <Text of={one.key} longest={60} /> },
    { title: "Revision", cell: (one) => (one.revision === null ? "computed" : count(one.revision)), class: "num" },
    { title: "Entry", cell: (one) => <Text of={one.json} longest={200} />, class: "grow mono" },
  ];
  return (
    <>
      <Head title={<Text of={called(row, object)} longest={60} />} above={[{ title: "Configuration", href: link(["config"]) }]}>
        <Present />
        <Details details={[["UUID", <code>{visible(object, 40)}</code>], ["Class", row?.class && <a href={link(["config", row.class])}><Text of={row.class_name ?? row.class} longest={60} /></a>], ["Entries", count(written.length)]]} />
      </Head>
      <Hatched of={table}>
        <DataTable label="Entries" rows={rows} columns={columns} href={(one) => link(["config", object, one.key])} empty={<Nothing of={table}>There is no such object.</Nothing>} />
      </Hatched>
      {may("entry.put") && rows.length > 0 && (
        <p class="adding">
          <label for="new-entry">New entry</label>
          <select id="new-entry" value="" onChange={(event) => event.currentTarget.value !== "" && go(link(["config", object, event.currentTarget.value]))}>
            <option value="">application…</option>
            {absent.map((key) => <option value={key} key={key}>{key}</option>)}
          </select>
        </p>
      )}
    </>
  );
}

/** The state of an entry that is being edited: what it was, and what is to become of it. */
interface Draft {
  /** ETag of the entry that the draft began with; null: there was none. */
  etag: string | null;
  before: string;
  text: string;
}

function Conflict({ draft, theirs, resolve }: { draft: Draft; theirs: EntryRow | undefined; resolve: (draft: Draft) => void }) {
  const other = theirs === undefined ? "" : laidOut(theirs.json);
  const lines = disagreements(draft.before, draft.text, other);
  const cell = (value: string | null, marked: boolean) => (value === null ? "–" : marked ? <mark><Text of={value} longest={300} /></mark> : <Text of={value} longest={300} />);
  return (
    <Card title="Another writer was faster">
      <p class="reason h-attention" role="alert">The entry {theirs === undefined ? "was deleted" : "was changed"} since you began. Nothing of yours is written yet.</p>
      <div class="table-scroll" tabIndex={0}>
        <table aria-label="What differs">
          <thead><tr><th scope="col">Value</th><th scope="col">Before</th><th scope="col">Yours</th><th scope="col">Theirs</th></tr></thead>
          <tbody>
            {lines.map((line) => (
              <tr class={line.conflict ? "differing" : ""} key={line.path}>
                <td class="mono"><Text of={line.path} /></td>
                <td class="mono">{cell(line.before, false)}</td>
                <td class="mono">{cell(line.mine, line.mine !== line.before)}</td>
                <td class="mono">{cell(line.theirs, line.theirs !== line.before)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="choices">
        <button type="button" onClick={() => resolve({ etag: theirs?.etag ?? null, before: other, text: other })}>Take theirs</button>
        <button type="button" onClick={() => resolve({ etag: theirs?.etag ?? null, before: other, text: draft.text })}>Keep mine, over theirs</button>
      </p>
    </Card>
  );
}

/** The document of a draft; undefined while it is not JSON. */
function documentOf(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

function Editor({ object, application }: { object: string; application: string }) {
  const [table, objects, applications] = [useTable(`entries:${object}`, true), useTable("objects", true), useTable("applications", true)];
  const live = table.rows.value.get(application);
  const schema = applications.rows.value.get(application)?.schema ?? {};
  const draft = useSignal<Draft | null>(null);
  const [sent, wrong, deleting, form] = [useSignal<string | null>(null), useSignal<string | null>(null), useSignal(false), useSignal(0)];
  const outcome = useOutcome(sent.value);
  const computed = live !== undefined && live.etag === null;
  const canWrite = may("entry.put") && !computed;
  const current = table.state.value === "current" && applications.state.value === "current";
  const liveText = live === undefined ? "" : laidOut(live.json);
  const known = draft.value;
  const dirty = known !== null && known.text !== known.before;
  const changed = known !== null && known.etag !== (live?.etag ?? null);
  useEffect(() => {
    if (!current) return;
    const ours = outcome?.state === "done" && changed;
    if (known === null) draft.value = { etag: live?.etag ?? null, before: liveText, text: live === undefined ? JSON.stringify(blank(schema, schema), null, 2) : liveText };
    else if (changed && (!dirty || ours)) draft.value = { etag: live?.etag ?? null, before: liveText, text: liveText };
    if (ours) sent.value = null;
  }, [current, changed, dirty, outcome?.state, live?.etag]);
  const name = called(objects.rows.value.get(object), object);
  const above = [{ title: "Configuration", href: link(["config"]) }, { title: visible(name, 60), href: link(["config", object]) }];
  const heading = <><Text of={application} longest={60} /></>;
  if (!current || known === null) return <><Head title={heading} above={above} /><div class="empty"><Nothing of={table}>Loading…</Nothing></div></>;
  const value = documentOf(known.text);
  const edit = (text: string) => (draft.value = { ...known, text });
  // What is typed into a field and is not a value yet belongs to the form that it was typed into.
  const replace = (next: Draft) => ((draft.value = next), (form.value += 1));
  const undo = () => (known.etag === null ? go(link(["config", object])) : replace({ ...known, text: known.before }));
  const formed = value !== undefined && !hasLargeNumbers(known.text) && Object.keys(schema).length > 0;
  const tab = formed ? (route.value.query.tab ?? "form") : "text";
  const waits = outcome?.state === "sent";
  const save = async () => {
    wrong.value = null;
    if (value === undefined) return void (wrong.value = "This is not JSON.");
    if (notJson.value.size > 0) return void (wrong.value = "A field is not JSON yet; see above.");
    try {
      const body = `{"object":${JSON.stringify(object)},"application":${JSON.stringify(application)},"etag":${JSON.stringify(known.etag)},"value":${known.text}}`;
      sent.value = (await actText("entry.put", body, `Write ${application} of ${name}`)).id;
    } catch (error) {
      wrong.value = error instanceof ActionError ? error.message : String(error);
    }
  };
  const refusal = wrong.value ?? (outcome?.state === "refused" || outcome?.state === "failed" ? outcome.text : null);
  return (
    <>
      <Head title={heading} above={above} actions={canWrite && known.etag !== null && <button class="danger-quiet" onClick={() => (deleting.value = true)}><Icon name="trash" /> Delete</button>}>
        <Present />
        <Details details={[["Object", <a href={link(["config", object])}><Text of={name} longest={60} /></a>], ["Revision", live?.revision ?? (computed ? "computed" : "not written yet")]]} />
        {typeof schema.description === "string" && <p class="note"><Text of={schema.description} longest={400} /></p>}
      </Head>
      {changed && dirty && !["sent", "done"].includes(outcome?.state ?? "") && <Conflict draft={known} theirs={live} resolve={replace} />}
      {formed && <Tabs chosen={tab} tabs={[{ id: "form", title: "Form" }, { id: "text", title: "Text" }]} />}
      <form class="card entry" onSubmit={(event) => (event.preventDefault(), void save())} noValidate>
        {tab === "form" && value !== undefined ? (
          <Value key={form.value} path="" name="" schema={resolved(schema, schema as Schema)} root={schema as Schema} value={value} disabled={!canWrite} onChange={(next) => edit(JSON.stringify(next, null, 2))} />
        ) : (
          <textarea aria-label={`Entry ${visible(application, 60)}`} class="mono" rows={Math.min(30, known.text.split("\n").length + 1)} spellcheck={false} readOnly={!canWrite} value={known.text} onInput={(event) => edit(event.currentTarget.value)} />
        )}
        {refusal !== null && <p class="wrong" role="alert">{visible(refusal, 600)}</p>}
        {canWrite ? (
          <p class="choices">
            <button type="submit" class="primary" disabled={!dirty && known.etag !== null || changed && dirty || waits}>Write</button>
            <button type="button" disabled={!dirty && notJson.value.size === 0} onClick={undo}>{known.etag === null ? "Discard" : "Undo"}</button>
            <span class="note" role="status">{waits ? "On its way…" : dirty ? "Not written yet" : ""}</span>
          </p>
        ) : (
          <p class="note">{computed ? "ConfigDB computes this; no user writes it." : "An administrator of all clusters writes entries."}</p>
        )}
      </form>
      {!computed && <Past object={object} application={application} text={liveText} restore={canWrite ? (text) => replace({ ...known, text }) : null} />}
      <details class="as-command"><summary>As command</summary><Command line={commands.getEntry(object, application)} /><Command line={commands.putEntry(object, application, known.etag)} /></details>
      {deleting.value && (
        <TypeTheName title={`Delete ${application} of ${name}`} verb="Delete the entry" name={application} consequence="What the fleet does because of this entry ends. ConfigDB keeps its history." action={{ name: "entry.delete", body: { object, application, etag: known.etag } }} command={commands.deleteEntry(object, application)}
          send={async () => { await act("entry.delete", { object, application, etag: known.etag }, `Delete ${application} of ${name}`); go(link(["config", object])); }} close={() => (deleting.value = false)} />
      )}
    </>
  );
}

export function ConfigView() {
  const [object, application] = route.value.args;
  if (object === undefined) return <Objects />;
  return application === undefined ? <Entries object={object} key={object} /> : <Editor object={object} application={application} key={`${object}/${application}`} />;
}
