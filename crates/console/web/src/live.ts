// Pages that follow one object: they read again when it changes, and say since when they are stale.

import { useEffect, useRef, useState } from "preact/hooks";
import { Refused, watch } from "./api";
import type { Live } from "./ui";

const RETRY_MIN = 1000;
const RETRY_MAX = 15000;
/** Changes within this time are one. */
const QUIET = 300;

/** Runs `read` at first, and after each change of what a path of the API watches. */
export function useLive(path: string, read: (signal: AbortSignal) => Promise<void>): Live {
  const [live, setLive] = useState<Live>({ state: "connecting" });
  const latest = useRef(read);
  latest.current = read;
  useEffect(() => {
    if (path === "") return;
    const ended = new AbortController();
    const { signal } = ended;
    let timer = 0;
    let stale: Date | undefined;
    const again = () => {
      clearTimeout(timer);
      timer = window.setTimeout(() => {
        latest.current(signal).then(
          () => {
            stale = undefined;
            if (!signal.aborted) setLive({ state: "live" });
          },
          () => undefined,
        );
      }, QUIET);
    };
    const follow = async () => {
      let wait = RETRY_MIN;
      await latest.current(signal).catch(() => undefined);
      while (!signal.aborted) {
        try {
          await watch(
            path,
            () => {
              wait = RETRY_MIN;
              again();
            },
            signal,
          );
        } catch (error) {
          // Without the right to watch there is nothing to wait for.
          if (error instanceof Refused && (error.status === 403 || error.status === 404)) return;
        }
        if (signal.aborted) return;
        stale ??= new Date();
        setLive({ state: "stale", since: stale });
        await new Promise((resolve) => setTimeout(resolve, wait));
        wait = Math.min(wait * 2, RETRY_MAX);
      }
    };
    void follow();
    return () => {
      clearTimeout(timer);
      ended.abort();
    };
  }, [path]);
  return live;
}
