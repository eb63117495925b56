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
  /** The word that it needs, as the server says. */
  consent: "EFFECT_CONSENT_UNNEEDED" | "EFFECT_CONSENT_NEEDED" | "EFFECT_CONSENT_IMPOSSIBLE";
}

/** Returns the effects that somebody's word may accept, and those that no word can. Of others nothing is asked. */
export function byConsent(effects: Effect[]): { askable: Effect[]; impossible: Effect[] } {
  const of = (wanted: Effect["consent"]) => effects.filter(({ consent }) => consent === wanted);
  return { askable: of("EFFECT_CONSENT_NEEDED"), impossible: of("EFFECT_CONSENT_IMPOSSIBLE") };
}

/** Those whom an effect hurts, by name. A reader who has many effects before them may fold the list. */
export function Whom({ effect, children }: { effect: Effect; children?: ComponentChildren }) {
  const { objects, workspaces } = effect;
  return (
    <details open>
      <summary>
        {counted(objects, "object")} in {counted(workspaces.length, "workspace")}
      </summary>
      {children}
      <ul class="whom">
        {workspaces.map(({ workspace, objects: some }) => (
          <li key={workspace}>
            <a href={link("workspaces", workspace)}>{workspace}</a> {count(some)}
          </li>
        ))}
      </ul>
    </details>
  );
}
