// Who may do what: the tokens of the organisation, and the session of this browser.
import { commands } from "../commands.ts";
import { Command } from "../components/copy.tsx";
import { Card, Facts, Head, Present } from "../components/page.tsx";
import { DataTable, Hatched, Nothing, type Column } from "../components/table.tsx";
import { Text } from "../components/text.tsx";
import { useTable } from "../hooks.ts";
import { link } from "../router.ts";
import { session } from "../store.ts";
import type { ObjectRow } from "../wire.ts";

const TOKENS: Column<ObjectRow>[] = [
  { title: "Token", cell: (row) => <Text of={row.name ?? row.key} longest={60} /> },
  { title: "Revoke", cell: (row) => <Command line={commands.revokeToken(row.name ?? row.key)} />, class: "grow" },
];

export function AccessView() {
  const objects = useTable("objects", true);
  const who = session.value;
  const tokens = objects.list.value.filter((row) => !row.deleted && row.entries.includes("ApiToken")).sort((a, b) => (a.name ?? a.key).localeCompare(b.name ?? b.key));
  return (
    <>
      <Head title="Access" />
      <Present />
      <div class="columns">
        <Card title="You">
          <Facts
            facts={[
              ["Signed in as", who && (who.user === null ? "no user" : <Text of={who.user} longest={80} />)],
              ["Role", who?.role],
              ["Actions", who && (who.read_only ?? (who.actions.length > 0 ? who.actions.join(", ") : "none"))],
              ["Reading", who && (who.private ? "only for who has signed in" : "open to all who reach the console")],
              ["Identity provider", who && (who.single_sign_on ? "users sign in there" : "none is configured")],
            ]}
          />
        </Card>
        <Card title="New token">
          <p>A token is shown once. ConfigDB keeps its hash.</p>
          <Command line={commands.createToken()} />
          <p><a class="button" href={link(["audit"])}>Record of actions</a></p>
        </Card>
      </div>
      <Card title="Tokens">
        <Hatched of={objects}>
          <DataTable label="Tokens" rows={tokens} columns={TOKENS} href={(row) => link(["config", row.key, "ApiToken"])} empty={<Nothing of={objects}>There is no token.</Nothing>} />
        </Hatched>
      </Card>
    </>
  );
}
