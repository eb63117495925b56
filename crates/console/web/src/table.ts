// A list of objects as the server's table, page by page, and then its changes.

import { useEffect, useState } from "preact/hooks";
import { Refused, kube, watch } from "./api";
import { NOW_AND_THEN, RETRY_MAX, RETRY_MIN, UNWATCHED, sleep } from "./live";
import type { Live } from "./ui";

/** Rows that are read at most. */
export const ROWS_MAX = 20_000;
const PAGE = 500;
const ACCEPT = "application/json;as=Table;v=v1;g=meta.k8s.io";

export interface Row {
  cells: unknown[];
  object: {
    metadata: { name: string; namespace?: string; uid: string; creationTimestamp?: string; deletionTimestamp?: string };
  };
}

export interface ColumnDefinition {
  name: string;
  type: string;
  format: string;
  priority: number;
  description: string;
}

interface Table {
  columnDefinitions?: ColumnDefinition[];
  metadata: { resourceVersion: string; continue?: string };
  rows: Row[];
}

export interface Objects {
  columns: ColumnDefinition[];
  rows: Row[];
  /** There are more than were read. */
  cut: boolean;
  loaded: boolean;
  live: Live;
  error: unknown;
}

/** Reads and follows one list. Tells of each change by `changed`. */
class Feed {
  readonly rows = new Map<string, Row>();
  columns: ColumnDefinition[] = [];
  cut = false;
  loaded = false;
  live: Live = { state: "connecting" };
  error: unknown;
  private readonly ended = new AbortController();

  constructor(
    private readonly path: string,
    private readonly changed: () => void,
  ) {
    void this.run();
  }

  close(): void {
    this.ended.abort();
  }

  private async run(): Promise<void> {
    const { signal } = this.ended;
    let wait = RETRY_MIN;
    while (!signal.aborted) {
      let listed = false;
      try {
        const revision = await this.list();
        listed = true;
        this.error = undefined;
        wait = RETRY_MIN;
        await this.follow(revision);
      } catch (error) {
        if (signal.aborted) return;
        if (!this.loaded) this.error = error;
        if (listed && error instanceof Refused && error.status === 403) {
          // The viewer may list, and not watch.
          this.live = NOW_AND_THEN;
          this.changed();
          await sleep(UNWATCHED, signal);
          continue;
        }
        if (error instanceof Refused && (error.status === 403 || error.status === 404)) {
          // Rows that the viewer may not read any more are not shown as if they were read.
          this.error = error;
          this.rows.clear();
          this.live = { state: "refused" };
          this.changed();
          return;
        }
      }
      if (this.live.state !== "stale") this.live = { state: "stale", since: new Date() };
      this.changed();
      await sleep(wait);
      wait = Math.min(wait * 2, RETRY_MAX);
    }
  }

  /** Reads all pages. Returns the revision that they show. */
  private async list(): Promise<string> {
    const found = new Map<string, Row>();
    let next = "";
    let revision = "";
    do {
      const query = `?limit=${PAGE}${next && `&continue=${encodeURIComponent(next)}`}`;
      const { signal } = this.ended;
      const table = await kube<Table>(`${this.path}${query}`, { headers: { Accept: ACCEPT }, signal });
      if (table.columnDefinitions) this.columns = table.columnDefinitions;
      for (const row of table.rows) found.set(row.object.metadata.uid, row);
      next = table.metadata.continue ?? "";
      revision = table.metadata.resourceVersion;
      // The first page is there at once.
      if (!this.loaded) {
        for (const [uid, row] of found) this.rows.set(uid, row);
        this.changed();
      }
    } while (next !== "" && found.size < ROWS_MAX);
    this.cut = next !== "";
    this.rows.clear();
    for (const [uid, row] of found) this.rows.set(uid, row);
    this.loaded = true;
    this.changed();
    return revision;
  }

  private async follow(revision: string): Promise<void> {
    const { signal } = this.ended;
    await watch<Table>(`${this.path}?watch=true&resourceVersion=${revision}`, {
      accept: ACCEPT,
      signal,
      opened: () => {
        this.live = { state: "live" };
        this.changed();
      },
      receive: ({ type, object }) => {
        for (const row of object.rows ?? []) {
          if (type === "DELETED") this.rows.delete(row.object.metadata.uid);
          else if (this.rows.size < ROWS_MAX) this.rows.set(row.object.metadata.uid, row);
        }
        this.changed();
      },
    });
  }
}

const NOTHING: Objects = { columns: [], rows: [], cut: false, loaded: false, live: { state: "connecting" }, error: undefined };

/** Follows the objects of a path. */
export function useTable(path: string): Objects {
  const [objects, setObjects] = useState(NOTHING);
  useEffect(() => {
    setObjects(NOTHING);
    if (path === "") return;
    let frame = 0;
    const feed = new Feed(path, () => {
      // Many changes at once are one picture.
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        const { columns, rows, cut, loaded, live, error } = feed;
        setObjects({ columns, rows: [...rows.values()], cut, loaded, live, error });
      });
    });
    return () => {
      cancelAnimationFrame(frame);
      feed.close();
    };
  }, [path]);
  return objects;
}
