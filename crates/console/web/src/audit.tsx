// Who did what: the audit log of the server that answers, the newest request first.

import { useState } from "preact/hooks";
import { stringify } from "yaml";
import { call } from "./api";
import { insula, kubectl } from "./command";
import { count, counted, utc } from "./format";
import type { Column } from "./grid";
import { Listing } from "./listing";
import { usePolled } from "./live";
import { go, link } from "./router";
import type { Place } from "./router";
import { Badge, Bars, Button, Copy, NOT_READ, fits, save, useWork } from "./ui";
import type { Tone } from "./ui";

/** Seconds between two readings. */
const EVERY = 10;
/** Events of a reading. */
const PAGE = 500;
/** Events that are shown as YAML. */
const YAML_MAX = 50;
/** Bars of the timeline. */
const BARS = 60;

interface User {
  username?: string;
  groups?: string[];
}

/** An event of audit.k8s.io/v1. */
interface AuditEvent {
  auditID: string;
  stage: string;
  verb: string;
  requestURI: string;
  user?: User;
  impersonatedUser?: User;
  userAgent?: string;
  objectRef?: { resource?: string; subresource?: string; namespace?: string; name?: string };
  responseStatus?: { code?: number; message?: string };
  requestReceivedTimestamp: string;
  stageTimestamp: string;
  annotations?: Record<string, string>;
}

interface Answer {
  events: AuditEvent[];
  nextPageToken: string;
}

function events(selected: object, signal?: AbortSignal): Promise<Answer> {
  return call<Answer>("MaintenanceService/ListAuditEvents", selected, signal);
}

/** What was read: all pages so far, and the token of the next one. */
interface Read {
  events: AuditEvent[];
  older: string;
}

const keyOf = ({ auditID, stage }: AuditEvent) => `${auditID} ${stage}`;

function who({ user, impersonatedUser }: AuditEvent): string {
  const name = user?.username ?? "";
  return impersonatedUser ? `${name} as ${impersonatedUser.username ?? ""}` : name;
}

function what({ objectRef, requestURI }: AuditEvent): string {
  const { resource, subresource, namespace, name } = objectRef ?? {};
  return [resource, subresource, namespace, name].filter(Boolean).join("/") || requestURI;
}

function where({ annotations }: AuditEvent): string {
  return annotations?.["kcp.io/path"] ?? annotations?.["kcp.io/cluster"] ?? "";
}

function tone(code: number | undefined): Tone {
  if (code === undefined || code >= 500) return "bad";
  return code >= 400 ? "warn" : "good";
}

/** Puts a newer reading before what was read. A gap between them is left to the older pages. */
function joined(before: Read | undefined, { events, nextPageToken }: Answer): Read {
  // Nothing new is in the part of the log that was looked at.
  if (before && events.length === 0) return before;
  const known = new Set(before?.events.map(keyOf));
  const first = events.findIndex((event) => known.has(keyOf(event)));
  if (!before || first < 0) return { events, older: nextPageToken };
  return { events: [...events.slice(0, first), ...before.events], older: before.older };
}

export function Audit({ place, home }: { place: Place; home: string }) {
  const all = place.query.get("all") === "1";
  const failed = place.query.get("failed") === "1";
  const workspace = place.workspace || home;
  const selected = { workspace: all ? "" : workspace, failed, pageSize: PAGE };
  const [read, setRead] = useState<Read>();
  const [query, setQuery] = useState("");
  const [chosen, setChosen] = useState("");
  const work = useWork();
  const live = usePolled(JSON.stringify(selected), EVERY, async (signal) => {
    const answer = await events(selected, signal);
    setRead((before) => joined(before, answer));
  });
  const noOlder = read ? (read.older ? undefined : "The log of this server has no older ones.") : NOT_READ;
  const older = () =>
    work.run(async () => {
      const pageToken = read?.older ?? "";
      const answer = await events({ ...selected, pageToken });
      setRead((before) => ({ events: [...(before?.events ?? []), ...answer.events], older: answer.nextPageToken }));
    });
  const to = (change: Record<string, boolean>) => {
    const wanted = Object.entries({ all, failed, ...change }).filter(([, on]) => on);
    go(`${link("audit", workspace)}?${new URLSearchParams(wanted.map(([name]) => [name, "1"]))}`);
  };
  const shown = (read?.events ?? []).filter((event) =>
    fits(query, `${who(event)} ${event.verb} ${what(event)} ${where(event)} ${event.responseStatus?.code ?? ""} ${event.auditID}`),
  );
  const command = insula("server", "audit", ...(all ? [] : [workspace]), ...(failed ? ["--failed"] : []));
  const event = shown.find((one) => keyOf(one) === chosen);
  const columns: Column<AuditEvent>[] = [
    { title: "Time", width: "148px", cell: ({ requestReceivedTimestamp }) => utc(requestReceivedTimestamp) },
    { title: "User", width: "minmax(110px, 1fr)", cell: (one) => <span title={who(one)}>{who(one)}</span> },
    { title: "Verb", width: "78px", cell: ({ verb }) => verb },
    { title: "Object", width: "minmax(140px, 2fr)", cell: (one) => <span title={one.requestURI}>{what(one)}</span> },
    ...(all ? [{ title: "Workspace", width: "minmax(100px, 1fr)", cell: where }] : []),
    {
      title: "Code",
      width: "70px",
      cell: ({ responseStatus }) => <Badge tone={tone(responseStatus?.code)}>{String(responseStatus?.code ?? "none")}</Badge>,
    },
  ];
  const toggle = (label: string, name: string, on: boolean) => (
    <button type="button" aria-pressed={on} onClick={() => to({ [name]: !on })}>
      {label}
    </button>
  );
  return (
    <Listing
      label="Audit"
      head={{
        title: all ? "All workspaces" : workspace,
        kubectl: kubectl(workspace, "get", "events", "--sort-by=.lastTimestamp"),
        insula: command,
        yaml: { name: command, read: async () => (await events({ ...selected, pageSize: YAML_MAX })).events },
        live,
      }}
      what="requests"
      query={query}
      change={setQuery}
      found={counted(shown.length, "request")}
      tools={
        <>
          {toggle("Failed", "failed", failed)}
          {toggle("All workspaces", "all", all)}
          <Button busy={work.busy} why={noOlder} onClick={older}>
            {read && !read.older ? "No older ones" : "Older"}
          </Button>
          <Button why={read ? undefined : NOT_READ} onClick={() => save("audit.jsonl", lines(shown), "application/jsonl")}>
            Save
          </Button>
        </>
      }
      above={shown.length > 0 && <Timeline events={shown} />}
      error={live.error ?? work.error}
      ready={read !== undefined}
      columns={columns}
      rows={shown}
      keyOf={keyOf}
      chosen={chosen}
      choose={(one) => setChosen(keyOf(one))}
      empty={query ? "No request has these words." : "The log has no such request."}
    >
      {event ? (
        <One event={event} />
      ) : (
        <aside class="details empty" aria-label="Request">
          <p>Choose a request to see it whole.</p>
        </aside>
      )}
    </Listing>
  );
}

function lines(events: AuditEvent[]): string {
  return events.map((event) => `${JSON.stringify(event)}\n`).join("");
}

/** Requests over the time from the oldest to the newest that are shown. */
function Timeline({ events }: { events: AuditEvent[] }) {
  const times = events.map(({ requestReceivedTimestamp }) => Date.parse(requestReceivedTimestamp));
  const first = Math.min(...times);
  const span = Math.max(1, Math.max(...times) - first);
  const values = new Array<number>(BARS).fill(0);
  for (const time of times) {
    const index = Math.min(BARS - 1, Math.floor(((time - first) / span) * BARS));
    values[index] = (values[index] ?? 0) + 1;
  }
  const from = utc(new Date(first).toISOString());
  const until = utc(new Date(first + span).toISOString());
  return (
    <figure class="timeline">
      <Bars values={values} label={`${count(events.length)} requests from ${from} to ${until}`} />
      <figcaption class="faint">
        <span>{from}</span>
        <span>{until}</span>
      </figcaption>
    </figure>
  );
}

function One({ event }: { event: AuditEvent }) {
  const { verb, responseStatus, requestReceivedTimestamp, stageTimestamp, stage } = event;
  const took = Date.parse(stageTimestamp) - Date.parse(requestReceivedTimestamp);
  const yaml = stringify(event, { lineWidth: 0 });
  return (
    <aside class="details" aria-label={`${verb} ${what(event)}`}>
      <header>
        <h2>
          {verb} {what(event)}
        </h2>
      </header>
      <div class="actions">
        <Copy text={event.auditID}>Copy id</Copy>
        <Copy text={yaml}>Copy YAML</Copy>
      </div>
      <dl class="facts">
        <dt>User</dt>
        <dd>{who(event)}</dd>
        <dt>Time</dt>
        <dd>
          {utc(requestReceivedTimestamp)}, {count(took)} ms to {stage}
        </dd>
        <dt>Answer</dt>
        <dd>
          {responseStatus?.code ?? "none"} {responseStatus?.message}
        </dd>
        {event.userAgent && (
          <>
            <dt>Program</dt>
            <dd>{event.userAgent}</dd>
          </>
        )}
      </dl>
      <h3>Event</h3>
      <pre tabIndex={0}>{yaml}</pre>
    </aside>
  );
}
