// Lists of hosts to enrol, as `sparkfleet host enrol` takes them.
import { shellWord } from "./commands.ts";
import type { HostRow } from "./wire.ts";

const EK = /^[0-9a-f]{64}$/;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const HOST = /^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$/;
const ROLES = ["", "worker", "control-plane"];

/** A list that was read: its lines as the command takes them, and what is wrong, by line. */
export interface List {
  lines: string[];
  wrong: string[];
}

/** Reads `EK[,NAME[,DISK[,ROLE[,IAK]]]]`, one host a line, # begins a comment. `known`: endorsement keys that are enrolled or have joined. */
export function readList(text: string, known: ReadonlySet<string> = new Set()): List {
  const list: List = { lines: [], wrong: [] };
  const seen = new Set<string>();
  text.split(/\r?\n/).forEach((line, index) => {
    const content = line.split("#")[0]!.trim();
    if (content === "") return;
    const fields = content.split(",").map((field) => field.trim());
    const [ek = "", name = "", disk = "", role = "", iak = ""] = fields.map((field, at) => (at === 1 ? field : field.toLowerCase()));
    const problem =
      fields.length > 5 ? "it has more than five fields"
      : !EK.test(ek) ? "the endorsement key must be 64 hexadecimal digits"
      : seen.has(ek) ? "this endorsement key is in an earlier line"
      : known.has(ek) ? "a host with this endorsement key is a member already"
      : name !== "" && !HOST.test(name) ? "the name must be made of a-z, 0-9, - and ."
      : disk !== "" && !UUID.test(disk) ? "the state disk must be a UUID"
      : !ROLES.includes(role) ? "the role must be worker or control-plane"
      : iak !== "" && !EK.test(iak) ? "the IAK must be 64 hexadecimal digits"
      : null;
    if (problem !== null) return void list.wrong.push(`line ${index + 1}: ${problem}`);
    seen.add(ek);
    list.lines.push([ek, name, disk, role, iak].join(",").replace(/,+$/, ""));
  });
  return list;
}

/** The line of a host that waits. */
export const lineOf = (row: HostRow): string => [row.ek ?? "", row.name, row.disk ?? "", /control/.test(row.role) ? "control-plane" : ""].join(",").replace(/,+$/, "");

/** The command that enrols all of them in one policy; null if there is none that can be pasted safely. */
export function enrolCommand(cluster: string, lines: readonly string[]): string | null {
  const words = lines.map((line) => shellWord(line));
  const name = cluster.startsWith("-") ? null : shellWord(cluster);
  if (name === null || lines.length === 0 || words.includes(null)) return null;
  return `printf '%s\\n' ${words.join(" ")} | sparkfleet host enrol ${name} -`;
}
