// The editor of YAML as a part of a page. Its file is loaded when the first one is shown.

import { useEffect, useRef } from "preact/hooks";
import { parseAllDocuments, parseDocument } from "yaml";
import type { Node } from "yaml";
import type { Editor, Mistake } from "./editor";

const FILE = "/console/assets/editor.js";

/** A text with which the editor begins; another one begins anew. */
export interface Start {
  text: string;
}

interface YamlEditorProps {
  label: string;
  start: Start;
  readOnly: boolean;
  mistakes: Mistake[];
  change: (text: string) => void;
}

export function YamlEditor({ label, start, readOnly, mistakes, change }: YamlEditorProps) {
  const parent = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | undefined>(undefined);
  const latest = useRef({ text: start.text, readOnly, change });
  latest.current = { text: start.text, readOnly, change };
  useEffect(() => {
    let open = true;
    void (import(FILE) as Promise<typeof import("./editor")>).then(({ edit }) => {
      if (!open || !parent.current) return;
      const now = latest.current;
      editor.current = edit(parent.current, { ...now, label, change: (next) => latest.current.change(next) });
    });
    return () => {
      open = false;
      editor.current?.close();
      editor.current = undefined;
    };
  }, [label]);
  useEffect(() => editor.current?.setText(start.text), [start]);
  useEffect(() => editor.current?.setReadOnly(readOnly), [readOnly]);
  useEffect(() => editor.current?.setMistakes(mistakes), [mistakes]);
  return <div class="yaml-editor" ref={parent} />;
}

/** Returns the keys of a path such as ".spec.users[0].name" or "spec.name". */
function keysOf(path: string): (string | number)[] {
  const parts = path.match(/\[[^\]]*\]|[^.[\]]+/g) ?? [];
  return parts.map((part) => {
    const inner = part.startsWith("[") ? part.slice(1, -1).replace(/^"|"$/g, "") : part;
    return /^\d+$/.test(inner) ? Number(inner) : inner;
  });
}

/** Finds a field in a text; the beginning of the text if it is not there. */
export function locate(text: string, path: string, message: string): Mistake {
  const document = parseDocument(text);
  for (let keys = keysOf(path); keys.length > 0; keys = keys.slice(0, -1)) {
    const node = document.getIn(keys, true) as Node | undefined;
    const range = node?.range;
    if (range) return { from: range[0], to: Math.max(range[0], range[1]), message };
  }
  return { from: 0, to: 0, message };
}

/** Returns the mistakes by which a text is no YAML. */
export function syntax(text: string): Mistake[] {
  const documents = parseAllDocuments(text);
  const errors = [...documents].flatMap((document) => document.errors);
  return errors.map(({ pos, message }) => ({ from: pos[0], to: pos[1], message: message.split("\n")[0] ?? message }));
}
