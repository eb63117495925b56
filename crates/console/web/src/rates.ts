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

  /** Returns the rates of a counter in a second, one between each reading and the next. A counter that fell
   * began anew; one that a reading does not have was 0. */
  rates(name: string): number[] {
    return this.readings.slice(1).map(({ time, counts }, index) => {
      const earlier = this.readings[index];
      const [before, now] = [earlier?.counts.get(name) ?? 0, counts.get(name) ?? 0];
      const seconds = Math.max(0.001, (time - (earlier?.time ?? 0)) / 1000);
      return (now >= before ? now - before : now) / seconds;
    });
  }

  /** Returns the rate since the reading before the last one; nothing before the second reading. */
  rate(name: string): number | undefined {
    return this.rates(name).at(-1);
  }
}
