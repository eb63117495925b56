// An edit of an object: what the server says of it, and what is applied, as the viewer.

import { parse } from "yaml";
import { Refused, kube } from "./api";
import type { Cause } from "./api";
import { CONSOLE, configuration, rebased, remaining } from "./applied";
import type { Clash, Manager } from "./applied";
import type { Mistake } from "./editor";
import type { Json } from "./fields";
import { pathOf } from "./kinds";
import type { Kind } from "./kinds";
import { locate, syntax } from "./yaml-editor";

export type Map = { [key: string]: Json };

export interface Metadata {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  generation?: number;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  finalizers?: string[];
  ownerReferences?: { apiVersion: string; kind: string; name: string }[];
  managedFields?: Manager[];
}

export function metadataOf(object: Map): Metadata {
  return (object["metadata"] ?? {}) as unknown as Metadata;
}

/** Returns an object without the records of managers, which the page shows apart. */
export function plain(object: Map): Map {
  const { managedFields: _, ...metadata } = (object["metadata"] ?? {}) as Map;
  return { ...object, metadata };
}

export interface Checked {
  mistakes: Mistake[];
  /** Fields that other managers have. */
  conflicts: Cause[];
  /** Fields that stay, because others have them, too. */
  stay: string[];
  error?: unknown;
  /** The server would take it. */
  accepted: boolean;
}

export const NOTHING: Checked = { mistakes: [], conflicts: [], stay: [], accepted: false };

export interface Draft {
  workspace: string;
  kind: Kind;
  base: Map;
  text: string;
}

/** What an edit is to the object as it is now. */
interface Prepared {
  path: string;
  /** The configuration to apply. */
  body: Map;
  present: Map;
  /** The object as the viewer wants it. */
  wanted: Map;
  /** Fields that others changed since the viewer began. */
  clashes: Cause[];
}

interface ApplyOptions {
  dryRun: boolean;
  force: boolean;
}

/** The reason of causes that name a field of another manager. */
const CONFLICT = "FieldManagerConflict";
/** Times that an edit is made again on an object that changes meanwhile. */
const ATTEMPTS_MAX = 5;
/** Characters of a value in a message. */
const VALUE_MAX = 60;

/** Returns the version in which the console applied an object, if that is another one: to apply it in
 * this one would take away what the other has. */
export function versionOfConsole(object: Map, { group, version }: Kind): string | undefined {
  const present = group === "" ? version : `${group}/${version}`;
  const managers = metadataOf(object).managedFields ?? [];
  const own = managers.find(({ manager, operation }) => manager === CONSOLE && operation === "Apply");
  return own && own.apiVersion !== present ? own.apiVersion : undefined;
}

export function inOtherVersion(version: string): string {
  return `The console applied this object in ${version}: change it in that version.`;
}

async function read(path: string): Promise<Map | undefined> {
  try {
    return await kube<Map>(path);
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return undefined;
    throw error;
  }
}

function causeOf({ field, now }: Clash): Cause {
  const value = JSON.stringify(now) ?? "";
  const short = value.length > VALUE_MAX ? `${value.slice(0, VALUE_MAX)}…` : value;
  return { reason: CONFLICT, field, message: now === undefined ? "was taken out after you began" : `became ${short} after you began` };
}

/** Makes the edit on the object as it is now, which may have what another tab applied meanwhile. */
async function prepare({ workspace, kind, base, text }: Draft): Promise<Prepared> {
  const after = parse(text) as Map;
  const { name, namespace = "" } = metadataOf(after);
  if (!name) throw new Error("The object needs a name: .metadata.name");
  const known = metadataOf(base);
  if (known.uid !== undefined && (name !== known.name || namespace !== (known.namespace ?? ""))) {
    throw new Error("The name and the namespace of an object stay what they are.");
  }
  const path = pathOf(workspace, kind, namespace, name);
  const now = await read(path);
  // To apply what is there already would change it.
  if (known.uid === undefined && now) throw new Error(`${kind.kind} ${name} exists already.`);
  // To apply what is gone would make an object of the changes alone.
  if (known.uid !== undefined && known.uid !== metadataOf(now ?? {}).uid) throw new Error(`${kind.kind} ${name} was deleted.`);
  const present = now ?? base;
  const other = versionOfConsole(present, kind);
  if (other) throw new Error(inOtherVersion(other));
  const managers = metadataOf(present).managedFields ?? [];
  const { object: wanted, clashes } = rebased(plain(base), after, plain(present), managers);
  const body = configuration(plain(present), wanted, managers);
  return { path, body, present, wanted, clashes: clashes.map(causeOf) };
}

async function send({ path, body, present }: Prepared, { dryRun, force }: ApplyOptions): Promise<Map> {
  const query = new URLSearchParams({ fieldManager: CONSOLE, fieldValidation: "Strict" });
  if (dryRun) query.set("dryRun", "All");
  if (force) query.set("force", "true");
  const { resourceVersion } = metadataOf(present);
  // The configuration has what the console applied up to this revision: later it would take the rest away.
  const exact = !dryRun && resourceVersion !== undefined;
  const metadata = { ...(body["metadata"] as Map), ...(exact && { resourceVersion }) };
  return kube<Map>(`${path}?${query}`, {
    method: "PATCH",
    headers: { "Content-Type": "application/apply-patch+yaml" },
    body: JSON.stringify({ ...body, metadata }),
  });
}

export function conflictsOf(error: unknown): Cause[] {
  return error instanceof Refused ? error.causes.filter(({ reason }) => reason === CONFLICT) : [];
}

/** What the server answers to an edit, if it were made now. */
interface Tried {
  /** Fields of others that it would change. */
  conflicts: Cause[];
  /** The object after it; nothing if it conflicts. */
  result?: Map;
}

async function attempt(prepared: Prepared): Promise<Tried> {
  const { clashes } = prepared;
  try {
    const result = await send(prepared, { dryRun: true, force: false });
    return clashes.length > 0 ? { conflicts: clashes } : { conflicts: [], result };
  } catch (error) {
    const conflicts = conflictsOf(error);
    if (conflicts.length === 0) throw error;
    return { conflicts: [...conflicts, ...clashes] };
  }
}

const sameCause = (one: Cause) => (other: Cause) => one.field === other.field && one.message === other.message;

/**
 * Applies what a viewer changed, and nothing else. It takes over the fields of `agreed`, the conflicts that
 * the viewer saw, and no other: what came since is a conflict again.
 */
export async function apply(draft: Draft, agreed: Cause[]): Promise<Map> {
  for (let tries = 1; ; tries += 1) {
    const prepared = await prepare(draft);
    const { conflicts } = agreed.length > 0 ? await attempt(prepared) : { conflicts: prepared.clashes };
    const unseen = conflicts.filter((conflict) => !agreed.some(sameCause(conflict)));
    if (unseen.length > 0) throw new Refused(409, "Others changed what you changed.", "Conflict", "", conflicts);
    try {
      // Nothing has changed since the attempt, or it is refused and looked at again.
      return await send(prepared, { dryRun: false, force: conflicts.length > 0 });
    } catch (error) {
      const moved = error instanceof Refused && error.status === 409 && conflictsOf(error).length === 0;
      if (!moved || tries === ATTEMPTS_MAX) throw error;
    }
  }
}

/** Asks the server what it would say. */
export async function check(draft: Draft): Promise<Checked> {
  const { text } = draft;
  const wrong = syntax(text);
  if (wrong.length > 0) return { ...NOTHING, mistakes: wrong };
  try {
    const prepared = await prepare(draft);
    const { conflicts, result } = await attempt(prepared);
    if (!result) return { ...NOTHING, conflicts };
    const { present, wanted } = prepared;
    const stay = remaining(plain(present), wanted, result).filter((path) => !/^\.(status|metadata)\b/.test(path));
    return { ...NOTHING, stay, accepted: true };
  } catch (error) {
    if (!(error instanceof Refused)) return { ...NOTHING, error };
    return { ...NOTHING, error, mistakes: mistakesOf(error, text) };
  }
}

/** Returns the places of what a refusal names. */
function mistakesOf({ causes, message }: Refused, text: string): Mistake[] {
  const mistake = (path: string, why: string) => locate(text, path, path ? `${path}: ${why}` : why);
  if (causes.length > 0) return causes.map((cause) => mistake(cause.field ?? "", cause.message));
  // A patch that fits no schema is refused by lines such as "  .spec.name: expected string, got 7". A
  // single one follows its subject: "failed to create typed patch object (…): .spec.name: expected …".
  const lines = message.matchAll(/(?:^|\): )\s*(\.[^:\n]+): (.*)$/gm);
  return [...lines].map(([, path = "", why = ""]) => mistake(path, why));
}
