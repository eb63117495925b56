// Fields of objects, and what a conversion makes of each.

import type { Tone } from "./ui";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export interface Coverage {
  directions: {
    from: string;
    to: string;
    fields: { path: string; outcome: string; to: string[]; rules: string[] }[];
    made: { path: string; by: string; rule: string }[];
  }[];
}

export const OUTCOMES: Record<string, { tone: Tone; what: string }> = {
  carried: { tone: "good", what: "The same field has it" },
  moved: { tone: "good", what: "Another field has it" },
  computed: { tone: "busy", what: "A rule computes others from it" },
  preserved: { tone: "warn", what: "The other version has no place for it: the server keeps it beside the object" },
  withheld: { tone: "warn", what: "A rule keeps it from the other version" },
  dropped: { tone: "bad", what: "It is lost" },
  made: { tone: "idle", what: "The conversion makes it" },
};

/** Returns the leaves of an object, by path: ".spec.name.first". */
export function leaves(value: Json | undefined, path = "", found = new Map<string, Json>()): Map<string, Json> {
  if (value === undefined) return found;
  if (Array.isArray(value) && value.length > 0) value.forEach((item, index) => leaves(item, `${path}[${index}]`, found));
  else if (value !== null && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length > 0)
    for (const [key, item] of Object.entries(value)) leaves(item, `${path}.${key}`, found);
  else found.set(path, value);
  return found;
}

/** A field of the object, with what becomes of it. */
export interface Fate {
  path: string;
  value: string;
  outcome: string;
  to: string[];
  rule: string;
  /** The value after the way back; nothing if it is not there. */
  back: string | undefined;
}

const HIDDEN = /^\.(apiVersion|kind|metadata)\b/;

/** Returns the path as a schema spells it: without numbers of items. */
function plain(path: string): string {
  return path.replace(/\[\d+\]/g, "[*]");
}

/** Compares a path of an object with one of a schema, whose items are written in several ways. */
function covers(schema: string, path: string): boolean {
  const normal = (text: string) => text.replace(/\[[^\]]*\]/g, "").replace(/^\./, "");
  const [above, below] = [normal(schema), normal(path)];
  return below === above || below.startsWith(`${above}.`);
}

function shown(value: Json | undefined): string | undefined {
  return value === undefined ? undefined : JSON.stringify(value);
}

export function fates(object: Json, back: Json | undefined, direction: Coverage["directions"][number] | undefined): Fate[] {
  const returned = leaves(back);
  return [...leaves(object)]
    .filter(([path]) => !HIDDEN.test(path))
    .map(([path, value]) => {
      const known = direction?.fields
        .filter((field) => covers(field.path, plain(path)))
        .sort((a, b) => b.path.length - a.path.length)[0];
      const after = shown(returned.get(path));
      return {
        path,
        value: JSON.stringify(value),
        // Without rules a field of the same path is the same field.
        outcome: known?.outcome ?? (after === undefined ? "dropped" : "carried"),
        to: known?.to ?? [],
        rule: known?.rules.join(", ") ?? "",
        back: after,
      };
    });
}
