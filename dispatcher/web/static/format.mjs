// Values as text. Each function takes null for "not known".

const UNKNOWN = "–";

function scaled(value, base, units) {
  let unit = 0;
  while (value >= base && unit < units.length - 1) {
    value /= base;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${units[unit]}`;
}

export function bytes(value) {
  return value == null ? UNKNOWN : scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
}

export function byteRate(value) {
  return value == null ? UNKNOWN : `${bytes(value)}/s`;
}

export function count(value) {
  return value == null ? UNKNOWN : Math.round(value).toLocaleString("en-US");
}

// Such as "3 consumers".
export function things(value, thing) {
  return `${count(value)} ${thing}${value === 1 ? "" : "s"}`;
}

// Such as "2.5 events/s".
export function thingRate(value, thing) {
  if (value == null) return UNKNOWN;
  return `${value > 0 && value < 10 ? value.toFixed(1) : count(value)} ${thing}/s`;
}

// Seconds.
export function duration(value) {
  if (value == null) return UNKNOWN;
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (value >= 2 * length) return `${Math.floor(value / length)} ${unit}`;
  }
  return value > 0 && value < 10 ? `${value.toFixed(1)} s` : `${Math.round(value)} s`;
}

export function ago(value) {
  return value == null ? UNKNOWN : `${duration(value)} ago`;
}

// Seconds since 1970, in the viewer's time zone.
export function clock(value) {
  return new Date(value * 1000).toLocaleTimeString("en-GB");
}

export function place(file, offset) {
  return file ? `${file}:${offset}` : UNKNOWN;
}
