// The types of `wire.ts`, read from its text, and what a value has that they do not say: the page is written for these types, and the server is not.

/** The end of what begins with a bracket at `start`. */
function closing(text, start) {
  const pairs = { "{": "}", "[": "]", "<": ">", "(": ")" };
  for (let [depth, at] = [0, start]; at < text.length; at += 1) {
    if (pairs[text[at]] !== undefined) depth += 1;
    else if (Object.values(pairs).includes(text[at])) depth -= 1;
    if (depth === 0) return at;
  }
  throw new Error(`no end of ${text.slice(start, start + 40)}`);
}

/** Parts of a text at a separator that is in no brackets and no quotes. */
function split(text, separator) {
  const [parts, open] = [[""], { "{": 1, "[": 1, "<": 1, "(": 1, "}": -1, "]": -1, ">": -1, ")": -1 }];
  for (let [depth, quoted, at] = [0, false, 0]; at < text.length; at += 1) {
    if (text[at] === '"') quoted = !quoted;
    if (!quoted) depth += open[text[at]] ?? 0;
    if (text[at] === separator && depth === 0 && !quoted) parts.push("");
    else parts[parts.length - 1] += text[at];
  }
  return parts.map((part) => part.trim()).filter((part) => part !== "");
}

/** The fields between the braces of an interface: name, type, whether it may be missing. */
const fieldsOf = (body) => split(body, ";").map((line) => {
  const [, name, optional, type] = /^(?:readonly )?(\w+)(\??):([^]*)$/.exec(line) ?? assertField(line);
  return { name, type: type.trim(), isOptional: optional === "?" };
});

function assertField(line) {
  throw new Error(`not a field: ${line}`);
}

/** Interfaces and aliases of a source, by name. */
export function typesOf(source) {
  const text = source.replace(/\/\*[^]*?\*\//g, "").replace(/\/\/.*$/gm, "");
  const types = new Map();
  for (const found of text.matchAll(/export interface (\w+)(?:<[^>]*>)?(?: extends ([\w, ]+))? \{/g)) {
    const start = found.index + found[0].length - 1;
    types.set(found[1], { parents: found[2]?.split(",").map((one) => one.trim()) ?? [], fields: fieldsOf(text.slice(start + 1, closing(text, start))) });
  }
  for (const [, name, type] of text.matchAll(/export type (\w+) = ([^;]+);/g)) types.set(name, { alias: type });
  return types;
}

/** What is wrong with a value, as sentences with the place; none where it is of the type. */
export function wrongWith(value, type, types, place = "") {
  const union = split(type, "|");
  if (union.length > 1) {
    const found = union.map((one) => wrongWith(value, one, types, place));
    return found.some((one) => one.length === 0) ? [] : [found.sort((a, b) => b.join().length - a.join().length)[0][0]];
  }
  const wrong = [`${place}: ${JSON.stringify(value)?.slice(0, 80)} is not of type ${type}`];
  const of = (is) => (is ? [] : wrong);
  if (type === "unknown") return [];
  if (type === "null") return of(value === null);
  if (["string", "number", "boolean"].includes(type)) return of(typeof value === type);
  if (type.startsWith('"')) return of(value === JSON.parse(type));
  if (type.endsWith("[]")) return Array.isArray(value) ? value.flatMap((one, index) => wrongWith(one, type.slice(0, -2), types, `${place}[${index}]`)) : wrong;
  if (type.startsWith("[")) {
    const items = split(type.slice(1, -1), ",");
    return Array.isArray(value) && value.length === items.length ? items.flatMap((one, index) => wrongWith(value[index], one, types, `${place}[${index}]`)) : wrong;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return types.get(type)?.alias !== undefined ? wrongWith(value, types.get(type).alias, types, place) : wrong;
  if (type.startsWith("Record<")) return Object.entries(value).flatMap(([name, one]) => wrongWith(one, split(type.slice(7, -1), ",")[1], types, `${place}.${name}`));
  if (type.startsWith("{")) return wrongFields(value, fieldsOf(type.slice(1, -1)), types, place);
  const known = types.get(type);
  if (known === undefined) throw new Error(`there is no type ${type}`);
  if (known.alias !== undefined) return wrongWith(value, known.alias, types, place);
  return [...known.parents.flatMap((parent) => wrongWith(value, parent, types, place)), ...wrongFields(value, known.fields, types, place)];
}

const wrongFields = (value, fields, types, place) => fields.flatMap(({ name, type, isOptional }) => {
  if (value[name] === undefined) return isOptional ? [] : [`${place}.${name} is missing`];
  return wrongWith(value[name], type, types, `${place}.${name}`);
});
