// The graph of one export with its bindings.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { call } from "./api";
import { insula, kubectl } from "./command";
import { List, pathOf } from "./exports-list";
import { count, counted, utc } from "./format";
import { SINGLE_MAX, STATES, picture, sorted, stateOf, toneOf, versionsOf } from "./graph";
import type { Picture, State } from "./graph";
import { watchOf } from "./kinds";
import { useLive } from "./live";
import type { Consumer, Export, Header } from "./model";
import { go, link } from "./router";
import type { Place } from "./router";
import { Stored } from "./stored";
import { Badge, Copy, LiveBadge, Problem, Search, ViewYaml, useRows } from "./ui";
import type { Live } from "./ui";

export function Exports({ place, home }: { place: Place; home: string }) {
  if (place.workspace !== "" && place.name !== "") return <Graph place={place} />;
  return <List workspace={place.workspace || home} page="exports" />;
}

interface Shown {
  export: Export;
  consumers: Consumer[];
  versions: { version: string; workspaces: number; lastUsed?: string }[];
  days: number;
}

async function read(workspace: string, name: string, signal: AbortSignal): Promise<Shown> {
  const request = { workspace, export: name };
  const got = await call<{ export: Export }>("ApiService/GetExport", request, signal);
  const consumers: Consumer[] = [];
  let pageToken = "";
  do {
    const page = await call<{ header: Header; consumers: Consumer[]; nextPageToken: string }>(
      "ApiService/ListConsumers",
      { ...request, pageSize: 1000, pageToken },
      signal,
    );
    consumers.push(...page.consumers);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  const usage = await call<{ versions: Shown["versions"]; days: number }>("ApiService/GetVersionUsage", request, signal);
  return { export: got.export, consumers: sorted(consumers), versions: usage.versions, days: usage.days };
}

/** Follows one export: reads at first, and after each change of it or of what other paths watch. */
export function useExport(
  workspace: string,
  name: string,
  read: (signal: AbortSignal) => Promise<void>,
  others: string[] = [],
): { live: Live; error: unknown } {
  const [error, setError] = useState<unknown>();
  const live = useLive([watchOf(pathOf(workspace), name), ...others], async (signal) => {
    try {
      await read(signal);
      setError(undefined);
    } catch (failed) {
      if (!signal.aborted) setError(failed);
      throw failed;
    }
  });
  return { live, error };
}

interface ExportBarProps {
  page: string;
  workspace: string;
  name: string;
  /** The command of `insula export` that shows the same. */
  command: string;
  live: Live;
  children: ComponentChildren;
}

/** The head of a page about one export. */
export function ExportBar({ page, workspace, name, command, live, children }: ExportBarProps) {
  return (
    <div class="toolbar">
      <h2>
        <a href={link(page, workspace)}>{workspace}</a> / {name}
      </h2>
      <Copy text={kubectl(workspace, "get", "apiexport", name, "-o", "yaml")}>Copy kubectl</Copy>
      <Copy text={insula("export", command, name, "--workspace", workspace)}>Copy insula</Copy>
      <ViewYaml path={`${pathOf(workspace)}/${encodeURIComponent(name)}`} />
      {children}
      <LiveBadge live={live} />
    </div>
  );
}

/** What bindings are shown, as the address says. */
interface Filter {
  state?: State | undefined;
  /** A version that they used: "widgets.example.io/v1". */
  version?: string | undefined;
  /** All versions that they used, as boxes name them: "v1 v2". */
  uses?: string | undefined;
}

const FILTERS = ["state", "version", "uses"] as const;
const DAY = 24 * 3600 * 1000;

/** Returns true for a binding that used a version within the days that count. */
function used({ versions }: Consumer, wanted: string, days: number): boolean {
  const since = Date.now() - days * DAY;
  return versions.some(({ version, lastUsed }) => version === wanted && (!lastUsed || Date.parse(lastUsed) >= since));
}

function Graph({ place }: { place: Place }) {
  const { workspace, name } = place;
  const [shown, setShown] = useState<Shown>();
  const [query, setQuery] = useState("");
  const filter = Object.fromEntries(FILTERS.map((key) => [key, place.query.get(key) ?? undefined])) as Filter;
  const { state: only, version, uses } = filter;
  const choose = (change: Filter) => {
    const wanted = Object.entries({ ...filter, ...change }).filter((pair): pair is [string, string] => typeof pair[1] === "string");
    const search = new URLSearchParams(wanted);
    go(link("exports", workspace, name) + (search.size > 0 ? `?${search}` : ""));
  };
  const { live, error } = useExport(workspace, name, async (signal) => setShown(await read(workspace, name, signal)));
  const consumers = useMemo(() => {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    return (shown?.consumers ?? []).filter((consumer) => {
      if (only && stateOf(consumer) !== only) return false;
      if (version && !used(consumer, version, shown?.days ?? 0)) return false;
      if (uses !== undefined && versionsOf(consumer) !== uses) return false;
      const text = `${consumer.workspace} ${consumer.binding} ${versionsOf(consumer)} ${consumer.message}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }, [shown, only, version, uses, query]);
  const drawn = useMemo(() => shown && picture(name, workspace, consumers), [shown, consumers, name, workspace]);
  return (
    <div class="page">
      <ExportBar page="exports" workspace={workspace} name={name} command="consumers" live={live}>
        <a class="button" href={link("releases", workspace, name)}>
          Release
        </a>
      </ExportBar>
      {error !== undefined && <Problem error={error} />}
      {shown && drawn && (
        <div class="columns">
          <section class="card fill">
            <header>
              <h2 data-count={consumers.length}>
                {counted(consumers.length, "binding")}
                {consumers.length > SINGLE_MAX && <span class="faint"> by state and versions in use</span>}
              </h2>
              {uses !== undefined && (
                <button type="button" aria-pressed="true" onClick={() => choose({ uses: undefined })}>
                  {uses ? `using ${uses}` : "using no version"}
                </button>
              )}
              <States consumers={shown.consumers} only={only} choose={(state) => choose({ state })} />
            </header>
            <Drawing drawn={drawn} choose={(state, label) => choose({ state, uses: label })} />
          </section>
          <div class="fill">
          <section class="card">
            <header>
              <h2>Versions in use</h2>
            </header>
            <Versions shown={shown} only={version} choose={(one) => choose({ version: one })} />
          </section>
          <Stored workspace={workspace} name={name} />
          <section class="card consumers">
            <header>
              <h2>Bindings</h2>
              <Search what="bindings" query={query} change={setQuery} />
            </header>
            <Consumers consumers={consumers} />
          </section>
          </div>
        </div>
      )}
    </div>
  );
}

interface StatesProps {
  consumers: Consumer[];
  only: State | undefined;
  choose: (state: State | undefined) => void;
}

function States({ consumers, only, choose }: StatesProps) {
  return (
    <div class="legend" role="group" aria-label="States of bindings">
      {STATES.map(({ state, tone, what }) => {
        const number = consumers.filter((consumer) => stateOf(consumer) === state).length;
        // States that pass by themselves are shown when there are any.
        if (number === 0 && (state === "Binding" || state === "Deleted")) return null;
        return (
          <button
            key={state}
            type="button"
            title={`A binding that ${what}`}
            aria-pressed={only === state}
            onClick={() => choose(only === state ? undefined : state)}
          >
            <Badge tone={tone}>{state}</Badge> {count(number)}
          </button>
        );
      })}
    </div>
  );
}

type Choose = (state: State, label: string) => void;

function Drawing({ drawn, choose }: { drawn: Picture; choose: Choose }) {
  const region = useRef<HTMLDivElement>(null);
  const { provider, width, height } = drawn;
  const [middle, setMiddle] = useState(provider.y);
  // The export stays in sight while its bindings pass.
  const center = () => {
    const { scrollTop = 0, clientHeight = 0 } = region.current ?? {};
    const least = provider.height / 2 + 8;
    setMiddle(Math.max(least, Math.min(height - least, scrollTop + Math.min(clientHeight, height) / 2)));
  };
  useLayoutEffect(center, [drawn]);
  const from = { x: provider.x + provider.width / 2, y: middle };
  return (
    <div class="drawing" tabIndex={0} role="region" aria-label="Export and its bindings" ref={region} onScroll={center}>
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="group" aria-label="Graph">
        {drawn.lines.map((line) => {
          const bend = (from.x + line.x) / 2;
          return (
            <g key={line.id} class={`edge ${toneOf(line.state)}`}>
              <path d={`M${from.x} ${from.y}C${bend} ${from.y} ${bend} ${line.y} ${line.x} ${line.y}`} />
              {line.label && (
                <text x={line.x - 8} y={line.y - 3} text-anchor="end">
                  {line.label}
                </text>
              )}
            </g>
          );
        })}
        <Node box={{ ...provider, y: middle }} choose={choose} />
        {drawn.boxes.map((box) => (
          <Node key={box.id} box={box} choose={choose} />
        ))}
      </svg>
    </div>
  );
}

/** Characters of a title in a box. */
const TITLE_CHARS = 32;

function Node({ box, choose }: { box: Picture["boxes"][number]; choose: Choose }) {
  const { state, label = "" } = box;
  const title = box.title.length > TITLE_CHARS ? `…${box.title.slice(-TITLE_CHARS + 1)}` : box.title;
  const inside = (
    <g transform={`translate(${box.x - box.width / 2} ${box.y - box.height / 2})`} class={`node ${state ? toneOf(state) : "provider"}`}>
      <title>{state ? `${box.title}, ${box.note}: ${state}` : box.title}</title>
      <rect width={box.width} height={box.height} rx="6" />
      {state && <Shape state={state} />}
      <text x={state ? 26 : 14} y={state ? 16 : 23}>
        {title}
      </text>
      {!state && (
        <text class="below" x="14" y="40">
          {box.note}
        </text>
      )}
    </g>
  );
  if (box.path !== undefined) return <a href={link("workspaces", box.path)}>{inside}</a>;
  if (!state) return inside;
  return (
    <g role="button" tabIndex={0} onClick={() => choose(state, label)} onKeyDown={(event) => event.key === "Enter" && choose(state, label)}>
      {inside}
    </g>
  );
}

function Shape({ state }: { state: State }) {
  const shapes = {
    Ready: <circle class="shape" cx="14" cy="12" r="4.2" />,
    Behind: <rect class="shape" x="10" y="8" width="8" height="8" rx="1" />,
    Conflict: <path class="shape" d="M14 6.5l5.4 10H8.6z" />,
    Binding: <path class="shape" d="M14 7.2 18.8 12 14 16.8 9.2 12z" />,
    Deleted: <circle class="shape hollow" cx="14" cy="12" r="3.8" />,
  };
  return shapes[state];
}

interface VersionsProps {
  shown: Shown;
  only: string | undefined;
  choose: (version: string | undefined) => void;
}

function Versions({ shown, only, choose }: VersionsProps) {
  const most = Math.max(1, ...shown.versions.map(({ workspaces }) => workspaces));
  return (
    <table class="versions">
      <thead>
        <tr>
          <th scope="col">Version</th>
          <th scope="col">Workspaces in {shown.days} days</th>
          <th scope="col">Last use</th>
        </tr>
      </thead>
      <tbody>
        {shown.versions.map(({ version, workspaces, lastUsed }) => (
          <tr key={version}>
            <td>
              <button
                type="button"
                title={`Who uses ${version}`}
                aria-pressed={only === version}
                onClick={() => choose(only === version ? undefined : version)}
              >
                {version}
              </button>
            </td>
            <td>
              <span class="share">
                <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
                  <rect width={(workspaces / most) * 100} height="8" rx="1.5" />
                </svg>
                {count(workspaces)}
              </span>
            </td>
            <td class="faint">{lastUsed ? utc(lastUsed) : "never"}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Consumers({ consumers }: { consumers: Consumer[] }) {
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useRows(scroller, consumers.length, 30);
  return (
    <div class="grid bindings" role="table" aria-label="Bindings" aria-rowcount={consumers.length + 1} ref={scroller} tabIndex={0}>
      <div class="row head" role="row" aria-rowindex={1}>
        {["Workspace", "State", "Versions", "Reason or schema"].map((title) => (
          <span role="columnheader" key={title}>
            {title}
          </span>
        ))}
      </div>
      <div role="rowgroup" class="rows" style={{ height: `${virtual.height}px` }}>
        {virtual.items.map(({ index, start }) => {
          const consumer = consumers[index];
          if (!consumer) return null;
          const state = stateOf(consumer);
          return (
            <div
              class="row"
              role="row"
              key={`${consumer.cluster}/${consumer.binding}`}
              aria-rowindex={index + 2}
              style={{ transform: `translateY(${start}px)` }}
              onDblClick={() => go(link("workspaces", consumer.workspace))}
            >
              <span role="cell">
                <a href={link("workspaces", consumer.workspace)}>{consumer.workspace}</a>
              </span>
              <span role="cell">
                <Badge tone={toneOf(state)}>{state}</Badge>
              </span>
              <span role="cell">{versionsOf(consumer)}</span>
              <span role="cell" title={consumer.message}>
                {consumer.message || <span class="faint">{consumer.resources.map(({ schema }) => schema).join(" ")}</span>}
              </span>
            </div>
          );
        })}
      </div>
    </div>
  );
}
