// Traffic: requests by workspace, and those of the server by verb. Rates are those between the readings of
// the page; the server keeps no series for each workspace.

import { useRef, useState } from "preact/hooks";
import { call, text } from "./api";
import { insula, kubectlRaw } from "./command";
import { bytes, count, counted, duration } from "./format";
import type { Column } from "./grid";
import { Listing } from "./listing";
import { Parts, oldest, usePolled } from "./live";
import type { Polled } from "./live";
import { parseMetrics, quantile, sum, value } from "./metrics";
import type { Sample } from "./metrics";
import { requests } from "./model";
import type { Metered } from "./model";
import { RATES_MAX, Readings } from "./rates";
import { go, link } from "./router";
import type { Place } from "./router";
import { LiveBadge, Problem, fits } from "./ui";
import { childrenOf } from "./usage";

/** Seconds between two readings. */
const EVERY = 10;
/** Workspaces that are read so often; of more, all are read less often. */
const MANY = 1000;
/** Hours of the numbers that rates are made of: the hour that runs. */
const HOURS = 1;

/** A workspace with its requests. */
interface Row {
  path: string;
  metered: Metered | undefined;
}

interface Own {
  metered: Metered[];
  requestsInFlight: number;
  watches: number;
}

function usageOf(workspace: string, signal?: AbortSignal): Promise<Own> {
  return call<Own>("QuotaService/GetUsage", { workspace, hours: HOURS }, signal);
}

/** Reads the requests of a workspace and those directly below it. */
async function read(workspace: string, parts: Parts, signal: AbortSignal): Promise<Row[]> {
  const [below, own] = await Promise.all([childrenOf(workspace, HOURS, signal), parts.take(usageOf(workspace, signal))]);
  const itself = own ? [{ path: workspace, metered: own.metered.at(-1) }] : [];
  const rows = below.map(({ path, metered }) => ({ path, metered }));
  return [...itself, ...rows];
}

const VERBS = ["Get", "List", "Watch", "Create", "Update", "Patch", "Delete", "DeleteCollection", "Other"];
const REQUESTS = "insula_requests_total";

/** Returns the counters of the server whose rates are shown. */
function countersOf(metrics: Sample[]): Map<string, number> {
  const all = sum(metrics, REQUESTS, {});
  return new Map([
    ["requests", all],
    ["errors", all - sum(metrics, REQUESTS, { code: "Success" })],
    ["throttled", sum(metrics, "insula_rejected_requests_total", {})],
    ["conversions", sum(metrics, "insula_conversions_total", {})],
    ...VERBS.map((verb): [string, number] => [verb, sum(metrics, REQUESTS, { verb })]),
  ]);
}

/** Returns the requests of a workspace by verb, as counters. The one by its path alone is a sign that they
 * were read: a verb that it did not use yet is not among them. */
function byVerb({ path, metered }: Row): [string, number][] {
  const verbs = Object.entries(metered?.requests ?? {}).map(([verb, times]): [string, number] => [`${path} ${verb}`, times]);
  return [[path, requests(metered)], ...verbs];
}

export function Traffic({ place, home }: { place: Place; home: string }) {
  const workspace = place.workspace || home;
  const [rows, setRows] = useState<Row[]>();
  const [query, setQuery] = useState("");
  const tenants = useRef(new Readings()).current;
  const verbs = useRef(new Readings(1)).current;
  const server = useServer();
  const every = EVERY * Math.max(1, Math.ceil((rows?.length ?? 0) / MANY));
  const live = usePolled(workspace, every, async (signal) => {
    const parts = new Parts();
    const now = await read(workspace, parts, signal);
    setRows((before) => (parts.failed === undefined ? now : (before ?? now)));
    if (parts.failed !== undefined) throw parts.failed;
    const time = Date.now();
    tenants.add(time, new Map(now.map(({ path, metered }) => [path, requests(metered)])));
    verbs.add(time, new Map(now.flatMap(byVerb)));
  });
  const chosen = place.query.get("show") ?? "";
  const to = (path: string, show = "") => link("traffic", path) + (show && `?${new URLSearchParams({ show })}`);
  const rate = ({ path }: Row) => tenants.rate(path) ?? 0;
  // The busiest first; of equals, the one with the most requests in this hour.
  const busiest = (rows ?? [])
    .filter(({ path }) => fits(query, path))
    .sort((a, b) => rate(b) - rate(a) || requests(b.metered) - requests(a.metered) || (a.path < b.path ? -1 : 1));
  const most = Math.max(0, ...busiest.map(({ path }) => highest(tenants.rates(path))));
  const columns: Column<Row>[] = [
    {
      title: "Workspace",
      width: "minmax(140px, 2fr)",
      order: ({ path }) => path,
      cell: ({ path }) => (path === workspace ? `${path} itself` : <a href={to(path)}>{path.slice(workspace.length + 1)}</a>),
    },
    {
      title: "Per second",
      width: "88px",
      number: true,
      order: rate,
      cell: ({ path }) => tenants.rate(path)?.toFixed(1) ?? "",
    },
    {
      title: "Since opened",
      width: "130px",
      cell: ({ path }) => <Spark rates={tenants.rates(path)} most={most} label={`Requests of ${path}`} />,
    },
    { title: "This hour", width: "84px", number: true, order: (row) => requests(row.metered), cell: ({ metered }) => count(requests(metered)) },
    { title: "Sent", width: "84px", number: true, order: sent, cell: (row) => bytes(sent(row)) },
    { title: "Conversions", width: "104px", number: true, order: conversions, cell: (row) => count(conversions(row)) },
  ];
  const one = busiest.find(({ path }) => path === chosen);
  return (
    <Listing
      label="Traffic"
      head={{
        title: workspace,
        kubectl: kubectlRaw("/metrics"),
        insula: insula("ws", "usage", workspace, "--children", "--hours", String(HOURS)),
        yaml: { name: insula("ws", "usage", workspace, "--hours", String(HOURS)), read: () => usageOf(workspace) },
        live: oldest(live, server.live),
      }}
      what="workspaces"
      query={query}
      change={setQuery}
      found={counted(busiest.length, "workspace")}
      error={live.error}
      ready={rows !== undefined}
      columns={columns}
      rows={busiest}
      keyOf={({ path }) => path}
      chosen={chosen}
      choose={({ path }) => go(to(workspace, path), "replace")}
      open={({ path }) => go(to(path))}
      empty={query ? "No workspace has these words." : `No workspace is directly below ${workspace}.`}
    >
      <aside class="details" aria-label={`Traffic of ${chosen || "the server"}`}>
        {one && <One key={one.path} row={one} all={tenants.rates(one.path)} verbs={verbs} />}
        <Server server={server} />
      </aside>
    </Listing>
  );
}

/** Returns the highest rate; 0 without any. */
function highest(rates: (number | undefined)[]): number {
  return rates.reduce<number>((most, rate) => Math.max(most, rate ?? 0), 0);
}

function sent({ metered }: Row): number {
  return metered?.bytesOut ?? 0;
}

function conversions({ metered }: Row): number {
  return metered?.conversions ?? 0;
}

interface SparkProps {
  rates: (number | undefined)[];
  /** The rate of a whole bar. */
  most: number;
  label: string;
  class?: string;
}

/** The rates since the page was opened, the newest at the right. */
function Spark({ rates, most, label, class: style = "spark" }: SparkProps) {
  const newest = rates.at(-1);
  const text = `${label}: ${newest === undefined ? "no rate yet" : `${newest.toFixed(1)} in a second`}`;
  return (
    <svg class={style} viewBox={`0 0 ${RATES_MAX * 4} 36`} preserveAspectRatio="none" role="img" aria-label={text}>
      {rates.map((rate, index) => {
        if (rate === undefined) return null;
        const height = rate === 0 ? 1 : Math.max(2, (rate / Math.max(most, 0.001)) * 36);
        const x = (RATES_MAX - rates.length + index) * 4;
        return <rect class={rate === 0 ? "track" : ""} key={index} x={x} y={36 - height} width="3" height={height} />;
      })}
    </svg>
  );
}

interface OneProps {
  row: Row;
  all: (number | undefined)[];
  verbs: Readings;
}

function One({ row: { path, metered }, all, verbs }: OneProps) {
  const [own, setOwn] = useState<Own>();
  const live = usePolled(path, EVERY, async (signal) => setOwn(await usageOf(path, signal)));
  const named = Object.entries(metered?.requests ?? {});
  const rate = (verb: string) => verbs.rate(`${path} ${verb}`, path);
  named.sort(([a, times], [b, others]) => (rate(b) ?? 0) - (rate(a) ?? 0) || others - times);
  return (
    <section>
      <header>
        <h2>{path}</h2>
        <a href={link("usage", path)}>Usage</a>
        {live.state === "stale" && <LiveBadge live={live} />}
      </header>
      {live.error !== undefined && <Problem error={live.error} />}
      <Spark class="bars" rates={all} most={highest(all)} label={`Requests of ${path}`} />
      {own && (
        <p class="faint">
          {counted(own.requestsInFlight, "request")} in flight, {count(own.watches)} open {own.watches === 1 ? "watch" : "watches"}, on the
          server that answers
        </p>
      )}
      <table>
        <thead>
          <tr>
            <th scope="col">Verb</th>
            <th scope="col" class="number">
              Per second
            </th>
            <th scope="col" class="number">
              This hour
            </th>
          </tr>
        </thead>
        <tbody>
          {named.map(([verb, times]) => (
            <tr key={verb}>
              <td>{verb}</td>
              <td class="number">{rate(verb)?.toFixed(1) ?? ""}</td>
              <td class="number">{count(times)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {named.length === 0 && <p class="faint">No request was metered in this hour.</p>}
    </section>
  );
}

/** The figures of the server that answers. */
interface Figures {
  metrics: Sample[] | undefined;
  readings: Readings;
  live: Polled;
}

/** Reads the figures of the server that answers, whether those of workspaces can be read or not. */
function useServer(): Figures {
  const [metrics, setMetrics] = useState<Sample[]>();
  const readings = useRef(new Readings()).current;
  const live = usePolled("metrics", EVERY, async (signal) => {
    const now = parseMetrics(await text("/metrics", signal));
    readings.add(Date.now(), countersOf(now));
    setMetrics(now);
  });
  return { metrics, readings, live };
}

function Server({ server: { metrics, readings, live } }: { server: Figures }) {
  if (live.state === "refused") {
    return <p class="faint">Requests of the server by verb, with their times, are for administrators of the installation.</p>;
  }
  return (
    <section>
      <header>
        <h3>The server that answers</h3>
        {live.state === "stale" && <LiveBadge live={live} />}
      </header>
      {live.error !== undefined && <Problem error={live.error} />}
      {metrics && <ByVerb metrics={metrics} readings={readings} />}
    </section>
  );
}

/** Requests of a server by verb: since its start, and since the last reading. */
function ByVerb({ metrics, readings }: { metrics: Sample[]; readings: Readings }) {
  const rates = readings.rates("requests");
  const now = (name: string) => readings.rate(name)?.toFixed(1) ?? "";
  // Before the second reading there is no rate to tell.
  const inSecond = (name: string) => (now(name) ? `, ${now(name)} in a second` : "");
  const of = (name: string) => count(sum(metrics, name, {}));
  const number = (name: string) => count(value(metrics, name) ?? 0);
  const rows = VERBS.map((verb) => ({ verb, all: sum(metrics, REQUESTS, { verb }) })).filter(({ all }) => all > 0);
  rows.sort((a, b) => (readings.rate(b.verb) ?? 0) - (readings.rate(a.verb) ?? 0) || b.all - a.all);
  const time = (verb: string, share: number) => duration(quantile(metrics, "insula_request_duration_seconds", share, { verb }));
  const facts = [
    ["Requests", now("requests") ? `${now("requests")} in a second, ${now("errors")} of them errors` : "A rate comes with the next reading."],
    ["Watches", `${number("insula_watches")} open, by ${number("insula_connections")} connections`],
    ["Throttled", `${of("insula_rejected_requests_total")} refused by limits${inSecond("throttled")}`],
    [
      "Conversions",
      `${of("insula_conversions_total")} objects, ${of("insula_conversion_failures_total")} failed${inSecond("conversions")}`,
    ],
  ] as const;
  return (
    <>
      <Spark class="bars" rates={rates} most={highest(rates)} label="Requests of the server" />
      <dl class="facts wide">
        {facts.map(([title, text]) => (
          <>
            <dt>{title}</dt>
            <dd>{text}</dd>
          </>
        ))}
      </dl>
      <table>
        <thead>
          <tr>
            <th scope="col">Verb</th>
            {["Per second", "Requests", "Errors", "p50", "p99"].map((title) => (
              <th scope="col" class="number" key={title}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ verb, all }) => (
            <tr key={verb}>
              <td>{verb}</td>
              <td class="number">{now(verb)}</td>
              <td class="number">{count(all)}</td>
              <td class="number">{count(all - sum(metrics, REQUESTS, { verb, code: "Success" }))}</td>
              <td class="number">{time(verb, 0.5)}</td>
              <td class="number">{time(verb, 0.99)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="faint">Requests, errors and times since its start; rates since the reading before.</p>
    </>
  );
}
