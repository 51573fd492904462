// Who may do what: the tokens of the organisation, and the session of this browser.
import { useSignal } from "@preact/signals";
import { act } from "../actions.ts";
import { commands } from "../commands.ts";
import { Command, CopyButton } from "../components/copy.tsx";
import { Field, FormDialog, TypeTheName } from "../components/dialog.tsx";
import { Icon } from "../components/icon.tsx";
import { Card, Details, Head, Present } from "../components/page.tsx";
import { DataTable, Hatched, Nothing, type Column } from "../components/table.tsx";
import { Text } from "../components/text.tsx";
import { visible } from "../format.ts";
import { may, useTable } from "../hooks.ts";
import { link } from "../router.ts";
import { session } from "../store.ts";
import { nameOf } from "../tokens.ts";
import type { ObjectRow } from "../wire.ts";

const DAY_S = 86_400;
const SCOPES = ["viewer", "operator", "administrator"];
const LIVES = [1, 7, 30, 90, 365];

/** A token that was made here, until it is put away: no other place has its text. */
interface Made {
  name: string;
  token: string;
}

function CreateToken({ done, close }: { done: (made: Made) => void; close: () => void }) {
  const clusters = useTable("clusters", true).list.value;
  const [name, scope, cluster, days] = [useSignal(""), useSignal("viewer"), useSignal(""), useSignal(90)];
  const key = clusters.find((row) => row.name === cluster.value)?.key;
  const body = { name: name.value, scope: scope.value, expires_s: days.value * DAY_S, ...(key === undefined ? {} : { clusters: [key] }) };
  const send = async () => {
    const { token } = await act("token.create", body, `Create token ${name.value}`);
    if (token !== undefined) done({ name: name.value, token });
  };
  return (
    <FormDialog
      title="New token"
      verb="Create"
      close={close}
      action={{ name: "token.create", body }}
      command={commands.createToken(name.value || "NAME", scope.value, cluster.value, days.value)}
      check={() => (/^[A-Za-z0-9._-]+$/.test(name.value) ? null : { text: "The name must be made of letters, digits, ., _ and -.", field: "name" })}
      send={send}
    >
      {(wrong) => (
        <>
          <Field name="name" label="Name" hint="Of the user or the program that holds it." wrong={wrong}>
            {(id, hint) => <input id={id} aria-describedby={hint} autofocus autocomplete="off" spellcheck={false} value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />}
          </Field>
          <Field name="scope" label="Scope" hint="What its holder may do." wrong={wrong}>
            {(id, hint) => <select id={id} aria-describedby={hint} value={scope.value} onChange={(event) => (scope.value = event.currentTarget.value)}>{SCOPES.map((one) => <option value={one} key={one}>{one}</option>)}</select>}
          </Field>
          <Field name="clusters" label="For" hint="The command line makes tokens for several clusters." wrong={wrong}>
            {(id, hint) => (
              <select id={id} aria-describedby={hint} value={cluster.value} onChange={(event) => (cluster.value = event.currentTarget.value)}>
                <option value="">all clusters</option>
                {clusters.map((row) => <option value={row.name} key={row.key}>{visible(row.name, 60)}</option>)}
              </select>
            )}
          </Field>
          <Field name="expires_s" label="Valid for" wrong={wrong}>
            {(id) => <select id={id} value={days.value} onChange={(event) => (days.value = Number(event.currentTarget.value))}>{LIVES.map((one) => <option value={one} key={one}>{one} {one === 1 ? "day" : "days"}</option>)}</select>}
          </Field>
        </>
      )}
    </FormDialog>
  );
}

function NewToken() {
  const [asking, made] = [useSignal(false), useSignal<Made | null>(null)];
  return (
    <Card title="New token" actions={may("token.create") && <button onClick={() => (asking.value = true)}><Icon name="plus" /> New token</button>}>
      {made.value === null ? (
        <>
          <p>A token is shown once. ConfigDB keeps its hash.</p>
          <Command line={commands.createToken("NAME", "operator")} />
        </>
      ) : (
        <div data-token>
          <p>The token <strong><Text of={made.value.name} longest={60} /></strong>. It is shown this once, and counts once the action is done.</p>
          <p><code>{made.value.token}</code> <CopyButton text={made.value.token} /> <button type="button" onClick={() => (made.value = null)}>Put it away</button></p>
        </div>
      )}
      <p><a class="button" href={link(["audit"])}>Record of actions</a></p>
      {asking.value && <CreateToken done={(token) => (made.value = token)} close={() => (asking.value = false)} />}
    </Card>
  );
}

export function AccessView() {
  const objects = useTable("objects", true);
  const revoked = useSignal<string | null>(null);
  const who = session.value;
  const tokens = objects.list.value.filter((row) => !row.deleted && row.entries.includes("ApiToken")).sort((a, b) => nameOf(a).localeCompare(nameOf(b)));
  const columns: Column<ObjectRow>[] = [
    { title: "Token", cell: (row) => <Text of={nameOf(row)} longest={60} /> },
    { title: "As command", cell: (row) => <Command line={commands.revokeToken(nameOf(row))} />, class: "grow" },
  ];
  if (may("token.revoke")) {
    columns.push({ title: "", cell: (row) => <button class="quiet" aria-label={`Revoke ${visible(nameOf(row), 60)}`} onClick={() => (revoked.value = nameOf(row))}>Revoke</button>, class: "fit" });
  }
  return (
    <>
      <Head title="Access" />
      <Present />
      <div class="columns">
        <Card title="You">
          <Details
            details={[
              ["Signed in as", who && (who.user === null ? "no user" : <Text of={who.user} longest={80} />)],
              ["Role", who?.role],
              ["Actions", who && (who.read_only ?? (who.actions.length > 0 ? who.actions.join(", ") : "none"))],
              ["Reading", who && (who.private ? "only for who has signed in" : "open to all who reach the console")],
              ["Identity provider", who && (who.single_sign_on ? "users sign in there" : "none is configured")],
            ]}
          />
        </Card>
        <NewToken />
      </div>
      <Card title="Tokens">
        <Hatched of={objects}>
          <DataTable label="Tokens" rows={tokens} columns={columns} href={(row) => link(["config", row.key, "ApiToken"])} empty={<Nothing of={objects}>There is no token.</Nothing>} />
        </Hatched>
      </Card>
      {revoked.value !== null && (
        <TypeTheName
          title={`Revoke ${visible(revoked.value, 60)}`}
          verb="Revoke the token"
          name={revoked.value}
          consequence="No request is authorised by it any more, and its sessions end."
          action={{ name: "token.revoke", body: { name: revoked.value } }}
          command={commands.revokeToken(revoked.value)}
          send={() => act("token.revoke", { name: revoked.value }, `Revoke token ${revoked.value}`)}
          close={() => (revoked.value = null)}
        />
      )}
    </>
  );
}
