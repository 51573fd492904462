// What an alert means and what to do about it, as the documentation has it: `docs/alerts.md` is a part of the bundle.
import text from "../../../../docs/alerts.md";

export interface Runbook {
  alert: string;
  means: string;
  todo: string;
}

/** The rows of the table of a document: `| `NAME` | meaning | what to do |`. */
export function runbooksOf(document: string): Runbook[] {
  return document.split("\n").flatMap((line) => {
    const found = /^\| `(\w+)` \| (.+) \| (.+) \|$/.exec(line);
    return found === null ? [] : [{ alert: found[1]!, means: found[2]!, todo: found[3]! }];
  });
}

export const runbooks = runbooksOf(text);

/** A sentence in parts: those between backticks are code. */
export const partsOf = (sentence: string): { text: string; isCode: boolean }[] => sentence.split("`").map((part, index) => ({ text: part, isCode: index % 2 === 1 })).filter((part) => part.text !== "");
