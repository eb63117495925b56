// Migrations of a workspace: of stored objects to another version, and of ThirdPartyResources to the
// APIs of today.

import { call, kube, pages } from "./api";
import type { Condition } from "./model";
import type { Tone } from "./ui";

const REQUESTS = "apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
const BINDINGS = "apis/apis.kcp.io/v1alpha2/apibindings";
const DEFINITIONS = "apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/** Both generations of ThirdPartyResources. */
const REGISTRATIONS = [
  ["extensions", "v1beta1"],
  ["apiextension.k8s.io", "v1beta1"],
] as const;

interface Meta {
  name: string;
  creationTimestamp?: string;
  deletionTimestamp?: string;
}

interface Request {
  metadata: Meta;
  spec: { resource: { group?: string; resource?: string } };
  status?: { conditions?: Condition[] };
}

interface Owner {
  metadata: Meta;
  spec?: { group?: string; names?: { plural?: string } };
  status?: { conditions?: Condition[]; boundResources?: { group: string; resource: string }[] };
}

interface Registration {
  metadata: Meta;
  description?: string;
}

/** A migration of a ThirdPartyResource that has begun. */
export interface UnderWay {
  resource: string;
  registrationGroup: string;
  registration: string;
  replacementKind: string;
  replacement: string;
  step: string;
  undo: boolean;
  objects: number;
  seen: number;
  message: string;
  formerApiVersion: string;
  apiVersion: string;
}

/** The steps of a migration of a ThirdPartyResource, in their order. */
export const STEPS = [
  ["MIGRATION_STEP_EXPORT", "Count and freeze the objects"],
  ["MIGRATION_STEP_REPLACE", "Replace the registration"],
  ["MIGRATION_STEP_SERVE", "Wait until the replacement serves"],
  ["MIGRATION_STEP_RECREATE", "Write the objects under their new definition"],
  ["MIGRATION_STEP_ADOPT", "Rename the owners in dependents"],
  ["MIGRATION_STEP_VERIFY", "Count and compare again"],
  ["MIGRATION_STEP_THAW", "Let clients write again"],
] as const;

export interface Row {
  key: string;
  kind: "StorageVersionMigration" | "Automatic" | "ThirdPartyResource";
  name: string;
  /** The objects: "widgets.example.io". */
  resource: string;
  group: string;
  /** The path of its object below the workspace. */
  path: string;
  state: string;
  tone: Tone;
  message: string;
  /** Percent of the objects that are done, as far as the server says. */
  done?: number;
  since: string | undefined;
  conditions: Condition[];
  /** False while it may be stopped, or waits to begin. */
  over: boolean;
  underWay?: UnderWay;
}

const named = (resource: string, group: string) => [resource, group].filter(Boolean).join(".");

function find(conditions: Condition[] | undefined, type: string): Condition | undefined {
  return conditions?.find((condition) => condition.type === type);
}

function doneOf(message: string): number | undefined {
  const percent = /^(\d+)% of /.exec(message)?.[1];
  return percent === undefined ? undefined : Number(percent);
}

/** What is left of a migration. */
export interface Left {
  objects: number;
  /** Objects in a second, and the seconds that the others take then, when any were seen to be written. */
  pace?: { rate: number; seconds: number };
}

/** The pace of migrations, from the first time that a page saw each: objects that had the version before a
 * migration began tell nothing of it. */
export class Paces {
  private readonly first = new Map<string, { time: number; stored: number }>();

  /** Notes how far a migration is, at a time in milliseconds. Returns what is left, if the server says it. */
  left({ key, message, done, over }: Row, time: number): Left | undefined {
    const all = Number(/^\d+% of (\d+) /.exec(message)?.[1]);
    if (over || done === undefined || Number.isNaN(all)) {
      this.first.delete(key);
      return undefined;
    }
    const stored = Math.round((all * done) / 100);
    const first = this.first.get(key) ?? { time, stored };
    this.first.set(key, first);
    const objects = all - stored;
    const rate = (stored - first.stored) / Math.max(0.001, (time - first.time) / 1000);
    return rate > 0 ? { objects, pace: { rate, seconds: objects / rate } } : { objects };
  }
}

/** Returns the paths that change with a migration. */
export function watched(workspace: string): string[] {
  const registrations = REGISTRATIONS.map(([group, version]) => `apis/${group}/${version}/thirdpartyresources`);
  return [REQUESTS, BINDINGS, DEFINITIONS, ...registrations].map((path) => `/clusters/${workspace}/${path}?watch=true`);
}

/** Returns the rows of the objects that are being written in another version, with the progress that their owners have. */
export function automatic(owners: Owner[], path: string): Row[] {
  return owners.flatMap(({ metadata, spec, status }) => {
    const condition = find(status?.conditions, "StorageMigrating");
    if (!condition) return [];
    const bound = status?.boundResources ?? [{ group: spec?.group ?? "", resource: spec?.names?.plural ?? "" }];
    const failed = condition.reason === "MigrationFailed";
    const runs = condition.status === "True";
    return bound.map(({ group, resource }): Row => {
      const done = runs ? doneOf(condition.message) : undefined;
      return {
        key: `automatic/${named(resource, group)}`,
        kind: "Automatic",
        name: metadata.name,
        resource: named(resource, group),
        group,
        path: `${path}/${metadata.name}`,
        state: runs ? "Running" : failed ? "Failed" : "Succeeded",
        tone: runs ? "busy" : failed ? "bad" : "good",
        message: condition.message,
        ...(done !== undefined && { done }),
        since: condition.lastTransitionTime,
        conditions: [condition],
        over: !runs,
      };
    });
  });
}

/** Returns the row of a request, which names its progress itself, of custom and of built-in resources. */
export function requested({ metadata, spec, status }: Request): Row {
  const conditions = status?.conditions ?? [];
  const holds = (type: string) => find(conditions, type)?.status === "True";
  const { group = "", resource = "" } = spec.resource;
  const [state, tone]: [string, Tone] = holds("Succeeded")
    ? ["Succeeded", "good"]
    : holds("Failed")
      ? ["Failed", "bad"]
      : holds("Running")
        ? ["Running", "busy"]
        : ["Waiting", "idle"];
  const over = state === "Succeeded" || state === "Failed";
  const own = find(conditions, state);
  const done = state === "Running" ? doneOf(own?.message ?? "") : undefined;
  return {
    key: `request/${metadata.name}`,
    kind: "StorageVersionMigration",
    name: metadata.name,
    resource: named(resource, group),
    group,
    path: `${REQUESTS}/${metadata.name}`,
    state,
    tone,
    message: own?.message ?? (state === "Waiting" ? "An earlier one of this resource runs first, or it begins shortly" : ""),
    ...(done !== undefined && { done }),
    since: own?.lastTransitionTime ?? metadata.creationTimestamp,
    conditions,
    over,
  };
}

/** Returns what has begun, with the share of the present step. */
export function begun(underWay: UnderWay, since?: string): Row {
  const at = STEPS.findIndex(([step]) => step === underWay.step);
  const [group, version] = REGISTRATIONS.find(([one]) => one === underWay.registrationGroup) ?? REGISTRATIONS[0];
  const within = underWay.objects > 0 ? Math.min(1, underWay.seen / underWay.objects) : 0;
  const done = Math.round((100 * (Math.max(0, at) + within)) / STEPS.length);
  return {
    key: `registration/${underWay.registrationGroup}/${underWay.registration}`,
    kind: "ThirdPartyResource",
    name: underWay.registration,
    resource: underWay.resource,
    group,
    path: `apis/${group}/${version}/thirdpartyresources/${underWay.registration}`,
    state: underWay.message ? "Blocked" : underWay.undo ? "Turning back" : "Begun",
    tone: underWay.message ? "bad" : "warn",
    message: underWay.message || (STEPS[at]?.[1] ?? ""),
    ...(!underWay.undo && { done }),
    since,
    conditions: [],
    over: false,
    underWay,
  };
}

function registered({ metadata, description = "" }: Registration, group: string, version: string): Row {
  return {
    key: `registration/${group}/${metadata.name}`,
    kind: "ThirdPartyResource",
    name: metadata.name,
    resource: metadata.name,
    group,
    path: `apis/${group}/${version}/thirdpartyresources/${metadata.name}`,
    state: "Not begun",
    tone: "idle",
    message: description,
    since: metadata.creationTimestamp,
    conditions: [],
    over: false,
  };
}

/** Reads the migrations that the viewer may see. Without the right to see requests it fails. */
export async function readRows(workspace: string, signal: AbortSignal): Promise<Row[]> {
  const list = async <T,>(path: string) => (await kube<{ items: T[] }>(`/clusters/${workspace}/${path}`, { signal })).items;
  // Who may not list these sees no migration of them.
  const part = <T,>(path: string) => list<T>(path).catch((): T[] => []);
  const [requests, bindings, definitions, underWay, ...registrations] = await Promise.all([
    list<Request>(REQUESTS),
    part<Owner>(BINDINGS),
    part<Owner>(DEFINITIONS),
    pages<{ migrations: UnderWay[] }, UnderWay>("MigrationService/ListMigrations", { workspace }, ({ migrations }) => migrations, signal).catch(
      (): UnderWay[] => [],
    ),
    ...REGISTRATIONS.map(([group, version]) => part<Registration>(`apis/${group}/${version}/thirdpartyresources`)),
  ]);
  const owners = [...automatic(bindings, BINDINGS), ...automatic(definitions, DEFINITIONS)];
  const asked = requests.map(requested).sort((a, b) => ((a.since ?? "") < (b.since ?? "") ? 1 : -1));
  const steps = underWay.map((one) => begun(one));
  const waiting = REGISTRATIONS.flatMap(([group, version], index) =>
    (registrations[index] ?? []).map((registration) => registered(registration, group, version)),
  ).filter(({ name }) => !underWay.some(({ registration, replacement }) => registration === name || replacement === name));
  return [...steps, ...asked, ...owners, ...waiting];
}

/** Asks that all objects of a resource be written in the storage version. */
export async function request(workspace: string, group: string, resource: string): Promise<void> {
  await kube(`/clusters/${workspace}/${REQUESTS}`, {
    method: "POST",
    body: JSON.stringify({
      apiVersion: "storagemigration.k8s.io/v1beta1",
      kind: "StorageVersionMigration",
      metadata: { generateName: `${resource}-` },
      spec: { resource: { group, resource } },
    }),
  });
}

/** Milliseconds before a step that changed nothing is tried again. */
const PAUSE = 500;
/** Such attempts at most. */
const ATTEMPTS_MAX = 60;

/** Takes the steps of a migration until its end, an obstacle, or the signal. */
export async function advance(workspace: string, from: UnderWay, show: (now: UnderWay) => void, signal: AbortSignal): Promise<void> {
  let now = from;
  for (let attempts = 0; !signal.aborted && attempts < ATTEMPTS_MAX; ) {
    const { resource } = now;
    const message = { workspace, resource, requestId: crypto.randomUUID() };
    const { migration } = await call<{ migration?: UnderWay }>("MigrationService/AdvanceMigration", message, signal);
    if (!migration) return ended(workspace, now);
    const same = JSON.stringify(migration) === JSON.stringify(now);
    now = migration;
    show(now);
    if (now.message) return;
    attempts = same ? attempts + 1 : 0;
    if (same) await new Promise((next) => setTimeout(next, PAUSE));
  }
}

/** A binding that a migration made goes when the migration was turned back. */
async function ended(workspace: string, { undo, replacementKind, replacement }: UnderWay): Promise<void> {
  if (!undo || replacementKind !== "APIBinding") return;
  await kube(`/clusters/${workspace}/${BINDINGS}/${replacement}`, { method: "DELETE" });
}
