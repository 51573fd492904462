// JSON Schema as far as forms need it. What a form cannot show is edited as text; the server judges either.

export type Schema = Readonly<Record<string, unknown>>;
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** How a value is edited. `choice` has several schemas, of which one holds; `any` is edited as text. */
export type Kind = "object" | "array" | "enum" | "string" | "number" | "boolean" | "choice" | "any";

const isSchema = (value: unknown): value is Schema => value !== null && typeof value === "object" && !Array.isArray(value);

/** Follows local references, at most as many as a schema can sensibly chain. */
export function resolved(schema: unknown, root: Schema): Schema {
  let found = isSchema(schema) ? schema : {};
  for (let depth = 0; depth < 8 && typeof found.$ref === "string"; depth++) {
    let target: unknown = root;
    for (const part of found.$ref.replace(/^#\/?/, "").split("/").filter((one) => one !== "")) {
      target = isSchema(target) ? target[part.replaceAll("~1", "/").replaceAll("~0", "~")] : undefined;
    }
    const { $ref: _reference, ...beside } = found;
    found = { ...(isSchema(target) ? target : {}), ...beside };
  }
  return found;
}

/** The schemas of which one holds, if there are several. */
export function choices(schema: Schema): readonly unknown[] {
  const found = schema.oneOf ?? schema.anyOf;
  return Array.isArray(found) ? found : [];
}

export function kindOf(schema: Schema): Kind {
  if (Array.isArray(schema.enum) || "const" in schema) return "enum";
  if (schema.type === "integer" || schema.type === "number") return "number";
  if (schema.type === "string" || schema.type === "boolean" || schema.type === "array" || schema.type === "object") return schema.type;
  if (schema.type === undefined && isSchema(schema.properties)) return "object";
  return choices(schema).length > 0 ? "choice" : "any";
}

/** The values of an enumeration. */
export const valuesOf = (schema: Schema): readonly Json[] => ("const" in schema ? [schema.const as Json] : (schema.enum as Json[]));

export function propertiesOf(schema: Schema): [string, unknown][] {
  return isSchema(schema.properties) ? Object.entries(schema.properties) : [];
}

export function requiredOf(schema: Schema): readonly string[] {
  return Array.isArray(schema.required) ? (schema.required as string[]) : [];
}

/** The schema of a property by its name; null: the schema allows none of that name. */
export function propertyOf(schema: Schema, name: string): unknown {
  const own = isSchema(schema.properties) && Object.hasOwn(schema.properties, name) ? schema.properties[name] : undefined;
  if (own !== undefined) return own;
  if (schema.additionalProperties === false) return null;
  return isSchema(schema.additionalProperties) ? schema.additionalProperties : {};
}

/** A value to begin with: as empty as the schema allows. */
export function blank(of: unknown, root: Schema, depth = 0): Json {
  const schema = resolved(of, root);
  if ("default" in schema) return schema.default as Json;
  switch (kindOf(schema)) {
    case "enum":
      return valuesOf(schema)[0] ?? null;
    case "string":
      return "";
    case "number":
      return typeof schema.minimum === "number" ? schema.minimum : 0;
    case "boolean":
      return false;
    case "array":
      return [];
    case "object": {
      const names = depth < 6 ? requiredOf(schema) : [];
      return Object.fromEntries(names.map((name) => [name, blank(propertyOf(schema, name), root, depth + 1)]));
    }
    case "choice":
      return depth < 6 ? blank(choices(schema)[0], root, depth + 1) : null;
    default:
      return null;
  }
}

/** Whether a value has the form that a schema begins with: enough to distinguish alternatives. */
export function fits(value: Json, of: unknown, root: Schema): boolean {
  const schema = resolved(of, root);
  switch (kindOf(schema)) {
    case "enum":
      return valuesOf(schema).some((one) => JSON.stringify(one) === JSON.stringify(value));
    case "object": {
      if (value === null || typeof value !== "object" || Array.isArray(value)) return false;
      const names = Object.keys(value);
      return requiredOf(schema).every((name) => names.includes(name)) && names.every((name) => propertyOf(schema, name) !== null);
    }
    case "array":
      return Array.isArray(value);
    case "choice":
      return choices(schema).some((one) => fits(value, one, root));
    case "any":
      return schema.type !== "null" || value === null;
    default:
      return typeof value === kindOf(schema);
  }
}

/** Whether a document has whole numbers that JavaScript would round: then a form must not write it again. */
export function hasLargeNumbers(text: string): boolean {
  const outside = text.replace(/"(?:[^"\\]|\\.)*"/g, '""');
  return /\d{16}/.test(outside);
}

/** A document with one value a line, if that loses nothing. */
export function laidOut(text: string): string {
  if (hasLargeNumbers(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** A value that differs between the document that was edited, the edited one, and the one that another writer left. */
export interface Disagreement {
  path: string;
  before: string | null;
  mine: string | null;
  theirs: string | null;
  /** Both changed it, each in another way. */
  conflict: boolean;
}

function leaves(value: unknown, path: string, into: Map<string, string>): Map<string, string> {
  if (value !== null && typeof value === "object" && Object.keys(value).length > 0) {
    for (const [name, inner] of Object.entries(value)) leaves(inner, path === "" ? name : `${path}.${name}`, into);
  } else {
    into.set(path, JSON.stringify(value));
  }
  return into;
}

function leavesOf(text: string): Map<string, string> {
  if (text.trim() === "") return new Map();
  try {
    return leaves(JSON.parse(text), "", new Map());
  } catch {
    return new Map([["", text]]);
  }
}

/** What differs between three states of a document. */
export function disagreements(before: string, mine: string, theirs: string): Disagreement[] {
  const [a, b, c] = [leavesOf(before), leavesOf(mine), leavesOf(theirs)];
  const paths = [...new Set([...a.keys(), ...b.keys(), ...c.keys()])].sort();
  return paths.flatMap((path) => {
    const [was, own, other] = [a.get(path) ?? null, b.get(path) ?? null, c.get(path) ?? null];
    const same = was === own && was === other;
    return same ? [] : [{ path, before: was, mine: own, theirs: other, conflict: own !== other && own !== was && other !== was }];
  });
}
