// The workspaces that a viewer sees, as a tree that follows changes.

import { Refused, call, stream } from "./api";
import { NOW_AND_THEN, UNWATCHED, sleep } from "./live";
import type { Header, Limits, Metered, ResourceUsage, Workspace, WorkspaceUsage } from "./model";
import { problem } from "./model";
import type { Live } from "./ui";

/** Watches at once, of the 250 streams that a connection may have. The parents that were opened last
 * are followed. */
const WATCHES_MAX = 60;
/** Milliseconds between two pictures while the tree is read: each of them looks at all workspaces. */
const PICTURE = 150;
/** Milliseconds between two readings of the use of the same workspaces. */
const USAGE_MIN = 25_000;
/** Milliseconds before a broken watch is tried again, at first and at most. */
const RETRY = [1000, 15000] as const;

export interface Node {
  workspace: Workspace;
  /** What a search looks at, in lower case. */
  text: string;
  children: string[];
  depth: number;
}

export interface Row {
  node: Node;
  level: number;
  open: boolean;
}

function searched({ path, type, phase, cluster }: Workspace): string {
  return `${path} ${type} ${phase} ${cluster}`.toLowerCase();
}

interface Change {
  header: Header;
  type: string;
  workspace: Workspace;
}

export class Tree {
  readonly nodes = new Map<string, Node>();
  readonly usage = new Map<string, WorkspaceUsage>();
  readonly limits = new Map<string, Limits | undefined>();
  live: Live = { state: "connecting" };
  loaded = false;
  error: unknown;
  version = 0;
  private revision = 0;
  private readonly watches = new Map<string, AbortController>();
  private readonly broken = new Map<string, Date>();
  /** Parents whose children the viewer may list, and not watch. */
  private readonly unwatched = new Set<string>();
  private readonly listeners = new Set<() => void>();
  private readonly askedLimits = new Set<string>();
  /** When the usage of the children of a workspace is read next, of the root under no name. */
  private readonly nextUsage = new Map<string, number>();
  private readonly ended = new AbortController();
  private loading = new AbortController();
  private loadingOnce: Promise<void> | undefined;
  private waits = false;
  /** The levels below the first are being read. */
  private reading = false;

  constructor(readonly root: string) {}

  subscribe(run: () => void): () => void {
    this.listeners.add(run);
    return () => this.listeners.delete(run);
  }

  close(): void {
    this.ended.abort();
    this.loading.abort();
    for (const watch of this.watches.values()) watch.abort();
    this.watches.clear();
  }

  private changed(): void {
    this.version += 1;
    // Many changes at once are one picture.
    if (this.waits) return;
    this.waits = true;
    const show = () => {
      this.waits = false;
      for (const run of this.listeners) run();
    };
    if (this.reading) setTimeout(show, PICTURE);
    else requestAnimationFrame(show);
  }

  /** Reads the first level, which is in sight, and then the whole tree at one revision. */
  async load(): Promise<void> {
    this.loading.abort();
    this.loading = new AbortController();
    const { signal } = this.loading;
    this.error = undefined;
    try {
      await this.read(1, signal);
      this.reading = true;
      const { found, revision } = await this.read(0, signal);
      // Watches begin here: what was read of a part later tells nothing of the others.
      this.revision = revision;
      for (const path of [...this.nodes.keys()]) if (!found.has(path)) this.remove(path);
      this.loaded = true;
    } catch (error) {
      if (signal.aborted) return;
      this.error = error;
    }
    this.reading = false;
    this.changed();
  }

  /** Reads the tree for all watches that need it at a time. */
  private loadOnce(): Promise<void> {
    this.loadingOnce ??= this.load().finally(() => {
      this.loadingOnce = undefined;
    });
    return this.loadingOnce;
  }

  /** Reads some levels of the tree; 0 means all. Returns the paths, and the revision that they show. */
  private async read(
    maxDepth: number,
    signal: AbortSignal,
    root = this.root,
  ): Promise<{ found: Set<string>; revision: number }> {
    const found = new Set<string>();
    let revision = 0;
    await stream<{ header: Header; workspace: Workspace }>(
      "WorkspaceService/TreeWorkspaces",
      { root, maxDepth },
      ({ header, workspace }) => {
        revision = header.revision;
        found.add(workspace.path);
        this.insert(workspace);
        this.changed();
      },
      signal,
    );
    return { found, revision };
  }

  private insert(workspace: Workspace): void {
    const known = this.nodes.get(workspace.path);
    if (known) {
      known.workspace = workspace;
      known.text = searched(workspace);
      return;
    }
    const parent = this.nodes.get(workspace.parent);
    const depth = parent ? parent.depth + 1 : 0;
    this.nodes.set(workspace.path, { workspace, text: searched(workspace), children: [], depth });
    if (!parent) return;
    const { children } = parent;
    const last = children.at(-1);
    if (last === undefined || last < workspace.path) children.push(workspace.path);
    else if (!children.includes(workspace.path)) {
      const place = children.findIndex((path) => path > workspace.path);
      children.splice(place, 0, workspace.path);
    }
  }

  private remove(path: string): void {
    const node = this.nodes.get(path);
    if (!node) return;
    for (const child of node.children) this.remove(child);
    this.nodes.delete(path);
    this.unfollow(path);
    const parent = this.nodes.get(node.workspace.parent);
    if (parent) parent.children = parent.children.filter((child) => child !== path);
  }

  /** Follows the children of some workspaces, and of no others. */
  follow(parents: string[]): void {
    const wanted = new Set(parents.slice(-WATCHES_MAX));
    for (const parent of [...this.watches.keys()]) if (!wanted.has(parent)) this.unfollow(parent);
    for (const parent of wanted) {
      if (this.watches.has(parent)) continue;
      const watch = new AbortController();
      this.watches.set(parent, watch);
      void this.watch(parent, watch.signal);
    }
    this.showLive();
  }

  private unfollow(parent: string): void {
    this.watches.get(parent)?.abort();
    this.watches.delete(parent);
    this.broken.delete(parent);
    this.unwatched.delete(parent);
  }

  private async watch(parent: string, signal: AbortSignal): Promise<void> {
    let revision = this.revision;
    let wait: number = RETRY[0];
    while (!signal.aborted) {
      try {
        // An open watch says nothing before the first change: it is live until it ends.
        this.broken.delete(parent);
        this.showLive();
        await stream<Change>(
          "WorkspaceService/WatchWorkspaces",
          { parent, revision },
          ({ header, type, workspace }) => {
            revision = Math.max(revision, header.revision);
            wait = RETRY[0];
            this.unwatched.delete(parent);
            if (type === "CHANGE_TYPE_DELETED") this.remove(workspace.path);
            else if (type === "CHANGE_TYPE_ADDED" || type === "CHANGE_TYPE_MODIFIED") this.insert(workspace);
            this.changed();
          },
          signal,
        );
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused && error.status === 403) {
          await this.readNowAndThen(parent, signal);
          continue;
        }
        // A revision that is gone: the tree is read again.
        if (error instanceof Refused && error.status !== 0 && error.status < 500 && error.status !== 429) {
          if (error.status !== 400) return;
          await this.loadOnce();
          revision = this.revision;
        }
      }
      if (signal.aborted) return;
      if (!this.broken.has(parent)) this.broken.set(parent, new Date());
      this.showLive();
      await sleep(wait, signal);
      wait = Math.min(wait * 2, RETRY[1]);
      await this.reachable(signal);
    }
  }

  /** Reads the children of a workspace that the viewer may not watch, once, after a while. */
  private async readNowAndThen(parent: string, signal: AbortSignal): Promise<void> {
    this.unwatched.add(parent);
    this.showLive();
    await sleep(UNWATCHED, signal);
    if (signal.aborted) return;
    try {
      const { found } = await this.read(1, signal, parent);
      for (const child of this.nodes.get(parent)?.children ?? []) if (!found.has(child)) this.remove(child);
    } catch {
      // The watch is tried next, and says what is wrong.
    }
  }

  /** Waits until the server answers again, so that "live" is not said of one that is gone. */
  private async reachable(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        await call("WorkspaceService/GetWorkspace", { workspace: this.root }, signal);
        return;
      } catch (error) {
        if (error instanceof Refused && error.status < 500) return;
        await sleep(RETRY[0] * 2, signal);
      }
    }
  }

  private showLive(): void {
    const oldest = [...this.broken.values()].sort((a, b) => a.getTime() - b.getTime())[0];
    const before = this.live;
    const open: Live = this.unwatched.size > 0 ? NOW_AND_THEN : { state: "live" };
    const known: Live = this.loaded && this.watches.size > 0 ? open : { state: "connecting" };
    this.live = oldest ? { state: "stale", since: oldest } : known;
    if (before.state !== this.live.state) this.changed();
  }

  /** Reads the usage of the children of a workspace, which nothing watches, once in a while: the more
   * pages, the less often. */
  private loadUsage(parent: string): Promise<void> {
    return this.onceInAWhile(parent, () => this.readUsage(parent));
  }

  /** Runs a reading that returns its pages, if it neither runs nor ran just before, nor was refused. */
  private async onceInAWhile(key: string, run: () => Promise<number>): Promise<void> {
    if (Date.now() < (this.nextUsage.get(key) ?? 0)) return;
    this.nextUsage.set(key, Infinity);
    try {
      const pages = await run();
      this.nextUsage.set(key, Date.now() + USAGE_MIN * Math.max(pages, 1));
    } catch (error) {
      // The columns stay empty for who may not see usage.
      const refused = error instanceof Refused && error.status === 403;
      if (!refused) this.nextUsage.set(key, Date.now() + USAGE_MIN);
    }
  }

  private async readUsage(parent: string): Promise<number> {
    let pageToken = "";
    let pages = 0;
    do {
      const page = await call<{ workspaces: WorkspaceUsage[]; nextPageToken: string }>(
        "QuotaService/ListUsage",
        { parent, hours: 1, pageSize: 1000, pageToken },
        this.ended.signal,
      );
      for (const usage of page.workspaces) this.usage.set(usage.path, usage);
      pageToken = page.nextPageToken;
      pages += 1;
      this.changed();
    } while (pageToken !== "");
    return pages;
  }

  /** Reads the usage of some workspaces, with that of their siblings. The first one is alone. */
  loadUsageOf(paths: string[]): void {
    const parents = new Set<string>();
    for (const path of paths) {
      const parent = this.nodes.get(path)?.workspace.parent;
      if (path === this.root) void this.onceInAWhile("", () => this.readOwnUsage());
      else if (parent) parents.add(parent);
    }
    for (const parent of parents) void this.loadUsage(parent);
  }

  private async readOwnUsage(): Promise<number> {
    const request = { workspace: this.root, hours: 1 };
    interface Own {
      resources: ResourceUsage[];
      metered: Metered[];
    }
    const { resources, metered } = await call<Own>("QuotaService/GetUsage", request, this.ended.signal);
    const sum = (value: (one: ResourceUsage) => number) => resources.reduce((all, one) => all + value(one), 0);
    const known = { path: this.root, cluster: "", objects: sum(({ objects }) => objects), bytes: sum(({ bytes }) => bytes) };
    this.usage.set(this.root, { ...known, ...(metered[0] && { metered: metered[0] }) });
    this.changed();
    return 1;
  }

  /** Reads the limits of workspaces that are in sight, each once. */
  async loadLimits(paths: string[]): Promise<void> {
    const wanted = paths.filter((path) => !this.askedLimits.has(path));
    for (const path of wanted) this.askedLimits.add(path);
    const work = async () => {
      for (let path = wanted.shift(); path !== undefined; path = wanted.shift()) {
        try {
          const answer = await call<{ effective: Limits }>("QuotaService/GetLimits", { workspace: path }, this.ended.signal);
          this.limits.set(path, answer.effective);
        } catch {
          this.limits.set(path, undefined);
        }
        this.changed();
      }
    };
    await Promise.all([work(), work(), work(), work()]);
  }

  /** Returns the rows of a tree with some open workspaces. */
  rows(open: ReadonlySet<string>): Row[] {
    const rows: Row[] = [];
    const add = (path: string, level: number) => {
      const node = this.nodes.get(path);
      if (!node) return;
      const isOpen = open.has(path);
      rows.push({ node, level, open: isOpen });
      if (isOpen) for (const child of node.children) add(child, level + 1);
    };
    for (const [path, node] of this.nodes) if (node.depth === 0) add(path, 1);
    return rows;
  }

  /** Returns the workspaces whose path, type or phase have all words of a query. */
  search(query: string, onlyStuck: boolean): Row[] {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const rows: Row[] = [];
    for (const node of this.nodes.values()) {
      if (onlyStuck && !problem(node.workspace)) continue;
      if (words.every((word) => node.text.includes(word))) rows.push({ node, level: 1, open: false });
    }
    return rows.sort((a, b) => (a.node.workspace.path < b.node.workspace.path ? -1 : 1));
  }

  stuck(): number {
    let count = 0;
    for (const node of this.nodes.values()) if (problem(node.workspace)) count += 1;
    return count;
  }
}
