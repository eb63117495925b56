// The kinds of objects of a workspace, by discovery, and their paths in the API.

import { kube } from "./api";
import { objectArgs } from "./command";

export interface Kind {
  group: string;
  version: string;
  resource: string;
  kind: string;
  namespaced: boolean;
  verbs: string[];
}

interface Discovery {
  items: {
    metadata?: { name?: string };
    versions?: {
      version: string;
      resources?: { resource: string; responseKind?: { kind: string }; scope: string; verbs: string[] }[];
    }[];
  }[];
}

const AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/** Returns the kinds that can be listed, each in each served version, the preferred one first. */
export async function kindsOf(workspace: string, signal: AbortSignal): Promise<Kind[]> {
  const headers = { Accept: AGGREGATED };
  const read = (root: string) => kube<Discovery>(`/clusters/${workspace}/${root}`, { headers, signal });
  const groups = await Promise.all([read("api"), read("apis")]);
  return groups
    .flatMap(({ items }) => items)
    .flatMap(({ metadata, versions = [] }) =>
      versions.flatMap(({ version, resources = [] }) =>
        resources.map(({ resource, responseKind, scope, verbs }) => ({
          group: metadata?.name ?? "",
          version,
          resource,
          kind: responseKind?.kind ?? "",
          namespaced: scope === "Namespaced",
          verbs,
        })),
      ),
    )
    .filter(({ verbs }) => verbs.includes("list"));
}

/** Returns a kind as addresses name it, and kubectl outside of the core group: "widgets.v1.example.io". */
export function named({ resource, version, group }: Pick<Kind, "resource" | "version" | "group">): string {
  return [resource, version, group].filter(Boolean).join(".");
}

/** Returns the path of a kind in the API; that of an object with a name. */
export function pathOf(workspace: string, kind: Kind, namespace = "", name = ""): string {
  const root = kind.group === "" ? `api/${kind.version}` : `apis/${kind.group}/${kind.version}`;
  const within = kind.namespaced && namespace !== "" ? `/namespaces/${encodeURIComponent(namespace)}` : "";
  const object = name === "" ? "" : `/${encodeURIComponent(name)}`;
  return `/clusters/${workspace}/${root}${within}/${kind.resource}${object}`;
}

/** Returns the path that watches one object among those of a path. */
export function watchOf(path: string, name: string): string {
  // Names of roles may have the characters of a selector.
  const value = name.replaceAll(/[\\,=]/g, String.raw`\$&`);
  return `${path}?watch=true&fieldSelector=${encodeURIComponent(`metadata.name=${value}`)}`;
}

/** Returns the arguments of kubectl for a kind, a namespace and a name. */
export function commandOf(kind: Kind, namespace: string, name = ""): string[] {
  const scope = !kind.namespaced ? [] : namespace === "" ? ["-A"] : ["-n", namespace];
  // kubectl takes "configmaps.v1" for a resource of the group "v1".
  const type = kind.group === "" ? kind.resource : named(kind);
  const object = name === "" ? [type] : [...objectArgs(type, name), "-o", "yaml"];
  return ["get", ...object, ...scope];
}
