// The exports of a workspace, and those elsewhere that its users may bind: each a card, which leads to a
// page of it, and on the page of exports to the bindings that use a version.

import { useState } from "preact/hooks";
import { pages } from "./api";
import { insula, kubectl } from "./command";
import { count } from "./format";
import { useLive } from "./live";
import type { Export, Rollout } from "./model";
import { link } from "./router";
import { Copy, LiveBadge, Problem, Search, ViewYaml } from "./ui";

interface Resource {
  resource: string;
  group: string;
  versions: { name: string; deprecated: boolean }[];
}

interface Listed {
  export: string;
  workspace: string;
  title: string;
  resources: Resource[];
}

/** The path of the exports of a workspace in the Kubernetes API. */
export function pathOf(workspace: string): string {
  return `/clusters/${workspace}/apis/apis.kcp.io/v1alpha2/apiexports`;
}

/** The exports of a workspace, and those elsewhere that the viewer may bind. */
export function List({ workspace, page }: { workspace: string; page: string }) {
  const [own, setOwn] = useState<Export[]>();
  const [bindable, setBindable] = useState<Listed[]>([]);
  const [query, setQuery] = useState("");
  const [error, setError] = useState<unknown>();
  const live = useLive([`${pathOf(workspace)}?watch=true`], async (signal) => {
    const exportsOf = ({ exports }: { exports: Export[] }) => exports;
    const apisOf = ({ apis }: { apis: Listed[] }) => apis;
    // Without the right to see bindings here, there are none.
    const listed = pages("ApiService/ListApis", { workspace }, apisOf, signal).catch((): Listed[] => []);
    try {
      setOwn(await pages("ApiService/ListExports", { workspace }, exportsOf, signal));
      setError(undefined);
    } catch (failed) {
      if (!signal.aborted) setError(failed);
    }
    setBindable(await listed);
  });
  const fits = (text: string) => text.toLowerCase().includes(query.toLowerCase());
  const here = own?.filter((some) => fits(`${some.name} ${some.workspace}`));
  const elsewhere = bindable.filter((some) => some.workspace !== workspace && fits(`${some.export} ${some.workspace} ${some.title}`));
  /** Own exports have no versions in what is listed of them; as an API that one may bind they have. */
  const resourcesOf = ({ name, resources }: Export): Resource[] =>
    bindable.find((api) => api.workspace === workspace && api.export === name)?.resources ??
    resources.map(({ resource, group }) => ({ resource, group, versions: [] }));
  return (
    <div class="page">
      <div class="toolbar">
        <Search what="exports" query={query} change={setQuery} />
        <span class="faint">
          in <code>{workspace}</code>
        </span>
        <Copy text={kubectl(workspace, "get", "apiexports")}>Copy kubectl</Copy>
        <Copy text={insula("export", "list", "--workspace", workspace)}>Copy insula</Copy>
        <ViewYaml path={`${pathOf(workspace)}?limit=50`} />
        <LiveBadge live={live} />
      </div>
      {error !== undefined && <Problem error={error} />}
      {here && (
        <ul class="cards">
          {here.map((some) => (
            <Card
              key={some.name}
              of={{ page, workspace: some.workspace, name: some.name, title: some.name }}
              resources={resourcesOf(some)}
              rollout={some.rollout}
            />
          ))}
        </ul>
      )}
      {here?.length === 0 && (
        <p class="empty">
          {workspace} has no export{query && " of this name"}. <code>insula export publish -f FILE</code> makes one.
        </p>
      )}
      {elsewhere.length > 0 && <h2 class="between">In other workspaces</h2>}
      <ul class="cards">
        {elsewhere.map((some) => (
          <Card
            key={some.workspace + some.export}
            of={{ page, workspace: some.workspace, name: some.export, title: some.title || some.export }}
            resources={some.resources}
          />
        ))}
      </ul>
    </div>
  );
}

interface CardProps {
  of: { page: string; workspace: string; name: string; title: string };
  resources: Resource[];
  rollout?: Rollout | undefined;
}

/** An export. The whole card leads to it, and a version in it to those who use the version. */
function Card({ of: { page, workspace, name, title }, resources, rollout }: CardProps) {
  return (
    <li class="card linked">
      <a class="cover" href={link(page, workspace, name)}>
        <strong>{title}</strong>
      </a>{" "}
      <span class="faint">{workspace}</span>
      <p>
        {resources.map(({ resource, group, versions }) => {
          const api = group ? `${resource}.${group}` : resource;
          return (
            <span key={api}>
              {api}{" "}
              {versions.map((version) => (
                <Version key={version.name} {...{ page, workspace, name, api }} version={version.name} />
              ))}
            </span>
          );
        })}
      </p>
      {rollout && (
        <p class="faint">
          {count(rollout.bindings)} bindings, {count(rollout.current)} up to date
        </p>
      )}
    </li>
  );
}

interface VersionProps {
  page: string;
  workspace: string;
  name: string;
  api: string;
  version: string;
}

function Version({ page, workspace, name, api, version }: VersionProps) {
  if (page !== "exports") return <span class="faint">{version} </span>;
  const users = `${link(page, workspace, name)}?${new URLSearchParams({ version: `${api}/${version}` })}`;
  return (
    <>
      <a href={users} title={`Who uses ${version} of ${api}`}>
        {version}
      </a>{" "}
    </>
  );
}
