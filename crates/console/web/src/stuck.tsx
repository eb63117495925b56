// All that is stuck: workspaces below one, and objects in it, each with the chain of its causes.

import { useEffect, useMemo, useState } from "preact/hooks";
import { kube } from "./api";
import { age, count, utc } from "./format";
import type { Column } from "./grid";
import { commandOf, kindsOf, named, pathOf } from "./kinds";
import type { Kind } from "./kinds";
import { Listing } from "./listing";
import { usePolled } from "./live";
import { problem } from "./model";
import type { Condition } from "./model";
import { go, link } from "./router";
import type { Place } from "./router";
import { Tree } from "./tree";
import { Badge, Copy, ViewYaml, fits, kubectl } from "./ui";
import { Details } from "./workspace";

/** Seconds between two looks at the objects of a workspace. */
const LOOK = 20;
/** Objects of a kind that are looked at. */
const OBJECTS_MAX = 500;
/** Groups whose objects have no conditions of this kind, and former names of others. */
const SILENT = /^$|\.kcp\.dev$|^(authentication|authorization|rbac\.authorization|coordination|events|admissionregistration)\.k8s\.io$/;
/** Groups whose conditions are good when they are true. */
const OURS = /\.kcp\.io$/;
/** Conditions of others that are good when they are true. */
const POSITIVE = new Set(["Ready", "Available", "Established", "NamesAccepted", "Synced", "Healthy", "Succeeded"]);

/** An object with conditions that do not hold. */
interface Failing {
  kind: Kind;
  namespace: string;
  name: string;
  /** The causes first, the sum of them last. Conditions for the same reason are one. */
  chain: Condition[];
}

interface Listed {
  metadata: { name: string; namespace?: string };
  status?: { conditions?: Condition[] };
}

function chainOf(kind: Kind, { status }: Listed): Condition[] {
  const conditions = Array.isArray(status?.conditions) ? status.conditions : [];
  const failed = conditions.filter(({ type, status: holds }) => holds === "False" && (OURS.test(kind.group) || POSITIVE.has(type)));
  failed.sort((a, b) => Number(a.type === "Ready") - Number(b.type === "Ready"));
  const chain: Condition[] = [];
  for (const condition of failed) {
    const same = chain.find(({ reason, message }) => reason === condition.reason && message === condition.message);
    if (same) same.type += `, ${condition.type}`;
    else chain.push({ ...condition });
  }
  return chain;
}

/** Finds the objects of a workspace that are not ready. Kinds that the viewer may not list are left out. */
async function failing(workspace: string, signal: AbortSignal): Promise<Failing[]> {
  const seen = new Set<string>();
  const kinds = (await kindsOf(workspace, signal)).filter(({ group, resource }) => {
    const key = `${resource}.${group}`;
    // Workspaces are in the tree.
    return !SILENT.test(group) && resource !== "workspaces" && !seen.has(key) && seen.add(key);
  });
  const found: Failing[] = [];
  const work = async () => {
    for (let kind = kinds.shift(); kind !== undefined; kind = kinds.shift()) {
      const path = `${pathOf(workspace, kind)}?limit=${OBJECTS_MAX}`;
      const list = await kube<{ items: Listed[] }>(path, { signal }).catch(() => undefined);
      for (const item of list?.items ?? []) {
        const chain = chainOf(kind, item);
        if (chain.length > 0) found.push({ kind, namespace: item.metadata.namespace ?? "", name: item.metadata.name, chain });
      }
    }
  };
  await Promise.all([work(), work(), work(), work()]);
  return found;
}

/** A row: a workspace or an object. */
interface Item {
  key: string;
  what: string;
  name: string;
  reason: string;
  message: string;
  since: string | undefined;
  object?: Failing;
}

function itemOf(object: Failing): Item {
  const { kind, namespace, name, chain } = object;
  const first = chain[0];
  return {
    key: `${named(kind)} ${namespace}/${name}`,
    what: kind.kind,
    name: namespace ? `${namespace}/${name}` : name,
    reason: first?.reason || first?.type || "",
    message: first?.message ?? "",
    since: first?.lastTransitionTime,
    object,
  };
}

export function Stuck({ place, home }: { place: Place; home: string }) {
  const workspace = place.workspace || home;
  const tree = useMemo(() => new Tree(workspace), [workspace]);
  const [, update] = useState(0);
  const [objects, setObjects] = useState<Failing[]>();
  const [query, setQuery] = useState("");
  const [chosen, setChosen] = useState(place.query.get("show") ?? "");
  useEffect(() => {
    const stop = tree.subscribe(() => update((tick) => tick + 1));
    void tree.load();
    return () => {
      stop();
      tree.close();
    };
  }, [tree]);
  const stuck = tree.search("", true).map(({ node }) => node.workspace);
  const parents = [...new Set([workspace, ...stuck.map(({ parent }) => parent)])].filter((path) => tree.nodes.has(path));
  useEffect(() => {
    if (tree.loaded) tree.follow(parents);
  }, [tree, tree.loaded, parents.join(" ")]);
  const polled = usePolled(workspace, LOOK, async (signal) => setObjects(await failing(workspace, signal)));
  const items: Item[] = [
    ...stuck.map((one) => {
      const why = problem(one);
      return {
        key: one.path,
        what: "Workspace",
        name: one.path,
        reason: why?.reason || why?.type || "",
        message: why?.message ?? "",
        since: why?.lastTransitionTime ?? one.createTime,
      };
    }),
    ...(objects ?? []).map(itemOf),
  ].filter(({ what, name, reason, message }) => fits(query, `${what} ${name} ${reason} ${message}`));
  const shown = items.find(({ key }) => key === chosen);
  const columns: Column<Item>[] = [
    { title: "Kind", width: "130px", cell: ({ what }) => what },
    { title: "Name", width: "minmax(150px, 1fr)", cell: ({ name }) => name },
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
        kubectl: kubectl(workspace, "get workspaces,apibindings"),
        insula: `insula ws explain ${workspace}`,
        yaml: `/clusters/${workspace}/apis/apis.kcp.io/v1alpha2/apibindings?limit=50`,
        live: polled.state === "stale" ? polled : tree.live,
      }}
      what="stuck"
      query={query}
      change={setQuery}
      found={`${count(items.length)} stuck`}
      error={tree.error}
      retry={() => void tree.load()}
      ready
      columns={columns}
      rows={items}
      keyOf={({ key }) => key}
      choose={choose}
      chosen={chosen}
      empty={tree.loaded && objects ? `Nothing is stuck in ${workspace} and the workspaces below it.` : "Looking…"}
    >
      {shown?.object ? (
        <Chain workspace={workspace} object={shown.object} />
      ) : (
        <Details key={shown?.key ?? ""} path={shown?.key ?? ""} fresh={tree.nodes.get(shown?.key ?? "")?.workspace.revision ?? 0} />
      )}
    </Listing>
  );
}

function Chain({ workspace, object }: { workspace: string; object: Failing }) {
  const { kind, namespace, name, chain } = object;
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
        <Copy text={kubectl(workspace, commandOf(kind, namespace, name))}>Copy kubectl</Copy>
        <Copy text={`insula ws explain ${workspace}`}>Copy insula</Copy>
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
