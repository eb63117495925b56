// The configuration that the console applies: the fields that a viewer changed, and those that they
// applied before. To apply the whole object would make them the manager of all of its fields.

import type { Json } from "./fields";

export type Fields = { [key: string]: Fields };
type Map = { [key: string]: Json };

export interface Manager {
  manager: string;
  operation: string;
  apiVersion: string;
  time?: string;
  subresource?: string;
  fieldsV1?: Fields;
}

/** The manager as whom the console applies. */
export const CONSOLE = "console";

function isMap(value: Json | undefined): value is Map {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

export function equal(a: Json | undefined, b: Json | undefined): boolean {
  return JSON.stringify(sorted(a)) === JSON.stringify(sorted(b));
}

/** Returns a value with the keys of all maps in one order. */
function sorted(value: Json | undefined): Json | undefined {
  if (Array.isArray(value)) return value.map((item) => sorted(item) ?? null);
  if (!isMap(value)) return value;
  const keys = Object.keys(value).sort();
  return Object.fromEntries(keys.map((key) => [key, sorted(value[key]) ?? null]));
}

function union(all: Fields[]): Fields {
  const merged: Fields = {};
  for (const key of new Set(all.flatMap((fields) => Object.keys(fields)))) {
    merged[key] = union(all.flatMap((fields) => fields[key] ?? []));
  }
  return merged;
}

/** Returns the keys by which a list tells its items apart; nothing for a list that is one value. */
function listKeys(known: Fields | undefined): string[] | undefined {
  const item = Object.keys(known ?? {}).find((key) => key.startsWith("k:"));
  return item === undefined ? undefined : Object.keys(JSON.parse(item.slice(2)) as Map);
}

/** Finds what managers know of an item of a list. */
function itemFields(fields: Fields | undefined, item: Map): Fields | undefined {
  for (const [key, below] of Object.entries(fields ?? {})) {
    if (!key.startsWith("k:")) continue;
    const wanted = JSON.parse(key.slice(2)) as Map;
    if (Object.entries(wanted).every(([name, value]) => equal(item[name], value))) return below;
  }
  return undefined;
}

interface Picked {
  before: Json | undefined;
  after: Json | undefined;
  /** The fields that the console applied before. */
  own: Fields | undefined;
  /** The fields of all managers. */
  known: Fields | undefined;
}

function pick({ before, after, own, known }: Picked): Json | undefined {
  if (after === undefined) return undefined;
  // An own field without fields below is one value.
  if (own && Object.keys(own).length === 0) return after;
  if (isMap(after)) return pickMap(isMap(before) ? before : undefined, after, own, known);
  const keys = Array.isArray(after) ? listKeys(known) : undefined;
  if (Array.isArray(after) && keys) return pickItems({ before, after, own, known }, keys);
  return own || !equal(before, after) ? after : undefined;
}

function pickMap(before: Map | undefined, after: Map, own: Fields | undefined, known: Fields | undefined): Json | undefined {
  const picked: Map = {};
  for (const [key, value] of Object.entries(after)) {
    const field = `f:${key}`;
    const chosen = pick({ before: before?.[key], after: value, own: own?.[field], known: known?.[field] });
    if (chosen !== undefined) picked[key] = chosen;
  }
  // An empty map is a value if it is new, or was applied as one.
  const counts = before === undefined || own?.["."] !== undefined;
  return Object.keys(picked).length > 0 || counts ? picked : undefined;
}

function pickItems({ before, after, own, known }: Picked, keys: string[]): Json | undefined {
  const old = Array.isArray(before) ? before : [];
  const picked = (after as Json[]).flatMap((item) => {
    if (!isMap(item)) return [item];
    const same = old.find((other) => isMap(other) && keys.every((key) => equal(other[key], item[key])));
    const chosen = pick({ before: same, after: item, own: itemFields(own, item), known: itemFields(known, item) });
    if (!isMap(chosen)) return [];
    const named = keys.flatMap((key): [string, Json][] => (item[key] === undefined ? [] : [[key, item[key]]]));
    return [{ ...Object.fromEntries(named), ...chosen }];
  });
  return picked.length > 0 ? picked : undefined;
}

/** Returns the configuration to apply after a change. */
export function configuration(before: Map, after: Map, managers: Manager[]): Map {
  const own = managers.find(({ manager, operation }) => manager === CONSOLE && operation === "Apply");
  const known = union(managers.flatMap(({ fieldsV1 }) => fieldsV1 ?? []));
  const changed = pickMap(before, after, own?.fieldsV1, known);
  const { apiVersion = "", kind = "", metadata } = after;
  const { name = "", namespace } = (metadata ?? {}) as Map;
  const more = isMap(changed) ? changed : {};
  return {
    ...more,
    apiVersion,
    kind,
    metadata: { ...(isMap(more["metadata"]) ? more["metadata"] : {}), name, ...(namespace !== undefined && { namespace }) },
  };
}

/** Returns the paths of fields that were taken out of an object and are in another. */
export function remaining(before: Json | undefined, after: Json | undefined, result: Json | undefined, path = ""): string[] {
  if (before === undefined || result === undefined) return [];
  if (after === undefined) return [path];
  if (!isMap(before) || !isMap(after) || !isMap(result)) return [];
  return Object.keys(before).flatMap((key) => remaining(before[key], after[key], result[key], `${path}.${key}`));
}

/** Returns the number of fields that a manager has. */
export function fieldCount(fields: Fields | undefined): number {
  const below = Object.entries(fields ?? {}).filter(([key]) => key !== ".");
  return below.reduce((sum, [, more]) => sum + Math.max(1, fieldCount(more)), 0);
}
