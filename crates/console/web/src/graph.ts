// The layout of the graph of an export and its bindings.

import { Graph, layout } from "@dagrejs/dagre";
import type { Consumer } from "./model";
import type { Tone } from "./ui";

/** Bindings that are shown one by one. More are shown as one number for each state. */
export const SINGLE_MAX = 200;

export type State = "Ready" | "Behind" | "Conflict" | "Binding" | "Deleted";
export const STATES: { state: State; tone: Tone; what: string }[] = [
  { state: "Ready", tone: "good", what: "serves what is on offer" },
  { state: "Behind", tone: "warn", what: "serves an older schema than the export offers" },
  { state: "Conflict", tone: "bad", what: "is not served, because something else has its name" },
  { state: "Binding", tone: "busy", what: "is not served yet" },
  { state: "Deleted", tone: "idle", what: "is deleted and can be brought back" },
];

export function stateOf(consumer: Consumer): State {
  if (consumer.deleteTime) return "Deleted";
  if (consumer.phase !== "Bound") return consumer.message.includes("naming conflict") ? "Conflict" : "Binding";
  return consumer.upToDate ? "Ready" : "Behind";
}

export function toneOf(state: State): Tone {
  return STATES.find((known) => known.state === state)?.tone ?? "idle";
}

/** Returns the versions in use, without the name of the resource: "v1 v2". */
export function versionsOf(consumer: Consumer): string {
  const names = consumer.versions.map(({ version }) => version.split("/").at(-1) ?? version);
  return [...new Set(names)].sort().join(" ");
}

export interface Box {
  id: string;
  title: string;
  note: string;
  state?: State;
  /** The versions in use: "v1 v2". */
  label?: string;
  path?: string;
  x: number;
  y: number;
  width: number;
  height: number;
}

/** An edge from the export to the left side of a box. */
export interface Line {
  id: string;
  state: State;
  label: string;
  x: number;
  y: number;
}

export interface Picture {
  provider: Box;
  boxes: Box[];
  lines: Line[];
  width: number;
  height: number;
}

interface Item {
  id: string;
  title: string;
  note: string;
  state: State;
  label: string;
  path?: string;
}

function single(consumers: Consumer[]): Item[] {
  return consumers.map((consumer) => ({
    id: `${consumer.cluster}/${consumer.binding}`,
    title: consumer.workspace,
    note: consumer.binding,
    state: stateOf(consumer),
    label: versionsOf(consumer),
    path: consumer.workspace,
  }));
}

/** Returns one item for all bindings of a state that use the same versions. */
function folded(consumers: Consumer[]): Item[] {
  const groups = new Map<string, Item & { count: number }>();
  for (const consumer of consumers) {
    const state = stateOf(consumer);
    const label = versionsOf(consumer);
    const id = `${state} ${label}`;
    const group = groups.get(id) ?? { id, title: "", note: "", state, label, count: 0 };
    group.count += 1;
    groups.set(id, group);
  }
  return [...groups.values()].map(({ count, ...group }) => ({
    ...group,
    title: count === 1 ? "1 binding" : `${count.toLocaleString("en")} bindings`,
    note: group.state,
  }));
}

/** Id of the box of the export; those of bindings have a slash or a space. */
const EXPORT = "export";
const PROVIDER = { width: 210, height: 52 };
const CONSUMER = { width: 250, height: 24 };

export function picture(title: string, note: string, consumers: Consumer[]): Picture {
  const items = consumers.length > SINGLE_MAX ? folded(consumers) : single(consumers);
  items.sort((a, b) => order(a.state) - order(b.state));
  const graph = new Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 5, ranksep: 90, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  graph.setNode(EXPORT, { ...PROVIDER });
  for (const item of items) {
    graph.setNode(item.id, { ...CONSUMER });
    graph.setEdge(EXPORT, item.id, { width: 70, height: 14, labelpos: "c" });
  }
  layout(graph);
  const place = (id: string) => graph.node(id) as { x: number; y: number; width: number; height: number };
  // The layout decides the columns and the distances; the order stays that of the items.
  const heights = items.map(({ id }) => place(id).y).sort((a, b) => a - b);
  const boxes: Box[] = [];
  const lines: Line[] = [];
  items.forEach(({ id, title: name, note: below, state, label, path }, index) => {
    const at = { ...place(id), y: heights[index] ?? 0 };
    boxes.push({ id, title: name, note: below, state, label, ...(path !== undefined && { path }), ...at });
    lines.push({ id, state, label, x: at.x - at.width / 2, y: at.y });
  });
  const provider = { id: EXPORT, title, note, ...place(EXPORT) };
  const { width = 0, height = 0 } = graph.graph();
  return { provider, boxes, lines, width, height };
}

/** Returns the rank of a state: what needs somebody comes first. */
function order(state: State): number {
  return ["Conflict", "Behind", "Binding", "Deleted", "Ready"].indexOf(state);
}

/** Sorts bindings by state, and then by workspace. */
export function sorted(consumers: Consumer[]): Consumer[] {
  const rank = (consumer: Consumer) => order(stateOf(consumer));
  return [...consumers].sort((a, b) => rank(a) - rank(b) || (a.workspace < b.workspace ? -1 : 1));
}
