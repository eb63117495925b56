// What a release does to stored objects: to how many, in which workspaces.

import type { ComponentChildren } from "preact";
import { count, counted } from "./format";
import { link } from "./router";

export interface Effect {
  id: string;
  detail: string;
  becomes: string;
  objects: number;
  examples: string[];
  workspaces: { workspace: string; objects: number }[];
}

/** Those whom an effect hurts. */
export function Whom({ effect, children }: { effect: Effect; children?: ComponentChildren }) {
  const { objects, workspaces } = effect;
  return (
    <details>
      <summary>
        {counted(objects, "object")} in {counted(workspaces.length, "workspace")}
      </summary>
      {children}
      <ul>
        {workspaces.map(({ workspace, objects: some }) => (
          <li key={workspace}>
            <a href={link("workspaces", workspace)}>{workspace}</a> {count(some)}
          </li>
        ))}
      </ul>
    </details>
  );
}
