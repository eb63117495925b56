// A long table: rows in sight alone are rendered, and the keyboard moves through them.

import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { useRows } from "./ui";

const ROW = 30;
const PAGE = 20;

export interface Column<T> {
  title: string;
  /** Width, as in `grid-template-columns`. */
  width: string;
  number?: boolean;
  /** What rows are sorted by; a number from the largest. A column without it sorts nothing. */
  order?: (row: T) => number | string;
  cell: (row: T) => ComponentChildren;
}

export interface GridProps<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  keyOf: (row: T) => string;
  /** Runs for a row by Enter or a double click. */
  open?: (row: T) => void;
  /** Runs when a row is chosen. */
  choose?: (row: T) => void;
  chosen?: string;
  empty: ComponentChildren;
}

/** Returns the rows in the order of a column. */
function sorted<T>(rows: T[], order: Column<T>["order"], turned: boolean): T[] {
  if (!order) return rows;
  const compare = (a: T, b: T) => {
    const [first, second] = [order(a), order(b)];
    if (typeof first === "number" && typeof second === "number") return second - first;
    return String(first) < String(second) ? -1 : 1;
  };
  return [...rows].sort((a, b) => (turned ? compare(b, a) : compare(a, b)));
}

export function Grid<T>({ label, columns, rows: given, keyOf, open, choose, chosen, empty }: GridProps<T>) {
  const scroller = useRef<HTMLDivElement>(null);
  const [own, setOwn] = useState<string>();
  const [by, setBy] = useState<{ title: string; turned: boolean }>();
  const rows = sorted(given, columns.find(({ title }) => title === by?.title)?.order, by?.turned ?? false);
  const selected = chosen ?? own;
  const virtual = useRows(scroller, rows.length, ROW);
  const at = selected === undefined ? -1 : rows.findIndex((row) => keyOf(row) === selected);
  const template = { gridTemplateColumns: columns.map(({ width }) => width).join(" ") };
  const id = (key: string) => `row-${key.replaceAll(/[^\w.-]/g, "_")}`;
  const take = (row: T) => {
    setOwn(keyOf(row));
    choose?.(row);
  };
  const move = (to: number) => {
    const index = Math.max(0, Math.min(rows.length - 1, to));
    const row = rows[index];
    if (!row) return;
    take(row);
    virtual.scrollTo(index);
  };
  const press = (event: KeyboardEvent) => {
    const row = rows[at];
    const moves: Record<string, () => void> = {
      ArrowDown: () => move(at + 1),
      ArrowUp: () => move(at - 1),
      PageDown: () => move(at + PAGE),
      PageUp: () => move(at - PAGE),
      Home: () => move(0),
      End: () => move(rows.length - 1),
      Enter: () => row && open?.(row),
    };
    const run = moves[event.key];
    // Links and buttons in a row have keys of their own.
    if (!run || event.target !== scroller.current || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    run();
  };
  return (
    <div
      class="grid plain"
      role="grid"
      aria-label={label}
      aria-rowcount={rows.length + 1}
      aria-activedescendant={at >= 0 && selected !== undefined ? id(selected) : undefined}
      tabIndex={0}
      ref={scroller}
      onKeyDown={press}
    >
      <div class="row head" role="row" aria-rowindex={1} style={template}>
        {columns.map(({ title, number, order }) => {
          const on = by?.title === title;
          const falls = order !== undefined && (number === true) !== (by?.turned ?? false);
          return (
            <span
              role="columnheader"
              key={title}
              class={number ? "number" : ""}
              {...(on && { "aria-sort": falls ? ("descending" as const) : ("ascending" as const) })}
            >
              {order ? (
                <button type="button" class="sort" onClick={() => setBy({ title, turned: on && !by.turned })}>
                  {title}
                  <span aria-hidden="true">{on ? (falls ? " ▾" : " ▴") : ""}</span>
                </button>
              ) : (
                title
              )}
            </span>
          );
        })}
      </div>
      <div role="rowgroup" class="rows" style={{ height: `${virtual.height}px` }}>
        {virtual.items.map(({ index, start }) => {
          const row = rows[index];
          if (row === undefined) return null;
          const key = keyOf(row);
          return (
            <div
              class={`row ${key === selected ? "selected" : ""}`}
              role="row"
              id={id(key)}
              key={key}
              aria-rowindex={index + 2}
              aria-selected={key === selected}
              style={{ ...template, transform: `translateY(${start}px)` }}
              onClick={() => take(row)}
              onDblClick={() => open?.(row)}
            >
              {columns.map(({ title, number, cell }) => (
                <span role="gridcell" key={title} class={number ? "number" : ""}>
                  {cell(row)}
                </span>
              ))}
            </div>
          );
        })}
      </div>
      {rows.length === 0 && <p class="empty">{empty}</p>}
    </div>
  );
}
