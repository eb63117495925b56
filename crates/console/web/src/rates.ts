// Rates of counters between the readings of a page.

/** Rates that are kept of each counter. */
export const RATES_MAX = 40;

interface Reading {
  time: number;
  counts: Map<string, number>;
}

/** The readings of some counters by their names, while a page is open. */
export class Readings {
  private readonly readings: Reading[] = [];

  /** @param kept Rates that are kept. */
  constructor(private readonly kept = RATES_MAX) {}

  /** Adds a reading, at a time in milliseconds. */
  add(time: number, counts: Map<string, number>): void {
    this.readings.push({ time, counts });
    if (this.readings.length > this.kept + 1) this.readings.shift();
  }

  /** Returns the rates of a counter in a second, one for each reading after the first: since the last reading
   * before that has it. There is none at a reading that misses it, nor at its first one. A counter that fell
   * began anew.
   *
   * @param sign A counter that is in each reading that knows of this one, which is 0 where it is absent. */
  rates(name: string, sign = name): (number | undefined)[] {
    let before: Reading | undefined;
    const rates = this.readings.map((now) => {
      if (!now.counts.has(sign)) return undefined;
      const rate = before && rateOf(before, now, name);
      before = now;
      return rate;
    });
    return rates.slice(1);
  }

  /** Returns the newest of the rates of a counter. */
  rate(name: string, sign = name): number | undefined {
    return this.rates(name, sign).at(-1);
  }
}

function rateOf(before: Reading, now: Reading, name: string): number {
  const [from, to] = [before.counts.get(name) ?? 0, now.counts.get(name) ?? 0];
  return (to >= from ? to - from : to) / Math.max(0.001, (now.time - before.time) / 1000);
}
