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
      setLive(since ? { state: "stale", since } : { state: unwatched.size > 0 ? "read" : "live" });
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

/** Runs `read` at first, and again after some seconds each, for what nothing watches. */
export function usePolled(key: string, seconds: number, read: Read): Live & { again: () => void } {
  const [live, setLive] = useState<Live>({ state: "connecting" });
  const [round, setRound] = useState(0);
  const latest = useRef(read);
  latest.current = read;
  useEffect(() => {
    const ended = new AbortController();
    const { signal } = ended;
    const run = async () => {
      let stale: Date | undefined;
      while (!signal.aborted) {
        let refused = false;
        try {
          await latest.current(signal);
          stale = undefined;
        } catch (error) {
          refused = error instanceof Refused && error.status === 403;
          stale ??= new Date();
        }
        if (signal.aborted) return;
        setLive(refused ? { state: "refused" } : stale ? { state: "stale", since: stale } : { state: "live" });
        await sleep(seconds * 1000);
      }
    };
    void run();
    return () => ended.abort();
  }, [key, seconds, round]);
  return { ...live, again: () => setRound((before) => before + 1) };
}
