// Parts that pages share.

import { Virtualizer, elementScroll, observeElementOffset, observeElementRect } from "@tanstack/virtual-core";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { stringify } from "yaml";
import { Refused, kube } from "./api";
import { clock } from "./format";

/** The state of something: colour and shape say the same, and a text beside them as well. */
export type Tone = "good" | "busy" | "warn" | "bad" | "idle";

const SHAPES: Record<Tone, JSX.Element> = {
  good: <circle cx="6" cy="6" r="4.2" />,
  busy: <path d="M6 1.2 10.8 6 6 10.8 1.2 6z" />,
  warn: <rect x="1.8" y="1.8" width="8.4" height="8.4" rx="1" />,
  bad: <path d="M6 .8 11.6 11H.4z" />,
  idle: <circle cx="6" cy="6" r="3.6" fill="none" stroke="currentColor" stroke-width="1.6" />,
};

export function Mark({ tone }: { tone: Tone }) {
  return (
    <svg class={`mark ${tone}`} viewBox="0 0 12 12" aria-hidden="true">
      {SHAPES[tone]}
    </svg>
  );
}

export function Badge({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return (
    <span class={`badge ${tone}`}>
      <Mark tone={tone} />
      {children}
    </span>
  );
}

/** A share of a limit. Without a limit it is only the number. */
export function Bar({ used, limit, label }: { used: number; limit: number; label: string }) {
  if (limit <= 0) return <span class="faint">no limit</span>;
  const share = Math.min(1, used / limit);
  const tone = share >= 0.95 ? "bad" : share >= 0.8 ? "warn" : "good";
  return (
    <span class="bar" title={label}>
      <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
        <rect class="track" width="100" height="8" rx="2" />
        <rect class={tone} width={Math.max(1, share * 100)} height="8" rx="2" />
      </svg>
      <span>{share >= 0.01 ? `${Math.round(share * 100)}%` : "<1%"}</span>
    </span>
  );
}

/** Bars over time. */
export function Bars({ values, label }: { values: number[]; label: string }) {
  const most = Math.max(1, ...values);
  return (
    <svg class="bars" viewBox={`0 0 ${values.length * 8} 36`} preserveAspectRatio="none" role="img" aria-label={label}>
      {values.map((value, index) => {
        const height = value === 0 ? 1 : Math.max(2, (value / most) * 36);
        return <rect class={value === 0 ? "track" : ""} key={index} x={index * 8 + 1} y={36 - height} width="6" height={height} />;
      })}
    </svg>
  );
}

export function Copy({ text, children }: { text: string; children: ComponentChildren }) {
  const [done, setDone] = useState(false);
  return (
    <button
      type="button"
      title={text}
      onClick={async () => {
        await navigator.clipboard.writeText(text);
        setDone(true);
        setTimeout(() => setDone(false), 1500);
      }}
    >
      {done ? "Copied" : children}
      <span class="sr" role="status">
        {done ? "Copied to the clipboard" : ""}
      </span>
    </button>
  );
}

/** A refusal with the id by which an administrator finds it in the audit log. */
export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  const text = error instanceof Error ? error.message : String(error);
  const id = error instanceof Refused ? error.requestId : "";
  return (
    <div class="problem" role="alert">
      <Mark tone="bad" />
      <div>
        <p>{text}</p>
        {id && (
          <p class="faint">
            Request <code>{id}</code>: <code>insula explain {id}</code> tells an administrator why.
          </p>
        )}
        {retry && (
          <button type="button" onClick={retry}>
            Try again
          </button>
        )}
      </div>
    </div>
  );
}

/** The connection of a page to its watches. */
export type Live = { state: "connecting" | "live" } | { state: "stale"; since: Date };

export function LiveBadge({ live }: { live: Live }) {
  return (
    <span class="live" role="status" data-live={live.state}>
      {live.state === "live" && <Badge tone="good">Live</Badge>}
      {live.state === "connecting" && <Badge tone="busy">Connecting</Badge>}
      {live.state === "stale" && <Badge tone="warn">Stale since {clock(live.since)}</Badge>}
    </span>
  );
}

/** Hides the values of a Secret: they are not for screens. */
export function masked(object: unknown): unknown {
  const secret = object as { kind?: string; data?: object; stringData?: object };
  if (secret?.kind !== "Secret") return object;
  const hide = (values: object | undefined) =>
    values && Object.fromEntries(Object.keys(values).map((key) => [key, "••••••"]));
  return { ...secret, ...(secret.data && { data: hide(secret.data) }), ...(secret.stringData && { stringData: hide(secret.stringData) }) };
}

/** A button that shows an object of the API as YAML. */
export function ViewYaml({ path, label = "View YAML" }: { path: string; label?: string }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [shown, setShown] = useState<{ text?: string; error?: unknown }>({});
  const open = async () => {
    setShown({});
    dialog.current?.showModal();
    try {
      setShown({ text: stringify(masked(await kube(path)), { lineWidth: 0 }) });
    } catch (error) {
      setShown({ error });
    }
  };
  return (
    <>
      <button type="button" onClick={open}>
        {label}
      </button>
      <dialog ref={dialog} class="yaml" aria-label={`YAML of ${path}`}>
        <header>
          <code>{path}</code>
          {shown.text !== undefined && <Copy text={shown.text}>Copy YAML</Copy>}
          <button type="button" onClick={() => dialog.current?.close()}>
            Close
          </button>
        </header>
        {shown.error !== undefined ? (
          <Problem error={shown.error} />
        ) : (
          <pre tabIndex={0}>{shown.text ?? "Loading…"}</pre>
        )}
      </dialog>
    </>
  );
}

/** Work that a button begins: whether it runs, and why it failed. */
export function useWork(): { busy: boolean; error: unknown; run: (work: () => Promise<void>) => void } {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const run = async (work: () => Promise<void>) => {
    setBusy(true);
    setError(undefined);
    try {
      await work();
    } catch (failed) {
      setError(failed);
    }
    setBusy(false);
  };
  return { busy, error, run: (work) => void run(work) };
}

/** Rows that are in sight. */
export interface Rows {
  items: { index: number; start: number }[];
  height: number;
  scrollTo: (index: number) => void;
}

/** Renders a long list in part: the rows in sight and some around them. */
export function useRows(element: { current: HTMLElement | null }, length: number, size: number): Rows {
  const [, update] = useState(0);
  const held = useRef<Virtualizer<HTMLElement, Element> | undefined>(undefined);
  const options = {
    count: length,
    getScrollElement: () => element.current,
    estimateSize: () => size,
    overscan: 12,
    observeElementRect,
    observeElementOffset,
    scrollToFn: elementScroll,
    onChange: () => update((tick) => tick + 1),
  };
  held.current ??= new Virtualizer(options);
  const virtual = held.current;
  virtual.setOptions(options);
  useEffect(() => virtual._didMount(), [virtual]);
  useLayoutEffect(() => virtual._willUpdate());
  return {
    items: virtual.getVirtualItems(),
    height: virtual.getTotalSize(),
    scrollTo: (index) => virtual.scrollToIndex(index, { align: "auto" }),
  };
}

interface SearchProps {
  /** What is searched: "exports". */
  what: string;
  query: string;
  change: (query: string) => void;
  press?: (event: JSX.TargetedKeyboardEvent<HTMLInputElement>) => void;
}

/** The search field of a page, which `/` leads to. */
export function Search({ what, query, change, press }: SearchProps) {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const focus = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      const typing = target.matches("input, textarea, select, [contenteditable]");
      if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      field.current?.focus();
      field.current?.select();
    };
    document.addEventListener("keydown", focus);
    return () => document.removeEventListener("keydown", focus);
  }, []);
  return (
    <input
      ref={field}
      type="search"
      placeholder={`Search ${what}  ( / )`}
      aria-label={`Search ${what}`}
      value={query}
      onInput={(event) => change(event.currentTarget.value)}
      {...(press && { onKeyDown: press })}
    />
  );
}
