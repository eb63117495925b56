// Two versions of an API side by side: each change of a field, the breaking ones first, and whom they
// break.

import { useEffect, useMemo, useState } from "preact/hooks";
import { call } from "./api";
import { Whom } from "./effects";
import type { Effect } from "./effects";
import { ExportBar, useExport } from "./exports";
import { List } from "./exports-list";
import type { Json } from "./fields";
import { count, counted } from "./format";
import type { Export } from "./model";
import { schemasOf, suffix } from "./prepared";
import { documentsOf, manifestsOf } from "./releases";
import { go, link } from "./router";
import type { Place } from "./router";
import { Badge, Button, Problem, useWork } from "./ui";
import { YamlEditor, syntax } from "./yaml-editor";

/** Milliseconds without a key before the server is asked. */
const QUIET = 400;
/** Objects that a search for effects examines, a page at a time. */
const PAGE = 500;
const OBJECTS_MAX = 10_000;

export function Diff({ place, home }: { place: Place; home: string }) {
  if (place.workspace === "" || place.name === "") return <List workspace={place.workspace || home} page="diff" />;
  return <Compare workspace={place.workspace} name={place.name} query={place.query} />;
}

interface Change {
  api: string;
  version: string;
  path: string;
  change: string;
  breaking: boolean;
  detail: string;
}

interface CompareProps {
  workspace: string;
  name: string;
  query: URLSearchParams;
}

function Compare({ workspace, name, query }: CompareProps) {
  const [exported, setExported] = useState<Export>();
  const [schemas, setSchemas] = useState<string[]>([]);
  const { live, error } = useExport(workspace, name, async (signal) => {
    const [got, known] = await Promise.all([
      call<{ export: Export }>("ApiService/GetExport", { workspace, export: name }, signal),
      schemasOf(workspace, signal),
    ]);
    setExported(got.export);
    setSchemas(known.map((schema) => schema.name));
  });
  const offered = exported?.resources.map(({ schema }) => schema) ?? [];
  // A schema is named "<prefix>.<plural>.<group>": the others of the same resource can be compared.
  const same = schemas.filter((one) => offered.some((other) => suffix(other) === suffix(one)));
  const from = query.get("from") ?? "";
  const to = query.get("to") ?? offered[0] ?? "";
  const choose = (key: "from" | "to", value: string) => {
    const wanted = new URLSearchParams({ ...(from && { from }), ...(to && { to }), [key]: value });
    go(`${link("diff", workspace, name)}?${wanted}`, "replace");
  };
  return (
    <div class="page stacked">
      <ExportBar page="diff" workspace={workspace} name={name} command="show" live={live}>
        <label>
          From{" "}
          <select value={from} onChange={(event) => choose("from", event.currentTarget.value)}>
            <option value="">what is on offer</option>
            {same.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        <label>
          to{" "}
          <select value={to} onChange={(event) => choose("to", event.currentTarget.value)}>
            {same.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
      </ExportBar>
      {error !== undefined && <Problem error={error} />}
      {exported && to && <Sides key={`${from} ${to}`} workspace={workspace} exported={exported} from={from} to={to} />}
    </div>
  );
}

interface SidesProps {
  workspace: string;
  exported: Export;
  from: string;
  to: string;
}

function Sides({ workspace, exported, from, to }: SidesProps) {
  const [before, setBefore] = useState<string>();
  const [start, setStart] = useState<{ text: string }>();
  const [text, setText] = useState("");
  const [changes, setChanges] = useState<Change[]>();
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    const old = from ? [from] : exported.resources.map(({ schema }) => schema).filter((one) => suffix(one) === suffix(to));
    Promise.all([manifestsOf(workspace, old), manifestsOf(workspace, [to])]).then(([first, second]) => {
      setBefore(first);
      setStart({ text: second });
      setText(second);
    }, setError);
  }, []);
  const mistakes = useMemo(() => syntax(text), [text]);
  useEffect(() => {
    setChanges(undefined);
    if (before === undefined || mistakes.length > 0) return;
    const ended = new AbortController();
    const timer = setTimeout(() => {
      diff(workspace, before, text, ended.signal).then(
        (found) => {
          setChanges(found);
          setError(undefined);
        },
        (failed: unknown) => ended.signal.aborted || setError(failed),
      );
    }, QUIET);
    return () => {
      clearTimeout(timer);
      ended.abort();
    };
  }, [workspace, before, text, mistakes]);
  const broken = changes?.filter(({ breaking }) => breaking).length ?? 0;
  return (
    <>
      <div class="sides">
        <section class="card editor">
          <h2>{from || "What is on offer"}</h2>
          <pre role="region" tabIndex={0} aria-label="The schema before">
            {before}
          </pre>
        </section>
        <section class="card editor">
          <h2>{to}, to be changed here</h2>
          {start && <YamlEditor label="The schema after" start={start} readOnly={false} mistakes={mistakes} change={setText} />}
        </section>
      </div>
      {error !== undefined && <Problem error={error} />}
      {changes && before !== undefined && (
        <section class="card" aria-label="Changes">
          <header>
            <h2>
              {counted(changes.length, "change")}, {count(broken)} of them {broken === 1 ? "breaks" : "break"}
            </h2>
          </header>
          <Changes workspace={workspace} exported={exported} changes={changes} before={before} text={text} offered={from === ""} />
        </section>
      )}
    </>
  );
}

async function diff(workspace: string, before: string, text: string, signal: AbortSignal): Promise<Change[]> {
  const answer = await call<{ changes: Change[] }>(
    "ApiService/DiffApi",
    { workspace, manifests: documentsOf(text), oldManifests: documentsOf(before) },
    signal,
  );
  return answer.changes.sort((a, b) => Number(b.breaking) - Number(a.breaking));
}

type Schema = { [key: string]: Json };

/** Returns what a schema says of a field, without the fields below it; nothing for one that is not there. */
function fieldOf(documents: unknown[], { api, version, path }: Change): string {
  for (const document of documents as { kind?: string; spec?: { group: string; names: { plural: string }; versions: Schema[] } }[]) {
    const { spec } = document;
    if (document.kind !== "APIResourceSchema" || !spec || `${spec.names.plural}.${spec.group}` !== api) continue;
    let schema = spec.versions.find(({ name }) => name === version)?.["schema"] as Schema | undefined;
    for (const part of path.match(/\[[^\]]*\]|[^.[\]]+/g) ?? []) {
      const below = part.startsWith("[") ? (schema?.["items"] ?? schema?.["additionalProperties"]) : undefined;
      schema = (below ?? (schema?.["properties"] as Schema | undefined)?.[part]) as Schema | undefined;
    }
    if (!schema || path === "") return "";
    const { properties, items, additionalProperties, ...own } = schema;
    const more = [properties && "fields", items && "items", additionalProperties && "entries"].filter(Boolean);
    return JSON.stringify(own).slice(1, -1) + (more.length > 0 ? `, with ${more.join(" and ")}` : "");
  }
  return "";
}

interface Reach {
  effects: Effect[];
  examined: number;
  complete: boolean;
}

/** Looks at stored objects of all consumers, and adds up what a release would do to them. */
async function reachOf(workspace: string, exported: Export, text: string, seen: (reach: Reach) => void): Promise<void> {
  const effects = new Map<string, Effect>();
  let examined = 0;
  let pageToken = "";
  do {
    const page = await call<{ effects: Effect[]; examined: number; nextPageToken: string }>("ApiService/CheckRollout", {
      workspace,
      export: exported.name,
      manifests: documentsOf(text),
      pageSize: PAGE,
      pageToken,
    });
    for (const effect of page.effects) {
      const known = effects.get(effect.id) ?? { ...effect, objects: 0, workspaces: [] };
      const workspaces = new Map(known.workspaces.map((one) => [one.workspace, one.objects]));
      for (const one of effect.workspaces) workspaces.set(one.workspace, (workspaces.get(one.workspace) ?? 0) + one.objects);
      effects.set(effect.id, {
        ...known,
        objects: known.objects + effect.objects,
        workspaces: [...workspaces].map(([path, objects]) => ({ workspace: path, objects })),
      });
    }
    examined += page.examined;
    pageToken = page.nextPageToken;
    seen({ effects: [...effects.values()], examined, complete: pageToken === "" });
  } while (pageToken !== "" && examined < OBJECTS_MAX);
}

interface ChangesProps {
  workspace: string;
  exported: Export;
  changes: Change[];
  before: string;
  text: string;
  /** The old side is what is on offer: effects on stored objects are known. */
  offered: boolean;
}

function Changes({ workspace, exported, changes, before, text, offered }: ChangesProps) {
  const [reach, setReach] = useState<Reach>();
  const { busy, error, run } = useWork();
  useEffect(() => setReach(undefined), [changes]);
  const [old, next] = useMemo(() => [documentsOf(before), documentsOf(text)], [before, text]);
  const effectOf = ({ api, version, path }: Change) =>
    reach?.effects.find(({ id }) => id.endsWith(`:${[api, version].filter(Boolean).join("/")}:${path}`));
  const why = offered ? undefined : "Only a change of what is on offer reaches stored objects.";
  return (
    <>
      <p class="act">
        <Button busy={busy} why={why} onClick={() => run(() => reachOf(workspace, exported, text, setReach))}>
          {busy ? "Looking…" : "Whom does it break?"}
        </Button>
        <span class="faint" role="status">
          {why ?? (reach && `${counted(reach.examined, "object")} examined${reach.complete ? "" : ", the first of them"}.`)}
        </span>
      </p>
      {error !== undefined && <Problem error={error} />}
      <table class="changes">
        <thead>
          <tr>
            {["", "Version", "Field", "Before", "After", "Whom"].map((title) => (
              <th scope="col" key={title}>
                {title || <span class="sr">Kind</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {changes.map((change) => {
            const effect = effectOf(change);
            return (
              <tr key={`${change.api}${change.version}${change.path}${change.change}`} class={change.breaking ? "breaking" : ""}>
                <td>
                  <Badge tone={change.breaking ? "bad" : "good"}>{change.change}</Badge>
                </td>
                <td>{change.version}</td>
                <td>
                  <code>{change.path || change.api}</code>
                </td>
                <td>{fieldOf(old, change)}</td>
                <td>{fieldOf(next, change) || (change.change === "removed" ? "" : change.detail)}</td>
                <td>{effect && <Becomes effect={effect} />}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {reach && reach.complete && reach.effects.length === 0 && (
        <p>
          <Badge tone="good">Nobody</Badge> No stored object loses a value.
        </p>
      )}
      {reach?.effects
        .filter((effect) => !changes.some((change) => effectOf(change) === effect))
        .map((effect) => (
          <p key={effect.id}>
            <Badge tone="bad">{effect.detail || effect.id}</Badge> <Becomes effect={effect} />
          </p>
        ))}
    </>
  );
}

function Becomes({ effect }: { effect: Effect }) {
  return <Whom effect={effect}>{effect.becomes && <p>{effect.becomes}</p>}</Whom>;
}
