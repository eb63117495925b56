// An editor of YAML. It is a file of its own, which pages load when they need it.

import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import {
  HighlightStyle,
  bracketMatching,
  foldGutter,
  foldKeymap,
  indentOnInput,
  indentUnit,
  syntaxHighlighting,
} from "@codemirror/language";
import { lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState } from "@codemirror/state";
import { EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

/** Something that is wrong in a text, from an offset to another. */
export interface Mistake {
  from: number;
  to: number;
  message: string;
}

export interface Editor {
  setText: (text: string) => void;
  setReadOnly: (readOnly: boolean) => void;
  setMistakes: (mistakes: Mistake[]) => void;
  close: () => void;
}

const COLOURS = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--accent)" },
  { tag: [tags.string, tags.content, tags.attributeValue], color: "var(--text)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--good)" },
  { tag: [tags.comment, tags.meta], color: "var(--faint)" },
  { tag: [tags.punctuation, tags.separator, tags.squareBracket, tags.brace], color: "var(--faint)" },
]);

const LOOK = EditorView.theme({
  "&": { height: "100%", fontSize: "12px", backgroundColor: "var(--bg)", color: "var(--text)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--bg)", color: "var(--faint)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--select)",
  },
  ".cm-tooltip": { backgroundColor: "var(--panel)", color: "var(--text)", border: "1px solid var(--line)" },
  // The library's own marks are images, which pages take from the server alone.
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--bad)" },
  ".cm-lint-marker-error": { content: "normal", color: "var(--bad)" },
  ".cm-lint-marker-error::before": { content: '"▲"' },
  ".cm-foldPlaceholder": { backgroundColor: "var(--idle-bg)", border: "none", color: "var(--faint)" },
});

interface Options {
  text: string;
  label: string;
  readOnly: boolean;
  /** Runs after each change by the viewer. */
  change: (text: string) => void;
}

export function edit(parent: HTMLElement, { text, label, readOnly, change }: Options): Editor {
  const writable = new Compartment();
  const mode = (locked: boolean) => [EditorState.readOnly.of(locked)];
  let silent = false;
  // Below a shadow root the editor's styles are style sheets of scripts: pages allow no style elements.
  const root = parent.shadowRoot ?? parent.attachShadow({ mode: "open" });
  const view = new EditorView({
    parent: root,
    root,
    state: EditorState.create({
      doc: text,
      extensions: [
        lineNumbers(),
        foldGutter(),
        history(),
        drawSelection(),
        indentOnInput(),
        indentUnit.of("  "),
        bracketMatching(),
        highlightActiveLine(),
        yaml(),
        syntaxHighlighting(COLOURS),
        lintGutter(),
        LOOK,
        EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
        keymap.of([...defaultKeymap, ...historyKeymap, ...foldKeymap, ...lintKeymap]),
        writable.of(mode(readOnly)),
        EditorView.updateListener.of((update) => {
          if (update.docChanged && !silent) change(update.state.doc.toString());
        }),
      ],
    }),
  });
  return {
    setText: (next) => {
      if (next === view.state.doc.toString()) return;
      silent = true;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } });
      silent = false;
    },
    setReadOnly: (locked) => view.dispatch({ effects: writable.reconfigure(mode(locked)) }),
    setMistakes: (mistakes) => {
      const end = view.state.doc.length;
      const shown = mistakes.map(({ from, to, message }) => ({
        from: Math.min(from, end),
        to: Math.min(to, end),
        message,
        severity: "error" as const,
      }));
      view.dispatch(setDiagnostics(view.state, shown));
    },
    close: () => view.destroy(),
  };
}
