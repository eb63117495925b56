// Pages that follow what they show: they read again when it changes, or now and then, and say since
// when they are stale.

import { useEffect, useRef, useState } from "preact/hooks";
import { Refused, watch } from "./api";
import type { Live } from "./ui";

/** Milliseconds before a broken watch is tried again, at first and at most. */
export const RETRY_MIN = 1000;
export const RETRY_MAX = 15000;
/** Milliseconds between two readings of what the viewer may not watch. */
export const UNWATCHED = 30_000;
/** The state of a page that reads what the viewer may not watch. */
export const NOW_AND_THEN: Live = { state: "read", every: UNWATCHED / 1000 };
/** Changes within this time are one. */
const QUIET = 300;

/** Waits for a time, or until the signal. */
export function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, signal?.aborted ? 0 : milliseconds);
    signal?.addEventListener("abort", end);
  });
}

type Read = (signal: AbortSignal) => Promise<void>;

/** Runs `read` at first, and after each change of what some paths of the API watch. What the viewer may
 * not watch, or the workspace does not serve, it reads now and then. A `read` that fails makes the page
 * stale. */
export function useLive(paths: string[], read: Read): Live {
  const [live, setLive] = useState<Live>({ state: "connecting" });
  const latest = useRef(read);
  latest.current = read;
  useEffect(() => {
    if (paths.length === 0) return;
    const ended = new AbortController();
    const { signal } = ended;
    let timer = 0;
    const broken = new Map<string, Date>();
    const unwatched = new Set<string>();
    const show = () => {
      if (signal.aborted) return;
      const since = [...broken.values()].sort((a, b) => a.getTime() - b.getTime())[0];
      setLive(since ? { state: "stale", since } : unwatched.size > 0 ? NOW_AND_THEN : { state: "live" });
    };
    // No path has this name.
    const reading = "";
    const readNow = async () => {
      try {
        await latest.current(signal);
        if (broken.delete(reading)) show();
      } catch {
        if (signal.aborted) return;
        if (!broken.has(reading)) broken.set(reading, new Date());
        show();
        // No change may come that has it read again.
        clearTimeout(timer);
        timer = window.setTimeout(() => void readNow(), RETRY_MAX);
      }
    };
    const again = () => {
      clearTimeout(timer);
      timer = window.setTimeout(() => void readNow(), QUIET);
    };
    const follow = async (path: string) => {
      let wait = RETRY_MIN;
      while (!signal.aborted) {
        try {
          const opened = () => {
            wait = RETRY_MIN;
            unwatched.delete(path);
            // What happened without a watch was missed.
            if (broken.delete(path)) again();
            show();
          };
          await watch(path, { opened, receive: again, signal });
        } catch (error) {
          if (error instanceof Refused && (error.status === 403 || error.status === 404)) {
            broken.delete(path);
            unwatched.add(path);
            show();
            await sleep(UNWATCHED, signal);
            again();
            continue;
          }
        }
        if (signal.aborted) return;
        if (!broken.has(path)) broken.set(path, new Date());
        show();
        await sleep(wait);
        wait = Math.min(wait * 2, RETRY_MAX);
      }
    };
    void readNow();
    for (const path of paths) void follow(path);
    return () => {
      clearTimeout(timer);
      ended.abort();
    };
  }, [paths.join(" ")]);
  return live;
}

/** Milliseconds that a reading may be late before the page is stale, and after which it is given up. */
const LATE = 5000;
const READING_MAX = 60_000;

/** How fresh readings are, and why the last one failed. */
export type Polled = Live & { error: unknown; again: () => void };

/** Runs `read` at first, and again after some seconds each, for what nothing watches. A `read` that fails, or
 * does not come in time, makes the page stale since the one before; it is tried again soon. */
export function usePolled(key: string, seconds: number, read: Read): Polled {
  const [live, setLive] = useState<Live>({ state: "connecting" });
  const [error, setError] = useState<unknown>();
  const [round, setRound] = useState(0);
  const latest = useRef(read);
  latest.current = read;
  /** The last reading of this key that did not fail, whatever began another one. */
  const last = useRef({ key, at: new Date() });
  if (last.current.key !== key) last.current = { key, at: new Date() };
  useEffect(() => {
    const ended = new AbortController();
    const { signal } = ended;
    let timer = 0;
    const late = () => setLive({ state: "stale", since: last.current.at });
    /** Makes one reading. Returns true unless it failed. */
    const once = async (): Promise<boolean> => {
      let shown: Live = { state: "read", every: seconds };
      let failed: unknown;
      try {
        await latest.current(AbortSignal.any([signal, AbortSignal.timeout(Math.max(READING_MAX, seconds * 2000))]));
        if (!signal.aborted) last.current = { key, at: new Date() };
      } catch (why) {
        failed = why;
        const refused = why instanceof Refused && (why.status === 403 || why.status === 404);
        shown = refused ? { state: "refused" } : { state: "stale", since: last.current.at };
      }
      clearTimeout(timer);
      if (signal.aborted) return false;
      setLive(shown);
      setError(failed);
      if (shown.state === "read") timer = window.setTimeout(late, seconds * 1000 + LATE);
      return shown.state !== "stale";
    };
    const run = async () => {
      let wait = RETRY_MIN;
      while (!signal.aborted) {
        const read = await once();
        await sleep(read ? seconds * 1000 : Math.min(wait, seconds * 1000), signal);
        wait = read ? RETRY_MIN : Math.min(wait * 2, RETRY_MAX);
      }
    };
    void run();
    return () => {
      clearTimeout(timer);
      ended.abort();
    };
  }, [key, seconds, round]);
  return { ...live, error, again: () => setRound((before) => before + 1) };
}

/** Returns how fresh a page is of which parts are read in different ways: as fresh as the oldest of them. */
export function oldest(first: Live, ...rest: Live[]): Live {
  const age = (live: Live): number => {
    switch (live.state) {
      case "stale":
        return Number.MAX_VALUE;
      case "connecting":
        return Number.MAX_SAFE_INTEGER;
      case "read":
        return live.every;
      default:
        return 0;
    }
  };
  return rest.reduce((found, live) => (age(live) > age(found) ? live : found), first);
}

/** The parts of a reading, each of which the server may answer or not. */
export class Parts {
  /** The first refusal of a part that the viewer may not see. */
  refused: unknown;
  /** The first failure of another kind: nothing is known of its part now. */
  failed: unknown;

  /** Returns a part; nothing if it is not answered. */
  async take<T>(answer: Promise<T>): Promise<T | undefined> {
    try {
      return await answer;
    } catch (error) {
      const hidden = error instanceof Refused && (error.status === 403 || error.status === 404);
      if (hidden) this.refused ??= error;
      else this.failed ??= error;
      return undefined;
    }
  }

  /** Returns what was read, with the parts of the reading before where one failed. */
  over<T extends object>(before: T | undefined, read: T): T {
    if (this.failed === undefined || before === undefined) return read;
    const known = Object.entries(read).filter(([, part]) => part !== undefined);
    return { ...before, ...(Object.fromEntries(known) as T) };
  }
}
