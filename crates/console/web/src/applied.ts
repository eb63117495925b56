// The configuration that the console applies: the fields that a viewer changed, and those that the
// console applied before. To apply the whole object would make it the manager of all of its fields.

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

/**
 * The manager as whom the console applies, in all tabs and for all viewers, as `kubectl` is one in all
 * terminals. With one for each tab, an object would name every tab that ever changed it, and the fields
 * of yesterday would conflict with those of today. With one for each viewer, nobody could take out a
 * field that a colleague set here. The audit log says who applied what.
 *
 * To apply as one manager gives up what is missing in the configuration. An edit is therefore made on
 * the object as it is now (`rebased`), which has what other tabs applied, and is written on that state
 * alone. Two edits of one field are a conflict, as they are between two managers.
 */
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

/** A field that changed in two ways since an edit began. */
export interface Clash {
  /** Its path, as refusals of the server name fields. */
  field: string;
  now: Json | undefined;
}

interface Sides {
  /** The value on which the edit is based. */
  before: Json | undefined;
  /** The value after the edit. */
  after: Json | undefined;
  now: Json | undefined;
}

/** Makes an edit again on what is there now. Fields that the edit left alone are those of now. */
function merge(sides: Sides, known: Fields | undefined, path: string, clashes: Clash[]): Json | undefined {
  const { before, after, now } = sides;
  if (equal(before, after)) return now;
  if (equal(before, now) || equal(after, now)) return after;
  if (isMap(after) && isMap(now)) return mergeMaps(isMap(before) ? before : {}, after, now, known, path, clashes);
  const keys = Array.isArray(after) && Array.isArray(now) ? listKeys(known) : undefined;
  if (keys) return mergeItems(sides, keys, known, path, clashes);
  clashes.push({ field: path, now });
  return after;
}

function mergeMaps(before: Map, after: Map, now: Map, known: Fields | undefined, path: string, clashes: Clash[]): Map {
  const merged: Map = {};
  for (const key of Object.keys({ ...now, ...after })) {
    const sides = { before: before[key], after: after[key], now: now[key] };
    const value = merge(sides, known?.[`f:${key}`], `${path}.${key}`, clashes);
    if (value !== undefined) merged[key] = value;
  }
  return merged;
}

function mergeItems(sides: Sides, keys: string[], known: Fields | undefined, path: string, clashes: Clash[]): Json {
  const nameOf = (item: Json) => JSON.stringify(keys.map((key) => (isMap(item) ? (item[key] ?? null) : item)));
  const named = (list: Json | undefined): Map =>
    Object.fromEntries((Array.isArray(list) ? list : []).map((item) => [nameOf(item), item]));
  const [before, after, now] = [named(sides.before), named(sides.after), named(sides.now)];
  return Object.keys({ ...now, ...after }).flatMap((name) => {
    const item = now[name] ?? after[name];
    const fields = isMap(item) ? itemFields(known, item) : undefined;
    const label = keys.map((key) => `${key}=${JSON.stringify(isMap(item) ? item[key] : item)}`).join(",");
    const value = merge({ before: before[name], after: after[name], now: now[name] }, fields, `${path}[${label}]`, clashes);
    return value === undefined ? [] : [value];
  });
}

/** Returns an edit of an object as it is now, and the fields that others changed in another way since it began. */
export function rebased(before: Map, after: Map, now: Map, managers: Manager[]): { object: Map; clashes: Clash[] } {
  const known = union(managers.flatMap(({ fieldsV1 }) => fieldsV1 ?? []));
  const clashes: Clash[] = [];
  return { object: mergeMaps(before, after, now, known, "", clashes), clashes };
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
