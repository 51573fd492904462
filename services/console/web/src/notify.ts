// A sound and a notification of the desktop when an alert is raised, for those who have asked for it in this browser.
import { effect, signal } from "@preact/signals";
import { newAlerts } from "./alerts.ts";
import { visible } from "./format.ts";
import { subscribe, tableOf } from "./store.ts";
import type { AlertRow } from "./wire.ts";

const KEY = "sparkfleet-notify";
const TONE_HZ = 880;
const TONE_S = 0.4;

function stored(): boolean {
  try {
    return localStorage.getItem(KEY) === "1";
  } catch {
    return false;
  }
}

/** Whether this browser is to say that an alert was raised. */
export const isNotified = signal(stored());
/** Alerts that this page has announced. */
export const notified = signal(0);

/** Turns it on or off. It is turned on by a click, which is what browsers want before they play a sound or ask for the right to notify. */
export function notify(is: boolean): void {
  isNotified.value = is;
  try {
    localStorage.setItem(KEY, is ? "1" : "0");
  } catch {
    // A browser without storage forgets the choice.
  }
  if (!is) return;
  beep();
  if (typeof Notification !== "undefined" && Notification.permission === "default") void Notification.requestPermission();
}

function beep(): void {
  try {
    const audio = new AudioContext();
    const [tone, volume] = [audio.createOscillator(), audio.createGain()];
    tone.frequency.value = TONE_HZ;
    volume.gain.value = 0.2;
    tone.connect(volume).connect(audio.destination);
    tone.onended = () => void audio.close();
    tone.start();
    tone.stop(audio.currentTime + TONE_S);
  } catch {
    // A browser without sound shows the notification.
  }
}

function say(rows: readonly AlertRow[]): void {
  beep();
  notified.value += rows.length;
  if (typeof Notification === "undefined" || Notification.permission !== "granted") return;
  for (const row of rows.slice(0, 3)) new Notification(`${row.alert} ${[row.cluster, row.node].filter((part) => part).map((part) => visible(part, 60)).join("/")}`, { body: visible(row.reason, 200), tag: row.key });
}

/** Follows the alerts of now, whatever page is shown, while this is wanted. */
export function startNotify(): void {
  effect(() => (isNotified.value ? subscribe("alerts", true) : undefined));
  let known: ReadonlySet<string> | null = null;
  effect(() => {
    const table = tableOf("alerts", true);
    const [rows, state] = [table.list.value, table.state.value];
    if (!isNotified.value) known = null;
    if (!isNotified.value || state !== "current") return;
    const fresh = newAlerts(known, rows);
    known = new Set(rows.map((row) => row.key));
    if (fresh.length > 0) say(fresh);
  });
}
