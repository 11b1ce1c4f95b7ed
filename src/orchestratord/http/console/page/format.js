// Figures as people read them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(count) {
  if (count === undefined || count === null) return "–";
  let unit = 0;
  let value = count;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    ++unit;
  }
  const digits = unit === 0 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

export function duration(ms) {
  if (ms === undefined || ms === null || Number.isNaN(ms)) return "–";
  if (ms < 1) return "0 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 60_000) return `${Math.round(ms / 1000)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const count = (value) => (value === undefined || value === null ? "–" : whole.format(value).replaceAll(",", "\u2009"));

// plural(2, "device") -> "2 devices"
export const plural = (value, one) => `${count(value)} ${one}${value === 1 ? "" : "s"}`;

export function rate(value) {
  if (value === undefined || value === null || !Number.isFinite(value)) return "–";
  return value >= 100 ? count(value) : value.toFixed(1);
}

export const percent = (part) => (Number.isFinite(part) ? `${Math.round(part * 100)} %` : "–");

export const ago = (ms) => (ms < 1000 ? "now" : `${duration(ms)} ago`);

export const clock = (time) => new Date(time).toLocaleTimeString([], { hour12: false });

export const moment = (time) => new Date(time).toLocaleString([], { hour12: false });

// A job's UUID, or the one in a worker's id, by its first digits; an id that somebody chose stays whole.
export const shortId = (id) => id.replace(/^((?:worker-)?[0-9a-f]{8})(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/, "$1");

// "file:/srv/models/tale.gguf" -> "tale.gguf"
export const fileName = (ref) => ref.slice(ref.lastIndexOf("/") + 1);
