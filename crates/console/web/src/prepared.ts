// Schemas that somebody prepared for the next release of an export: they are there, and not on offer.

import { kube } from "./api";
import type { Export, Offered } from "./model";

/** What is read of a schema: its name, which ends in that of the resource, and its age. */
export interface Known {
  name: string;
  created: string;
}

interface Metadata {
  items: { metadata: { name: string; creationTimestamp: string } }[];
  metadata: { continue?: string };
}

/** The names and ages alone: schemas themselves may be large. */
const NAMES = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/** The path of the schemas of a workspace in the Kubernetes API. */
export function schemasPath(workspace: string): string {
  return `/clusters/${workspace}/apis/apis.kcp.io/v1alpha1/apiresourceschemas`;
}

/** Reads the names of all schemas of a workspace. */
export async function schemasOf(workspace: string, signal: AbortSignal): Promise<Known[]> {
  const known: Known[] = [];
  let next = "";
  do {
    const query = new URLSearchParams({ limit: "500", ...(next && { continue: next }) });
    const page = await kube<Metadata>(`${schemasPath(workspace)}?${query}`, { headers: { Accept: NAMES }, signal });
    known.push(...page.items.map(({ metadata }) => ({ name: metadata.name, created: metadata.creationTimestamp })));
    next = page.metadata.continue ?? "";
  } while (next !== "");
  return known;
}

/** Returns the part of a schema's name that says of which resource it is. */
export function suffix(schema: string): string {
  return schema.split(".").slice(1).join(".");
}

/** Returns the schema of each resource that waits for its release: the newest one, if it is newer than the
 * one on offer and was not on offer before. A release that was taken back does not wait. */
export function prepared(resources: Offered[], history: { resources: Offered[] }[], known: Known[]): string[] {
  const before = new Set(history.flatMap((release) => release.resources.map(({ schema }) => schema)));
  return resources.flatMap(({ schema }) => {
    const offered = known.find(({ name }) => name === schema);
    if (offered === undefined) return [];
    const [newest] = known
      .filter(({ name, created }) => suffix(name) === suffix(schema) && created > offered.created && !before.has(name))
      .sort((a, b) => (a.created === b.created ? (a.name < b.name ? 1 : -1) : a.created < b.created ? 1 : -1));
    return newest ? [newest.name] : [];
  });
}

/** Returns the schemas of the next release: those that were prepared, and of other resources those on offer. */
export function nextOf(exported: Export, waiting: string[]): string[] {
  return exported.resources.map(({ schema }) => waiting.find((one) => suffix(one) === suffix(schema)) ?? schema);
}
