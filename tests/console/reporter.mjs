// Reports scenarios as `cargo test` reports tests, so that a count of those counts these, too.
import { inspect } from "node:util";

/** The error that a scenario threw; the runner wraps it. */
const cause = ({ details: { error } }) => error?.cause ?? error;

export default async function* report(events) {
  const counts = { passed: 0, failed: 0, ignored: 0 };
  const failures = [];
  const started = Date.now();
  for await (const { type, data } of events) {
    if (type === "test:stdout" || type === "test:stderr") yield data.message;
    if (type !== "test:pass" && type !== "test:fail") continue;
    if (type === "test:fail") failures.push(`---- ${data.name} ----\n${inspect(cause(data))}\n`);
    // A suite or a file fails with its scenarios; on its own account only if what is around them fails.
    const isScenario = data.details.type !== "suite" && data.nesting > 0;
    if (!isScenario) continue;
    if (type === "test:fail") {
      counts.failed += 1;
      yield `test ${data.name} ... FAILED\n`;
    } else if (data.skip !== undefined) {
      counts.ignored += 1;
      yield `test ${data.name} ... ignored, ${data.skip}\n`;
    } else {
      counts.passed += 1;
      yield `test ${data.name} ... ok\n`;
    }
  }
  for (const failure of failures) yield `\n${failure}`;
  const { passed, failed, ignored } = counts;
  yield `\ntest result: ${failures.length === 0 ? "ok" : "FAILED"}. ${passed} passed; ${failed} failed; ${ignored} ignored; finished in ${Math.round((Date.now() - started) / 1000)}s\n`;
}
