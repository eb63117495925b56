// Numbers and times for people.

const WHOLE = new Intl.NumberFormat("en");

export function count(value: number): string {
  return WHOLE.format(value);
}

/** Returns a number of things: "1 change", "2 changes". */
export function counted(value: number, thing: string): string {
  return `${count(value)} ${thing}${value === 1 ? "" : "s"}`;
}

export function bytes(value: number): string {
  if (value < 1024) return `${value} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let scaled = value / 1024;
  let unit = 0;
  while (scaled >= 1024 && unit < units.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  return `${scaled.toFixed(scaled < 10 ? 1 : 0)} ${units[unit]}`;
}

/** Returns the time since something, in its largest unit: "3d". */
export function age(time: string | undefined, now = Date.now()): string {
  if (!time) return "";
  const seconds = Math.max(0, Math.round((now - Date.parse(time)) / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 2 * 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

/** Returns a time that something took, from its seconds: "1.5 s", "12 ms". */
export function duration(seconds: number | undefined): string {
  if (seconds === undefined) return "none yet";
  return seconds >= 1 ? `${seconds.toFixed(1)} s` : `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
}

export function clock(time: Date): string {
  return time.toLocaleTimeString("en-GB");
}

/** Returns a time in UTC, without fractions: "2026-11-21 09:40:00Z". */
export function utc(time: string | undefined): string {
  return time ? time.replace("T", " ").replace(/\.\d+/, "") : "";
}
