// The frame of a page that lists: a head with a search and the number of what it found, the rows, and
// one of them beside it.

import type { ComponentChildren } from "preact";
import { Grid } from "./grid";
import type { GridProps } from "./grid";
import { Problem, Search, Toolbar } from "./ui";
import type { ToolbarProps } from "./ui";

interface ListingProps<T> extends GridProps<T> {
  head: Omit<ToolbarProps, "children">;
  /** What is searched: "exports". */
  what: string;
  query: string;
  change: (query: string) => void;
  /** The number of rows, in words. */
  found: string;
  /** What stands beside the number, and between the head and the rows. */
  tools?: ComponentChildren;
  above?: ComponentChildren;
  error?: unknown;
  retry?: () => void;
  /** False before the first reading, when there is nothing to say about rows. */
  ready: boolean;
  /** The row that was chosen. */
  children: ComponentChildren;
}

export function Listing<T>({ head, what, query, change, found, tools, above, error, retry, ready, children, ...grid }: ListingProps<T>) {
  return (
    <div class="split">
      <section class="filled" aria-label={grid.label}>
        <Toolbar {...head}>
          <Search what={what} query={query} change={change} />
          <span class="faint" role="status">
            {found}
          </span>
          {tools}
        </Toolbar>
        {error !== undefined && <Problem error={error} {...(retry && { retry })} />}
        {above}
        {ready && <Grid {...grid} />}
      </section>
      {children}
    </div>
  );
}
