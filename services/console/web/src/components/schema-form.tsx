// A form made of a JSON Schema. It holds no state of its own: a change gives the whole new value.
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { signal, useSignal } from "@preact/signals";
import { visible } from "../format.ts";
import { useTable } from "../hooks.ts";
import { blank, choices, fits, kindOf, propertiesOf, propertyOf, requiredOf, resolved, valuesOf, type Json, type Schema } from "../schema.ts";
import { Icon } from "./icon.tsx";

interface Part {
  /** Where the value stands, for ids. */
  path: string;
  name: string;
  schema: unknown;
  root: Schema;
  value: Json;
  onChange: (value: Json) => void;
  /** Null: the value cannot be taken away. */
  onRemove?: (() => void) | null;
  disabled: boolean;
}

const titleOf = (schema: Schema, name: string): string => (typeof schema.title === "string" && name === "" ? schema.title : name);

function Line({ part, schema, children }: { part: Part; schema: Schema; children: (id: string) => ComponentChildren }) {
  const id = `value-${part.path}`;
  return (
    <div class="field">
      <label for={id}>{visible(titleOf(schema, part.name), 60)}</label>
      <span class="with-remove">
        {children(id)}
        {part.onRemove && <Remove part={part} />}
      </span>
      {typeof schema.description === "string" && <p class="hint">{visible(schema.description)}</p>}
    </div>
  );
}

function Remove({ part }: { part: Part }) {
  return (
    <button type="button" class="quiet" aria-label={`Remove ${visible(part.name, 60)}`} disabled={part.disabled} onClick={() => part.onRemove?.()}>
      <Icon name="close" />
    </button>
  );
}

function Group({ part, schema, children }: { part: Part; schema: Schema; children: ComponentChildren }) {
  return (
    <fieldset class="part" disabled={part.disabled}>
      <legend>
        {visible(titleOf(schema, part.name), 60)} {part.onRemove && <Remove part={part} />}
      </legend>
      {typeof schema.description === "string" && <p class="hint">{visible(schema.description)}</p>}
      {children}
    </fieldset>
  );
}

/** Names of objects that a text may mean, offered while it is typed. */
const OFFERED = 20;

function Reference({ id, part, value }: { id: string; part: Part; value: string }) {
  const objects = useTable("objects", true).rows.value;
  const typed = value.toLowerCase();
  const offered = objects.has(value) || typed.length < 2 ? [] : [...objects.values()].filter((row) => (row.name ?? "").toLowerCase().includes(typed)).slice(0, OFFERED);
  const known = objects.get(value);
  return (
    <>
      <input id={id} list={`${id}-offered`} autocomplete="off" spellcheck={false} disabled={part.disabled} value={value} onInput={(event) => part.onChange(event.currentTarget.value)} />
      <datalist id={`${id}-offered`}>{offered.map((row) => <option value={row.key} key={row.key}>{visible(row.name ?? row.key, 60)}</option>)}</datalist>
      {known && <span class="note">{visible(known.name ?? "", 60)}</span>}
    </>
  );
}

function ObjectPart({ part, schema }: { part: Part; schema: Schema }) {
  const value = part.value !== null && typeof part.value === "object" && !Array.isArray(part.value) ? part.value : {};
  const required = requiredOf(schema);
  const set = (name: string, inner: Json) => part.onChange({ ...value, [name]: inner });
  const remove = (name: string) => part.onChange(Object.fromEntries(Object.entries(value).filter(([one]) => one !== name)));
  const known = propertiesOf(schema).map(([name]) => name);
  const absent = known.filter((name) => !Object.hasOwn(value, name));
  const open = schema.additionalProperties !== false;
  const add = (name: string) => name !== "" && !Object.hasOwn(value, name) && set(name, blank(propertyOf(schema, name), part.root));
  const present = [...known.filter((name) => Object.hasOwn(value, name)), ...Object.keys(value).filter((name) => !known.includes(name))];
  return (
    <>
      {present.map((name) => (
        <Value key={name} path={`${part.path}.${name}`} name={name} schema={propertyOf(schema, name)} root={part.root} value={value[name]!} disabled={part.disabled}
          onChange={(inner) => set(name, inner)} onRemove={required.includes(name) ? null : () => remove(name)} />
      ))}
      {!part.disabled && (absent.length > 0 || open) && (
        <p class="adding">
          {absent.length > 0 && (
            <select aria-label={`Add to ${visible(part.name || "the entry", 60)}`} value="" onChange={(event) => (add(event.currentTarget.value), (event.currentTarget.value = ""))}>
              <option value="">Add…</option>
              {absent.map((name) => <option value={name} key={name}>{name}</option>)}
            </select>
          )}
          {open && <input placeholder="New name, then Enter" aria-label={`New name in ${visible(part.name || "the entry", 60)}`} autocomplete="off"
            onKeyDown={(event) => { if (event.key !== "Enter") return; event.preventDefault(); add(event.currentTarget.value); event.currentTarget.value = ""; }} />}
        </p>
      )}
    </>
  );
}

function ArrayPart({ part, schema }: { part: Part; schema: Schema }) {
  const items = Array.isArray(part.value) ? part.value : [];
  const replace = (at: number, inner: Json) => part.onChange(items.map((one, index) => (index === at ? inner : one)));
  return (
    <>
      {items.map((item, index) => (
        <Value key={index} path={`${part.path}.${index}`} name={String(index + 1)} schema={schema.items} root={part.root} value={item} disabled={part.disabled}
          onChange={(inner) => replace(index, inner)} onRemove={() => part.onChange(items.filter((_, at) => at !== index))} />
      ))}
      {!part.disabled && <button type="button" onClick={() => part.onChange([...items, blank(schema.items, part.root)])}><Icon name="plus" /> Add to {visible(part.name || "the list", 40)}</button>}
    </>
  );
}

/** Paths of the fields on the screen whose text is not JSON: their last value stands, and must not be written. */
export const notJson = signal<ReadonlySet<string>>(new Set());

function markJson(path: string, good: boolean): void {
  if (notJson.value.has(path) !== good) return;
  const next = new Set(notJson.value);
  if (good) next.delete(path);
  else next.add(path);
  notJson.value = next;
}

function TextPart({ id, part }: { id: string; part: Part }) {
  const text = useSignal(JSON.stringify(part.value, null, 2));
  const wrong = notJson.value.has(part.path);
  useEffect(() => () => markJson(part.path, true), []);
  const change = (event: { currentTarget: HTMLTextAreaElement }) => {
    text.value = event.currentTarget.value;
    try {
      part.onChange(JSON.parse(text.value) as Json);
      markJson(part.path, true);
    } catch {
      markJson(part.path, false);
    }
  };
  return (
    <>
      <textarea id={id} rows={3} spellcheck={false} disabled={part.disabled} aria-invalid={wrong} aria-describedby={wrong ? `${id}-wrong` : undefined} value={text.value} onInput={change} />
      {wrong && <span class="wrong" id={`${id}-wrong`} role="alert">This is not JSON. A text is written in quotation marks.</span>}
    </>
  );
}

function ChoicePart({ part, schema }: { part: Part; schema: Schema }) {
  const all = choices(schema);
  const chosen = Math.max(0, all.findIndex((one) => fits(part.value, one, part.root)));
  const nameOf = (one: unknown, index: number) => {
    const found = resolved(one, part.root);
    return typeof found.title === "string" ? found.title : (propertiesOf(found).map(([name]) => name).join(", ") || String(found.type ?? index + 1));
  };
  return (
    <Group part={part} schema={schema}>
      <select aria-label={`Form of ${visible(part.name, 60)}`} value={String(chosen)} onChange={(event) => part.onChange(blank(all[Number(event.currentTarget.value)], part.root))}>
        {all.map((one, index) => <option value={String(index)} key={index}>{visible(nameOf(one, index), 60)}</option>)}
      </select>
      <Value {...part} schema={all[chosen]} onRemove={null} />
    </Group>
  );
}

/** A value of any schema. */
export function Value(part: Part) {
  const schema = resolved(part.schema, part.root);
  const { value, onChange, disabled } = part;
  // What does not have the form of its schema is shown as it is.
  const kind = fits(value, schema, part.root) || ["object", "array", "choice"].includes(kindOf(schema)) ? kindOf(schema) : "any";
  switch (kind) {
    case "object":
      return part.path === "" ? <ObjectPart part={part} schema={schema} /> : <Group part={part} schema={schema}><ObjectPart part={part} schema={schema} /></Group>;
    case "array":
      return <Group part={part} schema={schema}><ArrayPart part={part} schema={schema} /></Group>;
    case "choice":
      return <ChoicePart part={part} schema={schema} />;
    case "enum":
      return <Line part={part} schema={schema}>{(id) => (
        <select id={id} disabled={disabled} value={JSON.stringify(value)} onChange={(event) => onChange(JSON.parse(event.currentTarget.value) as Json)}>
          {valuesOf(schema).map((one) => <option value={JSON.stringify(one)} key={JSON.stringify(one)}>{String(one)}</option>)}
        </select>
      )}</Line>;
    case "boolean":
      return <Line part={part} schema={schema}>{(id) => <input id={id} type="checkbox" disabled={disabled} checked={value === true} onChange={(event) => onChange(event.currentTarget.checked)} />}</Line>;
    case "number":
      return <Line part={part} schema={schema}>{(id) => <input id={id} type="number" step={schema.type === "integer" ? 1 : "any"} disabled={disabled} value={String(value)} onInput={(event) => event.currentTarget.value !== "" && onChange(Number(event.currentTarget.value))} />}</Line>;
    case "string":
      return <Line part={part} schema={schema}>{(id) => schema.format === "uuid"
        ? <Reference id={id} part={part} value={String(value)} />
        : <input id={id} autocomplete="off" spellcheck={false} disabled={disabled} value={String(value)} onInput={(event) => onChange(event.currentTarget.value)} />}</Line>;
    default:
      return <Line part={part} schema={schema}>{(id) => <TextPart id={id} part={part} />}</Line>;
  }
}
