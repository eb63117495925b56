// The use of a workspace and of those below it: objects, bytes, requests, and the limits.

import { useState } from "preact/hooks";
import { ByResource } from "./amounts";
import { call, pages } from "./api";
import { insula, kubectl } from "./command";
import { bytes, count, counted } from "./format";
import type { Column } from "./grid";
import { LimitsOf } from "./limits";
import { Listing } from "./listing";
import { usePolled } from "./live";
import { requests } from "./model";
import type { Metered, ResourceUsage, WorkspaceUsage } from "./model";
import { go, link } from "./router";
import type { Place } from "./router";
import { Bars, Button, LiveBadge, NOT_READ, Problem, fits, save } from "./ui";

/** Seconds between two readings. */
const EVERY = 30;
const SPANS = [
  [1, "the last hour"],
  [24, "24 hours"],
  [168, "7 days"],
  [840, "35 days"],
] as const;
const WRITES = ["create", "update", "patch", "delete", "deletecollection"];

function writes({ metered }: WorkspaceUsage): number {
  return WRITES.reduce((sum, verb) => sum + (metered?.requests[verb] ?? 0), 0);
}

/** Reads what the workspaces directly below one use. */
export async function childrenOf(parent: string, hours: number, signal: AbortSignal): Promise<WorkspaceUsage[]> {
  const items = ({ workspaces }: { workspaces: WorkspaceUsage[] }) => workspaces;
  return pages("QuotaService/ListUsage", { parent, hours }, items, signal);
}

function csvOf(rows: WorkspaceUsage[]): string {
  const verbs = [...new Set(rows.flatMap(({ metered }) => Object.keys(metered?.requests ?? {})))].sort();
  const head = ["workspace", "cluster", "objects", "bytes", ...verbs, "bytesOut", "conversions"];
  const lines = rows.map(({ path, cluster, objects, bytes: stored, metered }) => [
    path,
    cluster,
    objects,
    stored,
    ...verbs.map((verb) => metered?.requests[verb] ?? 0),
    metered?.bytesOut ?? 0,
    metered?.conversions ?? 0,
  ]);
  return [head, ...lines].map((line) => `${line.join(",")}\n`).join("");
}

export function Usage({ place, home }: { place: Place; home: string }) {
  const workspace = place.workspace || home;
  const hours = Number(place.query.get("hours")) || 24;
  const [rows, setRows] = useState<WorkspaceUsage[]>();
  const [query, setQuery] = useState("");
  const live = usePolled(`${workspace} ${hours}`, EVERY, async (signal) => setRows(await childrenOf(workspace, hours, signal)));
  const shown = (rows ?? []).filter(({ path }) => fits(query, path));
  const chosen = place.query.get("show") ?? "";
  const to = (path: string, span: number, show = "") => {
    const wanted = new URLSearchParams({ hours: String(span), ...(show && { show }) });
    return `${link("usage", path)}?${wanted}`;
  };
  const columns: Column<WorkspaceUsage>[] = [
    {
      title: "Workspace",
      width: "minmax(140px, 2fr)",
      order: ({ path }) => path,
      cell: ({ path }) => <a href={to(path, hours)}>{path.slice(workspace.length + 1)}</a>,
    },
    number("Objects", "80px", ({ objects }) => objects, count),
    number("Stored", "84px", ({ bytes: stored }) => stored, bytes),
    number("Reads", "80px", (row) => requests(row.metered) - writes(row), count),
    number("Writes", "80px", writes, count),
    number("Sent", "84px", ({ metered }) => metered?.bytesOut ?? 0, bytes),
    number("Conversions", "104px", ({ metered }) => metered?.conversions ?? 0, count),
  ];
  const tools = (
    <>
      <select aria-label="Span" value={hours} onChange={(event) => go(to(workspace, Number(event.currentTarget.value), chosen))}>
        {SPANS.map(([span, text]) => (
          <option key={span} value={span}>
            {text}
          </option>
        ))}
      </select>
      <Button why={rows ? undefined : NOT_READ} onClick={() => save("usage.csv", csvOf(shown), "text/csv")}>
        Save CSV
      </Button>
    </>
  );
  return (
    <Listing
      label="Usage"
      head={{
        title: workspace,
        kubectl: kubectl(workspace, "get", "logicalcluster", "cluster", "-o", "yaml"),
        insula: insula("ws", "usage", workspace, "--children", "--hours", String(hours)),
        yaml: `/clusters/${workspace}/apis/core.kcp.io/v1alpha1/logicalclusters/cluster`,
        live,
      }}
      what="workspaces"
      query={query}
      change={setQuery}
      found={counted(shown.length, "workspace")}
      tools={tools}
      error={live.error}
      ready={rows !== undefined}
      columns={columns}
      rows={shown}
      keyOf={({ path }) => path}
      chosen={chosen}
      choose={({ path }) => go(to(workspace, hours, path), "replace")}
      open={({ path }) => go(to(path, hours))}
      empty={query ? "No workspace has these words." : `No workspace is directly below ${workspace}.`}
    >
      <One key={`${chosen || workspace} ${hours}`} workspace={chosen || workspace} hours={hours} />
    </Listing>
  );
}

function number(title: string, width: string, value: (row: WorkspaceUsage) => number, text: (value: number) => string): Column<WorkspaceUsage> {
  return { title, width, number: true, order: value, cell: (row) => text(value(row)) };
}

interface Used {
  resources: ResourceUsage[];
  metered: Metered[];
  requestsInFlight: number;
  watches: number;
  bytesInFlight: number;
}

function One({ workspace, hours }: { workspace: string; hours: number }) {
  const [used, setUsed] = useState<Used>();
  const live = usePolled(`${workspace} ${hours}`, EVERY, async (signal) => {
    setUsed(await call<Used>("QuotaService/GetUsage", { workspace, hours }, signal));
  });
  return (
    <aside class="details" aria-label={`Usage of ${workspace}`}>
      <header>
        <h2>{workspace}</h2>
        <a href={link("workspaces", workspace)}>Workspace</a>
        {live.state === "stale" && <LiveBadge live={live} />}
      </header>
      {live.error !== undefined && <Problem error={live.error} />}
      {used && (
        <>
          <LimitsOf
            workspace={workspace}
            used={{
              objects: used.resources.reduce((sum, { objects }) => sum + objects, 0),
              storageBytes: used.resources.reduce((sum, { bytes: stored }) => sum + stored, 0),
              requestsInFlight: used.requestsInFlight,
              watches: used.watches,
              bytesInFlight: used.bytesInFlight,
            }}
          />
          <Rates metered={used.metered} hours={hours} />
          <Resources resources={used.resources} />
        </>
      )}
    </aside>
  );
}

/** Bars of a chart at most. */
const BARS_MAX = 60;

function Rates({ metered, hours }: { metered: Metered[]; hours: number }) {
  const hour = 3600 * 1000;
  const last = Math.floor(Date.now() / hour);
  const each = Math.ceil(hours / BARS_MAX);
  const bars = Math.ceil(hours / each);
  const sums = (value: (some: Metered) => number) => {
    const values = new Array<number>(bars).fill(0);
    for (const some of metered) {
      if (!some.hour) continue;
      const back = Math.floor((last - Math.floor(Date.parse(some.hour) / hour)) / each);
      const index = bars - 1 - back;
      values[index] = (values[index] ?? 0) + value(some);
    }
    return values;
  };
  const verbs = new Map<string, number>();
  for (const some of metered) {
    for (const [verb, times] of Object.entries(some.requests)) verbs.set(verb, (verbs.get(verb) ?? 0) + times);
  }
  const all = [...verbs.values()].reduce((sum, times) => sum + times, 0);
  const unit = each === 1 ? "the hour" : `${each} hours`;
  return (
    <section>
      <h3>
        {count(all)} requests, by {unit}
      </h3>
      <Bars values={sums((some) => requests(some))} label={`${count(all)} requests, by ${unit}`} />
      <p class="faint">{[...verbs].map(([verb, times]) => `${verb} ${count(times)}`).join(", ") || "None was metered."}</p>
    </section>
  );
}

function Resources({ resources }: { resources: ResourceUsage[] }) {
  const most = Math.max(1, ...resources.map(({ bytes: stored }) => stored));
  const sorted = [...resources].sort((a, b) => b.bytes - a.bytes);
  const share = ({ bytes: stored }: ResourceUsage) => (
    <span class="share short">
      <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
        <rect width={Math.max(1, (stored / most) * 100)} height="8" rx="1.5" />
      </svg>
    </span>
  );
  return (
    <section>
      <h3>Objects by resource</h3>
      <ByResource resources={sorted} last={["Share", share]} />
    </section>
  );
}
