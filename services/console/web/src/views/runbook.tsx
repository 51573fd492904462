// What to do about an alert, for each kind of them.
import { Head } from "../components/page.tsx";
import { Text } from "../components/text.tsx";
import { link, route } from "../router.ts";
import { partsOf, runbooks } from "../runbook.ts";

function Sentence({ of }: { of: string }) {
  return <>{partsOf(of).map((part, index) => (part.isCode ? <code key={index}>{part.text}</code> : part.text))}</>;
}

export function RunbookView() {
  const chosen = route.value.args[0];
  const above = [{ title: "Alerts", href: link(["alerts"]) }];
  const shown = chosen === undefined ? runbooks : runbooks.filter((one) => one.alert === chosen);
  return (
    <>
      <Head title={chosen === undefined ? "What to do about an alert" : <>What to do about <Text of={chosen} longest={60} /></>} above={above} />
      {shown.length === 0 && <div class="empty">There is no alert of that name. <a href={link(["runbook"])}>All alerts</a></div>}
      {shown.map((one) => (
        <section class="card" data-runbook={one.alert} key={one.alert}>
          <header><h2>{one.alert}</h2></header>
          <p><Sentence of={one.means} /></p>
          <p><strong>What to do:</strong> <Sentence of={one.todo} /></p>
        </section>
      ))}
      {chosen !== undefined && <p><a href={link(["runbook"])}>All alerts</a></p>}
    </>
  );
}
