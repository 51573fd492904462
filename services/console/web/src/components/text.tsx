// The smallest parts: text from the fleet, ages, times.
import { useComputed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { age, moment, stamp, visible } from "../format.ts";
import { now, shownTime } from "../clock.ts";

/** Text that came from the fleet: bounded, without invisible characters, its direction kept to itself. */
export function Text({ of, longest }: { of: unknown; longest?: number }) {
  return <bdi>{visible(of, longest)}</bdi>;
}

/** How long ago `since` was, at the time that the page shows; `live`: at present. */
export function Age({ since, prefix = "", live = false }: { since: number | null | undefined; prefix?: string; live?: boolean }) {
  const from = useSignal(since ?? null);
  useEffect(() => void (from.value = since ?? null), [since]);
  const text = useComputed(() => {
    const lasted = from.value === null ? "" : age((live ? now : shownTime).value - from.value);
    return lasted === "" || lasted === "now" ? lasted : prefix + lasted;
  });
  if (since === null || since === undefined) return <span class="age" />;
  return (
    <time class="age" dateTime={new Date(since).toISOString()} title={`since ${stamp(since)}`}>
      {text}
    </time>
  );
}

/** A time of day, with its date when it was another day. */
export function When({ time }: { time: number | null | undefined }) {
  if (time === null || time === undefined) return <span class="age">–</span>;
  return (
    <time class="when" dateTime={new Date(time).toISOString()} title={stamp(time)}>
      {moment(time, now.peek())}
    </time>
  );
}
