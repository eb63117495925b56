// A table of objects and their bytes.

import type { ComponentChildren } from "preact";
import { bytes, count } from "./format";
import type { ResourceUsage } from "./model";

interface Amount {
  objects: number;
  bytes: number;
}

interface AmountsProps<T> {
  /** What a row is: "Resource". */
  title: string;
  rows: T[];
  keyOf: (row: T) => string;
  name: (row: T) => ComponentChildren;
  /** A last column: its title, and the cell of a row. */
  last?: readonly [string, (row: T) => ComponentChildren];
}

export function Amounts<T extends Amount>({ title, rows, keyOf, name, last }: AmountsProps<T>) {
  return (
    <table>
      <thead>
        <tr>
          <th scope="col">{title}</th>
          <th scope="col" class="number">
            Objects
          </th>
          <th scope="col" class="number">
            Stored
          </th>
          {last && <th scope="col">{last[0]}</th>}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={keyOf(row)}>
            <td>{name(row)}</td>
            <td class="number">{count(row.objects)}</td>
            <td class="number">{bytes(row.bytes)}</td>
            {last && <td>{last[1](row)}</td>}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The same by resource. */
export function ByResource({ resources, last }: { resources: ResourceUsage[]; last?: AmountsProps<ResourceUsage>["last"] }) {
  return (
    <Amounts
      title="Resource"
      rows={resources}
      keyOf={({ group, resource }) => `${resource}.${group}`}
      name={({ group, resource }) => (
        <>
          {resource}
          {group && <span class="faint">.{group}</span>}
        </>
      )}
      {...(last && { last })}
    />
  );
}
