// Messages of the admin API, as far as pages show them.

export interface Condition {
  type: string;
  status: string;
  reason: string;
  message: string;
  lastTransitionTime?: string;
  /** The weight of a condition that does not hold, for kinds of kcp: "Info" is no obstacle. */
  severity?: string;
}

export interface Workspace {
  path: string;
  name: string;
  cluster: string;
  phase: string;
  url: string;
  type: string;
  parent: string;
  createTime?: string;
  deleteTime?: string;
  uid: string;
  revision: number;
  conditions: Condition[];
  labels: Record<string, string>;
  annotations: Record<string, string>;
  etag: string;
}

export interface Header {
  revision: number;
}

export interface Limits {
  objects: number;
  requestsInFlight: number;
  requestsPerSecond: number;
  watches: number;
  bytesInFlight: number;
  storageBytes: number;
}

export interface Metered {
  requests: Record<string, number>;
  hour?: string;
  bytesOut: number;
  conversions: number;
}

export interface ResourceUsage {
  group: string;
  resource: string;
  objects: number;
  bytes: number;
}

export interface WorkspaceUsage {
  path: string;
  cluster: string;
  objects: number;
  bytes: number;
  metered?: Metered;
}

export interface Offered {
  group: string;
  resource: string;
  schema: string;
}

export interface Consumer {
  workspace: string;
  cluster: string;
  binding: string;
  phase: string;
  resources: Offered[];
  versions: { version: string; lastUsed?: string }[];
  upToDate: boolean;
  message: string;
  deleteTime?: string;
}

export interface Rollout {
  strategy: string;
  paused: boolean;
  bindings: number;
  current: number;
  held: number;
  waiting: number;
  unbound: number;
  step: number;
  steps: number;
  release: string;
  heldBindings: { workspace: string; binding: string; message: string }[];
  reason: string;
  message: string;
  history: { release: string; endTime?: string; resources: Offered[] }[];
}

export interface Export {
  name: string;
  workspace: string;
  identityHash: string;
  resources: Offered[];
  rollout?: Rollout;
  conditions: Condition[];
  etag: string;
}

/** Returns the sum of requests of all verbs. */
export function requests(metered: Metered | undefined): number {
  return Object.values(metered?.requests ?? {}).reduce((sum, count) => sum + count, 0);
}

/** Returns the condition for which a workspace is stuck. */
export function problem(workspace: Workspace): Condition | undefined {
  if (workspace.phase === "Ready") return workspace.conditions.find((condition) => condition.status === "False");
  return (
    workspace.conditions.find((condition) => condition.status !== "True") ?? {
      type: "Phase",
      status: "False",
      reason: workspace.phase || "Unknown",
      message: `The workspace is ${workspace.phase || "unknown"}.`,
    }
  );
}
