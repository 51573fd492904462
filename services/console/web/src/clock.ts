// The present, by the clock of the server, as a signal that ticks once a second while the page is seen.
import { computed, signal } from "@preact/signals";
import { at } from "./router.ts";
import { clockOffset } from "./store.ts";

const ticked = signal(Date.now());
setInterval(() => {
  if (document.visibilityState === "visible") ticked.value = Date.now();
}, 1000);

export const now = computed(() => ticked.value + clockOffset.value);
/** The time that the page shows: the past that is looked at, or now. */
export const shownTime = computed(() => at.value ?? now.value);
