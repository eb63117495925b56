// The tree of workspaces: phase, objects, rate, quota, and what is stuck.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Refused } from "./api";
import { age, count } from "./format";
import { problem, requests } from "./model";
import type { Workspace } from "./model";
import { beginAt, go, isPath, link } from "./router";
import type { Place } from "./router";
import type { Row, Tree } from "./tree";
import { Badge, Bar, Button, LiveBadge, Mark, Problem, Search, useRows } from "./ui";
import type { Tone } from "./ui";
import { useTree } from "./use-tree";
import { Details } from "./workspace";

const ROW = 30;
/** Milliseconds between two looks at the use of what is in sight. */
const USAGE = 10_000;
/** Workspaces up to which the tree opens all of its first level. */
const OPEN_FIRST = 12;

export function tone(workspace: Workspace): Tone {
  if (workspace.deleteTime || workspace.phase === "Terminating" || workspace.phase === "Deleting") return "warn";
  if (workspace.phase === "Ready") return problem(workspace) ? "warn" : "good";
  if (workspace.phase === "Unavailable") return "bad";
  return "busy";
}

export function Workspaces({ place, home }: { place: Place; home: string }) {
  const [open, setOpen] = useState<ReadonlySet<string>>(() => new Set([home]));
  const tree = useTree(home, () => [...open]);
  const [query, setQuery] = useState(place.query.get("q") ?? "");
  const [onlyStuck, setOnlyStuck] = useState(place.query.get("stuck") === "1");
  const selected = place.workspace;
  const scroller = useRef<HTMLDivElement>(null);

  useEffect(() => {
    if (!tree.loaded) return;
    const first = tree.nodes.get(home)?.children ?? [];
    setOpen((before) => new Set([...before, ...ancestors(selected), ...(first.length <= OPEN_FIRST ? first : [])]));
  }, [tree, tree.loaded]);

  const searching = query.trim() !== "" || onlyStuck;
  const rows = useMemo(
    () => (searching ? tree.search(query, onlyStuck) : tree.rows(open)),
    [tree, tree.version, query, onlyStuck, open, searching],
  );
  const virtual = useRows(scroller, rows.length, ROW);
  const inSight = virtual.items.map(({ index }) => rows[index]?.node.workspace.path ?? "").filter(Boolean);
  const key = inSight.join(" ");
  const latest = useRef(inSight);
  latest.current = inSight;
  useEffect(() => {
    const timer = setTimeout(() => {
      void tree.loadLimits(inSight);
      tree.loadUsageOf(inSight);
    }, 150);
    return () => clearTimeout(timer);
  }, [tree, key]);
  // Nothing watches what workspaces use.
  useEffect(() => {
    const timer = setInterval(() => document.hidden || tree.loadUsageOf(latest.current), USAGE);
    return () => clearInterval(timer);
  }, [tree]);

  const choose = (path: string, how: "push" | "replace" = "push") => {
    const to = new URLSearchParams();
    if (query) to.set("q", query);
    if (onlyStuck) to.set("stuck", "1");
    go(link("workspaces", path) + (to.size > 0 ? `?${to}` : ""), how);
  };
  const toggle = (path: string, wanted?: boolean) => {
    const next = new Set(open);
    if (wanted ?? !open.has(path)) next.add(path);
    else next.delete(path);
    setOpen(next);
  };
  const at = rows.findIndex((row) => row.node.workspace.path === selected);
  // A link to a workspace shows it.
  const shown = useRef(false);
  useEffect(() => {
    if (shown.current || !tree.loaded || at < 0) return;
    shown.current = true;
    virtual.scrollTo(at);
  });
  const move = (to: number) => {
    const row = rows[Math.max(0, Math.min(rows.length - 1, to))];
    if (!row) return;
    choose(row.node.workspace.path, "replace");
    virtual.scrollTo(rows.indexOf(row));
  };
  const press = (event: KeyboardEvent) => {
    const row = rows[at];
    const path = row?.node.workspace.path;
    const moves: Record<string, () => void> = {
      ArrowDown: () => move(at + 1),
      ArrowUp: () => move(at - 1),
      PageDown: () => move(at + 20),
      PageUp: () => move(at - 20),
      Home: () => move(0),
      End: () => move(rows.length - 1),
      ArrowRight: () => (row && path && !searching && !row.open ? toggle(path, true) : move(at + 1)),
      ArrowLeft: () => {
        if (row?.open && path && !searching) toggle(path, false);
        else if (row) move(rows.findIndex((other) => other.node.workspace.path === row.node.workspace.parent));
      },
      Enter: () => path && !searching && toggle(path),
      " ": () => path && !searching && toggle(path),
    };
    const run = moves[event.key];
    if (!run || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    run();
  };
  const stuck = tree.stuck();

  return (
    <div class="split">
      <section class="tree" aria-label="Workspaces">
        <div class="toolbar">
          <Search
            what="workspaces"
            query={query}
            change={setQuery}
            press={(event) => {
              if (event.key === "Escape") setQuery("");
              if (event.key === "ArrowDown" || event.key === "Enter") {
                event.preventDefault();
                scroller.current?.focus();
                if (at < 0) move(0);
              }
            }}
          />
          <button type="button" aria-pressed={onlyStuck} onClick={() => setOnlyStuck(!onlyStuck)}>
            <Mark tone={stuck > 0 ? "bad" : "good"} /> {count(stuck)} stuck
          </button>
          <span class="faint" role="status" data-count={rows.length}>
            {searching ? `${count(rows.length)} of ${count(tree.nodes.size)}` : count(tree.nodes.size)} workspaces
          </span>
          <LiveBadge live={tree.live} />
        </div>
        {tree.error !== undefined && <Problem error={tree.error} retry={() => void tree.load()} />}
        {tree.error instanceof Refused && <Elsewhere />}
        <div
          class="grid"
          role="treegrid"
          aria-label="Workspaces"
          aria-rowcount={rows.length + 1}
          aria-activedescendant={at >= 0 ? rowId(selected) : undefined}
          tabIndex={0}
          ref={scroller}
          onKeyDown={press}
        >
          <div class="row head" role="row" aria-rowindex={1}>
            {["Workspace", "Phase", "Objects", "Quota", "Requests/h", "Age", "Problem"].map((title) => (
              <span role="columnheader" key={title} class={NUMBERS.has(title) ? "number" : ""}>
                {title}
              </span>
            ))}
          </div>
          <div role="rowgroup" class="rows" style={{ height: `${virtual.height}px` }}>
            {virtual.items.map(({ index, start }) => {
              const row = rows[index];
              return (
                row && (
                  <Line
                    key={row.node.workspace.path}
                    tree={tree}
                    row={row}
                    index={index}
                    start={start}
                    selected={row.node.workspace.path === selected}
                    searching={searching}
                    choose={choose}
                    toggle={toggle}
                  />
                )
              );
            })}
          </div>
          {tree.loaded && rows.length === 0 && (
            <p class="empty">
              {searching ? "No workspace has these words." : "You see no workspace here."}
              <br />
              <code>insula ws create NAME</code> makes one.
            </p>
          )}
        </div>
      </section>
      <Details key={selected} path={selected} root={home} fresh={tree.nodes.get(selected)?.workspace.revision ?? 0} />
    </div>
  );
}

/** The way to another workspace for who may not see the one in which pages begin. */
function Elsewhere() {
  const [path, setPath] = useState("");
  const begin = (event: SubmitEvent) => {
    event.preventDefault();
    beginAt(path.trim());
    go(link("workspaces"));
  };
  return (
    <form class="begin" onSubmit={begin}>
      <label>
        Begin at another workspace{" "}
        <input value={path} placeholder="root:org" spellcheck={false} onInput={(event) => setPath(event.currentTarget.value)} />
      </label>
      <Button type="submit" why={isPath(path.trim()) ? undefined : "Write the path of a workspace, as root:org."}>
        Begin
      </Button>
    </form>
  );
}

const NUMBERS = new Set(["Objects", "Requests/h", "Age"]);

interface LineProps {
  tree: Tree;
  row: Row;
  index: number;
  start: number;
  selected: boolean;
  searching: boolean;
  choose: (path: string) => void;
  toggle: (path: string) => void;
}

function Line({ tree, row, index, start, selected, searching, choose, toggle }: LineProps) {
  const { workspace, children } = row.node;
  const usage = tree.usage.get(workspace.path);
  const limits = tree.limits.get(workspace.path);
  const stuck = problem(workspace);
  const isParent = children.length > 0 && !searching;
  return (
    <div
      class={`row ${selected ? "selected" : ""}`}
      role="row"
      id={rowId(workspace.path)}
      aria-rowindex={index + 2}
      aria-level={row.level}
      aria-selected={selected}
      {...(isParent && { "aria-expanded": row.open })}
      style={{ transform: `translateY(${start}px)` }}
      onClick={() => choose(workspace.path)}
    >
      <span role="gridcell" class="name" style={{ paddingLeft: `${(row.level - 1) * 18}px` }}>
        <span
          class={`fold ${isParent ? (row.open ? "open" : "closed") : ""}`}
          aria-hidden="true"
          onClick={(event) => {
            if (!isParent) return;
            event.stopPropagation();
            toggle(workspace.path);
          }}
        />
        <span class="label" title={`${workspace.path} (${workspace.type})`}>
          {searching ? workspace.path : workspace.name}
        </span>
        {children.length > 0 && <span class="children">{count(children.length)}</span>}
      </span>
      <span role="gridcell">
        <Badge tone={tone(workspace)}>{workspace.phase || "Pending"}</Badge>
      </span>
      <span role="gridcell" class="number">
        {usage ? count(usage.objects) : ""}
      </span>
      <span role="gridcell">
        {usage && limits && <Quota usage={usage} limits={limits} />}
      </span>
      <span role="gridcell" class="number">
        {usage ? count(requests(usage.metered)) : ""}
      </span>
      <span role="gridcell" class="number faint">
        {age(workspace.createTime)}
      </span>
      <span role="gridcell" class="why" title={stuck?.message}>
        {stuck && (
          <Badge tone="bad">
            {stuck.reason || stuck.type}
          </Badge>
        )}
      </span>
    </div>
  );
}

/** The share of the limit that is used most. */
function Quota({ usage, limits }: { usage: { objects: number; bytes: number }; limits: { objects: number; storageBytes: number } }) {
  const shares = [
    { used: usage.objects, limit: limits.objects, label: `${count(usage.objects)} of ${count(limits.objects)} objects` },
    { used: usage.bytes, limit: limits.storageBytes, label: `${count(usage.bytes)} of ${count(limits.storageBytes)} bytes` },
  ].filter(({ limit }) => limit > 0);
  shares.sort((a, b) => b.used / b.limit - a.used / a.limit);
  const most = shares[0];
  return most ? <Bar {...most} /> : <span class="faint">no limit</span>;
}

function rowId(path: string): string {
  return `ws-${path.replaceAll(":", "_")}`;
}

function ancestors(path: string): string[] {
  const parts = path.split(":");
  return parts.slice(0, -1).map((_, index) => parts.slice(0, index + 1).join(":"));
}
