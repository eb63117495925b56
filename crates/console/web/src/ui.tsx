// Parts that pages share.

import { Virtualizer, elementScroll, observeElementOffset, observeElementRect } from "@tanstack/virtual-core";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { stringify } from "yaml";
import { Refused, kube, whyNot } from "./api";
import type { Right } from "./api";
import { clock } from "./format";
import type { Condition } from "./model";

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

const OF_STATUS: Record<string, Tone> = { True: "good", False: "bad" };

/** The conditions of a status. */
export function Conditions({ conditions }: { conditions: Condition[] }) {
  return (
    <section>
      <h3>Conditions</h3>
      <ul class="conditions">
        {conditions.map(({ type, status, reason, message }) => (
          <li key={type}>
            <Badge tone={OF_STATUS[status] ?? "busy"}>{type}</Badge>
            <span>
              {reason} {message}
            </span>
          </li>
        ))}
      </ul>
    </section>
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

/** The reason of a button that needs what is not read yet. */
export const NOT_READ = "Nothing is read yet.";

interface ButtonProps extends Omit<JSX.IntrinsicElements["button"], "disabled" | "title"> {
  /** The reason why it cannot be pressed. */
  why?: string | undefined;
  /** True while what it began is not at its end. */
  busy?: boolean;
  title?: string;
}

/** A button that may be disabled, and says why then. */
export function Button({ why, busy = false, title = "", ...rest }: ButtonProps) {
  const reason = why ?? (busy ? "This is being done." : undefined);
  return <button type="button" {...rest} disabled={reason !== undefined} title={reason ?? title} />;
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

/** How fresh a page is. What nothing watches, or the viewer may not watch, is read after some seconds each; what
 * they may not read at all is not stale. */
export type Live =
  | { state: "connecting" | "live" | "refused" }
  | { state: "read"; every: number }
  | { state: "stale"; since: Date };

export function LiveBadge({ live }: { live: Live }) {
  return (
    <span class="live" role="status" data-live={live.state}>
      {live.state === "live" && <Badge tone="good">Live</Badge>}
      {live.state === "connecting" && <Badge tone="busy">Connecting</Badge>}
      {live.state === "read" && <Badge tone="idle">Read every {live.every} s</Badge>}
      {live.state === "stale" && <Badge tone="warn">Stale since {clock(live.since)}</Badge>}
    </span>
  );
}

export interface ToolbarProps {
  title: ComponentChildren;
  /** The commands that show the same. */
  kubectl?: string;
  insula?: string;
  /** The path of the object in the API; or what reads something else, with its name. */
  yaml?: string | Shown;
  live?: Live;
  children?: ComponentChildren;
}

/** The head of a page: its title, the commands behind it, and how fresh it is. */
export function Toolbar({ title, kubectl: command, insula, yaml, live, children }: ToolbarProps) {
  return (
    <div class="toolbar">
      <h2>{title}</h2>
      {children}
      <span class="spread" />
      {command !== undefined && <Copy text={command}>Copy kubectl</Copy>}
      {insula !== undefined && <Copy text={insula}>Copy insula</Copy>}
      {typeof yaml === "string" && <ViewYaml path={yaml} />}
      {typeof yaml === "object" && <ViewText {...yaml} />}
      {live && <LiveBadge live={live} />}
    </div>
  );
}

/** Returns the reason why the viewer may not do something; nothing if they may. */
export function useDenied(workspace: string, right: Right): string | undefined {
  const [denied, setDenied] = useState<string | undefined>("Asking for your rights…");
  const key = JSON.stringify(right);
  useEffect(() => {
    let current = true;
    void whyNot(workspace, right).then((why) => current && setDenied(why));
    return () => {
      current = false;
    };
  }, [workspace, key]);
  return denied;
}

/** Returns true for a text that has all words of a query. */
export function fits(query: string, text: string): boolean {
  const lower = text.toLowerCase();
  return query.toLowerCase().split(/\s+/).every((word) => lower.includes(word));
}

/** Gives the browser a file to keep. */
export function save(name: string, text: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  URL.revokeObjectURL(url);
}

const HIDDEN = "••••••";
/** The annotation in which kubectl keeps what it applied, values included. */
const LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration";

interface Secret {
  metadata?: { annotations?: Record<string, string> };
  data?: object;
  stringData?: object;
}

function maskedSecret(secret: Secret): Secret {
  const hide = (values: object) => Object.fromEntries(Object.keys(values).map((key) => [key, HIDDEN]));
  const { metadata, data, stringData } = secret;
  const annotations = metadata?.annotations;
  return {
    ...secret,
    ...(annotations?.[LAST_APPLIED] !== undefined && {
      metadata: { ...metadata, annotations: { ...annotations, [LAST_APPLIED]: HIDDEN } },
    }),
    ...(data && { data: hide(data) }),
    ...(stringData && { stringData: hide(stringData) }),
  };
}

/** Hides the values of a Secret, and those of a list of Secrets: they are not for screens. */
export function masked(object: unknown): unknown {
  const { kind, items } = (object ?? {}) as { kind?: string; items?: Secret[] };
  if (kind === "Secret") return maskedSecret(object as Secret);
  if (kind === "SecretList" && items) return { ...(object as object), items: items.map(maskedSecret) };
  return object;
}

/** Something that is shown as YAML. */
export interface Shown {
  name: string;
  read: () => Promise<unknown>;
}

/** A button that shows an object of the API as YAML. */
export function ViewYaml({ path }: { path: string }) {
  return <ViewText name={path} read={async () => masked(await kube(path))} />;
}

/** A button that shows something as YAML. */
export function ViewText({ name, read }: Shown) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [shown, setShown] = useState<{ text?: string; error?: unknown }>({});
  const open = async () => {
    setShown({});
    dialog.current?.showModal();
    try {
      setShown({ text: stringify(await read(), { lineWidth: 0 }) });
    } catch (error) {
      setShown({ error });
    }
  };
  return (
    <>
      <button type="button" onClick={open}>
        View YAML
      </button>
      <dialog ref={dialog} class="yaml" aria-label={`YAML of ${name}`}>
        <header>
          <code>{name}</code>
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

/** Returns true for a key that is pressed for the page, and not to write it. */
export function isCommand(event: KeyboardEvent): boolean {
  // In an editor the target is what has its shadow root.
  const target = event.composedPath()[0] as HTMLElement;
  const writes = target.matches("input, textarea, select") || target.isContentEditable;
  return !writes && !event.ctrlKey && !event.metaKey && !event.altKey;
}

/** Leads from the search to what it found. */
function toList(event: JSX.TargetedKeyboardEvent<HTMLInputElement>): void {
  if (event.key !== "Enter" && event.key !== "ArrowDown") return;
  event.preventDefault();
  document.querySelector<HTMLElement>("#main .grid")?.focus();
}

/** The search field of a page, which `/` leads to. */
export function Search({ what, query, change, press }: SearchProps) {
  const field = useRef<HTMLInputElement>(null);
  // Before the first paint: whoever sees the field may press the key.
  useLayoutEffect(() => {
    const focus = (event: KeyboardEvent) => {
      if (event.key !== "/" || !isCommand(event)) return;
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
      onKeyDown={press ?? toList}
    />
  );
}
