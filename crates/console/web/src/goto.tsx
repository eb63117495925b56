// The way to any page and any workspace, from pages that have no search of their own.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { PAGES, go, isPath, link } from "./router";
import type { Place } from "./router";
import { fits, isCommand } from "./ui";
import { useTree } from "./use-tree";

/** Workspaces that are offered at once. */
const WORKSPACES_MAX = 40;

interface Target {
  kind: "Page" | "Workspace";
  text: string;
  to: string;
}

interface GoToProps {
  place: Place;
  home: string;
  /** Returns the address of a page, for what the present one shows. */
  addressOf: (page: string, place: Place) => string;
}

/** Opens a box by `/`, where the page has no search field that the key leads to. */
export function GoTo(props: GoToProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [open, setOpen] = useState(false);
  // Before the first paint: whoever sees the page may press the key.
  useLayoutEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.key !== "/" || !isCommand(event)) return;
      if (document.querySelector("#main input[type=search], dialog[open]")) return;
      event.preventDefault();
      setOpen(true);
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
  // Before the next key: what is typed at once belongs into the box.
  useLayoutEffect(() => {
    if (open) dialog.current?.showModal();
  }, [open]);
  return (
    <dialog ref={dialog} class="goto" aria-label="Go to" onClose={() => setOpen(false)}>
      {open && <Box {...props} close={() => dialog.current?.close()} />}
    </dialog>
  );
}

/** Returns what a query leads to: pages first, then workspaces, by their paths. */
function targets(query: string, { place, addressOf }: GoToProps, paths: string[]): Target[] {
  const pages = PAGES.filter(([, title]) => fits(query, title));
  // A workspace is shown by the page that is open, if it is about one.
  const page = place.page === "servers" ? "workspaces" : place.page;
  const typed = isPath(query) && query.includes(":") && !paths.includes(query) ? [query] : [];
  const found = [...paths.slice(0, WORKSPACES_MAX), ...typed];
  return [
    ...pages.map(([name, title]): Target => ({ kind: "Page", text: title, to: addressOf(name, place) })),
    ...found.map((path): Target => ({ kind: "Workspace", text: path, to: link(page, path) })),
  ];
}

function Box(props: GoToProps & { close: () => void }) {
  const { home, close } = props;
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const tree = useTree(home);
  const paths = useMemo(
    () => tree.search(query, false).map(({ node }) => node.workspace.path),
    [tree, tree.version, query],
  );
  const found = targets(query.trim(), props, paths);
  const chosen = Math.min(at, found.length - 1);
  const take = (target: Target | undefined) => {
    if (!target) return;
    close();
    go(target.to);
  };
  const press = (event: KeyboardEvent) => {
    const moves: Record<string, () => void> = {
      ArrowDown: () => setAt(Math.min(found.length - 1, chosen + 1)),
      ArrowUp: () => setAt(Math.max(0, chosen - 1)),
      Enter: () => take(found[chosen]),
    };
    const run = moves[event.key];
    if (!run) return;
    event.preventDefault();
    run();
  };
  const list = useRef<HTMLUListElement>(null);
  useEffect(() => list.current?.children[chosen]?.scrollIntoView({ block: "nearest" }), [chosen]);
  return (
    <>
      <input
        type="text"
        role="combobox"
        aria-label="Go to"
        aria-expanded="true"
        aria-controls="goto"
        aria-activedescendant={found.length > 0 ? `goto-${chosen}` : undefined}
        placeholder="A page or a workspace"
        autocomplete="off"
        spellcheck={false}
        autofocus
        value={query}
        onInput={(event) => {
          setQuery(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={press}
      />
      <ul id="goto" role="listbox" aria-label="Pages and workspaces" ref={list}>
        {found.map((target, index) => (
          <li
            key={`${target.kind} ${target.text}`}
            id={`goto-${index}`}
            role="option"
            aria-selected={index === chosen}
            onClick={() => take(target)}
          >
            {target.text} <span class="faint">{target.kind}</span>
          </li>
        ))}
      </ul>
      <p class="faint" role="status">
        {found.length === 0 && tree.loaded && "Nothing has these words."}
        {paths.length > WORKSPACES_MAX && `${paths.length - WORKSPACES_MAX} more workspaces: more words find them.`}
        {tree.error !== undefined && `You see no workspaces below ${home}: write the path of one.`}
      </p>
    </>
  );
}
