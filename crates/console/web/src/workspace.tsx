// One workspace: its state, why it is not ready, what it uses, and how to reach it.

import { useState } from "preact/hooks";
import { ByResource } from "./amounts";
import { call } from "./api";
import { insula, kubectl } from "./command";
import { bytes, count, utc } from "./format";
import { Parts, usePolled } from "./live";
import { requests } from "./model";
import type { Limits, Metered, ResourceUsage, Workspace } from "./model";
import { link } from "./router";
import { Badge, Bar, Bars, Conditions, Copy, LiveBadge, Problem, ViewYaml } from "./ui";
import { tone } from "./workspaces";

interface Finding {
  subject: string;
  cause: string;
  fix: string;
}

interface State {
  workspace?: Workspace;
  freeze?: { reason: string; by: string; time?: string };
  findings?: Finding[];
  remaining?: { resource: string; count: number }[];
  resources?: ResourceUsage[];
  metered?: Metered[];
  watches?: number;
  limits?: Limits;
  /** Causes within it are not shown. */
  partial?: boolean;
}

/** Reads what the viewer may see of a workspace; parts that they may not see are missing. */
async function read(path: string, parts: Parts, signal: AbortSignal): Promise<State> {
  const got = await call<{ workspace: Workspace; freeze?: NonNullable<State["freeze"]> }>(
    "WorkspaceService/GetWorkspace",
    { workspace: path },
    signal,
  );
  const part = <T,>(method: string) => parts.take(call<T>(method, { workspace: path }, signal));
  const [explained, usage, limits] = await Promise.all([
    part<{ findings: Finding[]; remaining: { resource: string; count: number }[]; partial: boolean }>(
      "WorkspaceService/ExplainWorkspace",
    ),
    part<{ resources: ResourceUsage[]; metered: Metered[]; watches: number }>("QuotaService/GetUsage"),
    part<{ effective: Limits }>("QuotaService/GetLimits"),
  ]);
  return {
    workspace: got.workspace,
    ...(got.freeze && { freeze: got.freeze }),
    ...(explained && { findings: explained.findings, remaining: explained.remaining, partial: explained.partial }),
    ...(usage && { resources: usage.resources, metered: usage.metered, watches: usage.watches }),
    ...(limits && { limits: limits.effective }),
  };
}

interface DetailsProps {
  path: string;
  /** The workspace of the page, which the commands show when none is chosen. */
  root: string;
  fresh: number;
}

/** Seconds between two looks at what a workspace uses. */
const LOOK = 30;

export function Details({ path, root, fresh }: DetailsProps) {
  const [state, setState] = useState<State>({});
  const live = usePolled(`${path} ${fresh}`, LOOK, async (signal) => {
    if (path === "") return;
    const parts = new Parts();
    const now = await read(path, parts, signal);
    setState((before) => parts.over(before, now));
    if (parts.failed !== undefined) throw parts.failed;
  });
  if (path === "") {
    return (
      <aside class="details empty" aria-label="Workspace">
        <div class="actions">
          <Copy text={kubectl(root, "get", "workspaces")}>Copy kubectl</Copy>
          <Copy text={insula("ws", "tree", "-W", root)}>Copy insula</Copy>
          <ViewYaml path={`/clusters/${root}/apis/tenancy.kcp.io/v1alpha1/workspaces?limit=50`} />
        </div>
        <p>Choose a workspace: with the mouse, or with the arrow keys.</p>
        <dl class="keys">
          <dt>
            <kbd>/</kbd>
          </dt>
          <dd>search</dd>
          <dt>
            <kbd>↑</kbd> <kbd>↓</kbd>
          </dt>
          <dd>move</dd>
          <dt>
            <kbd>→</kbd> <kbd>←</kbd>
          </dt>
          <dd>open and close</dd>
        </dl>
      </aside>
    );
  }
  const { workspace } = state;
  return (
    <aside class="details" aria-label={`Workspace ${path}`}>
      <header>
        <h2>{path}</h2>
        {workspace && <Badge tone={tone(workspace)}>{workspace.phase || "Pending"}</Badge>}
        {live.state === "stale" && <LiveBadge live={live} />}
      </header>
      {live.error !== undefined && <Problem error={live.error} />}
      {workspace && <Body state={state} workspace={workspace} />}
    </aside>
  );
}

function Body({ state, workspace }: { state: State; workspace: Workspace }) {
  const { path, parent, name } = workspace;
  const isRoot = parent === "";
  const object = isRoot
    ? `/clusters/${path}/apis/core.kcp.io/v1alpha1/logicalclusters/cluster`
    : `/clusters/${parent}/apis/tenancy.kcp.io/v1alpha1/workspaces/${name}`;
  const get = isRoot ? ["logicalcluster", "cluster"] : ["workspace", name];
  return (
    <>
      <div class="actions">
        <Copy text={kubectl(isRoot ? path : parent, "get", ...get, "-o", "yaml")}>Copy kubectl</Copy>
        <Copy text={insula("ws", "explain", path)}>Copy insula</Copy>
        <ViewYaml path={object} />
        <a class="button" href={link("exports", path)}>
          Exports
        </a>
      </div>
      {state.freeze && (
        <p class="note">
          <Badge tone="idle">Frozen</Badge> by {state.freeze.by}, {utc(state.freeze.time)}: {state.freeze.reason}
        </p>
      )}
      {workspace.deleteTime && (
        <p class="note">
          <Badge tone="warn">Deleted</Badge> It can be brought back until {utc(workspace.deleteTime)}:{" "}
          <code>insula ws undelete {path}</code>
        </p>
      )}
      {(state.findings?.length ?? 0) > 0 && (
        <section>
          <h3>Why it is not ready</h3>
          <ul class="findings">
            {state.findings?.map((finding) => (
              <li key={finding.subject + finding.cause}>
                <strong>{finding.subject}</strong> {finding.cause}
                {finding.fix && <span class="fix">Fix: {finding.fix}</span>}
              </li>
            ))}
          </ul>
          {(state.remaining?.length ?? 0) > 0 && (
            <p>Objects that are left: {state.remaining?.map(({ resource, count: some }) => `${count(some)} ${resource}`).join(", ")}</p>
          )}
          {state.partial && <p class="faint">You may not enter this workspace: causes within it are not shown.</p>}
        </section>
      )}
      <Facts workspace={workspace} />
      {state.resources && <Usage state={state} resources={state.resources} />}
      {state.metered && <Rate metered={state.metered} watches={state.watches ?? 0} />}
      <Conditions conditions={workspace.conditions} />
    </>
  );
}

function Facts({ workspace }: { workspace: Workspace }) {
  const labels = Object.entries(workspace.labels).filter(([key]) => !key.includes("kcp.io/"));
  return (
    <dl class="facts">
      <dt>Type</dt>
      <dd>{workspace.type}</dd>
      <dt>Cluster</dt>
      <dd>
        <code>{workspace.cluster}</code>
      </dd>
      <dt>Created</dt>
      <dd>{utc(workspace.createTime)}</dd>
      {labels.length > 0 && (
        <>
          <dt>Labels</dt>
          <dd>
            {labels.map(([key, value]) => (
              <code key={key}>
                {key}={value}
              </code>
            ))}
          </dd>
        </>
      )}
    </dl>
  );
}

/** Resources that are shown by name. */
const RESOURCES_MAX = 8;

function Usage({ state, resources }: { state: State; resources: ResourceUsage[] }) {
  const objects = resources.reduce((sum, { objects: some }) => sum + some, 0);
  const stored = resources.reduce((sum, { bytes: some }) => sum + some, 0);
  const sorted = [...resources].sort((a, b) => b.objects - a.objects || b.bytes - a.bytes);
  const shown = sorted.slice(0, RESOURCES_MAX);
  return (
    <section>
      <h3>Objects</h3>
      {state.limits && (
        <dl class="facts">
          <dt>Objects</dt>
          <dd>
            {count(objects)}{" "}
            <Bar used={objects} limit={state.limits.objects} label={`of ${count(state.limits.objects)}`} />
          </dd>
          <dt>Stored</dt>
          <dd>
            {bytes(stored)}{" "}
            <Bar used={stored} limit={state.limits.storageBytes} label={`of ${bytes(state.limits.storageBytes)}`} />
          </dd>
        </dl>
      )}
      <ByResource resources={shown} />
      {sorted.length > shown.length && <p class="faint">and {sorted.length - shown.length} more resources</p>}
    </section>
  );
}

function Rate({ metered, watches }: { metered: Metered[]; watches: number }) {
  const hour = 3600 * 1000;
  const last = Math.floor(Date.now() / hour);
  const values = Array.from({ length: 24 }, (_, index) => {
    const wanted = last - 23 + index;
    return requests(metered.find((some) => some.hour && Math.floor(Date.parse(some.hour) / hour) === wanted));
  });
  const all = values.reduce((sum, value) => sum + value, 0);
  return (
    <section>
      <h3>Requests in 24 hours</h3>
      <Bars values={values} label={`${count(all)} requests in 24 hours, by the hour`} />
      <p class="faint">
        {count(all)} requests, {count(metered.reduce((sum, some) => sum + some.conversions, 0))} conversions,{" "}
        {count(watches)} open watches
      </p>
    </section>
  );
}
