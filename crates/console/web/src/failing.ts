// Objects with conditions that do not hold, in a workspace and in those below it.

import { Refused, call, kube } from "./api";
import { kindsOf, named, pathOf } from "./kinds";
import type { Kind } from "./kinds";
import type { Condition, ResourceUsage } from "./model";

/** Objects of a kind that are looked at. */
export const OBJECTS_MAX = 500;
/** Groups whose objects have no conditions of this kind, and former names of others. */
const SILENT = /^$|\.kcp\.dev$|^(authentication|authorization|rbac\.authorization|coordination|events|admissionregistration)\.k8s\.io$/;
/** Groups whose conditions are good when they are true. */
const OURS = /\.kcp\.io$/;
/** Conditions of others that are good when they are true. */
const POSITIVE = new Set(["Ready", "Available", "Established", "NamesAccepted", "Synced", "Healthy", "Succeeded"]);
/** Requests of one look at once. */
const WORKERS = 4;

/** An object with conditions that do not hold. */
export interface Failing {
  workspace: string;
  kind: Kind;
  namespace: string;
  name: string;
  /** The causes first, the sum of them last. Conditions for the same reason are one. */
  chain: Condition[];
}

/** What a look at a workspace found. */
export interface Found {
  objects: Failing[];
  /** Kinds with more objects than are looked at. */
  cut: string[];
  /** The viewer may not look into it. */
  hidden: boolean;
}

/** Kinds by name and group, as far as discovery was read: workspaces mostly serve the same ones. */
export type Known = Map<string, Kind>;

interface Listed {
  metadata: { name: string; namespace?: string };
  status?: { conditions?: Condition[] };
}

const keyOf = ({ resource, group }: { resource: string; group: string }) => `${resource}.${group}`;

/** Runs a function for each item, a few at a time. */
export async function each<T>(items: T[], run: (item: T) => Promise<void>): Promise<void> {
  const waiting = [...items];
  const work = async () => {
    for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) await run(item);
  };
  await Promise.all(Array.from({ length: WORKERS }, work));
}

function chainOf(kind: Kind, { status }: Listed): Condition[] {
  const conditions = Array.isArray(status?.conditions) ? status.conditions : [];
  const failed = conditions.filter(
    ({ type, status: holds, severity }) => holds === "False" && severity !== "Info" && (OURS.test(kind.group) || POSITIVE.has(type)),
  );
  failed.sort((a, b) => Number(a.type === "Ready") - Number(b.type === "Ready"));
  const chain: Condition[] = [];
  for (const condition of failed) {
    const same = chain.find(({ reason, message }) => reason === condition.reason && message === condition.message);
    if (same) same.type += `, ${condition.type}`;
    else chain.push({ ...condition });
  }
  return chain;
}

async function look(workspace: string, kind: Kind, found: Found, signal: AbortSignal): Promise<void> {
  const path = `${pathOf(workspace, kind)}?limit=${OBJECTS_MAX}`;
  const list = await kube<{ metadata?: { continue?: string }; items: Listed[] }>(path, { signal });
  if (list.metadata?.continue) found.cut.push(named(kind));
  for (const item of list.items) {
    const { name, namespace = "" } = item.metadata;
    const chain = chainOf(kind, item);
    if (chain.length > 0) found.objects.push({ workspace, kind, namespace, name, chain });
  }
}

/** Reads the kinds of a workspace, the preferred version of each. */
async function discover(workspace: string, known: Known, signal: AbortSignal): Promise<Known> {
  const kinds: Known = new Map();
  for (const kind of await kindsOf(workspace, signal)) if (!kinds.has(keyOf(kind))) kinds.set(keyOf(kind), kind);
  for (const [key, kind] of kinds) known.set(key, kind);
  return kinds;
}

function refusedWith(error: unknown, ...codes: number[]): boolean {
  return error instanceof Refused && codes.includes(error.status);
}

/** Looks at all kinds of a workspace, one request each. Kinds that the viewer may not list are left out. */
export async function failing(workspace: string, known: Known, signal: AbortSignal): Promise<Found> {
  const found: Found = { objects: [], cut: [], hidden: false };
  const kinds = [...(await discover(workspace, known, signal)).values()];
  // Workspaces are in the tree.
  const spoken = kinds.filter(({ group, resource }) => !SILENT.test(group) && resource !== "workspaces");
  await each(spoken, (kind) => look(workspace, kind, found, signal).catch(() => undefined));
  return found;
}

/**
 * Looks at a workspace below another one: one request for the resources that have objects, and one for
 * each of those that may have conditions: none in a workspace without bindings and objects of its own.
 */
export async function failingBelow(workspace: string, known: Known, signal: AbortSignal): Promise<Found> {
  const found: Found = { objects: [], cut: [], hidden: false };
  let own: Known | undefined;
  const kindOf = async (key: string) => {
    if (!own && !known.has(key)) own = await discover(workspace, known, signal);
    return own ? own.get(key) : known.get(key);
  };
  try {
    const used = await call<{ resources: ResourceUsage[] }>("QuotaService/GetUsage", { workspace, hours: 1 }, signal);
    for (const one of used.resources) {
      // The tree has the workspace itself, by its LogicalCluster, and those below it.
      const inTree = one.group.endsWith(".kcp.io") && (one.resource === "logicalclusters" || one.resource === "workspaces");
      if (SILENT.test(one.group) || inTree || one.objects === 0) continue;
      const kind = await kindOf(keyOf(one));
      if (!kind) continue;
      try {
        await look(workspace, kind, found, signal);
      } catch (error) {
        // A kind that cannot be listed hides no others.
        if (!(error instanceof Refused)) throw error;
        if (error.status !== 404) continue;
        // Another workspace serves the kind in another version.
        own ??= await discover(workspace, known, signal);
        const other = own.get(keyOf(one));
        if (other && other.version !== kind.version) await look(workspace, other, found, signal).catch(() => undefined);
      }
    }
  } catch (error) {
    if (!refusedWith(error, 403, 404)) throw error;
    found.hidden = true;
  }
  return found;
}
