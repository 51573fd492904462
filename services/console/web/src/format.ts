// Pure functions from values to text. Everything that comes from the fleet passes `visible` before it is shown.

/** Characters that have no shape of their own, or that change the direction of others. */
const INVISIBLE =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|\udb40[\udc00-\udfff]/g;

/** Length that a text from the fleet is cut to unless the caller says otherwise. */
const LONGEST = 240;

/** True if `text` has characters that would not be seen, or would reorder others. */
export function hasInvisible(text: string): boolean {
  return text.search(INVISIBLE) >= 0;
}

/** `text` with control, bidirectional and zero-width characters written as code points, at most `longest` characters of it. */
export function visible(text: unknown, longest = LONGEST): string {
  const whole = typeof text === "string" ? text : String(text ?? "");
  const kept = whole.length > longest ? whole.slice(0, longest) : whole;
  const shown = kept.replace(INVISIBLE, (found) => `⟨${found.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}⟩`);
  return whole.length > longest ? `${shown}… (${count(whole.length - longest)} more)` : shown;
}

/** A number with thin spaces between thousands. */
export function count(number: number): string {
  return String(Math.trunc(number)).replace(/\B(?=(\d{3})+(?!\d))/g, "\u2009");
}

/** `1 host`, `2 hosts`. */
export function plural(number: number, noun: string): string {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

function two(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large} ${largeUnit}` : `${large} ${largeUnit} ${small} ${smallUnit}`;
}

/** How long something has lasted, for people: at most two units. */
export function age(ms: number): string {
  if (!(ms >= SECOND)) return "now";
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min`;
  if (ms < DAY) return two(Math.floor(ms / HOUR), "h", Math.floor((ms % HOUR) / MINUTE), "min");
  return two(Math.floor(ms / DAY), "d", Math.floor((ms % DAY) / HOUR), "h");
}

/** How long something took, with milliseconds where they matter. */
export function duration(ms: number): string {
  if (ms < 0) return "0 ms";
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < 10 * SECOND) return `${(ms / SECOND).toFixed(1)} s`;
  if (ms < MINUTE) return `${Math.round(ms / SECOND)} s`;
  if (ms < HOUR) return two(Math.floor(ms / MINUTE), "min", Math.floor((ms % MINUTE) / SECOND), "s");
  return age(ms);
}

/** How long something took, to the millisecond. */
export function milliseconds(ms: number): string {
  return `${count(ms)} ms`;
}

const pad = (number: number): string => String(number).padStart(2, "0");

/** Time of day in the reader's time zone. */
export function clock(ms: number): string {
  const date = new Date(ms);
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

/** Date and time in the reader's time zone. */
export function stamp(ms: number): string {
  const date = new Date(ms);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${clock(ms)}`;
}

/** Time of day, with the date if it is another day than `now`. */
export function moment(ms: number, now: number): string {
  return new Date(ms).toDateString() === new Date(now).toDateString() ? clock(ms) : stamp(ms);
}

/** A fingerprint in groups of four digits, to be compared by eye. */
export function inFours(hex: string): string {
  return hex.replace(/(.{4})(?=.)/g, "$1 ");
}

/** A value of a metric or of a configuration on one line. */
export function valueText(value: unknown, longest = LONGEST): string {
  if (value === null || value === undefined) return "null";
  if (typeof value === "number") return numberText(value);
  if (typeof value === "object") return visible(JSON.stringify(value), longest);
  return visible(value, longest);
}

function numberText(value: number): string {
  if (Number.isInteger(value)) return String(value);
  const magnitude = Math.abs(value);
  return magnitude >= 1e6 || magnitude < 1e-3 ? value.toPrecision(5) : String(Number(value.toPrecision(6)));
}

/** A part of a text, and whether it differs from what was expected. */
export interface Piece {
  text: string;
  differs: boolean;
}

/** `found` in pieces, those marked that are not equal to the digits at the same place of `expected`. */
export function differingDigits(found: string, expected: string): Piece[] {
  const pieces: Piece[] = [];
  for (let index = 0; index < found.length; index++) {
    const differs = found[index] !== expected[index];
    const last = pieces.at(-1);
    if (last && last.differs === differs) last.text += found[index];
    else pieces.push({ text: found[index]!, differs });
  }
  return pieces;
}

/** A line of the comparison between what is wanted and what is reported. */
export interface Comparison {
  path: string;
  wanted: string | null;
  reported: string | null;
  differs: boolean;
}

function leaves(value: unknown, path: string, into: Map<string, string>): void {
  if (value !== null && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length > 0) {
    for (const [name, inner] of Object.entries(value)) leaves(inner, path === "" ? name : `${path}.${name}`, into);
  } else {
    into.set(path, typeof value === "string" ? value : JSON.stringify(value));
  }
}

/** Every leaf of both documents by its path, in order of the path. */
export function compare(wanted: object | null, reported: object | null): Comparison[] {
  const [left, right] = [new Map<string, string>(), new Map<string, string>()];
  if (wanted) leaves(wanted, "", left);
  if (reported) leaves(reported, "", right);
  const paths = [...new Set([...left.keys(), ...right.keys()])].sort();
  return paths.map((path) => {
    const [a, b] = [left.get(path) ?? null, right.get(path) ?? null];
    return { path, wanted: a, reported: b, differs: a !== null && b !== null && a !== b };
  });
}
