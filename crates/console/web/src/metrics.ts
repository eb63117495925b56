// Metrics of the server, in the text that Prometheus reads.

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

type Labels = Record<string, string>;

export function parseMetrics(text: string): Sample[] {
  return text.split("\n").flatMap((line) => {
    const parts = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!parts) return [];
    const [, name = "", inner = "", value = ""] = parts;
    const labels: Labels = {};
    for (const [, key = "", text = ""] of inner.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[key] = text;
    return [{ name, labels, value: value === "+Inf" ? Infinity : Number(value) }];
  });
}

function chosen(samples: Sample[], name: string, labels: Labels): Sample[] {
  const wanted = Object.entries(labels);
  return samples.filter((sample) => sample.name === name && wanted.every(([key, value]) => sample.labels[key] === value));
}

/** Returns the value of a metric without labels. */
export function value(samples: Sample[], name: string): number | undefined {
  return samples.find((sample) => sample.name === name)?.value;
}

/** Returns the sum of the series that have some labels. */
export function sum(samples: Sample[], name: string, labels: Labels): number {
  return chosen(samples, name, labels).reduce((all, sample) => all + sample.value, 0);
}

/** Estimates a quantile of a histogram, by the buckets of all series that have some labels. */
export function quantile(samples: Sample[], name: string, share: number, labels: Labels = {}): number | undefined {
  const buckets = new Map<number, number>();
  for (const { labels: has, value: times } of chosen(samples, `${name}_bucket`, labels)) {
    const bound = has["le"] === "+Inf" ? Infinity : Number(has["le"]);
    buckets.set(bound, (buckets.get(bound) ?? 0) + times);
  }
  const bounds = [...buckets].sort(([a], [b]) => a - b);
  const all = bounds.at(-1)?.[1] ?? 0;
  if (all === 0) return undefined;
  let [lower, below] = [0, 0];
  for (const [bound, times] of bounds) {
    if (times >= share * all) {
      // Nothing is known of what is above the last bound.
      if (bound === Infinity) return lower;
      return lower + ((bound - lower) * (share * all - below)) / Math.max(1, times - below);
    }
    [lower, below] = [bound, times];
  }
  return undefined;
}
