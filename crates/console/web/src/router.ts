// The address of a page: `/console/<page>/<workspace>[/<name>…]`, so that links, reload and the back
// button work.

import { useEffect, useState } from "preact/hooks";

export interface Place {
  page: string;
  workspace: string;
  name: string;
  /** What the address names after `name`. */
  rest: string[];
  query: URLSearchParams;
}

/** The pages, with the names by which people find them, and the key that leads to each after `g`. */
export const PAGES = [
  ["workspaces", "Workspaces", "w"],
  ["objects", "Objects", "o"],
  ["stuck", "Stuck", "s"],
  ["apis", "APIs", "a"],
  ["exports", "Exports", "e"],
  ["releases", "Releases", "r"],
  ["diff", "Diff", "d"],
  ["conversion", "Conversion", "c"],
  ["migrations", "Migrations", "m"],
  ["traffic", "Traffic", "f"],
  ["usage", "Usage", "u"],
  ["audit", "Audit", "t"],
  ["servers", "Servers", "v"],
] as const;

/** The names that a path of a workspace is made of. Other texts in an address lead to no workspace: a part
 * with a slash or a question mark would make another request of each that names it. */
const PATH = /^[a-z0-9][a-z0-9.-]*(:[a-z0-9][a-z0-9.-]*)*$/;

export function isPath(workspace: string): boolean {
  return PATH.test(workspace);
}

/** Returns the workspace in which pages begin: that of the sign-in, or another one that the viewer named. */
export function homeOf(): string {
  const known = ["home", "workspace"].map((key) => localStorage.getItem(key) ?? "");
  return known.find(isPath) ?? "root";
}

export function beginAt(workspace: string): void {
  localStorage.setItem("home", workspace);
}

/** An address that nobody encoded is taken as it is. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function parse(location: { pathname: string; search: string }): Place {
  const [page = "", workspace = "", name = "", ...rest] = location.pathname
    .replace(/^\/console\/?/, "")
    .split("/")
    .map(decoded);
  const known = PAGES.some(([one]) => one === page) ? page : "workspaces";
  return { page: known, workspace, name, rest, query: new URLSearchParams(location.search) };
}

export function link(page: string, workspace = "", ...names: string[]): string {
  // The colons of a path stay readable: a path segment may have them.
  const parts = [page, workspace, ...names].filter((part) => part !== "");
  return `/console/${parts.map((part) => encodeURIComponent(part).replaceAll("%3A", ":")).join("/")}`;
}

const changed = new EventTarget();

export function go(to: string, how: "push" | "replace" = "push"): void {
  if (how === "push") history.pushState(null, "", to);
  else history.replaceState(null, "", to);
  changed.dispatchEvent(new Event("place"));
}

export function usePlace(): Place {
  const [place, setPlace] = useState(() => parse(window.location));
  useEffect(() => {
    const update = () => setPlace(parse(window.location));
    const follow = (event: MouseEvent) => {
      const anchor = (event.target as Element | null)?.closest?.("a");
      const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
      if (!anchor || anchor.target !== "" || !plain || anchor.origin !== window.location.origin || !anchor.pathname.startsWith("/console")) return;
      event.preventDefault();
      go(anchor.pathname + anchor.search);
    };
    window.addEventListener("popstate", update);
    changed.addEventListener("place", update);
    document.addEventListener("click", follow);
    return () => {
      window.removeEventListener("popstate", update);
      changed.removeEventListener("place", update);
      document.removeEventListener("click", follow);
    };
  }, []);
  return place;
}
