// All that is stuck: workspaces below one, and objects in it and in them, each with the chain of its
// causes. Objects of workspaces below are looked at a few workspaces at a time, the nearest first.

import { useMemo, useState } from "preact/hooks";
import { insula, kubectl } from "./command";
import { OBJECTS_MAX, each, failing, failingBelow } from "./failing";
import type { Failing, Found, Known } from "./failing";
import { age, count, counted, utc } from "./format";
import type { Column } from "./grid";
import { commandOf, named, pathOf } from "./kinds";
import { Listing } from "./listing";
import { oldest, usePolled } from "./live";
import type { Polled } from "./live";
import { problem } from "./model";
import type { Workspace } from "./model";
import { go, link } from "./router";
import type { Place } from "./router";
import type { Tree } from "./tree";
import { Badge, Copy, ViewYaml, fits } from "./ui";
import { useTree } from "./use-tree";
import { Details } from "./workspace";

/** Seconds between two looks at the objects of a workspace. */
const LOOK = 20;
/** Workspaces below that are looked into, and that one more click adds. */
const STEP = 25;

/** A row: a workspace or an object. */
interface Item {
  key: string;
  what: string;
  name: string;
  /** The workspace that it is in. */
  inside: string;
  reason: string;
  message: string;
  since: string | undefined;
  object?: Failing;
}

function itemOf(object: Failing, chosen: string): Item {
  const { workspace, kind, namespace, name, chain } = object;
  const first = chain[0];
  return {
    key: `${workspace === chosen ? "" : `${workspace} `}${named(kind)} ${namespace}/${name}`,
    what: kind.kind,
    name: namespace ? `${namespace}/${name}` : name,
    inside: workspace,
    reason: first?.reason || first?.type || "",
    message: first?.message ?? "",
    since: first?.lastTransitionTime,
    object,
  };
}

/** The objects of workspaces below one, as far as they were looked at. */
interface Below {
  /** Workspaces below, the nearest first. */
  all: string[];
  looked: string[];
  found: Found[];
  more: () => void;
  live: Polled;
}

/** Looks into the workspaces of a tree, some at first and more when asked. Where they are more, it
 * looks less often: the requests in a minute stay the same. */
function useBelow(tree: Tree, known: Known, ready: boolean): Below {
  const [wanted, setWanted] = useState(STEP);
  const [results, setResults] = useState<ReadonlyMap<string, Found>>(new Map());
  const all = useMemo(() => {
    if (!tree.loaded) return [];
    const nodes = [...tree.nodes.values()].filter(({ workspace }) => workspace.path !== tree.root);
    nodes.sort((a, b) => a.depth - b.depth || (a.workspace.path < b.workspace.path ? -1 : 1));
    return nodes.map(({ workspace }) => workspace.path);
  }, [tree, tree.loaded, tree.nodes.size]);
  const targets = all.slice(0, wanted);
  const live = usePolled(`${tree.root} ${wanted} ${ready && tree.loaded}`, LOOK * Math.ceil(wanted / STEP), async (signal) => {
    await each(ready ? targets : [], async (path) => {
      const found = await failingBelow(path, known, signal);
      setResults((before) => new Map(before).set(path, found));
    });
  });
  const looked = targets.filter((path) => results.has(path));
  const found = looked.flatMap((path) => results.get(path) ?? []);
  return { all, looked, found, live, more: () => setWanted(wanted + STEP) };
}

function stuckIn(tree: Tree): Workspace[] {
  return tree.search("", true).map(({ node }) => node.workspace);
}

export function Stuck({ place, home }: { place: Place; home: string }) {
  const workspace = place.workspace || home;
  const tree = useTree(workspace, (read) => [workspace, ...new Set(stuckIn(read).map(({ parent }) => parent))]);
  const known = useMemo((): Known => new Map(), [workspace]);
  const [own, setOwn] = useState<Found>();
  const [query, setQuery] = useState("");
  const [chosen, setChosen] = useState(place.query.get("show") ?? "");
  const stuck = stuckIn(tree);
  const polled = usePolled(workspace, LOOK, async (signal) => setOwn(await failing(workspace, known, signal)));
  // The kinds of the workspace itself, which those below mostly serve as well, are known first.
  const below = useBelow(tree, known, own !== undefined);
  const error = tree.error ?? polled.error ?? below.live.error;
  const objects = [...(own ? [own] : []), ...below.found].flatMap((found) => found.objects);
  const items: Item[] = [
    ...stuck.map((one) => {
      const why = problem(one);
      return {
        key: one.path,
        what: "Workspace",
        name: one.path,
        inside: one.parent,
        reason: why?.reason || why?.type || "",
        message: why?.message ?? "",
        since: why?.lastTransitionTime ?? one.createTime,
      };
    }),
    ...objects.map((object) => itemOf(object, workspace)),
  ].filter(({ what, name, inside, reason, message }) => fits(query, `${what} ${name} ${inside} ${reason} ${message}`));
  const shown = items.find(({ key }) => key === chosen);
  const columns: Column<Item>[] = [
    { title: "Kind", width: "130px", cell: ({ what }) => what },
    { title: "Name", width: "minmax(150px, 1fr)", cell: ({ name }) => name },
    { title: "In", width: "minmax(110px, 1fr)", cell: ({ inside }) => <a href={link("stuck", inside)}>{inside}</a> },
    { title: "Reason", width: "minmax(120px, 190px)", cell: ({ reason }) => <Badge tone="bad">{reason}</Badge> },
    { title: "Message", width: "minmax(140px, 2fr)", cell: ({ message }) => <span title={message}>{message}</span> },
    { title: "Since", width: "56px", number: true, cell: ({ since }) => age(since) },
  ];
  const choose = ({ key }: Item) => {
    setChosen(key);
    go(`${link("stuck", workspace)}?show=${encodeURIComponent(key)}`, "replace");
  };
  return (
    <Listing
      label="Stuck"
      head={{
        title: workspace,
        kubectl: kubectl(workspace, "get", "workspaces,apibindings"),
        insula: insula("ws", "explain", workspace),
        yaml: `/clusters/${workspace}/apis/apis.kcp.io/v1alpha2/apibindings?limit=50`,
        live: oldest(tree.live, polled, below.live),
      }}
      what="stuck"
      query={query}
      change={setQuery}
      found={`${count(items.length)} stuck`}
      error={error}
      retry={() => void tree.load()}
      above={<Looked own={own} below={below} />}
      ready
      columns={columns}
      rows={items}
      keyOf={({ key }) => key}
      choose={choose}
      chosen={chosen}
      empty={tree.loaded && own ? `Nothing that is stuck was found in ${workspace} and the workspaces below it.` : error === undefined ? "Looking…" : ""}
    >
      {shown?.object ? (
        <Chain object={shown.object} />
      ) : (
        <Details key={shown?.key ?? ""} path={shown?.key ?? ""} root={workspace} fresh={tree.nodes.get(shown?.key ?? "")?.workspace.revision ?? 0} />
      )}
    </Listing>
  );
}

/** How far the page looked, so that what it does not show is not taken for sound. */
function Looked({ own, below }: { own: Found | undefined; below: Below }) {
  const { all, looked, found, more } = below;
  const hidden = found.filter((one) => one.hidden).length;
  const cut = [...(own ? [own] : []), ...found].flatMap((one) => one.cut);
  const left = all.length - looked.length;
  if (all.length === 0 && cut.length === 0) return null;
  return (
    <p class="note inset faint" role="status">
      {all.length > 0 &&
        (left > 0
          ? `Objects of ${count(looked.length)} of the ${counted(all.length, "workspace")} below, the nearest first. `
          : `Objects of all ${counted(all.length, "workspace")} below. `)}
      {left > 0 && (
        <button type="button" onClick={more}>
          Look into {count(Math.min(STEP, left))} more
        </button>
      )}
      {hidden > 0 && ` You may not look into ${count(hidden)} of them.`}
      {cut.length > 0 && ` Of ${[...new Set(cut)].join(", ")} the first ${count(OBJECTS_MAX)} objects of a workspace.`}
    </p>
  );
}

function Chain({ object }: { object: Failing }) {
  const { workspace, kind, namespace, name, chain } = object;
  return (
    <aside class="details" aria-label={`${kind.kind} ${name}`}>
      <header>
        <h2>
          {kind.kind} {name}
        </h2>
      </header>
      <div class="actions">
        <a class="button" href={link("objects", workspace, named(kind), ...(kind.namespaced ? [namespace, name] : [name]))}>
          Open
        </a>
        <Copy text={kubectl(workspace, ...commandOf(kind, namespace, name))}>Copy kubectl</Copy>
        <Copy text={insula("ws", "explain", workspace)}>Copy insula</Copy>
        <ViewYaml path={pathOf(workspace, kind, namespace, name)} />
      </div>
      <h3>Why it is not ready</h3>
      <ol class="findings">
        {chain.map(({ type, reason, message, lastTransitionTime }) => (
          <li key={type}>
            <strong>{type}</strong> false{lastTransitionTime && ` since ${utc(lastTransitionTime)}`}
            {reason && `: ${reason}`}
            {message && <span class="fix">{message}</span>}
          </li>
        ))}
      </ol>
    </aside>
  );
}
