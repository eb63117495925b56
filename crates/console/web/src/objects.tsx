// The objects of a workspace: its kinds, the objects of one kind, and one object.

import { useEffect, useMemo, useState } from "preact/hooks";
import { Refused, call, kube } from "./api";
import { insula, kubectl } from "./command";
import { age, count, counted } from "./format";
import { Grid } from "./grid";
import type { Column } from "./grid";
import { commandOf, kindsOf, named, pathOf } from "./kinds";
import type { Kind } from "./kinds";
import { useLive } from "./live";
import type { ResourceUsage } from "./model";
import { ObjectPage } from "./object";
import { go, link } from "./router";
import type { Place } from "./router";
import { ROWS_MAX, useTable } from "./table";
import type { ColumnDefinition, Row } from "./table";
import { Button, Problem, Search, Toolbar, ViewYaml, fits, useDenied } from "./ui";
import type { Live } from "./ui";

interface Known {
  kinds: Kind[];
  /** Objects by resource and group, for who may see usage. */
  objects: Map<string, number>;
}

async function read(workspace: string, signal: AbortSignal): Promise<Known> {
  const usage = call<{ resources: ResourceUsage[] }>("QuotaService/GetUsage", { workspace }, signal);
  const [kinds, used] = await Promise.all([kindsOf(workspace, signal), usage.catch(() => undefined)]);
  const objects = new Map<string, number>();
  for (const { group, resource, objects: some } of used?.resources ?? []) objects.set(`${resource}.${group}`, some);
  return { kinds, objects };
}

export function Objects({ place, home }: { place: Place; home: string }) {
  const workspace = place.workspace || home;
  const [known, setKnown] = useState<Known>();
  const [error, setError] = useState<unknown>();
  // Bindings and definitions decide which kinds there are.
  const root = `/clusters/${workspace}/apis`;
  const live = useLive(
    [
      `${root}/apis.kcp.io/v1alpha2/apibindings?watch=true`,
      `${root}/apiextensions.k8s.io/v1/customresourcedefinitions?watch=true`,
    ],
    async (signal) => {
      try {
        setKnown(await read(workspace, signal));
        setError(undefined);
      } catch (failed) {
        if (!signal.aborted) setError(failed);
        throw failed;
      }
    },
  );
  // Below what was read before there may be an edit: only a right that is gone takes it away.
  const isRefused = error instanceof Refused && (error.status === 403 || error.status === 404);
  if (error !== undefined && (!known || isRefused)) return <Problem error={error} />;
  if (!known) return <p class="loading">Loading…</p>;
  if (place.name === "") return <Kinds workspace={workspace} known={known} live={live} />;
  const kind = known.kinds.find((one) => named(one) === place.name);
  if (!kind) return <Problem error={new Error(`${workspace} serves no ${place.name}, or you may not see it.`)} />;
  const isNew = place.query.get("new") === "1";
  if (place.rest.length === 0 && !isNew) {
    return <List key={place.name} workspace={workspace} kind={kind} namespace={place.query.get("namespace") ?? ""} />;
  }
  const [first = "", second = ""] = place.rest;
  const [namespace, name] = kind.namespaced ? [first, second] : ["", first];
  const versions = known.kinds.filter(({ group, resource }) => group === kind.group && resource === kind.resource);
  return (
    <ObjectPage
      key={`${place.name}/${namespace}/${name}`}
      workspace={workspace}
      kind={kind}
      versions={versions}
      namespace={namespace}
      name={isNew ? "" : name}
    />
  );
}

function Kinds({ workspace, known, live }: { workspace: string; known: Known; live: Live }) {
  const [query, setQuery] = useState("");
  const [all, setAll] = useState(false);
  const objectsOf = ({ resource, group }: Kind) => known.objects.get(`${resource}.${group}`) ?? 0;
  const rows = useMemo(() => {
    const seen = new Set<string>();
    const preferred = known.kinds.filter(({ resource, group }) => {
      const key = `${resource}.${group}`;
      return !seen.has(key) && seen.add(key);
    });
    const shown = preferred.filter((kind) => {
      const used = all || query !== "" || known.objects.size === 0 || objectsOf(kind) > 0;
      return used && fits(query, `${kind.kind} ${named(kind)}`);
    });
    const title = (kind: Kind) => `${kind.group.includes("k8s.io") ? 1 : 0} ${kind.kind}`;
    return shown.sort((a, b) => (title(a) < title(b) ? -1 : 1));
  }, [known, query, all]);
  const versionsOf = (kind: Kind) =>
    known.kinds.filter(({ group, resource }) => group === kind.group && resource === kind.resource).map(({ version }) => version);
  const columns: Column<Kind>[] = [
    {
      title: "Kind",
      width: "minmax(160px, 1fr)",
      cell: (kind) => <a href={link("objects", workspace, named(kind))}>{kind.kind}</a>,
    },
    { title: "Resource", width: "minmax(220px, 2fr)", cell: ({ resource, group }) => [resource, group].filter(Boolean).join(".") },
    { title: "Versions", width: "160px", cell: (kind) => versionsOf(kind).join(" ") },
    { title: "Scope", width: "110px", cell: ({ namespaced }) => (namespaced ? "Namespace" : "Workspace") },
    { title: "Objects", width: "90px", number: true, cell: (kind) => (known.objects.size > 0 ? count(objectsOf(kind)) : "") },
  ];
  return (
    <div class="filled">
      <Toolbar
        title={workspace}
        kubectl={kubectl(workspace, "api-resources")}
        insula={insula("ws", "usage", workspace)}
        yaml={`/clusters/${workspace}/apis`}
        live={live}
      >
        <Search what="kinds" query={query} change={setQuery} />
        <button type="button" aria-pressed={all} onClick={() => setAll(!all)}>
          All kinds
        </button>
        <span class="faint" role="status">
          {counted(rows.length, "kind")}
        </span>
      </Toolbar>
      <Grid
        label="Kinds"
        columns={columns}
        rows={rows}
        keyOf={named}
        open={(kind) => go(link("objects", workspace, named(kind)))}
        empty="No kind has these words."
      />
    </div>
  );
}

/** Returns the text of a cell. Ages go on while nobody asks the server. */
function cellOf(row: Row, index: number, column: ColumnDefinition): string {
  const { creationTimestamp } = row.object.metadata;
  if (column.name === "Age" && creationTimestamp) return age(creationTimestamp);
  const value = row.cells[index];
  return value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
}

function addressOf(workspace: string, kind: Kind, { object }: Row): string {
  const { namespace, name } = object.metadata;
  return link("objects", workspace, named(kind), ...(kind.namespaced ? [namespace ?? "", name] : [name]));
}

interface ListProps {
  workspace: string;
  kind: Kind;
  namespace: string;
}

function List({ workspace, kind, namespace }: ListProps) {
  const path = pathOf(workspace, kind, namespace);
  const { columns: defined, rows, cut, loaded, live, error } = useTable(path);
  const [query, setQuery] = useState("");
  const denied = useDenied(workspace, {
    verb: "create",
    group: kind.group,
    resource: kind.resource,
    ...(namespace && { namespace }),
  });
  const found = useMemo(
    () =>
      rows
        .filter((row) => fits(query, `${row.object.metadata.namespace ?? ""} ${row.cells.join(" ")}`))
        .sort((a, b) => (sortKey(a) < sortKey(b) ? -1 : 1)),
    [rows, query],
  );
  const columns = useMemo(() => {
    const shown: Column<Row>[] = [];
    if (kind.namespaced && namespace === "")
      shown.push({ title: "Namespace", width: "minmax(110px, 1fr)", cell: ({ object }) => object.metadata.namespace });
    defined.forEach((column, index) => {
      // Columns of lower priority are those of `-o wide`.
      if (column.priority > 0) return;
      const isName = column.format === "name";
      shown.push({
        title: column.name,
        width: isName ? "minmax(180px, 2fr)" : column.name === "Age" ? "70px" : "minmax(80px, 1fr)",
        cell: (row) =>
          isName ? <a href={addressOf(workspace, kind, row)}>{cellOf(row, index, column)}</a> : cellOf(row, index, column),
      });
    });
    return shown;
  }, [defined, workspace, kind, namespace]);
  return (
    <div class="filled">
      <Toolbar
        title={
          <>
            <a href={link("objects", workspace)}>{workspace}</a> / {kind.kind}
          </>
        }
        kubectl={kubectl(workspace, ...commandOf(kind, namespace))}
        insula={insula("ws", "usage", workspace)}
        live={live}
      >
        <Search what={kind.resource} query={query} change={setQuery} />
        {kind.namespaced && <Namespaces workspace={workspace} kind={kind} namespace={namespace} />}
        <span class="faint" role="status">
          {count(found.length)} {query && `of ${count(rows.length)}`}
          {cut && ` (the first ${count(ROWS_MAX)})`}
        </span>
        <Button
          why={denied}
          onClick={() => go(`${link("objects", workspace, named(kind), ...(namespace ? [namespace] : []))}?new=1`)}
        >
          New
        </Button>
        <ViewYaml path={`${path}?limit=${YAML_MAX}`} />
      </Toolbar>
      {error !== undefined && <Problem error={error} />}
      {columns.length > 0 && (
        <Grid
          label={kind.kind}
          columns={columns}
          rows={found}
          keyOf={({ object }) => object.metadata.uid}
          open={(row) => go(addressOf(workspace, kind, row))}
          empty={loaded ? <Empty workspace={workspace} kind={kind} searching={query !== ""} /> : "Loading…"}
        />
      )}
    </div>
  );
}

/** Objects of a list that are shown as YAML. */
const YAML_MAX = 50;

function sortKey({ object }: Row): string {
  return `${object.metadata.namespace ?? ""}/${object.metadata.name}`;
}

function Empty({ workspace, kind, searching }: { workspace: string; kind: Kind; searching: boolean }) {
  if (searching) return <>None has these words.</>;
  return (
    <>
      There is no {kind.kind} here. <code>{kubectl(workspace, "apply", "--server-side", "-f", "FILE")}</code> makes one.
    </>
  );
}

/** The choice of a namespace. Who may not list namespaces writes its name. */
function Namespaces({ workspace, kind, namespace }: ListProps) {
  const [names, setNames] = useState<string[]>([]);
  useEffect(() => {
    const path = `/clusters/${workspace}/api/v1/namespaces?limit=500`;
    kube<{ items: { metadata: { name: string } }[] }>(path).then(
      ({ items }) => setNames(items.map(({ metadata }) => metadata.name)),
      () => undefined,
    );
  }, [workspace]);
  return (
    <>
      <input
        class="namespace"
        aria-label="Namespace"
        placeholder="All namespaces"
        list="namespaces"
        value={namespace}
        onChange={(event) => {
          const wanted = event.currentTarget.value.trim();
          go(link("objects", workspace, named(kind)) + (wanted && `?namespace=${encodeURIComponent(wanted)}`));
        }}
      />
      <datalist id="namespaces">
        {names.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </>
  );
}
