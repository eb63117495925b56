// Pages that follow what they show: they read again when it changes, or now and then, and say since
// when they are stale.

import { useEffect, useRef, useState } from "preact/hooks";
import { Refused, watch } from "./api";
import type { Live } from "./ui";

/** Milliseconds before a broken watch is tried again, at first and at most. */
export const RETRY_MIN = 1000;
export const RETRY_MAX = 15000;
/** Changes within this time are one. */
const QUIET = 300;

export function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

type Read = (signal: AbortSignal) => Promise<void>;

/** Runs `read` at first, and after each change of what some paths of the API watch. */
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
    const show = () => {
      if (signal.aborted) return;
      const since = [...broken.values()].sort((a, b) => a.getTime() - b.getTime())[0];
      setLive(since ? { state: "stale", since } : { state: "live" });
    };
    const again = () => {
      clearTimeout(timer);
      timer = window.setTimeout(() => void latest.current(signal).catch(() => undefined), QUIET);
    };
    const follow = async (path: string) => {
      let wait = RETRY_MIN;
      while (!signal.aborted) {
        try {
          const opened = () => {
            wait = RETRY_MIN;
            // What happened without a watch was missed.
            if (broken.delete(path)) again();
            show();
          };
          await watch(path, { opened, receive: again, signal });
        } catch (error) {
          // Without the right to watch there is nothing to wait for.
          if (error instanceof Refused && (error.status === 403 || error.status === 404)) return;
        }
        if (signal.aborted) return;
        if (!broken.has(path)) broken.set(path, new Date());
        show();
        await sleep(wait);
        wait = Math.min(wait * 2, RETRY_MAX);
      }
    };
    void latest.current(signal).catch(() => undefined);
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
        try {
          await latest.current(signal);
          stale = undefined;
        } catch {
          stale ??= new Date();
        }
        if (signal.aborted) return;
        setLive(stale ? { state: "stale", since: stale } : { state: "live" });
        await sleep(seconds * 1000);
      }
    };
    void run();
    return () => ended.abort();
  }, [key, seconds, round]);
  return { ...live, again: () => setRound((before) => before + 1) };
}
