// The tree of workspaces of a page: read with the page, drawn with each change, closed with it.

import { useEffect, useLayoutEffect, useMemo, useState } from "preact/hooks";
import { Tree } from "./tree";

/** Returns the tree below a workspace. Once it is read, it follows the children of those workspaces that
 * `following` chooses. */
export function useTree(root: string, following: (tree: Tree) => string[] = () => []): Tree {
  const tree = useMemo(() => new Tree(root), [root]);
  const [, update] = useState(0);
  // Before the first paint: an effect would wait for it, and the request with it.
  useLayoutEffect(() => {
    const stop = tree.subscribe(() => update((tick) => tick + 1));
    void tree.load();
    return () => {
      stop();
      tree.close();
    };
  }, [tree]);
  const followed = tree.loaded ? following(tree).filter((path) => tree.nodes.has(path)) : [];
  useEffect(() => {
    if (tree.loaded) tree.follow(followed);
  }, [tree, tree.loaded, followed.join(" ")]);
  return tree;
}
